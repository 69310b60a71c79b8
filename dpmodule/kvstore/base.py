"""The interface of key-value stores, through which gradients of several devices become one update."""

from __future__ import annotations

import warnings
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ..base import ArgumentError
from ..compat import lazy

if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..optimizer import Optimizer
    from .keys import ArraysLike, KeysLike

__all__ = ["KVStoreBase"]

lazy.publish(__name__, __all__)

StoreT = TypeVar("StoreT", bound="type[KVStoreBase]")


class KVStoreBase:
    """A store of arrays by key, shared by the devices and workers that train together.

    A store of one's own is a subclass, registered with `KVStoreBase.register`; it gives at least `broadcast` and
    `pushpull`. What a subclass leaves out raises `NotImplementedError`.

    Attributes:
        takes_lists: whether keys may come in lists, with lists of values; if not, `Module` calls key by key.

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
            ArgumentError: it is no subclass of `KVStoreBase`.
        """
        if not (isinstance(klass, type) and issubclass(klass, KVStoreBase)):
            raise ArgumentError(f"register: {klass!r} is no subclass of KVStoreBase")
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
            priority: calls with a higher one may be carried out earlier.
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
            priority: calls with a higher one may be carried out earlier.
        """
        raise NotImplementedError(f"{type(self).__name__} has no pushpull")

    def set_optimizer(self, optimizer: Optimizer) -> None:
        """Apply an optimizer to what is pushed from now on.

        Args:
            optimizer: applied to each key with states of its own.
        """
        raise NotImplementedError(f"{type(self).__name__} runs no optimizer")

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        """Compress what is sent between devices or workers from now on.

        Args:
            compression_params: ``type`` and what belongs to it, such as ``{"type": "2bit", "threshold":
                0.5}``.
        """
        raise NotImplementedError(f"{type(self).__name__} compresses no gradients")

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        """Write the optimizer's states to a file.

        Args:
            dump_optimizer: add the optimizer itself, with its rates and counts.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no optimizer states")

    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file.

        Args:
            fname: path of what `save_optimizer_states` wrote.
        """
        raise NotImplementedError(f"{type(self).__name__} keeps no optimizer states")

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Say whether the store has a capability, such as `OPTIMIZER`.

        Args:
            capability: `KVStoreBase.OPTIMIZER`, which is the only one.

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
