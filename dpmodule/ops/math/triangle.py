"""Extraction and construction of diagonals and triangles of stacks of square matrices."""

from __future__ import annotations

from math import isqrt
from typing import Any

import torch

from ...base import Shape, ShapeError
from ..attrs import boolean, integer
from ..registry import pure
from ..shapes import forward
from ..spec import Attr, arg
from .factor import at_least_1d, infer_per_matrix, square

_OFFSET = Attr(integer(), "offset of the diagonal, positive above the main one", 0)


def _checked_shape(name: str, shape: tuple[int, ...], offset: int) -> tuple[int, ...]:
    dims = square(name, shape) or ()
    if abs(offset) >= dims[-1]:
        raise ShapeError(
            f"{name}: A has shape {shape}, offset is {offset}, expected a magnitude below {dims[-1]}"
        )
    return dims


def _diagonal_shape(a: Any, shape: tuple[int, ...]) -> Shape:
    dims = _checked_shape("_linalg_extractdiag", shape, a.offset)
    return (*dims[:-2], dims[-1] - abs(a.offset))


@pure(
    "_linalg_extractdiag",
    [arg("A")],
    {"offset": _OFFSET},
    aliases=("linalg_extractdiag",),
    infer=forward(_diagonal_shape),
)
def extractdiag(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return a diagonal of matrices.

    Shape:
        A: (..., N, N).
        returns: (..., N - |offset|).

    Source: MXNet 1.9.1 `_linalg_extractdiag`.
    """
    offset = a.offset
    _checked_shape("_linalg_extractdiag", tuple(x.shape), offset)
    return x.diagonal(offset, -2, -1).clone(memory_format=torch.contiguous_format)


def _matrix_shape(a: Any, shape: tuple[int, ...]) -> Shape:
    size = shape[-1] + abs(a.offset)
    return (*shape[:-1], size, size)


@pure(
    "_linalg_makediag",
    [arg("A")],
    {"offset": _OFFSET},
    aliases=("linalg_makediag",),
    infer=forward(_matrix_shape),
)
def makediag(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return matrices with the given diagonal and zeros elsewhere.

    Shape:
        A: (..., N).
        returns: (..., M, M) with M = N + |offset|.

    Source: MXNet 1.9.1 `_linalg_makediag`.
    """
    offset = a.offset
    return torch.diag_embed(x, offset)


def _triangle_index(size: int, a: Any, device: torch.device) -> torch.Tensor:
    """Return rows and columns of the triangle's elements: lower ones by row, upper ones by column."""
    offset, lower = a.offset, a.offset < 0 or (a.offset == 0 and a.lower)
    positions = torch.tril_indices(size, size, -abs(offset), device=device)
    return positions if lower else positions.flip(0)


def _triangle_length(size: int, offset: int) -> int:
    length = size - abs(offset)
    return length * (length + 1) // 2


def _triangle_shape(a: Any, shape: tuple[int, ...]) -> Shape:
    dims = _checked_shape("_linalg_extracttrian", shape, a.offset)
    return (*dims[:-2], _triangle_length(dims[-1], a.offset))


_TRIANGLE = {
    "offset": _OFFSET,
    "lower": Attr(boolean, "use the lower triangle instead of the upper, if offset is 0", True),
}


@pure(
    "_linalg_extracttrian",
    [arg("A")],
    _TRIANGLE,
    aliases=("linalg_extracttrian",),
    infer=forward(_triangle_shape),
)
def extracttrian(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the elements of a triangle of matrices: a lower one by row, an upper one by column.

    Shape:
        A: (..., N, N).
        returns: (..., K * (K + 1) / 2) with K = N - |offset|.

    Source: MXNet 1.9.1 `_linalg_extracttrian`.
    """
    _checked_shape("_linalg_extracttrian", tuple(x.shape), a.offset)
    rows, columns = _triangle_index(x.shape[-1], a, x.device)
    return x[..., rows, columns]


def _matrix_size(a: Any, shape: tuple[int, ...]) -> int:
    """Return the size of the matrices from the number of elements of their triangle."""
    length = (isqrt(8 * shape[-1] + 1) - 1) // 2
    if length * (length + 1) // 2 != shape[-1]:
        raise ShapeError(
            f"_linalg_maketrian: A has shape {shape}, expected a last axis of K * (K + 1) / 2 elements"
        )
    return length + abs(int(a.offset))


def _from_triangle_shape(a: Any, shape: tuple[int, ...]) -> Shape:
    size = _matrix_size(a, shape)
    return (*shape[:-1], size, size)


@pure(
    "_linalg_maketrian",
    [arg("A")],
    _TRIANGLE,
    aliases=("linalg_maketrian",),
    infer=forward(_from_triangle_shape),
)
def maketrian(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return matrices with the given triangle, in the order of `extracttrian`, and zeros elsewhere.

    Shape:
        A: (..., K * (K + 1) / 2).
        returns: (..., N, N) with N = K + |offset|.

    Source: MXNet 1.9.1 `_linalg_maketrian`.
    """
    size = _matrix_size(a, tuple(x.shape))
    rows, columns = _triangle_index(size, a, x.device)
    flat = x.new_zeros((*x.shape[:-1], size * size))
    return flat.index_copy(-1, rows * size + columns, x).reshape(*x.shape[:-1], size, size)


@pure(
    "_linalg_sumlogdiag",
    [arg("A")],
    aliases=("linalg_sumlogdiag",),
    infer=infer_per_matrix("_linalg_sumlogdiag"),
)
def sumlogdiag(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Sum the logarithms of the diagonal; for a Cholesky factor, this is half the log determinant.

    Shape:
        A: (..., N, N) with positive diagonals.
        returns: (...,), or (1,) for a single matrix.

    Source: MXNet 1.9.1 `_linalg_sumlogdiag`.
    """
    return at_least_1d(x.diagonal(dim1=-2, dim2=-1).log().sum(-1))
