"""The interface of key-value stores, through which gradients of several devices become one update."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from ..base import ArgumentError

__all__ = ["KVStoreBase"]


class KVStoreBase(ABC):
    """A store of arrays by key.

    Subclass it and register the class with `KVStoreBase.register` to use a store of one's own.
    """

    OPTIMIZER = "optimizer"
    """Name of the capability to apply an optimizer inside the store."""

    kv_registry: dict[str, type[KVStoreBase]] = {}

    @staticmethod
    def register(klass: type[KVStoreBase]) -> type[KVStoreBase]:
        """Register a class under its lower-case name; use as a decorator."""
        if not (isinstance(klass, type) and issubclass(klass, KVStoreBase)):
            raise ArgumentError(f"register: {klass!r} is no subclass of KVStoreBase")
        KVStoreBase.kv_registry[klass.__name__.lower()] = klass
        return klass

    @abstractmethod
    def broadcast(self, key: Any, value: Any, out: Any, priority: int = 0) -> None:
        """Store `value` under `key` and copy it to `out`."""

    @abstractmethod
    def pushpull(self, key: Any, value: Any, out: Any = None, priority: int = 0) -> None:
        """Sum `value` over devices and write the result to `out` (to `value` without one)."""

    @abstractmethod
    def set_optimizer(self, optimizer: Any) -> None:
        """Apply an optimizer to what is pushed from now on."""

    @staticmethod
    def is_capable(capability: str) -> bool:
        """Say whether the store has a capability, such as `OPTIMIZER`."""
        return False

    @property
    @abstractmethod
    def type(self) -> str:
        """Name of the kind of store."""

    @property
    def rank(self) -> int:
        """Number of this worker."""
        return 0

    @property
    def num_workers(self) -> int:
        """Number of workers."""
        return 1
