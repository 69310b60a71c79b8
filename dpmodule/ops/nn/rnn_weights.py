"""Where the weights of a fused recurrent network sit in its one flat vector of parameters.

All weights come first, then all biases. Both go by layer, then by direction (left to right, right to left), then
from input to hidden (i2h), from hidden to hidden (h2h) and, if states are projected, from hidden to state (h2r,
without bias). Within each stand the gates of the mode: one for the plain networks; input, forget, cell, output for
LSTM; reset, update, new for GRU. Pure arithmetic: no array library is imported.

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
"""What each gate of a mode adds to a parameter's name, in the order of the layout."""

MODES = tuple(GATES)
"""The modes, in MXNet's order."""

ONNX_GATES: dict[str, tuple[str, ...]] = {
    "LSTM": ("_i", "_o", "_f", "_c"),
    "GRU": ("_z", "_r", "_o"),
    "RNN": ("",),
}
"""The same gates in the order in which ONNX's operators have them."""


class WeightBlock(NamedTuple):
    """A piece of the flat vector.

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
        """Return the piece of a flat NumPy array, tensor or NDArray, as a view of it."""
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
    """Yield one block for each weight and bias with all gates in it, in the order of the layout.

    The names are those of the parameters of unfused cells, such as ``l0_i2h_weight``.

    Args:
        num_layers: number of layers.
        bidirectional: whether a second network reads from the right.
        projection: features the hidden state of an LSTM is projected to; None means no projection.
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
    found = [(f"{name}_weight", shape) for name, *shape in shapes]
    found += [(f"{name}_bias", [height]) for name, height, _ in shapes if not name.endswith("h2r")]
    offset = 0
    for suffix, shape in found:
        yield WeightBlock(suffix, tuple(shape), offset)
        offset += math.prod(shape)


def blocks(mode: str, *layout: Any, **further: Any) -> Iterator[WeightBlock]:
    """Yield one block for each gate of each weight and bias, in the order of the layout; arguments as for `matrices`.

    Example:
        >>> [b.suffix for b in blocks("gru", 1, 2, 3)][:4]
        ['l0_i2h_r_weight', 'l0_i2h_z_weight', 'l0_i2h_o_weight', 'l0_h2h_r_weight']
    """
    for whole in matrices(mode, *layout, **further):
        name, _, kind = whole.suffix.rpartition("_")
        names = ("",) if name.endswith("h2r") else gates(mode)
        shape = (whole.shape[0] // len(names), *whole.shape[1:])
        for place, gate in enumerate(names):
            yield WeightBlock(f"{name}{gate}_{kind}", shape, whole.offset + place * math.prod(shape))


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
    directions = 2 if bidirectional else 1
    state = projection or state_size
    rows = len(gates(mode)) * state_size * directions
    first = rows * (input_size + state + 2)
    others = rows * (directions * state + state + 2)
    projected = directions * num_layers * state_size * (projection or 0)
    return first + (num_layers - 1) * others + projected


def input_size(
    size: int,
    mode: str,
    num_layers: int,
    state_size: int,
    bidirectional: bool = False,
    projection: int | None = None,
) -> int:
    """Return the number of input features that a flat vector of `size` elements is made for.

    Args:
        num_layers: number of layers.
        bidirectional: whether a second network reads from the right.
        projection: features of a projected state, or None.
    """
    rows = len(gates(mode)) * state_size * (2 if bidirectional else 1)
    rest = size - vector_size(mode, num_layers, 0, state_size, bidirectional, projection)
    if rest <= 0 or rest % rows:
        least = vector_size(mode, num_layers, 1, state_size, bidirectional, projection)
        raise ShapeError(
            f"parameters have {size} elements, expected {least} and {rows} more for each input feature beyond one "
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
    """Return the blocks of a flat vector by name suffix, as views of it: what is written to them stays in it.

    Args:
        vector: NumPy array, tensor or NDArray of one axis.
        num_layers: number of layers.
        bidirectional: whether a second network reads from the right.
        projection: features of a projected state, or None.
    """
    features = input_size(vector.shape[0], mode, num_layers, state_size, bidirectional, projection)
    layout = blocks(mode, num_layers, features, state_size, bidirectional, projection)
    return {block.suffix: block.of(vector) for block in layout}
