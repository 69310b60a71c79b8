"""Gradients of some rows only: lazy updates of those rows, and dense gradients for rules that need all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import repeat
from operator import attrgetter
from typing import TYPE_CHECKING

import torch

from .. import native
from ..ndarray import NDArray
from ..ndarray.row_sparse import RowSparseNDArray
from ..ops.exposure import written
from .group import Group, is_fusable

if TYPE_CHECKING:
    from .counts import Key

Tensor = torch.Tensor
_RAW = attrgetter("raw")


@contextmanager
def written_back(weight: NDArray) -> Iterator[NDArray]:
    """Give a dense array in place of a parameter; what is written to it ends up in the parameter.

    Args:
        weight: the parameter. Of a row-sparse one that stores all its rows, the array is these rows themselves.
    """
    if weight.stype == "default":
        yield weight
        return
    if isinstance(weight, RowSparseNDArray):
        rows, values = weight.parts()
        if rows.numel() == weight.shape[0]:
            yield NDArray(values, weight.context)
            return
    dense = NDArray(weight.raw.clone(), weight.context)
    yield dense
    weight.overwrite(dense.raw)


def densified(grad: NDArray) -> NDArray:
    """Return a gradient with zeros in place of what it does not store; a dense one as it is."""
    return grad if grad.stype == "default" else NDArray(grad.raw, grad.context)


class RowUpdate:
    """The rows of one parameter and of its states that a gradient is about, gathered into a group."""

    def __init__(self, index: Key, weight: NDArray, slots: Iterable[NDArray], grad: RowSparseNDArray) -> None:
        self._rows, values = grad.parts()
        self._sources = [weight.raw, *(slot.raw for slot in slots)]
        self._before = [source.index_select(0, self._rows) for source in self._sources]
        target, *kept = [rows.clone() for rows in self._before]
        self.group = Group(
            [target], [kept], fused=is_fusable(target, kept), keys=[index], context=weight.context
        )
        self.grads = self.group.prepare([values])

    def finish(self) -> None:
        """Add to the rows what has changed; another process may have updated them meanwhile."""
        after = [self.group.weights[0], *(slot[0] for slot in self.group.states)]
        for source, old, new in zip(self._sources, self._before, after, strict=True):
            source.index_add_(0, self._rows, new.sub_(old))


def fits_native(weight: NDArray, slots: Sequence[NDArray], grad: RowSparseNDArray) -> bool:
    """Say whether native code can update a parameter in place: float32 numbers on the CPU, one after the other."""
    target = weight.raw
    shape = target.shape
    return (
        native.core is not None
        and all(map(_is_plain, (target, *map(_RAW, slots)), repeat(shape)))
        and _is_plain(grad.values, (len(grad.values), *shape[1:]))
        and grad.shape == shape
    )


def update_in_place(
    rule: Mapping[str, float | str],
    weight: NDArray,
    slots: Sequence[NDArray],
    grad: RowSparseNDArray,
    all_rows: bool,
) -> None:
    """Update rows natively, each number read, changed and written back at once.

    Args:
        all_rows: update the other rows, too, as if their gradient were 0.
    """
    core, target = native.core, weight.raw
    if core is None or not target.numel():
        return
    rows, values = grad.parts()
    rows = rows.contiguous()
    table = len(target), target.numel() // len(target)
    changes = rows.data_ptr(), len(rows), values.data_ptr()
    tensors = [target, *map(_RAW, slots)]
    where, *states = map(Tensor.data_ptr, tensors)
    core.update_rows(rule, where, *table, *changes, all_rows, *states)
    written(tensors)


def _is_plain(tensor: Tensor, shape: Sequence[int]) -> bool:
    return (
        tensor.dtype is torch.float32
        and tensor.is_cpu
        and tensor.is_contiguous()
        and tensor.shape == torch.Size(shape)
    )
