"""The kernels of convolutions, by measurements.

In prediction there are three. The extension's tiles and oneDNN read channels_last data and a packed weight; torch's
kernel for the usual layout, (N, C, H, W), needs no conversion. In training, tiles or torch compute the result and each
gradient, see `trained_convolution`. ``tools/choose_kernels.py`` measures them for random sizes and writes
``kernel_choices.json``: a line for each choice on each kind of processor, with its name and a list of regression trees.
Their values add up to the logarithm of one kernel's time over that of another. A node is [feature, limit, tree up to
the limit, tree above it]. The trees of processors on which MKL is the fastest, and of those that are the fastest by the
width of AVX-512, repeat the limits that were measured on them before, except where kernels differ by a large factor.
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, lru_cache
from math import prod
from pathlib import Path
from typing import Any

from .image_layers import ConvolutionSizes
from .linear import beats_mkl_by_width, kernels, mkl_is_fastest

_AVX512_WIDTH = 16
_LEAST_GAIN, _LEAST_DIVIDING_GAIN = 0.1, 0.05
"""Logarithms of the least predicted gain for which data is converted, and for which oneDNN divides a call."""


@cache
def trees(name: str) -> list[Any]:
    """Return the trees with a name; parses no others."""
    table = Path(__file__).with_name("kernel_choices.json").read_text(encoding="utf-8")
    lines = (line for line in table.splitlines() if line.startswith(f'["{name}",'))
    found: list[Any] = json.loads(next(lines))[1]
    return found


def features(sizes: ConvolutionSizes, groups: int, is_fused: bool, in_run: bool = False) -> tuple[int, ...]:
    """Return the numbers that the trees compare: sizes, and the work that follows from them.

    Args:
        is_fused: True with a normalisation, a sum or an activation.
        in_run: True between other layers of one call of the extension, which another kernel divides.
    """
    (images, channels, *_), (_, filters, height, width) = sizes.data, sizes.result
    window, stride, dilate = (prod(axis[at] for axis in sizes.axes) for at in (2, 3, 4))
    places = images * height * width
    own = channels // groups
    return (
        images, channels, filters, window, prod(sizes.data), places, places * filters * own * window, places * filters,
        own, groups, sizes.data[3], stride, dilate, is_fused, in_run,
    )  # fmt: skip


@lru_cache(1024)
def keeps_usual_layout(is_parallel: bool, *convolution: Any) -> bool:
    """Return True if a convolution is faster in the usual layout.

    Args:
        convolution: the arguments of `features`.
    """
    return not pays(trees_of("default" if is_parallel else "1"), features(*convolution))


@lru_cache(1024)
def prefers_tiles(*convolution: Any) -> bool:
    """Return True if the extension is faster than oneDNN; requires that it has tiles.

    Args:
        convolution: the arguments of `features`.
    """
    *_, in_run = sizes = features(*convolution)
    return predict(trees_of("tiles"), sizes) > (-_LEAST_DIVIDING_GAIN if in_run else 0)


def trees_of(choice: str) -> list[Any]:
    """Return the trees of a choice for this processor; see `name_of`."""
    is_wide = getattr(kernels(), "vector_width", 0) >= _AVX512_WIDTH
    return trees(name_of("avx512" if is_wide else "avx2", choice))


def name_of(isa: str, choice: str) -> str:
    """Return the name of this processor's trees.

    Args:
        isa: instruction set, "avx2" or "avx512".
        choice: in prediction "tiles" over oneDNN, and conversion over the usual layout with "1" or "default" threads;
            in training tiles over torch for "result", "for_data" or "for_weight", over sums of windows for "result
            windows" or "for_data windows", and conversion over the usual layout for "train 1" or "train default".
    """
    processor = " mkl" if mkl_is_fastest() else " wide" if beats_mkl_by_width() and isa == "avx512" else ""
    return f"{isa} {choice}{processor}"


def pays(layout: Sequence[Any], sizes: Sequence[int]) -> bool:
    """Return True if the trees of a layout predict that converting the data gains more than their usual error."""
    return predict(layout, sizes) > _LEAST_GAIN


def predict(found: Sequence[Any], sizes: Sequence[int]) -> float:
    """Return the logarithm of the ratio that trees predict."""
    total = 0.0
    for tree in found:
        while isinstance(tree, list):
            feature, limit, low, high = tree
            tree = low if sizes[feature] <= limit else high
        total += tree
    return total
