"""`HogwildWorld`: workers that parley in copies of a world concurrently, without locks.

Source: Niu et al., "Hogwild!: A Lock-Free Approach to Parallelizing Stochastic Gradient Descent" (2011); ParlAI's
HogwildWorld of 2018.
"""

from __future__ import annotations

import contextlib
import math
import multiprocessing
from collections.abc import Mapping
from typing import Any, NoReturn

import torch

from .._devices import generators
from ..base import ArgumentError, NotSupportedError
from .agent import int_option
from .batch_world import BatchWorld, WorldWrapper, with_numbers
from .hogwild_workers import RESET, HogwildWorkers, WorkerSetup
from .teachers import is_training
from .worlds import MultiWorld, World

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
