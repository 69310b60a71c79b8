"""What ``dpmodule train-agent`` saves within epochs, and goes on from: the agent, and which examples it has had."""

from __future__ import annotations

import io
import os
import time
from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np

from .._devices import generators
from .._files import write_atomically
from .._object_state import random_generators, set_state, state_of
from ..agents.network import Network
from ..agents.teachers import FixedDialogTeacher
from ..agents.worlds import MultiWorld
from ..base import ArgumentError, FileFormatError
from ..checkpoint import run_format
from . import agents
from .agents import Options

_SAME = ("task", "datatype", "batchsize", "numthreads", "batch_sort")
_FIELDS = {
    "version",
    "agent",
    "parleys",
    "ended",
    "finished",
    "size",
    "places",
    "best",
    "optimizer",
    "copies",
}
_FIELDS |= {"generators", "own_generators", *_SAME}
_VERSION = 1


class AgentCheckpoint:
    """A training's checkpoint: two saved agents in turn, and the file ``MODEL_FILE.trainstats``, which names the last.

    That file switches in one step, when the agent it names is whole; so a kill at any moment leaves a whole checkpoint.

    Attributes:
        state: what there is to go on from; None: a training begins.
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
        """Whether there is a place to save at, and episodes have numbers, as far as the options tell."""
        opt = self._opt
        has_numbers = "stream" not in opt["datatype"].split(":") and opt.get("max_batch_tokens") is None
        return bool(opt["model_file"]) and has_numbers

    def _check(self) -> None:
        opt = self._opt
        if not opt["model_file"]:
            raise ArgumentError(
                "--save-every-n-secs and --resume need a --model-file, beside which they save"
            )
        if not self.is_possible:
            raise ArgumentError(
                "--save-every-n-secs and --resume go with episodes that have numbers: not with --datatype "
                "train:stream, and not with --max-batch-tokens"
            )
        if opt["init_model"] and opt["resume"]:
            raise ArgumentError(
                "--init-model begins a training, and --resume goes on with one; give one of them"
            )

    @property
    def _path(self) -> str:
        return f"{self._opt['model_file']}.trainstats"

    def _read(self) -> dict[str, Any] | None:
        if not os.path.exists(self._path):
            return None
        state = run_format.read(self._path)
        if not state.keys() >= _FIELDS or state["version"] != _VERSION:
            raise FileFormatError(f"{self._path}: not what train-agent of this version saves")
        wrong = [
            f"--{name} was {state[name]!r}, is {self._opt.get(name)!r}"
            for name in _SAME
            if state[name] != self._opt.get(name)
        ]
        if wrong:
            raise ArgumentError(
                f"--resume: the training under {self._path} was another one: {'; '.join(wrong)}"
            )
        return state

    # beginning

    def world_options(self) -> dict[str, Any]:
        """Return the options by which teachers note their places, and go on from those that were saved."""
        if not self.is_possible:
            return {}
        return {"places": {} if self.state is None else self.state["places"]}

    @property
    def agent(self) -> str | None:
        """Path of the saved agent to go on with, None if a training begins."""
        if self.state is None:
            return None
        return os.path.join(os.path.dirname(self._path), self.state["agent"])

    def load_counts(self, world: Any) -> None:
        """Let a world have parleyed as often as the one that was saved."""
        if self.state is None:
            return
        if _size(world) != self.state["size"]:
            raise ArgumentError(
                f"--resume: the task had {self.state['size']} examples and episodes, and has {_size(world)} now; "
                "--overwrite begins anew"
            )
        world.total_parleys, world._ended_epochs = self.state["parleys"], self.state["ended"]

    def load_rest(self, agent: Any, world: Any) -> None:
        """Give an agent its optimizer's states, its copies their dialogues, and all random generators their states."""
        if self.state is None:
            return
        if self.state["optimizer"] is not None:
            agent.network.preload_states(self.state["optimizer"].tobytes())
        for each, state in zip(_copies(world), self.state["copies"]):
            each.load_state_dict(state)
        here = random_generators({"agent": agent, "world": world})
        for path in here.keys() & self.state["own_generators"].keys():
            set_state(here[path], self.state["own_generators"][path])
        generators.load_state_dict(self.state["generators"])

    # saving

    def is_due(self) -> bool:
        """Say whether so many seconds are over."""
        return self._every_s > 0 and time.monotonic() >= self._next

    def save(self, agent: Any, world: Any, best: Any, finished: int) -> str:
        """Save, when nothing is on its way in the workers any more, and return the file.

        Args:
            best: score and report of the best validation so far, None if there was none.
        """
        if self.state is None:
            self.remove()  # of another training, whose agent would be written over
        world.report()  # waits for what is on its way
        places = _places(world)
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
            "places": places,
            "best": best,
            "optimizer": None if states is None else np.frombuffer(states, np.uint8).copy(),
            "copies": [each.state_dict() for each in _copies(world)],
            "generators": generators.state_dict(),
            "own_generators": {path: state_of(each) for path, each in own.items()},
            **{name: self._opt.get(name) for name in _SAME},
        }
        packed = io.BytesIO()
        run_format.write(packed, self.state)
        write_atomically(self._path, packed.getvalue())
        self._next = time.monotonic() + self._every_s
        return self._path

    def remove(self) -> None:
        """Remove what was saved, when the training is over."""
        if self.is_possible and os.path.exists(self._path):
            os.unlink(self._path)
            for number in "01":
                path = f"{self._opt['model_file']}.checkpoint-{number}"
                agents.remove(path)
                if os.path.isfile(path):  # some agents save there, and nowhere else
                    os.unlink(path)


def _size(world: Any) -> list[int]:
    return [world.num_examples(), world.num_episodes()]


def _places(world: Any) -> Mapping[str, Any]:
    """Return where the teachers of a world stand, by their names."""
    plain = getattr(world, "world", world)
    worlds = plain.worlds if isinstance(plain, MultiWorld) else [plain]
    found = {}
    for each in worlds:
        teacher = each.get_agents()[0]
        place = teacher.places_dict() if isinstance(teacher, FixedDialogTeacher) else None
        if place is None:
            raise ArgumentError(
                f"--save-every-n-secs: the teacher {type(teacher).__name__} of {teacher.getID()!r} does not number its "
                "episodes, as a FixedDialogTeacher does"
            )
        found[teacher.getID()] = place
    return found


def _copies(world: Any) -> list[Any]:
    """Return the agents of a world and of its copies that say what was said in their episodes, each once."""
    found = {id(each): each for each in _agents(world) if hasattr(each, "load_state_dict")}
    return list(found.values())


def _agents(world: Any) -> Iterator[Any]:
    yield from world.get_agents()
    for each in getattr(world, "worlds", ()):
        yield from _agents(each)
