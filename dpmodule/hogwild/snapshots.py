"""Snapshots of runs over files: what `AsyncExecutor.snapshot` writes, and how a run goes on from it."""

from __future__ import annotations

import io
import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from .. import checkpoint, run_file
from ..base import ArgumentError, FileError, FileFormatError
from ..callback.checkpoint import Checkpoint
from ..devices import generators
from ..files import settle
from ..module import Module
from ..module.run_state import differences, facts, load_optimizer_bytes, optimizer_bytes
from .data_feed_desc import DataFeedDesc
from .places import DONE

_KIND = "files"


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A snapshot that has been written.

    Args:
        state: what its ``.run`` file holds.
    """

    prefix: str
    epoch: int
    state: Mapping[str, Any]

    @property
    def done(self) -> list[str]:
        """Paths of the files all of whose lines have been trained on."""
        lines = self._lines()
        return [path for path, marks in lines.items() if all(mark == DONE for mark in marks)]

    @property
    def under_way(self) -> dict[str, int]:
        """For each file of which some lines have been trained on how many, without those of parts that are done."""
        lines = self._lines()
        started = {path: marks for path, marks in lines.items() if any(marks) and set(marks) != {DONE}}
        return {path: sum(mark for mark in marks if mark != DONE) for path, marks in started.items()}

    def _lines(self) -> dict[str, list[int]]:
        """Return the marks of each file's parts."""
        found: dict[str, list[int]] = {}
        for state in self.state["places"]:
            paths = [path for path, *_ in state["files"]] or ["memory"]
            for (file, *_), mark in zip(state["parts"], state["marks"].tolist(), strict=True):
                found.setdefault(paths[file], []).append(mark)
        return found


def pack(module: Module, desc: DataFeedDesc, places: list[dict[str, Any]]) -> dict[str, Any]:
    """Return copies of all that a snapshot has, while nothing changes it.

    Args:
        places: how far each process has come; one of them where all share the files.
    """
    params = module.get_params()
    return {
        "params": params,
        "states": optimizer_bytes(module.updates),
        "run": {
            "kind": _KIND,
            "epoch": 0,
            "nbatch": 0,
            "facts": facts(module, desc, params=params),
            "generators": generators.state_dict(),
            "places": places,
        },
    }


def save(prefix: str, epoch: int, module: Module, packed: Mapping[str, Any]) -> None:
    """Write what `pack` returned; the files switch together."""
    prefix = os.fspath(prefix)
    text = io.BytesIO()
    run_file.write(text, {**packed["run"], "epoch": epoch})
    arg_params, aux_params = packed["params"]
    checkpoint.save_checkpoint(
        prefix,
        epoch,
        module.symbol,
        arg_params,
        aux_params,
        states=packed["states"],
        more={checkpoint.run_file(prefix, epoch): text.getvalue()},
    )


def find(prefix: Any) -> Snapshot | None:
    """Return the snapshot with the highest number under a prefix, None if there is none."""
    prefix = os.fspath(prefix)
    folder = os.path.dirname(prefix) or "."
    if os.path.isdir(folder):
        for epoch in checkpoint.epochs(prefix):
            settle(checkpoint.run_file(prefix, epoch))
    epochs = Checkpoint(prefix).epochs()
    if not epochs:
        return None
    path = checkpoint.run_file(prefix, epochs[-1])
    state = run_file.read(path)
    if state.get("kind") != _KIND:
        raise FileFormatError(
            f"{path}: the state of another kind of run, as of fit; expected an AsyncExecutor's snapshot"
        )
    return Snapshot(prefix, epochs[-1], state)


def found(prefix: Any, module: Module, desc: DataFeedDesc) -> Snapshot:
    """Return the snapshot to go on from."""
    snapshot = find(prefix)
    if snapshot is None:
        raise FileError(2, "no snapshot has been saved under this prefix", os.fspath(prefix))
    if wrong := differences(snapshot.state["facts"], facts(module, desc)):
        raise ArgumentError(
            f"resume: the run under {os.fspath(prefix)!r} was another one: {'; '.join(wrong)}"
        )
    return snapshot


def load_parameters(snapshot: Snapshot, module: Module, alone: bool) -> None:
    """Go on with the parameters, the optimizer's states and the random numbers of a snapshot.

    Args:
        alone: whether there is one process; several go on with random numbers of their own.
    """
    module.set_params(*checkpoint.load_params(snapshot.prefix, snapshot.epoch))
    states = checkpoint.load_states(snapshot.prefix, snapshot.epoch)
    updater = module.updates.active_updater()
    if updater.shared is None:
        change = load_optimizer_bytes(module.updates, states, snapshot.state["facts"]["rates"][0])
        if change is not None:
            module.logger.info("resume: %s", change)
    else:  # in place, where the workers see it
        updater.set_states(states)
    if alone:
        generators.load_state_dict(snapshot.state["generators"])
