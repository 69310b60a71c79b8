"""`KVStore`: the store within one process, for any number of devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ..base import ArgumentError, ShapeError, StateError
from ..compat import torch_private
from ..context import Context, cpu
from ..devices.device_transfer import fetched, send
from ..files import write_atomically
from ..ndarray import NDArray
from ..ndarray.row_sparse import RowSparseNDArray, sum_rows
from ..optimizer import Optimizer, Updater, get_updater
from .base import ArraysLike, Key, KeysError, KeysLike, KVStoreBase, grouped, paired
from .transfer import Compression


def _fetched(groups: list[list[NDArray]], places: Sequence[Context]) -> list[list[NDArray]]:
    """Return arrays of which those that are to be added up on the host are there, having waited for each GPU once."""
    far = [
        array
        for arrays, place in zip(groups, places)
        if place.torch_device.type == "cpu"
        for array in arrays
        if type(array) is NDArray and not array.raw.is_cpu
    ]
    if not far:
        return groups
    here = {
        id(array): NDArray(tensor, cpu()) for array, tensor in zip(far, fetched([array.raw for array in far]))
    }
    return [[here.get(id(array), array) for array in arrays] for arrays in groups]


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy tensors; nobody waits for a GPU that gets some from the host."""
    if any(source.is_cpu and not target.is_cpu for target, source in zip(targets, sources)):
        for target, source in zip(targets, sources):
            send(target, source)
    else:
        torch_private.foreach_copy(targets, sources)


def _dims(array: NDArray) -> Sequence[int]:
    """Return an array's shape, without making a tuple of it where that is not needed."""
    return array.raw.shape if type(array) is NDArray else array.shape


def _all_rows(array: NDArray) -> torch.Tensor:
    """Return all elements; of a row-sparse array that stores every row, these rows themselves."""
    return array.stored.dense() if isinstance(array, RowSparseNDArray) else array.raw


class KVStore(KVStoreBase):
    """BucketReducer over devices, applies an optimizer if one is set, and copies back.

    Keys are strings or integers, in one store all of one kind. A value is an NDArray or a list with one for each
    device; lists of keys take lists of values. Calls are carried out in order; `priority` is accepted as in MXNet.

    Args:
        kind: its name; see `create`.
        on_devices: add up where the first array lies instead of on the CPU.

    Example:
        >>> store = mx.kv.create("local")
        >>> store.init("weight", mx.nd.zeros((2,)))
        >>> store.push("weight", [mx.nd.ones((2,)), mx.nd.ones((2,))])
        >>> out = mx.nd.empty((2,))
        >>> store.pull("weight", out)
        >>> out.asnumpy()
        array([2., 2.], dtype=float32)

    Source: MXNet 1.9.1 `KVStore`. A push of another shape than was stored is refused here.
    """

    takes_lists = True

    def __init__(self, kind: str = "local", on_devices: bool = False) -> None:
        self._kind = kind
        self._on_devices = on_devices
        self._stored: dict[Key, NDArray] = {}
        self._updater: Callable[[Any, NDArray, NDArray], None] | None = None
        self._compression: Compression | None = None

    @property
    def type(self) -> str:
        return self._kind

    @staticmethod
    def is_capable(capability: str) -> bool:
        KVStoreBase.is_capable(capability)
        return True

    # values

    def init(self, key: KeysLike, value: ArraysLike) -> None:
        """Store a copy of a value under a new key.

        Args:
            key: a key, or a list of them.
            value: an NDArray of any storage type, or a list of them.

        Raises:
            ArgumentError: the key exists, or has more than one value.
            KeysError: the key is of another kind than those stored.
        """
        found: dict[Key, NDArray] = {}
        for one, arrays in paired(key, value):
            self._check_kind(one)
            if one in self._stored or one in found or len(arrays) > 1:
                raise ArgumentError(
                    f"kvstore: key {one!r} exists already, or has several values; init and broadcast take a new key "
                    "with one value"
                )
            found[one] = arrays[0].copyto(arrays[0].context if self._on_devices else cpu())
        self._stored.update(found)

    def share(self, key: Any, value: Any) -> None:
        """Keep values in the memory of arrays that equal them, so that pulling them there copies nothing.

        Only what lies where the store keeps it, and is no sparse array, is shared. What is written into the arrays is
        written into the store from now on.

        Args:
            key: a key, or a list of them.
            value: an NDArray, or a list of them.

        Raises:
            ArgumentError: a key is unknown.
        """
        for one, arrays in paired(key, value):
            kept, array = self._get(one), arrays[0]
            if kept.stype == array.stype == "default" and kept.context == array.context:
                self._stored[one] = array

    def _check_kind(self, key: Key) -> None:
        known = next(iter(self._stored), key)
        if isinstance(known, str) is not isinstance(key, str):
            raise KeysError(
                f"kvstore: key {key!r} is a {type(key).__name__}, but others are like {known!r}; use one kind"
            )

    def _get(self, key: Key) -> NDArray:
        found = self._stored.get(key)
        if found is None:
            self._check_kind(key)
            raise ArgumentError(f"kvstore: unknown key {key!r}; call init first")
        return found

    def _sums(self, groups: dict[Key, list[NDArray]]) -> list[NDArray]:
        """Add up every key's arrays over devices."""
        for key, arrays in groups.items():
            wanted = _dims(self._get(key))
            for array in arrays:
                if _dims(array) != wanted:
                    raise ShapeError(f"kvstore: key {key!r} has shape {tuple(wanted)}, got {array.shape}")
        compression = self._compression
        if compression is not None:
            groups = {key: compression.compressed(key, arrays) for key, arrays in groups.items()}
        places = [self._place(key, arrays) for key, arrays in groups.items()]
        return [
            total(arrays, place) for arrays, place in zip(_fetched(list(groups.values()), places), places)
        ]

    def _place(self, key: Key, arrays: Sequence[NDArray]) -> Context:
        """Return where a key's arrays are added up; a stored value on the CPU follows them to a GPU."""
        stored = self._stored[key]
        if not self._on_devices or arrays[0].raw.device == stored.context.torch_device:
            return stored.context
        where = arrays[0].context
        if stored.context.torch_device.type == "cpu":
            self._stored[key] = stored.as_in_context(where)
            return where
        return stored.context

    def replace(self, key: KeysLike, value: ArraysLike) -> None:
        """Store other values under known keys, past the optimizer.

        Args:
            key: a key, or a list of them.
            value: an NDArray, or a list of them.

        Raises:
            ArgumentError: a key is unknown.
            KeysError: keys and values differ in number, or a key is of another kind.
        """
        for one, arrays in paired(key, value):
            self._get(one)
            self._replace(one, arrays[0])

    def push(self, key: KeysLike, value: ArraysLike, priority: int = 0) -> None:
        """Sum values over devices; hand the sum to the optimizer or updater, or store it in place of the old value.

        Args:
            key: a key, or a list of them.
            value: an NDArray, dense or row-sparse, a list of one per device, or a list of those for a list of keys.
            priority: accepted as in MXNet.

        Raises:
            ArgumentError: a key is unknown, or values are CSR arrays.
            ShapeError: a value has not the stored value's shape.
            KeysError: keys and values differ in number, or a key is of another kind.
        """
        groups = grouped(key, value)
        with torch.no_grad():
            sums = self._sums(groups)
            if not sums:
                return
            if self._updater is None:
                for one, summed in zip(groups, sums, strict=True):
                    self._replace(one, summed)
                return
            stored = [self._stored[one] for one in groups]
            if isinstance(self._updater, Updater):
                self._updater.update_all(list(groups), sums, stored)
                return
            for one, summed, kept in zip(groups, sums, stored, strict=True):
                self._updater(one, summed, kept)

    def _replace(self, key: Key, value: NDArray) -> None:
        """Store a copy of a value, which may be of another storage type than the old one."""
        kept = self._stored[key]
        if kept is value:
            return
        if kept.stype == value.stype:
            value.copyto(kept)
        else:
            self._stored[key] = value.astype(kept.dtype).as_in_context(kept.context)

    def pull(
        self, key: KeysLike, out: ArraysLike | None = None, priority: int = 0, ignore_sparse: bool = True
    ) -> None:
        """Copy stored values to all devices of `out`.

        Args:
            key: a key, or a list of them.
            out: an NDArray, a list of one per device, or a list of those for a list of keys.
            priority: accepted as in MXNet.
            ignore_sparse: leave sparse arrays among `out` as they are; `row_sparse_pull` fills those.

        Raises:
            ArgumentError: a key is unknown, or `out` is missing.
            ShapeError: an array of `out` has not the stored value's shape.
            KeysError: keys and values differ in number, or a key is of another kind.
        """
        if out is None:
            raise KeysError("kvstore.pull: out is missing; give the arrays to write to")
        sources, targets = [], []
        for one, arrays in paired(key, out):
            stored = self._get(one)
            dense, wanted = _all_rows(stored), _dims(stored)
            for array in arrays:
                if array is stored:
                    continue
                is_sparse = type(array) is not NDArray and array.stype != "default"
                if is_sparse and ignore_sparse:
                    continue
                if _dims(array) != wanted:
                    raise ShapeError(f"kvstore: key {one!r} has shape {stored.shape}, out has {array.shape}")
                if is_sparse:
                    array[:] = stored
                else:
                    sources.append(dense)
                    targets.append(array.raw)
        if targets:
            with torch.no_grad():
                _copy(targets, sources)

    def row_sparse_pull(
        self,
        key: KeysLike,
        out: ArraysLike | None = None,
        priority: int = 0,
        row_ids: ArraysLike | None = None,
    ) -> None:
        """Copy some rows of stored row-sparse values to row-sparse arrays, which then store just these.

        Dense arrays, as which `Module` keeps row-sparse parameters on the devices, get these rows and keep the others.

        Args:
            key: a key, or a list of them.
            out: as in `pull`; row-sparse or dense.
            priority: accepted as in MXNet.
            row_ids: row numbers in any order and shape: an NDArray for all of `out`, or NDArrays in lists like `out`.

        Raises:
            ArgumentError: the stored value is not row-sparse, `out` is CSR, or row_ids do not match `out`.
            BoundsError: there is no such row.
            KeysError: keys and values differ in number, or a key is of another kind.
            ShapeError: an array of `out` has not the stored value's shape.
        """
        if out is None or row_ids is None:
            raise KeysError("kvstore.row_sparse_pull: give out and row_ids")
        single = isinstance(row_ids, NDArray) or (len(row_ids) == 1 and not isinstance(key, (list, tuple)))
        targets = paired(key, out)
        if single:
            ids = row_ids if isinstance(row_ids, NDArray) else row_ids[0]
            numbers: list[list[Any]] = [[ids] * len(arrays) for _, arrays in targets]
        else:
            numbers = [list(given) for _, given in paired(key, row_ids)]
        for (one, arrays), rows in zip(targets, numbers, strict=True):
            stored = self._get(one)
            if len(arrays) != len(rows):
                raise KeysError(f"kvstore: key {one!r} has {len(arrays)} arrays, but {len(rows)} row_ids")
            if not isinstance(stored, RowSparseNDArray):
                raise ArgumentError(
                    f"kvstore: key {one!r} is stored as {stored.stype}, expected row_sparse; use pull"
                )
            for array, ids in zip(arrays, rows, strict=True):
                if array.stype == "csr":
                    raise ArgumentError(f"kvstore: out of key {one!r} is {array.stype}, expected row_sparse")
                if array.shape != stored.shape:
                    raise ShapeError(
                        f"kvstore: key {one!r} has shape {stored.shape}, out has {array.shape}, expected the same"
                    )
                kept = stored.retain(ids)
                if array.stype == "default":
                    picked, values = kept.parts()
                    memory = array.raw
                    memory.index_copy_(0, picked.to(memory.device), values.to(memory))
                else:
                    array[:] = kept

    def pushpull(
        self, key: KeysLike, value: ArraysLike, out: ArraysLike | None = None, priority: int = 0
    ) -> None:
        self.push(key, value, priority)
        self.pull(key, value if out is None else out, priority, ignore_sparse=False)

    def broadcast(self, key: KeysLike, value: ArraysLike, out: ArraysLike, priority: int = 0) -> None:
        self.init(key, value)
        self.pull(key, out, priority)

    # updates

    def set_optimizer(self, optimizer: Optimizer) -> None:
        self._updater = get_updater(optimizer)

    def _set_updater(self, updater: Callable[[Any, NDArray, NDArray], None]) -> None:
        """Call ``updater(key, pushed, stored)`` on every push (MXNet's name of this hook)."""
        self._updater = updater

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        if "device" not in self._kind:
            raise ArgumentError(
                f"gradient compression is not supported by kvstore {self._kind!r}; use 'device'"
            )
        self._compression = Compression(compression_params)

    @property
    def compression(self) -> Compression | None:
        """How gradients are compressed; None if they are not."""
        return self._compression

    @property
    def updater(self) -> Any:
        """The updater in use, None without one."""
        return self._updater

    def save_optimizer_states(self, fname: str, dump_optimizer: bool = False) -> None:
        write_atomically(fname, self._optimizer_updater("save").get_states(dump_optimizer))

    def load_optimizer_states(self, fname: str) -> None:
        self._optimizer_updater("load").load_states(fname)

    def _optimizer_updater(self, what: str) -> Updater:
        if not isinstance(self._updater, Updater):
            raise StateError(f"kvstore: cannot {what} optimizer states; call set_optimizer first")
        return self._updater

    def barrier(self) -> None:
        """Wait for all workers; there is one."""

    _barrier = barrier  # MXNet's name of it


def total(arrays: Sequence[NDArray], ctx: Context) -> NDArray:
    """Return the sum of arrays of one shape and type, in the order in which they are given.

    Args:
        arrays: at least one; row-sparse ones give a row-sparse sum, a mixture a dense one.
        ctx: where to add up. A single dense array that is there already is returned as it is.
    """
    if set(map(type, arrays)) != {NDArray}:
        kinds = {array.stype for array in arrays}
        if kinds == {"row_sparse"}:
            return sum_rows([array for array in arrays if isinstance(array, RowSparseNDArray)], ctx)
        if not kinds <= {"default", "row_sparse"}:
            found = ", ".join(sorted(kinds))
            raise ArgumentError(f"kvstore: cannot add up {found} arrays; use tostype('default')")
    device = ctx.torch_device
    if len(arrays) == 1:
        return NDArray(arrays[0].raw.to(device), ctx)
    summed = arrays[0].raw.to(device) + arrays[1].raw.to(device)
    for array in arrays[2:]:
        summed += array.raw.to(device)
    return NDArray(summed, ctx)
