"""Factorisations, determinants, diagonals and triangles of stacks of square matrices."""

from __future__ import annotations

from collections.abc import Callable
from math import isqrt
from typing import Any

import torch

from ..._core import torch_private
from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, integer
from ..registry import bound, pure
from ..shapes import forward, output_shape, unify
from ..spec import Attr, Onnx, Shapes, arg

Tensors = Callable[..., torch.Tensor]


def square(name: str, shape: Shape) -> Shape:
    """Return the shape of square matrices, with an unknown side inferred from the other."""
    if shape is None:
        return None
    if len(shape) < 2 or (shape[-1] != shape[-2] and shape[-1] and shape[-2]):
        raise ShapeError(f"{name}: A has shape {shape}, expected square matrices (..., N, N)")
    size = shape[-1] or shape[-2]
    return (*shape[:-2], size, size)


def _infer_square(name: str) -> Callable[..., Shapes]:
    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        both = square(name, unify(ins[0], outs[0], f"A and the result of {name}"))
        return [both], [both]

    return infer


def infer_per_matrix(name: str) -> Callable[..., Shapes]:
    """Return the shape rule of operators with one number per matrix and output; (1,) for a single matrix."""

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        shape = square(name, ins[0])
        if shape is None:
            return ins, outs
        out = shape[:-2] or (1,)
        return [shape], [output_shape(o, out) for o in outs]

    return infer


def at_least_1d(values: torch.Tensor) -> torch.Tensor:
    """Return one number per matrix as an array of at least one axis."""
    return values if values.dim() else values.reshape(1)


def _cholesky(x: torch.Tensor) -> torch.Tensor:
    try:
        factor: torch.Tensor = torch.linalg.cholesky(x)
    except torch.linalg.LinAlgError:  # type: ignore[attr-defined]  # documented, but not in its stubs
        raise OpError(
            "_linalg_potrf: A is not positive definite; check that it is symmetric, or add to its diagonal"
        ) from None
    return factor


_LOWER = {"lower": Attr(boolean, "the triangular matrix is lower triangular, else upper", True)}


@bound(
    "_linalg_potrf",
    [arg("A")],
    _LOWER,
    aliases=("linalg_potrf",),
    infer=_infer_square("_linalg_potrf"),
)
def potrf(a: Any) -> Tensors:
    """Return the Cholesky factor L of symmetric positive definite matrices, ``A = L @ L^T``.

    With lower=False, return the upper triangular U, ``A = U^T @ U``.

    Shape:
        A: (..., N, N); only the triangle of the factor is read. Its gradient is symmetric.
        returns: (..., N, N), triangular with a positive diagonal.

    Raises:
        OpError: a matrix is not positive definite.

    Source: MXNet 1.9.1 `_linalg_potrf`; LAPACK potrf.
    """
    if a.lower:
        return _cholesky

    def potrf(x: torch.Tensor) -> torch.Tensor:
        return _cholesky(x.mT).mT

    return potrf


@pure(
    "_linalg_potri",
    [arg("A")],
    _LOWER,
    aliases=("linalg_potri",),
    infer=_infer_square("_linalg_potri"),
)
def potri(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return ``(A @ A^T)^-1`` of lower triangular matrices: the inverse of the matrix factorised by `potrf`.

    With lower=False, return ``(A^T @ A)^-1`` of upper triangular matrices.

    Shape:
        A: (..., N, N); only that triangle is read and has a gradient.
        returns: (..., N, N), symmetric.

    Source: MXNet 1.9.1 `_linalg_potri`; LAPACK potri.
    """
    lower = a.lower
    unit = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device).expand_as(x)
    inverse = torch.linalg.solve_triangular(x if lower else x.mT, unit, upper=False)
    result: torch.Tensor = inverse.mT @ inverse
    return result


def _infer_gelqf(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    shape = unify(ins[0], outs[0], "A and Q of _linalg_gelqf")
    if shape is None:
        return ins, outs
    if len(shape) < 2 or shape[-2] > shape[-1] > 0:
        raise ShapeError(f"_linalg_gelqf: A has shape {shape}, expected (..., M, N) with M at most N")
    factor = output_shape(outs[1], (*shape[:-2], shape[-2], shape[-2]))
    return [shape], [shape, factor]


@pure(
    "_linalg_gelqf",
    [arg("A")],
    aliases=("linalg_gelqf",),
    outputs=("output0", "output1"),
    infer=_infer_gelqf,
)
def gelqf(a: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Factorise ``A = L @ Q`` into a lower triangular matrix and one with orthonormal rows.

    Shape:
        A: (..., M, N) of rank M, with M at most N.
        output0: Q, (..., M, N).
        output1: L, (..., M, M).

    Source: MXNet 1.9.1 `_linalg_gelqf`; LAPACK gelqf and orglq.
    """
    if x.dim() < 2 or x.shape[-2] > x.shape[-1]:
        raise ShapeError(
            f"_linalg_gelqf: A has shape {tuple(x.shape)}, expected (..., M, N) with M at most N"
        )
    orthogonal, triangle = torch.linalg.qr(x.mT)
    return orthogonal.mT, triangle.mT


def _infer_syevd(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    shape = square("_linalg_syevd", unify(ins[0], outs[0], "A and U of _linalg_syevd"))
    if shape is None:
        return ins, outs
    return [shape], [shape, output_shape(outs[1], shape[:-1])]


@pure(
    "_linalg_syevd",
    [arg("A")],
    outputs=("output0", "output1"),
    infer=_infer_syevd,
    onnx=Onnx(missing="no ONNX operator computes eigenvalues"),
)
def syevd(a: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return eigenvectors and eigenvalues of symmetric matrices, ``A = U^T @ diag(L) @ U``.

    The component of largest magnitude of each eigenvector is positive. The gradient is
    defined for distinct eigenvalues.

    Shape:
        A: (..., N, N); only the lower triangle is read. Its gradient is symmetric.
        output0: U, (..., N, N); row i is the i-th eigenvector.
        output1: L, (..., N), ascending.

    Source: MXNet 1.9.1 `_linalg_syevd`; LAPACK syevd.
    """
    values, vectors = torch.linalg.eigh(x)
    rows = vectors.mT
    with torch.no_grad():
        greatest = rows.gather(-1, rows.abs().argmax(-1, keepdim=True))
        sign = torch.where(greatest < 0, -1.0, 1.0).to(rows.dtype)
    return rows * sign, values


@bound(
    "_linalg_inverse",
    [arg("A")],
    aliases=("linalg_inverse",),
    infer=_infer_square("_linalg_inverse"),
)
def inverse(a: Any) -> Tensors:
    """Invert matrices.

    Shape:
        A: (..., N, N), not singular.
        returns: (..., N, N).

    Source: MXNet 1.9.1 `_linalg_inverse`.
    """
    call: Tensors = torch.linalg.inv
    return call


class _Det(torch.autograd.Function):
    """Determinant whose gradient ``det * A^-T`` is 0 for singular matrices, as in MXNet."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor) -> torch.Tensor:
        determinant: torch.Tensor = torch.linalg.det(x)
        return determinant

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> torch.Tensor:
        x, determinant = ctx.saved_tensors
        singular = (determinant == 0)[..., None, None]
        unit = torch.eye(x.shape[-1], dtype=x.dtype, device=x.device)
        inverse = torch.linalg.inv(torch.where(singular, unit, x))
        slope = (grads[0] * determinant)[..., None, None] * inverse.mT
        return torch.where(singular, torch.zeros_like(slope), slope)


_det: Tensors = torch_private.autograd_apply(_Det)


@pure(
    "_linalg_det",
    [arg("A")],
    aliases=("linalg_det",),
    outputs=("output0",),
    hidden=2,
    infer=infer_per_matrix("_linalg_det"),
    onnx=Onnx("Det", builder="linalg_det"),
)
def det(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the determinant of matrices; the gradient at a singular one is 0.

    Shape:
        A: (..., N, N).
        returns: (...,), or (1,) for a single matrix.

    Source: MXNet 1.9.1 `_linalg_det`.
    """
    return at_least_1d(_det(x))


@pure(
    "_linalg_slogdet",
    [arg("A")],
    aliases=("linalg_slogdet",),
    outputs=("output0", "output1"),
    hidden=2,
    infer=infer_per_matrix("_linalg_slogdet"),
)
def slogdet(a: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the sign and log magnitude of determinants; the sign has no gradient.

    Shape:
        A: (..., N, N).
        output0: sign, -1, 0 or 1: (...,), or (1,) for a single matrix.
        output1: log magnitude, of the same shape.

    Source: MXNet 1.9.1 `_linalg_slogdet`.
    """
    sign, logarithm = torch.linalg.slogdet(x)
    return at_least_1d(sign), at_least_1d(logarithm)


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
