"""Attention whose projections of all heads lie interleaved in one array."""

from __future__ import annotations

from .call import OperatorCall
from .common import length_of

__all__ = [
    "div_sqrt_dim",
    "interleaved_matmul_encdec_qk",
    "interleaved_matmul_encdec_valatt",
    "interleaved_matmul_selfatt_qk",
    "interleaved_matmul_selfatt_valatt",
]


def div_sqrt_dim(c: OperatorCall) -> str:
    """Div."""
    x, size = c.inputs[0], c.shapes[0][-1]
    if isinstance(size, int):
        return c.emit("Div", x, c.const(size**0.5))
    length = c.cast(length_of(c, x, c.shapes[0], -1), "float32")
    root = c.emit("Sqrt", length)
    return c.emit("Div", x, root if c.dtypes[0] == "float32" else c.cast(root, c.dtypes[0]))


def _head_size(c: OperatorCall, i: int, parts: int) -> int:
    heads: int = c.a.heads
    return c.length(2, i) // (heads * parts)


def _part(c: OperatorCall, i: int, parts: int, number: int) -> str:
    """Return one of the projections in input `i` as (length, N * heads, size of a head)."""
    apart = c.emit("Reshape", c.inputs[i], c.ints(0, -1, parts, _head_size(c, i, parts)))
    found: str = c.emit("Gather", apart, c.const(number, "int64"), axis=2)
    return found


def _scores(c: OperatorCall, queries: str, keys: str, size: int) -> str:
    scaled = c.emit("Div", c.emit("Transpose", queries, perm=[1, 0, 2]), c.const(size**0.5))
    found: str = c.emit("MatMul", scaled, c.emit("Transpose", keys, perm=[1, 2, 0]))
    return found


def _weighted(c: OperatorCall, attention: str, values: str, size: int) -> str:
    found = c.emit("MatMul", attention, c.emit("Transpose", values, perm=[1, 0, 2]))
    joined: str = c.emit(
        "Reshape", c.emit("Transpose", found, perm=[1, 0, 2]), c.ints(0, -1, c.a.heads * size)
    )
    return joined


def interleaved_matmul_selfatt_qk(c: OperatorCall) -> str:
    """Queries times keys."""
    return _scores(c, _part(c, 0, 3, 0), _part(c, 0, 3, 1), _head_size(c, 0, 3))


def interleaved_matmul_selfatt_valatt(c: OperatorCall) -> str:
    """Attention times values."""
    return _weighted(c, c.inputs[1], _part(c, 0, 3, 2), _head_size(c, 0, 3))


def interleaved_matmul_encdec_qk(c: OperatorCall) -> str:
    """Queries times the encoder's keys."""
    return _scores(c, _part(c, 0, 1, 0), _part(c, 1, 2, 0), _head_size(c, 0, 1))


def interleaved_matmul_encdec_valatt(c: OperatorCall) -> str:
    """Attention times the encoder's values."""
    return _weighted(c, c.inputs[1], _part(c, 0, 2, 1), _head_size(c, 0, 2))
