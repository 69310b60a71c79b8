"""Layout of the weights of a fused recurrent network in its flat parameter vector.

All weights come first, then all biases. Both are ordered by layer, then by direction (forward, backward), then input to
hidden (i2h), hidden to hidden (h2h) and, with projection, hidden to state (h2r, without bias). Each contains the gates
of the mode: one for the plain networks; input, forget, cell, output for LSTM; reset, update, new for GRU. This module
does not import an array library.

Source: the layout of cuDNN as MXNet 1.9.1 uses it, checked against its `FusedRNNCell`.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any, NamedTuple

from ...base import OpError, ShapeError

GATES: dict[str, tuple[str, ...]] = {
    "rnn_relu": ("",),
    "rnn_tanh": ("",),
    "lstm": ("_i", "_f", "_c", "_o"),
    "gru": ("_r", "_z", "_o"),
}
"""Name parts of the gates of each mode, in the order of the layout."""

MODES = tuple(GATES)
"""The modes, in MXNet's order."""

ONNX_GATES: dict[str, tuple[str, ...]] = {
    "LSTM": ("_i", "_o", "_f", "_c"),
    "GRU": ("_z", "_r", "_o"),
    "RNN": ("",),
}
"""The gates in the order of ONNX's operators."""


class WeightBlock(NamedTuple):
    """Block of the flat vector.

    Attributes:
        suffix: name without the cell's prefix, such as ``l0_i2h_f_weight``.
    """

    suffix: str
    shape: tuple[int, ...]
    offset: int

    @property
    def size(self) -> int:
        """Return the number of elements."""
        return math.prod(self.shape)

    def of(self, vector: Any) -> Any:
        """Return the block of a flat NumPy array, tensor or NDArray, as a view."""
        return vector[self.offset : self.offset + self.size].reshape(self.shape)


def gates(mode: str) -> tuple[str, ...]:
    """Return the name parts of a mode's gates, in order."""
    if mode not in GATES:
        raise OpError(f"mode is {mode!r}, expected one of {', '.join(MODES)}")
    return GATES[mode]


def matrices(
    mode: str,
    num_layers: int,
    input_size: int,
    state_size: int,
    bidirectional: bool = False,
    projection: int | None = None,
) -> Iterator[WeightBlock]:
    """Yield one block with all gates for each weight and bias, in the order of the layout.

    The names are those of the parameters of unfused cells, such as ``l0_i2h_weight``.

    Args:
        num_layers: number of layers.
        bidirectional: True for a second, backward network.
        projection: size of the projection of an LSTM's hidden state; None means no projection.
    """
    rows, state = len(gates(mode)) * state_size, projection or state_size
    directions = "lr" if bidirectional else "l"
    shapes: list[tuple[str, int, int]] = []
    for layer in range(num_layers):
        columns = len(directions) * state if layer else input_size
        for direction in directions:
            name = f"{direction}{layer}"
            shapes += [(f"{name}_i2h", rows, columns), (f"{name}_h2h", rows, state)]
            if projection:
                shapes.append((f"{name}_h2r", projection, state_size))
    named_shapes = [(f"{name}_weight", shape) for name, *shape in shapes]
    named_shapes += [(f"{name}_bias", [height]) for name, height, _ in shapes if not name.endswith("h2r")]
    offset = 0
    for suffix, shape in named_shapes:
        yield WeightBlock(suffix, tuple(shape), offset)
        offset += math.prod(shape)


def blocks(mode: str, *layout: Any, **further: Any) -> Iterator[WeightBlock]:
    """Yield one block for each gate of each weight and bias, in the order of the layout; arguments as for `matrices`.

    Example:
        >>> [b.suffix for b in blocks("gru", 1, 2, 3)][:4]
        ['l0_i2h_r_weight', 'l0_i2h_z_weight', 'l0_i2h_o_weight', 'l0_h2h_r_weight']
    """
    for matrix in matrices(mode, *layout, **further):
        name, _, ending = matrix.suffix.rpartition("_")
        names = ("",) if name.endswith("h2r") else gates(mode)
        shape = (matrix.shape[0] // len(names), *matrix.shape[1:])
        for position, gate in enumerate(names):
            yield WeightBlock(f"{name}{gate}_{ending}", shape, matrix.offset + position * math.prod(shape))


def vector_size(
    mode: str,
    num_layers: int,
    input_size: int,
    state_size: int,
    bidirectional: bool = False,
    projection: int | None = None,
) -> int:
    """Return the number of elements of the flat vector; arguments as for `matrices`.

    Example:
        >>> vector_size("lstm", 2, 5, 3, bidirectional=True)
        504
    """
    layout = matrices(mode, num_layers, input_size, state_size, bidirectional, projection)
    return sum(block.size for block in layout)


def input_size(
    size: int,
    mode: str,
    num_layers: int,
    state_size: int,
    bidirectional: bool = False,
    projection: int | None = None,
) -> int:
    """Return the number of input features of a flat vector of `size` elements.

    Args:
        num_layers: number of layers.
        bidirectional: True for a second, backward network.
        projection: size of the projected state, or None.
    """
    rows = len(gates(mode)) * state_size * (2 if bidirectional else 1)
    rest = size - vector_size(mode, num_layers, 0, state_size, bidirectional, projection)
    if rest <= 0 or rest % rows:
        least = vector_size(mode, num_layers, 1, state_size, bidirectional, projection)
        raise ShapeError(
            f"parameters have {size} elements, expected {least} plus {rows} for each input feature after the first "
            f"(mode {mode}, {num_layers} layers of {state_size}{', bidirectional' if bidirectional else ''})"
        )
    return rest // rows


def unpack(
    vector: Any,
    mode: str,
    num_layers: int,
    state_size: int,
    bidirectional: bool = False,
    projection: int | None = None,
) -> dict[str, Any]:
    """Return the blocks of a flat vector by name suffix, as views that share its memory.

    Args:
        vector: NumPy array, tensor or NDArray of one axis.
        num_layers: number of layers.
        bidirectional: True for a second, backward network.
        projection: size of the projected state, or None.
    """
    features = input_size(vector.shape[0], mode, num_layers, state_size, bidirectional, projection)
    layout = blocks(mode, num_layers, features, state_size, bidirectional, projection)
    return {block.suffix: block.of(vector) for block in layout}
