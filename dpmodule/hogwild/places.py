"""`FilePlaces`: how far a run over files has come: what is done, and where in the rest it stands."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import torch

from ..base import ArgumentError, FileError
from .data_files import Part
from .dataset import Reading

DONE = -1
"""Mark of a part all of whose lines have been trained on; else it is how many of them have been."""


class PlaceMarker:
    """Notes how far one worker has come, between its batches.

    Shape:
        marks: (parts,), int64.
    """

    def __init__(self, marks: torch.Tensor | None) -> None:
        self._marks = None if marks is None else marks.numpy()
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


class FilePlaces:
    """How far a run over files has come.

    Attributes:
        marks: by these numbers how many lines of a part have been trained on, or `DONE`.

    Shape:
        marks: (parts,), int64.
    """

    def __init__(self, reading: Reading) -> None:
        self.parts = [replace(part, number=i) for i, part in enumerate(reading.parts)]
        self.marks = torch.zeros(len(self.parts), dtype=torch.int64)
        self._digest = reading.digest
        paths = list(dict.fromkeys(part.path for part in self.parts))
        self._files = {path: _looks(path) for path in paths} if self._digest is None else {}

    def rest(self) -> list[Part]:
        """Return what is still to be trained on, in order."""
        marks = self.marks.tolist()
        return [replace(part, skip=marks[part.number]) for part in self.parts if marks[part.number] != DONE]

    def identity(self) -> Any:
        """Return what two processes have in common that have the same files, if with other times."""
        if self._digest is not None:
            return self._digest()
        return [[path, size] for path, (size, _) in self._files.items()]

    def end(self) -> None:
        """Note that nothing is left; of files without lines nobody has."""
        self.marks.fill_(DONE)

    def state_dict(self) -> dict[str, Any]:
        """Return all that `load_state_dict` goes on from."""
        numbers = {path: i for i, path in enumerate(self._files)}
        return {
            "files": [[path, *looks] for path, looks in self._files.items()],
            "digest": None if self._digest is None else self._digest(),
            "parts": [[numbers.get(part.path, -1), part.begin, part.end] for part in self.parts],
            "marks": self.marks.clone(),
        }

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Go on from where a run over the same files stood; workers may be more or fewer."""
        _compare(state, [[path, *looks] for path, looks in self._files.items()], self._digest)
        paths = list(self._files) or [self.parts[0].path]
        self.parts = [
            Part(paths[max(file, 0)], begin, end, number=i)
            for i, (file, begin, end) in enumerate(state["parts"])
        ]
        self.marks = state["marks"].clone()


def _looks(path: str) -> tuple[int, int]:
    """Return by what a file is known again: its size, and when it was written, in nanoseconds."""
    try:
        found = os.stat(path)
    except OSError as error:
        raise FileError(error.errno or 0, error.strerror or str(error), path) from error
    return found.st_size, found.st_mtime_ns


def _compare(state: Mapping[str, Any], files: list[list[Any]], digest: Callable[[], int] | None) -> None:
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
