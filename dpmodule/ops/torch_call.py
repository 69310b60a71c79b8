"""`TorchCall`: a `torch.nn.Module` as an operator of its own, run on parameters that it is handed."""

from __future__ import annotations

import copy
import itertools
import json
import threading
import weakref
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch

from ..base import ArgumentError, OpError, Shape, ShapeError
from ..context import gpu_module, is_gpu
from .dtypes import name_of, torch_dtype
from .shapes import known, output_shape, unify
from .spec import AUX, DATA, NEVER, PARAM, SHARE, Env, Input, Op, Shapes, Types


@dataclass(frozen=True, slots=True)
class TorchSlot:
    """One parameter or buffer of a torch module.

    Attributes:
        path: torch's name, such as "layers.0.weight".
        name: name of the operator's input, such as "layers_0_weight".
        shape: torch's shape.
        dtype: dtype name.
        trained: whether it wants a gradient.
        is_buffer: whether it is a buffer.
    """

    path: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    trained: bool
    is_buffer: bool

    @property
    def array_shape(self) -> tuple[int, ...]:
        """Shape of the array that holds it; MXNet knows no arrays without axes."""
        return self.shape or (1,)

    def as_parameter(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an array's tensor as the module expects the parameter."""
        shaped = tensor if self.shape else tensor.view(())
        return shaped if self.trained else shaped.detach()


def slots_of(module: torch.nn.Module) -> tuple[tuple[TorchSlot, ...], tuple[TorchSlot, ...]]:
    """Describe a module's parameters and its buffers; a tied one counts once, as in torch."""
    parameters = _slots(module, module.named_parameters(), False)
    buffers = _slots(module, module.named_buffers(), True)
    _check_names((*parameters, *buffers))
    return parameters, buffers


def _slots(
    module: torch.nn.Module, named: Iterator[tuple[str, torch.Tensor]], is_buffer: bool
) -> tuple[TorchSlot, ...]:
    found = []
    for path, tensor in named:
        if torch.nn.parameter.is_lazy(tensor):
            raise ArgumentError(
                f"torch_module: {path} of {type(module).__name__} has no shape yet; call the module once on data"
            )
        if 0 in tensor.shape:
            raise ArgumentError(
                f"torch_module: {path} of {type(module).__name__} is empty, of shape {tuple(tensor.shape)}; "
                "a symbol's arguments have at least one element"
            )
        name, shape, dtype = path.replace(".", "_"), tuple(tensor.shape), name_of(tensor.dtype)
        found.append(TorchSlot(path, name, shape, dtype, tensor.requires_grad and not is_buffer, is_buffer))
    return tuple(found)


def _check_names(slots: Sequence[TorchSlot]) -> None:
    """Refuse a module in which two paths give one name."""
    seen: dict[str, TorchSlot] = {}
    for slot in slots:
        other = seen.setdefault(slot.name, slot)
        if other is not slot:
            raise ArgumentError(
                f"torch_module: {other.path} and {slot.path} would both be called {slot.name}"
            )


def has_ties(module: torch.nn.Module) -> bool:
    """Return True if a parameter or buffer has two names."""
    names = [
        len([*module.named_parameters(remove_duplicate=once), *module.named_buffers(remove_duplicate=once)])
        for once in (True, False)
    ]
    return names[0] != names[1]


_random_lock = threading.RLock()


class TorchModulePool:
    """A torch module and as many copies of it as run at the same time.

    `torch.func.functional_call` puts tensors into a module for the time of a call, so that no two threads may use
    one module. A copy shares all parameters and buffers.

    Args:
        module: the module; it is used itself whenever it is free.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._is_free = True
        self._copies: list[torch.nn.Module] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrowed(self) -> Iterator[torch.nn.Module]:
        """Lend the module, or a copy of it in the same modes, for the length of the block."""
        with self._lock:
            is_own, self._is_free = self._is_free, False
            found = self._module if is_own else self._copies.pop() if self._copies else self._copied()
            for own, part in zip(self._module.modules(), () if is_own else found.modules()):
                part.training = own.training
        try:
            yield found
        finally:
            with self._lock:
                if is_own:
                    self._is_free = True
                else:
                    self._copies.append(found)

    def _copied(self) -> torch.nn.Module:
        shared = {id(t): t for t in (*self._module.parameters(), *self._module.buffers())}
        return copy.deepcopy(self._module, shared)


@contextmanager
def in_mode(module: torch.nn.Module, is_train: bool) -> Iterator[None]:
    """Put a module into training or prediction mode for the length of the block.

    A module that is in the mode already stays as it is, parts that its owner has switched apart included.

    Args:
        module: the module.
        is_train: the mode.
    """
    if module.training is is_train:
        yield
        return
    before = [(part, part.training) for part in module.modules()]
    module.train(is_train)
    try:
        yield
    finally:
        for part, flag in before:
            part.training = flag


@contextmanager
def drawing_from(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """Let torch's global random functions draw from a generator for the length of the block.

    One thread at a time: torch has one global generator per device.

    Args:
        generator: the generator, which moves on; None leaves torch's own.
        device: where the numbers are drawn.
    """
    if generator is None:
        yield
        return
    with _random_lock:
        outer = _global_state(device)
        _set_global_state(generator.get_state(), device)
        try:
            yield
        finally:
            generator.set_state(_global_state(device))
            _set_global_state(outer, device)


def _global_state(device: torch.device) -> torch.Tensor:
    return gpu_module().get_rng_state(device) if is_gpu(device) else torch.get_rng_state()


def _set_global_state(state: torch.Tensor, device: torch.device) -> None:
    if is_gpu(device):
        gpu_module().set_rng_state(state, device)
    else:
        torch.set_rng_state(state)


_numbers = itertools.count()
_live: weakref.WeakValueDictionary[int, TorchCall] = weakref.WeakValueDictionary()


@dataclass(frozen=True, slots=True)
class _TrialCall:
    """One way to call a module for the sake of its output shapes."""

    device: torch.device
    dtypes: tuple[torch.dtype, ...]
    copies: bool


class TorchCall:
    """A torch module with what an operator needs to know about it.

    Args:
        module: the module; it stays the user's own and in its modes.
        dtypes: type of each input; None finds out: the module's own floating type, or int64 if that fails.
    """

    def __init__(
        self,
        module: torch.nn.Module,
        num_inputs: int = 1,
        num_outputs: int = 1,
        dtypes: Sequence[str] | None = None,
    ) -> None:
        if not isinstance(module, torch.nn.Module):
            raise ArgumentError(f"torch_module: got {module!r}, expected a torch.nn.Module")
        scripted = [
            n or "module" for n, part in module.named_modules() if isinstance(part, torch.jit.ScriptModule)
        ]
        if scripted:
            raise ArgumentError(
                f"torch_module: {scripted[0]} is a torch.jit.ScriptModule, whose parameters cannot be replaced; give "
                "the module that it was scripted or traced from"
            )
        if dtypes is not None and len(dtypes) != num_inputs:
            raise ArgumentError(f"torch_module: dtypes has {len(dtypes)} entries for {num_inputs} inputs")
        self.module = module
        self.kind = module._get_name()  # type: ignore[no-untyped-call]  # so it is in torch
        self.number = next(_numbers)
        self.parameters, self.buffers = slots_of(module)
        self._num_inputs, self._num_outputs = num_inputs, num_outputs
        types = [*(s.dtype for s in self.parameters), *(dtypes or ())]
        self._floating = next((t for t in types if torch_dtype(t).is_floating_point), "float32")
        self._declared = None if dtypes is None else tuple(torch_dtype(d) for d in dtypes)
        self._is_tied = has_ties(module)  # looking for it in each call takes long
        self._instances = TorchModulePool(module)
        self._trial: _TrialCall | None = None
        self._shapes: dict[Any, list[tuple[int, ...]]] = {}
        self.op = self._declare()
        _live[self.number] = self

    @property
    def input_names(self) -> tuple[str, ...]:
        """Names of the operator's data inputs."""
        return ("data",) if self._num_inputs == 1 else tuple(f"data{i}" for i in range(self._num_inputs))

    def module_tensor(self, slot: TorchSlot) -> torch.Tensor:
        """Return the module's own parameter or buffer."""
        return self.module.get_buffer(slot.path) if slot.is_buffer else self.module.get_parameter(slot.path)

    def value(self, slot: TorchSlot) -> torch.Tensor:
        """Return the memory of a parameter or buffer, in the shape that arrays hold."""
        return self.module_tensor(slot).data.view(slot.array_shape)

    def _declare(self) -> Op:
        inputs = [Input(name, DATA) for name in self.input_names]
        for kind, slots in ((PARAM, self.parameters), (AUX, self.buffers)):
            for slot in slots:
                init = json.dumps(["torchvalue", {"number": self.number, "path": slot.path}])
                inputs.append(Input(slot.name, kind, SHARE, None, init))
        count = self._num_outputs
        return Op(
            f"torch.{self.kind}.{self.number}",
            self.run,
            lambda *values: values,
            {},
            tuple(inputs),
            outputs=("output",) if count == 1 else tuple(f"output{i}" for i in range(count)),
            mutates=tuple(slot.name for slot in self.buffers),
            infer=self._infer,
            infer_type=self._infer_type,
            random=True,
            batch=NEVER,
            owner=self,
            doc=f"Run the torch module {self.kind}.",
        )

    # running

    def run(self, a: Any, env: Env, *tensors: torch.Tensor) -> Any:
        """Call the module with other tensors in place of its parameters and buffers.

        Args:
            env: device, generator and mode; in training the module's random numbers come from the generator.

        Returns:
            The outputs, followed by new values of the buffers (None in prediction).
        """
        data, rest = tensors[: self._num_inputs], tensors[self._num_inputs :]
        slots = (*self.parameters, *self.buffers)
        given = {s.path: s.as_parameter(t) for s, t in zip(slots, rest)}
        if env.is_train:
            given.update({s.path: given[s.path].clone() for s in self.buffers})
        trial = self._trial
        if trial is not None:
            data = tuple(_converted(t, dtype, trial.copies) for t, dtype in zip(data, trial.dtypes))
        generator = env.generator if env.is_train else None
        with (
            self._instances.borrowed() as module,
            in_mode(module, env.is_train),
            drawing_from(generator, env.device),
        ):
            result = self._call(module, given, data)
        outputs = _copy_shared(self._checked(result), tensors)
        states = [given[s.path].detach().view(s.array_shape) if env.is_train else None for s in self.buffers]
        return outputs[0] if len(outputs) == 1 and not states else (*outputs, *states)

    def _call(
        self, module: torch.nn.Module, given: dict[str, torch.Tensor], data: tuple[torch.Tensor, ...]
    ) -> Any:
        """Call a module with other parameters; new values of buffers are written to `given`."""
        return torch.func.functional_call(module, given, data, tie_weights=self._is_tied)

    def _checked(self, result: Any) -> list[torch.Tensor]:
        """Return a module's result as a list of tensors."""
        found = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(found) != self._num_outputs or not all(isinstance(t, torch.Tensor) for t in found):
            kinds = ", ".join(type(t).__name__ for t in found)
            raise OpError(
                f"torch module {self.kind} returned {kinds or 'nothing'}, expected {self._num_outputs} tensor(s); "
                "say num_outputs=N, or wrap it in a module that returns tensors only"
            )
        return [t if t.dim() else t.view(1) for t in found]

    # inference

    def _infer(self, a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        """Tell parameter shapes at once, and output shapes by calling the module on the meta device."""
        count = self._num_inputs
        held: list[Shape] = [slot.array_shape for slot in (*self.parameters, *self.buffers)]
        own = [unify(given, shape, "given shape and the module's") for given, shape in zip(ins[count:], held)]
        found = [*ins[:count], *own]
        data = tuple(ins[:count])
        if not all(known(shape) for shape in data):
            return found, outs
        if data not in self._shapes:
            self._shapes[data] = self._try_all([shape or () for shape in data])
        return found, [output_shape(o, s) for o, s in zip(outs, self._shapes[data])]

    def _infer_type(self, a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
        """Tell the types of parameters; outputs are taken to be of the module's floating type."""
        declared = [
            self._floating if d is None else name_of(d) for d in self._declared or [None] * self._num_inputs
        ]
        data = [given or own for given, own in zip(ins, declared)]
        return [*data, *(s.dtype for s in (*self.parameters, *self.buffers))], [
            o or self._floating for o in outs
        ]

    def _trials(self) -> Iterator[_TrialCall]:
        """Yield ways to call the module, what worked last time first."""
        if self._trial is not None:
            yield self._trial
        homes = {t.device for t in (*self.module.parameters(), *self.module.buffers())} or {
            torch.device("cpu")
        }
        if self._declared is not None:
            types = [self._declared]
        else:
            types = [(kind,) * self._num_inputs for kind in (torch_dtype(self._floating), torch.int64)]
        for device in (torch.device("meta"), homes.pop()):
            for dtypes in types:
                for copies in (False, True):
                    yield _TrialCall(device, dtypes, copies)

    def _try_all(self, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Return the output shapes for input shapes."""
        failed: dict[bool, Exception] = {}
        for trial in self._trials():
            result = self._attempt(trial, shapes)
            if not isinstance(result, Exception):
                self._trial = trial
                return result
            failed.setdefault(trial.device.type == "meta", result)
        reason = failed.get(False, failed[True])  # the first try on real memory tells most
        given = ", ".join(map(str, shapes))
        raise ShapeError(f"torch module {self.kind} fails on inputs of shape {given}: {reason}") from reason

    def _attempt(
        self, trial: _TrialCall, shapes: Sequence[tuple[int, ...]]
    ) -> list[tuple[int, ...]] | Exception:
        """Return the output shapes, or what the module raised."""
        try:
            return self._try(trial, shapes)
        except OpError:
            raise
        except Exception as error:  # a user's module may raise anything
            return error

    def _try(self, trial: _TrialCall, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Call the module once, in prediction mode, and return the shapes of its outputs.

        Inputs want a gradient, so that a module which changes them in place fails and is tried on copies.
        """
        own = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        with torch.no_grad():
            given = {
                path: torch.empty_like(t, device=trial.device)
                if trial.device.type == "meta"
                else t.detach().clone()
                for path, t in own.items()
            }
        data = [
            torch.zeros(s, dtype=d, device=trial.device, requires_grad=d.is_floating_point)
            for s, d in zip(shapes, trial.dtypes)
        ]
        with torch.enable_grad(), self._instances.borrowed() as module, in_mode(module, False):
            inputs = tuple(t.clone() if trial.copies else t for t in data)
            return [tuple(t.shape) for t in self._checked(self._call(module, given, inputs))]


def _converted(tensor: torch.Tensor, dtype: torch.dtype, copies: bool) -> torch.Tensor:
    """Return an input as the module takes it: whole numbers where it wants them, a copy if it changes its input."""
    if tensor.is_floating_point() and not dtype.is_floating_point:
        return tensor.to(dtype)
    return tensor.clone() if copies else tensor


def _copy_shared(outputs: list[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy outputs that share memory with an input or with each other."""
    taken = {t.untyped_storage().data_ptr() for t in inputs}
    found = []
    for out in outputs:
        memory = out.untyped_storage().data_ptr()
        found.append(out.clone() if memory in taken else out)
        taken.add(memory)
    return found


def torch_value(number: int, path: str) -> torch.Tensor:
    """Return the present value of a torch module's parameter or buffer, in the shape that arrays hold.

    Args:
        number: the number of its `TorchCall`.
    """
    call = _live.get(number)
    slot = (
        next((s for s in (*call.parameters, *call.buffers) if s.path == path), None)
        if call is not None
        else None
    )
    if call is None or slot is None:
        raise ArgumentError(
            f"the torch module that held {path!r} is gone; make the symbol again, or give values in arg_params"
        )
    return call.value(slot)
