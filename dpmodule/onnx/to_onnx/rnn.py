"""Recurrent networks: LSTM, GRU and RNN of ONNX, one for each layer."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np

from ...ops.nn.rnn_weights import WeightBlock, gates, matrices
from .call import OperatorCall
from .floats import in_floats

__all__ = ["rnn"]

_OPERATORS = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}

_GATES = {"lstm": (0, 3, 1, 2), "gru": (1, 0, 2)}
"""Positions of our gates in ONNX's order: input, output, forget, cell; update, reset, new."""


@in_floats(half=False)
def rnn(c: OperatorCall) -> str | list[str]:
    """One operator for each layer, which runs both directions."""
    a = c.a
    if a.projection_size:
        c.refuse(f"projection_size is {a.projection_size}, and ONNX's LSTM has no projection")
    if len(c.shapes[0]) != 3:
        c.refuse(f"its data have the shape {c.shapes[0]}, and ONNX has no rows of different lengths")
    weights = _Weights(c)
    lengths = c.cast(c.inputs[-1], "int32") if a.use_sequence_length else ""
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


def _layer_states(c: OperatorCall, state: str, layer: int, directions: int) -> str:
    """Return the begin states of one layer: (directions, N, H)."""
    if c.a.num_layers == 1:
        return state
    begin = layer * directions
    found = c.emit("Slice", state, c.ints(begin), c.ints(begin + directions), c.ints(0))
    return found


def _layer(c: OperatorCall, x: str, weights: Sequence[str], lengths: str, states: Sequence[str]) -> list[str]:
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
    return [c.emit("Reshape", sides, c.ints(0, 0, 2 * a.state_size)), *last]


class _Weights:
    """The pieces of the flat vector of parameters, as ONNX's operators take them.

    Args:
        c: the call.
    """

    def __init__(self, c: OperatorCall) -> None:
        a = c.a
        self._c = c
        self._count = len(gates(a.mode))
        self._order = _GATES.get(a.mode, (0,))
        self._vector = c.value(1)
        layout = matrices(a.mode, a.num_layers, c.length(2), a.state_size, a.bidirectional)
        self._blocks = {block.suffix: block for block in layout}

    def of_layer(self, layer: int) -> list[str]:
        """Return weights of the input and of the state, (directions, gates * H, ...), and the biases of both."""
        directions = "lr" if self._c.a.bidirectional else "l"
        names = [f"{direction}{layer}" for direction in directions]
        weights = [
            self._joined([[self._blocks[f"{n}_{part}_weight"]] for n in names], f"{layer}/{which}")
            for part, which in (("i2h", "W"), ("h2h", "R"))
        ]
        biases = [[self._blocks[f"{n}_{part}_bias"] for part in ("i2h", "h2h")] for n in names]
        return [*weights, self._joined(biases, f"{layer}/B")]

    def _joined(self, rows: Sequence[Sequence[WeightBlock]], label: str) -> str:
        """Return one row for each direction, whose blocks lie one after the other.

        Args:
            rows: the blocks.
            label: what a constant is called, behind the name of the vector that it is cut from.
        """
        c = self._c
        if self._vector is not None:
            vector = self._vector
            made = np.stack([np.concatenate([self._sorted(b.of(vector)) for b in row]) for row in rows])
            is_whole = c.inputs[1] == c.node.inputs[1][0].name
            return c.piece(made, f"{c.inputs[1]}/{label}") if is_whole else c.const(made)
        parts = [[self._cut(block) for block in row] for row in rows]
        joined = [row[0] if len(row) == 1 else c.emit("Concat", *row, axis=0) for row in parts]
        whole = [c.emit("Unsqueeze", row, c.ints(0)) for row in joined]
        found: str = whole[0] if len(whole) == 1 else c.emit("Concat", *whole, axis=0)
        return found

    def _sorted(self, block: np.ndarray[Any, Any]) -> np.ndarray[Any, Any]:
        """Return a block with its gates in ONNX's order."""
        by_gate = block.reshape(self._count, -1, *block.shape[1:])
        return by_gate[list(self._order)].reshape(block.shape)

    def _cut(self, block: WeightBlock) -> str:
        """Return a block of a vector that is known only when the model runs."""
        c, units = self._c, block.shape[0] // self._count
        flat = c.emit(
            "Slice", c.inputs[1], c.ints(block.offset), c.ints(block.offset + block.size), c.ints(0)
        )
        by_gate = c.emit("Reshape", flat, c.ints(self._count, units, *block.shape[1:]))
        ordered = c.emit("Gather", by_gate, c.ints(*self._order), axis=0)
        found = c.emit("Reshape", ordered, c.ints(*block.shape))
        return found
