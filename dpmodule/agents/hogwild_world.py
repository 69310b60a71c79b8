"""`HogwildWorld`: workers that parley in copies of a world, all at the same time, without locks.

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

from ..base import ArgumentError, NotSupportedError
from ..devices import generators
from .agent import int_option
from .batch_world import BatchWorld, WorldWrapper, with_numbers
from .hogwild_workers import RESET, HogwildWorkers, WorkerSetup
from .teachers import is_training
from .worlds import MultiWorld, World

_MODES = ("fork", "spawn", "thread")
_TIMEOUT_S = 300.0
_AHEAD = 32


class HogwildWorld(WorldWrapper):
    """Workers, each of which has a copy of a world, made of what that shares.

    Every `parley` releases one worker for one parley of its copy (for a whole batch, if ``batchsize`` is above 1), and
    returns while that is under way. A worker has one parley before it at a time, or as many as take 4 ms together where
    they are short, up to ``opt["hogwild_ahead"]``: to wait for each of them would take longer than they do. N parleys
    are exactly N, also when `shutdown` follows. What counts in the original world, such as `report`, waits for what is
    under way.

    What copies learn has to lie in shared memory, as by ``model.share_memory()`` of torch before `share` hands it out;
    teachers of this package share their place among the examples and their metrics. ``threadindex`` in the options,
    and in every dict that `share` returned, tells a copy the number of its worker, from 0.

    Modes, by ``opt["hogwild_mode"]``:

    * ``"fork"``, the default: processes that begin as copies of this one; nothing has to be pickled.
    * ``"spawn"``, the default once CUDA is in use here: new processes, which get everything pickled.
    * ``"thread"``: threads of this process, which draw from the same random numbers.

    A process has one torch thread, and random numbers of its own, which follow from ``opt["seed"]``, or else from
    `dpmodule.random.seed`, and the number of the worker.

    A worker's exception is raised here, by whatever call comes next and waits; a worker that was killed raises
    WorkerDied. All workers are ended then, while the original world and its agents stay as they are.

    Args:
        opt: options: ``numthreads``: number of workers; ``batchsize``; ``hogwild_mode``; ``hogwild_timeout_s``: how
            long a worker may take for a parley while this process waits for it, in seconds (default 300);
            ``hogwild_ahead``: how many short parleys a worker may have before it at most (default 32; 1: always one at
            a time); ``seed``.
        world: the original world, of which each worker makes a copy.

    Attributes:
        world: the original world.

    Raises:
        ArgumentError: an option is no such thing, or an agent has no `share`.
        UnpicklableError: what an agent shares cannot be given to a process that is not forked.
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
                "world is a HogwildWorld itself, expected the plain world whose copies parley"
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
        may_be = self.world.epoch_done() or self._workers.seem_done()
        return may_be and self._workers.is_over()

    def reset(self) -> None:
        self._workers.wait_idle()
        self.world.reset()
        self._workers.broadcast(RESET)
        self._ended, self._is_over = self._workers.epochs_ended(), False
        self._ahead_until = self._last_ahead()

    def _last_ahead(self) -> float:
        """Return up to how many parleys workers are given some ahead.

        Near the end of an epoch they are not, since the examples could be gone before they come to them.
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
        """Wait for what is under way, if there still are workers."""
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
            f"HogwildWorld.{name} cannot tell what happens in the workers, and the world has been shut down; "
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
        # what ended the block counts, not what the workers say to it
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
    """Return what all workers' random numbers follow from."""
    seed = opt.get("seed")
    if seed is None:
        return generators.child_seed()
    if isinstance(seed, bool) or not isinstance(seed, int):
        raise ArgumentError(f"seed is {seed!r}, expected a whole number")
    return (seed % 2**64,)


def _agents(world: World) -> list[Any]:
    """Return the agents of a world, or of all its tasks, each once."""
    worlds = world.worlds if isinstance(world, MultiWorld) else [world]
    found = {id(agent): agent for each in worlds for agent in each.get_agents()}
    return list(found.values())


def _prepare(agent: Any, workers: int) -> None:
    if not callable(getattr(agent, "share", None)):
        raise ArgumentError(
            f"agent {agent.getID()!r} ({type(agent).__name__}) has no share(), of which {workers} workers would make "
            "their copies; derive it from Agent, give it one, or use one worker without a HogwildWorld: "
            'opt["numthreads"] = 1'
            if hasattr(agent, "getID")
            else f"an agent of type {type(agent).__name__} has no share(), of which workers would make their copies"
        )
    if hasattr(agent, "expect_workers"):
        agent.expect_workers(workers)
