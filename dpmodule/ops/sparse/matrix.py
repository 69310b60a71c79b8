"""Products and sums of sparse matrices, and counting and lookup of their stored elements."""

from __future__ import annotations

from typing import Any

import torch

from ...base import DTypeError, Shape
from ..attrs import boolean, ints, optional
from ..math.pointwise import in_type_of, keep_type
from ..registry import get, op
from ..shapes import normal_axes, normal_axis, prod
from ..spec import Attr, Env, Onnx, Shapes, arg
from .dispatch import SparseRule, Stypes, add_rule, only, stored_as
from .gradients import row_gradient, stored_rows
from .storage import Csr, RowSparse, Sparse

Tensor = torch.Tensor


# products

_WIDE = (torch.float32, torch.float64)


def _product(matrix: Csr, columns: Tensor, width: int, dense: Tensor, flip: bool = False) -> Tensor:
    """Return the product of the matrix, or its transpose, and a dense matrix."""
    rows, values, height = matrix.row_numbers(), matrix.values, matrix.shape[0]
    coordinates, shape = ((columns, rows), (width, height)) if flip else ((rows, columns), (height, width))
    if values.dtype not in _WIDE or dense.dtype != values.dtype:
        terms = values[:, None] * dense.index_select(0, coordinates[1])
        return terms.new_zeros((shape[0], dense.shape[1])).index_add_(0, coordinates[0], terms)
    sparse = torch.sparse_coo_tensor(torch.stack(coordinates), values, shape, check_invariants=False)
    result: Tensor = torch.sparse.mm(sparse, dense)
    return result


def _flatten(dense: Tensor) -> Tensor:
    return dense if dense.dim() == 2 else dense.reshape(dense.shape[0], -1)


def _rows_to_multiply(matrix: Csr, right: Any) -> tuple[Tensor, Tensor, int]:
    """Return the dense rows that the product needs, the columns' positions among them, and their number."""
    if isinstance(right, RowSparse) and right.rows.numel() < right.shape[0]:
        rows, positions = matrix.distinct_columns()
        return _flatten(right.pick(rows)), positions, rows.numel()
    return _flatten(_dense(right)), matrix.columns, matrix.shape[1]


def _csr_dot(a: Any, left: Csr, right: Any) -> Any:
    """Multiply a CSR matrix, or its transpose, by a dense or row-sparse array."""
    if not a.transpose_a:
        dense, columns, width = _rows_to_multiply(left, right)
        return _product(left, columns, width, dense).reshape(left.shape[0], *right.shape[1:])
    dense = _flatten(_dense(right))
    shape = (left.shape[1], *right.shape[1:])
    if a.forward_stype == "default":
        return _product(left, left.columns, left.shape[1], dense, True).reshape(shape)
    rows, positions = left.distinct_columns()
    values = _product(left, positions, rows.numel(), dense, True)
    return RowSparse(rows, values.reshape(rows.numel(), *shape[1:]), shape)


def _dense_by_csr(a: Any, env: Env, left: Tensor, right: Csr) -> Any:
    turned = _product(right, right.columns, right.shape[1], left.t(), not a.transpose_b).t()
    return Csr.of_dense(turned)


def _stored_parts_storage(a: Any, stypes: Stypes) -> str | None:
    """Return the storage type of a product of stored parts; None if dense copies are multiplied."""
    left, right = stypes
    if left == "csr" and right in ("default", "row_sparse") and not a.transpose_b:
        return "row_sparse" if a.transpose_a and a.forward_stype != "default" else "default"
    by_csr = stypes == ("default", "csr") and not a.transpose_a and a.forward_stype in (None, "csr")
    return "csr" if by_csr else None


def _dot_storage(a: Any, stypes: Stypes) -> Stypes | None:
    stype = a.forward_stype or _stored_parts_storage(a, stypes)
    return (
        None
        if stype is None or (stype == "default" and _stored_parts_storage(a, stypes) is None)
        else (stype,)
    )


def _dot(a: Any, env: Env, left: Any, right: Any) -> Any:
    if left.dtype != right.dtype:
        raise DTypeError(f"dot: lhs is {left.dtype}, rhs {right.dtype}; convert with astype")
    own = _stored_parts_storage(a, tuple(getattr(value, "stype", "default") for value in (left, right)))
    if own is None:
        product = get("dot").run(a, env, _dense(left), _dense(right))
    elif isinstance(left, Csr):
        product = _csr_dot(a, left, right)
    else:
        product = _dense_by_csr(a, env, left, right)
    return stored_as(product, a.forward_stype) if a.forward_stype is not None else product


def _dot_grad(a: Any, env: Env, wanted: Any, grads: Any, left: Any, right: Any) -> Any:
    """Return row-sparse gradients of the factors of CSR matrices, and all others from dense copies."""
    grad = grads[0].to_dense() if grads[0].is_sparse else grads[0]
    gradients: list[Any] = [None, None]
    if isinstance(left, Csr) and not (a.transpose_a or a.transpose_b) and wanted[1]:
        rows, positions = left.distinct_columns()
        values = _product(left, positions, rows.numel(), _flatten(grad), True)
        gradients[1] = row_gradient(rows, values.reshape(rows.numel(), *right.shape[1:]), right.shape)
        wanted = (wanted[0], False)
    if any(wanted):
        leaves = [_dense(value).detach().requires_grad_(want) for value, want in zip((left, right), wanted)]
        with torch.enable_grad():
            out = get("dot").run(a, env, *leaves)
        rest = torch.autograd.grad(out, [leaf for leaf in leaves if leaf.requires_grad], grad)
        for at, one in zip((i for i in (0, 1) if wanted[i]), rest):
            gradients[at] = one
    return gradients


def _dense(value: Any) -> Tensor:
    tensor: Tensor = value.dense() if isinstance(value, Sparse) else value
    return tensor


def _dot_grad_storage(a: Any, stypes: Stypes) -> Stypes:
    by_rows = stypes[0] == "csr" and not (a.transpose_a or a.transpose_b) and a.forward_stype != "csr"
    return ("default", "row_sparse" if by_rows else "default")


add_rule("dot", SparseRule(_dot_storage, _dot, _dot_grad, _dot_grad_storage))


# sums


def _axes(a: Any, ndim: int) -> tuple[int, ...]:
    """Return the axes to sum over, ascending."""
    if not a.axis:
        return tuple(range(ndim))
    normalized = normal_axes(a.axis, ndim)
    return tuple(i for i in range(ndim) if i not in normalized) if a.exclude else normalized


def _reduced(shape: tuple[int, ...], axes: tuple[int, ...], keep: bool) -> tuple[int, ...]:
    if keep:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes) or (1,)


def _csr_sum(name: str) -> SparseRule:
    """Return the rule of sum or mean: along axes for a CSR matrix, of all elements for a row-sparse array."""

    def storage(a: Any, stypes: Stypes) -> Stypes | None:
        whole = stypes == ("row_sparse",) and not a.axis
        return ("default",) if stypes == ("csr",) or whole else None

    def run(a: Any, env: Env, data: Any) -> Tensor:
        axes = _axes(a, len(data.shape))
        values = data.values
        if len(axes) == len(data.shape):
            total = values.sum(dtype=values.dtype)
        elif not axes:
            total = data.dense()
        else:
            kept = data.row_numbers() if axes == (1,) else data.columns
            total = values.new_zeros(data.shape[1 - axes[0]]).index_add_(0, kept, values)
        result = total
        if name == "mean":
            count = prod([data.shape[axis] for axis in axes])
            result = in_type_of(values, total.double() / count)
        reduced: Tensor = result.reshape(_reduced(data.shape, axes, a.keepdims))
        return reduced

    return SparseRule(storage, run)


add_rule("sum", _csr_sum("sum"))
add_rule("mean", _csr_sum("mean"))


def _norm_storage(a: Any, stypes: Stypes) -> Stypes | None:
    return (
        ("default",) if stypes[0] != "default" and a.axis is None and a.ord == 2 and not a.keepdims else None
    )


def _norm(a: Any, env: Env, data: Sparse) -> Tensor:
    return keep_type(torch.linalg.vector_norm)(data.values).reshape(1)


add_rule("norm", SparseRule(_norm_storage, _norm))


def _count(a: Any, env: Env, data: Csr) -> Tensor:
    """Count stored elements, including stored zeros."""
    if a.axis is None:
        return torch.tensor([data.columns.numel()], device=data.device)
    if normal_axis(a.axis, 2) == 0:
        return data.columns.bincount(minlength=data.shape[1])
    return data.starts.diff()


add_rule("_contrib_getnnz", SparseRule(only("csr", to="default"), _count))


def _infer_sum(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if ins[0] is None:
        return ins, outs
    axes = _axes(a, len(ins[0]))
    return ins, [_reduced(ins[0], axes, a.keepdims)]


@op(
    "_square_sum",
    [arg("data")],
    {
        "axis": Attr(optional(ints), "axes to sum over; None = all", None),
        "keepdims": Attr(boolean, "keep these axes with length 1", False),
        "exclude": Attr(boolean, "sum over the other axes instead", False),
    },
    infer=_infer_sum,
    onnx=Onnx("ReduceSumSquare", builder="square_sum"),
)
def square_sum(a: Any, env: Env, data: Tensor) -> Tensor:
    """Sum the squares of the elements; reads only the stored rows of a row-sparse array.

    Shape:
        data: any shape.
        returns: the shape without the summed axes, or with length 1 there; (1,) if none is left.

    Source: MXNet 1.9.1 `_square_sum`, which only takes row-sparse matrices.
    """
    axes = _axes(a, data.dim())
    total = data.square().sum(axes, keepdim=a.keepdims) if axes else data.square()
    return total.reshape(total.shape or (1,))


def _square_sum_storage(a: Any, stypes: Stypes) -> Stypes | None:
    if stypes != ("row_sparse",) or a.exclude or a.axis not in ((0,), (1,), (-1,)):
        return None
    return ("row_sparse",) if a.keepdims and a.axis != (0,) else ("default",)


def _square_sum_rows(a: Any, env: Env, data: RowSparse) -> Any:
    squares = data.values.square()
    if a.axis == (0,):
        return squares.sum(0, keepdim=a.keepdims)
    if a.keepdims:
        return RowSparse(data.rows, squares.sum(1, keepdim=True), (data.shape[0], 1))
    return squares.new_zeros(data.shape[0]).index_copy_(0, data.rows, squares.sum(1))


def _square_sum_grad(a: Any, env: Env, wanted: Any, grads: Any, data: RowSparse) -> Any:
    grad = grads[0]
    if grad.is_sparse and a.axis != (0,):  # rows that are not stored have zero gradient
        rows, values = stored_rows(grad)
        return [RowSparse(rows, 2 * data.pick(rows) * values, data.shape)]
    grad = grad.to_dense() if grad.is_sparse else grad
    if a.axis != (0,):
        grad = grad.reshape(-1, 1).index_select(0, data.rows)
    return [data.replaced(2 * data.values * grad)]


add_rule(
    "_square_sum",
    SparseRule(
        _square_sum_storage,
        _square_sum_rows,
        _square_sum_grad,
        lambda a, s: s if _square_sum_storage(a, s) else ("default",),
    ),
)


def _edge_id(a: Any, env: Env, data: Csr, u: Tensor, v: Tensor) -> Tensor:
    """Return the elements at edges (u, v), or -1 if not stored; stored zeros count, since edge ids may be 0."""
    width = data.shape[1]
    rows = torch.repeat_interleave(data.starts.diff())
    keys, order = (rows * width + data.columns).sort()
    wanted = u.long() * width + v.long()
    missing = data.values.new_full(wanted.shape, -1)
    if not keys.numel():
        return missing
    near = torch.searchsorted(keys, wanted).clamp_(max=keys.numel() - 1)
    return torch.where(keys[near] == wanted, data.values[order[near]], missing)


def _edge_storage(a: Any, stypes: Stypes) -> Stypes | None:
    return ("default",) if stypes[0] == "csr" and set(stypes[1:]) <= {"default"} else None


add_rule("_contrib_edge_id", SparseRule(_edge_storage, _edge_id))
