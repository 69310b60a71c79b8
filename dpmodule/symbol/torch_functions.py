"""Recurrent networks and custom functions as single operators of torch.export.

torch.export would decompose networks, which takes long and fixes the number of steps, and would drop the gradients of
custom functions. Hooks raise an error.
"""

from __future__ import annotations

import itertools
import threading
import weakref
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch
from torch.autograd.grad_mode import inference_mode
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.checkpoint import CheckpointFunction

from ..base import ArgumentError

NAMESPACE = "dpmodule"
"""Namespace of these operators in torch, as in ``torch.ops.dpmodule.lstm``."""

_REST = (
    "Tensor[] params, bool has_biases, int num_layers, float dropout, bool train, bool bidirectional, "
    "bool batch_first) -> "
)
_NETWORKS: dict[str, Callable[..., Any]] = {
    "lstm": torch.lstm,
    "gru": torch.gru,
    "rnn_tanh": torch.rnn_tanh,
    "rnn_relu": torch.rnn_relu,
}


def _empty_network(
    data: torch.Tensor, states: torch.Tensor | Sequence[torch.Tensor], *rest: Any
) -> tuple[torch.Tensor, ...]:
    """Return empty results: the output has the shape of the data with the features of the states."""
    state_list = [states] if isinstance(states, torch.Tensor) else states
    bidirectional = rest[5]
    output = data.new_empty(*data.shape[:-1], state_list[0].shape[-1] * (2 if bidirectional else 1))
    return (output, *(torch.empty_like(s) for s in state_list))


def _define(name: str, function: Callable[..., Any]) -> None:
    """Define the torch operator that replaces one of torch's functions."""
    full = f"{NAMESPACE}::{name}"
    several = name == "lstm"
    states, last = ("Tensor[] hx", "Tensor, Tensor") if several else ("Tensor hx", "Tensor")
    torch.library.define(full, f"(Tensor input, {states}, {_REST}(Tensor, {last})")
    torch.library.impl(full, "CompositeExplicitAutograd", function)
    torch.library.register_fake(full, _empty_network)


for _name, _function in _NETWORKS.items():
    _define(_name, _function)


class WholeNetworks(TorchFunctionMode):
    """Mode in which torch's recurrent networks over padded sequences are single operators."""

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch, or its replacement."""
        name = getattr(func, "__name__", "")
        if name == "_pack_padded_sequence":
            raise ArgumentError(
                "packed sequences have lengths that are known only at run time; pad them instead"
            )
        if _NETWORKS.get(name) is func and len(args) == 9 and isinstance(args[3], bool):
            states = list(args[1]) if name == "lstm" else args[1]
            return getattr(getattr(torch.ops, NAMESPACE), name)(args[0], states, *args[2:])
        return func(*args, **(kwargs or {}))


_NAME = f"{NAMESPACE}::autograd_function"
_numbers = itertools.count()
_applied: weakref.WeakValueDictionary[int, AppliedFunction] = weakref.WeakValueDictionary()
_PLAIN = (bool, int, float, complex, str, bytes, type(None), torch.dtype, torch.device, torch.layout)
_Function: Any = torch.autograd.Function
_inference_mode: Any = inference_mode
_apply_of_torch: Any = _Function.__dict__["apply"]
_one_at_a_time = threading.RLock()


def _apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
    """Call torch's own `apply` of a function."""
    return _apply_of_torch.__get__(None, cls)(*args, **kwargs)


class _Tensor:
    """Placeholder of a tensor among arguments or results."""


class AppliedFunction(torch.nn.Module):
    """A call of a `torch.autograd.Function` with changing tensors.

    Attributes:
        floating: element type of its results in a symbol.
    """

    def __init__(self, function: type[torch.autograd.Function], arguments: tuple[Any, ...]) -> None:
        super().__init__()
        leaves, self._spec = pytree.tree_flatten(arguments)
        self.tensors = [leaf for leaf in leaves if isinstance(leaf, torch.Tensor)]
        self._leaves = [_Tensor if isinstance(leaf, torch.Tensor) else leaf for leaf in leaves]
        self._dtypes = [(t.dtype, t.dim()) for t in self.tensors]
        self.floating = next((t.dtype for t in self.tensors if t.is_floating_point()), torch.float32)
        self.function = function
        for leaf in self._leaves:
            if isinstance(leaf, torch.SymInt):
                raise ArgumentError(
                    f"{function.__name__} gets a dynamic size; let its forward read the size from a tensor, or "
                    "fix it by dynamic={}"
                )
            if leaf is not _Tensor and not isinstance(leaf, _PLAIN):
                raise ArgumentError(
                    f"{function.__name__} gets an argument of type {type(leaf).__name__}, expected tensors and plain "
                    "values"
                )
        self.result: Any = None

    def called(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Call the function; return the tensors among its results, and store their positions in `result`."""
        remaining = iter(tensors)
        versions = [t._version for t in tensors]
        arguments = [next(remaining) if leaf is _Tensor else leaf for leaf in self._leaves]
        results, spec = pytree.tree_flatten(
            _apply(self.function, *pytree.tree_unflatten(arguments, self._spec))
        )
        if [t._version for t in tensors] != versions:
            raise ArgumentError(
                f"{self.function.__name__} writes into its arguments; let it return a new tensor"
            )
        self.result = [_Tensor if isinstance(one, torch.Tensor) else one for one in results], spec
        return [one for one in results if isinstance(one, torch.Tensor)]

    def forward(self, *tensors: torch.Tensor) -> tuple[torch.Tensor, ...]:
        """Call the function on a symbol's values, which have one axis for none in torch and numbers for bools."""
        inputs = [
            t.reshape(()).to(dtype) if rank == 0 else t.to(dtype)
            for t, (dtype, rank) in zip(tensors, self._dtypes)
        ]
        return tuple(one.to(self.floating) for one in self.called(inputs))

    def _get_name(self) -> str:
        return self.function.__name__

    def rebuilt(self, tensors: Sequence[torch.Tensor]) -> Any:
        """Return the function's results with other tensors."""
        leaves, spec = self.result
        remaining = iter(tensors)
        return pytree.tree_unflatten([next(remaining) if leaf is _Tensor else leaf for leaf in leaves], spec)


def applied_function(number: int) -> AppliedFunction:
    """Return the call with a number in torch's graph."""
    return _applied[number]


def _run(number: int, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [one.clone() for one in _applied[number].called(tensors)]


def _empty(number: int, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
    return [torch.empty_like(one) for one in _applied[number].called(tensors)]


torch.library.define(_NAME, "(int number, Tensor[] tensors) -> Tensor[]")
torch.library.impl(_NAME, "CompositeExplicitAutograd", _run)
torch.library.register_fake(_NAME, _empty)


class KeptGradients(TorchFunctionMode):
    """Mode in which torch.export preserves a module's handling of gradients.

    A call of a custom `torch.autograd.Function` becomes one operator, `torch.inference_mode` acts as `torch.no_grad`
    and ``tensor.data`` as ``tensor.detach()``. Hooks on tensors raise an error.

    Attributes:
        applied: the calls by number; they exist while something refers to them.
    """

    def __init__(self) -> None:
        super().__init__()
        self.applied: list[AppliedFunction] = []
        self._thread = threading.get_ident()
        self._is_inside = False
        self._enter_inference_mode: Any = None

    def __enter__(self) -> Any:
        """Start to preserve gradients."""
        _one_at_a_time.acquire()
        call, enter, thread = self._call, inference_mode.__enter__, threading.get_ident()

        def apply(cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
            return call(cls, *args, **kwargs)

        def enter_no_grad(mode: Any) -> None:
            if threading.get_ident() == thread:
                # `inference_mode.__exit__` leaves this instead of torch's own
                mode._inference_mode_context = torch.set_grad_enabled(not mode.mode)
            else:
                enter(mode)

        self._enter_inference_mode = enter
        _Function.apply, _inference_mode.__enter__ = classmethod(apply), enter_no_grad
        return super().__enter__()  # type: ignore[no-untyped-call]  # as in torch

    def __exit__(self, *error: Any) -> None:
        """Restore torch."""
        super().__exit__(*error)  # type: ignore[no-untyped-call]  # as in torch
        _Function.apply, _inference_mode.__enter__ = _apply_of_torch, self._enter_inference_mode
        _one_at_a_time.release()

    def _call(self, cls: type[torch.autograd.Function], *args: Any, **kwargs: Any) -> Any:
        """Call a user's function as one operator, and torch's functions as usual."""
        if threading.get_ident() != self._thread or self._is_inside:
            return _apply(cls, *args, **kwargs)
        if cls is CheckpointFunction:
            return _checkpointed(*args)
        if cls.__module__.partition(".")[0] == "torch" or torch._C._are_functorch_transforms_active():
            return _apply(cls, *args, **kwargs)
        applied = AppliedFunction(cls, args)
        if not applied.tensors:
            return _apply(cls, *args, **kwargs)
        self.applied.append(applied)
        number = next(_numbers)
        _applied[number] = applied
        tensors, applied.tensors = applied.tensors, []
        self._is_inside = True
        try:
            return applied.rebuilt(torch.ops.dpmodule.autograd_function(number, tensors))
        finally:
            self._is_inside = False

    def __torch_function__(
        self,
        func: Callable[..., Any],
        types: Iterable[type],
        args: tuple[Any, ...] = (),
        kwargs: dict[str, Any] | None = None,
    ) -> Any:
        """Call a function of torch."""
        if getattr(func, "__self__", None) is torch.Tensor.data:  # its getter
            return args[0].detach()
        if func in _HOOKS:
            raise ArgumentError(
                f"forward calls {func.__name__}, which a symbol cannot run; change the gradient in a "
                "torch.autograd.Function instead"
            )
        return func(*args, **(kwargs or {}))


_HOOKS = (torch.Tensor.register_hook, torch.Tensor.register_post_accumulate_grad_hook)


def _checkpointed(function: Callable[..., Any], preserves_random_state: bool, *args: Any) -> Any:
    """Run a reentrant checkpoint, with gradients only if an argument has one, as in torch."""
    needs_grad = any(isinstance(arg, torch.Tensor) and arg.requires_grad for arg in args)
    with torch.set_grad_enabled(torch.is_grad_enabled() and needs_grad):
        return function(*args)


def check_hooks(module: torch.nn.Module) -> None:
    """Raise for hooks that change gradients, which a symbol does not run."""
    owners = [
        name or "the module itself"
        for name, part in module.named_modules()
        if part._backward_hooks or part._backward_pre_hooks
    ]
    owners += [
        name
        for name, parameter in module.named_parameters()
        if parameter._backward_hooks or getattr(parameter, "_post_accumulate_grad_hooks", None)
    ]
    if owners:
        raise ArgumentError(
            f"from_torch: {type(module).__name__} has hooks on gradients ({', '.join(owners)}), which a symbol "
            "cannot run; remove them, or move them into a torch.autograd.Function"
        )
