"""Key-value stores, which sum gradients over devices and processes and copy updates back."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .._core import lazy
from ..base import ArgumentError, DeviceError, DTypeError
from ..context import num_gpus
from .base import KVStoreBase, TestStore

if TYPE_CHECKING:
    from .dist import DistKVStore
    from .local import KVStore
    from .transfer import Compression

__all__ = ["Compression", "DistKVStore", "KVStore", "KVStoreBase", "TestStore", "base", "create", "is_local"]

_KINDS = {
    "local": False,
    "local_update_cpu": False,
    "local_allreduce_cpu": False,
    "local_allreduce_device": True,
    "device": True,
    "nccl": True,
}
"""Kinds of stores in one process; True if they sum on the devices."""


DIST = ("dist", "dist_sync", "dist_sync_device", "dist_device_sync", "dist_async")
"""Kinds of stores of several processes."""

_OPTIONS = ("timeout_s", "average_every", "bucket_mb")


def is_local(name: str) -> bool:
    """Return True if a name is that of a store in one process, which a single device does not need.

    Args:
        name: such as ``"local"`` or ``"dist_sync"``.
    """
    return name.lower() in _KINDS


def create(name: str = "local", **options: Any) -> KVStoreBase:
    """Make a store by name, in any case.

    Args:
        name: "local", also "local_update_cpu" or "local_allreduce_cpu", to sum gradients and update parameters on the
            CPU; "device", also "local_allreduce_device", to do so on the devices; "nccl" for the same on GPUs only;
            "dist_sync", "dist_device_sync", "dist_async" for several processes, see `DistKVStore`; or the name of a
            class registered with `KVStoreBase.register`.
        **options: arguments of `DistKVStore`: `timeout_s`, `average_every`, `bucket_mb`.

    Raises:
        ArgumentError: there is no such store, or it does not accept an option.
        DeviceError: "nccl" without a GPU.
        DTypeError: `name` is not a string.
    """
    if not isinstance(name, str):
        raise DTypeError(f"kvstore is {name!r}, expected a name: {', '.join(_KINDS)}")
    kind = name.lower()
    wrong = [option for option in options if option not in _OPTIONS or not kind.startswith("dist")]
    if wrong:
        raise ArgumentError(
            f"kvstore {name!r} does not accept {', '.join(wrong)}; {', '.join(_OPTIONS)} are options of dist_sync, "
            "dist_device_sync and dist_async"
        )
    if kind in KVStoreBase.kv_registry:
        return KVStoreBase.kv_registry[kind]()
    if kind == "nccl" and not num_gpus():
        raise DeviceError("kvstore 'nccl' needs a GPU, and torch has none here; use 'device' or 'local'")
    if kind in _KINDS:
        from .local import KVStore

        return KVStore(kind, _KINDS[kind])
    if kind in DIST:
        from .dist import DistKVStore

        return DistKVStore(kind, **options)
    names = ", ".join((*_KINDS, *DIST, *KVStoreBase.kv_registry))
    raise ArgumentError(f"kvstore {name!r} is not available; expected one of {names}")


__getattr__, __dir__ = lazy.attributes(
    __name__,
    __all__,
    {
        "dist": "DistKVStore",
        "local": "KVStore",
        "heartbeat": "",
        "ranks": "",
        "transfer": "Compression",
    },
)
