"""Products and triangular solves of stacks of matrices: ``mx.nd.linalg`` and ``mx.sym.linalg``.

Operators work on the last two axes; leading axes are batch axes. Factorisations, determinants,
diagonals and triangles are in `triangle`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import Shape, ShapeError
from ..attrs import boolean, integer, real
from ..registry import bound, pure
from ..shapes import from_data, normal_axis, output_shape, unify
from ..spec import Attr, Shapes, arg

Tensors = Callable[..., torch.Tensor]

_ALPHA = Attr(real, "factor of the product", 1.0)
_AXIS = Attr(integer(), "axis of the matrices' rows; the columns are on the last axis", -2)


def _transpose_attrs(inputs: str = "ab") -> dict[str, Attr]:
    return {f"transpose_{x}": Attr(boolean, f"transpose the matrices of {x.upper()}", False) for x in inputs}


def _rows_to_end(shape: Shape, axis: int, name: str) -> tuple[int, ...]:
    """Return a shape with the axis of the rows moved before the last one."""
    dims = tuple(shape or ())
    if len(dims) < 2:
        raise ShapeError(f"{name}: an input has shape {shape}, expected matrices (at least two axes)")
    at = normal_axis(axis, len(dims))
    if at == len(dims) - 1:
        raise ShapeError(
            f"{name}: axis is {axis}, the last axis, which contains the columns; expected an earlier axis"
        )
    return (*dims[:at], *dims[at + 1 : -1], dims[at], dims[-1])


def _rows_back(dims: tuple[int, ...], axis: int) -> tuple[int, ...]:
    at = normal_axis(axis, len(dims))
    rest = (*dims[:-2], dims[-1])
    return (*rest[:at], dims[-2], *rest[at:])


def _infer_product(name: str) -> Callable[..., Shapes]:
    """Return the shape rule of gemm (three inputs) and gemm2 (two)."""

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        if ins[0] is None or ins[1] is None:
            return ins, outs
        left, right = (_rows_to_end(s, a.axis, name) for s in ins[:2])
        if len(left) != len(right):
            raise ShapeError(f"{name}: A is {ins[0]} and B {ins[1]}, expected equal numbers of axes")
        batch = unify(left[:-2], right[:-2], f"leading axes of {name}'s inputs") or ()
        rows, inner = (left[-1], left[-2]) if a.transpose_a else (left[-2], left[-1])
        other, columns = (right[-1], right[-2]) if a.transpose_b else (right[-2], right[-1])
        if inner != other and inner and other:
            raise ShapeError(
                f"{name}: A is {ins[0]} and B {ins[1]}: the contracted axes have {inner} and {other} elements"
            )
        out = output_shape(outs[0], _rows_back((*batch, rows, columns), a.axis))
        more = [unify(s, out, f"C and the result of {name}") for s in ins[2:]]
        return [ins[0], ins[1], *more], [out]

    return infer


def _product(a: Any) -> Tensors:
    flip_a, flip_b, alpha, axis = a.transpose_a, a.transpose_b, a.alpha, a.axis

    def product(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
        if min(left.dim(), right.dim()) < 2:
            raise ShapeError(f"A has shape {tuple(left.shape)} and B {tuple(right.shape)}, expected matrices")
        if axis != -2:
            left, right = left.movedim(axis, -2), right.movedim(axis, -2)
        if left.shape[:-2] != right.shape[:-2]:
            raise ShapeError(
                f"A has {tuple(left.shape[:-2])} matrices and B {tuple(right.shape[:-2])}, expected equal counts"
            )
        result = torch.matmul(left.mT if flip_a else left, right.mT if flip_b else right)
        result = result if alpha == 1.0 else result * alpha
        return result if axis == -2 else result.movedim(-2, axis)

    return product


@bound(
    "_linalg_gemm2",
    [arg("A"), arg("B")],
    {**_transpose_attrs(), "alpha": _ALPHA, "axis": _AXIS},
    aliases=("linalg_gemm2",),
    infer=_infer_product("_linalg_gemm2"),
)
def gemm2(a: Any) -> Tensors:
    """Multiply matrices pairwise: ``alpha * op(A) @ op(B)``.

    Shape:
        A: (B..., M, K), or (B..., K, M) with `transpose_a`.
        B: (B..., K, N), or (B..., N, K) with `transpose_b`; the leading axes equal those of A.
        returns: (B..., M, N). With `axis`, the rows of all three are on that axis.

    Source: MXNet 1.9.1 `_linalg_gemm2`.
    """
    return _product(a)


@bound(
    "_linalg_gemm",
    [arg("A"), arg("B"), arg("C")],
    {**_transpose_attrs(), "alpha": _ALPHA, "beta": Attr(real, "factor of C", 1.0), "axis": _AXIS},
    aliases=("linalg_gemm",),
    infer=_infer_product("_linalg_gemm"),
)
def gemm(a: Any) -> Tensors:
    """Multiply matrices pairwise and add a third: ``alpha * op(A) @ op(B) + beta * C``.

    Shape:
        A: (B..., M, K), or (B..., K, M) with `transpose_a`.
        B: (B..., K, N), or (B..., N, K) with `transpose_b`; the leading axes equal those of A.
        C: (B..., M, N).
        returns: (B..., M, N). With `axis`, the rows of all four are on that axis.

    Source: MXNet 1.9.1 `_linalg_gemm`.
    """
    product, beta = _product(a), a.beta

    def gemm(left: torch.Tensor, right: torch.Tensor, added: torch.Tensor) -> torch.Tensor:
        product_out = product(left, right)
        if product_out.shape != added.shape:
            raise ShapeError(
                f"C is {tuple(added.shape)}, expected the product's shape {tuple(product_out.shape)}"
            )
        total: torch.Tensor = product_out + added * beta
        return total

    return gemm


def _syrk_shape(a: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    if len(shape) < 2:
        raise ShapeError(f"_linalg_syrk: A has shape {shape}, expected matrices (at least two axes)")
    size = shape[-1] if a.transpose else shape[-2]
    return *shape[:-2], size, size


@pure(
    "_linalg_syrk",
    [arg("A")],
    {"transpose": Attr(boolean, "use the transposed matrices", False), "alpha": _ALPHA},
    aliases=("linalg_syrk",),
    infer=from_data(_syrk_shape),
)
def syrk(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Multiply matrices by their own transposes: ``alpha * A @ A^T``, or ``alpha * A^T @ A`` with `transpose`.

    Shape:
        A: (B..., M, N).
        returns: (B..., M, M), or (B..., N, N) with `transpose`.

    Source: MXNet 1.9.1 `_linalg_syrk`.
    """
    flip, alpha = a.transpose, a.alpha
    result: torch.Tensor = alpha * (x.mT @ x if flip else x @ x.mT)
    return result


def _infer_triangular(name: str) -> Callable[..., Shapes]:
    """Return the shape rule of triangular products and solves, where B and the result have the same shape."""

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        both = unify(ins[1], outs[0], f"B and the result of {name}")
        if both is None:
            return ins, outs
        if len(both) < 2:
            raise ShapeError(f"{name}: B has shape {both}, expected matrices (at least two axes)")
        size = both[-1] if a.rightside else both[-2]
        square = unify(ins[0], (*both[:-2], size, size), f"A of {name}")
        return [square, both], [both]

    return infer


def _triangular_attrs(solve: bool) -> dict[str, Attr]:
    return {
        "transpose": Attr(boolean, "use the transposed triangular matrices", False),
        "rightside": Attr(boolean, "A is on the right of " + ("the unknown" if solve else "B"), False),
        "lower": Attr(boolean, "A is lower triangular; the other triangle is not read", True),
        "alpha": Attr(real, "factor of " + ("B" if solve else "the product"), 1.0),
    }


def _check_shapes(name: str, right: bool, one: torch.Tensor, other: torch.Tensor) -> None:
    size = other.shape[-1] if right else other.shape[-2]
    if tuple(one.shape) != (*other.shape[:-2], size, size):
        raise ShapeError(
            f"{name}: A is {tuple(one.shape)} and B {tuple(other.shape)}, expected A of "
            f"{(*other.shape[:-2], size, size)}"
        )


@pure(
    "_linalg_trmm",
    [arg("A"), arg("B")],
    _triangular_attrs(False),
    aliases=("linalg_trmm",),
    infer=_infer_triangular("_linalg_trmm"),
)
def trmm(a: Any, matrices: torch.Tensor, right_side: torch.Tensor) -> torch.Tensor:
    """Multiply by triangular matrices: ``alpha * op(A) @ B``, or ``alpha * B @ op(A)`` with `rightside`.

    Shape:
        A: (B..., M, M), or (B..., N, N) with `rightside`; only one triangle is read and has a gradient.
        B: (B..., M, N).
        returns: (B..., M, N).

    Source: MXNet 1.9.1 `_linalg_trmm`.
    """
    flip, right, lower, alpha = a.transpose, a.rightside, a.lower, a.alpha
    _check_shapes("_linalg_trmm", right, matrices, right_side)
    triangle = matrices.tril() if lower else matrices.triu()
    triangle = triangle.mT if flip else triangle
    result: torch.Tensor = alpha * (right_side @ triangle if right else triangle @ right_side)
    return result


@pure(
    "_linalg_trsm",
    [arg("A"), arg("B")],
    _triangular_attrs(True),
    aliases=("linalg_trsm",),
    infer=_infer_triangular("_linalg_trsm"),
)
def trsm(a: Any, matrices: torch.Tensor, right_side: torch.Tensor) -> torch.Tensor:
    """Solve ``op(A) @ X = alpha * B``, or ``X @ op(A) = alpha * B`` with `rightside`, by substitution.

    Shape:
        A: (B..., M, M), or (B..., N, N) with `rightside`; only one triangle is read and has a gradient.
        B: (B..., M, N).
        returns: (B..., M, N), the unknown X.

    Source: MXNet 1.9.1 `_linalg_trsm`.
    """
    flip, right, lower, alpha = a.transpose, a.rightside, a.lower, a.alpha
    _check_shapes("_linalg_trsm", right, matrices, right_side)
    triangle = matrices.mT if flip else matrices
    solution: torch.Tensor = torch.linalg.solve_triangular(
        triangle, alpha * right_side, upper=lower == flip, left=not right
    )
    return solution
