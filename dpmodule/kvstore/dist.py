"""`DistKVStore`: the store of several processes, each of which has some devices."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import torch

from ..base import ArgumentError
from ..context import cpu
from ..ndarray import NDArray
from ..ndarray.row_sparse import RowSparseNDArray
from ..ndarray.sparse_base import clear
from .base import ArraysLike, Key, KeysLike, grouped, paired
from .local import KVStore
from .ranks import Ranks, join
from .transfer import BYTES, BucketReducer, Compression, pack, unpack


class DistKVStore(KVStore):
    """A store of arrays by key that has the same values in every process of a group.

    Every process calls `init`, `push`, `pushpull` and `broadcast` with the same keys in the same order, as programs do
    that are all the same. Values start as those of rank 0. "dist_sync" adds up what all processes push, in flat
    buckets, and each process applies the optimizer to the sum. "dist_async" applies it to what the process itself
    pushes, and takes the mean of all processes' values after every `average_every` pushes: there is no server whose
    process the others would wait for, and none that could be lost.

    Args:
        kind: "dist_sync": added up and updated on the CPU; "dist_device_sync": on the devices; or "dist_async".
        timeout_s: seconds after which a process that does not take part counts as lost.
        average_every: how many pushes of "dist_async" lie between two means.
        bucket_mb: megabytes of gradients from which on they go by themselves, while backward finds the others; the
            same in every process.

    Raises:
        ArgumentError: a number is not above 0, or the program was started for MXNet's servers.
        LostWorkerError: the other processes did not come in time; later, in any method: one is gone or stopped.

    Attributes:
        ranks: the processes.
        held: whether the last push was dropped in all processes, because one of them asked for that, or none had
            anything to add.

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
    ) -> None:
        if not isinstance(average_every, int) or average_every < 1:
            raise ArgumentError(f"kvstore {kind!r}: average_every is {average_every!r}, expected at least 1")
        if not isinstance(bucket_mb, (int, float)) or not bucket_mb > 0:
            raise ArgumentError(f"kvstore {kind!r}: bucket_mb is {bucket_mb!r}, expected megabytes, above 0")
        super().__init__("dist_sync" if kind == "dist" else kind, "device" in kind)
        self.ranks: Ranks = join(kind, timeout_s)
        self.held = False
        self._samples: int | None = None
        self._batch = self._whole = 0
        self._scales_partial = False
        self._codes: Compression | None = None
        self._is_summed = False
        self._limit = round(bucket_mb * 2**20)
        self._seen: dict[tuple[Key, ...], list[Key]] = {}
        self._early: dict[tuple[Key, ...], tuple[BucketReducer, dict[Key, int]]] = {}
        self._every = average_every if kind == "dist_async" else 0
        self._pushes = 0

    @property
    def rank(self) -> int:
        return self.ranks.rank

    @property
    def num_workers(self) -> int:
        return self.ranks.size

    @property
    def adds_up(self) -> bool:
        """Whether a push adds up over processes at once."""
        return not self._every

    def count_samples(self, batch: int) -> int:
        """Return how many samples the batches of all processes have together.

        Pushes that sum over fewer or more samples, see `set_num_samples`, are scaled from then on as if they were of that
        many.

        Args:
            batch: how many samples a whole batch of this process has.

        Raises:
            ArgumentError: processes have stores of other kinds.
        """
        self._check_options()
        self._batch, self._whole = batch, int(self.ranks.total(batch))
        return self._whole

    def set_num_samples(self, number: int | None) -> None:
        """Say how many samples of this process the pushes sum over from now on.

        Args:
            number: how many; None: those of a whole batch.
        """
        self._samples = number

    def scale_partial(self, scales: bool) -> None:
        """Say whether a push to which some processes add nothing is scaled by the samples of the others.

        Args:
            scales: whether it is; otherwise the plain sum is pushed.
        """
        self._scales_partial = scales

    def init(self, key: KeysLike, value: ArraysLike) -> None:
        super().init(key, value)
        names = [one for one, _ in paired(key, value)]
        stored = [self._stored[name] for name in names]
        self._check_same([[n, list(v.shape), str(v.dtype), v.stype] for n, v in zip(names, stored)])
        self._check_options()
        dense = [array for array in stored if array.stype == "default"]
        for array, tensor in zip(dense, self.ranks.broadcast([array.raw for array in dense])):
            array.raw.copy_(tensor)
        for name, array in zip(names, stored):
            if isinstance(array, RowSparseNDArray) and self.num_workers > 1:
                rows, values = self.ranks.gather(tuple(part.cpu() for part in array.parts()))[0]
                self._stored[name] = RowSparseNDArray(values, rows, array.shape, cpu()).as_in_context(
                    array.context
                )

    def _check_same(self, mine: list[list[Any]]) -> None:
        every = self.ranks.gather(mine)
        for rank, theirs in enumerate(every):
            if theirs == every[0]:
                continue
            there, first = next(
                ((a, b) for a, b in zip(theirs, every[0]) if a != b), (len(theirs), len(every[0]))
            )
            raise ArgumentError(
                f"kvstore: rank {rank} has another network than rank 0: {_shown(there)} instead of {_shown(first)}; "
                "all processes have to make the same one"
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
            sums = self._over_ranks(list(groups), sums)
        return [] if self.held else sums

    def _over_ranks(self, keys: Sequence[Key], arrays: Sequence[NDArray]) -> list[NDArray]:
        found = list(arrays)
        self.ranks.flags["samples"] = self._samples_of_push()
        sparse = [i for i, array in enumerate(arrays) if isinstance(array, RowSparseNDArray)]
        dense = [i for i, array in enumerate(arrays) if array.stype == "default"]
        if self._codes is not None:
            for i in dense:
                found[i] = self._over_ranks_in_codes(keys[i], arrays[i], self._codes)
            dense_sums = self.ranks.sum([])
        else:
            tensors = [arrays[i].raw for i in dense]
            dense_sums = self.ranks.sum(tensors, self._sums_for(keys, dense, tensors))
        for i, tensor in zip(dense, dense_sums):
            found[i] = NDArray(tensor, arrays[i].context)
        for i, array in zip(sparse, self.ranks.sum_rows([arrays[i] for i in sparse])):  # type: ignore[misc]
            found[i] = array
        heard = self.ranks.summed_flags
        self.held = bool(heard["bad"] or heard["overflow"]) or not heard["active"]
        return (
            found if heard["samples"] in (0, self._whole) else _scaled(found, self._whole / heard["samples"])
        )

    def _samples_of_push(self) -> int:
        if self._samples is not None:
            return self._samples
        return self._batch if self.ranks.flags["active"] or not self._scales_partial else 0

    def _sums_for(self, keys: Sequence[Key], dense: Sequence[int], tensors: Sequence[torch.Tensor]) -> BucketReducer:
        """Return what adds up the dense values of some keys; it is kept, as the next push has them, too."""
        known = self._early.get(tuple(keys))
        if known is not None and known[0].fits(tensors):
            return known[0]
        places = {keys[i]: place for place, i in enumerate(dense, 1)}
        likely, is_usual = list[int](), True
        if sum(tensor.nbytes for tensor in tensors) > self._limit:  # else all go together
            seen = [places[key] for key in self._seen.pop(tuple(keys), ()) if key in places]
            every = self.ranks.gather((seen, self.ranks.flags["active"]))
            likely = next((found for found, _ in every if found), [])
            is_usual = any(active for _, active in every)
        sums = self.ranks.reducer_for(tensors, likely, self._limit)
        if is_usual:  # a run that is resumed may begin where nobody has a batch, and is to add up as before
            self._early[tuple(keys)] = sums, places
        return sums

    def expect(self, keys: Sequence[Key]) -> Callable[[Key, torch.Tensor | None], None] | None:
        """Return what takes values of the next push ahead of it, so that they go to other processes while more come.

        The push has to follow, with the same keys and the same values. At the first one, it only sees in which order
        they come.

        Args:
            keys: all keys of that push.

        Returns:
            Takes a key and a tensor. None where nothing could go early: in "dist_async" and in codes, and if all values
            fit into one message.
        """
        known = self._early.get(tuple(keys))
        if known is not None:
            return partial(_put, *known) if known[0].is_split and self._codes is None else None
        if self._every or sum(self._stored[key].size for key in keys) * 4 <= self._limit:
            return None
        seen = self._seen[tuple(keys)] = list[Key]()
        return lambda key, value: None if value is None else seen.append(key)

    def _over_ranks_in_codes(self, key: Key, array: NDArray, codes: Compression) -> NDArray:
        sent = codes.compressed(key, [array])[0].raw
        every = self.ranks.gather_tensor(pack(sent))
        total = torch.zeros_like(sent)
        for each in every:
            total += unpack(each, sent, codes.threshold)
        return NDArray(total, array.context)

    def sum_up(self, key: KeysLike, value: ArraysLike) -> None:
        """Add up arrays over devices and processes ahead of the push, which then sends nothing.

        Args:
            key: a key, or a list of them.
            value: as for `push`; the arrays of the first device get the sums, those of others zeros.
        """
        if not self.adds_up:
            return
        groups = grouped(key, value)
        with torch.no_grad():
            sums = self._over_ranks(list(groups), super()._sums(groups))
            for arrays, summed in zip(groups.values(), sums):
                arrays[0][:] = summed.as_in_context(arrays[0].context)
                for other in arrays[1:]:
                    clear(other)
        self._is_summed = True

    def push(self, key: KeysLike, value: ArraysLike, priority: int = 0) -> None:
        is_idle = not self.ranks.flags["active"]
        super().push(key, value, priority)
        if self._every:
            self._pushes += 1
            if is_idle or self._pushes % self._every == 0:
                self._average()

    def _average(self) -> None:
        """Give every process the mean of all processes' values."""
        self._pushes = 0
        stored = list(self._stored.values())
        memory = [array.parts()[1] if isinstance(array, RowSparseNDArray) else array.raw for array in stored]
        with torch.no_grad():
            for tensor, total in zip(memory, self.ranks.sum(memory)):
                tensor.copy_(total / self.num_workers)

    def set_gradient_compression(self, compression_params: Mapping[str, Any]) -> None:
        if self._every:
            raise ArgumentError(
                "kvstore 'dist_async' sends no gradients that could be compressed; use 'dist_sync'"
            )
        self._codes = Compression(compression_params)

    @property
    def compression(self) -> Compression | None:
        return self._codes

    def barrier(self) -> None:
        self.ranks.barrier()

    _barrier = barrier  # MXNet's name of it


def _scaled(arrays: Sequence[NDArray], factor: float) -> list[NDArray]:
    found = list[NDArray]()
    for array in arrays:
        if isinstance(array, RowSparseNDArray):
            rows, values = array.parts()
            found.append(RowSparseNDArray(values * factor, rows, array.shape, array.context, tidy=True))
        else:
            found.append(NDArray(array.raw * factor, array.context))
    return found


def _put(sums: BucketReducer, places: dict[Key, int], key: Key, tensor: torch.Tensor | None) -> None:
    if key in places:
        sums.put(places[key], tensor)


def _shown(what: Any) -> str:
    return f"{what} keys" if isinstance(what, int) else f"{what[0]!r} of shape {tuple(what[1])}, {what[3]}"
