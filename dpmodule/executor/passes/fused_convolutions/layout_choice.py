"""The layout of a network's only convolution: the user's (N, C, H, W), or channels_last with packed weights.

``tools/choose_layouts.py`` measures both for random sizes and writes ``layouts.json``: a list of regression trees for
each instruction set, with one and with several threads, on processors that MKL favours and on others. Their values add
up to the logarithm of the time in the usual layout over the other. A node is [feature, limit, tree up to the limit,
tree above it].
"""

from __future__ import annotations

import json
from collections.abc import Sequence
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from ....ops.nn.linear import kernels, mkl_is_fastest
from ....ops.shapes import prod

Pair = tuple[int, ...]
_AVX512_WIDTH = 16
_LEAST_GAIN = 0.1
"""Logarithm of the least predicted gain for which data is converted: the prediction's error is about as large."""


@cache
def _trees() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(Path(__file__).with_name("layouts.json").read_text(encoding="utf-8"))
    return found


def features(
    shape: tuple[int, ...],
    filters: int,
    kernel: Pair,
    stride: Pair,
    dilate: Pair,
    groups: int,
    is_fused: bool,
) -> tuple[int, ...]:
    """Return the numbers that the trees compare: sizes, and the work that follows from them."""
    rows, channels, _, width = shape
    numbers, window = prod(shape), prod(kernel)
    places = numbers // channels // prod(stride)
    products = places * channels // groups * filters * window
    results = places * filters
    return (
        rows, channels, filters, window, numbers, places, products, results, channels // groups, groups, width,
        prod(stride), prod(dilate), is_fused,
    )  # fmt: skip


@lru_cache(1024)
def keeps_usual_layout(is_parallel: bool, *sizes: Any) -> bool:
    """Return True if a convolution, with its activation if it is fused, is faster in the usual layout.

    Args:
        sizes: the arguments of `features`.
    """
    isa = "avx512" if getattr(kernels(), "vector_width", 0) >= _AVX512_WIDTH else "avx2"
    return choose(_trees()[name_of(isa, "default" if is_parallel else "1")], features(*sizes))


def name_of(isa: str, threads: str) -> str:
    """Return the name of the trees for an instruction set, and "1" or "default" threads, on this processor."""
    return f"{isa} {threads} mkl" if mkl_is_fastest() else f"{isa} {threads}"


def choose(trees: Sequence[Any], sizes: Sequence[int]) -> bool:
    """Return True unless the trees predict that converting is faster, by more than their usual error."""
    total = 0.0
    for tree in trees:
        while isinstance(tree, list):
            feature, limit, low, high = tree
            tree = low if sizes[feature] <= limit else high
        total += tree
    return total <= _LEAST_GAIN
