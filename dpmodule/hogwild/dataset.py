"""Datasets: files with a description of their lines, read on demand or kept in memory."""

from __future__ import annotations

import os
import tempfile
import weakref
import zlib
from collections.abc import Callable
from typing import Any, NamedTuple

import numpy as np
import torch

from ..base import ArgumentError, StateError
from ..kvstore.base import has_other_processes
from ..kvstore.ranks import join
from .data_feed import BlockReader, ParsedBlock, check_on_bad_line
from .data_feed_desc import DataFeedDesc
from .data_files import FileRange, check_files, split_parts

_LINES_PER_WRITE = 1 << 14
_BLOCK_BYTES = 1 << 20
_NEWLINE = 10


class ReadPlan(NamedTuple):
    """Description of what workers read.

    Args:
        desc: description of the lines.
        parts: ranges of files, which workers take in turn.
        digest: returns a checksum of lines in memory and of their order; None for files.
    """

    desc: DataFeedDesc
    parts: list[FileRange]
    digest: Callable[[], int] | None = None


class Dataset:
    """Base class of datasets: a list of files and the description of their lines.

    Raises:
        ArgumentError: `data_feed` is not a `DataFeedDesc`.
    """

    def __init__(self, data_feed: DataFeedDesc) -> None:
        if not isinstance(data_feed, DataFeedDesc):
            raise ArgumentError(f"{type(self).__name__}: data_feed is {data_feed!r}, expected a DataFeedDesc")
        self.data_feed = data_feed
        self._files: list[str] = []

    @property
    def filelist(self) -> list[str]:
        """The paths of the files."""
        return list(self._files)

    def set_filelist(self, filelist: list[str]) -> None:
        """Set the files.

        Args:
            filelist: paths of text files in reading order.

        Raises:
            ArgumentError: the list is empty, a string, or has items that are not paths.
            FileError: a file is missing.
        """
        self._files = check_files(filelist)

    def checked_files(self) -> list[str]:
        """Return the paths of the files, after checking that they exist.

        Raises:
            StateError: no files are set.
            FileError: a file is missing.
        """
        if not self._files:
            raise StateError(f"{type(self).__name__} has no files yet; call set_filelist([...]) first")
        return check_files(self._files)

    def reading(self, workers: int, split_files: bool = False) -> ReadPlan:
        """Return the plan for workers to read the lines.

        Args:
            workers: number of workers.
            split_files: split files by bytes, so that there is work for all workers.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define reading")


class QueueDataset(Dataset):
    r"""Files that are read during training.

    Raises:
        ArgumentError: `data_feed` is not a `DataFeedDesc`.

    Example:
        >>> with open("part-0", "w") as file:
        ...     size = file.write("2 7 8\n1 9\n")
        >>> feed = mx.DataFeedDesc('multi_slot_desc { slots { name: "words" type: "uint64" is_used: true } }')
        >>> dataset = mx.QueueDataset(feed)
        >>> dataset.set_filelist(["part-0"])
        >>> dataset.reading(workers=1).parts
        [FileRange(path='part-0', begin=0, end=None)]
    """

    def reading(self, workers: int, split_files: bool = False) -> ReadPlan:
        files = self.checked_files()
        if split_files:
            return ReadPlan(self.data_feed, split_parts(files, workers, self.data_feed.pipe_command))
        return ReadPlan(self.data_feed, [FileRange(path) for path in files])


class InMemoryDataset(Dataset):
    r"""Lines of files in memory, which can be shuffled; the files are read only once.

    Lines are stored as text, after decompression and `pipe_command`, in anonymous memory (or in a temporary file, if
    the system has none). Workers parse it in every epoch, which costs less than training.

    Attributes:
        skipped: number of malformed lines that `load_into_memory` skipped.

    Raises:
        ArgumentError: `data_feed` is not a `DataFeedDesc`.

    Example:
        >>> with open("part-0", "w") as file:
        ...     size = file.write("2 7 8\n1 9\n")
        >>> feed = mx.DataFeedDesc('multi_slot_desc { slots { name: "words" type: "uint64" is_used: true } }')
        >>> dataset = mx.InMemoryDataset(feed)
        >>> dataset.set_filelist(["part-0"])
        >>> dataset.load_into_memory()
        >>> dataset.local_shuffle(seed=1)
        >>> len(dataset)
        2
    """

    def __init__(self, data_feed: DataFeedDesc) -> None:
        super().__init__(data_feed)
        self.skipped = 0
        self._text: _LineStore | None = None

    def set_filelist(self, filelist: list[str]) -> None:
        super().set_filelist(filelist)
        self.release_memory()

    def load_into_memory(self, on_bad_line: str = "error") -> None:
        """Read the files in order, replacing loaded lines.

        Args:
            on_bad_line: "error" raises at a malformed line; "skip" skips and counts it.

        Raises:
            StateError: no files are set.
            ArgumentError: `on_bad_line` is not valid.
            FileError: a file cannot be read, or its program fails.
            FileFormatError: a line is malformed; the text names file, line and slot.
        """
        check_on_bad_line("load_into_memory", on_bad_line)
        files = self.checked_files()
        reader, text = (
            BlockReader(self.data_feed.slots, self.data_feed.pipe_command, on_bad_line),
            _LineStore(),
        )
        try:
            for path in files:
                for block in reader.blocks(FileRange(path)):
                    text.append(_parsed_text(block), block.lines.num_lines)
        finally:
            reader.close()
        self._text, self.skipped = text, reader.skipped

    def local_shuffle(self, seed: int | None = None) -> None:
        """Shuffle the lines.

        Args:
            seed: the same seed gives the same order of the same lines; None: NumPy's global generator.

        Raises:
            StateError: no lines are loaded.
        """
        text = self._loaded_lines("local_shuffle")
        order = (
            np.random.permutation(len(text))
            if seed is None
            else np.random.RandomState(seed).permutation(len(text))
        )
        self._text = text.permuted(order)

    def global_shuffle(self, seed: int | None = None, timeout_s: float = 300) -> None:
        """Distribute the lines of all processes over them at random, and shuffle the own ones.

        All processes that torchrun started must call this; a single one shuffles its lines.

        Args:
            seed: as in `local_shuffle`.
            timeout_s: seconds without response after which a process is lost.

        Raises:
            StateError: no lines are loaded.
            LostWorkerError: another process is lost.
        """
        text = self._loaded_lines("global_shuffle")
        ranks = join("of InMemoryDataset", timeout_s) if has_other_processes() else None
        if ranks is None or ranks.size == 1:
            self.local_shuffle(seed)
            return
        random: Any = np.random if seed is None else np.random.RandomState(seed + ranks.rank)
        owners = random.randint(0, ranks.size, len(text))
        parts = [text.permuted(np.flatnonzero(owners == rank)) for rank in range(ranks.size)]
        self._text = _LineStore()
        for data in ranks.exchange([part.tensor() for part in parts]):
            self._text.append(data.numpy().tobytes(), int((data == _NEWLINE).sum()))
        self.local_shuffle(None if seed is None else seed + ranks.rank)

    def total(self, timeout_s: float = 300) -> int:
        """Return the number of loaded lines of all processes, which must call this together.

        Args:
            timeout_s: seconds without response after which a process is lost.
        """
        if not has_other_processes():
            return len(self)
        return int(join("of InMemoryDataset", timeout_s).total(len(self)))

    def release_memory(self) -> None:
        """Release the lines; the list of files is kept."""
        self._text = None

    def __len__(self) -> int:
        """Return the number of loaded lines."""
        return 0 if self._text is None else len(self._text)

    def reading(self, workers: int, split_files: bool = True) -> ReadPlan:
        text = self._loaded_lines("reading")
        parts = split_parts([text.path], workers)
        return ReadPlan(self.data_feed.without_pipe_command(), parts, text.digest)

    def _loaded_lines(self, call: str) -> _LineStore:
        if self._text is None:
            raise StateError(f"InMemoryDataset.{call}: no lines are loaded; call load_into_memory() first")
        return self._text


class _LineStore:
    """Lines in an anonymous memory file."""

    def __init__(self) -> None:
        if hasattr(os, "memfd_create"):
            descriptor = os.memfd_create("dpmodule-lines")
            self.path = f"/proc/{os.getpid()}/fd/{descriptor}"
            weakref.finalize(self, os.close, descriptor)
        else:
            descriptor, self.path = tempfile.mkstemp(prefix="dpmodule-lines-")
            os.close(descriptor)
            weakref.finalize(self, os.unlink, self.path)
        self._lines = 0

    def append(self, text: Any, lines: int) -> None:
        with open(self.path, "ab") as file:
            file.write(text)
        self._lines += lines

    def __len__(self) -> int:
        return self._lines

    def tensor(self) -> torch.Tensor:
        """Return a copy of the text, uint8."""
        with open(self.path, "rb") as file:
            return torch.frombuffer(bytearray(file.read()) or bytearray(1), dtype=torch.uint8)[: file.tell()]

    def digest(self) -> int:
        """Return a checksum of the lines and their order."""
        checksum = 0
        with open(self.path, "rb") as file:
            while block := file.read(_BLOCK_BYTES):
                checksum = zlib.crc32(block, checksum)
        return checksum

    def permuted(self, order: np.ndarray[Any, Any]) -> _LineStore:
        """Return the lines in another order."""
        permuted = _LineStore()
        if not len(order):
            return permuted
        text = np.memmap(self.path, np.uint8, "r")
        ends = np.flatnonzero(text == _NEWLINE) + 1
        begins = np.concatenate([[0], ends[:-1]])
        memory = memoryview(text.data)
        for at in range(0, len(order), _LINES_PER_WRITE):
            chosen = order[at : at + _LINES_PER_WRITE]
            ranges = zip(begins[chosen].tolist(), ends[chosen].tolist())
            permuted.append(b"".join([memory[begin:end] for begin, end in ranges]), len(chosen))
        return permuted


def _parsed_text(block: ParsedBlock) -> bytes:
    """Return the text of the parsed lines of a block, each with a newline."""
    text = bytes(block.text)
    if not text.endswith(b"\n"):
        text += b"\n"
    passed = block.lines.passed
    if not passed.shape[0]:
        return text
    skipped = {line + i for i, line in enumerate(passed.tolist())}
    lines = text.split(b"\n")[:-1]
    return b"".join([line + b"\n" for i, line in enumerate(lines) if i not in skipped])
