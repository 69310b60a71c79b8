"""Where the modules of a chain meet: batches handed on, and messages that name both sides."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ..base import ArgumentError, DTypeError, MXNetError, ShapeError, StateError
from ..io import DataBatch, DataDesc
from ..ndarray import NDArray
from .base_module import BaseModule

__all__ = ["called", "clear_input_grads", "kind_of", "listed", "same_kind", "with_data"]


def kind_of(module: BaseModule) -> str:
    """Return a module's class and outputs."""
    return f"{type(module).__name__} {', '.join(module.output_names)}".rstrip()


def called(number: int, module: BaseModule) -> str:
    """Return what a module is called in messages: its place, its kind and its outputs."""
    return f"module {number} ({kind_of(module)})"


def listed(shapes: Sequence[Any]) -> str:
    """Return names and shapes as text."""
    return ", ".join(f"{d[0]} {tuple(d[1])}" for d in shapes)


def same_kind(error: MXNetError, text: str) -> MXNetError:
    """Return an error with more text and the type of another one."""
    kinds = (ShapeError, DTypeError, ArgumentError, StateError)
    return next((kind for kind in kinds if isinstance(error, kind)), MXNetError)(text)


def with_data(batch: Any, data: list[NDArray], bound: Sequence[Any]) -> Any:
    """Return a copy of a batch with other data, described by the names of the module that reads it."""
    if isinstance(batch, tuple):
        batch = DataBatch(None, getattr(batch, "label", None), getattr(batch, "pad", None))
    made = copy.copy(batch)
    made.data = data
    made.provide_data = [
        DataDesc(d[0], array.shape, getattr(d, "dtype", array.dtype), getattr(d, "layout", "NCHW"))
        for d, array in zip(bound, data)
    ]
    return made


def clear_input_grads(module: BaseModule) -> None:
    """Set the gradients of a module's inputs to zero, so that they hold one backward's only."""
    for parts in module.get_input_grads(merge_multi_context=False):
        for part in parts:
            if part is not None:
                part.tensor.zero_()
