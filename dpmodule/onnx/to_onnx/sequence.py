"""Builders of recurrent networks, attention, sequence operators, loops and branches."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...graph import Graph
from ...ops.nn.rnn_weights import ONNX_GATES, WeightBlock, gates, matrices
from .call import Dims, OperatorCall, Value
from .common import in_floats, length_of, positions, shape_value

_OPERATORS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}


@in_floats(half=False)
def rnn(c: OperatorCall) -> Value | list[Value]:
    """Write one operator for each layer, for both directions."""
    a = c.a
    if a.projection_size:
        c.refuse(f"projection_size is {a.projection_size}, but ONNX's LSTM has no projection")
    if len(c.shapes[0]) != 3:
        c.refuse(f"its data has the shape {c.shapes[0]}, but ONNX does not support rows of different lengths")
    weights = _Weights(c)
    lengths = c.inputs[-1].cast("int32") if a.use_sequence_length else ""
    directions = 2 if a.bidirectional else 1
    x, ends = c.inputs[0], []
    for layer in range(a.num_layers):
        states = [
            _layer_states(c, state, layer, directions) for state in c.inputs[2 : 3 + (a.mode == "lstm")]
        ]
        x, *last = _layer(c, x, weights.of_layer(layer), lengths, states)
        ends.append(last)
    if not a.state_outputs:
        return x
    joined = [each[0] if a.num_layers == 1 else c.emit("Concat", *each, axis=0) for each in zip(*ends)]
    return [x, *joined]


def _layer_states(c: OperatorCall, state: Value, layer: int, directions: int) -> Value:
    """Return the initial states of one layer: (directions, N, H)."""
    if c.a.num_layers == 1:
        return state
    begin = layer * directions
    return c.emit("Slice", state, c.ints(begin), c.ints(begin + directions), c.ints(0))


def _layer(
    c: OperatorCall, x: Value, weights: Sequence[Value], lengths: Value | str, states: Sequence[Value]
) -> list[Value]:
    """Run one layer; return its output (T, N, directions * H) and its last states."""
    a = c.a
    directions = 2 if a.bidirectional else 1
    out, *last = c.emit(
        _OPERATORS[a.mode],
        x,
        *weights,
        lengths,
        *states,
        outputs=3 if a.mode == "lstm" else 2,
        hidden_size=a.state_size,
        direction="bidirectional" if a.bidirectional else "forward",
        activations=["Relu"] * directions if a.mode == "rnn_relu" else None,
        linear_before_reset=1 if a.mode == "gru" else None,
    )
    if directions == 1:
        return [c.emit("Squeeze", out, c.ints(1)), *last]
    sides = c.emit("Transpose", out, perm=[0, 2, 1, 3])
    return [sides.reshape(0, 0, 2 * a.state_size), *last]


class _Weights:
    """The parts of the flat parameter vector, in the layout of ONNX's operators."""

    def __init__(self, c: OperatorCall) -> None:
        a = c.a
        self._c = c
        self._count = len(gates(a.mode))
        self._order = [gates(a.mode).index(gate) for gate in ONNX_GATES[_OPERATORS[a.mode]]]
        self._vector = c.value(1)
        layout = matrices(a.mode, a.num_layers, c.length(2), a.state_size, a.bidirectional)
        self._blocks = {block.suffix: block for block in layout}

    def of_layer(self, layer: int) -> list[Value]:
        """Return weights of the input and of the state, (directions, gates * H, ...), and the biases of both."""
        directions = "lr" if self._c.a.bidirectional else "l"
        names = [f"{direction}{layer}" for direction in directions]
        weights = [
            self._joined([[self._blocks[f"{n}_{part}_weight"]] for n in names], f"{layer}/{which}")
            for part, which in (("i2h", "W"), ("h2h", "R"))
        ]
        biases = [[self._blocks[f"{n}_{part}_bias"] for part in ("i2h", "h2h")] for n in names]
        return [*weights, self._joined(biases, f"{layer}/B")]

    def _joined(self, rows: Sequence[Sequence[WeightBlock]], label: str) -> Value:
        """Return one row of concatenated blocks for each direction."""
        c = self._c
        vector, name = self._vector, c.inputs[1].name
        if vector is not None:
            output = np.stack([np.concatenate([self._sorted(b.of(vector)) for b in row]) for row in rows])
            return c.piece(output, f"{name}/{label}") if name == c.node.inputs[1][0].name else c.const(output)
        parts = [[self._cut(block) for block in row] for row in rows]
        joined = [row[0] if len(row) == 1 else c.emit("Concat", *row, axis=0) for row in parts]
        whole = [c.emit("Unsqueeze", row, c.ints(0)) for row in joined]
        return whole[0] if len(whole) == 1 else c.emit("Concat", *whole, axis=0)

    def _sorted(self, block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a block with its gates in ONNX's order."""
        by_gate = block.reshape(self._count, -1, *block.shape[1:])
        return by_gate[self._order].reshape(block.shape)

    def _cut(self, block: WeightBlock) -> Value:
        """Return a block of a vector that is known only at run time."""
        c, units = self._c, block.shape[0] // self._count
        flat = c.emit(
            "Slice", c.inputs[1], c.ints(block.offset), c.ints(block.offset + block.size), c.ints(0)
        )
        by_gate = flat.reshape(self._count, units, *block.shape[1:])
        ordered = c.emit("Gather", by_gate, c.ints(*self._order), axis=0)
        return ordered.reshape(*block.shape)


# attention with the projections of all heads interleaved in one array


def div_sqrt_dim(c: OperatorCall) -> Value:
    """Div."""
    x, size = c.inputs[0], c.shapes[0][-1]
    if isinstance(size, int):
        scale: float = size**0.5
        return x / scale
    length = length_of(c, x, c.shapes[0], -1).cast("float32")
    root = c.emit("Sqrt", length)
    return x / (root.cast(c.dtypes[0]))


def _head_size(c: OperatorCall, i: int, parts: int) -> int:
    heads: int = c.a.heads
    return c.length(2, i) // (heads * parts)


def _part(c: OperatorCall, i: int, parts: int, number: int) -> Value:
    """Return a projection in input `i` as (length, N * heads, size of a head)."""
    apart = c.inputs[i].reshape(0, -1, parts, _head_size(c, i, parts))
    return apart.gather(number, 2)


def _scores(c: OperatorCall, queries: Value, keys: Value, size: int) -> Value:
    scaled = c.emit("Transpose", queries, perm=[1, 0, 2]) / size**0.5
    return c.emit("MatMul", scaled, c.emit("Transpose", keys, perm=[1, 2, 0]))


def _weighted(c: OperatorCall, attention: Value, values: Value, size: int) -> Value:
    output = c.emit("MatMul", attention, c.emit("Transpose", values, perm=[1, 0, 2]))
    return c.emit("Transpose", output, perm=[1, 0, 2]).reshape(0, -1, c.a.heads * size)


def interleaved_matmul_selfatt_qk(c: OperatorCall) -> Value:
    """Product of queries and keys."""
    return _scores(c, _part(c, 0, 3, 0), _part(c, 0, 3, 1), _head_size(c, 0, 3))


def interleaved_matmul_selfatt_valatt(c: OperatorCall) -> Value:
    """Product of attention and values."""
    return _weighted(c, c.inputs[1], _part(c, 0, 3, 2), _head_size(c, 0, 3))


def interleaved_matmul_encdec_qk(c: OperatorCall) -> Value:
    """Product of queries and the encoder's keys."""
    return _scores(c, _part(c, 0, 1, 0), _part(c, 1, 2, 0), _head_size(c, 0, 1))


def interleaved_matmul_encdec_valatt(c: OperatorCall) -> Value:
    """Product of attention and the encoder's values."""
    return _weighted(c, c.inputs[1], _part(c, 0, 2, 1), _head_size(c, 0, 2))


# padded sequences


def _lengths(c: OperatorCall) -> Value:
    """Return the lengths as int64."""
    return c.inputs[1].cast("int64")


def sequence_mask(c: OperatorCall) -> Value:
    """Mask the steps after the ends."""
    if len(c.inputs) == 1:
        return c.inputs[0]
    x, shape = c.inputs[0], c.shapes[0]
    steps = positions(c, x, shape[:2], c.a.axis)
    inside = steps < _lengths(c).unsqueeze(c.a.axis)
    if len(shape) > 2:
        inside = inside.unsqueeze(*range(2, len(shape)))
    return inside.choose(x, c.a.value)


def sequence_last(c: OperatorCall) -> Value:
    """Gather the last step, or GatherND if lengths differ."""
    x, rank = c.inputs[0], len(c.shapes[0])
    if len(c.inputs) == 1:
        return c.emit("Gather", x, c.const(-1, "int64"), axis=c.a.axis)
    one = c.const(1, "int64")
    ends = c.emit("Clip", _lengths(c), one, length_of(c, x, c.shapes[0], c.a.axis))
    if c.a.axis == 0:
        x = c.emit("Transpose", x, perm=[1, 0, *range(2, rank)])
    return c.emit("GatherND", x, (ends - one).unsqueeze(1), batch_dims=1)


def sequence_reverse(c: OperatorCall) -> Value:
    """ReverseSequence, or Slice with a negative step if all sequences have full length."""
    x, axis = c.inputs[0], c.a.axis
    if len(c.inputs) == 1:
        return c.emit("Slice", x, c.ints(-1), c.ints(-(2**31)), c.ints(axis), c.ints(-1))
    ends = c.emit("Clip", _lengths(c), c.const(0, "int64"), length_of(c, x, c.shapes[0], axis))
    return c.emit("ReverseSequence", x, ends, time_axis=axis, batch_axis=1 - axis)


# loops and branches, whose subgraphs become bodies of Scan, Loop and If


def foreach(c: OperatorCall) -> list[Value]:
    """Scan over axis 0 of the data."""
    a, num_data = c.a, len(c.a.in_data_locs)
    stop = num_data + len(a.in_state_locs)
    elements = [dims[1:] for dims in c.shapes[:num_data]]
    inner = c.inside("step")
    states = [inner.argument(*each) for each in zip(c.dtypes[num_data:stop], c.shapes[num_data:stop])]
    parts = [inner.argument(*each) for each in zip(c.dtypes, elements)]
    # an element of a vector has one axis in MXNet, and none in ONNX
    element_values = [part if dims else part.reshape(1) for part, dims in zip(parts, elements)]
    count = len(c.inputs)
    order = (*a.in_data_locs, *a.in_state_locs, *a.remain_locs)
    values, dtypes = list(c.inputs), [""] * count
    dims: list[Dims] = [()] * count
    for i, position in enumerate(order):
        values[position] = [*element_values, *states, *c.inputs[stop:]][i]
        dims[position] = c.shapes[i] if i >= num_data else elements[i] or (1,)
        dtypes[position] = c.dtypes[i]
    new = inner.run(c.node.subgraphs[0], values, dims, dtypes)
    columns, last = new[: a.num_out_data], new[a.num_out_data :]
    body = inner.graph(*_reordered(c, last, columns))
    output = c.emit(
        "Scan",
        *c.inputs[num_data:stop],
        *c.inputs[:num_data],
        outputs=len(new),
        body=body,
        num_scan_inputs=num_data,
    )
    named = [output] if len(new) == 1 else list(output)
    return [*named[len(last) :], *named[: len(last)]]


def _reordered(
    c: OperatorCall, states: Sequence[Value], columns: Sequence[Value]
) -> tuple[list[Value], list[str], list[Dims]]:
    """Return the outputs of a body, states first as in ONNX, with types and shapes."""
    count = len(columns)
    return (
        [*states, *columns],
        [*c.out_dtypes[count:], *c.out_dtypes[:count]],
        [*c.out_shapes[count:], *(dims[1:] for dims in c.out_shapes[:count])],
    )


def while_loop(c: OperatorCall) -> list[Value]:
    """Loop, with stacked outputs padded with zeros."""
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
    new = inner.run(step, values, *_described(c, a.func_input_locs))
    columns, last = new[: a.num_out_data], new[a.num_out_data :]
    after = dict(zip(sources, last))
    again = _truth(inner, test, [after.get(i, c.inputs[i]) for i in a.cond_input_locs])
    values, dtypes, dims = _reordered(c, last, columns)
    body = inner.graph([again, *values], ["bool", *dtypes], [(), *dims])
    first = _truth(c, test, [c.inputs[i] for i in a.cond_input_locs])
    limit = c.const(a.max_iterations, "int64")
    output = c.emit("Loop", limit, first, *start, outputs=len(new), body=body)
    named = [output] if len(new) == 1 else list(output)
    stacked = [_filled_up(c, value, i) for i, value in enumerate(named[len(last) :])]
    return [*stacked, *named[: len(last)]]


def _described(c: OperatorCall, positions: Sequence[int]) -> tuple[list[Dims], list[str]]:
    return [c.shapes[i] for i in positions], [c.dtypes[i] for i in positions]


def _truth(c: OperatorCall, test: Graph, values: Sequence[Value]) -> Value:
    """Return a test's number as a boolean scalar."""
    positions = c.a.cond_input_locs
    (output,) = c.run(test, values, *_described(c, positions))
    return output.cast("bool").reshape()


def _filled_up(c: OperatorCall, value: Value, i: int) -> Value:
    """Return rows of steps, padded with zeros to the maximal number of steps.

    Without steps, dynamic lengths are also 0.
    """
    missing = shape_value(c, c.out_shapes[i]) - c.emit("Shape", value)
    start = c.const(np.zeros(len(c.out_shapes[i])), "int64")
    return c.emit("Pad", value, c.emit("Concat", start, missing, axis=0), c.const(0, c.out_dtypes[i]))


def cond(c: OperatorCall) -> list[Value]:
    """If."""
    a, (test, *branches) = c.a, c.node.subgraphs
    asked = _truth(c, test, [c.inputs[i] for i in a.cond_input_locs])
    bodies = []
    for name, branch, indices in zip(("then", "else"), branches, (a.then_input_locs, a.else_input_locs)):
        inner = c.inside(name)
        new = inner.run(branch, [c.inputs[i] for i in indices], *_described(c, indices))
        bodies.append(inner.graph(new, c.out_dtypes, c.out_shapes))
    count = len(c.out_dtypes)
    output = c.emit("If", asked, outputs=count, then_branch=bodies[0], else_branch=bodies[1])
    return [output] if count == 1 else list(output)
