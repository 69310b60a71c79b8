"""Steps of trainers in one pass over value, gradient and moments, where the native extension is here."""

from __future__ import annotations

import math

import torch

from .. import native
from .storage import LookupStorage, ParameterStorage

__all__ = ["adam", "fits", "length", "step"]

Tensor = torch.Tensor


def fits(storage: ParameterStorage) -> bool:
    """Say whether value and gradient are what the functions below take."""
    value, gradient = storage.tensor, storage.gradient
    return (
        native.core is not None
        and gradient is not None
        and value.dtype is torch.float32
        and value.device.type == "cpu"
        and value.is_contiguous()
        and gradient.is_contiguous()
    )


def _extent(storage: ParameterStorage, rows: Tensor | None) -> tuple[int, int, int]:
    """Return the address of row numbers, how many rows, and numbers in a row."""
    size = storage.tensor.numel()
    if rows is None:
        return 0, 1, size
    return rows.data_ptr(), len(rows), size // len(storage.tensor)


def length(storages: list[ParameterStorage]) -> float:
    """Return the length of all gradients together; every storage `fits`."""
    core = native.core
    total = 0.0
    for storage in storages:
        rows = storage.rows() if isinstance(storage, LookupStorage) else None
        gradient = storage.gradient
        if core is not None and gradient is not None:
            total += core.autobatch_squared_length(gradient.data_ptr(), *_extent(storage, rows))
    return math.sqrt(total)


def _done(storage: ParameterStorage) -> None:
    """Remember that the gradient has been made zero."""
    if isinstance(storage, LookupStorage):
        storage.touched = []
    else:
        storage.spare = storage.gradient
    storage.gradient = None


def adam(
    storage: ParameterStorage,
    rows: Tensor | None,
    moments: list[Tensor],
    betas: tuple[float, float],
    rate: float,
    eps: float,
    scale: float,
) -> None:
    """Take a step of Adam, and make the gradient zero.

    Args:
        storage: the parameter.
        rows: those to update (int64), None for all.
        moments: mean and mean of squares.
        betas: the weights of the past.
        rate: the factor of the step.
        eps: added to the root.
        scale: the factor of the gradient.
    """
    core, gradient = native.core, storage.gradient
    if core is None or gradient is None:
        return
    addresses = [each.data_ptr() for each in (storage.tensor, gradient, *moments)]
    core.autobatch_adam(*addresses, *_extent(storage, rows), *betas, rate, eps, scale)
    torch.autograd.graph.increment_version(storage.tensor)
    _done(storage)


def step(storage: ParameterStorage, rows: Tensor | None, rate: float) -> None:
    """Add the gradient times `rate`, and make the gradient zero; arguments as for `adam`."""
    core, gradient = native.core, storage.gradient
    if core is None or gradient is None:
        return
    core.autobatch_step(storage.tensor.data_ptr(), gradient.data_ptr(), *_extent(storage, rows), rate)
    torch.autograd.graph.increment_version(storage.tensor)
    _done(storage)
