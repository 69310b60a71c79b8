"""What a torch module holds: a record of each parameter and buffer."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import torch

from ..base import ArgumentError
from .dtypes import name_of


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
    def held_shape(self) -> tuple[int, ...]:
        """Shape of the array that holds it; MXNet knows no arrays without axes."""
        return self.shape or (1,)

    def as_held(self, tensor: torch.Tensor) -> torch.Tensor:
        """Return an array's tensor as the module expects the parameter."""
        shaped = tensor if self.shape else tensor.view(())
        return shaped if self.trained else shaped.detach()


def slots_of(module: torch.nn.Module) -> tuple[tuple[TorchSlot, ...], tuple[TorchSlot, ...]]:
    """Describe a module's parameters and its buffers; a tied one counts once, as in torch."""
    parameters = _described(module, module.named_parameters(), False)
    buffers = _described(module, module.named_buffers(), True)
    _check_names((*parameters, *buffers))
    return parameters, buffers


def _described(
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
    """Say whether a parameter or buffer has two names."""
    names = [
        len([*module.named_parameters(remove_duplicate=once), *module.named_buffers(remove_duplicate=once)])
        for once in (True, False)
    ]
    return names[0] != names[1]
