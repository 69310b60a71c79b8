"""`DataLoader`: torch's DataLoader, whose workers send batches through shared memory that is used again."""

from __future__ import annotations

import atexit
import contextlib
import copy
import errno
import itertools
import os
import queue
import select
import signal
import socket
import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import partial
from multiprocessing import reduction
from typing import Any, TypeVar

import torch
from torch._utils import ExceptionWrapper
from torch.utils.data import dataloader as _torch

from ..base import ArgumentError
from . import parcels
from .child import Lifeline, hold_lifeline
from .errors import WorkerDied, WorkerStuck
from .launch import without_interrupts
from .worker_status import STACK_SIGNAL, WorkerStatus, how_it_ended, process_state

_LATEST_S = 0.5
"""Most seconds until the loss of a worker is noticed where no descriptor reports it."""
_EXIT_S = 1.0
"""Most seconds that a worker may take to end after its socket is closed."""

T_co = TypeVar("T_co", covariant=True)

_utils: Any = torch.utils.data._utils
_NO_BATCHES: Any = (ExceptionWrapper, _utils.worker._IterableDatasetStopIteration)
_Process: Any = _torch._MultiProcessingDataLoaderIter
_InProcess: Any = _torch._SingleProcessDataLoaderIter


@dataclass
class _Reports:
    """How errors report workers.

    Args:
        skipped: number of batches at the beginning that do not count.
        only_in_next: True to report them only in `next`, and not in torch's handler of signals.
    """

    owner: str = "the DataLoader"
    skipped: int = 0
    only_in_next: bool = False


class DataLoader(torch.utils.data.DataLoader[T_co]):
    """Load batches like `torch.utils.data.DataLoader`, which it extends: only their way from the workers differs.

    The arguments, the order, the seeds, the values and the errors are torch's. Batches may be any objects that pickle.
    Workers write tensors and NumPy arrays into shared memory, which the trainer maps once; torch opens a file for
    each tensor. So a batch of many small tensors costs little, and the number of open files does not depend on it.
    ``/dev/shm`` is not used.

    A batch is valid as long as something refers to it, and the loader waits for none of them. A tensor of 16 KB or
    more keeps the memory of its whole batch; clone it to keep it alone. What the trainer writes to a batch does not
    reach the worker. A worker that dies is noticed immediately: the cause of torch's error is a `WorkerDied` with the
    signal and the batch. After a `timeout`, it is a `WorkerStuck` with the worker's stack.

    `state_dict` and `load_state_dict` save and restore a position within an epoch, and with it the state of a dataset,
    or of an iterator over it, that has these two methods, too.

    Args:
        dataset: a map-style or iterable dataset; all arguments are those of torch's DataLoader.

    Example:
        >>> import torch
        >>> loader = DataLoader(torch.arange(6), batch_size=4)
        >>> [batch.tolist() for batch in loader]
        [[0, 1, 2, 3], [4, 5]]

    Without the native extension, tensors come in torch's way, each in a file; on a system other than Linux, the whole
    batch does.

    Source: `torch.utils.data.DataLoader`, whose workers it runs; torchdata's StatefulDataLoader for the state.
    """

    _position: _EpochPosition | None = None
    _resumed: Mapping[str, Any] | None = None
    _reports = _Reports()

    def __iter__(self) -> Any:
        state, self._resumed = self._resumed, None
        generators = self._generators()
        if state is None:
            self._position = _EpochPosition.now(generators)
            return super().__iter__()
        before = torch.get_rng_state()
        torch.set_rng_state(state["rng"])
        for generator, each in zip(generators, state["generators"]):
            generator.set_state(each)
        self._position = _EpochPosition.now(generators)
        self._position.is_resumed, self._position.to_skip = True, state["yielded"]
        self._position.datasets, self._position.turn = state["datasets"], state["turn"]
        try:
            return super().__iter__()
        finally:
            torch.set_rng_state(before)

    def report_as(self, owner: str, skipped: int) -> None:
        """Report workers as those of another class, which calls `next`.

        Args:
            skipped: number of batches at the beginning that do not count.
        """
        self._reports = _Reports(owner, skipped, only_in_next=True)

    @classmethod
    def from_torch(cls, loader: torch.utils.data.DataLoader[T_co]) -> DataLoader[T_co]:
        """Return a loader with the attributes of a loader of torch, which a library has made.

        Example:
            >>> import torch
            >>> [batch.tolist() for batch in DataLoader.from_torch(torch.utils.data.DataLoader(torch.arange(3)))]
            [[0], [1], [2]]
        """
        found: Any = copy.copy(loader)
        found.__class__ = cls
        found._iterator = None
        return found  # type: ignore[no-any-return]

    def _get_iterator(self) -> Any:
        if self.num_workers == 0:
            return _SingleProcessDataLoaderIter(self)
        self.check_worker_number_rationality()
        return _MultiProcessingDataLoaderIter(self)

    def state_dict(self) -> dict[str, Any]:
        """Return the position in the current epoch, for `load_state_dict`; `torch.save` can save it.

        Batches that workers have loaded in advance do not count. Random numbers that a dataset draws are not restored.
        A worker calls ``state_dict`` of its dataset after each batch.
        """
        if self._resumed is not None:
            return dict(self._resumed)
        position = self._position
        if position is None or position.is_over:
            position = _EpochPosition.now(self._generators())
        return {
            "yielded": position.yielded,
            "rng": position.rng,
            "generators": position.generators,
            "datasets": position.dataset_states(),
            "turn": position.turn,
            "order": self._order(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Begin the next iteration at a position; an iterable dataset without a state is iterated up to there.

        Raises:
            ArgumentError: `state` is not a result of `state_dict`, or its loader had another batch size, sampler or
                number of examples, or has states of the datasets of other numbers of workers.
        """
        keys = {"yielded", "rng", "generators", "datasets", "turn", "order"}
        if not isinstance(state, Mapping) or keys - set(state):
            raise ArgumentError(
                f"load_state_dict: state is {state!r:.80}, expected a result of this class's state_dict()"
            )
        differing = [
            f"its {what} is {state['order'].get(what)}, that of this loader {here}"
            for what, here in self._order().items()
            if state["order"].get(what) != here
        ]
        if differing:
            raise ArgumentError(
                f"load_state_dict: the state is of another loader: {'; '.join(differing)}; give this loader the same"
            )
        saved = state["datasets"]
        if saved is not None and len(saved) != max(1, self.num_workers):
            raise ArgumentError(
                f"load_state_dict: the state has those of {len(saved)} workers' datasets, but num_workers is "
                f"{self.num_workers}; give num_workers={len(saved)}"
            )
        self._resumed = dict(state)
        self._iterator = None  # workers that persist have begun another epoch

    def _order(self) -> dict[str, Any]:
        """Return what determines the batch at a position."""
        try:
            length = len(self.dataset)  # type: ignore[arg-type]
        except TypeError:
            length = None
        samplers = {
            "sampler": type(self.sampler).__name__,
            "batch_sampler": type(self.batch_sampler).__name__,
        }
        return {"batch_size": self.batch_size, "number of examples": length, **samplers}

    def _generators(self) -> list[torch.Generator]:
        """Return the generators that determine the order."""
        sources = (self, self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None))
        found = [getattr(each, "generator", None) for each in sources]
        return list({id(each): each for each in found if isinstance(each, torch.Generator)}.values())


@dataclass
class _EpochPosition:
    """Position of an iteration, and the random states at its beginning.

    Args:
        datasets: state of each worker's dataset after its last batch; None if they have none.
        turn: number of the worker whose batch is next.
        dataset: state of the dataset that this process reads.
    """

    rng: torch.Tensor
    generators: list[torch.Tensor]
    yielded: int = 0
    to_skip: int = 0
    is_resumed: bool = False
    is_over: bool = False
    datasets: list[Any] | None = None
    turn: int = 0
    dataset: _DatasetState | None = None

    @classmethod
    def now(cls, generators: list[torch.Generator]) -> _EpochPosition:
        return cls(torch.get_rng_state(), [each.get_state() for each in generators])

    def start(self, loader: Any) -> _LoaderView:
        """Return a view of the loader that begins at the position."""
        view = _LoaderView(loader)
        is_map = loader._dataset_kind == _torch._DatasetKind.Map
        if self.to_skip and is_map:
            view._index_sampler = _LaterBatches(loader._index_sampler, self.to_skip)
        if is_map or self.datasets is not None:
            self.yielded, self.to_skip = self.to_skip, 0
        return view

    def dataset_states(self) -> list[Any] | None:
        """Return the state of each worker's dataset; None if they have none."""
        if self.dataset is None or not self.yielded:
            return self.datasets and list(self.datasets)
        state = self.dataset.now()
        return None if state is None else [state]

    def reach(self, iterator: Iterator[Any]) -> None:
        """Load and drop the batches of an iterable dataset before the position."""
        for _ in range(self.to_skip):
            next(iterator, None)
        self.to_skip = 0


class _DatasetState:
    """State of a dataset and of the iterator over it, in the process that reads it.

    Args:
        saved: a result of `now` to restore.
    """

    def __init__(self, saved: Any = None) -> None:
        self._saved = saved
        self._sources: list[Any] = []
        self._fetcher: Any = None

    def make_fetcher(self, make: Callable[[], Any], dataset: Any) -> Any:
        """Return what torch reads the dataset by, in the saved state."""
        saved, self._saved = self._saved, None
        states, has_ended = saved or ((None, None), False)
        if states[0] is not None:
            dataset.load_state_dict(states[0])
        fetcher = make()
        iterator: Any = getattr(fetcher, "dataset_iter", None)
        if states[1] is not None:
            iterator.load_state_dict(states[1])
        if has_ended:
            fetcher.ended = True
        both = dataset, None if iterator is dataset else iterator
        self._sources = [each if _has_state(each) else None for each in both]
        self._fetcher = fetcher
        return fetcher

    def now(self) -> Any:
        """Return the present state; None if there is none."""
        if not any(each is not None for each in self._sources):
            return None
        states = tuple(None if each is None else each.state_dict() for each in self._sources)
        return states, getattr(self._fetcher, "ended", False)


def _has_state(source: Any) -> bool:
    return hasattr(source, "state_dict") and hasattr(source, "load_state_dict")


@dataclass
class _BatchWithState:
    """A batch, and the state of the dataset after it."""

    batch: Any
    worker: int
    state: Any

    def pin_memory(self) -> _BatchWithState:
        """Return the batch in pinned memory; torch calls this."""
        return _BatchWithState(_utils.pin_memory.pin_memory(self.batch), self.worker, self.state)


class _LoaderView:
    """A loader with some other attributes."""

    _index_sampler: Any

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __getattr__(self, name: str) -> Any:
        return getattr(self._loader, name)


class _LaterBatches:
    """The indices of batches without the first ones, in the first iteration."""

    def __init__(self, batches: Any, skipped: int) -> None:
        self._batches, self._skipped = batches, skipped

    def __iter__(self) -> Iterator[Any]:
        skipped, self._skipped = self._skipped, 0
        yield from itertools.islice(self._batches, skipped, None)

    def __len__(self) -> int:
        return len(self._batches)


class _SingleProcessDataLoaderIter(_InProcess):  # type: ignore[misc]
    """torch's iterator, which counts its batches."""

    _sampler_iter: Any

    def __init__(self, loader: Any) -> None:
        self._position = position = loader._position
        position.dataset = _DatasetState(position.datasets and position.datasets[0])
        position.dataset.make_fetcher(partial(self._read, position.start(loader)), loader.dataset)
        if position.is_resumed:
            # the sampler draws its random numbers now, and not when the caller's state is back
            first = list(itertools.islice(self._sampler_iter, 1))
            self._sampler_iter = itertools.chain(first, self._sampler_iter)
        position.reach(self)

    def _read(self, view: _LoaderView) -> Any:
        super().__init__(view)
        return self._dataset_fetcher

    def __next__(self) -> Any:
        return _counted(self, super().__next__)


def _counted(iterator: Any, call: Callable[[], Any]) -> Any:
    position = iterator._position
    try:
        found = call()
    except StopIteration:
        position.is_over = True
        raise
    position.yielded += 1
    return found


class _MultiProcessingDataLoaderIter(_Process):  # type: ignore[misc]
    """torch's iterator with another queue of results."""

    _worker_pids_set: bool

    def __init__(self, loader: Any) -> None:
        self._owner = os.getpid()
        _iterators.add(self)
        self._position, self._reports = loader._position, loader._reports
        self._results: _Results | None = None  # torch's queue
        if not hasattr(os, "eventfd"):
            self._position.datasets = None
        states = self._position.datasets
        view = self._position.start(loader)
        starting: contextlib.AbstractContextManager[None] = contextlib.nullcontext()
        if hasattr(os, "eventfd"):
            self._results = _Results(loader.num_workers, loader.prefetch_factor + 2, states)
            context = loader.multiprocessing_context or torch.multiprocessing
            view.multiprocessing_context = _Context(context, self._results)
            if context.get_start_method() == "fork":
                starting = without_interrupts()
        try:
            with starting:
                super().__init__(view)
        except BaseException:
            if self._results is not None:
                self._results.end()
            raise
        self._position.reach(self)

    def _reset(self, loader: Any, first_iter: bool = False) -> None:
        if not first_iter:
            self._position = loader._position
        elif self._results is not None:
            self._results.all_started()
        if self._reports.only_in_next:
            self._report_only_in_next()
        super()._reset(loader, first_iter)

    def _try_put_index(self) -> None:
        if not self._send_idx:
            for _ in range(self._position.turn):
                next(self._worker_queue_idx_cycle)
        super()._try_put_index()

    def __next__(self) -> Any:
        found = _counted(self, super().__next__)
        if type(found) is not _BatchWithState:
            return found
        position = self._position
        position.datasets = position.datasets or [None] * self._num_workers
        position.datasets[found.worker] = found.state
        position.turn = next(iter(self._task_info.get(self._rcvd_idx, ())), 0)
        return found.batch

    def leave(self) -> None:
        """Report no worker from now on."""
        if hasattr(self, "_worker_pids_set"):
            self._report_only_in_next()

    def _report_only_in_next(self) -> None:
        """Keep torch's handler of SIGCHLD, which raises anywhere in the main thread, from reporting workers."""
        if self._worker_pids_set:
            _utils.signal_handling._remove_worker_pids(id(self))
            self._worker_pids_set = False

    def _try_get_data(self, timeout: float = _utils.MP_STATUS_CHECK_INTERVAL) -> Any:
        if self._results is None:
            return super()._try_get_data(timeout)
        end = time.monotonic() + timeout
        while True:
            left = end - time.monotonic()
            try:
                return True, self._data_queue.get(timeout=max(0.0, min(left, _LATEST_S)))
            except queue.Empty as error:
                self._check_workers(error)
            except RuntimeError:
                if all(worker.exitcode is None for worker in self._workers):
                    raise
                continue  # torch's handler of SIGCHLD has raised it; results may still be there
            if left <= 0:
                return False, None

    def _get_data(self) -> Any:
        try:
            return super()._get_data()
        except RuntimeError as error:
            if isinstance(error.__cause__, WorkerDied):
                raise
            number = next(iter(self._task_info.get(self._rcvd_idx, ())), None)
            if "timed out" in str(error) and number is not None:
                raise error from self._stuck(number)
            dead = [number for number, worker in enumerate(self._workers) if worker.exitcode is not None]
            if "exited unexpectedly" in str(error) and dead:
                raise error from self._death(dead[0])
            raise

    def _stuck(self, number: int) -> WorkerStuck:
        """Return the error for a worker whose batch has not come in time, with its stack if it can be had."""
        status = None if self._results is None else self._results.statuses[number]
        pid = self._workers[number].pid
        state = process_state(pid)
        batch = self._rcvd_idx - self._reports.skipped
        text = f"worker {number} of {self._reports.owner} (process {pid}) has not sent batch {batch}"
        if status is not None and status.begun() and state != "T":
            os.kill(pid, STACK_SIGNAL)
            lines = status.await_stack(_LATEST_S).splitlines()
            own = itertools.takewhile(lambda line: not line.endswith(" in _worker_loop"), lines)
            text = "\n".join([f"{text}. Its stack:", *own])
        return WorkerStuck(text + ("; it was stopped by a signal" if state == "T" else ""))

    def _check_workers(self, error: Exception) -> None:
        """Raise torch's error if a worker has ended before its work was done."""
        ended = set() if self._results is None else self._results.ended
        failed = []
        for number, worker in enumerate(self._workers):
            if self._workers_status[number]:
                if number in ended:
                    worker.join(_EXIT_S)
                if number in ended or not worker.is_alive():
                    failed.append((worker.pid, self._death(number)))
                    self._mark_worker_as_unavailable(number)
        if failed:
            pids = ", ".join(str(pid) for pid, _ in failed)
            death = failed[0][1]
            death.__cause__ = error
            raise RuntimeError(f"DataLoader worker (pid(s) {pids}) exited unexpectedly") from death

    def _death(self, number: int) -> WorkerDied:
        worker = self._workers[number]
        text = (
            f"worker {number} of {self._reports.owner} (process {worker.pid}) {how_it_ended(worker.exitcode)}"
        )
        batches = [batch for batch, info in self._task_info.items() if info == (number,)]
        if batches and min(batches) >= self._reports.skipped:
            text += f" before it sent batch {min(batches) - self._reports.skipped}"
        death = WorkerDied(text)
        death.index, death.name, death.pid, death.exitcode = number, worker.name, worker.pid, worker.exitcode
        return death

    def _shutdown_workers(self) -> None:
        is_exiting = _utils is None or _utils.python_exit_status is not False
        if is_exiting or self._owner != os.getpid() or getattr(self, "_shutdown", True):
            return
        if self._results is not None:
            self._results.hang_up()
        # a stopped worker handles no other signal; the garbage collector may have closed the queues, with which torch
        # ends workers, before it comes to the iterator
        lost = [
            worker
            for worker, indices in zip(self._workers, self._index_queues)
            if process_state(worker.pid) == "T" or _is_closed(indices)
        ]
        if lost:
            self._report_only_in_next()
        for worker in lost:
            worker.kill()
        super()._shutdown_workers()
        for worker in self._workers:
            if worker.is_alive():
                worker.kill()
        if self._results is not None:
            self._results.end()


def _is_closed(indices: Any) -> bool:
    """Return True if a queue of multiprocessing has stopped its thread."""
    closing = getattr(indices, "_close", None)
    return closing is not None and not closing.still_active()


class _Context:
    """A multiprocessing context for torch's iterator, whose first queue is that of the results."""

    def __init__(self, context: Any, results: _Results) -> None:
        self._context, self._results = context, results
        self._has_results = False
        self._blocked = signal.pthread_sigmask(signal.SIG_BLOCK, ())

    def __getattr__(self, name: str) -> Any:
        return getattr(self._context, name)

    def Queue(self) -> Any:
        if self._has_results:
            return self._context.Queue()
        self._has_results = True
        return self._results

    def Event(self) -> _DoneEvent:
        return _DoneEvent(os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK))

    def Process(self, target: Callable[..., Any], args: tuple[Any, ...]) -> Any:
        end = self._results.new_end()
        args = tuple(end if each is self._results else each for each in args)
        process = self._context.Process(target=_run_worker, args=(end, self._blocked, target, args))
        self._results.started.append((process, end))
        return process


class _DoneEvent:
    """An event like those of multiprocessing, but without a lock, which a killed worker would keep."""

    def __init__(self, fd: int) -> None:
        self._fd = fd
        self._poll = select.poll()
        self._poll.register(fd, select.POLLIN)

    def set(self) -> None:
        """Let all processes see the event."""
        os.eventfd_write(self._fd, 1)

    def is_set(self) -> bool:
        """Return True once a process has set the event."""
        return bool(self._poll.poll(0))

    def __reduce__(self) -> Any:
        return _rebuild_event, (reduction.DupFd(self._fd),)

    def __del__(self) -> None:
        os.close(self._fd)


def _rebuild_event(fd: Any) -> _DoneEvent:
    return _DoneEvent(fd.detach())


class _Results:
    """The queue of results as the trainer sees it: a socket for each worker.

    Args:
        spare: number of blocks of memory that a worker keeps although nothing uses them.
        states: of the workers' datasets, to restore.
    """

    def __init__(self, workers: int, spare: int, states: list[Any] | None) -> None:
        self._spare, self._states = spare, states or [None] * workers
        self._receivers: list[parcels.ParcelReceiver | parcels.TorchReceiver] = []
        self._lifelines: list[Lifeline] = []
        self.statuses: list[WorkerStatus] = []
        self._poll = select.poll()
        self._numbers: dict[int, int] = {}  # of workers, by descriptor
        self._ready: deque[int] = deque()
        self._own: deque[Any] = deque()
        self._wake_fd = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._poll.register(self._wake_fd, select.POLLIN)
        self._is_closed = False
        self._lock = threading.Lock()
        self.started: list[tuple[Any, _WorkerEnd]] = []
        self.ended: set[int] = set()
        _open.add(self)

    def new_end(self) -> _WorkerEnd:
        """Return the end of another worker."""
        self.all_started()
        is_native = parcels.are_native()
        near, far = socket.socketpair(type=socket.SOCK_SEQPACKET if is_native else socket.SOCK_STREAM)
        lifeline = Lifeline()
        number, status = len(self._receivers), WorkerStatus()
        self._receivers.append(parcels.ParcelReceiver(near) if is_native else parcels.TorchReceiver(near))
        self._lifelines.append(lifeline)
        self.statuses.append(status)
        self._numbers[near.fileno()] = number
        self._poll.register(near, select.POLLIN)
        fds = lifeline.child_fd, os.dup(status.fd)
        return _WorkerEnd(number, far, *fds, self._spare, _DatasetState(self._states[number]))

    def all_started(self) -> None:
        """Close the copies of the ends that belong to workers now."""
        for process, end in self.started:
            if process.pid is not None:
                self._lifelines[end.number].arm(process.pid)
            end.drop()
        self.started.clear()

    def get(self, timeout: float | None = None) -> Any:
        """Return the next result.

        Raises:
            Empty: there is none in time, or a worker has closed its end.
        """
        if not self._ready:
            self._wait(timeout)
        while self._ready:
            fd = self._ready.popleft()
            number = self._numbers.get(fd)
            if number is None:
                with contextlib.suppress(BlockingIOError):
                    os.eventfd_read(fd)
                if self._own:
                    return self._own.popleft()
                continue
            try:
                return self._receivers[number].receive()
            except (EOFError, OSError) as error:
                if getattr(error, "errno", None) == errno.EMFILE:
                    raise
                self._poll.unregister(fd)
                del self._numbers[fd]
                self.ended.add(number)
                raise queue.Empty from None
        raise queue.Empty

    def _wait(self, timeout: float | None) -> None:
        found = self._poll.poll(None if timeout is None else timeout * 1e3)
        self._ready.extend(fd for fd, _ in found)

    def put(self, item: Any) -> None:
        """Add a result in this process: torch wakes its thread for pinned memory by one."""
        self._own.append(item)
        os.eventfd_write(self._wake_fd, 1)

    def hang_up(self) -> None:
        """Let workers that are sending a result end."""
        for each in self._receivers:
            with contextlib.suppress(OSError):
                each.socket.shutdown(socket.SHUT_RDWR)

    def end(self) -> None:
        """Close all descriptors, and kill workers that still run; further calls do nothing."""
        with self._lock:
            if self._is_closed:
                return
            self._is_closed = True
        self.all_started()
        for lifeline in self._lifelines:
            lifeline.close()
        self._close_descriptors()

    def _close_descriptors(self) -> None:
        _open.discard(self)
        for receiver in self._receivers:
            receiver.close()
        for status in self.statuses:
            status.close()
        os.close(self._wake_fd)

    def cancel_join_thread(self) -> None:
        """Do nothing, since results are sent without a background thread."""

    def close(self) -> None:
        """Do nothing, since torch calls this before the workers have ended; see `end`."""

    def abandon(self) -> None:
        """Close the copies of all descriptors in a forked child."""
        if not self._is_closed:
            self._is_closed = True
            for lifeline in self._lifelines:
                lifeline.abandon()
            self._close_descriptors()


class _WorkerEnd:
    """The queue of results as a worker sees it."""

    def __init__(
        self,
        number: int,
        end: socket.socket,
        lifeline_fd: int,
        status_fd: int,
        spare: int,
        dataset: _DatasetState,
    ) -> None:
        self.number, self.socket, self.dataset = number, end, dataset
        self._lifeline_fd, self._status_fd, self._spare = lifeline_fd, status_fd, spare
        self._status: WorkerStatus | None = None
        self._sender: parcels.ParcelSender | parcels.TorchSender | None = None

    def __reduce__(self) -> Any:
        fds = [reduction.DupFd(fd) for fd in (self.socket.fileno(), self._lifeline_fd, self._status_fd)]
        return _rebuild_end, (self.number, fds, self._spare, self.dataset)

    def open(self) -> None:
        """Begin to use the end in its process."""
        hold_lifeline(self._lifeline_fd)
        self._status = WorkerStatus(self._status_fd)
        self._status.watch_stack()
        if self.socket.type == socket.SOCK_SEQPACKET:
            self._sender = parcels.ParcelSender(self.socket, self._spare)
            _collate_without_sharing()
        else:
            self._sender = parcels.TorchSender(self.socket)

    def put(self, item: Any) -> None:
        """Send a result, or the error if that fails."""
        try:
            state = None if item[1] is None else self.dataset.now()
            if state is not None and not isinstance(item[1], _NO_BATCHES):
                item = item[0], _BatchWithState(item[1], self.number, state)
            self._send(item)
        except Exception:
            where = f"in DataLoader worker process {self.number}"
            wrapped: Any = ExceptionWrapper
            self._send((item[0], wrapped(where=where)))

    def _send(self, item: Any) -> None:
        if self._sender is not None:
            with contextlib.suppress(ConnectionError):  # the trainer does not wait for it any longer
                self._sender.send(item)

    def cancel_join_thread(self) -> None:
        """Do nothing, since results are sent without a background thread."""

    def close(self) -> None:
        """Close the socket."""
        if self._sender is not None:
            self._sender.close()

    def drop(self) -> None:
        """Close the copy of the end in the process that has started the worker."""
        self.socket.close()
        os.close(self._status_fd)


def _rebuild_end(number: int, fds: list[Any], spare: int, dataset: _DatasetState) -> _WorkerEnd:
    end, lifeline, status = (each.detach() for each in fds)
    return _WorkerEnd(number, socket.socket(fileno=end), lifeline, status, spare, dataset)


def _run_worker(end: _WorkerEnd, blocked: set[int], loop: Callable[..., Any], args: tuple[Any, ...]) -> None:
    """Run torch's loop of a worker, which Ctrl-C ends without a message.

    Args:
        blocked: the signals that the trainer blocks while it starts no workers.
    """
    with contextlib.suppress(KeyboardInterrupt):
        signal.pthread_sigmask(signal.SIG_SETMASK, blocked)
        _run_loop(end, loop, args)


def _run_loop(end: _WorkerEnd, loop: Callable[..., Any], args: tuple[Any, ...]) -> None:
    end.open()
    kinds: Any = _torch._DatasetKind
    make_fetcher = kinds.create_fetcher
    kinds.create_fetcher = lambda kind, dataset, *options: end.dataset.make_fetcher(
        partial(make_fetcher, kind, dataset, *options), dataset
    )
    loop(*args)


def _collate_without_sharing() -> None:
    """Let `default_collate` stack tensors in the process's own memory."""
    collate: Any = _utils.collate
    functions = getattr(collate, "default_collate_fn_map", {})
    if functions.get(torch.Tensor) is getattr(collate, "collate_tensor_fn", None):
        functions[torch.Tensor] = _collate_tensors


def _collate_tensors(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Stack tensors as torch does, but not in new shared memory: a parcel copies them to its own."""
    first = batch[0]
    is_plain = type(first) is torch.Tensor and first.layout is torch.strided and first.device.type == "cpu"
    if is_plain and all(
        type(each) is torch.Tensor
        and each.shape == first.shape
        and each.dtype is first.dtype
        and not each.requires_grad
        for each in batch
    ):
        return torch.stack(batch, 0)
    return _utils.collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)


_iterators: weakref.WeakSet[_MultiProcessingDataLoaderIter] = weakref.WeakSet()


def _leave_workers() -> None:
    """Keep torch's handler of SIGCHLD from reporting workers that multiprocessing terminates at exit."""
    for each in list(_iterators):
        each.leave()


atexit.register(_leave_workers)  # runs before the function of multiprocessing, which was registered earlier

_open: set[_Results] = set()
"""The queues that are not closed: the garbage collector must not finalize their sockets before the iterators end."""


def _abandon_all() -> None:
    for each in list(_open):
        each.abandon()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_abandon_all)
