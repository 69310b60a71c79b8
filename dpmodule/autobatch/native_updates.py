"""Steps of trainers in one pass over value, gradient and moments, where the native extension is here."""

from __future__ import annotations

import math

import torch

from .. import native
from .storage import LookupStorage, ParameterStorage

__all__ = ["RULES", "fits", "length", "step"]

Tensor = torch.Tensor

RULES = ("descent", "momentum", "adagrad", "rmsprop", "adadelta", "adam", "amsgrad")
"""The rules in native code; as `Rule` in `kernels.hpp`."""


def fits(storage: ParameterStorage) -> bool:
    """Say whether value and gradient are what the functions below take."""
    value, gradient = storage.tensor, storage.gradient
    return (
        native.core is not None
        and gradient is not None
        and value.dtype is torch.float32
        and value.is_cpu
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


def step(
    rule: str,
    storage: ParameterStorage,
    rows: Tensor | None,
    moments: list[Tensor],
    factors: tuple[float, ...],
    scale: float,
) -> None:
    """Take a trainer's step, and make the gradient zero.

    Args:
        rule: one of `RULES`.
        storage: the parameter.
        rows: those to update (int64), None for all.
        moments: what the trainer keeps for it.
        factors: what the rule takes.
        scale: the factor of the gradient.
    """
    core, value, gradient = native.core, storage.tensor, storage.gradient
    if core is None or gradient is None:
        return
    addresses = [each.data_ptr() for each in (value, gradient, *moments)]
    addresses += [0] * (5 - len(addresses))
    numbers = (*factors, *[0.0] * (4 - len(factors)))
    core.autobatch_rule(RULES.index(rule), *addresses, *_extent(storage, rows), *numbers, scale)
    torch.autograd.graph.increment_version(value)
    _done(storage)
