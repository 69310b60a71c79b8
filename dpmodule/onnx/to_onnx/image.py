"""Images, (height, width, channels)."""

from __future__ import annotations

from functools import cache
from typing import Any

import numpy as np
import torch

from ...ops.image.border import make_border
from ...ops.image.geometry import new_size
from ...ops.image.light import PCA
from ...ops.image.resize import AREA, LINEAR, NEAREST, pick_method, resize, taps_of, whole_taps
from .call import OperatorCall

__all__ = [
    "image_adjust_lighting",
    "image_border",
    "image_crop",
    "image_flip",
    "image_normalize",
    "image_resize",
    "image_to_tensor",
]

F4 = "float32"


def image_to_tensor(c: OperatorCall) -> str:
    """Channels of 0 to 1."""
    rank = len(c.shapes[0])
    order = [*range(rank - 3), rank - 1, rank - 3, rank - 2]
    return c.emit("Div", c.cast(c.emit("Transpose", c.inputs[0], perm=order), F4), c.const(255.0, F4))


def image_normalize(c: OperatorCall) -> str:
    """Less the mean, over the deviation."""
    channels = c.length(-3)
    mean, std = (
        c.const(np.reshape(values if len(values) == 1 else values[:channels], (-1, 1, 1)), F4)
        for values in (c.a.mean, c.a.std)
    )
    kind = c.dtypes[0]
    x = c.inputs[0] if kind == F4 else c.cast(c.inputs[0], F4)
    found = c.emit("Div", c.emit("Sub", x, mean), std)
    return found if kind == F4 else c.cast(found, kind)


def image_crop(c: OperatorCall) -> str:
    """Slice."""
    a = c.a
    return c.emit(
        "Slice", c.inputs[0], c.ints(a.y, a.x), c.ints(a.y + a.height, a.x + a.width), c.ints(-3, -2)
    )


def image_flip(c: OperatorCall) -> str:
    """Slice that runs backwards."""
    axis = 1 if c.node.op is not None and c.node.op.name.endswith("left_right") else 0
    return c.emit("Slice", c.inputs[0], c.ints(-1), c.ints(-(2**31)), c.ints(axis), c.ints(-1))


def image_adjust_lighting(c: OperatorCall) -> str:
    """Add of a colour."""
    x, kind = c.inputs[0], c.dtypes[0]
    if c.length(2) == 1:
        return x
    added = np.array(PCA, "f4") @ np.array(c.a.alpha, "f4")
    found = c.emit("Add", x if kind == F4 else c.cast(x, F4), c.const(added, F4))
    if kind == "uint8":
        found = c.emit("Clip", found, c.const(0.0, F4), c.const(255.0, F4))
    return found if kind == F4 else c.cast(found, kind)


def image_border(c: OperatorCall) -> str:
    """Gather of pixels, among which the constant is the last one."""
    a, (height, width, channels) = c.a, c.numbers(c.shapes[0])
    places = torch.arange(height * width, dtype=torch.float64).view(height, width, 1)
    index = make_border(places, a.top, a.bot, a.left, a.right, a.type, (height * width,))
    # one pixel under a row of the constant
    border = make_border(torch.zeros((1, 1, channels)), 1, 0, 0, 0, 0, a.values or (a.value,) * channels)
    pixels = c.emit("Reshape", c.inputs[0], c.ints(-1, channels))
    if bool((index == height * width).any()):
        pixels = c.emit("Concat", pixels, c.const(border[0].numpy()), axis=0)
    return c.emit("Gather", pixels, c.const(index[:, :, 0].numpy(), "int64"), axis=0)


def image_resize(c: OperatorCall) -> str:
    """Gather of the nearest pixels, or a matrix for each axis."""
    a, kind = c.a, c.dtypes[0]
    old = (c.length(-3), c.length(-2))
    new = (a.h, a.w) if hasattr(a, "h") else new_size(a, *old)
    if old == new:
        return c.inputs[0]
    method = pick_method(a.interp, old, new)
    if method == LINEAR and old == (2 * new[0], 2 * new[1]):
        method = AREA
    if method == NEAREST:
        rows, columns = (_nearest(*sizes) for sizes in zip(old, new))
        down = c.emit("Gather", c.inputs[0], c.const(rows, "int64"), axis=len(c.shapes[0]) - 3)
        return c.emit("Gather", down, c.const(columns, "int64"), axis=len(c.shapes[0]) - 2)
    if kind == "uint8" and method != LINEAR:
        c.refuse("it rounds 8-bit pixels as OpenCV does; use interp 0 or 1, or cast to float32 before")
    if kind == "uint8":
        return _whole_mixed(c, old, new)
    if method == AREA and (new[0] > old[0] or new[1] > old[1]):
        c.refuse(
            "area (interp 3) for one axis that grows is linear for both, on pixels' edges; use interp 1 or 2"
        )
    return _mixed(c, old, new, method)


def _mixed(c: OperatorCall, old: tuple[int, int], new: tuple[int, int], method: int) -> str:
    """Multiply the columns, then the rows, by matrices of weights."""
    wide = "float64" if c.dtypes[0] == "float64" else F4
    x = c.inputs[0] if c.dtypes[0] == wide else c.cast(c.inputs[0], wide)
    # (..., H, W, C): the columns are the rows of W x C matrices
    across = c.emit("MatMul", c.const(_matrix(old[1], new[1], method, 1), wide), x)
    rank = len(c.shapes[0])
    order = [*range(rank - 3), rank - 2, rank - 3, rank - 1]
    down = c.emit(
        "MatMul", c.const(_matrix(old[0], new[0], method, 0), wide), c.emit("Transpose", across, perm=order)
    )
    found: str = c.emit("Transpose", down, perm=order)
    return found if c.dtypes[0] == wide else c.cast(found, c.dtypes[0])


def _whole_mixed(c: OperatorCall, old: tuple[int, int], new: tuple[int, int]) -> str:
    """Mix two neighbours along each axis in whole numbers, columns first."""
    rank, kind = len(c.shapes[0]), "int32"
    x = c.cast(c.inputs[0], kind)
    columns, across = taps_of(old[1], new[1], LINEAR, True)
    rows, down = taps_of(old[0], new[0], LINEAR, False)
    parts = []
    for pixels, weights in zip(columns, whole_taps(across)):
        part = c.emit("Gather", x, c.const(pixels.numpy(), "int64"), axis=rank - 2)
        parts.append(c.emit("Mul", part, c.const(weights.numpy()[:, None], kind)))
    mixed = c.emit("Div", c.emit("Add", *parts), c.const(16, kind))
    parts = []
    for pixels, weights in zip(rows, whole_taps(down)):
        part = c.emit("Gather", mixed, c.const(pixels.numpy(), "int64"), axis=rank - 3)
        product = c.emit("Mul", part, c.const(weights.numpy()[:, None, None], kind))
        parts.append(c.emit("Div", product, c.const(1 << 16, kind)))
    total = c.emit("Add", c.emit("Add", *parts), c.const(2, kind))
    found = c.emit("Clip", c.emit("Div", total, c.const(4, kind)), c.const(0, kind), c.const(255, kind))
    return c.cast(found, "uint8")


@cache
def _nearest(old: int, new: int) -> np.ndarray[Any, Any]:
    """Return which pixel of one axis each new one is."""
    line = torch.arange(old, dtype=torch.float64).view(1, old, 1)
    return resize(line, new, 1, NEAREST).view(-1).numpy()


def _matrix(old: int, new: int, method: int, axis: int) -> np.ndarray[Any, Any]:
    """Return the weights (new, old) of one axis: each pixel alone in a channel of its own, resized."""
    alone = torch.eye(old, dtype=torch.float64)
    if axis:
        return resize(alone.view(1, old, old), new, 1, method)[0].numpy()
    return resize(alone.view(old, 1, old), 1, new, method)[:, 0].numpy()
