"""Adding up the arrays that several devices push under one key."""

from __future__ import annotations

from collections.abc import Sequence

from ..base import ArgumentError
from ..context import Context
from ..ndarray import NDArray
from ..ndarray.row_sparse import RowSparseNDArray, sum_rows


def total(arrays: Sequence[NDArray], ctx: Context) -> NDArray:
    """Return the sum of arrays of one shape and type, in the order in which they are given.

    Args:
        arrays: at least one; row-sparse ones give a row-sparse sum, a mixture a dense one.
        ctx: where to add up. A single dense array that is there already is returned as it is.
    """
    if set(map(type, arrays)) != {NDArray}:
        kinds = {array.stype for array in arrays}
        if kinds == {"row_sparse"}:
            return sum_rows([array for array in arrays if isinstance(array, RowSparseNDArray)], ctx)
        if not kinds <= {"default", "row_sparse"}:
            found = ", ".join(sorted(kinds))
            raise ArgumentError(f"kvstore: cannot add up {found} arrays; use tostype('default')")
    device = ctx.torch_device
    if len(arrays) == 1:
        return NDArray(arrays[0].raw.to(device), ctx)
    summed = arrays[0].raw.to(device) + arrays[1].raw.to(device)
    for array in arrays[2:]:
        summed += array.raw.to(device)
    return NDArray(summed, ctx)
