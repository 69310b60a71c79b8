"""Linear algebra: linear maps, products, factors, inverses, linear systems and distances."""

from __future__ import annotations

import math
from typing import Any

from ..symbol import Symbol
from .builder import SymbolBuilder
from .reductions import root
from .table import translates, translates_as
from .value import Dims, NoCounterpart, TorchValue, broadcast_dims, dims_of, is_number


@translates("linear")
def _linear(b: SymbolBuilder, value: TorchValue, weight: TorchValue, bias: TorchValue | None = None) -> Any:
    rows = value if value.rank > 1 else b.reshape(value, (1, value.dims[-1]))
    units = weight.dims[0]
    options = {"num_hidden": units, "no_bias": bias is None, "flatten": rows.rank == 2}
    output = b.op("FullyConnected", *(v for v in (rows, weight, bias) if v is not None), **options)
    return b.reshape(b.value(output, (*rows.dims[:-1], units), value.dtype), dims_of(b.result))


@translates("bilinear")
def _bilinear(
    b: SymbolBuilder, left: TorchValue, right: TorchValue, weight: TorchValue, bias: TorchValue | None = None
) -> Any:
    units, inner, outer = weight.dims
    flat = b.reshape(b.transpose(weight, (0, 2, 1)), (units * outer, inner))
    options = {"num_hidden": units * outer, "no_bias": True, "flatten": left.rank == 2}
    mixed = b.value(
        b.op("FullyConnected", left, flat, **options), (*left.dims[:-1], units * outer), left.dtype
    )
    folded = b.reshape(mixed, (*left.dims[:-1], units, outer))
    other = b.reshape(right, (*right.dims[:-1], 1, outer))
    product = b.value(b.pair("mul", folded, other), folded.dims, folded.dtype)
    total = b.op("sum", product, axis=-1)
    return total if bias is None else b.op("broadcast_add", total, bias)


@translates("mm", "matmul", "bmm", "mv", "dot")
def matmul(b: SymbolBuilder, left: TorchValue, right: TorchValue) -> Any:
    """Multiply matrices or batches of matrices."""
    dims = dims_of(b.result)
    rows = left if left.rank > 1 else b.reshape(left, (1, *left.dims))
    columns = right if right.rank > 1 else b.reshape(right, (*right.dims, 1))
    lead = broadcast_dims(rows.dims[:-2], columns.dims[:-2])
    product = _product(b, rows, columns, lead)
    return b.reshape(b.value(product, (*lead, rows.dims[-2], columns.dims[-1]), left.dtype), dims)


def _product(b: SymbolBuilder, rows: TorchValue, columns: TorchValue, lead: Dims) -> Symbol:
    if not lead:
        return b.op("dot", rows, columns)
    units = columns.dims[-1]
    if columns.rank == 2 and is_number(units):
        turned = b.transpose(columns, (1, 0))
        return b.op("FullyConnected", rows, turned, num_hidden=units, no_bias=True, flatten=False)
    both = [b.expand(v, (*lead, *v.dims[-2:])) for v in (rows, columns)]
    return b.op("batch_dot" if len(lead) == 1 else "linalg_gemm2", *both)


@translates("addmm", "addbmm", "addmv", "baddbmm")
def _add_product(
    b: SymbolBuilder, base: TorchValue, left: TorchValue, right: TorchValue, beta: float = 1, alpha: float = 1
) -> Symbol:
    product = b.value(b.sym(matmul(b, left, right)), dims_of(b.result), b.result.dtype)
    if alpha != 1:
        product = b.value(b.with_number("mul", product, alpha), product.dims, product.dtype)
    if not beta:
        return b.sym(product)
    if beta != 1:
        base = b.value(b.with_number("mul", base, beta), base.dims, base.dtype)
    return b.pair("add", product, base)


def _flipped(b: SymbolBuilder, value: TorchValue) -> TorchValue:
    """Return matrices with rows and columns exchanged."""
    return b.transpose(value, [*range(value.rank - 2), value.rank - 1, value.rank - 2])


translates_as("linalg_inv", "_linalg_inverse")
translates_as("linalg_det", "_linalg_det")
translates_as("inverse", "_linalg_inverse")
translates_as("det", "_linalg_det")


translates("linalg_slogdet", "slogdet")(lambda b, value: list(b.op("_linalg_slogdet", value)))


@translates("logdet")
def _logdet(b: SymbolBuilder, value: TorchValue) -> Symbol:
    sign, logarithm = b.op("_linalg_slogdet", value)
    return b.op("elemwise_add", logarithm, b.op("log", sign))


@translates("linalg_cholesky", "cholesky")
def _cholesky(b: SymbolBuilder, value: TorchValue, upper: bool = False) -> TorchValue:
    lower = b.value(b.op("_linalg_potrf", value), value.dims, value.dtype)
    return _flipped(b, lower) if upper else lower


@translates("linalg_solve")
def _solve(b: SymbolBuilder, matrices: TorchValue, right: TorchValue, left: bool = True) -> TorchValue:
    is_vector = right.rank == 1 or (right.rank == matrices.rank - 1 and right.dims == matrices.dims[:-1])
    if is_vector:
        right = b.reshape(right, (*right.dims, 1))
    lead = broadcast_dims(matrices.dims[:-2], right.dims[:-2])
    inverse = b.value(b.op("_linalg_inverse", matrices), matrices.dims, matrices.dtype)
    inverse = b.expand(inverse, (*lead, *matrices.dims[-2:]))
    right = b.expand(right, (*lead, *right.dims[-2:]))
    pair = (inverse, right) if left or is_vector else (right, inverse)
    return b.reshape(b.value(b.op("_linalg_gemm2", *pair), right.dims, right.dtype), dims_of(b.result))


@translates("linalg_solve_triangular")
def _solve_triangular(
    b: SymbolBuilder,
    matrices: TorchValue,
    right: TorchValue,
    upper: bool,
    left: bool = True,
    unitriangular: bool = False,
) -> Symbol:
    if unitriangular:
        raise NoCounterpart("uses unit triangular matrices")
    return _by_triangle(b, matrices, right, upper, rightside=not left)


def _by_triangle(
    b: SymbolBuilder, matrices: TorchValue, right: TorchValue, upper: bool, **options: bool
) -> Symbol:
    lead = broadcast_dims(matrices.dims[:-2], right.dims[:-2])
    operands = [b.expand(value, (*lead, *value.dims[-2:])) for value in (matrices, right)]
    return b.op("_linalg_trsm", *operands, lower=not upper, **options)


@translates("cholesky_solve")
def _cholesky_solve(b: SymbolBuilder, right: TorchValue, factor: TorchValue, upper: bool = False) -> Symbol:
    half = b.value(_by_triangle(b, factor, right, upper, transpose=upper), dims_of(b.result), right.dtype)
    return _by_triangle(b, factor, half, upper, transpose=not upper)


@translates("cdist", "_cdist_forward")
def _cdist(
    b: SymbolBuilder, left: TorchValue, right: TorchValue, p: float = 2.0, compute_mode: Any = None
) -> Symbol:
    rows = b.reshape(left, (*left.dims[:-1], 1, left.dims[-1]))
    columns = b.reshape(right, (*right.dims[:-2], 1, *right.dims[-2:]))
    gaps = b.op("broadcast_sub", rows, columns) if left.rank == right.rank else None
    if gaps is None:
        raise NoCounterpart("measures distances between batches of a different number of axes")
    if p == 2:
        return root(b, b.op("sum", b.op("square", gaps), axis=-1))
    sizes = b.op("abs", gaps)
    if p == 1:
        return b.op("sum", sizes, axis=-1)
    if math.isinf(p):
        return b.op("max", sizes, axis=-1)
    if p < 1:
        raise NoCounterpart(f"measures distances with p={p}, below 1")
    total = b.op("sum", b.op("_power_scalar", sizes, scalar=float(p)), axis=-1)
    return root(b, total, 1 / p)
