"""Operations that are several nodes of the native engine: products of what has been laid out for them."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from .native_names import BINARY, OP, TOO_LARGE, Maker
from .native_reductions import reduced
from .native_shapes import Layout, arranged

__all__ = ["COMPOSED"]


def _ngram(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    (length,) = attrs
    x = Layout(engine, args[0])
    if len(x.d) != 2 or not 1 <= length <= x.d[1]:
        return -1
    rows, places = x.d[0], x.d[1] - length + 1
    if length * rows * places * x.batch >= TOO_LARGE:
        return -1
    loops = [(x.batch, x.size), (length, 1), (rows, x.steps[0]), (places, 1)]
    windows = arranged(engine, "kmh_ngram", args[0], loops, ((length, rows, places), x.batch))
    return reduced(engine, "sum_dim", windows, (0,), False)


def _circular(name: str, sign: int) -> Maker:
    def make(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
        u, v = args
        dims, batch = engine.dim(v)
        size = dims[0]
        if (
            engine.dim(u)[0] != dims
            or len(dims) != 1
            or not _fits(engine, u, v)
            or size * size * batch >= TOO_LARGE
        ):
            return -1
        twice = engine.kernel(OP["concat"], 0, (v, v))
        loops = [(batch, 2 * size), (size, 1), (size, sign)]  # row i: v[i + sign * k] for all k
        table = arranged(engine, name, twice, loops, ((size, size), batch), size if sign < 0 else 0)
        node: int = engine.kernel(OP["multiply"], 0, (table, u))
        return node

    return make


def _fits(engine: Any, *args: int) -> bool:
    """Say whether minibatches have one size, or none."""
    return len({engine.dim(arg)[1] for arg in args} - {1}) < 2


def _weight_norm(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    w, length = args
    dims, batch = engine.dim(length)
    if math.prod(dims) != 1 or not _fits(engine, w, length):
        return -1
    norm = reduced(engine, "l2_norm", w, range(len(engine.dim(w)[0])), False)
    factor = engine.kernel(OP["binary"], BINARY["div"], (_seen_as(engine, length, (1,)), norm))
    node: int = engine.kernel(OP["binary"], BINARY["mul"], (w, factor))
    return node


def _seen_as(engine: Any, x: int, dims: tuple[int, ...]) -> int:
    """Return an operand with other dimensions, its numbers where they are."""
    return arranged(engine, "reshape", x, [(math.prod(dims) * engine.dim(x)[1], 1)], (dims, engine.dim(x)[1]))


def _trimmed(dims: Sequence[int]) -> list[int]:
    """Return dimensions without ones at their end."""
    found = list(dims)
    while found and found[-1] == 1:
        found.pop()
    return found


def _contract3d(engine: Any, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any) -> int:
    vectors, has_bias = attrs
    d = engine.dim(args[0])[0]
    if not vectors <= len(d) <= 3 or not _fits(engine, *args):
        return -1
    rest = list(d) + [1] * (3 - len(d))
    found = args[0]
    for v in args[1 : 1 + vectors]:
        size = rest.pop()
        if engine.dim(v)[0] != (size,):
            return -1
        matrix = _seen_as(engine, found, (math.prod(rest), size))
        found = _seen_as(engine, engine.kernel(OP["multiply"], 0, (matrix, v)), tuple(rest))
    if not has_bias:
        return found
    bias = args[-1]
    if _trimmed(engine.dim(bias)[0]) != _trimmed(rest):
        return -1
    node: int = engine.kernel(OP["binary"], BINARY["add"], (found, _seen_as(engine, bias, tuple(rest))))
    return node


COMPOSED: dict[str, Maker] = {
    "kmh_ngram": _ngram,
    "circ_conv": _circular("circ_conv", -1),
    "circ_corr": _circular("circ_corr", 1),
    "weight_norm": _weight_norm,
    "contract3d": _contract3d,
}
"""Makers by the name of the operation."""
