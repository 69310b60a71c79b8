"""`data` and `embedding` of Paddle 1.6 and later, whose shapes are those of a batch."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..base import ShapeError
from . import layers
from .layers.inputs import look_up
from .variable import Variable


def data(name: str, shape: Sequence[int | None], dtype: Any = "float32", lod_level: int = 0) -> Variable:
    """Declare data like `layers.data`, by the shape of a batch.

    Args:
        name: name of the data, and of its slot.
        shape: shape of a batch; None or -1 for its size, and for other axes in which batches differ.
        lod_level: 1 for sequences of different lengths.

    Raises:
        ArgumentError: the level is not 0 or 1, or the name is in use.
        ShapeError: the shape is not a list of sizes.

    Source: Paddle 1.8 `fluid.data`.
    """
    if not isinstance(shape, (list, tuple)):
        raise ShapeError(f"data {name!r}: shape is {shape!r}, expected a list such as [None, 1]")
    sizes = [-1 if size is None else size for size in shape]
    return layers.data(name, sizes, append_batch_size=False, dtype=dtype, lod_level=lod_level)


def embedding(
    input: Any,
    size: Sequence[int],
    is_sparse: bool = False,
    is_distributed: bool = False,
    padding_idx: int | None = None,
    param_attr: Any = None,
    dtype: Any = "float32",
) -> Variable:
    """Look up rows of a table like `layers.embedding`, with its arguments, but keep all axes of the input.

    Shape:
        input: (N, ...), or sequences of indices; usually int64.
        output: (N, ..., D), or sequences of rows.

    Source: Paddle 1.8 `fluid.embedding`.
    """
    return look_up(input, size, is_sparse, padding_idx, param_attr, dtype, keeps_axes=True)
