"""Factorisations, determinants and inverses of stacks of matrices."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..._core import torch_private
from ...base import OpError, Shape, ShapeError
from ..attrs import boolean
from ..registry import bound, pure
from ..shapes import output_shape, unify
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
