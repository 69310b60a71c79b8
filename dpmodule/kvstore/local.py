"""`KVStore`: the store within one process, for any number of devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .._core import torch_private
from .._devices.device_transfer import send, to_host
from .._files import write_atomically
from ..base import ArgumentError, ShapeError, StateError
from ..context import Context, cpu
from ..ndarray import NDArray
from ..ndarray.row_sparse import RowSparseNDArray, sum_rows
from ..optimizer import Optimizer, Updater, get_updater
from .base import ArraysLike, Key, KeysError, KeysLike, KVStoreBase, grouped, paired
from .transfer import Compression


def _fetched(groups: list[list[NDArray]], contexts: Sequence[Context]) -> list[list[NDArray]]:
    """Return arrays after copying those that are summed on the host there, waiting for each GPU once."""
    remote = [
        array
        for arrays, context in zip(groups, contexts)
        if context.torch_device.type == "cpu"
        for array in arrays
        if type(array) is NDArray and not array.raw.is_cpu
    ]
    if not remote:
        return groups
    tensors = to_host([array.raw for array in remote])
    copies = {id(array): NDArray(tensor, cpu()) for array, tensor in zip(remote, tensors)}
    return [[copies.get(id(array), array) for array in arrays] for arrays in groups]


def _copy(targets: list[torch.Tensor], sources: list[torch.Tensor]) -> None:
    """Copy tensors without waiting for GPUs that receive data from the host."""
    if any(source.is_cpu and not target.is_cpu for target, source in zip(targets, sources)):
        for target, source in zip(targets, sources):
            send(target, source)
    else:
        torch_private.foreach_copy(targets, sources)


def _dims(array: NDArray) -> Sequence[int]:
    """Return an array's shape, avoiding the conversion to a tuple."""
    return array.raw.shape if type(array) is NDArray else array.shape


def _all_rows(array: NDArray) -> torch.Tensor:
    """Return all elements; for a row-sparse array that stores every row, without copying."""
    return array.stored.dense() if isinstance(array, RowSparseNDArray) else array.raw


class KVStore(KVStoreBase):
    """Sums over devices, applies an optimizer if one is set, and copies back.

    Keys of one store are either strings or integers. A value is an NDArray or a list with one per device; lists of keys
    take lists of values. Calls run in order; `priority` is accepted as in MXNet.

    Args:
        kind: name of the store; see `create`.
        on_devices: sum on the device of the first array instead of the CPU.

    Example:
        >>> store = mx.kv.create("local")
        >>> store.init("weight", mx.nd.zeros((2,)))
        >>> store.push("weight", [mx.nd.ones((2,)), mx.nd.ones((2,))])
        >>> out = mx.nd.empty((2,))
        >>> store.pull("weight", out)
        >>> out.asnumpy()
        array([2., 2.], dtype=float32)

    Source: MXNet 1.9.1 `KVStore`. Here, a push with another shape than the stored value is an error.
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
            KeysError: the type of the key differs from that of stored keys.
        """
        new: dict[Key, NDArray] = {}
        for item, arrays in paired(key, value):
            self._check_kind(item)
            if item in self._stored or item in new or len(arrays) > 1:
                raise ArgumentError(
                    f"kvstore: key {item!r} exists already, or has several values; init and broadcast expect a new key "
                    "with one value"
                )
            new[item] = self._copied(arrays[0])
        self._stored.update(new)

    def _copied(self, array: NDArray) -> NDArray:
        """Return a copy of an initial value on the device that keeps it."""
        copy: NDArray = array.copyto(array.context if self._on_devices else cpu())
        return copy

    def share(self, key: Any, value: Any) -> None:
        """Store values in the memory of arrays that equal them, so that pulling into these arrays copies nothing.

        Only dense arrays on the context of the stored value are shared. Writing to them then changes the store.

        Args:
            key: a key, or a list of them.
            value: an NDArray, or a list of them.

        Raises:
            ArgumentError: a key is unknown.
        """
        for item, arrays in paired(key, value):
            stored, array = self._get(item), arrays[0]
            if stored.stype == array.stype == "default" and stored.context == array.context:
                self._stored[item] = array

    def _check_kind(self, key: Key) -> None:
        known = next(iter(self._stored), key)
        if isinstance(known, str) is not isinstance(key, str):
            raise KeysError(
                f"kvstore: key {key!r} is a {type(key).__name__}, but others are like {known!r}; use one type"
            )

    def _get(self, key: Key) -> NDArray:
        stored = self._stored.get(key)
        if stored is None:
            self._check_kind(key)
            raise ArgumentError(f"kvstore: unknown key {key!r}; call init first")
        return stored

    def _sums(self, groups: dict[Key, list[NDArray]]) -> list[NDArray]:
        """Return the sum of every key's arrays over devices."""
        for key, arrays in groups.items():
            shape = self._shape_of(key)
            for array in arrays:
                if _dims(array) != shape:
                    raise ShapeError(f"kvstore: key {key!r} has shape {tuple(shape)}, got {array.shape}")
        compression = self._compression
        if compression is not None:
            groups = {key: compression.compressed(key, arrays) for key, arrays in groups.items()}
        contexts = [self._sum_context(key, arrays) for key, arrays in groups.items()]
        fetched_groups = _fetched(list(groups.values()), contexts)
        return [total(arrays, context) for arrays, context in zip(fetched_groups, contexts)]

    def _shape_of(self, key: Key) -> Sequence[int]:
        """Return the shape of a key's values."""
        return _dims(self._get(key))

    def _is_source(self, key: Key, array: NDArray) -> bool:
        """Return True if an array shows the value of a key, so that nothing is to be copied."""
        return array is self._stored[key]

    def _whole_value(self, key: Key) -> NDArray:
        """Return the whole value of a key."""
        return self._get(key)

    def _retained(self, key: Key, row_ids: Any) -> RowSparseNDArray:
        """Return some rows of a row-sparse value."""
        stored: Any = self._stored[key]
        return stored.retain(row_ids)  # type: ignore[no-any-return]

    def _sum_context(self, key: Key, arrays: Sequence[NDArray]) -> Context:
        """Return the context on which a key's arrays are summed; a stored value on the CPU follows them to a GPU."""
        stored = self._stored[key]
        if not self._on_devices or arrays[0].raw.device == stored.context.torch_device:
            return stored.context
        context = arrays[0].context
        if stored.context.torch_device.type == "cpu":
            self._stored[key] = stored.as_in_context(context)
            return context
        return stored.context

    def replace(self, key: KeysLike, value: ArraysLike) -> None:
        """Replace the values of known keys, bypassing the optimizer.

        Args:
            key: a key, or a list of them.
            value: an NDArray, or a list of them.

        Raises:
            ArgumentError: a key is unknown.
            KeysError: the numbers of keys and values differ, or a key has another type.
        """
        for item, arrays in paired(key, value):
            self._get(item)
            self._replace(item, arrays[0])

    def push(self, key: KeysLike, value: ArraysLike, priority: int = 0) -> None:
        """Sum values over devices; pass the sum to the optimizer or updater, or store it instead of the old value.

        Args:
            key: a key, or a list of them.
            value: an NDArray, dense or row-sparse, a list with one per device, or for a list of keys a list of these.
            priority: accepted as in MXNet.

        Raises:
            ArgumentError: a key is unknown, or values are CSR arrays.
            ShapeError: the shape of a value differs from that of the stored value.
            KeysError: the numbers of keys and values differ, or a key has another type.
        """
        groups = grouped(key, value)
        with torch.no_grad():
            sums = self._sums(groups)
            if not sums:
                return
            if self._updater is None:
                for item, summed in zip(groups, sums, strict=True):
                    self._replace(item, summed)
                return
            stored = [self._updated(item) for item in groups]
            if isinstance(self._updater, Updater):
                self._updater.update_all(list(groups), sums, stored)
                return
            for item, summed, value_stored in zip(groups, sums, stored, strict=True):
                self._updater(item, summed, value_stored)

    def _updated(self, key: Key) -> NDArray:
        """Return the array that the optimizer updates."""
        return self._stored[key]

    def _replace(self, key: Key, value: NDArray) -> None:
        """Store a copy of a value, whose storage type may differ from the old value's."""
        stored = self._stored[key]
        if stored is value:
            return
        if stored.stype == value.stype:
            value.copyto(stored)
        else:
            self._stored[key] = value.astype(stored.dtype).as_in_context(stored.context)

    def pull(
        self, key: KeysLike, out: ArraysLike | None = None, priority: int = 0, ignore_sparse: bool = True
    ) -> None:
        """Copy stored values to all devices of `out`.

        Args:
            key: a key, or a list of them.
            out: an NDArray, a list with one per device, or for a list of keys a list of these.
            priority: accepted as in MXNet.
            ignore_sparse: leave sparse arrays of `out` unchanged; `row_sparse_pull` fills them.

        Raises:
            ArgumentError: a key is unknown, or `out` is missing.
            ShapeError: the shape of an array of `out` differs from that of the stored value.
            KeysError: the numbers of keys and values differ, or a key has another type.
        """
        if out is None:
            raise KeysError("kvstore.pull: out is missing; pass the arrays to write to")
        sources, targets = [], []
        for item, arrays in paired(key, out):
            shape = self._shape_of(item)
            asked = [
                array
                for array in arrays
                if not self._is_source(item, array) and not (ignore_sparse and array.stype != "default")
            ]
            for array in asked:
                if _dims(array) != shape:
                    raise ShapeError(f"kvstore: key {item!r} has shape {tuple(shape)}, out has {array.shape}")
            if not asked:
                continue
            stored = self._whole_value(item)
            dense = _all_rows(stored)
            for array in asked:
                if array.stype != "default":
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
        """Copy some rows of stored row-sparse values to row-sparse arrays, which then store only these rows.

        In dense arrays, which `Module` uses for row-sparse parameters on the devices, other rows stay unchanged.

        Args:
            key: a key, or a list of them.
            out: as in `pull`; row-sparse or dense.
            priority: accepted as in MXNet.
            row_ids: row numbers in any order and shape: an NDArray for all of `out`, or lists of them like `out`.

        Raises:
            ArgumentError: the stored value is not row-sparse, `out` is CSR, or row_ids do not match `out`.
            BoundsError: a row number is out of range.
            KeysError: the numbers of keys and values differ, or a key has another type.
            ShapeError: the shape of an array of `out` differs from that of the stored value.
        """
        if out is None or row_ids is None:
            raise KeysError("kvstore.row_sparse_pull: out or row_ids is missing")
        single = isinstance(row_ids, NDArray) or (len(row_ids) == 1 and not isinstance(key, (list, tuple)))
        targets = paired(key, out)
        if single:
            ids = row_ids if isinstance(row_ids, NDArray) else row_ids[0]
            numbers: list[list[Any]] = [[ids] * len(arrays) for _, arrays in targets]
        else:
            numbers = [list(rows) for _, rows in paired(key, row_ids)]
        for (item, arrays), rows in zip(targets, numbers, strict=True):
            stored, shape = self._get(item), tuple(self._shape_of(item))
            if len(arrays) != len(rows):
                raise KeysError(f"kvstore: key {item!r} has {len(arrays)} arrays, but {len(rows)} row_ids")
            if not isinstance(stored, RowSparseNDArray):
                raise ArgumentError(
                    f"kvstore: key {item!r} is stored as {stored.stype}, expected row_sparse; use pull"
                )
            for array, ids in zip(arrays, rows, strict=True):
                if array.stype == "csr":
                    raise ArgumentError(f"kvstore: out of key {item!r} is {array.stype}, expected row_sparse")
                if array.shape != shape:
                    raise ShapeError(
                        f"kvstore: key {item!r} has shape {shape}, out has {array.shape}, expected the same"
                    )
                retained = self._retained(item, ids)
                if array.stype == "default":
                    picked, values = retained.parts()
                    memory = array.raw
                    memory.index_copy_(0, picked.to(memory.device), values.to(memory))
                else:
                    array[:] = retained

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
        """The gradient compression, or None."""
        return self._compression

    @property
    def updater(self) -> Any:
        """The updater, or None."""
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
        """Wait for all workers; here there is only one."""

    _barrier = barrier  # MXNet's name of it


def total(arrays: Sequence[NDArray], ctx: Context) -> NDArray:
    """Return the sum of arrays of one shape and type, in the given order.

    Args:
        arrays: at least one; the sum is row-sparse if all are, dense for a mixture.
        ctx: context of the sum. A single dense array on it is returned without a copy.
    """
    if set(map(type, arrays)) != {NDArray}:
        kinds = {array.stype for array in arrays}
        if kinds == {"row_sparse"}:
            return sum_rows([array for array in arrays if isinstance(array, RowSparseNDArray)], ctx)
        if not kinds <= {"default", "row_sparse"}:
            stypes = ", ".join(sorted(kinds))
            raise ArgumentError(f"kvstore: cannot sum {stypes} arrays; use tostype('default')")
    device = ctx.torch_device
    if len(arrays) == 1:
        return NDArray(arrays[0].raw.to(device), ctx)
    summed = arrays[0].raw.to(device) + arrays[1].raw.to(device)
    for array in arrays[2:]:
        summed += array.raw.to(device)
    return NDArray(summed, ctx)
