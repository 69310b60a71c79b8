"""`Lockstep`: synchronization of the processes that train the same network."""

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
    """Exchanges flags and state between the processes that train a module; does nothing in a single process.

    Flags travel with the gradients of the next update and arrive in all processes with it, so that all save, evaluate
    and end after the same update. A process without batches left continues to update with zero gradients.

    Attributes:
        adds_up: True if every update sums the gradients of all processes.
        rank: number of this process.
        size: number of processes.
        is_distributed: True if there are several processes.
        spread_names: names of parameters whose rows are spread over the processes.
    """

    def __init__(self, module: Trainable) -> None:
        stores = _stores_of(module)
        self._stores = stores
        self._ranks = stores[0].ranks if stores else None
        self.is_distributed = self._ranks is not None
        self.adds_up = all(store.adds_up for store in stores) and self.is_distributed
        self.rank = 0 if self._ranks is None else self._ranks.rank
        self.size = 1 if self._ranks is None else self._ranks.size
        self.spread_names = [str(name) for store in stores for name in store.spread]
        self._local_flags: dict[str, float] = {}  # flags of a single process

    def align(self, module: Trainable) -> None:
        """Copy the parameters and auxiliary states of rank 0 into a module."""
        if self._ranks is not None:
            tensors = [array.raw for array in _arrays_of(module, True) if array.stype == "default"]
            for tensor, first in zip(tensors, self._ranks.broadcast(tensors)):
                tensor.copy_(first)

    def average_states(self, module: Trainable) -> None:
        """Set auxiliary states, such as moving statistics, to their means over all processes."""
        if self._ranks is None:
            return
        arrays = [array.raw for array in _arrays_of(module, False) if array.raw.is_floating_point()]
        for tensor, mean in zip(arrays, self._ranks.mean(arrays)):
            tensor.copy_(mean)

    # flags, sent along with gradients

    def set_flags(self, **values: float) -> None:
        """Set flags to send with the next update; a flag keeps the largest value set before it."""
        flags = self._local_flags if self._ranks is None else self._ranks.flags
        for name, value in values.items():
            flags[name] = max(float(value), flags.get(name, 0.0))

    def set_idle(self) -> None:
        """Announce that this process adds nothing to the next update."""
        if self._ranks is not None:
            self._ranks.flags["active"] = 0.0

    def set_num_samples(self, number: int) -> None:
        """Set the number of samples of this process in the next update, if it is not a whole batch."""
        for store in self._stores:
            store.set_num_samples(number)

    def reset_flags(self) -> None:
        """Reset the flags after the update that sent them."""
        if self._ranks is not None:
            self._ranks.reset_flags()
        for store in self._stores:
            store.set_num_samples(None)

    def pop_flag(self, name: str) -> bool:
        """Return True if some process set a flag for the last update, and clear the flag."""
        flags = self._local_flags if self._ranks is None else self._ranks.summed_flags
        is_set = bool(flags.get(name))
        flags[name] = 0.0
        return is_set

    def stop_requested(self, interrupt: DeferredInterrupt) -> bool:
        """Return True if all processes must end because one of them received Ctrl-C or SIGTERM."""
        if self._ranks is None:
            return interrupt.requested
        for name, number in (("interrupt", signal.SIGINT), ("terminate", signal.SIGTERM)):
            if self.pop_flag(name):
                interrupt.request(number)
                return True
        return False

    def send_request(self, interrupt: DeferredInterrupt) -> None:
        """Set a flag for the other processes if this one received Ctrl-C or SIGTERM."""
        if self._ranks is not None and interrupt.requested:
            self.set_flags(
                **{"terminate" if interrupt.signal_number == signal.SIGTERM else "interrupt": True}
            )

    # separate exchanges

    def any(self, condition: bool) -> bool:
        """Return True if a condition is true in some process."""
        return condition if self._ranks is None else self._ranks.total(float(condition)) > 0

    def gather(self, value: Any) -> list[Any]:
        """Return plain data and arrays of all processes, in the order of their ranks."""
        return [value] if self._ranks is None else self._ranks.gather(value)

    def check_same(self, what: str, values: Mapping[str, Any]) -> None:
        """Raise ArgumentError if values, by name, differ between processes; see `Ranks.check_same`."""
        if self._ranks is not None:
            self._ranks.check_same(what, values)

    def merge(self, metric: EvalMetric) -> None:
        """Merge the states of a metric over all processes."""
        if self._ranks is None:
            return
        if not (hasattr(metric, "state_dict") and hasattr(metric, "merge")):
            raise ArgumentError(
                f"the metric {type(metric).__name__} cannot be merged over several processes: it needs the methods "
                "state_dict, load_state_dict and merge of EvalMetric"
            )
        first, *rest = (_copy_with_state(metric, state) for state in self._ranks.gather(metric.state_dict()))
        for other in rest:
            first.merge(other)
        metric.load_state_dict(first.state_dict())

    def join_rows(self, outputs: Sequence[NDArray], count: int) -> list[NDArray]:
        """Return the outputs for all examples; each process has those of every `size`-th example.

        Args:
            outputs: outputs of this process, with one or more rows for each example.

        Shape:
            outputs[i]: (n * r, ...), r rows for each of n = `count` examples of this process.
            returns[i]: (N * r, ...), for the N examples of all processes.
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
        """Restore a result of `own_state`.

        Shape:
            states[i]: that of the state.
        """
        for array, state in zip(_arrays_of(module, False), states):
            array.raw.copy_(state)


def _stores_of(module: Any) -> list[Any]:
    """Return the distributed kvstores of a module; none in a single process."""
    try:
        stores = [updates.store for updates in module.all_updates()]
    except (AttributeError, NotImplementedError):  # a user-defined module
        return []
    distributed = [store for store in stores if isinstance(store, KVStoreBase) and hasattr(store, "ranks")]
    return distributed if distributed and distributed[0].ranks.size > 1 else []


def _arrays_of(module: Any, with_parameters: bool) -> list[NDArray]:
    """Return a module's auxiliary states, and optionally its parameters, on all contexts."""
    arrays = []
    for store in module.stores():
        for k in range(len(store.contexts)):
            arrays += [store.aux(name, k) for name in store.aux_names()]
            arrays += [store.array(name, k) for name in store.names()] if with_parameters else []
    return arrays


def _copy_with_state(metric: EvalMetric, state: Any) -> Any:
    copy = deepcopy(metric)
    copy.load_state_dict(state)
    return copy


def _interleaved(parts: Sequence[tuple[int, torch.Tensor]], like: NDArray) -> NDArray:
    """Return the rows of examples that were distributed round-robin, in their order."""
    size, total = len(parts), sum(count for count, _ in parts)
    rows = parts[0][1].shape[0] // parts[0][0]
    joined = parts[0][1].new_empty((total, rows, *parts[0][1].shape[1:]))
    for i, (count, part) in enumerate(parts):
        joined[i::size] = part.reshape(count, rows, *part.shape[1:])
    return NDArray(joined.flatten(0, 1).to(like.raw.device), like.context)


def shard(data: DataIter, lockstep: Lockstep) -> None:
    """Restrict an iterator to this process's part of the examples."""
    if getattr(data, "num_parts", 1) == lockstep.size:
        return
    try:
        data.take_part(lockstep.size, lockstep.rank)
        data.num_parts = lockstep.size
    except (AttributeError, NotImplementedError) as error:
        raise ArgumentError(
            f"fit: shard=True: {type(data).__name__} cannot read a part of its examples; make it with "
            f"num_parts={lockstep.size}, part_index={lockstep.rank} (the kvstore's num_workers and rank), or give each "
            "process its own data and omit shard"
        ) from error
