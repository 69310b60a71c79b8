"""`TorchCall`: a `torch.nn.Module` as an operator with its parameters as inputs."""

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
    """Parameter or buffer of a torch module.

    Attributes:
        path: name in torch, such as "layers.0.weight".
        name: name of the operator's input, such as "layers_0_weight".
        shape: shape in torch.
        dtype: dtype name.
        trained: True if it requires a gradient.
        is_buffer: True for a buffer.
    """

    path: str
    name: str
    shape: tuple[int, ...]
    dtype: str
    trained: bool
    is_buffer: bool

    @property
    def array_shape(self) -> tuple[int, ...]:
        """Shape of its array; MXNet has no arrays without axes."""
        return self.shape or (1,)

    def as_parameter(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an array's tensor in the parameter's shape, detached if it is not trained."""
        shaped = tensor if self.shape else tensor.view(())
        return shaped if self.trained else shaped.detach()


def slots_of(module: torch.nn.Module) -> tuple[tuple[TorchSlot, ...], tuple[TorchSlot, ...]]:
    """Return the slots of a module's parameters and buffers; tied ones occur once, as in torch."""
    parameters = _slots(module, module.named_parameters(), False)
    buffers = _slots(module, module.named_buffers(), True)
    _check_names((*parameters, *buffers))
    return parameters, buffers


def _slots(
    module: torch.nn.Module, named: Iterator[tuple[str, torch.Tensor]], is_buffer: bool
) -> tuple[TorchSlot, ...]:
    slots = []
    for path, tensor in named:
        if torch.nn.parameter.is_lazy(tensor):
            raise ArgumentError(
                f"torch_module: {path} of {type(module).__name__} has no shape yet; call the module once on data"
            )
        if 0 in tensor.shape:
            raise ArgumentError(
                f"torch_module: {path} of {type(module).__name__} is empty, with shape {tuple(tensor.shape)}; "
                "a symbol's arguments need at least one element"
            )
        name, shape, dtype = path.replace(".", "_"), tuple(tensor.shape), name_of(tensor.dtype)
        slots.append(TorchSlot(path, name, shape, dtype, tensor.requires_grad and not is_buffer, is_buffer))
    return tuple(slots)


def _check_names(slots: Sequence[TorchSlot]) -> None:
    """Raise an error if two paths give the same name."""
    seen: dict[str, TorchSlot] = {}
    for slot in slots:
        other = seen.setdefault(slot.name, slot)
        if other is not slot:
            raise ArgumentError(
                f"torch_module: {other.path} and {slot.path} would both be called {slot.name}"
            )


def has_ties(module: torch.nn.Module) -> bool:
    """Return True if a parameter or buffer is tied, that is, has two names."""
    names = [
        len([*module.named_parameters(remove_duplicate=once), *module.named_buffers(remove_duplicate=once)])
        for once in (True, False)
    ]
    return names[0] != names[1]


_random_lock = threading.RLock()


class TorchModulePool:
    """Pool of a torch module and copies of it for concurrent calls.

    `torch.func.functional_call` sets a module's tensors during a call, so two threads must not share a module. Copies
    share all parameters and buffers.

    Args:
        module: the module, which is used itself when it is free.
    """

    def __init__(self, module: torch.nn.Module) -> None:
        self._module = module
        self._is_free = True
        self._copies: list[torch.nn.Module] = []
        self._lock = threading.Lock()

    @contextmanager
    def borrowed(self) -> Iterator[torch.nn.Module]:
        """Provide the module, or a copy of it in the same modes, inside the block."""
        with self._lock:
            is_own, self._is_free = self._is_free, False
            module = self._module if is_own else self._copies.pop() if self._copies else self._copied()
            for own, submodule in zip(self._module.modules(), () if is_own else module.modules()):
                submodule.training = own.training
        try:
            yield module
        finally:
            with self._lock:
                if is_own:
                    self._is_free = True
                else:
                    self._copies.append(module)

    def _copied(self) -> torch.nn.Module:
        shared = {id(t): t for t in (*self._module.parameters(), *self._module.buffers())}
        return copy.deepcopy(self._module, shared)


@contextmanager
def in_mode(module: torch.nn.Module, is_train: bool) -> Iterator[None]:
    """Set a module to training or prediction mode inside the block.

    A module already in this mode is not changed, including submodules that its owner has switched.

    Args:
        module: the module.
        is_train: True for training mode.
    """
    if module.training is is_train:
        yield
        return
    before = [(submodule, submodule.training) for submodule in module.modules()]
    module.train(is_train)
    try:
        yield
    finally:
        for submodule, flag in before:
            submodule.training = flag


@contextmanager
def drawing_from(generator: torch.Generator | None, device: torch.device) -> Iterator[None]:
    """Let torch's global random functions draw from a generator inside the block.

    Blocks exclude each other between threads, since torch has one global generator per device.

    Args:
        generator: the generator, whose state advances; None keeps torch's own.
        device: device of the random numbers.
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
    """Settings of a trial call of a module that determines its output shapes."""

    device: torch.device
    dtypes: tuple[torch.dtype, ...]
    copies: bool


class TorchCall:
    """Operator that calls a torch module.

    Args:
        module: the module, which is not modified.
        dtypes: type of each input; None tries the module's floating type, then int64.
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
            n or "module"
            for n, submodule in module.named_modules()
            if isinstance(submodule, torch.jit.ScriptModule)
        ]
        if scripted:
            raise ArgumentError(
                f"torch_module: {scripted[0]} is a torch.jit.ScriptModule, whose parameters cannot be replaced; pass "
                "the module that it was scripted or traced from"
            )
        if dtypes is not None and len(dtypes) != num_inputs:
            raise ArgumentError(f"torch_module: dtypes has {len(dtypes)} entries for {num_inputs} inputs")
        self.module = module
        self.kind = module._get_name()  # type: ignore[no-untyped-call]  # untyped in torch
        self.number = next(_numbers)
        self.parameters, self.buffers = slots_of(module)
        self._num_inputs, self._num_outputs = num_inputs, num_outputs
        types = [*(s.dtype for s in self.parameters), *(dtypes or ())]
        self._floating = next((t for t in types if torch_dtype(t).is_floating_point), "float32")
        self._declared = None if dtypes is None else tuple(torch_dtype(d) for d in dtypes)
        self._is_tied = has_ties(module)  # checking in each call would be slow
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
        """Return the tensor of a parameter or buffer in its array's shape; it shares memory."""
        return self.module_tensor(slot).data.view(slot.array_shape)

    def _declare(self) -> Op:
        inputs = [Input(name, DATA) for name in self.input_names]
        for kind, slots in ((PARAM, self.parameters), (AUX, self.buffers)):
            for slot in slots:
                init = json.dumps(["torchmodulevalue", {"number": self.number, "path": slot.path}])
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
        """Call the module with other tensors as its parameters and buffers.

        Args:
            env: device, generator and mode; the generator provides the module's random numbers in training.

        Returns:
            The outputs, followed by the new values of the buffers (None in prediction).
        """
        data, rest = tensors[: self._num_inputs], tensors[self._num_inputs :]
        slots = (*self.parameters, *self.buffers)
        tensors_by_path = {s.path: s.as_parameter(t) for s, t in zip(slots, rest)}
        if env.is_train:
            tensors_by_path.update({s.path: tensors_by_path[s.path].clone() for s in self.buffers})
        trial = self._trial
        if trial is not None:
            data = tuple(_convert_input(t, dtype, trial.copies) for t, dtype in zip(data, trial.dtypes))
        generator = env.generator if env.is_train else None
        with (
            self._instances.borrowed() as module,
            in_mode(module, env.is_train),
            drawing_from(generator, env.device),
        ):
            result = self._call(module, tensors_by_path, data)
        outputs = _copy_shared(self._checked(result), tensors)
        states = [
            tensors_by_path[s.path].detach().view(s.array_shape) if env.is_train else None
            for s in self.buffers
        ]
        return outputs[0] if len(outputs) == 1 and not states else (*outputs, *states)

    def _call(
        self, module: torch.nn.Module, tensors: dict[str, torch.Tensor], data: tuple[torch.Tensor, ...]
    ) -> Any:
        """Call a module with other parameters; new values of buffers are written to `tensors`."""
        return torch.func.functional_call(module, tensors, data, tie_weights=self._is_tied)

    def _checked(self, result: Any) -> list[torch.Tensor]:
        """Return a module's result as a list of tensors."""
        outputs = list(result) if isinstance(result, (tuple, list)) else [result]
        if len(outputs) != self._num_outputs or not all(isinstance(t, torch.Tensor) for t in outputs):
            kinds = ", ".join(type(t).__name__ for t in outputs)
            raise OpError(
                f"torch module {self.kind} returned {kinds or 'nothing'}, expected {self._num_outputs} tensor(s); "
                "pass num_outputs=N, or wrap it in a module that only returns tensors"
            )
        return [t if t.dim() else t.view(1) for t in outputs]

    # inference

    def _infer(self, a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        """Infer parameter shapes from the module, and output shapes by calling it on the meta device."""
        count = self._num_inputs
        held: list[Shape] = [slot.array_shape for slot in (*self.parameters, *self.buffers)]
        own = [
            unify(declared, shape, "given shape and the module's")
            for declared, shape in zip(ins[count:], held)
        ]
        in_shapes = [*ins[:count], *own]
        data = tuple(ins[:count])
        if not all(known(shape) for shape in data):
            return in_shapes, outs
        if data not in self._shapes:
            self._shapes[data] = self._try_all([shape or () for shape in data])
        return in_shapes, [output_shape(o, s) for o, s in zip(outs, self._shapes[data])]

    def _infer_type(self, a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
        """Infer the types of parameters; outputs are assumed to have the module's floating type."""
        declared = [
            self._floating if d is None else name_of(d) for d in self._declared or [None] * self._num_inputs
        ]
        data = [known_type or default for known_type, default in zip(ins, declared)]
        return [*data, *(s.dtype for s in (*self.parameters, *self.buffers))], [
            o or self._floating for o in outs
        ]

    def _trials(self) -> Iterator[_TrialCall]:
        """Yield trial calls, starting with the last successful one."""
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
        reason = failed.get(False, failed[True])  # the first trial on real memory is the most informative
        described = ", ".join(map(str, shapes))
        raise ShapeError(
            f"torch module {self.kind} fails on inputs of shape {described}: {reason}"
        ) from reason

    def _attempt(
        self, trial: _TrialCall, shapes: Sequence[tuple[int, ...]]
    ) -> list[tuple[int, ...]] | Exception:
        """Return the output shapes, or the module's exception."""
        try:
            return self._try(trial, shapes)
        except OpError:
            raise
        except Exception as error:  # a user's module may raise anything
            return error

    def _try(self, trial: _TrialCall, shapes: Sequence[tuple[int, ...]]) -> list[tuple[int, ...]]:
        """Call the module once in prediction mode and return the shapes of its outputs.

        Inputs require a gradient, so that a module that modifies them in place fails and is tried on copies.
        """
        originals = {**dict(self.module.named_parameters()), **dict(self.module.named_buffers())}
        with torch.no_grad():
            tensors = {
                path: torch.empty_like(t, device=trial.device)
                if trial.device.type == "meta"
                else t.detach().clone()
                for path, t in originals.items()
            }
        data = [
            torch.zeros(s, dtype=d, device=trial.device, requires_grad=d.is_floating_point)
            for s, d in zip(shapes, trial.dtypes)
        ]
        with torch.enable_grad(), self._instances.borrowed() as module, in_mode(module, False):
            inputs = tuple(t.clone() if trial.copies else t for t in data)
            return [tuple(t.shape) for t in self._checked(self._call(module, tensors, inputs))]


def _convert_input(tensor: torch.Tensor, dtype: torch.dtype, copies: bool) -> torch.Tensor:
    """Convert an input to the module's type, and copy it if the module modifies its inputs."""
    if tensor.is_floating_point() and not dtype.is_floating_point:
        return tensor.to(dtype)
    return tensor.clone() if copies else tensor


def _copy_shared(outputs: list[torch.Tensor], inputs: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    """Copy outputs that share memory with an input or with each other."""
    taken = {t.untyped_storage().data_ptr() for t in inputs}
    copies = []
    for out in outputs:
        memory = out.untyped_storage().data_ptr()
        copies.append(out.clone() if memory in taken else out)
        taken.add(memory)
    return copies


def torch_value(number: int, path: str) -> torch.Tensor:
    """Return the current value of a torch module's parameter or buffer, in its array's shape.

    Args:
        number: number of its `TorchCall`.
    """
    call = _live.get(number)
    slot = (
        next((s for s in (*call.parameters, *call.buffers) if s.path == path), None)
        if call is not None
        else None
    )
    if call is None or slot is None:
        raise ArgumentError(
            f"the torch module with {path!r} no longer exists; create the symbol again, or pass values in arg_params"
        )
    return call.value(slot)
