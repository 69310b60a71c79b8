"""What quantized numbers stand for: float32 ranges, and rounding into and out of 8 and 32 bits.

A number stands for itself times ``max(|low|, |high|)`` over the number of steps of its type. Arithmetic is
MXNet's: float32, in its order, halves rounded to even, and half a step more than the type has in some places.
"""

from __future__ import annotations

from typing import Any

import torch

from ...base import DTypeError, OpError, Shape
from ...devices.device_transfer import beside
from ..attrs import optional, real
from ..dtypes import name_of, torch_dtype
from ..spec import Attr

GREATEST = {"int8": 127.0, "uint8": 255.0, "int32": 2147483647.0}
"""Greatest number of a type, over which products and `_contrib_quantize` spread ranges."""

STEPS = {"int8": 127.5, "uint8": 255.5, "int32": 2147483647.0}
"""What everything else spreads ranges over."""

CALIBRATED = {
    "min_calib_range": Attr(
        optional(real), "least value seen in calibration; None: find it in the data", None
    ),
    "max_calib_range": Attr(optional(real), "greatest value seen in calibration; None: find it", None),
}

one: Shape = (1,)
"""Shape of the arrays that hold the ends of ranges."""


def calibrated(a: Any) -> bool:
    """Say whether the attributes give a range."""
    return a.min_calib_range is not None and a.max_calib_range is not None


def number(like: torch.Tensor, value: float) -> torch.Tensor:
    """Return a number as a float32 array of one element beside another array."""
    return beside(like, [value], torch.float32)


def magnitude(low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return the greater of the magnitudes of a range's ends, (1,) float32."""
    return torch.maximum(low.reshape(1).float().abs(), high.reshape(1).float().abs())


def over(value: float, by: torch.Tensor) -> torch.Tensor:
    """Return a number over float32 numbers, rounded once; ``value / by`` would multiply with a rounded reciprocal."""
    return number(by, value) / by


def scale_of(data: torch.Tensor, low: torch.Tensor, high: torch.Tensor) -> torch.Tensor:
    """Return how many steps of the data's type one unit is."""
    return over(STEPS[name_of(data.dtype)], magnitude(low, high))


def rounded(x: torch.Tensor, kind: str) -> torch.Tensor:
    """Round to the nearest number of a type, halves to even; what lies outside goes to its ends."""
    wanted = torch_dtype(kind)
    limits = torch.iinfo(wanted)
    return x.double().round().clamp(limits.min, limits.max).to(wanted)


def product_range(
    left: torch.Tensor,
    right: torch.Tensor,
    ranges: tuple[torch.Tensor, torch.Tensor, torch.Tensor, torch.Tensor],
) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the range that int32 products of two quantized arrays stand for, from the ranges of both."""
    low_left, high_left, low_right, high_right = ranges
    step = magnitude(low_left, high_left) / GREATEST[name_of(left.dtype)]
    step = step * (magnitude(low_right, high_right) / GREATEST[name_of(right.dtype)])
    high = step * GREATEST["int32"]
    return -high, high


def of_types(name: str, tensors: dict[str, torch.Tensor], *kinds: str) -> None:
    """Refuse inputs of other types."""
    for key, tensor in tensors.items():
        if name_of(tensor.dtype) not in kinds:
            raise DTypeError(
                f"{name}: {key} has type {name_of(tensor.dtype)}, expected {' or '.join(kinds)}; "
                "quantize it with _contrib_quantize_v2"
            )


def both_or_none(name: str, a: Any) -> None:
    """Refuse one end of a range without the other."""
    if (a.min_calib_range is None) != (a.max_calib_range is None):
        raise OpError(f"{name}: min_calib_range and max_calib_range belong together, only one is given")
