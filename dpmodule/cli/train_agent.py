"""``dpmodule train-agent``: train an agent on a task, keep the best checkpoint, and resume an interrupted training."""

from __future__ import annotations

import io
import math
import os
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import numpy as np

from .._devices import generators
from .._files import write_atomically
from .._object_state import random_generators, set_state, state_of
from ..agents.agent import options_file
from ..agents.create import create_task
from ..agents.network import Network
from ..agents.parser import ParlaiParser
from ..agents.teachers import FixedDialogTeacher, is_training
from ..agents.worlds import MultiWorld
from ..base import ArgumentError, FileFormatError, StateError
from ..checkpoint import run_format
from ..module.interrupts import DeferredInterrupt
from . import agents, saved_files
from .agents import Options
from .saved_files import Command, print_resume_command

_SMALLER_IS_BETTER = ("loss", "ppl", "mean_rank")
"""Metrics for which smaller is better."""

Report = Mapping[str, Any]


def train_agent(parser: ParlaiParser, words: Sequence[str], command: Command) -> int:
    """Check the options, then train; return the exit code."""
    opt = parser.parse_args(words, print_args=False)
    _check(opt, command)
    saved = AgentCheckpoint(opt)
    done = 0 if saved.state is None else saved.state["parleys"]
    agents.seed_all(
        {**opt, "seed": int(opt.get("seed") or 0) + done}
    )  # resumed runs draw other numbers than before
    agent = _agent(opt, saved.agent)
    with _world({**opt, **saved.world_options()}, agent) as world:
        saved.load_counts(world)
        training = _AgentTraining(opt, agent, world, command, saved)
        training.run()
        return training.exit_code()
    raise KeyboardInterrupt  # the world has suppressed it


def _check(opt: Options, command: Command) -> None:
    """Raise ArgumentError for options that cannot be trained or saved, before loading anything."""
    if not opt["task"]:
        raise ArgumentError("--task is not given; expected one such as reverse")
    if not is_training(opt["datatype"]):
        raise ArgumentError(f"--datatype is {opt['datatype']!r}; training needs train or train:ordered")
    if not opt["model"] and not opt["model_file"] and not opt["init_model"]:
        raise ArgumentError("no agent is given; name one with --model, or a saved one with --model-file")
    path = opt["model_file"]
    if path is None:
        return
    saved_files.check_output(path, "--model-file")
    if opt["overwrite"]:
        agents.remove(path)
    agents.check_same_agent(opt, command)
    saved_files.make_folder(path)


def _agent(opt: Options, saved: str | None) -> Any:
    """Return the agent to train, loaded from `saved` if given."""
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
                f"--task is {opt['task']!r}, the split {teacher.datatype!r}; agents learn only from train"
            )
        if world.epoch_done():
            raise ArgumentError(f"--task is {opt['task']!r}, which has no examples to train on")
    except ArgumentError:
        world.shutdown()
        raise
    return world


class _AgentTraining:
    """Training loop of an agent."""

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
        """Train; if interrupted, save the progress."""
        if self._opt["validation_every"]:
            self._open_validation()
        self._saved.load_states(self._agent, self._world)
        try:
            with DeferredInterrupt() as interrupt:
                self._train(interrupt)
        except BaseException:
            self._save_interrupted()
            raise
        self._end()

    def _open_validation(self) -> None:
        """Create the validation world; a saved agent gives the score to beat."""
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
            self._print(
                f"epoch {epoch}: {agents.format_report(self._last)}; {seconds:.1f} s ({total / seconds:,.0f} a second)"
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
        """Train until a number of epochs is reached."""
        world = self._world
        with agents.progress(world.num_examples(), f"epoch {math.ceil(until)}", self._opt["quiet"]) as bar:
            while world.get_total_epochs() < until:
                self._is_within_parley = True
                agents.step(world, bar)
                self._is_within_parley = False
                if interrupt.requested:
                    raise KeyboardInterrupt
                if (
                    self._saved.is_due() and world.get_total_epochs() < until
                ):  # otherwise it is saved after the validation
                    self._saved.save(self._agent, world, self._best, self._finished)

    def _validate(self, when: str, save: bool) -> None:
        """Validate, and save the agent if it is the best so far."""
        report = agents.evaluate(self._valid, "validation", self._opt["quiet"])
        report = {**report, "accuracy": report.get("accuracy", 0.0)}  # missing if no reply has a text
        if self._metric not in report:
            names = ", ".join(name for name, value in report.items() if isinstance(value, (int, float)))
            raise ArgumentError(f"--validation-metric is {self._metric!r}, expected one of {names}")
        value = float(report[self._metric])
        # the loss breaks ties
        score = (-value if self._metric in _SMALLER_IS_BETTER else value, -float(report.get("loss", 0.0)))
        is_best = self._best is None or score > self._best[0]
        if is_best:
            self._best = score, report
            if save:
                self._save(self._opt["model_file"])
        self._print(f"{when}: validation {agents.format_report(report)}{' (best)' if is_best else ''}")

    def _save(self, path: str | None) -> None:
        if path:
            self._agent.save(path)

    def _save_interrupted(self) -> None:
        """Save the training, or only the agent if it cannot be resumed exactly, and print the command to resume."""
        if not self._opt["model_file"]:
            print("nothing is saved, since --model-file is not given", file=sys.stderr)
            return
        try:
            if self._saved.is_possible and not self._is_within_parley:
                path = self._saved.save(self._agent, self._world, self._best, self._finished)
                print_resume_command(path, self._command)
            else:
                self._save_agent()
        except StateError:  # before the first batch
            print_resume_command(None, self._command)
        except ArgumentError as error:
            print(f"note: {error}", file=sys.stderr)
            self._save_agent()
        except Exception as error:  # the failure may also affect the agent
            print(f"the agent could not be saved: {error}", file=sys.stderr)

    def _save_agent(self) -> None:
        """Save only the agent, and print the command that trains it for the remaining epochs."""
        done = self._epochs_done()
        path = f"{self._opt['model_file']}.checkpoint-0"
        self._agent.save(path)
        left = [] if math.isinf(self._limit) else [f"{max(self._limit - done, 0):.4g}"]
        words = [*(["--num-epochs", *left] if left else []), "--init-model", path]
        print_resume_command(path, self._command, words, {"-eps": 1, "--num-epochs": 1})

    def _epochs_done(self) -> float:
        """Wait for the workers, and return the number of epochs so far."""
        self._world.report()
        return float(self._world.get_total_epochs())

    def _end(self) -> None:
        """Print the written files, and remove the checkpoints."""
        path = self._opt["model_file"]
        if path is None:
            return
        self._saved.remove()
        print(f"written: {', '.join(agents.saved_files(path)) or 'nothing, since this agent has no files'}")

    def exit_code(self) -> int:
        """Print the final accuracy, and return the exit code."""
        report = self._last if self._best is None else self._best[1]
        kind = "training" if self._best is None else "best validation"
        accuracy, target = float(report.get("accuracy", 0.0)), self._opt["target"]
        print(f"{kind} accuracy: {accuracy:.4f}")
        if target is not None and accuracy < target:
            print(f"the target of {target:.4f} was missed", file=sys.stderr)
            return 1
        return 0

    def _print(self, text: str) -> None:
        if not self._opt["quiet"]:
            print(text, flush=True)


# checkpoints

_FIXED_OPTIONS = ("task", "datatype", "batchsize", "numthreads", "batch_sort")
_FIELDS = {
    "version",
    "agent",
    "parleys",
    "ended",
    "finished",
    "size",
    "positions",
    "best",
    "optimizer",
    "copies",
}
_FIELDS |= {"generators", "own_generators", *_FIXED_OPTIONS}
_VERSION = 1


class AgentCheckpoint:
    """Checkpoint of a training: two agent files in turn, and ``MODEL_FILE.trainstats``, which names the last one.

    That file is replaced atomically when the agent is complete, so a process killed at any time leaves a valid
    checkpoint.

    Attributes:
        state: the state to resume; None: a new training.
    """

    def __init__(self, opt: Options) -> None:
        self._opt = opt
        self._every_s = float(opt["save_every_n_secs"])
        self._next = time.monotonic() + self._every_s
        self.state: dict[str, Any] | None = None
        if self._every_s > 0 or opt["resume"]:
            self._check()
        if opt["overwrite"]:
            self.remove()
        if opt["resume"]:
            self.state = self._read()

    @property
    def is_possible(self) -> bool:
        """True if there is a model file, and the options number episodes."""
        opt = self._opt
        has_numbers = "stream" not in opt["datatype"].split(":") and opt.get("max_batch_tokens") is None
        return bool(opt["model_file"]) and has_numbers

    def _check(self) -> None:
        opt = self._opt
        if not opt["model_file"]:
            raise ArgumentError("--save-every-n-secs and --resume need a --model-file to save to")
        if not self.is_possible:
            raise ArgumentError(
                "--save-every-n-secs and --resume need numbered episodes; they do not work with --datatype "
                "train:stream or --max-batch-tokens"
            )
        if opt["init_model"] and opt["resume"]:
            raise ArgumentError(
                "--init-model starts a training, and --resume continues one; give only one of them"
            )

    @property
    def _path(self) -> str:
        return f"{self._opt['model_file']}.trainstats"

    def _read(self) -> dict[str, Any] | None:
        if not os.path.exists(self._path):
            return None
        state = run_format.read(self._path)
        if not state.keys() >= _FIELDS or state["version"] != _VERSION:
            raise FileFormatError(f"{self._path}: not a checkpoint of this version of train-agent")
        wrong = [
            f"--{name} was {state[name]!r}, is {self._opt.get(name)!r}"
            for name in _FIXED_OPTIONS
            if state[name] != self._opt.get(name)
        ]
        if wrong:
            raise ArgumentError(
                f"--resume: {self._path} belongs to a training with other options: {'; '.join(wrong)}"
            )
        return state

    # beginning

    def world_options(self) -> dict[str, Any]:
        """Return the options that make teachers record their positions, and resume at saved ones."""
        if not self.is_possible:
            return {}
        return {"positions": {} if self.state is None else self.state["positions"]}

    @property
    def agent(self) -> str | None:
        """Path of the saved agent to resume, None for a new training."""
        if self.state is None:
            return None
        return os.path.join(os.path.dirname(self._path), self.state["agent"])

    def load_counts(self, world: Any) -> None:
        """Restore the counts of a world."""
        if self.state is None:
            return
        if _size(world) != self.state["size"]:
            raise ArgumentError(
                f"--resume: the task had {self.state['size']} examples and episodes, but has {_size(world)} now; "
                "--overwrite starts a new training"
            )
        world.total_parleys, world._ended_epochs = self.state["parleys"], self.state["ended"]

    def load_states(self, agent: Any, world: Any) -> None:
        """Restore the optimizer's states, the dialogues of copies, and the states of random generators."""
        if self.state is None:
            return
        if self.state["optimizer"] is not None:
            agent.network.preload_states(self.state["optimizer"].tobytes())
        for copy, state in zip(_stateful_agents(world), self.state["copies"]):
            copy.load_state_dict(state)
        generators_here = random_generators({"agent": agent, "world": world})
        for path in generators_here.keys() & self.state["own_generators"].keys():
            set_state(generators_here[path], self.state["own_generators"][path])
        generators.load_state_dict(self.state["generators"])

    # saving

    def is_due(self) -> bool:
        """Return True if it is time to save."""
        return self._every_s > 0 and time.monotonic() >= self._next

    def save(self, agent: Any, world: Any, best: Any, finished: int) -> str:
        """Wait for the workers, save, and return the file.

        Args:
            best: score and report of the best validation so far, None if there is none.
        """
        if self.state is None:
            self.remove()  # of another training, whose agent would be overwritten
        world.report()  # waits for the workers
        positions = _teacher_positions(world)
        last = "1" if self.state is not None and self.state["agent"].endswith("0") else "0"
        path = f"{self._opt['model_file']}.checkpoint-{last}"
        agent.save(path)
        network = getattr(agent, "network", None)
        states = network.optimizer_states() if isinstance(network, Network) else None
        own = random_generators({"agent": agent, "world": world})
        self.state = {
            "version": _VERSION,
            "agent": os.path.basename(path),
            "parleys": world.total_parleys,
            "ended": world._ended_epochs,
            "finished": finished,
            "size": _size(world),
            "positions": positions,
            "best": best,
            "optimizer": None if states is None else np.frombuffer(states, np.uint8).copy(),
            "copies": [copy.state_dict() for copy in _stateful_agents(world)],
            "generators": generators.state_dict(),
            "own_generators": {path: state_of(generator) for path, generator in own.items()},
            **{name: self._opt.get(name) for name in _FIXED_OPTIONS},
        }
        file = io.BytesIO()
        run_format.write(file, self.state)
        write_atomically(self._path, file.getvalue())
        self._next = time.monotonic() + self._every_s
        return self._path

    def remove(self) -> None:
        """Remove the checkpoint at the end of the training."""
        if self.is_possible and os.path.exists(self._path):
            os.unlink(self._path)
            for number in "01":
                path = f"{self._opt['model_file']}.checkpoint-{number}"
                agents.remove(path)
                if os.path.isfile(path):  # some agents save only this file
                    os.unlink(path)


def _size(world: Any) -> list[int]:
    return [world.num_examples(), world.num_episodes()]


def _teacher_positions(world: Any) -> Mapping[str, Any]:
    """Return the positions of the teachers of a world, by name."""
    plain = getattr(world, "world", world)
    worlds = plain.worlds if isinstance(plain, MultiWorld) else [plain]
    positions = {}
    for part in worlds:
        teacher = part.get_agents()[0]
        position = teacher.positions_dict() if isinstance(teacher, FixedDialogTeacher) else None
        if position is None:
            raise ArgumentError(
                f"--save-every-n-secs: the teacher {type(teacher).__name__} of {teacher.getID()!r} does not number its "
                "episodes, as a FixedDialogTeacher does"
            )
        positions[teacher.getID()] = position
    return positions


def _stateful_agents(world: Any) -> list[Any]:
    """Return the agents of a world and of its copies that have a state, each once."""
    stateful = {id(agent): agent for agent in _all_agents(world) if hasattr(agent, "load_state_dict")}
    return list(stateful.values())


def _all_agents(world: Any) -> Iterator[Any]:
    yield from world.get_agents()
    for copy in getattr(world, "worlds", ()):
        yield from _all_agents(copy)
