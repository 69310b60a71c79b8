"""Stands in for the feed until that is here."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..base import ArgumentError, FileError
from ..streams.functors import MultiSlotFunctor, Slot, SlotValues


@dataclass
class DataFeedDesc:
    slots: list[Slot]
    batch_size: int = 32
    pipe_command: str = "cat"

    def set_dense_slots(self, names: Sequence[str]) -> None:
        self.slots = [replace(s, is_dense=s.name in names or s.is_dense) for s in self.slots]

    def set_use_slots(self, names: Sequence[str]) -> None:
        self.slots = [replace(s, is_used=s.name in names or s.is_used) for s in self.slots]


@dataclass(frozen=True)
class Part:
    path: str
    begin: int = 0
    end: int | None = None


@dataclass
class FeedBatch:
    slots: dict[str, SlotValues]
    num_lines: int
    file: str
    first_line: int


def check_files(filelist: Any) -> list[str]:
    if isinstance(filelist, (str, os.PathLike)) or not filelist:
        raise ArgumentError(f"filelist is {filelist!r}, expected a list of paths")
    for path in filelist:
        if not os.path.exists(path):
            raise FileError(2, "no such file", str(path))
    return [os.fspath(path) for path in filelist]


def split_parts(files: Sequence[str], workers: int) -> list[Part]:
    parts = []
    for path in files:
        size = os.path.getsize(path)
        cuts = [size * i // workers for i in range(workers + 1)]
        parts += [Part(path, a, b) for a, b in zip(cuts, cuts[1:]) if b > a]
    return parts or [Part(path) for path in files]


class FileBatches:
    def __init__(self, desc: Any, next_part: Callable[[], Part | None], on_bad_line: str = "error") -> None:
        self.desc, self.next_part, self.skipped = desc, next_part, 0

    def __iter__(self) -> Iterator[FeedBatch]:
        rows: list[tuple[str, int, bytes]] = []
        size = self.desc.batch_size
        while (part := self.next_part()) is not None:
            with open(part.path, "rb") as file:
                data = file.read()
            position, number = 0, 0
            for line in data.splitlines(keepends=True):
                number += 1
                begin, position = position, position + len(line)
                if not line.strip() or begin < part.begin or (part.end is not None and begin >= part.end):
                    continue
                rows.append((part.path, number, line.rstrip(b"\r\n") + b"\n"))
                if len(rows) == size:
                    yield self._batch(rows)
                    rows = []
        if rows:
            yield self._batch(rows)

    def _batch(self, rows: list[tuple[str, int, bytes]]) -> FeedBatch:
        text = b"".join(row[2] for row in rows)
        lines = MultiSlotFunctor(text, self.desc.slots, source=rows[0][0], first_line=rows[0][1]).run()
        return FeedBatch(lines.slots, lines.num_lines, rows[0][0], rows[0][1])
