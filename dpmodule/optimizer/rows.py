"""Gradients of some rows only: lazy updates of those rows, and dense gradients for rules that need all."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..ndarray import NDArray
from ..ndarray.row_sparse import RowSparseNDArray
from .group import Group, is_fusable

__all__ = ["RowUpdate", "densified", "written_back"]

Tensor = torch.Tensor


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
    """The rows of one parameter and of its states that a gradient is about, gathered into a group.

    Args:
        index: key of the parameter.
        weight: the parameter.
        slots: its states, each with one entry per row.
        grad: a gradient of some rows.
    """

    def __init__(self, index: Any, weight: NDArray, slots: Iterable[NDArray], grad: RowSparseNDArray) -> None:
        self._rows, values = grad.parts()
        self._sources = [weight.raw, *(slot.raw for slot in slots)]
        target, *kept = [source.index_select(0, self._rows) for source in self._sources]
        self.group = Group(
            [target], [kept], fused=is_fusable(target, kept), keys=[index], context=weight.context
        )
        self.grads = self.group.prepare([values])

    def finish(self) -> None:
        """Write the rows back."""
        picked = [self.group.weights[0], *(slot[0] for slot in self.group.states)]
        for source, rows in zip(self._sources, picked):
            source.index_copy_(0, self._rows, rows)
