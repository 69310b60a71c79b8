"""`GradientSum`: gradients of several batches on their way to one update."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..context import Context
from ..ndarray import NDArray
from ..ndarray.sparse_base import BaseSparseNDArray

Grads = Sequence[Sequence[NDArray | None]]


class GradientSum:
    """Adds up gradients of batches by the name of their parameter, on every device.

    The buckets of a network share one: what a bucket lacks waits for the next update of one that has it.

    Attributes:
        sums: what waits, by the name of the parameter and the number of the device.
    """

    def __init__(self) -> None:
        self.sums: dict[tuple[str, int], NDArray] = {}

    def keep(self, names: Sequence[str], grads: Grads) -> None:
        """Add the gradients of a batch.

        Args:
            grads: for each its gradient on every device; they are read, and may be written by the next batch.

        Shape:
            grads[i][k]: that of the parameter.
        """
        for name, row in zip(names, grads, strict=True):
            for k, grad in enumerate(row):
                if grad is None:
                    continue
                if (name, k) in self.sums:
                    self.sums[name, k] += grad
                else:
                    self.sums[name, k] = grad.copy()

    def give(self, names: Sequence[str], grads: Grads) -> None:
        """Add what has been kept to the gradients of the last batch, and forget it.

        Shape:
            grads[i][k]: that of the parameter.
        """
        for name, row in zip(names, grads, strict=True):
            for k, grad in enumerate(row):
                known = self.sums.pop((name, k), None)
                if known is not None and grad is not None:
                    grad += known  # in place

    def state_dict(self) -> dict[str, list[Any]]:
        """Return the sums by the name of their parameter, with the numbers of their devices."""
        return {f"{name}@{k}": [name, k, array] for (name, k), array in self.sums.items()}

    def load_state_dict(self, state: Mapping[str, list[Any]], contexts: Sequence[Context]) -> None:
        """Go on from what `state_dict` returned, on devices."""
        self.sums = {(name, k): array.as_in_context(contexts[k]).copy() for name, k, array in state.values()}


def squared_norm(grads: Grads) -> float:
    """Return the sum of the squares of gradients, each of them summed over devices first.

    Shape:
        grads[i][k]: that of the parameter.
    """
    by_device: dict[torch.device, list[torch.Tensor]] = {}
    for row in grads:
        known = [grad for grad in row if grad is not None]
        if not known:
            continue
        whole = known[0]
        for other in known[1:]:
            whole = whole + other.as_in_context(whole.context)
        stored = whole.data if isinstance(whole, BaseSparseNDArray) else whole
        by_device.setdefault(stored.raw.device, []).append(stored.raw.detach())
    norms = (torch._foreach_norm(each, 2, torch.float32) for each in by_device.values())
    return sum(float(torch.stack(list(each)).double().square().sum()) for each in norms)
