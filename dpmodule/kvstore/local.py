"""`KVStore`: the store within one process, for any number of devices."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch

from .. import private
from ..atomic import write_atomically
from ..base import ArgumentError, ShapeError, StateError
from ..context import cpu
from ..ndarray import NDArray
from ..optimizer import Optimizer, Updater, get_updater
from .base import KVStoreBase

__all__ = ["KVStore"]


def _pairs(key: Any, value: Any) -> list[tuple[Any, list[NDArray]]]:
    """Return (key, arrays of all devices) for one key or a list of them.

    Raises:
        ArgumentError: keys and values differ in number, or a value is no NDArray.
    """
    keys = list(key) if isinstance(key, (list, tuple)) else [key]
    values = list(value) if isinstance(key, (list, tuple)) else [value]
    if len(keys) != len(values):
        raise ArgumentError(f"kvstore: got {len(keys)} keys and {len(values)} values")
    pairs = []
    for one, arrays in zip(keys, values):
        group = list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
        if not group or not all(isinstance(a, NDArray) for a in group):
            raise ArgumentError(f"kvstore: the value of key {one!r} is {arrays!r}, expected NDArrays")
        pairs.append((one, group))
    return pairs


class KVStore(KVStoreBase):
    """Sums over devices, applies an optimizer if one is set, and copies back.

    Args:
        kind: "local" keeps stored arrays on the CPU; "device" keeps them where the first value lay.

    Source: MXNet 1.9.1 `KVStore`.
    """

    def __init__(self, kind: str = "local") -> None:
        self._kind = kind
        self._stored: dict[Any, NDArray] = {}
        self._updater: Callable[[Any, NDArray, NDArray], None] | None = None

    @property
    def type(self) -> str:
        """Name of the kind of store."""
        return self._kind

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Say whether the store has a capability; it can run optimizers."""
        return capability == KVStoreBase.OPTIMIZER

    def init(self, key: Any, value: Any) -> None:
        """Store a copy of `value` (its first device's) under a new key.

        Raises:
            ArgumentError: the key exists.
        """
        for one, arrays in _pairs(key, value):
            if one in self._stored:
                raise ArgumentError(f"kvstore: key {one!r} exists already")
            ctx = cpu() if self._kind == "local" else arrays[0].context
            self._stored[one] = arrays[0].copyto(ctx)

    def _get(self, key: Any) -> NDArray:
        if key not in self._stored:
            raise ArgumentError(f"kvstore: unknown key {key!r}; call init first")
        return self._stored[key]

    def _sums(self, pairs: Sequence[tuple[Any, list[NDArray]]]) -> list[NDArray]:
        """Sum every key's arrays over devices, where the stored array lies."""
        sums = []
        for key, arrays in pairs:
            stored = self._get(key)
            for array in arrays:
                if array.shape != stored.shape:
                    raise ShapeError(f"kvstore: key {key!r} has shape {stored.shape}, got {array.shape}")
            device = stored.context.torch_device
            total = arrays[0].tensor.to(device)
            if len(arrays) > 1:
                total = total + arrays[1].tensor.to(device)
                for array in arrays[2:]:
                    total += array.tensor.to(device)
            sums.append(NDArray(total, stored.context))
        return sums

    def push(self, key: Any, value: Any, priority: int = 0) -> None:
        """Sum values over devices; hand the sum to the optimizer or updater, or store it.

        Args:
            key: a key or a list of them.
            value: an NDArray, a list of one per device, or a list of those for a list of keys.
            priority: accepted as in MXNet; calls run in order here.
        """
        pairs = _pairs(key, value)
        with torch.no_grad():
            sums = self._sums(pairs)
            stored = [self._stored[one] for one, _ in pairs]
            if isinstance(self._updater, Updater):
                self._updater.update_all([one for one, _ in pairs], sums, stored)
            elif self._updater is not None:
                for (one, _), total, kept in zip(pairs, sums, stored):
                    self._updater(one, total, kept)
            else:
                for total, kept in zip(sums, stored):
                    kept.tensor.copy_(total.tensor)

    def pull(self, key: Any, out: Any = None, priority: int = 0, ignore_sparse: bool = True) -> None:
        """Copy stored values to all devices of `out`.

        Args:
            key: a key or a list of them.
            out: an NDArray, a list of one per device, or a list of those for a list of keys.
            priority: accepted as in MXNet.
            ignore_sparse: accepted as in MXNet.
        """
        if out is None:
            raise ArgumentError("kvstore.pull: out is missing; give the arrays to write to")
        sources, targets = [], []
        for one, arrays in _pairs(key, out):
            stored = self._get(one)
            for array in arrays:
                sources.append(stored.tensor)
                targets.append(array.tensor)
        with torch.no_grad():
            private.foreach_copy(targets, sources)

    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Push, then pull into `out` (into `value` without one)."""
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority)

    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Store `value` under a new key and copy it to `out`."""
        self.init(key, value)
        self.pull(key, out, priority)

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Apply an optimizer to what is pushed from now on."""
        self._updater = get_updater(optimizer)

    def _set_updater(self, updater: Callable[[Any, NDArray, NDArray], None]) -> None:
        """Call ``updater(key, pushed, stored)`` on every push (MXNet's name of this hook)."""
        self._updater = updater

    @property
    def updater(self) -> Any:
        """The updater in use, None without one."""
        return self._updater

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file, atomically.

        Raises:
            StateError: no optimizer is set.
        """
        write_atomically(fname, self._optimizer_updater("save").get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file.

        Raises:
            StateError: no optimizer is set.
            FileFormatError: the file is damaged or foreign.
        """
        with open(fname, "rb") as file:
            self._optimizer_updater("load").set_states(file.read())

    def _optimizer_updater(self, what: str) -> Updater:
        if not isinstance(self._updater, Updater):
            raise StateError(f"kvstore: cannot {what} optimizer states; call set_optimizer first")
        return self._updater

    def barrier(self) -> None:
        """Wait for all workers; there is one."""
