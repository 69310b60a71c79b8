"""Where backward starts: gradients of the outputs as users give them, and as losses make them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch

from ..base import ArgumentError, ShapeError
from ..ndarray import NDArray
from ..ops.sparse import leaf_of
from .sparse_arrays import is_sparse, seed_of

__all__ = ["given_gradients", "required"]


def given_gradients(
    out_grads: Any, names: Sequence[str], outputs: Sequence[NDArray], targets: Iterable[NDArray]
) -> list[torch.Tensor | None]:
    """Return the gradient given for each output, in its type and on its device; None where none is given.

    Args:
        out_grads: None, an NDArray, a list in the order of the outputs, or a dict by output name.
        names: names of the outputs.
        outputs: the outputs.
        targets: arrays that are going to be written; a gradient that is one of them is copied first.

    Raises:
        ArgumentError: another type, a wrong number, or a name that is no output.
        ShapeError: a gradient has another shape than its output.
    """
    count = len(outputs)
    if out_grads is None:
        return [None] * count
    if isinstance(out_grads, NDArray):
        given: list[Any] = [out_grads]
    elif isinstance(out_grads, Mapping):
        unknown = [k for k in out_grads if k not in names]
        if unknown:
            raise ArgumentError(
                f"out_grads: {', '.join(map(str, unknown))} is no output; outputs: {', '.join(names)}"
            )
        given = [out_grads.get(name) for name in names]
    elif isinstance(out_grads, (list, tuple)):
        given = list(out_grads) or [None] * count
    else:
        raise ArgumentError(f"out_grads is {type(out_grads).__name__}, expected an NDArray, a list or a dict")
    if len(given) != count:
        raise ArgumentError(f"out_grads has {len(given)} arrays for {count} outputs: {', '.join(names)}")
    written = {array.tensor.data_ptr() for array in targets if not is_sparse(array)}
    found: list[torch.Tensor | None] = []
    for name, grad, out in zip(names, given, outputs):
        tensor = None if grad is None else _checked(name, grad, out)
        shared = tensor is not None and not tensor.is_sparse and tensor.data_ptr() in written
        found.append(tensor.clone() if tensor is not None and shared else tensor)
    return found


def _checked(name: str, grad: Any, out: NDArray) -> torch.Tensor:
    if not isinstance(grad, NDArray):
        raise ArgumentError(f"out_grads: {name} is {type(grad).__name__}, expected an NDArray")
    if grad.shape != out.shape:
        raise ShapeError(f"out_grads: {name} has shape {grad.shape}, expected {out.shape}")
    tensor: torch.Tensor = seed_of(grad, out)
    return tensor


def required(name: str, is_loss: bool, given: torch.Tensor | None, root: torch.Tensor) -> torch.Tensor:
    """Return the gradient with which backward starts at an output that was not cut.

    Args:
        name: the output.
        is_loss: whether the output ignores its gradient.
        given: what the user gave.
        root: the output's tensor.

    Raises:
        ArgumentError: none was given, and the output is no loss.
    """
    if given is not None:
        return given
    if not is_loss:
        raise ArgumentError(
            f"backward: output {name!r} is no loss, so its gradient must be given in out_grads "
            "(or wrap it in BlockGrad or MakeLoss)"
        )
    return torch.ones_like(leaf_of(root))
