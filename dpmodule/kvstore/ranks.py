"""`Ranks`: the processes of a distributed run, connected by `torch.distributed`."""

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

from .._devices import generators
from ..base import ArgumentError, LostWorkerError
from ..context import num_gpus
from ..ndarray.row_sparse import RowSparseNDArray, sum_rows
from .heartbeat import Heartbeat
from .row_exchange import RowExchange, ShardedTable
from .transfer import BYTES, BucketReducer, from_buckets, to_buckets

_logger = logging.getLogger(__name__)

FLAGS = ("active", "bad", "overflow", "due", "stop", "interrupt", "terminate", "evaluate", "samples")
"""Flags that a process sends along with its gradients; see `Ranks.flags`."""

_VARIABLES = ("RANK", "WORLD_SIZE", "MASTER_ADDR", "MASTER_PORT")
_START = "torchrun --standalone --nproc-per-node 2 program.py"
_joined: dict[float, tuple[Any, Ranks]] = {}

_POLL_S = 1.0
_CONNECTIONS = 5
"""Number of successful connections, a second apart, after which the listener cannot be rank 0."""

_GRACE_S = 1.0
_FREE_S = 0.02
_Result = TypeVar("_Result")


class Ranks:
    """A group of numbered processes; all of them call every method, in the same order.

    Args:
        group: a group of `torch.distributed`; None for a single process.
        timeout_s: seconds without response after which a process is lost.
        store: the `torch.distributed` store of the group; None without a group.

    Attributes:
        rank: number of this process, from 0.
        size: number of processes.
        flags: numbers by the names in `FLAGS`, which each `sum` sends; see `reset_flags`.
        summed_flags: sums of the flags over all processes, from the last `sum`.
        rows: exchange of the rows that are spread over the processes.
    """

    def __init__(self, group: Any, timeout_s: float, store: Any) -> None:
        self._group = group
        self._timeout_s = timeout_s
        self.rank = 0 if group is None else dist.get_rank(group)
        self.size = 1 if group is None else dist.get_world_size(group)
        self.flags = _default_flags()
        self.summed_flags = dict(self.flags)
        self._heartbeat = None if self.size == 1 else Heartbeat(store, self.rank, self.size)
        self.rows = RowExchange(
            self.rank, self.size, self._gather_at_once, self._all_to_all, self._await_round
        )

    def sum(
        self,
        tensors: Sequence[torch.Tensor],
        reducer: BucketReducer | None = None,
        have_met: bool = False,
    ) -> list[torch.Tensor]:
        """Return the sums of tensors over all processes, which may share memory; also sum the flags.

        Args:
            reducer: a result of `reducer_for` for such tensors, which may already hold some of them.
            have_met: True if all processes are known to be here.

        Shape:
            tensors: any; the same in every process, as are their types.
            returns: the same.
        """
        flags = list(self.flags.values())
        if self.size == 1:
            self.summed_flags = dict(zip(FLAGS, flags))
            return list(tensors)
        if reducer is None:
            reducer = self.reducer_for(tensors)
        if not have_met:
            self.rows.meet()
        with self._watched():
            summed_flags, *sums = reducer.finish([torch.tensor(flags), *tensors])
        self.summed_flags = dict(zip(FLAGS, summed_flags.tolist()))
        return sums

    def sum_with_rows(
        self,
        tables: Sequence[ShardedTable],
        grads: Sequence[RowSparseNDArray],
        tensors: Sequence[torch.Tensor],
    ) -> tuple[list[RowSparseNDArray], list[torch.Tensor]]:
        """Return the sums of small tensors, and of the rows of tables that this process keeps; also sum the flags.

        Ranks are added in their order.

        Shape:
            tensors: any; the same in every process, as are their types.
        """
        flags = torch.tensor(list(self.flags.values()))
        rows, (summed, *sums) = self.rows.sum_rows(tables, grads, [flags, *tensors])
        self.summed_flags = dict(zip(FLAGS, summed.tolist()))
        return rows, sums

    def reducer_for(
        self, tensors: Sequence[torch.Tensor], likely: Sequence[int] = (), limit: int = BYTES
    ) -> BucketReducer:
        """Return a reducer that sums such tensors bucket by bucket.

        Args:
            tensors: tensors of the same shapes and types in every process.
            likely: positions of tensors that may be put before `sum` is called, in the expected order, equal in every
                process. They are counted from 1, as 0 is the position of the flags.
            limit: bytes of a bucket, equal in every process.
        """
        order = dict.fromkeys([*likely, *range(len(tensors), 0, -1), 0])
        return BucketReducer([torch.zeros(len(FLAGS)), *tensors], list(order), limit, self._start_sum)

    def _start_sum(self, flat: torch.Tensor) -> Any:
        if self._group is None:
            raise RuntimeError("the process group has been aborted")
        return dist.all_reduce(flat, group=self._group, async_op=True)

    def reset_flags(self) -> None:
        """Reset the flags to those of an active process."""
        self.flags = _default_flags()

    def total(self, number: float) -> float:
        """Return the sum of a number over all processes."""
        return (
            number if self.size == 1 else self._reduced([torch.tensor(number, dtype=torch.float64)])[0].item()
        )

    def mean(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the means of tensors over all processes."""
        return [total / self.size for total in self._reduced(tensors)] if self.size > 1 else list(tensors)

    def _reduced(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        buckets = to_buckets(tensors)
        self.rows.meet()
        with self._watched():
            for work in [self._start_sum(bucket.flat) for bucket in buckets]:
                work.wait()
        return from_buckets(buckets, tensors)

    def sum_rows(self, arrays: Sequence[RowSparseNDArray]) -> list[RowSparseNDArray]:
        """Return the sums of row-sparse arrays over all processes; only stored rows are sent."""
        if self.size == 1 or not arrays:
            return list(arrays)
        counts = self._gathered(torch.tensor([array.parts()[0].numel() for array in arrays]))
        sums = []
        for i, array in enumerate(arrays):
            rows, values = array.parts()
            most = max(int(count[i]) for count in counts)
            gathered = zip(self._gathered(_padded(rows, most)), self._gathered(_padded(values, most)), counts)
            parts = [
                RowSparseNDArray(v[: int(n[i])], r[: int(n[i])], array.shape, array.context)
                for r, v, n in gathered
            ]
            sums.append(sum_rows(parts, array.context))
        return sums

    def gather_tensor(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        """Return the tensor of every process, in the order of ranks; all have the same shape."""
        return [tensor] if self.size == 1 else self._gathered(tensor)

    def _gathered(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        self.rows.meet()
        return self._gather_at_once(tensor)

    def _gather_at_once(self, tensor: torch.Tensor) -> list[torch.Tensor]:
        if self.size == 1:
            return [tensor]
        tensors = [torch.empty_like(tensor, memory_format=torch.contiguous_format) for _ in range(self.size)]
        with self._watched():
            dist.all_gather(tensors, tensor.contiguous(), group=self._group)
        return tensors

    def _all_to_all(self, tensor: torch.Tensor, sent: list[int], received: list[int]) -> torch.Tensor:
        if self.size == 1:
            return tensor
        found = tensor.new_empty(sum(received))
        with self._watched():
            dist.all_to_all_single(found, tensor, received, sent, group=self._group)
        return found

    def gather(self, value: Any) -> list[Any]:
        """Return plain data and arrays of every process, in the order of ranks."""
        if self.size == 1:
            return [value]
        values: list[Any] = [None] * self.size
        self.rows.meet()
        with self._watched():
            dist.all_gather_object(values, value, group=self._group)
        return values

    def exchange(self, parts: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Send a tensor to each process, and return theirs.

        Shape:
            parts[i]: (n,), of any length; all of one type, on the CPU.
            returns[i]: (m,).
        """
        sent = [len(part) for part in parts]
        received = [counts[self.rank] for counts in self.gather(sent)]
        return list(torch.split(self._all_to_all(torch.cat(list(parts)), sent, received), received))

    def check_same(self, what: str, values: Mapping[str, Any]) -> None:
        """Raise ArgumentError in all processes if values differ between them.

        Args:
            values: plain data by name, with the same names in every process.
        """
        first, *others = self.gather(dict(values))
        for rank, other in enumerate(others, 1):
            for name in dict.fromkeys([*first, *other]):
                expected, value = first.get(name), other.get(name)
                if repr(expected) != repr(value):  # NaN equals itself
                    raise ArgumentError(
                        f"{what}: {name} is {expected!r} on rank 0 and {value!r} on rank {rank}; "
                        "use the same value in all processes"
                    )

    def broadcast(self, tensors: Sequence[torch.Tensor]) -> list[torch.Tensor]:
        """Return the tensors of rank 0, which may share memory."""
        buckets = [] if self.size == 1 else to_buckets(tensors)
        if buckets:
            self.rows.meet()
        for bucket in buckets:
            with self._watched():
                dist.broadcast(bucket.flat, group=self._group, group_src=0)
        return from_buckets(buckets, tensors)

    def barrier(self) -> None:
        """Wait until every process calls this."""
        self.total(0.0)

    @contextlib.contextmanager
    def _watched(self) -> Iterator[None]:
        """Convert errors of the exchange into one that names the lost process."""
        if self._group is None:
            raise LostWorkerError(f"rank {self.rank}: an earlier error aborted the process group")
        try:
            yield
        except (RuntimeError, ValueError) as error:
            raise LostWorkerError(self._lost_worker_message(error)) from error

    def _await_round(self, number: int, wait: bool) -> list[int]:
        """Note that this process enters a round; return the ranks that do not come in time if it waits for them.

        Raises:
            LostWorkerError: a process is lost.
        """
        if self._heartbeat is None:
            return []
        self._heartbeat.rounds = number
        late: list[int] = []
        silent: list[int] = []
        if wait:
            with self._watched():  # the store is in rank 0, which may be the lost one
                late, silent = self._heartbeat.await_round()
        if silent:
            error = TimeoutError("it did not come to an exchange")
            raise LostWorkerError(self._lost_worker_message(error, silent))
        return late

    def _lost_worker_message(self, error: Exception, silent: list[int] | None = None) -> str:
        """Return the message about lost processes; `silent` are their ranks, None if they are to be found."""
        self._abort_group()  # ends the waiting of the other processes
        if silent is None:
            silent = [] if self._heartbeat is None else self._heartbeat.silent_ranks()
        names = ", ".join(map(str, silent))
        first = str(error).splitlines()[0]
        if not silent:
            return (
                f"rank {self.rank} of {self.size}: another process aborted the exchange, or did not take part within "
                f"{self._timeout_s:g} s (timeout_s); see its own error ({first})"
            )
        what = f"rank {names} is" if len(silent) == 1 else f"ranks {names} are"
        return (
            f"rank {self.rank} of {self.size}: {what} gone or stopped, or did not answer within {self._timeout_s:g} s "
            f"(timeout_s); torchrun --max-restarts 3 with fit(checkpoint=..., resume='auto') resumes ({first})"
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
        """End the waiting of other processes for this one, which no longer takes part."""
        self._abort_group()

    def close(self) -> None:
        """Stop the heartbeat, and leave the group."""
        if self._heartbeat is not None:
            self._heartbeat.stop()
        self._group = None


def _default_flags() -> dict[str, float]:
    return {name: float(name == "active") for name in FLAGS}


def _padded(tensor: torch.Tensor, rows: int) -> torch.Tensor:
    missing = rows - tensor.shape[0]
    return torch.cat([tensor, tensor.new_zeros((missing, *tensor.shape[1:]))]) if missing else tensor


def join(kind: str, timeout_s: float) -> Ranks:
    """Return the group of all processes, from torchrun or the program, or a group of this process alone.

    Args:
        timeout_s: seconds without response after which a process is lost.
    """
    if not isinstance(timeout_s, (int, float)) or not timeout_s > 0:
        raise ArgumentError(f"kvstore {kind!r}: timeout_s is {timeout_s!r}, expected seconds, above 0")
    if not dist.is_available():
        return _single_process(kind, "this build of torch has no torch.distributed")
    if not dist.is_initialized():
        if not _is_started_with_others(kind):
            return _single_process(
                kind, f"there is neither torchrun nor a process group of the program; start it with {_START}"
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
    """Return True if environment variables describe several processes."""
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
    """Return the value of an environment variable that must be a number."""
    text = os.environ[name]
    if not text.strip().lstrip("+-").isdecimal() or not low <= int(text) < above:
        limit = f"WORLD_SIZE - 1 = {above - 1}" if name == "RANK" else str(above - 1)
        raise ArgumentError(
            f"kvstore {kind!r}: the environment has {name}={text}, expected a whole number from {low} to {limit}; "
            f"torchrun sets it: {_START}"
        )
    return int(text)


def _refuse_dmlc(kind: str) -> None:
    present = sorted(name for name in os.environ if name.startswith(("DMLC_ROLE", "DMLC_PS_", "DMLC_NUM_")))
    if present:
        raise ArgumentError(
            f"kvstore {kind!r}: {', '.join(present)} are set, as by MXNet's launcher, but there are no servers and no "
            f"scheduler here; unset these variables and start all workers with {_START}, on several machines with "
            "torchrun --nnodes 2 --nproc-per-node 1 --rdzv-backend c10d --rdzv-endpoint HOST:29500 program.py"
        )


def _backend() -> str:
    return "cpu:gloo,cuda:nccl" if num_gpus() and dist.is_nccl_available() else "gloo"


def _initialize(kind: str, timeout_s: float) -> None:
    timeout = timedelta(seconds=timeout_s)

    def connect() -> tuple[Any, int, int]:
        connected: tuple[Any, int, int] = next(rendezvous("env://", timeout=timeout))
        return connected

    def initialize() -> None:
        own = dist.PrefixStore(_key_prefix(), store)  # type: ignore[attr-defined]
        own.set_timeout(timeout)
        dist.init_process_group(_backend(), timeout=timeout, store=own, rank=rank, world_size=size)

    settings = ", ".join(f"{name}={os.environ[name]}" for name in _VARIABLES)
    deadline = time.monotonic() + timeout_s
    try:
        store, rank, size = _call_with_deadline(
            deadline, connect, "rank 0 does not answer", _PortCheck(kind, settings)
        )
        _call_with_deadline(deadline, initialize, "a process is missing or stopped")
    except ArgumentError:
        raise
    except (RuntimeError, ValueError, TimeoutError) as error:
        first = str(error).splitlines()[0]
        if "EADDRINUSE" in first:
            raise ArgumentError(
                f"kvstore {kind!r}: the port is in use ({settings}), by another program or by another process with "
                f"RANK={os.environ['RANK']}; choose another MASTER_PORT, or let torchrun choose one: {_START}"
            ) from error
        raise LostWorkerError(
            f"the processes did not find each other within {timeout_s:g} s ({settings}): {first}"
        ) from error
    atexit.register(_destroy_groups)


class _PortCheck:
    """Check that the listener at the port of rank 0 is rank 0."""

    def __init__(self, kind: str, settings: str) -> None:
        self._kind, self._settings, self._connections = kind, settings, 0

    def __call__(self) -> None:
        """Try to connect; the store of rank 0 answers once that succeeds."""
        try:
            address = os.environ["MASTER_ADDR"], int(os.environ["MASTER_PORT"])
            socket.create_connection(address, timeout=_POLL_S).close()
        except OSError:
            self._connections = 0
            return
        self._connections += 1
        if self._connections >= _CONNECTIONS and os.environ["RANK"] != "0":
            raise ArgumentError(
                f"kvstore {self._kind!r}: the listener at the port is not rank 0 ({self._settings}); another program "
                f"uses it, or rank 0 is stopped: choose another MASTER_PORT, or let torchrun choose one: {_START}"
            )


def _call_with_deadline(
    deadline: float, task: Callable[[], _Result], why: str, check: Callable[[], None] | None = None
) -> _Result:
    """Return the result of a task before a deadline; torch would wait forever for a stopped process.

    Args:
        check: called every second meanwhile; an error ends the waiting.
    """
    answer: Future[_Result] = Future()

    def run() -> None:
        try:
            answer.set_result(task())
        except BaseException as error:
            answer.set_exception(error)

    threading.Thread(target=run, name="dpmodule-join", daemon=True).start()
    last = deadline + _GRACE_S  # torch has its own limit and reports more
    while not wait([answer], min(_POLL_S, max(last - time.monotonic(), 0.0))).done:
        if time.monotonic() >= last:
            raise TimeoutError(why)
        if check is not None:
            check()
    return answer.result()


def _key_prefix() -> str:
    """Return the prefix of store keys for this start.

    torch 2.13 reuses the store when torchrun restarts processes, so that they would find addresses of exited processes.
    On several machines the restart counts may differ.
    """
    start = os.environ.get("TORCHELASTIC_RESTART_COUNT", "0")
    is_one_machine = os.environ.get("LOCAL_WORLD_SIZE") == os.environ["WORLD_SIZE"]
    return f"start{start}" if is_one_machine and start != "0" else "default_pg"


def _destroy_groups() -> None:
    """Destroy the groups with their threads, which abort if they free a tensor after the interpreter has exited."""
    _joined.clear()
    time.sleep(_FREE_S)  # releases the interpreter lock, which the threads need
    if dist.is_initialized():
        with contextlib.suppress(RuntimeError):
            dist.destroy_process_group()


def _new_group(timeout_s: float) -> Ranks:
    """Return a separate group over all processes, whose timeout is independent of the program's group."""

    def make() -> Ranks:
        store = dist.distributed_c10d._get_default_store()
        group = dist.new_group(backend=_backend(), timeout=timedelta(seconds=timeout_s))
        ranks = Ranks(group, timeout_s, store)
        ranks.barrier()
        return ranks

    try:
        ranks = _call_with_deadline(time.monotonic() + timeout_s, make, "a process is missing or stopped")
    except LostWorkerError:
        raise
    except (RuntimeError, TimeoutError) as error:
        raise LostWorkerError(
            f"the processes did not form a group within {timeout_s:g} s (timeout_s): {str(error).splitlines()[0]}"
        ) from error
    generators.set_rank(ranks.rank)
    atexit.register(ranks.close)
    return ranks
