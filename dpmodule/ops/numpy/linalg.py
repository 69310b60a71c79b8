"""Products and decompositions of matrices."""

from __future__ import annotations

from collections.abc import Callable
from functools import wraps
from typing import Any

import torch

from ..attrs import boolean, choice, integer, ints, optional, real, shape, string
from ..dtypes import HALF
from ..math.pointwise import in_type_of
from ..registry import pure
from ..shapes import forward
from ..spec import NEVER, Attr, Onnx, Types, Variadic, arg
from .rules import common, promoted, to_common, types_by
from .shape import COUNT


def _product(function: Callable[..., torch.Tensor], *arrays: torch.Tensor) -> torch.Tensor:
    """Return a product of arrays; CUDA has none of integers, so float64 is used there, exact up to 2 ** 53."""
    arrays = to_common(*arrays)
    first = arrays[0]
    if first.is_cuda and not first.is_floating_point():
        return in_type_of(first, function(*(each.double() for each in arrays)))
    return function(*arrays)


@pure("_npi_matmul", [arg("a"), arg("b")], outputs=("out",), infer_type=promoted, onnx=Onnx("MatMul"))
def matmul(a: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Multiply matrices, with broadcasting of the axes before the last two.

    Shape:
        a: (..., N, K), or (K,).
        b: (..., K, M), or (K,).
        returns: (..., N, M), without the axes that vectors lack.

    Source: MXNet 1.9.1 `_npi_matmul`.
    """
    return _product(torch.matmul, left, right)


def _dot(left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    if left.dim() == 0 or right.dim() == 0:
        return left * right
    found: torch.Tensor = torch.tensordot(left, right, ([left.dim() - 1], [max(right.dim() - 2, 0)]))
    return found


@pure(
    "_np_dot",
    [arg("a"), arg("b")],
    aliases=("_npi_dot",),
    infer_type=promoted,
    onnx=Onnx("MatMul", builder="np_dot"),
)
def dot(a: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Sum products along the last axis of `a` and the second last of `b`; multiply by a scalar.

    Shape:
        a: (..., K).
        b: (..., K, M), or (K,).
        returns: the axes of `a` without the last, then those of `b` without that of length K.

    Source: MXNet 1.9.1 `_np_dot`.
    """
    return _product(_dot, left, right)


@pure(
    "_npi_tensordot",
    [arg("a"), arg("b")],
    {
        "a_axes_summed": Attr(ints, "axes of `a`"),
        "b_axes_summed": Attr(ints, "axes of `b`, of the same lengths"),
    },
    infer_type=promoted,
    onnx=Onnx("MatMul", builder="np_tensordot"),
)
def tensordot(a: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Sum products along pairs of axes.

    Shape:
        a, b: any shapes whose summed axes have equal lengths.
        returns: the other axes of `a`, then those of `b`.

    Source: MXNet 1.9.1 `_npi_tensordot`.
    """
    return _product(lambda x, y: torch.tensordot(x, y, (a.a_axes_summed, a.b_axes_summed)), left, right)


@pure(
    "_npi_tensordot_int_axes",
    [arg("a"), arg("b")],
    {"axes": Attr(integer(low=0), "number of last axes of `a` and first axes of `b` to sum")},
    infer_type=promoted,
    onnx=Onnx("MatMul", builder="np_tensordot"),
)
def tensordot_int_axes(a: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Sum products along the last axes of `a` and the first of `b`.

    Shape:
        a, b: shapes whose summed axes have equal lengths.
        returns: the other axes of `a`, then those of `b`.

    Source: MXNet 1.9.1 `_npi_tensordot_int_axes`.
    """
    return _product(lambda x, y: torch.tensordot(x, y, a.axes), left, right)


@pure(
    "_npi_einsum",
    attrs={
        "num_args": COUNT,
        "subscripts": Attr(string, "names of the axes, as in NumPy: 'ij,jk->ik'", ""),
        "optimize": Attr(integer(), "accepted and ignored: torch chooses the order of the products", 0),
    },
    variadic=Variadic("data"),
    infer_type=types_by(lambda a, *types: common(*types)),
    onnx=Onnx("Einsum", builder="np_einsum"),
)
def einsum(a: Any, *arrays: torch.Tensor) -> torch.Tensor:
    """Sum products along named axes.

    Shape:
        data: shapes with one axis for each name.
        returns: one axis for each name after the arrow.

    Source: MXNet 1.9.1 `_npi_einsum`.
    """

    def product(*arrays: torch.Tensor) -> torch.Tensor:
        return torch.einsum(a.subscripts, *arrays)

    if all(x.dtype == torch.bool for x in arrays):
        return _product(product, *(x.int() for x in arrays)) != 0
    return _product(product, *arrays)


@pure("_npi_kron", [arg("a"), arg("b")], infer_type=promoted, onnx=Onnx("Mul", builder="np_kron"))
def kron(a: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the Kronecker product.

    Shape:
        a, b: any shapes.
        returns: the products of the lengths, aligned at the end.

    Source: MXNet 2.0 `_npi_kron`.
    """
    return _product(torch.kron, left.contiguous(), right.contiguous())  # torch 2.13 takes no other strides


@pure(
    "_npi_cross",
    [arg("a"), arg("b")],
    {
        "axisa": Attr(integer(), "axis of the vectors of `a`", -1),
        "axisb": Attr(integer(), "axis of the vectors of `b`", -1),
        "axisc": Attr(integer(), "axis of the vectors of the result", -1),
    },
    infer_type=promoted,
    onnx=Onnx(missing="ONNX has no cross product"),
)
def cross(a: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Return the cross products of vectors of two or three elements.

    Shape:
        a, b: any shapes, with 2 or 3 elements along `axisa` and `axisb`; the other axes broadcast.
        returns: 3 elements along `axisc`; without this axis if both have 2.

    Source: MXNet 2.0 `_npi_cross`.
    """
    left, right = to_common(left.movedim(a.axisa, -1), right.movedim(a.axisb, -1))
    if left.shape[-1] == right.shape[-1] == 2:
        return left[..., 0] * right[..., 1] - left[..., 1] * right[..., 0]
    left, right = (torch.nn.functional.pad(x, (0, 3 - x.shape[-1])) for x in (left, right))
    found: torch.Tensor = torch.linalg.cross(left, right).movedim(-1, a.axisc)
    return found


def _in_single(function: Callable[..., Any]) -> Callable[..., Any]:
    """Return an operator that computes 16-bit types in float32."""

    @wraps(function)
    def run(a: Any, *tensors: torch.Tensor) -> Any:
        kind = tensors[0].dtype
        if kind not in HALF:
            return function(a, *tensors)
        found = function(a, *(x.float() for x in tensors))
        outputs = [x.to(kind) if x.is_floating_point() else x for x in _listed(found)]
        return tuple(outputs) if isinstance(found, tuple) else outputs[0]

    return run


def _listed(found: Any) -> list[torch.Tensor]:
    return list(found) if isinstance(found, tuple) else [found]


_NO_SOLVER = Onnx(missing="ONNX has no solver of linear systems")
_NO_EIGEN = Onnx(missing="ONNX has no eigenvalues")


@pure(
    "_npi_cholesky",
    [arg("A")],
    {"lower": Attr(boolean, "return the lower triangle", True)},
    onnx=Onnx(missing="ONNX has no Cholesky decomposition"),
)
@_in_single
def cholesky(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the Cholesky factors of positive definite matrices.

    Shape:
        A: (..., N, N).
        returns: the same shape.

    Source: MXNet 1.9.1 `_npi_cholesky`.
    """
    found: torch.Tensor = torch.linalg.cholesky(x, upper=not a.lower)
    return found


@pure(
    "_npi_svd",
    [arg("A")],
    aliases=("_np__linalg_svd",),
    outputs=("output0", "output1", "output2"),
    onnx=Onnx(missing="ONNX has no singular values"),
)
@_in_single
def svd(a: Any, x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the singular value decomposition of matrices that have at most as many rows as columns.

    Shape:
        A: (..., M, N), M at most N.
        returns: (..., M, M), (..., M) and (..., M, N).

    Source: MXNet 1.9.1 `_npi_svd`.
    """
    return tuple(torch.linalg.svd(x, full_matrices=False))


@pure("_npi_solve", [arg("A"), arg("B")], onnx=_NO_SOLVER)
@_in_single
def solve(a: Any, x: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Solve linear systems.

    Shape:
        A: (..., N, N).
        B: (..., N, K), or (..., N).
        returns: the shape of B.

    Source: MXNet 1.9.1 `_npi_solve`.
    """
    is_vector = right.dim() == x.dim() - 1
    found: torch.Tensor = torch.linalg.solve(x, right.unsqueeze(-1) if is_vector else right)
    return found.squeeze(-1) if is_vector else found


def _symmetric(x: torch.Tensor, lower: bool) -> torch.Tensor:
    part = torch.tril(x, -1) if lower else torch.triu(x, 1)
    return part + part.mT + torch.diag_embed(torch.diagonal(x, 0, -2, -1))


_UPLO = {"UPLO": Attr(choice("L", "U"), "triangle to read", "L")}


@pure("_npi_eigh", [arg("A")], _UPLO, outputs=("output0", "output1"), onnx=_NO_EIGEN)
@_in_single
def eigh(a: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return eigenvalues, ascending, and eigenvectors of symmetric matrices.

    Shape:
        A: (..., N, N), of which one triangle is read.
        returns: (..., N), and (..., N, N) with a vector in each column.

    Source: MXNet 1.9.1 `_npi_eigh`.
    """
    values, vectors = torch.linalg.eigh(_symmetric(x, a.UPLO == "L"))
    return values, vectors


@pure("_npi_eigvalsh", [arg("A")], _UPLO, onnx=_NO_EIGEN)
@_in_single
def eigvalsh(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the eigenvalues of symmetric matrices, ascending.

    Shape:
        A: (..., N, N), of which one triangle is read.
        returns: (..., N).

    Source: MXNet 1.9.1 `_npi_eigvalsh`.
    """
    found: torch.Tensor = torch.linalg.eigvalsh(_symmetric(x, a.UPLO == "L"))
    return found


@pure("_npi_eig", [arg("A")], outputs=("output0", "output1"), onnx=_NO_EIGEN)
@_in_single
def eig(a: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return eigenvalues and eigenvectors of matrices whose eigenvalues are real; the gradient is 0.

    Shape:
        A: (..., N, N).
        returns: (..., N), and (..., N, N) with a vector in each column.

    Source: MXNet 1.9.1 `_npi_eig`.
    """
    values, vectors = torch.linalg.eig(x.detach())
    return values.real.contiguous(), vectors.real.contiguous()


@pure("_npi_eigvals", [arg("A")], onnx=_NO_EIGEN)
@_in_single
def eigvals(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the eigenvalues of matrices, which must be real; the gradient is 0.

    Shape:
        A: (..., N, N).
        returns: (..., N).

    Source: MXNet 1.9.1 `_npi_eigvals`.
    """
    found: torch.Tensor = torch.linalg.eig(x.detach())[0].real.contiguous()  # `eigvals` crashes on NaN
    return found


@pure("_npi_det", [arg("A")], outputs=("output0",), hidden=2, onnx=Onnx("Det"))
@_in_single
def det(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the determinants of matrices.

    Shape:
        A: (..., N, N).
        returns: (...); a scalar for one matrix.

    Source: MXNet 1.9.1 `_npi_det`, which graphs store as `_linalg_det`.
    """
    found: torch.Tensor = torch.linalg.det(x)
    return found


@pure(
    "_npi_slogdet",
    [arg("A")],
    outputs=("output0", "output1"),
    hidden=2,
    onnx=Onnx("Det", builder="np_slogdet"),
)
@_in_single
def slogdet(a: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the signs of the determinants of matrices, and the logarithms of their magnitudes.

    Shape:
        A: (..., N, N).
        returns: two arrays (...); scalars for one matrix.

    Source: MXNet 1.9.1 `_npi_slogdet`, which graphs store as `_linalg_slogdet`.
    """
    sign, logarithm = torch.linalg.slogdet(x)
    return sign, logarithm


@pure(
    "_npi_tensorinv",
    [arg("a")],
    {"ind": Attr(integer(low=1), "number of first axes that the matrix has as rows", 2)},
    onnx=_NO_SOLVER,
)
@_in_single
def tensorinv(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the inverse with respect to `tensordot`.

    Shape:
        a: any shape whose first `ind` lengths have the product of the others.
        returns: the other axes, then the first `ind`.

    Source: MXNet 1.9.1 `_npi_tensorinv`.
    """
    found: torch.Tensor = torch.linalg.tensorinv(x, a.ind)
    return found


@pure(
    "_npi_tensorsolve",
    [arg("a"), arg("b")],
    {"a_axes": Attr(optional(shape), "axes of `a` to move to the end first", ())},
    batch=NEVER,
    onnx=_NO_SOLVER,
)
@_in_single
def tensorsolve(a: Any, x: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Solve a linear system with respect to `tensordot`.

    Shape:
        a: the shape of `b`, then that of the result, with equal products.
        b: any shape.
        returns: the last axes of `a`.

    Source: MXNet 1.9.1 `_npi_tensorsolve`.
    """
    found: torch.Tensor = torch.linalg.tensorsolve(x, right, a.a_axes or None)
    return found


@pure(
    "_npi_pinv",
    [arg("A"), arg("rcond")],
    {"hermitian": Attr(boolean, "the matrices are symmetric", False)},
    onnx=Onnx(missing="ONNX has no singular values"),
)
@_in_single
def pinv(a: Any, x: torch.Tensor, rcond: torch.Tensor) -> torch.Tensor:
    """Return the pseudo-inverses of matrices.

    Shape:
        A: (..., M, N).
        rcond: (...) or (), singular values below this part of the largest count as 0.
        returns: (..., N, M).

    Source: MXNet 1.9.1 `_npi_pinv`.
    """
    found: torch.Tensor = torch.linalg.pinv(x, rtol=rcond.detach(), hermitian=a.hermitian)
    return found


@pure(
    "_npi_pinv_scalar_rcond",
    [arg("A")],
    {
        "rcond": Attr(real, "singular values below this part of the largest count as 0", 1e-15),
        "hermitian": Attr(boolean, "the matrices are symmetric", False),
    },
    onnx=Onnx(missing="ONNX has no singular values"),
)
@_in_single
def pinv_scalar_rcond(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the pseudo-inverses of matrices.

    Shape:
        A: (..., M, N).
        returns: (..., N, M).

    Source: MXNet 1.9.1 `_npi_pinv_scalar_rcond`.
    """
    found: torch.Tensor = torch.linalg.pinv(x, rtol=a.rcond, hermitian=a.hermitian)
    return found


@pure(
    "_npi_qr", [arg("A")], outputs=("output0", "output1"), onnx=Onnx(missing="ONNX has no QR decomposition")
)
@_in_single
def qr(a: Any, x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return the QR decomposition of matrices.

    Shape:
        A: (..., M, N).
        returns: (..., M, K) and (..., K, N), K the smaller of M and N.

    Source: MXNet 2.0 `_npi_qr`.
    """
    q, r = torch.linalg.qr(x)
    return q, r


@pure(
    "_npi_matrix_rank_none_tol",
    [arg("M")],
    {
        "finfoEps32": Attr(real, "rounding error of float32", 1.1920929e-07),
        "finfoEps64": Attr(real, "rounding error of float64", 2.220446049250313e-16),
        "hermitian": Attr(boolean, "the matrices are symmetric", False),
    },
    infer_type=types_by(lambda a, data: "int64"),
    onnx=Onnx(missing="ONNX has no singular values"),
)
@_in_single
def matrix_rank_none_tol(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the ranks of matrices.

    Shape:
        M: (..., N, K).
        returns: (...), int64.

    Source: MXNet 2.0 `_npi_matrix_rank_none_tol`.
    """
    found: torch.Tensor = torch.linalg.matrix_rank(x, hermitian=a.hermitian)
    return found


@pure(
    "_npi_matrix_rank",
    [arg("M"), arg("tol")],
    {"hermitian": Attr(boolean, "the matrices are symmetric", False)},
    infer_type=types_by(lambda a, *types: "int64"),
    onnx=Onnx(missing="ONNX has no singular values"),
)
@_in_single
def matrix_rank(a: Any, x: torch.Tensor, tol: torch.Tensor) -> torch.Tensor:
    """Return the ranks of matrices.

    Shape:
        M: (..., N, K).
        tol: (...) or (), singular values up to this count as 0.
        returns: (...), int64.

    Source: MXNet 2.0 `_npi_matrix_rank`.
    """
    values: torch.Tensor = torch.linalg.eigvalsh(x).abs() if a.hermitian else torch.linalg.svdvals(x)
    return (values > tol.unsqueeze(-1)).sum(-1)


def _lstsq_shapes(a: Any, left: tuple[int, ...], right: tuple[int, ...]) -> list[tuple[int, ...]]:
    rows, columns = left
    has_residuals = rows > columns and len(right) == 2 and right[1] > 0 or rows > columns and len(right) == 1
    count = (right[1] if len(right) == 2 else 1) if has_residuals else 0
    return [(columns, *right[1:]), (count,), (), (min(rows, columns),)]


def _lstsq_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    known = next((t for t in ins if t is not None), None)
    return [t or known for t in ins], [known, known, "int32", known]


@pure(
    "_npi_lstsq",
    [arg("A"), arg("B")],
    {
        "rcond": Attr(
            real,
            "singular values below this part of the largest count as 0; -1 means the rounding error",
            -1.0,
        ),
        "finfoEps32": Attr(real, "rounding error of float32", 0.0),
        "finfoEps64": Attr(real, "rounding error of float64", 0.0),
        "new_default": Attr(boolean, "use the rounding error times the larger length as `rcond`", False),
    },
    outputs=("output0", "output1", "output2", "output3"),
    infer=forward(_lstsq_shapes),
    infer_type=_lstsq_types,
    batch=NEVER,
    onnx=_NO_SOLVER,
)
@_in_single
def lstsq(a: Any, x: torch.Tensor, right: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the least-squares solutions of a linear system.

    Shape:
        A: (M, N).
        B: (M, K), or (M,).
        returns: the solutions (N, K) or (N,); sums of squared residuals (K,) if M > N and the rank is N, else zeros or
            no element; the rank (), int32; the singular values (the smaller of M and N,).

    Source: MXNet 2.0 `_npi_lstsq`.
    """
    error = torch.finfo(x.dtype).eps
    limit = error * max(x.shape) if a.new_default else error if a.rcond < 0 else a.rcond
    columns = right.reshape(right.shape[0], -1)
    values: torch.Tensor = torch.linalg.svdvals(x)
    solution = torch.linalg.pinv(x, rtol=limit) @ columns
    rank = (values > limit * values.max()).sum().to(torch.int32)
    residuals = torch.square(x @ solution - columns).sum(0)
    if x.shape[0] <= x.shape[1]:
        residuals = residuals[:0]
    return solution.reshape(x.shape[1], *right.shape[1:]), residuals, rank, values


@pure("_npi_polyval", [arg("p"), arg("x")], infer_type=promoted, onnx=Onnx("Add", builder="np_polyval"))
def polyval(a: Any, p: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
    """Evaluate a polynomial by Horner's rule.

    Shape:
        p: (N,), coefficients from the highest power.
        x: any shape.
        returns: the shape of `x`.

    Source: MXNet 1.9.1 `_npi_polyval`.
    """
    p, x = to_common(p, x)
    total = torch.zeros_like(x)
    for coefficient in p.unbind():
        total = total * x + coefficient
    return in_type_of(x, total)
