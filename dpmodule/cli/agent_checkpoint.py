"""What ``dpmodule train-agent`` saves within epochs, and goes on from: the agent, and which examples it has had."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import Any

from ..agents.teachers import FixedDialogTeacher
from ..agents.worlds import MultiWorld
from ..base import ArgumentError, FileError, FileFormatError
from ..files.atomic import write_atomically
from ..files.file_kind import regular_file
from . import agent_options
from .agent_options import Options

__all__ = ["AgentCheckpoint"]

_SAME = ("task", "datatype", "batchsize", "numthreads", "batch_sort")
_FIELDS = {"version", "agent", "parleys", "ended", "size", "places", "best", *_SAME}
_VERSION = 1


class AgentCheckpoint:
    """A training's checkpoint: two saved agents in turn, and the file ``MODEL_FILE.trainstats``, which names the last.

    That file switches in one step, when the agent it names is whole; so a kill at any moment leaves a whole checkpoint.

    Args:
        opt: the options of the command.

    Raises:
        ArgumentError: what is asked for has no place to be noted; or the checkpoint is that of another training.
        FileError: it cannot be read.
        FileFormatError: it is damaged.

    Attributes:
        state: what there is to go on from; None: a training begins.
    """

    def __init__(self, opt: Options) -> None:
        self._opt = opt
        self._every_s = float(opt["save_every_n_secs"])
        self._next = time.monotonic() + self._every_s
        self.state: dict[str, Any] | None = None
        if self.is_wanted:
            self._check()
        if opt["overwrite"]:
            self.remove()
        if opt["resume"]:
            self.state = self._read()

    @property
    def is_wanted(self) -> bool:
        """Whether checkpoints are written, or gone on from."""
        return self._every_s > 0 or bool(self._opt["resume"])

    def _check(self) -> None:
        opt = self._opt
        if not opt["model_file"]:
            raise ArgumentError(
                "--save-every-n-secs and --resume need a --model-file, beside which they save"
            )
        if "stream" in opt["datatype"].split(":") or opt.get("max_batch_tokens") is not None:
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
        try:
            with open(self._path, encoding="utf-8", opener=regular_file) as file:
                state = json.load(file)
        except FileNotFoundError:
            return None
        except OSError as error:
            raise FileError(error.errno or 0, error.strerror or str(error), self._path) from error
        except ValueError as error:
            raise FileFormatError(f"{self._path}: damaged: {error}") from error
        if not isinstance(state, dict) or not state.keys() >= _FIELDS or state["version"] != _VERSION:
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
        if not self.is_wanted:
            return {}
        return {"places": {} if self.state is None else self.state["places"]}

    @property
    def agent(self) -> str | None:
        """Path of the saved agent to go on with, None if a training begins."""
        if self.state is None:
            return None
        return os.path.join(os.path.dirname(self._path), self.state["agent"])

    def load_counts(self, world: Any) -> None:
        """Let a world have parleyed as often as the one that was saved.

        Raises:
            ArgumentError: its task has other examples now.
        """
        if self.state is None:
            return
        if _size(world) != self.state["size"]:
            raise ArgumentError(
                f"--resume: the task had {self.state['size']} examples and episodes, and has {_size(world)} now; "
                "--overwrite begins anew"
            )
        world.total_parleys, world._ended_epochs = self.state["parleys"], self.state["ended"]

    # saving

    def is_due(self) -> bool:
        """Say whether so many seconds are over."""
        return self._every_s > 0 and time.monotonic() >= self._next

    def save(self, agent: Any, world: Any, best: Any) -> None:
        """Save, when nothing is on its way in the workers any more.

        Args:
            agent: what is trained.
            world: where.
            best: score and report of the best validation so far, None if there was none.
        """
        if self._every_s <= 0:
            return
        if self.state is None:
            self.remove()  # of another training, whose agent would be written over
        world.report()  # waits for what is on its way
        last = "1" if self.state is not None and self.state["agent"].endswith("0") else "0"
        path = f"{self._opt['model_file']}.checkpoint-{last}"
        agent.save(path)
        self.state = {
            "version": _VERSION,
            "agent": os.path.basename(path),
            "parleys": world.total_parleys,
            "ended": world._ended_epochs,
            "size": _size(world),
            "places": _places(world),
            "best": best,
            **{name: self._opt.get(name) for name in _SAME},
        }
        write_atomically(self._path, json.dumps(self.state).encode())
        self._next = time.monotonic() + self._every_s

    def remove(self) -> None:
        """Remove what was saved, when the training is over."""
        if self.is_wanted and os.path.exists(self._path):
            os.unlink(self._path)
            for number in "01":
                path = f"{self._opt['model_file']}.checkpoint-{number}"
                agent_options.remove(path)
                if os.path.isfile(path):  # some agents save there, and nowhere else
                    os.unlink(path)


def _size(world: Any) -> list[int]:
    return [world.num_examples(), world.num_episodes()]


def _places(world: Any) -> Mapping[str, Any]:
    """Return where the teachers of a world stand, by their names.

    Raises:
        ArgumentError: one cannot tell.
    """
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
