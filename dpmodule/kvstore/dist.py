"""`DistKVStore`: the store of several processes with one or more devices each."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ..base import ArgumentError, StateError
from ..context import cpu
from ..ndarray import NDArray
from ..ndarray.growing_table import GrowingTable, HashedArray
from ..ndarray.row_source import FetchedArray, parts
from ..ndarray.row_sparse import RowSparseNDArray, distinct_rows
from ..ndarray.sparse import zeros
from ..ndarray.sparse_base import clear
from ..ops.sparse import all_rows
from ..optimizer import Updater
from .base import ArraysLike, Key, KeysLike, grouped, paired
from .local import KVStore
from .ranks import Ranks, join
from .row_exchange import HashedTable, ShardedTable
from .transfer import BYTES, BucketReducer, Compression, pack, unpack

_SMALL = 1 << 18
"""Bytes of dense gradients, times the number of processes, up to which they are sent along with rows."""


class DistKVStore(KVStore):
    """A store of arrays by key with the same values in every process of a group.

    Every process calls `init`, `push`, `pushpull` and `broadcast` with the same keys in the same order, as copies of a
    program do. Initial values are those of rank 0. "dist_sync" sums the pushes of all processes, in flat buckets, and
    each process applies the optimizer to the sum. "dist_async" applies it to the process's own pushes, and averages the
    values over all processes after every `average_every` pushes; there is no server to wait for or to lose.

    Row-sparse values that `init` gets in "dist_sync" are spread: the process of rank i mod `num_workers` keeps row i
    and its optimizer state. `row_sparse_pull` looks up any rows, in any process at any time; the others answer in their
    next `push`, `init`, `barrier` or other exchange. `pull` fetches the whole value, and all processes must call it.
    `broadcast` keeps a copy in every process.

    Args:
        kind: "dist_sync" to sum and update on the CPU; "dist_device_sync" on the devices; or "dist_async".
        timeout_s: seconds without response after which a process is lost.
        average_every: number of pushes of "dist_async" between two averages.
        bucket_mb: megabytes of a bucket of gradients, which is sent while backward computes the others; equal in all
            processes.
        ranks: the processes; None for those that torchrun or the program started.

    Raises:
        ArgumentError: a number is not above 0, or the program was started for MXNet's servers.
        LostWorkerError: the other processes did not connect in time; later, in any method: one has exited or stopped.

    Attributes:
        ranks: the processes.
        held: True if all processes dropped the last push, because one requested it or none had anything to add.

    Example:
        >>> store = mx.kv.create("dist_sync", timeout_s=60)  # a store of one worker, without torchrun
        >>> store.init("weight", mx.nd.zeros((2,)))
        >>> store.pushpull("weight", mx.nd.ones((2,)), out := mx.nd.empty((2,)))
        >>> out.asnumpy().tolist(), store.rank
        ([1.0, 1.0], 0)

    Source: MXNet 1.9.1 `KVStoreDist`, on `torch.distributed` instead of servers. The mean in place of a server follows
    Stich, "Local SGD Converges Fast and Communicates Little", 2019.
    """

    def __init__(
        self,
        kind: str = "dist_sync",
        timeout_s: float = 300,
        average_every: int = 8,
        bucket_mb: float = BYTES / 2**20,
        ranks: Ranks | None = None,
    ) -> None:
        if not isinstance(average_every, int) or average_every < 1:
            raise ArgumentError(f"kvstore {kind!r}: average_every is {average_every!r}, expected at least 1")
        if not isinstance(bucket_mb, (int, float)) or not bucket_mb > 0:
            raise ArgumentError(f"kvstore {kind!r}: bucket_mb is {bucket_mb!r}, expected megabytes, above 0")
        super().__init__("dist_sync" if kind == "dist" else kind, "device" in kind)
        self.ranks: Ranks = join(kind, timeout_s) if ranks is None else ranks
        self.held = False
        self._samples: int | None = None
        self._batch = self._whole = 0
        self._scales_partial = False
        self._compression_codes: Compression | None = None
        self._is_summed = False
        self._limit = round(bucket_mb * 2**20)
        self._seen: dict[tuple[Key, ...], list[Key]] = {}
        self._early: dict[tuple[Key, ...], tuple[BucketReducer, dict[Key, int]]] = {}
        self._every = average_every if kind == "dist_async" else 0
        self._pushes = 0
        self._tables: dict[Key, ShardedTable] = {}
        self._has_met = False  # True after `expect` has met the other processes for the next push
        self._dense_tables: set[Key] = set()
        self._spreads = False  # True while `init` runs
        self._row_sums: dict[Key, NDArray] = {}

    @property
    def rank(self) -> int:
        return self.ranks.rank

    @property
    def num_workers(self) -> int:
        return self.ranks.size

    @property
    def adds_up(self) -> bool:
        """True if every push sums over all processes."""
        return not self._every

    def count_samples(self, batch: int) -> int:
        """Return the number of samples in the batches of all processes.

        Later pushes that sum over another number of samples, see `set_num_samples`, are scaled to this number.

        Args:
            batch: number of samples in a whole batch of this process.

        Raises:
            ArgumentError: processes have different kinds of stores.
        """
        self._check_options()
        self._batch, self._whole = batch, int(self.ranks.total(batch))
        return self._whole

    def set_num_samples(self, number: int | None) -> None:
        """Set the number of samples of this process in later pushes.

        Args:
            number: the number; None for that of a whole batch.
        """
        self._samples = number

    def scale_partial(self, scales: bool) -> None:
        """Set whether a push without samples of some processes is scaled by the number of the other samples.

        Args:
            scales: True to scale it; False to push the plain sum.
        """
        self._scales_partial = scales

    def init(self, key: KeysLike, value: ArraysLike) -> None:
        self._spreads = self.adds_up
        try:
            self._init(key, value)
        finally:
            self._spreads = False

    def init_rows(
        self,
        key: Key,
        shape: Sequence[int],
        dtype: str,
        rows: Callable[[int, torch.Tensor], torch.Tensor],
        seed: int,
    ) -> None:
        """Spread a value over the processes, none of which holds more than a part of it.

        Args:
            key: a new key.
            shape: of the value, (rows, ...).
            dtype: its dtype name.
            rows: ``(seed, numbers) -> rows``, called with the numbers of some rows of one of the `parts`; it returns
                the same rows in every process.
            seed: that of rank 0 is used.
        """
        nothing = zeros("row_sparse", tuple(shape), cpu(), dtype)
        self.init(key, nothing)
        seed = self.ranks.gather(seed)[0]
        values, size = self._stored[key].stored.values, self.num_workers
        for begin, end in parts(shape[0]):
            first = begin + (self.rank - begin) % size
            numbers = torch.arange(first, max(first, end), size)
            values[first // size : first // size + len(numbers)].copy_(rows(seed, numbers))

    def init_hashed(self, key: Key, rows: GrowingTable) -> None:
        """Spread a table of ids over the processes; each keeps its part of the rows that it has.

        Args:
            key: a new key.
        """
        self._check_same([[key, list(rows.shape), str(rows.values.dtype), "hashed"]])
        table = HashedTable(self.ranks.rows, key, rows, partial(self._own_state, key))
        rows.keep(table.is_own)
        rows.seed = self.ranks.gather(rows.seed)[0]
        rows.on_change = partial(self._resize, key)
        self._tables[key] = table
        self._stored[key] = table.own

    def _resize(self, key: Key, cleared: torch.Tensor | None) -> None:
        """Give a table that grew, or dropped rows, states that fit; new rows begin with new states."""
        table = self._tables[key]
        self._stored[key] = table.own
        updater = self._updater
        if not isinstance(updater, Updater) or key not in updater.states:
            return
        if not len(table.values):
            del updater.states[key]
        else:
            updater.states[key] = _fitted(updater.states[key], len(table.values), cleared)

    def broadcast(self, key: KeysLike, value: ArraysLike, out: ArraysLike, priority: int = 0) -> None:
        self._init(key, value)
        self.pull(key, out, priority)

    def _copied(self, array: NDArray) -> NDArray:
        # rows that are spread are copied by the exchange
        is_spread = self._spreads and isinstance(array, RowSparseNDArray)
        return array if is_spread else super()._copied(array)

    def _spread(self, key: Key, value: RowSparseNDArray) -> None:
        """Keep the rows of this process; `value` is used in rank 0."""
        exchange = self.ranks.rows
        count = len(exchange.own_rows(value.shape[0]))
        context = value.context if self._on_devices else cpu()
        own = all_rows(
            torch.zeros((count, *value.shape[1:]), dtype=value.values.dtype, device=context.torch_device)
        )
        self._stored[key] = RowSparseNDArray.of_record(own, context)
        table = self._tables[key] = ShardedTable(
            exchange, key, value.shape, partial(self._own_rows, key), partial(self._own_state, key)
        )
        rows, values = value.parts()
        for begin, end in parts(value.shape[0]):
            # rows outside of this part, and all rows of other processes than rank 0, are not sent
            ends = torch.tensor([begin, end if self.rank == 0 else begin], device=rows.device)
            part = slice(*torch.searchsorted(rows, ends).tolist())
            given = RowSparseNDArray(values[part], rows[part], value.shape, value.context, tidy=True)
            (first,), _ = exchange.sum_rows([table], [given])
            own.values.index_copy_(0, first.stored.rows, first.stored.values)

    def _own_rows(self, key: Key) -> Any:
        return self._stored[key]

    def _own_state(self, key: Key) -> Any:
        return self._updater.states.get(key) if isinstance(self._updater, Updater) else None

    def _shape_of(self, key: Key) -> Sequence[int]:
        table = self._tables.get(key)
        return super()._shape_of(key) if table is None else table.shape

    def _whole_value(self, key: Key) -> NDArray:
        table = self._tables.get(key)
        return super()._whole_value(key) if table is None else NDArray(table.whole(), cpu())

    def _retained(self, key: Key, row_ids: Any) -> RowSparseNDArray:
        table = self._tables.get(key)
        if table is None:
            return super()._retained(key, row_ids)
        own = self._stored[key]
        rows = distinct_rows(row_ids).to(own.stored.device)
        return RowSparseNDArray(table.look_up(rows), rows, table.shape, own.context, tidy=True)

    def replace(self, key: KeysLike, value: ArraysLike) -> None:
        for item, arrays in paired(key, value):
            if item not in self._tables:
                super().replace(item, arrays)
                continue
            if not isinstance(arrays[0], FetchedArray):
                self._tables[item].assign(arrays[0])

    @property
    def spread(self) -> list[Key]:
        """Keys of the values whose rows are spread over the processes."""
        return list(self._tables)

    def sharded(self, key: Key, is_dense: bool) -> FetchedArray:
        """Return a spread value as an array that is fetched when it is read.

        Args:
            key: a key whose rows are spread.
            is_dense: True if copies of the array are dense, and optimizers update it like a dense array.
        """
        if is_dense:
            self._dense_tables.add(key)
        table = self._tables[key]
        return HashedArray(table) if isinstance(table, HashedTable) else FetchedArray(table, is_dense)

    def _updated(self, key: Key) -> NDArray:
        own: Any = super()._updated(key)
        return NDArray(own.values, own.context) if key in self._dense_tables else own

    def _is_source(self, key: Key, array: NDArray) -> bool:
        return isinstance(array, FetchedArray) or super()._is_source(key, array)

    def _optimizer_updater(self, what: str) -> Updater:
        if self._tables and self.num_workers > 1:
            raise StateError(
                f"kvstore: cannot {what} optimizer states: those of {', '.join(map(str, self._tables))} are spread "
                "over the processes; call save_checkpoint(..., save_optimizer_states=True) of the module, and load the "
                "checkpoint"
            )
        return super()._optimizer_updater(what)

    def _init(self, key: KeysLike, value: ArraysLike) -> None:
        super().init(key, value)
        names = [name for name, _ in paired(key, value)]
        stored = [self._stored[name] for name in names]
        self._check_same([[n, list(v.shape), str(v.dtype), v.stype] for n, v in zip(names, stored)])
        self._check_options()
        dense = [array for array in stored if array.stype == "default"]
        for array, tensor in zip(dense, self.ranks.broadcast([array.raw for array in dense])):
            array.raw.copy_(tensor)
        for name, array in zip(names, stored):
            if isinstance(array, RowSparseNDArray) and self._spreads:
                self._spread(name, array)
            elif isinstance(array, RowSparseNDArray) and self.num_workers > 1:
                rows, values = self.ranks.gather(tuple(part.cpu() for part in array.parts()))[0]
                self._stored[name] = RowSparseNDArray(values, rows, array.shape, cpu()).as_in_context(
                    array.context
                )

    def _check_same(self, own: list[list[Any]]) -> None:
        gathered = self.ranks.gather(own)
        for rank, other in enumerate(gathered):
            if other == gathered[0]:
                continue
            different, first = next(
                ((a, b) for a, b in zip(other, gathered[0]) if a != b), (len(other), len(gathered[0]))
            )
            raise ArgumentError(
                f"kvstore: the networks of rank {rank} and rank 0 differ: {_shown(different)} instead of "
                f"{_shown(first)}; all processes must make the same network"
            )

    def _check_options(self) -> None:
        bucket_mb = self._limit / 2**20
        options = {"the kind of store": self.type, "average_every": self._every, "bucket_mb": bucket_mb}
        self.ranks.check_same("kvstore", options)

    def _sums(self, groups: dict[Key, list[NDArray]]) -> list[NDArray]:
        is_summed, self._is_summed = self._is_summed, False
        sums = super()._sums(groups)
        if self._every:
            self.held = not self.ranks.flags["active"]
        elif not is_summed:
            sums = self._sum_over_ranks(list(groups), sums)
        else:
            sums = [self._row_sums.pop(name, array) for name, array in zip(groups, sums)]
        return [] if self.held else sums

    def _sum_over_ranks(self, keys: Sequence[Key], arrays: Sequence[NDArray]) -> list[NDArray]:
        self.ranks.flags["samples"] = self._samples_of_push()
        tables = [i for i, key in enumerate(keys) if key in self._tables]
        arrays = [
            array.tostype("row_sparse") if i in tables and array.stype == "default" else array
            for i, array in enumerate(arrays)
        ]
        sums = list(arrays)
        others = [i for i in range(len(arrays)) if i not in tables]
        sparse = [i for i in others if isinstance(arrays[i], RowSparseNDArray)]
        dense = [i for i in others if arrays[i].stype == "default"]
        tensors = [arrays[i].raw for i in dense]
        spread: tuple[Any, Any] = ([self._tables[keys[i]] for i in tables], [arrays[i] for i in tables])
        row_sums: list[RowSparseNDArray] = []
        if tables and self._compression_codes is None and self._is_small(tensors):
            row_sums, dense_sums = self.ranks.sum_with_rows(*spread, tensors)
        else:
            if tables:
                row_sums, _ = self.ranks.rows.sum_rows(*spread)
            if self._compression_codes is not None:
                for i in dense:
                    sums[i] = self._sum_compressed(keys[i], arrays[i], self._compression_codes)
                dense_sums = self.ranks.sum([])
            else:
                reducer = self._reducer_for(keys, dense, tensors)
                dense_sums = self.ranks.sum(tensors, reducer, have_met=bool(tables) or self._has_met)
                self._has_met = False
        for i, array in zip(tables, row_sums):
            sums[i] = array
        for i, tensor in zip(dense, dense_sums):
            sums[i] = NDArray(tensor, arrays[i].context)
        for i, array in zip(sparse, self.ranks.sum_rows([arrays[i] for i in sparse])):  # type: ignore[misc]
            sums[i] = array
        flags = self.ranks.summed_flags
        self.held = bool(flags["bad"] or flags["overflow"]) or not flags["active"]
        for i in tables if not self.held else ():
            sums[i] = self._tables[keys[i]].placed(sums[i])  # type: ignore[arg-type]
        return sums if flags["samples"] in (0, self._whole) else _scaled(sums, self._whole / flags["samples"])

    def _is_small(self, tensors: Sequence[torch.Tensor]) -> bool:
        """Return True if tensors can be sent to every process along with rows."""
        size = sum(tensor.nbytes for tensor in tensors)
        return size * self.num_workers <= _SMALL and all(tensor.is_cpu for tensor in tensors)

    def _samples_of_push(self) -> int:
        if self._samples is not None:
            return self._samples
        return self._batch if self.ranks.flags["active"] or not self._scales_partial else 0

    def _reducer_for(
        self, keys: Sequence[Key], dense: Sequence[int], tensors: Sequence[torch.Tensor]
    ) -> BucketReducer:
        """Return the reducer of the dense values of some keys, which is cached for the next push."""
        known = self._early.get(tuple(keys))
        if known is not None and known[0].fits(tensors):
            return known[0]
        positions = {keys[i]: position for position, i in enumerate(dense, 1)}
        order, is_usual = list[int](), True
        if sum(tensor.nbytes for tensor in tensors) > self._limit:  # else one message carries all
            seen = [positions[key] for key in self._seen.pop(tuple(keys), ()) if key in positions]
            gathered = self.ranks.gather((seen, self.ranks.flags["active"]))
            order = next((seen_order for seen_order, _ in gathered if seen_order), [])
            is_usual = any(active for _, active in gathered)
        reducer = self.ranks.reducer_for(tensors, order, self._limit)
        if is_usual:  # a resumed run may start where no process has a batch, and must sum as before
            self._early[tuple(keys)] = reducer, positions
        return reducer

    def expect(self, keys: Sequence[Key]) -> Callable[[Key, torch.Tensor | None], None] | None:
        """Return a function that sends values of the next push to other processes early, while others are computed.

        The push must follow with the same keys and values. Before the first push, the function only records the order.

        Args:
            keys: all keys of that push.

        Returns:
            A function of a key and a tensor; None if nothing can be sent early: in "dist_async", with compression, and
            if all values fit into one message.
        """
        if self._tables:  # other processes may look up rows meanwhile
            return None
        known = self._early.get(tuple(keys))
        self._has_met = False
        if known is not None:
            if not known[0].is_split or self._compression_codes is not None:
                return None
            self.ranks.rows.meet()  # others may look up rows of another store
            self._has_met = True
            return partial(_put, *known)
        if self._every or sum(self._stored[key].size for key in keys) * 4 <= self._limit:
            return None
        seen = self._seen[tuple(keys)] = list[Key]()
        return lambda key, value: None if value is None else seen.append(key)

    def _sum_compressed(self, key: Key, array: NDArray, codes: Compression) -> NDArray:
        sent = codes.compressed(key, [array])[0].raw
        total = torch.zeros_like(sent)
        for packed in self.ranks.gather_tensor(pack(sent)):
            total += unpack(packed, sent, codes.threshold)
        return NDArray(total, array.context)

    def sum_up(self, key: KeysLike, value: ArraysLike) -> None:
        """Sum arrays over devices and processes before the push, which then sends nothing.

        Args:
            key: a key, or a list of them.
            value: as for `push`; the sums are written to the arrays of the first device, zeros to the others. Those of
                spread values stay in the store.
        """
        if not self.adds_up:
            return
        groups = grouped(key, value)
        with torch.no_grad():
            sums = self._sum_over_ranks(list(groups), super()._sums(groups))
            for (name, arrays), summed in zip(groups.items(), sums):
                if name in self._tables:
                    self._row_sums[name] = summed
                    clear(arrays[0])
                else:
                    arrays[0][:] = summed.as_in_context(arrays[0].context)
                for other in arrays[1:]:
                    clear(other)
        self._is_summed = True

    def squared_norm(self) -> float:
        """Return the sum of the squares of the last `sum_up` of spread values."""
        if not self._tables:
            return 0.0
        own = (float(array.values.double().square().sum()) for array in self._row_sums.values())  # type: ignore[attr-defined]
        return self.ranks.total(sum(own))

    def push(self, key: KeysLike, value: ArraysLike, priority: int = 0) -> None:
        is_idle = not self.ranks.flags["active"]
        super().push(key, value, priority)
        if self._every:
            self._pushes += 1
            if is_idle or self._pushes % self._every == 0:
                self._average()

    def _average(self) -> None:
        """Set all values to their means over all processes."""
        self._pushes = 0
        stored = list(self._stored.values())
        memory = [array.parts()[1] if isinstance(array, RowSparseNDArray) else array.raw for array in stored]
        with torch.no_grad():
            for tensor, total in zip(memory, self.ranks.sum(memory)):
                tensor.copy_(total / self.num_workers)

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        if self._every:
            raise ArgumentError("kvstore 'dist_async' sends no gradients to compress; use 'dist_sync'")
        self._compression_codes = Compression(compression_params)

    @property
    def compression(self) -> Compression | None:
        return self._compression_codes

    def barrier(self) -> None:
        self.ranks.barrier()

    _barrier = barrier  # MXNet's name of it


def _fitted(state: Any, count: int, cleared: torch.Tensor | None) -> Any:
    """Return an optimizer's state with `count` rows, of which some are set to zero."""
    if isinstance(state, (tuple, list)):
        return type(state)(_fitted(part, count, cleared) for part in state)
    if state is None:
        return None
    if cleared is not None:
        state.raw[cleared] = 0
    missing = count - state.shape[0]
    if not missing:
        return state
    return NDArray(torch.cat([state.raw, state.raw.new_zeros((missing, *state.shape[1:]))]), state.context)


def _scaled(arrays: Sequence[NDArray], factor: float) -> list[NDArray]:
    scaled = list[NDArray]()
    for array in arrays:
        if isinstance(array, RowSparseNDArray):
            rows, values = array.parts()
            scaled.append(RowSparseNDArray(values * factor, rows, array.shape, array.context, tidy=True))
        else:
            scaled.append(NDArray(array.raw * factor, array.context))
    return scaled


def _put(reducer: BucketReducer, positions: dict[Key, int], key: Key, tensor: torch.Tensor | None) -> None:
    if key in positions:
        reducer.put(positions[key], tensor)


def _shown(what: Any) -> str:
    return f"{what} keys" if isinstance(what, int) else f"{what[0]!r} of shape {tuple(what[1])}, {what[3]}"
