"""What operators do with sparse arrays without filling in the zeros; all others work on dense copies.

The rules are keyed by operator name and entered in `plan.sparse_rules`.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .plan import SparseRule, sparse_rules
from .row_sparse import RowSparseNDArray, rows_of, sum_rows
from .sparse_base import BaseSparseNDArray

__all__: list[str] = []

Run = Callable[..., torch.Tensor]

_NAMES = """
abs arcsin arcsinh arctan arctanh cbrt ceil clip degrees expm1 fix floor log1p negative radians relu rint round
sign sin sinh sqrt square tan tanh trunc
_plus_scalar _minus_scalar _rminus_scalar _mul_scalar _div_scalar
_equal_scalar _not_equal_scalar _greater_scalar _greater_equal_scalar _lesser_scalar _lesser_equal_scalar
"""
_ELEMENTWISE = tuple(_NAMES.split())
"""Operators of one array that work on each element, and may leave a zero zero."""


def _each_stored(arrays: Sequence[Any], run: Run) -> Any:
    """Work on the stored elements alone if the operator leaves a zero zero."""
    (array,) = arrays
    if bool(run(array.values.new_zeros(1)).ne(0)):
        return None
    return array.replaced(run(array.values))


def _are_rows(arrays: Sequence[Any]) -> bool:
    """Say whether all arrays are row-sparse, of one shape, type and device."""
    first = arrays[0]
    return all(
        isinstance(a, RowSparseNDArray)
        and a.shape == first.shape
        and a.values.dtype == first.values.dtype
        and a.values.device == first.values.device
        for a in arrays
    )


def _sum(arrays: Sequence[Any], run: Run) -> Any:
    return sum_rows(arrays) if _are_rows(arrays) else None


def _difference(arrays: Sequence[Any], run: Run) -> Any:
    if not _are_rows(arrays):
        return None
    left, right = arrays
    return sum_rows([left, right.replaced(-right.values)])


def _product(arrays: Sequence[Any], run: Run) -> Any:
    """Multiply in the rows that the left array stores, by a row-sparse or dense array."""
    left, right = arrays
    if not isinstance(left, RowSparseNDArray) or left.shape != right.shape or right.stype == "csr":
        return None
    rows, values = left.parts()
    other = rows_of(right, rows)
    return left.replaced(run(values, other)) if other.dtype == values.dtype else None


def _zeros(arrays: Sequence[Any], run: Run) -> Any:
    (array,) = arrays
    return type(array).zeros(array.shape, array.context, array.values.dtype)


def _retain(arrays: Sequence[Any], run: Run) -> Any:
    data, indices = arrays
    return data.retain(indices) if isinstance(data, RowSparseNDArray) else None


def _same(arrays: Sequence[Any], run: Run) -> BaseSparseNDArray:
    copied: BaseSparseNDArray = arrays[0].copy()
    return copied


_PAIRS: dict[str, SparseRule] = {
    "add_n": _sum,
    "elemwise_add": _sum,
    "broadcast_add": _sum,
    "elemwise_sub": _difference,
    "broadcast_sub": _difference,
    "elemwise_mul": _product,
    "broadcast_mul": _product,
    "zeros_like": _zeros,
    "_sparse_retain": _retain,
    "_copy": _same,
    "BlockGrad": _same,
}

sparse_rules.update(dict.fromkeys(_ELEMENTWISE, _each_stored))
sparse_rules.update(_PAIRS)
