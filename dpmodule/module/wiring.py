"""Where the modules of a chain meet: batches handed on, and messages that name both sides."""

from __future__ import annotations

import copy
from collections.abc import Sequence
from typing import Any

from ..base import ArgumentError, DTypeError, MXNetError, ShapeError, StateError
from ..io import DataBatch, DataDesc
from ..ndarray import NDArray
from ..ndarray.sparse_base import clear
from .base_module import BaseModule
from .group.input_order import names_bound, order_of


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
    """Return a copy of a batch with other data, described by the names of the module that reads it.

    Shape:
        data[i]: that of `bound[i]`, with any number of samples.
    """
    if isinstance(batch, tuple):
        batch = DataBatch(None, getattr(batch, "label", None), getattr(batch, "pad", None))
    made = copy.copy(batch)
    made.data = data
    made.provide_data = [
        DataDesc(
            d[0],
            array.shape,
            getattr(d, "dtype", array.dtype),
            getattr(d, "layout", "NCHW"),
            "ragged" if array.stype == "ragged" else "default",
        )
        for d, array in zip(bound, data)
    ]
    return made


def clear_input_grads(module: BaseModule) -> None:
    """Set the gradients of a module's inputs to zero, so that they hold one backward's only."""
    for parts in module.get_input_grads(merge_multi_context=False):
        for part in parts:
            if part is not None:
                clear(part)


def joint(modules: Sequence[BaseModule], number: int, shapes: Sequence[Any]) -> str:
    """Describe the place where a module does not fit what comes before it."""
    before = f"{called(number - 1, modules[number - 1])} gives" if number else "bind was given"
    return (
        f"SequentialModule: {called(number, modules[number])} does not take what {before}, {listed(shapes)}"
    )


def wired(modules: Sequence[BaseModule], number: int, shapes: Sequence[Any]) -> list[Any]:
    """Give shapes the names of a module's inputs, by position."""
    names = modules[number].data_names
    if len(names) != len(shapes):
        raise ArgumentError(
            f"{joint(modules, number, shapes)}: it has {len(names)} inputs, {', '.join(names)}"
        )
    return [
        d._replace(name=name) if isinstance(d, DataDesc) else (name, d[1]) for name, d in zip(names, shapes)
    ]


def check_bound(
    modules: Sequence[BaseModule],
    number: int,
    shapes: Sequence[Any],
    labels: Sequence[Any] | None,
    needs_grad: bool,
) -> None:
    """Refuse a module that ignored `bind`, because it had been bound before the chain was.

    Args:
        needs_grad: whether it was bound before and the chain needs gradients of its inputs.
    """
    module = modules[number]
    bound = [(d[0], tuple(d[1])) for d in module.data_shapes]
    if bound != [(d[0], tuple(d[1])) for d in shapes]:
        raise StateError(
            f"{joint(modules, number, shapes)}: it was bound before, to {listed(bound)}; "
            "bind the chain with force_rebind=True"
        )
    if labels and order_of(labels, names_bound(module, "label"), "label") is not None:
        raise StateError(
            f"SequentialModule: {called(number, module)} was bound before, to labels in another order than "
            f"{listed(labels)}; bind the chain with force_rebind=True"
        )
    if needs_grad and not module.inputs_need_grad:
        raise StateError(
            f"SequentialModule: {called(number, module)} was bound before, without inputs_need_grad=True, "
            "which a chain needs; bind the chain with force_rebind=True"
        )
