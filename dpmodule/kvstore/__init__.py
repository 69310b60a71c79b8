"""Key-value stores: how gradients of several devices are summed and updates copied back."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import later
from ..base import ArgumentError, DeviceError, DTypeError
from ..context import num_gpus
from .base import KVStoreBase
from .teststore import TestStore

if TYPE_CHECKING:
    from .compress import Compression
    from .local import KVStore

__all__ = ["Compression", "KVStore", "KVStoreBase", "TestStore", "base", "create", "is_local"]

_KINDS = {
    "local": False,
    "local_update_cpu": False,
    "local_allreduce_cpu": False,
    "local_allreduce_device": True,
    "device": True,
    "nccl": True,
}
"""Kinds of stores in one process, and whether they add up on the devices."""


def is_local(name: str) -> bool:
    """Say whether a name stands for a store in one process, which a single device does not need."""
    return name.lower() in _KINDS


def create(name: str = "local") -> KVStoreBase:
    """Make a store by name, in any case.

    Args:
        name: "local", also "local_update_cpu" or "local_allreduce_cpu": gradients are added up and parameters
            updated on the CPU; "device", also "local_allreduce_device": on the devices; "nccl": the same, on GPUs
            only; or the name of a class that `KVStoreBase.register` knows.

    Raises:
        ArgumentError: there is no such store, or it is for several machines, which is not built yet.
        DeviceError: "nccl" without a GPU.
        DTypeError: `name` is no string.
    """
    if not isinstance(name, str):
        raise DTypeError(f"kvstore is {name!r}, expected a name: {', '.join(_KINDS)}")
    kind = name.lower()
    if kind in KVStoreBase.kv_registry:
        return KVStoreBase.kv_registry[kind]()
    if kind == "nccl" and not num_gpus():
        raise DeviceError("kvstore 'nccl' needs a GPU, and torch sees none here; use 'device' or 'local'")
    if kind in _KINDS:
        from .local import KVStore

        return KVStore(kind, _KINDS[kind])
    if kind.startswith("dist"):
        raise ArgumentError(
            f"kvstore {name!r} is not available: training on several machines is not built yet; "
            "use 'local' or 'device' on one"
        )
    names = ", ".join((*_KINDS, *KVStoreBase.kv_registry))
    raise ArgumentError(f"kvstore {name!r} is not available; expected one of {names}")


__getattr__, __dir__ = later.attributes(
    __name__, __all__, {"compress": "Compression", "keys": "", "local": "KVStore", "reduce": ""}
)
