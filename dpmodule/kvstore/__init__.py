"""Key-value stores: how gradients of several devices are summed and updates copied back."""

from __future__ import annotations

from ..base import ArgumentError
from .base import KVStoreBase as KVStoreBase
from .local import KVStore as KVStore

__all__ = ["KVStore", "KVStoreBase", "create"]

_KINDS = ("local", "device")


def create(name: str = "local") -> KVStoreBase:
    """Make a store by name.

    Args:
        name: "local" (stored arrays on the CPU), "device" (on the devices), or the name of a registered class.

    Raises:
        ArgumentError: there is no such store.
    """
    if not isinstance(name, str):
        raise ArgumentError(f"kvstore is {name!r}, expected a name: {', '.join(_KINDS)}")
    if name.lower() in KVStoreBase.kv_registry:
        return KVStoreBase.kv_registry[name.lower()]()
    if name in _KINDS:
        return KVStore(name)
    raise ArgumentError(
        f"kvstore {name!r} is not available; expected one of {', '.join((*_KINDS, *KVStoreBase.kv_registry))}"
    )
