"""Which symbols work row by row, so that many examples along the first axis are one call.

A graph does if every operator does, which is told from the operators' declarations (`Op.batch`, `Input.batch`), from
attributes that name an axis, and from shapes: every value that depends on an example must keep the rows in front, for
two numbers of rows that occur nowhere else.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from ..base import ShapeError
from ..graph import Graph, Node, infer_shapes
from ..ops.spec import NEVER, SHARE

__all__ = ["BY_SHAPE", "NORMALIZING", "can_stack", "reason_against"]

_NUMBERS = (7, 11)
"""Numbers of rows to try."""

_AXES = ("axis", "axes", "dim", "dim1", "dim2", "begin_axis")
"""Attributes that name an axis."""

NORMALIZING = frozenset({"BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU"})
"""These take statistics over what is in a batch, which is what they are for."""

_NAMES = """
SwapAxis expand_dims squeeze transpose SliceChannel _split_v2 Reshape slice slice_axis broadcast_axis broadcast_to
repeat tile Concat stack pick take argsort sort topk argmax argmax_channel argmin max mean min moments nanprod nansum
norm prod sum
broadcast_add broadcast_div broadcast_hypot broadcast_maximum broadcast_minimum broadcast_mod broadcast_mul
broadcast_power broadcast_sub broadcast_equal broadcast_greater broadcast_greater_equal broadcast_lesser
broadcast_lesser_equal broadcast_logical_and broadcast_logical_or broadcast_logical_xor broadcast_not_equal
batch_dot dot amp_multicast
"""
BY_SHAPE = frozenset(_NAMES.split())
"""Declared for `torch.vmap`, since attributes can make them anything; row-wise where axes and shapes say so."""


def can_stack(graph: Graph) -> bool:
    """Say whether no operator refuses to be stacked by `torch.vmap`."""
    return all(node.op is None or node.op.batch != NEVER for node in graph.nodes)


def reason_against(
    graph: Graph,
    examples: Mapping[str, tuple[int, ...]],
    others: Mapping[str, tuple[int, ...]],
    known: Collection[Node] = (),
) -> str:
    """Return why a graph does not work row by row, "" if it does.

    Args:
        graph: the graph.
        examples: the shape of one example of every input, without the axis of rows.
        others: the shapes of parameters and states.
        known: operators that work row by row whatever their declaration says, as those on ragged values do.
    """
    batched = _depends(graph, examples)
    for number in _NUMBERS:
        given = {**{name: (number, *shape) for name, shape in examples.items()}, **others}
        try:
            shapes = infer_shapes(graph, given)
        except ShapeError as error:
            return f"{number} examples do not fit: {error}"
        for node in graph.nodes:
            if node in batched and any(not shape or shape[0] != number for shape in shapes[node]):
                return f"{node.describe()} does not keep the examples apart along the first axis"
        for node in graph.nodes:
            if node.op is not None and node in batched and node not in known:
                reason = _reason(node, batched, shapes)
                if reason:
                    return f"{node.describe()} {reason}"
    return ""


def _depends(graph: Graph, examples: Collection[str]) -> set[Node]:
    found = {node for node in graph.inputs if node.name in examples}
    for node in graph.nodes:
        if any(child in found for child, _ in node.inputs):
            found.add(node)
    return found


def _reason(node: Node, batched: set[Node], shapes: Mapping[Node, Any]) -> str:
    op = node.op
    if op is None:
        return ""
    if op.name in NORMALIZING:
        return "" if getattr(node.a, "axis", 1) != 0 else "normalizes along the first axis"
    if op.batch == NEVER:
        return "takes one example at a time"
    if getattr(node.a, "normalization", None) not in (None, "null"):
        return f"divides by what is in the batch (normalization={node.a.normalization})"
    ndim = len(shapes[node.inputs[0][0]][node.inputs[0][1]] or ())
    if op.name in ("take", "dot"):
        return _reason_of_pair(node, batched)
    declared = op.wanted(node.a, len(node.inputs))
    for (child, _), one in zip(node.inputs, declared):
        if child in batched and one.batch == SHARE:
            return f"shares {one.name} among examples"
    if any(one.batch not in ("rows", SHARE) for one in declared) and op.name not in BY_SHAPE:
        return "is not declared to work row by row"
    return _reason_of_axes(node, ndim)


def _reason_of_pair(node: Node, batched: set[Node]) -> str:
    """Return why `take` or `dot` does not work row by row; both do for one of their operands only."""
    first, second = (child in batched for child, _ in node.inputs[:2])
    if node.op is not None and node.op.name == "take":
        return "" if second and not first and node.a.axis == 0 else "picks among examples"
    if second or getattr(node.a, "transpose_a", False):
        return "multiplies across examples"
    return ""


def _reason_of_axes(node: Node, ndim: int) -> str:
    op_name = "" if node.op is None else node.op.name
    if op_name == "transpose":
        order = tuple(node.a.axes or ())
        return "" if order[:1] == (0,) or ndim < 2 else "moves the first axis"
    if op_name == "slice" and any(step not in (None, 0, 1) for step in (node.a.step or ())[:1]):
        return "turns the first axis round"
    result_ndim = ndim + 1 if op_name in ("expand_dims", "stack") else ndim
    for name in _AXES:
        if not hasattr(node.a, name):
            continue
        value = getattr(node.a, name)
        if value is None and ndim < 2:
            return "works along the first axis"
        axes = tuple(value) if isinstance(value, (tuple, list)) else () if value is None else (value,)
        if any(axis is not None and int(axis) % max(result_ndim, 1) == 0 for axis in axes):
            return f"works along the first axis ({name}={value})"
    return ""
