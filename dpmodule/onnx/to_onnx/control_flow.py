"""Loops and branches, whose subgraphs become bodies of Scan, Loop and If."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from ...graph import Graph
from .call import Dims, OperatorCall
from .common import shape_value


def foreach(c: OperatorCall) -> list[str]:
    """Scan over axis 0 of the data."""
    a, num_data = c.a, len(c.a.in_data_locs)
    stop = num_data + len(a.in_state_locs)
    elements = [dims[1:] for dims in c.shapes[:num_data]]
    inner = c.inside("step")
    states = [inner.argument(*each) for each in zip(c.dtypes[num_data:stop], c.shapes[num_data:stop])]
    parts = [inner.argument(*each) for each in zip(c.dtypes, elements)]
    # an element of a vector has one axis here, and none in ONNX
    given = [
        part if dims else inner.emit("Reshape", part, inner.ints(1)) for part, dims in zip(parts, elements)
    ]
    count = len(c.inputs)
    order = (*a.in_data_locs, *a.in_state_locs, *a.remain_locs)
    values, dtypes = [""] * count, [""] * count
    dims: list[Dims] = [()] * count
    for i, position in enumerate(order):
        values[position] = [*given, *states, *c.inputs[stop:]][i]
        dims[position] = c.shapes[i] if i >= num_data else elements[i] or (1,)
        dtypes[position] = c.dtypes[i]
    made = inner.run(c.node.subgraphs[0], values, dims, dtypes)
    columns, last = made[: a.num_out_data], made[a.num_out_data :]
    body = inner.graph(*_reordered(c, last, columns))
    found = c.emit(
        "Scan",
        *c.inputs[num_data:stop],
        *c.inputs[:num_data],
        outputs=len(made),
        body=body,
        num_scan_inputs=num_data,
    )
    named = [found] if len(made) == 1 else list(found)
    return [*named[len(last) :], *named[: len(last)]]


def _reordered(
    c: OperatorCall, states: Sequence[str], columns: Sequence[str]
) -> tuple[list[str], list[str], list[Dims]]:
    """Return what a body returns, states first as ONNX wants them, with types and shapes."""
    count = len(columns)
    return (
        [*states, *columns],
        [*c.out_dtypes[count:], *c.out_dtypes[:count]],
        [*c.out_shapes[count:], *(dims[1:] for dims in c.out_shapes[:count])],
    )


def while_loop(c: OperatorCall) -> list[str]:
    """Loop, whose stacked outputs are filled up with zeros."""
    a, (test, step) = c.a, c.node.subgraphs
    sources = [a.func_input_locs[i] for i in a.func_var_locs]
    start = [c.inputs[i] for i in sources]
    inner = c.inside("step")
    inner.argument("int64", ())
    inner.argument("bool", ())
    states = [inner.argument(c.dtypes[i], c.shapes[i]) for i in sources]
    values = [c.inputs[i] for i in a.func_input_locs]
    for position, state in zip(a.func_var_locs, states):
        values[position] = state
    made = inner.run(step, values, *_described(c, a.func_input_locs))
    columns, last = made[: a.num_out_data], made[a.num_out_data :]
    after = dict(zip(sources, last))
    again = _truth(inner, test, [after.get(i, c.inputs[i]) for i in a.cond_input_locs])
    values, dtypes, dims = _reordered(c, last, columns)
    body = inner.graph([again, *values], ["bool", *dtypes], [(), *dims])
    first = _truth(c, test, [c.inputs[i] for i in a.cond_input_locs])
    limit = c.const(a.max_iterations, "int64")
    found = c.emit("Loop", limit, first, *start, outputs=len(made), body=body)
    named = [found] if len(made) == 1 else list(found)
    stacked = [_filled_up(c, value, i) for i, value in enumerate(named[len(last) :])]
    return [*stacked, *named[: len(last)]]


def _described(c: OperatorCall, positions: Sequence[int]) -> tuple[list[Dims], list[str]]:
    return [c.shapes[i] for i in positions], [c.dtypes[i] for i in positions]


def _truth(c: OperatorCall, test: Graph, values: Sequence[str]) -> str:
    """Return whether the one number that a test gives is other than 0, without axes."""
    positions = c.a.cond_input_locs
    (found,) = c.run(test, values, *_described(c, positions))
    return c.emit("Reshape", c.cast(found, "bool"), c.const([], "int64"))


def _filled_up(c: OperatorCall, value: str, i: int) -> str:
    """Return rows of steps, with zeros behind them up to the largest number of steps.

    Without a step, dynamic lengths are 0, too.
    """
    missing = c.emit("Sub", shape_value(c, c.out_shapes[i]), c.emit("Shape", value))
    start = c.const(np.zeros(len(c.out_shapes[i])), "int64")
    return c.emit("Pad", value, c.emit("Concat", start, missing, axis=0), c.const(0, c.out_dtypes[i]))


def cond(c: OperatorCall) -> list[str]:
    """If."""
    a, (test, *branches) = c.a, c.node.subgraphs
    asked = _truth(c, test, [c.inputs[i] for i in a.cond_input_locs])
    bodies = []
    for name, branch, positions in zip(("then", "else"), branches, (a.then_input_locs, a.else_input_locs)):
        inner = c.inside(name)
        made = inner.run(branch, [c.inputs[i] for i in positions], *_described(c, positions))
        bodies.append(inner.graph(made, c.out_dtypes, c.out_shapes))
    count = len(c.out_dtypes)
    found = c.emit("If", asked, outputs=count, then_branch=bodies[0], else_branch=bodies[1])
    return [found] if count == 1 else list(found)
