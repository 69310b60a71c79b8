"""Progress of runs over files, and snapshots of `AsyncExecutor.snapshot`."""

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
"""Value of `lines_done` for a range without remaining lines."""


class ProgressMarker:
    """Records the progress of a worker after each batch.

    Shape:
        lines_done: (ranges,), int64.
    """

    def __init__(self, lines_done: torch.Tensor | None) -> None:
        self._marks = None if lines_done is None else lines_done.numpy()
        self._part: int | None = None

    def note(self, ends: Sequence[tuple[int, int]]) -> None:
        """Record a batch; see `FeedBatch.ends`."""
        for part, lines in ends:
            if self._part != part:
                self.end()
            self._part = part
            if self._marks is not None:
                self._marks[part] = lines

    def end(self) -> None:
        """Record the end of the range in which the last batch ended."""
        if self._part is not None and self._marks is not None:
            self._marks[self._part] = DONE


class FileProgress:
    """Progress of a run over files.

    Attributes:
        lines_done: number of lines trained on of each range, or `DONE`.

    Shape:
        lines_done: (ranges,), int64.
    """

    def __init__(self, reading: ReadPlan) -> None:
        self.parts = [replace(part, number=i) for i, part in enumerate(reading.parts)]
        self.lines_done = torch.zeros(len(self.parts), dtype=torch.int64)
        self._digest = reading.digest
        paths = list(dict.fromkeys(part.path for part in self.parts))
        self._files = {path: _file_stamp(path) for path in paths} if self._digest is None else {}

    def rest(self) -> list[FileRange]:
        """Return the remaining ranges in order."""
        lines_done = self.lines_done.tolist()
        return [
            replace(part, skip=lines_done[part.number])
            for part in self.parts
            if lines_done[part.number] != DONE
        ]

    def identity(self) -> Any:
        """Return a value that is equal for two processes with the same files, whatever their modification times."""
        if self._digest is not None:
            return self._digest()
        return [[path, size] for path, (size, _) in self._files.items()]

    def end(self) -> None:
        """Record the end of all ranges, including files without lines."""
        self.lines_done.fill_(DONE)

    def state_dict(self) -> dict[str, Any]:
        """Return the state for `load_state_dict`."""
        numbers = {path: i for i, path in enumerate(self._files)}
        return {
            "files": [[path, *stamp] for path, stamp in self._files.items()],
            "digest": None if self._digest is None else self._digest(),
            "parts": [[numbers.get(part.path, -1), part.begin, part.end] for part in self.parts],
            "lines_done": self.lines_done.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Restore the progress of a run over the same files; the number of workers may differ."""
        _check_same_data(state, [[path, *stamp] for path, stamp in self._files.items()], self._digest)
        paths = list(self._files) or [self.parts[0].path]
        self.parts = [
            FileRange(paths[max(file, 0)], begin, end, number=i)
            for i, (file, begin, end) in enumerate(state["parts"])
        ]
        self.lines_done = state["lines_done"].clone()


def _file_stamp(path: str) -> tuple[int, int]:
    """Return the size of a file and its modification time in nanoseconds."""
    with file_errors(path):
        status = os.stat(path)
    return status.st_size, status.st_mtime_ns


def _check_same_data(
    state: Mapping[str, Any], files: list[list[Any]], digest: Callable[[], int] | None
) -> None:
    if (state["digest"] is None) != (digest is None):
        raise ArgumentError(
            "resume: the snapshot and this run must both be over files, or both over lines in memory"
        )
    if digest is not None and state["digest"] != digest():
        raise ArgumentError(
            "resume: the lines in memory differ from those of the snapshot, or their order does; load the same "
            "files, and shuffle with the same seed: local_shuffle(seed=...)"
        )
    before, now = ([path for path, *_ in rows] for rows in (state["files"], files))
    if before != now:
        missing, more = (sorted(set(a) - set(b)) for a, b in ((before, now), (now, before)))
        raise ArgumentError(
            f"resume: the files of the snapshot are different or in another order: {len(missing)} are missing "
            f"({', '.join(missing[:3])}), {len(more)} are new ({', '.join(more[:3])})"
        )
    changed = [saved[0] for saved, current in zip(state["files"], files) if saved[1:] != current[1:]]
    if changed:
        raise ArgumentError(
            f"resume: {', '.join(changed[:3])}{' ...' if len(changed) > 3 else ''} changed since the snapshot, in size "
            "or time, so its progress is not valid. Copy files with cp -p or rsync -t to keep their times, or start "
            "the epoch again with arg_params from the snapshot"
        )


@dataclass(frozen=True, slots=True)
class Snapshot:
    """A saved snapshot.

    Args:
        state: content of its ``.run`` file.
    """

    prefix: str
    epoch: int
    state: Mapping[str, Any]

    @property
    def done(self) -> list[str]:
        """Paths of the files without remaining lines."""
        lines = self._lines()
        return [path for path, lines_done in lines.items() if all(mark == DONE for mark in lines_done)]

    @property
    def in_progress(self) -> dict[str, int]:
        """Number of lines trained on of each other file, without lines of ranges that are done."""
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
        """Return the lines done of the ranges of each file."""
        lines: dict[str, list[int]] = {}
        for state in self.state["progress"]:
            paths = [path for path, *_ in state["files"]] or ["memory"]
            for (file, *_), mark in zip(state["parts"], state["lines_done"].tolist(), strict=True):
                lines.setdefault(paths[file], []).append(mark)
        return lines


def pack_snapshot(
    module: Module, desc: DataFeedDesc, progress: list[dict[str, Any]], tables: Any = None
) -> dict[str, Any]:
    """Return copies of the content of a snapshot, while training is paused.

    Args:
        tables: tables that are spread over processes, see `SpreadTables`; None without them.
        progress: `FileProgress.state_dict` of each process; only one if all share the files.
    """
    params = module.live_params()
    return {
        "params": params,
        "states": optimizer_bytes(module.updates) if tables is None else tables.saved_states(),
        "run": {
            "kind": _RUN_KIND,
            "epoch": 0,
            "nbatch": 0,
            "facts": fingerprint(module, desc, params=params),
            "generators": generators.state_dict(),
            "progress": progress,
        },
    }


def save_snapshot(prefix: str, epoch: int, module: Module, packed: Mapping[str, Any]) -> None:
    """Write the result of `pack_snapshot`; the files are replaced together."""
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
            f"{path}: the state of another kind of run, such as fit; expected a snapshot of AsyncExecutor"
        )
    return Snapshot(prefix, epochs[-1], state)


def snapshot_to_resume(prefix: Any, module: Module, desc: DataFeedDesc) -> Snapshot:
    """Return the snapshot to resume."""
    snapshot = last_snapshot(prefix)
    if snapshot is None:
        raise FileError(2, "no snapshot is saved under this prefix", os.fspath(prefix))
    if wrong := differences(snapshot.state["facts"], fingerprint(module, desc)):
        raise ArgumentError(f"resume: the run under {os.fspath(prefix)!r} differs: {'; '.join(wrong)}")
    return snapshot


def load_parameters(snapshot: Snapshot, module: Module, alone: bool, tables: Any = None) -> None:
    """Load the parameters, the optimizer's states and the random numbers of a snapshot.

    Args:
        alone: whether there is one process; several processes have their own random numbers.
        tables: as for `pack_snapshot`.
    """
    module.set_params(*checkpoint.load_params(snapshot.prefix, snapshot.epoch, fetch=False))
    states = checkpoint.load_states(snapshot.prefix, snapshot.epoch)
    updater = module.updates.active_updater()
    if updater.shared is None:
        updates = module.updates if tables is None else tables.worker.updates
        change = load_optimizer_bytes(updates, states, snapshot.state["facts"]["rates"][0])
        if change is not None:
            module.logger.info("resume: %s", change)
        if tables is not None:
            tables.take_states()
        module.updates.load_table_states(checkpoint.tables_file(snapshot.prefix, snapshot.epoch))
    else:  # in place, so that workers see it
        updater.set_states(states)
    if alone:
        generators.load_state_dict(snapshot.state["generators"])
