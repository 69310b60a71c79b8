"""`Ranks`: the processes that train together, by way of `torch.distributed`."""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future, wait
from datetime import timedelta
from typing import Any, TypeVar

import torch
import torch.distributed as dist
from torch.distributed.rendezvous import rendezvous

from ..base import ArgumentError, LostWorkerError
from ..context import num_gpus
from ..devices import generators
from ..ndarray.row_sparse import RowSparseNDArray, sum_rows
from .heartbeat import Heartbeat
from .transfer import BYTES, BucketReducer, from_buckets, to_buckets

_logger = logging.getLogger(__name__)

FLAGS = ("active", "bad", "overflow", "due", "stop", "interrupt", "terminate", "evaluate", "samples")
"""What a process tells the others along with its gradients; see `Ranks.say`."""

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_START = "torchrun --standalone --nproc-per-node 2 program.py"
_joined: dict[float, tuple[Any, Ranks]] = {}

_LOOK_S = 1.0
_CONNECTIONS = 5
"""How often one can connect, a second apart, until it is not rank 0 that listens."""

_GRACE_S = 1.0
_FREE_S = 0.02
_Result = TypeVar("_Result")


class Ranks:
    """A group of processes, each with a number; every method is called by all of them, in the same order.

    Args:
        group: a group of `torch.distributed`; None: this process is alone.
        timeout_s: seconds after which a process that does not take part counts as lost.
        store: of `torch.distributed`, which all see; None if there is no group.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        say: what each `sum` tells the others: numbers by the names in `FLAGS`; see `hush`.
        heard: what the last `sum` heard: the sums of these numbers over all processes.
    """

    def __init__(self, group: Any, timeout_s: float, store: Any) -> None:
        self._group = group
        self._timeout_s = timeout_s
        self.rank = 0 if group is None else dist.get_rank(group)
        self.size = 1 if group is None else dist.get_world_size(group)
        self.flags = _default_flags()
        self.summed_flags = dict(self.flags)
        self._heartbeat = None if self.size == 1 else Heartbeat(store, self.rank, self.size)

    def sum(self, tensors: Sequence[torch.Tensor], sums: BucketReducer | None = None) -> list[torch.Tensor]:
        """Return the sums of tensors over all processes, which may share memory; exchange what there is to say.

        Args:
            sums: what `reducer_for` returned for such tensors, of which some may have been put into it.

        Shape:
            tensors: any; the same in every process, as are their types.
            returns: the same.
        """
        said = list(self.flags.values())
        if self.size == 1:
            self.summed_flags = dict(zip(FLAGS, said))
            return list(tensors)
        if sums is None:
            sums = self.reducer_for(tensors)
        with self._watched():
            found = sums.finish([torch.tensor(said), *tensors])
        self.summed_flags = dict(zip(FLAGS, found[0].tolist()))
        return found[1:]

    def reducer_for(
        self, tensors: Sequence[torch.Tensor], likely: Sequence[int] = (), limit: int = BYTES
    ) -> BucketReducer:
        """Return what adds such tensors up bucket by bucket.

        Args:
            tensors: of the same shapes and types in every process.
            likely: places of those that may come before `sum` is called, in the order in which they are likely to come;
                the same in every process. They are counted from 1, as 0 is that of what there is to say.
            limit: bytes from which on a bucket goes by itself; the same in every process.
        """
        order = dict.fromkeys([*likely, *range(len(tensors), 0, -1), 0])
        return BucketReducer([torch.zeros(len(FLAGS)), *tensors], list(order), limit, self._sent)

    def _sent(self, flat: torch.Tensor) -> Any:
        if self._group is None:
            raise RuntimeError("the group of processes has been broken off")
        return dist.all_reduce(flat, group=self._group, async_op=True)

    def reset_flags(self) -> None:
        """Have nothing more to say than that this process goes on."""
        self.flags = _default_flags()

    def total(self, number: float) -> float:
        """Return the sum of a number over all processes."""
        return (
            number if self.size == 1 else self._reduced([torch.tensor(number, dtype=torch.float64)])[0].item()
        )

    def mean(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the means of tensors over all processes."""
        return [each / self.size for each in self._reduced(tensors)] if self.size > 1 else list(tensors)

    def _reduced(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        buckets = to_buckets(tensors)
        with self._watched():
            for work in [self._sent(bucket.flat) for bucket in buckets]:
                work.wait()
        return from_buckets(buckets, tensors)

    def sum_rows(self, arrays: Sequence[RowSparseNDArray]) -> list[RowSparseNDArray]:
        """Return the sums of row-sparse arrays over all processes; each is sent with the rows that it stores."""
        if self.size == 1 or not arrays:
            return list(arrays)
        counts = self._gathered(torch.tensor([array.parts()[0].numel() for array in arrays]))
        found = []
        for i, array in enumerate(arrays):
            rows, values = array.parts()
            most = max(int(each[i]) for each in counts)
            every = zip(self._gathered(_padded(rows, most)), self._gathered(_padded(values, most)), counts)
            parts = [
                RowSparseNDArray(v[: int(n[i])], r[: int(n[i])], array.shape, array.context)
                for r, v, n in every
            ]
            found.append(sum_rows(parts, array.context))
        return found

    def gather_tensor(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensor of every process, in the order of their numbers; all have one shape."""
        return [tensor] if self.size == 1 else self._gathered(tensor)

    def _gathered(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        found = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self.size)]
        with self._watched():
            dist.all_gather(found, tensor.contiguous(), group=self._group)
        return found

    def gather(self, thing: Any) -> list[Any]:
        """Return plain data and arrays of every process, in the order of their numbers."""
        if self.size == 1:
            return [thing]
        found: list[Any] = [None] * self.size
        with self._watched():
            dist.all_gather_object(found, thing, group=self._group)
        return found

    def check_same(self, what: str, values: Mapping[str, Any]) -> None:
        """Refuse values that differ between processes, in all of them.

        Args:
            values: plain data by name, with the same names in every process.
        """
        first, *others = self.gather(dict(values))
        for rank, theirs in enumerate(others, 1):
            for name in dict.fromkeys([*first, *theirs]):
                here, there = first.get(name), theirs.get(name)
                if repr(here) != repr(there):  # NaN equals itself
                    raise ArgumentError(
                        f"{what}: {name} is {here!r} on rank 0 and {there!r} on rank {rank}; "
                        "give all processes the same"
                    )

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tensors of process 0, which may share memory."""
        buckets = [] if self.size == 1 else to_buckets(tensors)
        for bucket in buckets:
            with self._watched():
                dist.broadcast(bucket.flat, group=self._group, group_src=0)
        return from_buckets(buckets, tensors)

    def barrier(self) -> None:
        """Wait until every process calls this."""
        self.total(0.0)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Turn what goes wrong between processes into an error that names the lost one."""
        if self._group is None:
            raise LostWorkerError(
                f"rank {self.rank}: the group of processes has been broken off by an earlier error"
            )
        try:
            yield
        except (RuntimeError, ValueError) as error:
            raise LostWorkerError(self._lost_worker_message(error)) from error

    def _lost_worker_message(self, error: Exception) -> str:
        self._abort_group()  # the others, who wait for this one, hear of it now
        silent = [] if self._heartbeat is None else self._heartbeat.silent_ranks()
        names = ", ".join(map(str, silent))
        first = str(error).splitlines()[0]
        if not silent:
            return (
                f"rank {self.rank} of {self.size}: another process broke off the exchange, or did not take part within "
                f"{self._timeout_s:g} s (timeout_s); its own error says why ({first})"
            )
        what = f"rank {names} is" if len(silent) == 1 else f"ranks {names} are"
        return (
            f"rank {self.rank} of {self.size}: {what} gone or stopped, or did not answer within {self._timeout_s:g} s "
            f"(timeout_s); torchrun --max-restarts 3 with fit(checkpoint=..., resume='auto') goes on ({first})"
        )

    def _abort_group(self) -> None:
        group, self._group = self._group, None
        if group is None:
            return
        with contextlib.suppress(RuntimeError, ValueError):
            if hasattr(group, "abort"):
                group.abort()
            dist.destroy_process_group(group)

    def abort(self) -> None:
        """Have the others, who wait for this process, hear that it does not take part any more."""
        self._abort_group()

    def close(self) -> None:
        """Take leave of the others."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._group = None


def _default_flags() -> dict[str, float]:
    return {name: float(name == "active") for name in FLAGS}


def _padded(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    missing = rows - tensor.shape[0]
    return torch.cat([tensor, tensor.new_zeros((missing, *tensor.shape[1:]))]) if missing else tensor


def join(kind: str, timeout_s: float) -> Ranks:
    """Return the group of all processes: torchrun's, one that the program has made, or none.

    Args:
        timeout_s: seconds after which a process that does not take part counts as lost.
    """
    if not isinstance(timeout_s, (int, float)) or not timeout_s > 0:
        raise ArgumentError(f"kvstore {kind!r}: timeout_s is {timeout_s!r}, expected seconds, above 0")
    if not dist.is_available():
        return _single_process(kind, "this build of torch has no torch.distributed")
    if not dist.is_initialized():
        if not _is_started_with_others(kind):
            return _single_process(
                kind, f"neither torchrun nor a process group of the program's own; start it by {_START}"
            )
        _initialize(kind, timeout_s)
    world, known = dist.group.WORLD, _joined.get(timeout_s)
    if known is None or known[0] is not world:
        known = _joined[timeout_s] = world, _new_group(timeout_s)
    return known[1]


def _single_process(kind: str, why: str) -> Ranks:
    _logger.warning("kvstore %s: this process is the only worker: %s", kind, why)
    return Ranks(None, 0.0, None)


def _is_started_with_others(kind: str) -> bool:
    """Say whether the environment tells this process to join others."""
    missing = [name for name in _VARIABLES if not os.environ.get(name)]
    if missing:
        _refuse_dmlc(kind)
        if {"RANK", "WORLD_SIZE"} <= {*missing} or os.environ.get("WORLD_SIZE") == "1":
            return False
        present = [name for name in _VARIABLES if name not in missing]
        raise ArgumentError(
            f"kvstore {kind!r}: the environment has {', '.join(present)}, but not {', '.join(missing)}; set all of "
            f"them, as torchrun does: {_START}"
        )
    _variable(kind, "RANK", 0, _variable(kind, "WORLD_SIZE", 1, 2**31))
    _variable(kind, "MASTER_PORT", 1, 65536)
    return True


def _variable(kind: str, name: str, low: int, above: int) -> int:
    """Return the number that a variable of the environment has to be."""
    text = os.environ[name]
    if not text.strip().lstrip("+-").isdecimal() or not low <= int(text) < above:
        limit = f"WORLD_SIZE - 1 = {above - 1}" if name == "RANK" else str(above - 1)
        raise ArgumentError(
            f"kvstore {kind!r}: the environment has {name}={text}, expected a whole number from {low} to {limit}; "
            f"torchrun sets it: {_START}"
        )
    return int(text)


def _refuse_dmlc(kind: str) -> None:
    found = sorted(name for name in os.environ if name.startswith(("DMLC_ROLE", "DMLC_PS_", "DMLC_NUM_")))
    if found:
        raise ArgumentError(
            f"kvstore {kind!r}: {', '.join(found)} are set, as MXNet's launcher does; there are no servers and no "
            f"scheduler here: take these variables away and start all workers by {_START}, on several machines by "
            "torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29500 program.py"
        )


def _backend() -> str:
    return "cpu:gloo,cuda:nccl" if num_gpus() and dist.is_nccl_available() else "gloo"


def _initialize(kind: str, timeout_s: float) -> None:
    timeout = timedelta(seconds=timeout_s)

    def meet() -> tuple[Any, int, int]:
        met: tuple[Any, int, int] = next(rendezvous("env://", timeout=timeout))
        return met

    def initialize() -> None:
        own = dist.PrefixStore(_key_prefix(), store)  # type: ignore[attr-defined]
        own.set_timeout(timeout)
        dist.init_process_group(_backend(), timeout=timeout, store=own, rank=rank, world_size=size)

    wanted = ", ".join(f"{name}={os.environ[name]}" for name in _VARIABLES)
    deadline = time.monotonic() + timeout_s
    try:
        store, rank, size = _call_with_deadline(deadline, meet, "rank 0 does not answer", _PortCheck(kind, wanted))
        _call_with_deadline(deadline, initialize, "a process is missing or stopped")
    except ArgumentError:
        raise
    except (RuntimeError, ValueError, TimeoutError) as error:
        first = str(error).splitlines()[0]
        if "EADDRINUSE" in first:
            raise ArgumentError(
                f"kvstore {kind!r}: the port is in use ({wanted}), by another program or by another process with "
                f"RANK={os.environ['RANK']}; choose another MASTER_PORT, or let torchrun choose one: {_START}"
            ) from error
        raise LostWorkerError(
            f"the processes did not find each other within {timeout_s:g} s ({wanted}): {first}"
        ) from error
    atexit.register(_destroy_groups)


class _PortCheck:
    """Notices that what listens where rank 0 should does not answer as rank 0 does."""

    def __init__(self, kind: str, wanted: str) -> None:
        self._kind, self._wanted, self._connections = kind, wanted, 0

    def __call__(self) -> None:
        """Try to connect; rank 0's store answers as soon as that succeeds."""
        try:
            address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            socket.create_connection(address, timeout=_LOOK_S).close()
        except OSError:
            self._connections = 0
            return
        self._connections += 1
        if self._connections >= _CONNECTIONS and os.environ["RANK"] != "0":
            raise ArgumentError(
                f"kvstore {self._kind!r}: what listens at the port is not rank 0 ({self._wanted}); another program "
                f"uses it, or rank 0 is stopped: choose another MASTER_PORT, or let torchrun choose one: {_START}"
            )


def _call_with_deadline(
    deadline: float, task: Callable[[], _Result], why: str, look: Callable[[], None] | None = None
) -> _Result:
    """Return what a task returns; torch waits without limit for a process that is stopped.

    Args:
        look: called every second meanwhile; what it raises ends the waiting.
    """
    answer: Future[_Result] = Future()

    def run() -> None:
        try:
            answer.set_result(task())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="dpmodule-join", daemon=True).start()
    last = deadline + _GRACE_S  # torch has its own limit, and knows more
    while not wait([answer], min(_LOOK_S, max(last - time.monotonic(), 0.0))).done:
        if time.monotonic() >= last:
            raise TimeoutError(why)
        if look is not None:
            look()
    return answer.result()


def _key_prefix() -> str:
    """Return what keys of this start begin with.

    torch 2.13 has processes that torchrun has started again meet in the store of the start before, where they would
    find addresses of processes that are gone. Over several machines the numbers of starts may differ.
    """
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    is_one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
    return f"start{start}" if is_one_machine and start != "0" else "default_pg"


def _destroy_groups() -> None:
    """End the groups, and their threads with them: one that frees a tensor after the interpreter has ended aborts."""
    _joined.clear()
    time.sleep(_FREE_S)  # without the interpreter's lock, which they need for that
    if dist.is_initialized():
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def _new_group(timeout_s: float) -> Ranks:
    """Return a group of its own over all processes, whose waits end in time whatever the program's group does."""

    def made() -> Ranks:
        store = dist.distributed_c10d._get_default_store()
        group = dist.new_group(backend=_backend(), timeout=timedelta(seconds=timeout_s))
        ranks = Ranks(group, timeout_s, store)
        ranks.barrier()
        return ranks

    try:
        found = _call_with_deadline(time.monotonic() + timeout_s, made, "a process is missing or stopped")
    except LostWorkerError:
        raise
    except (RuntimeError, TimeoutError) as error:
        raise LostWorkerError(
            f"the processes did not form a group within {timeout_s:g} s (timeout_s): {str(error).splitlines()[0]}"
        ) from error
    generators.set_rank(found.rank)
    atexit.register(found.close)
    return found
