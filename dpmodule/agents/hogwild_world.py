"""`HogwildWorld`: workers that parley in copies of a world concurrently, without locks.

Source: Niu et al., "Hogwild!: A Lock-Free Approach to Parallelizing Stochastic Gradient Descent" (2011); ParlAI's
HogwildWorld of 2018.
"""

from __future__ import annotations

import contextlib
import gc
import math
import multiprocessing
import os
import sys
import threading
import time
import traceback
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from time import perf_counter
from typing import Any, NoReturn, TypeVar

import torch

from .._devices import generators
from ..base import ArgumentError, NotSupportedError, StateError
from ..streams.child import Channel
from ..streams.errors import UnpicklableError, WorkerStuck
from ..streams.launch import pack_target
from ..streams.supervisor import START_S, ProgressWatch, Supervisor
from ..streams.synchronization import Signal
from .agent import int_option
from .batch_world import BatchWorld, WorldWrapper, with_numbers, world_from_shared
from .mailboxes import Mailboxes, ParentEnd, WorkerEnd
from .teachers import is_training
from .worlds import MultiWorld, World

Result = TypeVar("Result")

START, PARLEY, RESET, CHECK, STOP = range(1, 6)
"""Commands to a worker: make the world, parley, begin a new epoch, check if the epoch is done, shut down."""

_NAMES = {START: "its start", PARLEY: "a parley", RESET: "a reset", CHECK: "a check", STOP: "its shutdown"}

_CHECK_S = 0.5
_CHECK_EVERY = 256
"""Number of parleys between two checks for dead workers if the parent never waits for long."""

_GRACE_S = 1.0


@dataclass
class WorkerSetup:
    """Description of a worker.

    Args:
        opt: options of its world; with ``batchsize`` above 1 it is a `BatchWorld` over the copy.
        index: number of the worker.
    """

    opt: Mapping[str, Any]
    shared: Mapping[str, Any]
    index: int
    entropy: tuple[int, ...]
    is_training: bool

    def world(self) -> World:
        """Make the worker's world."""
        if self.entropy:
            generators.seed_process((*self.entropy, self.index))
        world = world_from_shared(self.shared)
        return BatchWorld(self.opt, world) if self.opt.get("batchsize", 1) > 1 else world


def _serve(
    end: WorkerEnd, setup: WorkerSetup, world: World | None, note: Callable[[str, int], None] | None = None
) -> None:
    """Main loop of a worker: carry out orders."""
    parleys, training = 0, setup.is_training
    while (command := end.receive()) is not None:
        if command == START:
            world = setup.world() if world is None else world
        if world is None:
            continue
        if command == PARLEY:
            if note is not None:
                note("parley", parleys)
            began = perf_counter()
            world.parley()
            end.record_time(perf_counter() - began)
            parleys += 1
        elif command == RESET:
            world.reset()
        elif command == STOP:
            world.shutdown()
            end.finish()
            return
        is_over = world.epoch_done()
        end.finish(is_over and not training, is_over and training and command == PARLEY)


# processes


class _SharedItem:
    """Item of the shared state of a world, pickled alone, so that an error can name what cannot be pickled."""

    def __init__(self, owner: str, path: tuple[Any, ...], value: Any) -> None:
        self.owner = owner
        self.path = path
        self.value = value

    def __repr__(self) -> str:
        return f"{self.owner}.share()[{self.path[-1]!r}]"


def _shared_items(shared: Mapping[str, Any], path: tuple[Any, ...] = ()) -> Iterator[_SharedItem]:
    owner = getattr(shared.get("world_class") or shared.get("class"), "__name__", "world")
    for key, value in shared.items():
        if "world_class" in shared and key in ("agents", "worlds"):
            for number, part in enumerate(value):
                yield from _shared_items(part, (*path, key, number))
        else:
            yield _SharedItem(owner, (*path, key), value)


def _serve_process(channel: Channel, mailboxes: Mailboxes, setup: WorkerSetup) -> None:
    gc.freeze()  # garbage collection would write to every page that a forked worker shares with its parent
    _serve(WorkerEnd(mailboxes, setup.index, channel.fileno()), setup, None, channel.note)
    mailboxes.close()


class _ProcessWorkers:
    """Worker processes."""

    may_spin = True
    start_s = START_S

    def __init__(self, method: str) -> None:
        self._supervisor = Supervisor("hogwild", method, grace_s=_GRACE_S)

    def start(self, mailboxes: Mailboxes, setups: Sequence[WorkerSetup]) -> list[int]:
        """Start the workers, and return descriptors that become readable when one ends."""
        setup = setups[0]
        try:
            for setup in setups:
                self._supervisor.start(_serve_process, mailboxes, setup)
        except UnpicklableError:
            pack_target(_serve_process, (mailboxes, replace(setup, shared={}), *_shared_items(setup.shared)))
            raise
        return [fd for child in self._supervisor.children for fd in (child.fileno(), child.sentinel)]

    def failure(self) -> BaseException | None:
        """Return the exception of a failed worker, None if no worker has failed."""
        return self._supervisor.failure()

    def stuck(self, worker: int, how: str) -> BaseException:
        """Return the error for a stuck worker, with its Python stack."""
        return self._supervisor.children[worker].stuck(how)

    def close(self) -> bool:
        """End the workers; return True if they have ended."""
        self._supervisor.close()
        return True


# threads


class _ThreadWorkers:
    """Worker threads of this process; their worlds are made one after the other, before any thread starts."""

    may_spin = False
    start_s = 0.0

    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._errors: list[BaseException] = []
        self._alarm = Signal.create()

    def start(self, mailboxes: Mailboxes, setups: Sequence[WorkerSetup]) -> list[int]:
        """Start the workers, and return a descriptor that becomes readable when one fails."""
        worlds = [setup.world() for setup in setups]
        for setup, world in zip(setups, worlds):
            args = (
                WorkerEnd(mailboxes, setup.index, may_spin=False),
                setup,
                world,
                self._errors,
                self._alarm,
            )
            name = f"hogwild-{setup.index}"
            self._threads.append(threading.Thread(target=_serve_thread, args=args, name=name, daemon=True))
        for thread in self._threads:
            thread.start()
        return [self._alarm.read]

    def failure(self) -> BaseException | None:
        """Return the exception of a failed worker, None if no worker has failed."""
        return self._errors[0] if self._errors else None

    def stuck(self, worker: int, how: str) -> BaseException:
        """Return the error for a stuck worker, with its Python stack."""
        thread = self._threads[worker]
        frame = sys._current_frames().get(thread.ident or 0)
        stack = "".join(traceback.format_stack(frame)) if frame is not None else ""
        return WorkerStuck(f"worker {worker} {thread.name!r} (a thread) {how}; its Python stack:\n{stack}")

    def close(self) -> bool:
        """Wait for the workers to end; return True if they have."""
        deadline = time.monotonic() + _GRACE_S
        for thread in self._threads:
            if thread.ident is not None:
                thread.join(max(deadline - time.monotonic(), 0.0))
        are_gone = not any(thread.is_alive() for thread in self._threads)
        if are_gone:
            self._alarm.close()
        return are_gone


def _serve_thread(
    end: WorkerEnd, setup: WorkerSetup, world: World, errors: list[BaseException], alarm: Signal
) -> None:
    try:
        _serve(end, setup, world)
    except BaseException as error:  # the parent raises it
        errors.append(error)
        alarm.give()


def _close_if_owner(parent_end: ParentEnd, owner: int) -> None:
    if os.getpid() == owner:  # not in a process forked from it
        parent_end.close()


class HogwildWorkers:
    """A pool of workers, controlled by their parent.

    Args:
        timeout_s: longest time of an order while the parent waits, in seconds.
        ahead: largest number of parleys that a worker has before it has done the first one.
    """

    def __init__(self, setups: Sequence[WorkerSetup], mode: str, timeout_s: float, ahead: int) -> None:
        self._timeout_s = timeout_s
        self._count = 0
        self._next_check = 0.0
        self._progress = ProgressWatch()
        self._failure: BaseException | None = None
        self._group: _ProcessWorkers | _ThreadWorkers = (
            _ThreadWorkers() if mode == "thread" else _ProcessWorkers(mode)
        )
        self._mailboxes = Mailboxes(len(setups), ahead)
        self._parent_end = ParentEnd(self._mailboxes, self._group.may_spin)
        self.is_open = True
        weakref.finalize(self, _close_if_owner, self._parent_end, os.getpid())
        try:
            self._parent_end.watch(self._group.start(self._mailboxes, setups))
            self._send_all(START)
            self.wait_idle(timeout_s + self._group.start_s)
        except BaseException:
            self.close()
            raise

    def release(self, ahead: bool) -> None:
        """Let a worker parley; wait until one is free.

        Args:
            ahead: whether a worker with a pending parley counts as free.
        """
        parent_end = self._parent_end
        self._count += 1
        if not self.is_open or self._count % _CHECK_EVERY == 0:
            self._check()
        worker = parent_end.find_free(PARLEY, ahead)
        if worker is None:
            worker = self._await(partial(parent_end.find_free, PARLEY, ahead))
        parent_end.send(worker, PARLEY)

    def wait_idle(self, timeout_s: float | None = None) -> None:
        """Wait until all workers are idle.

        Args:
            timeout_s: timeout in place of the usual one, in seconds.
        """
        self._check_open()
        usual, self._timeout_s = self._timeout_s, self._timeout_s if timeout_s is None else timeout_s
        try:
            self._await(self._parent_end.all_idle)
        finally:
            self._timeout_s = usual

    def broadcast(self, command: int) -> None:
        """Send a command to all workers once they are idle, and wait until all have carried it out."""
        self.wait_idle()
        self._send_all(command)
        self.wait_idle()

    def _send_all(self, command: int) -> None:
        for worker in range(self._mailboxes.workers):
            self._parent_end.send(worker, command)

    def seem_done(self) -> bool:
        """Return True if no worker had anything left after its last order."""
        return self._parent_end.all_at_end()

    def is_over(self) -> bool:
        """Return True if no worker has anything left; busy workers are asked only if all others are done."""
        self._check_open()
        while True:
            idle = self._parent_end.idle()
            unsure = next((worker for worker in idle if not self._parent_end.is_at_end(worker)), None)
            if unsure is not None:
                self._parent_end.send(unsure, CHECK)
                if not self._await(partial(self._parent_end.answer, unsure)):
                    return False
            elif len(idle) == self._mailboxes.workers:
                return True
            else:
                self._await(partial(self._parent_end.more_idle_than, len(idle)))

    def epochs_ended(self) -> int:
        """Return the number of parleys that were the last ones of an epoch, in training."""
        return self._parent_end.epochs_ended()

    def stop(self) -> None:
        """Let the workers finish, shut down their worlds, and end."""
        if not self.is_open:
            return
        try:
            self.broadcast(STOP)
        finally:
            self.close()

    def close(self) -> None:
        """End the workers, even busy ones; further calls do nothing."""
        if not self.is_open:
            return
        self.is_open = False
        self._parent_end.close()
        if self._group.close():
            self._mailboxes.close()

    # waiting

    def _await(self, found: Callable[[], Result | None]) -> Result:
        """Call a function until its result is not None, and return it; wait in between."""
        news = self._parent_end.spin(found)
        while news is None:
            news = self._parent_end.wait(found)
            if self._parent_end.has_alarm or time.monotonic() > self._next_check:
                self._check()
        return news

    def _check_open(self) -> None:
        if not self.is_open:
            raise StateError(_ended_text(self._failure)) from self._failure

    def _check(self) -> None:
        """Raise if a worker has ended or makes no progress."""
        self._check_open()
        if (error := self._group.failure()) is not None:
            self._fail(error)
        self._next_check = time.monotonic() + min(_CHECK_S, self._timeout_s / 4)
        for worker in self._parent_end.busy():
            if self._progress.is_stuck(worker, self._parent_end.done(worker), self._timeout_s):
                current = _NAMES[self._parent_end.command(worker)]
                self._fail(
                    self._group.stuck(worker, f"has not finished {current} within {self._timeout_s:g} s")
                )

    def _fail(self, error: BaseException) -> NoReturn:
        self._failure = error
        self.close()
        raise error


def _ended_text(failure: BaseException | None) -> str:
    if failure is None:
        return "the HogwildWorld has been shut down; create a new one"
    return f"the workers of the HogwildWorld ended because of {type(failure).__name__}: {failure}; create a new one"


_MODES = ("fork", "spawn", "thread")
_TIMEOUT_S = 300.0
_AHEAD = 32


class HogwildWorld(WorldWrapper):
    """Workers with a copy of a world each.

    Every `parley` starts one parley of one worker's copy (for a whole batch, if ``batchsize`` is above 1), and returns
    while it runs. A worker has one pending parley at a time, or, if parleys are short, as many as take 4 ms together,
    up to ``opt["hogwild_ahead"]``, since waiting for each of them would take longer. N calls are exactly N parleys,
    even if `shutdown` follows. Methods that read results, such as `report`, wait for running parleys.

    Parameters must be in shared memory, as after ``model.share_memory()`` of torch, before `share` returns them;
    teachers of this package share their position and metrics. ``threadindex`` in the options, and in every dict that
    `share` returned, is the number of the worker, from 0.

    Modes, by ``opt["hogwild_mode"]``:

    * ``"fork"``, the default: forked processes; nothing is pickled.
    * ``"spawn"``, the default after CUDA is initialized in this process: new processes; all state is pickled.
    * ``"thread"``: threads of this process, with the same random generators.

    A process has one torch thread and its own random numbers, seeded by ``opt["seed"]``, or else by
    `dpmodule.random.seed`, and the number of the worker.

    An exception of a worker is raised by the next call that waits; a killed worker raises WorkerDied. Then all workers
    end, while the original world and its agents do not change.

    Args:
        opt: options: ``numthreads``: number of workers; ``batchsize``; ``hogwild_mode``; ``hogwild_timeout_s``: longest
            time of a parley while this process waits for it, in seconds (default 300); ``hogwild_ahead``: largest
            number of short parleys that a worker has pending (default 32; 1: always one at a time); ``seed``.
        world: the original world.

    Attributes:
        world: the original world.

    Raises:
        ArgumentError: an option has an invalid value, or an agent has no `share`.
        UnpicklableError: the shared state of an agent cannot be pickled for a process that is not forked.
        MemoryError: there is no shared memory left.
        WorkerDied, WorkerStuck, BaseException: a worker did not start.

    Example:
        >>> from dpmodule.agents import RepeatLabelAgent, create_task
        >>> opt = {"task": "reverse", "datatype": "valid", "numthreads": 2}
        >>> with create_task(opt, RepeatLabelAgent(opt)) as world:
        ...     while not world.epoch_done():
        ...         world.parley()
        ...     report = world.report()
        >>> report["accuracy"]
        1.0
    """

    def __init__(self, opt: Mapping[str, Any], world: World) -> None:
        super().__init__(opt, world.world if isinstance(world, BatchWorld) else world)
        workers = int_option(self.opt, "numthreads", 1)
        mode = _mode(self.opt)
        timeout_s = _timeout(self.opt)
        ahead = int_option(self.opt, "hogwild_ahead", _AHEAD)
        if isinstance(world, HogwildWorld):
            raise ArgumentError(
                "world is a HogwildWorld, expected a plain world for the copies of the workers"
            )
        self._is_training = is_training(self.opt.get("datatype") or "valid")
        self._ended = 0
        self._is_over = self._is_shut = False
        for agent in _agents(self.world):
            _prepare(agent, workers)
        entropy = () if mode == "thread" else _entropy(self.opt)
        works = []
        for index in range(workers):
            number = {"threadindex": index}
            shared = with_numbers(self.world.share(), number)
            works.append(WorkerSetup({**self.opt, **number}, shared, index, entropy, self._is_training))
        self._workers = HogwildWorkers(works, mode, timeout_s, ahead)
        self._ahead_until = self._last_ahead()

    def parley(self) -> None:
        self._is_over = False
        self._workers.release(self.total_parleys < self._ahead_until)
        self.update_counters()

    def epoch_done(self) -> bool:
        if not self._workers.is_open:
            self._is_over = self._is_over or self.world.epoch_done()
        elif self._is_training:
            epochs_ended = self._workers.epochs_ended()
            self._is_over = self._is_over or epochs_ended > self._ended
            self._ended = epochs_ended
        else:
            self._is_over = self._is_over or self._all_done()
        return self._is_over

    def _all_done(self) -> bool:
        may_be_done = self.world.epoch_done() or self._workers.seem_done()
        return may_be_done and self._workers.is_over()

    def reset(self) -> None:
        self._workers.wait_idle()
        self.world.reset()
        self._workers.broadcast(RESET)
        self._ended, self._is_over = self._workers.epochs_ended(), False
        self._ahead_until = self._last_ahead()

    def _last_ahead(self) -> float:
        """Return the number of parleys up to which workers have several of them pending.

        Near the end of an epoch they have one at a time, since the examples could run out.
        """
        if self._is_training:
            return math.inf
        most: int = self.opt.get("hogwild_ahead", _AHEAD) * self.opt.get("numthreads", 1)
        return self.total_parleys + self._examples() // self._rows() - most

    def reset_metrics(self) -> None:
        self._wait_idle()
        super().reset_metrics()

    def save_agents(self) -> None:
        self._wait_idle()
        super().save_agents()

    def _report(self) -> dict[str, Any]:
        self._wait_idle()
        return super()._report()

    def _wait_idle(self) -> None:
        """Wait for running parleys, if the workers have not ended."""
        if self._workers.is_open:
            self._workers.wait_idle()

    def _rows(self) -> int:
        return int(self.opt.get("batchsize") or 1)

    def get_acts(self) -> list[Any]:
        return self.world.get_acts()

    def display(self) -> NoReturn:
        self._refuse("display")

    def episode_done(self) -> NoReturn:
        self._refuse("episode_done")

    def _refuse(self, name: str) -> NoReturn:
        self.shutdown()
        raise NotSupportedError(
            f"HogwildWorld.{name} is not available with several workers, and the world has been shut down; "
            'use one worker: opt["numthreads"] = 1'
        )

    def shutdown(self) -> None:
        if self._is_shut:
            return
        self._is_shut = True
        try:
            self._workers.stop()
        finally:
            self.world.shutdown()

    def __exit__(self, kind: Any, error: Any, trace: Any) -> bool:
        # an exception of the block takes precedence over those of the workers
        with contextlib.suppress(*(() if kind is None else (Exception,))):
            self.shutdown()
        return kind is KeyboardInterrupt


def _mode(opt: Mapping[str, Any]) -> str:
    mode = opt.get("hogwild_mode")
    if mode is None:
        can_fork = "fork" in multiprocessing.get_all_start_methods()
        in_use: bool = torch.cuda.is_initialized()  # type: ignore[no-untyped-call]  # torch's
        return "fork" if can_fork and not in_use else "spawn"
    if mode not in _MODES:
        raise ArgumentError(f"hogwild_mode is {mode!r}, expected one of {', '.join(_MODES)}")
    return str(mode)


def _timeout(opt: Mapping[str, Any]) -> float:
    seconds = opt.get("hogwild_timeout_s", _TIMEOUT_S)
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not seconds > 0:
        raise ArgumentError(f"hogwild_timeout_s is {seconds!r}, expected a number of seconds above 0")
    return float(seconds)


def _entropy(opt: Mapping[str, Any]) -> tuple[int, ...]:
    """Return the entropy that seeds the random numbers of all workers."""
    seed = opt.get("seed")
    if seed is None:
        return generators.child_seed()
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ArgumentError(f"seed is {seed!r}, expected an integer")
    return (seed % 2**64,)


def _agents(world: World) -> list[Any]:
    """Return the agents of a world, or of all its tasks, each once."""
    worlds = world.worlds if isinstance(world, MultiWorld) else [world]
    agents = {id(agent): agent for part in worlds for agent in part.get_agents()}
    return list(agents.values())


def _prepare(agent: Any, workers: int) -> None:
    if not callable(getattr(agent, "share", None)):
        raise ArgumentError(
            f"agent {agent.getID()!r} ({type(agent).__name__}) has no share(), which {workers} workers need for their "
            "copies; derive it from Agent, define share(), or use one worker without a HogwildWorld: "
            'opt["numthreads"] = 1'
            if hasattr(agent, "getID")
            else f"an agent of type {type(agent).__name__} has no share(), which workers need for their copies"
        )
    if hasattr(agent, "expect_workers"):
        agent.expect_workers(workers)
