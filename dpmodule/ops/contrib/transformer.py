"""Attention with interleaved projections of all heads, and its scaling."""

from __future__ import annotations

from typing import Any

import torch

from ...base import Shape, ShapeError
from ..attrs import integer
from ..registry import pure
from ..shapes import forward, same
from ..spec import ROWS, Attr, arg

Dims = tuple[int, ...]

_HEADS = {"heads": Attr(integer(low=1), "number of attention heads")}


@pure(
    "_contrib_div_sqrt_dim",
    [arg("data", ROWS)],
    infer=same,
)
def div_sqrt_dim(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Divide by the square root of the length of the last axis.

    Shape:
        data: (..., D).
        returns: the same; integers are truncated.

    Source: MXNet 1.9.1 `_contrib_div_sqrt_dim`; Vaswani et al. (2017), scaled dot-product attention.
    """
    scaled: torch.Tensor = x / x.shape[-1] ** 0.5
    return scaled if x.is_floating_point() else scaled.to(x.dtype)


def _projection_sizes(name: str, shape: Dims, heads: int, parts: int) -> Dims:
    """Return (length, batch, heads, size of a head) of an array of interleaved projections."""
    if len(shape) != 3 or shape[2] % (heads * parts):
        raise ShapeError(
            f"{name}: projections have shape {shape}, expected (L, N, C) with C a multiple of {heads * parts}"
        )
    return shape[0], shape[1], heads, shape[2] // (heads * parts)


def _split(name: str, x: torch.Tensor, heads: int, parts: int) -> list[torch.Tensor]:
    """Return each projection as (N * heads, L, size of a head)."""
    length, batch, _, size = _projection_sizes(name, tuple(x.shape), heads, parts)
    projections = x.reshape(length, batch * heads, parts, size)
    return [projections[:, :, i].transpose(0, 1) for i in range(parts)]


def _scores(queries: torch.Tensor, keys: torch.Tensor) -> torch.Tensor:
    return torch.bmm(queries / queries.shape[-1] ** 0.5, keys.mT)


def _weighted_values(attention: torch.Tensor, values: torch.Tensor, heads: int) -> torch.Tensor:
    """Return the values weighted by attention as (length of the queries, N, heads * size of a head)."""
    weighted = torch.bmm(attention, values).transpose(0, 1)
    return weighted.reshape(weighted.shape[0], values.shape[0] // heads, heads * values.shape[-1])


def _self_scores(a: Any, shape: Dims) -> Shape:
    length, batch, heads, _ = _projection_sizes("_contrib_interleaved_matmul_selfatt_qk", shape, a.heads, 3)
    return batch * heads, length, length


@pure(
    "_contrib_interleaved_matmul_selfatt_qk",
    [arg("queries_keys_values")],
    _HEADS,
    infer=forward(_self_scores),
)
def selfatt_qk(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the scores of self-attention: queries times keys, divided by the square root of a head's size.

    Shape:
        queries_keys_values: (L, N, heads * 3 * D): query, key and value of each head.
        returns: (N * heads, L, L).

    Source: MXNet 1.9.1 `_contrib_interleaved_matmul_selfatt_qk`.
    """
    heads = a.heads
    queries, keys, _ = _split("_contrib_interleaved_matmul_selfatt_qk", x, heads, 3)
    return _scores(queries, keys)


def _self_values(a: Any, shape: Dims, attention: Dims) -> Shape:
    name = "_contrib_interleaved_matmul_selfatt_valatt"
    length, batch, heads, size = _projection_sizes(name, shape, a.heads, 3)
    if attention != (batch * heads, length, length):
        raise ShapeError(
            f"{name}: attention has shape {attention}, expected {(batch * heads, length, length)}"
        )
    return length, batch, heads * size


@pure(
    "_contrib_interleaved_matmul_selfatt_valatt",
    [arg("queries_keys_values"), arg("attention")],
    _HEADS,
    infer=forward(_self_values),
)
def selfatt_valatt(a: Any, x: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
    """Return the values of self-attention weighted by attention.

    Shape:
        queries_keys_values: (L, N, heads * 3 * D): query, key and value of each head.
        attention: (N * heads, L, L).
        returns: (L, N, heads * D).

    Source: MXNet 1.9.1 `_contrib_interleaved_matmul_selfatt_valatt`.
    """
    heads = a.heads
    values = _split("_contrib_interleaved_matmul_selfatt_valatt", x, heads, 3)[2]
    return _weighted_values(attention, values, heads)


def _cross_scores(a: Any, queries: Dims, keys_values: Dims) -> Shape:
    name = "_contrib_interleaved_matmul_encdec_qk"
    length, batch, heads, size = _projection_sizes(name, queries, a.heads, 1)
    other = _projection_sizes(name, keys_values, a.heads, 2)
    if other[1:] != (batch, heads, size):
        raise ShapeError(
            f"{name}: queries have shape {queries} and keys_values {keys_values}, expected (Q, N, C), (K, N, 2 * C)"
        )
    return batch * heads, length, other[0]


@pure(
    "_contrib_interleaved_matmul_encdec_qk",
    [arg("queries"), arg("keys_values")],
    _HEADS,
    infer=forward(_cross_scores),
)
def encdec_qk(a: Any, queries: torch.Tensor, keys_values: torch.Tensor) -> torch.Tensor:
    """Return the scores of attention to an encoder: queries times keys, divided by the square root of a head's size.

    Shape:
        queries: (Q, N, heads * D).
        keys_values: (K, N, heads * 2 * D): key and value of each head.
        returns: (N * heads, Q, K).

    Source: MXNet 1.9.1 `_contrib_interleaved_matmul_encdec_qk`.
    """
    heads = a.heads
    name = "_contrib_interleaved_matmul_encdec_qk"
    (projected,) = _split(name, queries, heads, 1)
    return _scores(projected, _split(name, keys_values, heads, 2)[0])


def _cross_values(a: Any, keys_values: Dims, attention: Dims) -> Shape:
    name = "_contrib_interleaved_matmul_encdec_valatt"
    length, batch, heads, size = _projection_sizes(name, keys_values, a.heads, 2)
    if len(attention) != 3 or (attention[0], attention[2]) != (batch * heads, length):
        raise ShapeError(f"{name}: attention has shape {attention}, expected {(batch * heads, 'Q', length)}")
    return attention[1], batch, heads * size


@pure(
    "_contrib_interleaved_matmul_encdec_valatt",
    [arg("keys_values"), arg("attention")],
    _HEADS,
    infer=forward(_cross_values),
)
def encdec_valatt(a: Any, keys_values: torch.Tensor, attention: torch.Tensor) -> torch.Tensor:
    """Return the values of an encoder weighted by attention.

    Shape:
        keys_values: (K, N, heads * 2 * D): key and value of each head.
        attention: (N * heads, Q, K).
        returns: (Q, N, heads * D).

    Source: MXNet 1.9.1 `_contrib_interleaved_matmul_encdec_valatt`.
    """
    heads = a.heads
    values = _split("_contrib_interleaved_matmul_encdec_valatt", keys_values, heads, 2)[1]
    return _weighted_values(attention, values, heads)
