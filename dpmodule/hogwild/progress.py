"""How far a run over files has come, and the snapshots that `AsyncExecutor.snapshot` writes of it."""

from __future__ import annotations

import io
import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import torch

from .. import checkpoint
from .._devices import generators
from .._files import finish_commit
from ..base import ArgumentError, FileError, FileFormatError
from ..callback.checkpoint import Checkpoint
from ..checkpoint import run_format
from ..module import Module
from ..module.run_state import differences, fingerprint, load_optimizer_bytes, optimizer_bytes
from .data_feed_desc import DataFeedDesc
from .data_files import FileRange, file_errors
from .dataset import ReadPlan

_RUN_KIND = "files"
DONE = -1
"""Mark of a part all of whose lines have been trained on; else it is how many of them have been."""


class ProgressMarker:
    """Notes how far one worker has come, between its batches.

    Shape:
        marks: (parts,), int64.
    """

    def __init__(self, lines_done: torch.Tensor | None) -> None:
        self._marks = None if lines_done is None else lines_done.numpy()
        self._part: int | None = None

    def note(self, ends: Sequence[tuple[int, int]]) -> None:
        """Note that a batch has been trained on; see `FeedBatch.ends`."""
        for part, lines in ends:
            if self._part != part:
                self.end()
            self._part = part
            if self._marks is not None:
                self._marks[part] = lines

    def end(self) -> None:
        """Note that nothing is left of the part in which the last batch ended."""
        if self._part is not None and self._marks is not None:
            self._marks[self._part] = DONE


class FileProgress:
    """How far a run over files has come.

    Attributes:
        marks: by these numbers how many lines of a part have been trained on, or `DONE`.

    Shape:
        marks: (parts,), int64.
    """

    def __init__(self, reading: ReadPlan) -> None:
        self.parts = [replace(part, number=i) for i, part in enumerate(reading.parts)]
        self.lines_done = torch.zeros(len(self.parts), dtype=torch.int64)
        self._digest = reading.digest
        paths = list(dict.fromkeys(part.path for part in self.parts))
        self._files = {path: _file_stamp(path) for path in paths} if self._digest is None else {}

    def rest(self) -> list[FileRange]:
        """Return what is still to be trained on, in order."""
        lines_done = self.lines_done.tolist()
        return [
            replace(part, skip=lines_done[part.number])
            for part in self.parts
            if lines_done[part.number] != DONE
        ]

    def identity(self) -> Any:
        """Return what two processes have in common that have the same files, if with other times."""
        if self._digest is not None:
            return self._digest()
        return [[path, size] for path, (size, _) in self._files.items()]

    def end(self) -> None:
        """Note that nothing is left; of files without lines nobody has."""
        self.lines_done.fill_(DONE)

    def state_dict(self) -> dict[str, Any]:
        """Return all that `load_state_dict` goes on from."""
        numbers = {path: i for i, path in enumerate(self._files)}
        return {
            "files": [[path, *stamp] for path, stamp in self._files.items()],
            "digest": None if self._digest is None else self._digest(),
            "parts": [[numbers.get(part.path, -1), part.begin, part.end] for part in self.parts],
            "lines_done": self.lines_done.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where a run over the same files stood; workers may be more or fewer."""
        _check_same_data(state, [[path, *stamp] for path, stamp in self._files.items()], self._digest)
        paths = list(self._files) or [self.parts[0].path]
        self.parts = [
            FileRange(paths[max(file, 0)], begin, end, number=i)
            for i, (file, begin, end) in enumerate(state["parts"])
        ]
        self.lines_done = state["lines_done"].clone()


def _file_stamp(path: str) -> tuple[int, int]:
    """Return by what a file is known again: its size, and when it was written, in nanoseconds."""
    with file_errors(path):
        found = os.stat(path)
    return found.st_size, found.st_mtime_ns


def _check_same_data(
    state: Mapping[str, Any], files: list[list[Any]], digest: Callable[[], int] | None
) -> None:
    if (state["digest"] is None) != (digest is None):
        raise ArgumentError(
            "resume: the snapshot is of files, and this run is over memory, or the other way round"
        )
    if digest is not None and state["digest"] != digest():
        raise ArgumentError(
            "resume: the lines in memory are others than those of the snapshot, or in another order; load the same "
            "files, and shuffle with the same seed: local_shuffle(seed=...)"
        )
    before, now = ([path for path, *_ in rows] for rows in (state["files"], files))
    if before != now:
        missing, more = (sorted(set(a) - set(b)) for a, b in ((before, now), (now, before)))
        raise ArgumentError(
            f"resume: the snapshot is of other files, or in another order: {len(missing)} are missing "
            f"({', '.join(missing[:3])}), {len(more)} are new ({', '.join(more[:3])})"
        )
    changed = [there[0] for there, here in zip(state["files"], files) if there[1:] != here[1:]]
    if changed:
        raise ArgumentError(
            f"resume: {', '.join(changed[:3])}{' ...' if len(changed) > 3 else ''} changed since the snapshot, in size "
            "or time; the places in it are those of the old content. Copies keep the time with cp -p or rsync -t; or "
            "begin the epoch anew, with arg_params from the snapshot"
        )


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
        return [path for path, lines_done in lines.items() if all(mark == DONE for mark in lines_done)]

    @property
    def in_progress(self) -> dict[str, int]:
        """For each file of which some lines have been trained on how many, without those of parts that are done."""
        lines = self._lines()
        started = {
            path: lines_done
            for path, lines_done in lines.items()
            if any(lines_done) and set(lines_done) != {DONE}
        }
        return {
            path: sum(mark for mark in lines_done if mark != DONE) for path, lines_done in started.items()
        }

    def _lines(self) -> dict[str, list[int]]:
        """Return the marks of each file's parts."""
        found: dict[str, list[int]] = {}
        for state in self.state["progress"]:
            paths = [path for path, *_ in state["files"]] or ["memory"]
            for (file, *_), mark in zip(state["parts"], state["lines_done"].tolist(), strict=True):
                found.setdefault(paths[file], []).append(mark)
        return found


def pack_snapshot(module: Module, desc: DataFeedDesc, places: list[dict[str, Any]]) -> dict[str, Any]:
    """Return copies of all that a snapshot has, while nothing changes it.

    Args:
        places: how far each process has come (`FileProgress.state_dict`); one of them where all share the files.
    """
    params = module.get_params()
    return {
        "params": params,
        "states": optimizer_bytes(module.updates),
        "run": {
            "kind": _RUN_KIND,
            "epoch": 0,
            "nbatch": 0,
            "facts": fingerprint(module, desc, params=params),
            "generators": generators.state_dict(),
            "progress": places,
        },
    }


def save_snapshot(prefix: str, epoch: int, module: Module, packed: Mapping[str, Any]) -> None:
    """Write what `pack_snapshot` returned; the files switch together."""
    prefix = os.fspath(prefix)
    text = io.BytesIO()
    run_format.write(text, {**packed["run"], "epoch": epoch})
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


def last_snapshot(prefix: Any) -> Snapshot | None:
    """Return the snapshot with the highest number under a prefix, None if there is none."""
    prefix = os.fspath(prefix)
    folder = os.path.dirname(prefix) or "."
    if os.path.isdir(folder):
        for epoch in checkpoint.epochs(prefix):
            finish_commit(checkpoint.run_file(prefix, epoch))
    epochs = Checkpoint(prefix).epochs()
    if not epochs:
        return None
    path = checkpoint.run_file(prefix, epochs[-1])
    state = run_format.read(path)
    if state.get("kind") != _RUN_KIND:
        raise FileFormatError(
            f"{path}: the state of another kind of run, as of fit; expected an AsyncExecutor's snapshot"
        )
    return Snapshot(prefix, epochs[-1], state)


def snapshot_to_resume(prefix: Any, module: Module, desc: DataFeedDesc) -> Snapshot:
    """Return the snapshot to go on from."""
    snapshot = last_snapshot(prefix)
    if snapshot is None:
        raise FileError(2, "no snapshot has been saved under this prefix", os.fspath(prefix))
    if wrong := differences(snapshot.state["facts"], fingerprint(module, desc)):
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
