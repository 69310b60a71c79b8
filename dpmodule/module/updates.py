"""How gradients on several devices become new parameters: through a store, or device by device."""

from __future__ import annotations

from typing import Any

from .. import kvstore as kv
from .. import optimizer as opt
from ..ndarray import NDArray
from .executor_group import DataParallelExecutorGroup

__all__ = ["Updates"]


class Updates:
    """Applies an optimizer to the parameters of an executor group.

    Args:
        group: whose parameters.
        store: sums gradients over devices; None = every device for itself.
        updater: applies the optimizer outside the store; None = the store does it.

    Source: MXNet 1.9.1 `model._update_params` and `_update_params_on_kvstore`, including the numbering of states:
    parameter i on device k of n has the index ``i * n + k``.
    """

    def __init__(
        self, group: DataParallelExecutorGroup, store: kv.KVStoreBase | None, updater: opt.Updater | None
    ) -> None:
        self.group = group
        self.store = store
        self.updater = updater
        used = [name for name in group.arg_names if name in group.param_names]
        rows = [
            (i, name, weights, grads)
            for i, (name, weights, grads) in enumerate(zip(used, group.param_arrays, group.grad_arrays or ()))
            if grads[0] is not None
        ]
        self.names = [name for _, name, _, _ in rows]
        self._weights: list[list[NDArray]] = [weights for _, _, weights, _ in rows]
        self._grads: list[list[Any]] = [grads for _, _, _, grads in rows]
        devices = len(group.contexts)
        self._by_device = [
            ([i * devices + k for i, _, _, _ in rows], [g[k] for g in self._grads], [w[k] for w in self._weights])
            for k in range(devices)
        ]

    def start(self) -> None:
        """Put the parameters into the store."""
        if self.store is None:
            return
        for name, weights in zip(self.names, self._weights):
            self.store.broadcast(name, weights[0], weights)

    def apply(self) -> None:
        """Update every parameter."""
        if self.store is not None:
            active = self.group.feed.active
            used = [[row[i] for i in active] for row in self._grads]
            if self.updater is None:
                self.store.pushpull(self.names, used, self._weights)
                return
            self.store.pushpull(self.names, used, self._grads)
        if self.updater is not None:
            for indices, grads, weights in self._by_device:
                self.updater.update_all(indices, grads, weights)
