"""``dpmodule train-agent``: train an agent on a task, and keep the best that it was."""

from __future__ import annotations

import math
import os
import sys
import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..agents.agent import options_file
from ..agents.create import create_task
from ..agents.parser import ParlaiParser
from ..agents.teachers import is_training
from ..base import ArgumentError, StateError
from ..module.interrupts import DeferredInterrupt
from . import agents, files
from .agent_checkpoint import AgentCheckpoint
from .agents import Options
from .files import Command, tell_resume

_FALLING = ("loss", "ppl", "mean_rank")
"""Metrics that are better when they are smaller."""

Report = Mapping[str, Any]


def run(parser: ParlaiParser, words: Sequence[str], command: Command) -> int:
    """Look at what may be wrong, then train; return the exit code."""
    opt = parser.parse_args(words, print_args=False)
    _check(opt, command)
    saved = AgentCheckpoint(opt)
    done = 0 if saved.state is None else saved.state["parleys"]
    agents.seed_all({**opt, "seed": int(opt.get("seed") or 0) + done})  # not what was drawn before
    agent = _agent(opt, saved.agent)
    with _world({**opt, **saved.world_options()}, agent) as world:
        saved.load_counts(world)
        training = _AgentTraining(opt, agent, world, command, saved)
        training.run()
        return training.verdict()
    raise KeyboardInterrupt  # at which the world has ended quietly


def _check(opt: Options, command: Command) -> None:
    """Refuse what cannot be trained or saved, before anything is loaded."""
    if not opt["task"]:
        raise ArgumentError("--task is not given; expected one such as reverse")
    if not is_training(opt["datatype"]):
        raise ArgumentError(
            f"--datatype is {opt['datatype']!r}; to train it has to be train or train:ordered"
        )
    if not opt["model"] and not opt["model_file"] and not opt["init_model"]:
        raise ArgumentError("there is no agent; name one by --model, or what has been saved by --model-file")
    path = opt["model_file"]
    if path is None:
        return
    files.check_output(path, "--model-file")
    if opt["overwrite"]:
        agents.remove(path)
    agents.refuse_others(opt, command)
    files.make_folder(path)


def _agent(opt: Options, saved: str | None) -> Any:
    """Return the agent that is going to be trained: as it was `saved`, if it was."""
    begin = saved or opt["init_model"]
    if begin is None:
        return agents.create(opt)
    return agents.create({**opt, "model_file": begin}, is_saved=True)


def _world(opt: Options, agent: Any) -> Any:
    """Return the world to train in."""
    world = create_task(opt, agent)
    teacher = world.get_agents()[0]
    try:
        if not getattr(teacher, "training", True):
            raise ArgumentError(
                f"--task is {opt['task']!r}, which asks for the split {teacher.datatype!r}, where nothing is learned"
            )
        if world.epoch_done():
            raise ArgumentError(f"--task is {opt['task']!r}, which has no examples to train on")
    except ArgumentError:
        world.shutdown()
        raise
    return world


class _AgentTraining:
    """Epochs of an agent in its world."""

    def __init__(
        self, opt: Options, agent: Any, world: Any, command: Command, saved: AgentCheckpoint
    ) -> None:
        self._opt = opt
        self._agent = agent
        self._world = world
        self._command = command
        self._metric = str(opt["validation_metric"])
        self._limit = opt["num_epochs"] if opt["num_epochs"] >= 0 else math.inf
        self._valid: Any = None
        self._saved = saved
        self._best: tuple[tuple[float, float], Report] | None = None
        if saved.state is not None and saved.state["best"] is not None:
            score, report = saved.state["best"]
            self._best = (score[0], score[1]), report
        self._last: Report = {}
        self._finished = 0 if saved.state is None else int(saved.state["finished"])
        self._is_within_parley = False

    def run(self) -> None:
        """Train, and save what has been reached if it is interrupted."""
        if self._opt["validation_every"]:
            self._open_validation()
        self._saved.load_rest(self._agent, self._world)
        try:
            with DeferredInterrupt() as interrupt:
                self._train(interrupt)
        except BaseException:
            self._save_interrupted()
            raise
        self._end()

    def _open_validation(self) -> None:
        """Make the world for validation; what has been saved before tells what is to be beaten."""
        opt = self._opt
        task = opt["evaltask"] or opt["task"]
        self._valid = create_task({**opt, "task": task, "datatype": "valid", "numthreads": 1}, self._agent)
        if self._valid.epoch_done():
            print(f"note: {task!r} has no examples for validation; the last state is kept", file=sys.stderr)
            self._valid = None
        elif (
            self._saved.state is None
            and opt["model_file"]
            and os.path.isfile(options_file(opt["model_file"]))
            and not opt["init_model"]
        ):
            self._validate("saved before", save=False)

    def _train(self, interrupt: DeferredInterrupt) -> None:
        world = self._world
        while self._finished < self._limit:
            began = time.monotonic()
            epoch = self._finished + 1
            self._epoch(min(epoch, self._limit), interrupt)
            self._last = world.report()
            seconds = max(time.monotonic() - began, 1e-9)
            total = self._last.get("total", 0)
            self._say(
                f"epoch {epoch}: {agents.shown(self._last)}; {seconds:.1f} s ({total / seconds:,.0f} a second)"
            )
            world.reset_metrics()
            every = self._opt["validation_every"]
            if self._valid is not None and (epoch % every == 0 or epoch >= self._limit):
                self._validate(f"epoch {epoch}", save=True)
            elif self._valid is None:
                self._save(self._opt["model_file"])
            self._finished = epoch
            if self._opt["save_every_n_secs"] > 0:
                self._saved.save(self._agent, world, self._best, epoch)

    def _epoch(self, until: float, interrupt: DeferredInterrupt) -> None:
        """Train until there have been so many epochs."""
        world = self._world
        with agents.progress(world.num_examples(), f"epoch {math.ceil(until)}", self._opt["quiet"]) as bar:
            while world.get_total_epochs() < until:
                self._is_within_parley = True
                agents.step(world, bar)
                self._is_within_parley = False
                if interrupt.requested:
                    raise KeyboardInterrupt
                if self._saved.is_due() and world.get_total_epochs() < until:  # else after the validation
                    self._saved.save(self._agent, world, self._best, self._finished)

    def _validate(self, when: str, save: bool) -> None:
        """Validate, and keep the agent if it is better than it was."""
        report = agents.evaluate(self._valid, "validation", self._opt["quiet"])
        report = {**report, "accuracy": report.get("accuracy", 0.0)}  # none if every reply lacks a text
        if self._metric not in report:
            names = ", ".join(name for name, value in report.items() if isinstance(value, (int, float)))
            raise ArgumentError(f"--validation-metric is {self._metric!r}, expected one of {names}")
        value = float(report[self._metric])
        # of two that are as good by the metric, the one with the smaller loss
        score = (-value if self._metric in _FALLING else value, -float(report.get("loss", 0.0)))
        is_best = self._best is None or score > self._best[0]
        if is_best:
            self._best = score, report
            if save:
                self._save(self._opt["model_file"])
        self._say(f"{when}: validation {agents.shown(report)}{' (best)' if is_best else ''}")

    def _save(self, path: str | None) -> None:
        if path:
            self._agent.save(path)

    def _save_interrupted(self) -> None:
        """Save the training, or the agent alone where it cannot be resumed exactly, and print the command for it."""
        if not self._opt["model_file"]:
            print("without --model-file nothing is saved", file=sys.stderr)
            return
        try:
            if self._saved.is_possible and not self._is_within_parley:
                path = self._saved.save(self._agent, self._world, self._best, self._finished)
                tell_resume(path, self._command)
            else:
                self._save_agent()
        except StateError:  # no batch has come yet
            tell_resume(None, self._command)
        except ArgumentError as error:
            print(f"note: {error}", file=sys.stderr)
            self._save_agent()
        except Exception as error:  # what ended the training may have broken the agent
            print(f"the agent could not be saved: {error}", file=sys.stderr)

    def _save_agent(self) -> None:
        """Save the agent alone, to begin another training with, for the epochs that are left."""
        done = self._settled()
        path = f"{self._opt['model_file']}.checkpoint-0"
        self._agent.save(path)
        left = [] if math.isinf(self._limit) else [f"{max(self._limit - done, 0):.4g}"]
        words = [*(["--num-epochs", *left] if left else []), "--init-model", path]
        tell_resume(path, self._command, words, {"-eps": 1, "--num-epochs": 1})

    def _settled(self) -> float:
        """Return how many epochs there have been, when nothing is on its way any more."""
        self._world.report()
        return float(self._world.get_total_epochs())

    def _end(self) -> None:
        """Tell what was written, and remove the checkpoints."""
        path = self._opt["model_file"]
        if path is None:
            return
        self._saved.remove()
        print(f"written: {', '.join(agents.saved_files(path)) or 'nothing, this agent has nothing to save'}")

    def verdict(self) -> int:
        """Print what has been reached, and return the exit code."""
        report = self._last if self._best is None else self._best[1]
        kind = "training" if self._best is None else "best validation"
        accuracy, target = float(report.get("accuracy", 0.0)), self._opt["target"]
        print(f"{kind} accuracy: {accuracy:.4f}")
        if target is not None and accuracy < target:
            print(f"the target of {target:.4f} was missed", file=sys.stderr)
            return 1
        return 0

    def _say(self, text: str) -> None:
        if not self._opt["quiet"]:
            print(text, flush=True)
