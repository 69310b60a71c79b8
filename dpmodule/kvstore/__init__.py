"""Key-value stores, which sum gradients over devices and processes and copy updates back."""

from __future__ import annotations

import os
import warnings
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, cast

from .._core import lazy
from ..base import ArgumentError, DeviceError, DTypeError
from ..context import num_gpus
from .base import KVStoreBase, TestStore

if TYPE_CHECKING:
    from ..ndarray import NDArray
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

_LARGE = 16 * 2**20
"""Number of elements from which the "local" store leaves updates to the devices."""

_OPTIONS = ("timeout_s", "average_every", "bucket_mb")


def is_local(name: str) -> bool:
    """Return True if a name is that of a store in one process, which a single device does not need.

    Args:
        name: such as ``"local"`` or ``"dist_sync"``.
    """
    return name.lower() in _KINDS


def create(name: str = "local", **options: Any) -> KVStore:
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
        return cast("KVStore", KVStoreBase.kv_registry[kind]())
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


def create_kvstore(
    kvstore: str | KVStoreBase | None, num_device: int, arg_params: Mapping[str, NDArray]
) -> tuple[KVStoreBase | None, bool]:
    """Return the store, None if a single device needs none, and True if the optimizer runs inside it.

    It does not if the environment sets ``MXNET_UPDATE_ON_KVSTORE=0``, nor if "local" would update a parameter of
    more than 16 Mi elements on the CPU.

    Args:
        kvstore: a name, a store or None.
        arg_params: the parameters by name.
    """
    store: KVStoreBase | None = None
    on_store = os.environ.get("MXNET_UPDATE_ON_KVSTORE", "1") != "0"
    if isinstance(kvstore, str):
        if num_device > 1 or not is_local(kvstore):
            try:
                store = create(kvstore)
            except ArgumentError as error:
                if num_device > 1 or "dist" in kvstore.lower():
                    raise
                warnings.warn(
                    f"{error}. One device needs no store, so {kvstore!r} is ignored; the optimizer's name is the "
                    "argument after it",
                    stacklevel=7,
                )
        if kvstore == "local":
            on_store = on_store and max((w.size for w in arg_params.values()), default=0) <= _LARGE
    elif isinstance(kvstore, KVStoreBase):
        store = kvstore
    elif kvstore is not None:
        raise ArgumentError(f"kvstore is {kvstore!r}, expected a name, a store or None")
    return store, store is not None and on_store and store.is_capable(KVStoreBase.OPTIMIZER)


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
