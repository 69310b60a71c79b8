"""The interface of key-value stores, which combine the gradients of several devices."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar

import numpy as np
import torch.distributed as dist

from .._core import lazy
from ..base import ArgumentError
from ..ndarray import NDArray

if TYPE_CHECKING:
    from ..optimizer import Optimizer

__all__ = ["KVStoreBase", "TestStore"]

lazy.publish(__name__, __all__)

StoreT = TypeVar("StoreT", bound="type[KVStoreBase]")


def has_other_processes() -> bool:
    """Return True if this process may train together with others: torchrun has started it, or it has a group."""
    is_grouped = dist.is_available() and dist.is_initialized()
    return is_grouped or os.environ.get("WORLD_SIZE", "1") != "1"


class KVStoreBase:
    """A store of arrays by key, shared by the devices and workers that train together.

    A user-defined store is a subclass, registered with `KVStoreBase.register`, with at least `broadcast` and
    `pushpull`. Methods that it does not define raise `NotImplementedError`.

    Attributes:
        takes_lists: True if methods accept lists of keys and values; otherwise `Module` calls them key by key.

    Example:
        >>> @mx.kv.KVStoreBase.register
        ... class Repeater(mx.kv.KVStoreBase):
        ...     def broadcast(self, key, value, out, priority=0):
        ...         for array in out:
        ...             array[:] = value
        >>> mx.kv.create("repeater").type
        'repeater'

    Source: MXNet 1.9.1 `KVStoreBase`.
    """

    OPTIMIZER = "optimizer"
    """Name of the capability to apply an optimizer inside the store."""

    kv_registry: ClassVar[dict[str, type[KVStoreBase]]] = {}
    """Registered classes by lower-case name."""

    takes_lists: ClassVar[bool] = False

    @staticmethod
    def register(klass: StoreT) -> StoreT:
        """Register a class under its lower-case name; use as a decorator.

        Args:
            klass: a subclass of `KVStoreBase`.

        Raises:
            ArgumentError: `klass` is not a subclass of `KVStoreBase`.
        """
        if not (isinstance(klass, type) and issubclass(klass, KVStoreBase)):
            raise ArgumentError(f"register: {klass!r} is not a subclass of KVStoreBase")
        name = klass.__name__.lower()
        before = KVStoreBase.kv_registry.get(name)
        if before is not None:
            warnings.warn(
                f"kvstore {klass.__module__}.{klass.__name__} replaces {before.__module__}.{before.__name__}",
                stacklevel=2,
            )
        KVStoreBase.kv_registry[name] = klass
        return klass

    def broadcast(self, key: KeysLike, value: ArraysLike, out: ArraysLike, priority: int = 0) -> None:
        """Store the value of worker 0 under a new key and copy it to `out` everywhere.

        Args:
            key: a string or integer.
            out: an NDArray, or a list with one for each device.
            priority: calls with a higher priority may run earlier.
        """
        raise NotImplementedError(f"{type(self).__name__} has no broadcast")

    def pushpull(
        self, key: KeysLike, value: ArraysLike, out: ArraysLike | None = None, priority: int = 0
    ) -> None:
        """Sum `value` over devices and workers and copy the result to `out`.

        Args:
            key: a string or integer.
            value: an NDArray, or a list with one for each device.
            out: like `value`; None writes to `value` itself.
            priority: calls with a higher priority may run earlier.
        """
        raise NotImplementedError(f"{type(self).__name__} has no pushpull")

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Apply an optimizer to all later pushes.

        Args:
            optimizer: applied to each key, with separate states.
        """
        raise NotImplementedError(f"{type(self).__name__} does not run an optimizer")

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Compress all later transfers between devices or workers.

        Args:
            compression_params: ``type`` and its settings, such as ``{"type": "2bit", "threshold": 0.5}``.
        """
        raise NotImplementedError(f"{type(self).__name__} does not compress gradients")

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file.

        Args:
            dump_optimizer: also write the optimizer, with its rates and counts.
        """
        raise NotImplementedError(f"{type(self).__name__} has no optimizer states")

    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file.

        Args:
            fname: path of a file that `save_optimizer_states` wrote.
        """
        raise NotImplementedError(f"{type(self).__name__} has no optimizer states")

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Return True if the store has a capability.

        Args:
            capability: `KVStoreBase.OPTIMIZER`, the only capability.

        Raises:
            ArgumentError: there is no such capability.
        """
        if capability.lower() != KVStoreBase.OPTIMIZER:
            raise ArgumentError(f"unknown capability {capability!r}; expected {KVStoreBase.OPTIMIZER!r}")
        return False

    @property
    def type(self) -> str:
        """Name of the kind of store."""
        return self.__class__.__name__.lower()

    @property
    def rank(self) -> int:
        """Number of this worker, from 0."""
        return 0

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return 1


# arguments: keys, and for each key the arrays of all devices

Key = int | str

KeyLike: TypeAlias = "int | str | np.integer[Any]"
"""Key of a value."""

KeysLike: TypeAlias = "KeyLike | Sequence[KeyLike]"
"""A key, or a list of them."""

ArraysLike: TypeAlias = "NDArray | Sequence[NDArray] | Sequence[NDArray | Sequence[NDArray]]"
"""For one key an array, or a list of arrays, one per device; for a list of keys, a list of these."""


class KeysError(ArgumentError, AssertionError):
    """Keys of the wrong type or number; an AssertionError, too, as in MXNet."""


def _checked(key: object) -> Key:
    if isinstance(key, str):
        return key
    if isinstance(key, (int, np.integer)):
        return int(key)
    raise KeysError(f"kvstore: key {key!r} is a {type(key).__name__}, expected a string or an integer")


def paired(key: KeysLike, value: ArraysLike) -> list[tuple[Key, list[NDArray]]]:
    """Return each key with its arrays.

    Args:
        key: a string, an integer, or a list of either.
        value: for one key an NDArray or a list with one per device; for a list of keys, a list of these.
    """
    if not isinstance(key, (list, tuple)):
        return [(_checked(key), _arrays(key, value))]
    if not isinstance(value, (list, tuple)) or len(key) != len(value):
        count = len(value) if isinstance(value, (list, tuple)) else f"a {type(value).__name__}, not a list,"
        raise KeysError(f"kvstore: got {len(key)} keys and {count} values")
    pairs = [(_checked(item), _arrays(item, arrays)) for item, arrays in zip(key, value)]
    if {str} != set(map(type, key)) and len({isinstance(item, str) for item, _ in pairs}) > 1:
        raise KeysError(f"kvstore: keys {list(key)!r} mix strings and integers; use one type")
    return pairs


def _arrays(key: object, value: ArraysLike) -> list[NDArray]:
    arrays: list[Any] = list(value) if isinstance(value, (list, tuple)) else [value]
    for array in arrays:
        if not isinstance(array, NDArray):
            raise ArgumentError(
                f"kvstore: the value of key {key!r} is a {type(array).__name__}, expected NDArrays"
            )
    if not arrays:
        raise ArgumentError(f"kvstore: key {key!r} has an empty list of values, expected NDArrays")
    return arrays


def grouped(key: KeysLike, value: ArraysLike) -> dict[Key, list[NDArray]]:
    """Return the arrays of each key, merged for repeated keys; see `paired`."""
    pairs = paired(key, value)
    groups = dict(pairs)
    if len(groups) == len(pairs):
        return groups
    groups = {}
    for item, arrays in pairs:
        groups.setdefault(item, []).extend(arrays)
    return groups


def _listed(arrays: ArraysLike) -> list[NDArray]:
    listed: list[Any] = list(arrays) if isinstance(arrays, (list, tuple)) else [arrays]
    return listed


@KVStoreBase.register
class TestStore(KVStoreBase):
    """A store that sums over devices and stores nothing; made by ``mx.kv.create("teststore")``.

    Source: MXNet 1.9.1 `TestStore`.
    """

    __test__ = False  # not a test class of pytest

    def broadcast(self, key: KeysLike, value: ArraysLike, out: ArraysLike, priority: int = 0) -> None:
        for array in _listed(out):
            array[:] = value

    def pushpull(
        self, key: KeysLike, value: ArraysLike, out: ArraysLike | None = None, priority: int = 0
    ) -> None:
        first, *rest = _listed(value)
        summed = first.copy()
        for array in rest:
            summed += array.as_in_context(first.context)
        for array in _listed(value if out is None else out):
            array[:] = summed
