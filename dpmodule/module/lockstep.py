"""`Lockstep`: how a run keeps step with those of other processes that train the same network."""

from __future__ import annotations

import signal
from collections.abc import Mapping, Sequence
from copy import deepcopy
from typing import TYPE_CHECKING, Any

import torch

from ..base import ArgumentError
from ..kvstore import KVStoreBase
from ..ndarray import NDArray
from .interrupts import DeferredInterrupt

if TYPE_CHECKING:
    from ..io import DataIter
    from ..metric import EvalMetric
    from .protocol import Trainable


class Lockstep:
    """What the processes that train a module tell each other, beyond gradients; nothing if there is one.

    What a process has to say goes along with the gradients of its next update, and all processes hear it with theirs:
    so they save, measure and end after the same update. One without batches left goes on updating with gradients of 0.

    Attributes:
        adds_up: whether every update is one of all of them together.
        rank: number of this process.
        size: number of processes.
    """

    def __init__(self, module: Trainable) -> None:
        stores = _stores_of(module)
        self._stores = stores
        self._ranks = stores[0].ranks if stores else None
        self.is_distributed = self._ranks is not None
        self.adds_up = all(store.adds_up for store in stores) and self.is_distributed
        self.rank = 0 if self._ranks is None else self._ranks.rank
        self.size = 1 if self._ranks is None else self._ranks.size
        self._local_flags: dict[str, float] = {}  # messages of a process that trains alone

    def align(self, module: Trainable) -> None:
        """Give a module the parameters and auxiliary states of rank 0."""
        if self._ranks is not None:
            tensors = [array.raw for array in _arrays_of(module, True)]
            for tensor, first in zip(tensors, self._ranks.broadcast(tensors)):
                tensor.copy_(first)

    def average_states(self, module: Trainable) -> None:
        """Give a module the means of all processes' auxiliary states, such as moving statistics."""
        if self._ranks is None:
            return
        arrays = [array.raw for array in _arrays_of(module, False) if array.raw.is_floating_point()]
        for tensor, mean in zip(arrays, self._ranks.mean(arrays)):
            tensor.copy_(mean)

    # messages sent along with gradients

    def set_flags(self, **words: float) -> None:
        """Tell the others with the next update; what is said twice before it is said if it was true once."""
        said = self._local_flags if self._ranks is None else self._ranks.flags
        for word, value in words.items():
            said[word] = max(float(value), said.get(word, 0.0))

    def set_idle(self) -> None:
        """Tell the others that this process adds nothing to the next update."""
        if self._ranks is not None:
            self._ranks.flags["active"] = 0.0

    def set_num_samples(self, number: int) -> None:
        """Tell the others that the next update sums over so many samples of this process, in place of a whole batch."""
        for store in self._stores:
            store.set_num_samples(number)

    def reset_flags(self) -> None:
        """Note that the update is over along with which all was said."""
        if self._ranks is not None:
            self._ranks.reset_flags()
        for store in self._stores:
            store.set_num_samples(None)

    def pop_flag(self, word: str) -> bool:
        """Return whether some process said a word along with the last update, and forget it."""
        heard = self._local_flags if self._ranks is None else self._ranks.summed_flags
        found = bool(heard.get(word))
        heard[word] = 0.0
        return found

    def stop_requested(self, interrupt: DeferredInterrupt) -> bool:
        """Return whether all processes are to end now because one of them got Ctrl-C or SIGTERM."""
        if self._ranks is None:
            return interrupt.requested
        for word, number in (("interrupt", signal.SIGINT), ("terminate", signal.SIGTERM)):
            if self.pop_flag(word):
                interrupt.request(number)
                return True
        return False

    def send_request(self, interrupt: DeferredInterrupt) -> None:
        """Tell the others that this process got Ctrl-C or SIGTERM, if it did."""
        if self._ranks is not None and interrupt.requested:
            self.set_flags(**{"terminate" if interrupt.signal_number == signal.SIGTERM else "interrupt": True})

    # by themselves

    def any(self, what: bool) -> bool:
        """Return whether something is so in some process."""
        return what if self._ranks is None else self._ranks.total(float(what)) > 0

    def gather(self, thing: Any) -> list[Any]:
        """Return plain data and arrays of all processes, in the order of their numbers."""
        return [thing] if self._ranks is None else self._ranks.gather(thing)

    def check_same(self, what: str, values: Mapping[str, Any]) -> None:
        """Refuse values, by name, that differ between processes; see `Ranks.check_same`."""
        if self._ranks is not None:
            self._ranks.check_same(what, values)

    def merge(self, metric: EvalMetric) -> None:
        """Let a metric have seen what those of all processes have seen."""
        if self._ranks is None:
            return
        if not (hasattr(metric, "state_dict") and hasattr(metric, "merge")):
            raise ArgumentError(
                f"the metric {type(metric).__name__} cannot be measured over several processes: it needs the methods "
                "state_dict, load_state_dict and merge of EvalMetric"
            )
        first, *rest = (_copy_with_state(metric, state) for state in self._ranks.gather(metric.state_dict()))
        for other in rest:
            first.merge(other)
        metric.load_state_dict(first.state_dict())

    def join_rows(self, outputs: Sequence[NDArray], count: int) -> list[NDArray]:
        """Return outputs for all examples, of which each process has those of every `size`-th.

        Args:
            outputs: for the examples of this process; each may have several rows for an example.

        Shape:
            outputs[i]: (n * r, ...), r rows for each of n = `count` examples of this process.
            returns[i]: (N * r, ...), those of the N examples of all processes.
        """
        if self._ranks is None:
            return list(outputs)
        parts_by_rank = self._ranks.gather((count, [output.raw.cpu() for output in outputs]))
        return [
            _interleaved([(n, parts[i]) for n, parts in parts_by_rank], output)
            for i, output in enumerate(outputs)
        ]

    # state that differs between processes

    def own_state(self, module: Trainable) -> list[torch.Tensor]:
        """Return the auxiliary states, which differ between processes within an epoch.

        Shape:
            returns[i]: that of the state.
        """
        return [array.raw.clone() for array in _arrays_of(module, False)] if self.is_distributed else []

    def load_own_state(self, module: Trainable, states: Sequence[torch.Tensor]) -> None:
        """Put back what `own_state` returned.

        Shape:
            states[i]: that of the state.
        """
        for array, state in zip(_arrays_of(module, False), states):
            array.raw.copy_(state)


def _stores_of(module: Any) -> list[Any]:
    """Return the kvstores of a module that speak with other processes; none if there are no others."""
    try:
        stores = [each.store for each in module.all_updates()]
    except (AttributeError, NotImplementedError):  # a module of the user's own
        return []
    found = [store for store in stores if isinstance(store, KVStoreBase) and hasattr(store, "ranks")]
    return found if found and found[0].ranks.size > 1 else []


def _arrays_of(module: Any, all_of_them: bool) -> list[NDArray]:
    """Return a module's auxiliary states, and its parameters, on all contexts."""
    found = []
    for store in module.stores():
        for k in range(len(store.contexts)):
            found += [store.aux(name, k) for name in store.aux_names()]
            found += [store.array(name, k) for name in store.names()] if all_of_them else []
    return found


def _copy_with_state(metric: EvalMetric, state: Any) -> Any:
    made = deepcopy(metric)
    made.load_state_dict(state)
    return made


def _interleaved(parts: Sequence[tuple[int, torch.Tensor]], like: NDArray) -> NDArray:
    """Return the rows of examples that were dealt out one by one, in their order."""
    size, total = len(parts), sum(count for count, _ in parts)
    rows = parts[0][1].shape[0] // parts[0][0]
    joined = parts[0][1].new_empty((total, rows, *parts[0][1].shape[1:]))
    for i, (count, part) in enumerate(parts):
        joined[i::size] = part.reshape(count, rows, *part.shape[1:])
    return NDArray(joined.flatten(0, 1).to(like.raw.device), like.context)


def shard(data: DataIter, lockstep: Lockstep) -> None:
    """Let an iterator read this process's part of the examples."""
    if getattr(data, "num_parts", 1) == lockstep.size:
        return
    try:
        data.take_part(lockstep.size, lockstep.rank)
        data.num_parts = lockstep.size
    except (AttributeError, NotImplementedError) as error:
        raise ArgumentError(
            f"fit: shard=True: {type(data).__name__} cannot read a part of its examples; make it with "
            f"num_parts={lockstep.size}, part_index={lockstep.rank} (the kvstore's num_workers and rank), or give each "
            "process data of its own and leave shard out"
        ) from error
