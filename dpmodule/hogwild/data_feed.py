"""Files in MultiSlot format to batches: read by blocks, parsed many lines at once, batches cut as slices."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import repeat
from typing import TYPE_CHECKING

import torch

from .._core.closing import Closing
from ..base import ArgumentError, FileFormatError
from ..streams import MultiSlotFunctor, MultiSlotLines, Slot, SlotValues
from .data_files import ByteSource, FileRange, count_lines, open_part

if TYPE_CHECKING:
    from .data_feed_desc import DataFeedDesc

_BLOCK_BYTES = 1 << 20
_FIRST_BLOCK_BYTES = 1 << 16
_CACHED_OFFSETS = 64

Columns = dict[str, SlotValues]


class _LineNumbers:
    """How many lines of its file come before a part; counted when it is first asked for, since that reads them."""

    def __init__(self, part: FileRange, begin: int) -> None:
        self._path, self._begin = part.path, begin

    @cached_property
    def before(self) -> int:
        return count_lines(self._path, self._begin) if self._begin else 0


@dataclass(frozen=True)
class FeedBatch:
    """Lines of one or several files, in order.

    Args:
        slots: values and offsets of the used slots by name. They are parts of larger tensors: the values may be
            written to, the offsets not.
        num_lines: how many lines.
        file: path of the file that the first of them is in.
        line: its number among the lines of its part, from 1.
        numbering: tells the lines before that part.
        ends: for each part that it has lines of the part's number, and how many lines of it have been read with these.
    """

    slots: Columns
    num_lines: int
    file: str
    line: int
    line_numbers: _LineNumbers
    ends: tuple[tuple[int, int], ...]

    @property
    def first_line(self) -> int:
        """Number of its first line in the file, from 1; for a part from the middle of a file, reads what is before."""
        return self.line + self.line_numbers.before


@dataclass(frozen=True)
class ParsedBlock:
    """Parsed lines of one part.

    Args:
        first_line: number of the block's first line in the part, from 1.
        part: number of the part.
    """

    lines: MultiSlotLines
    text: memoryview
    file: str
    first_line: int
    line_numbers: _LineNumbers
    part: int

    def number(self, row: int) -> int:
        """Return the number in the part of a line that was read."""
        passed = self.lines.passed
        skipped = int(torch.searchsorted(passed, row, right=True)) if passed.shape[0] else 0
        return self.first_line + row + skipped

    def batch(self, columns: Columns, first: int, count: int) -> FeedBatch:
        """Return `columns`, which have `count` lines from `first` on, as a batch."""
        ends = ((self.part, self.number(first + count - 1)),)
        return FeedBatch(columns, count, self.file, self.number(first), self.line_numbers, ends)


class BlockReader:
    """Reads parts of files by blocks and parses the lines of each.

    Attributes:
        file: path of the file that is being read, None before the first.
    """

    def __init__(
        self, slots: Sequence[Slot], pipe_command: str, on_bad_line: str, block_bytes: int = _BLOCK_BYTES
    ) -> None:
        self.skipped = 0
        self.file: str | None = None
        self._slots, self._pipe_command = list(slots), pipe_command
        self._skip_bad, self._block_bytes = on_bad_line == "skip", block_bytes
        self._source: ByteSource | None = None

    def blocks(self, part: FileRange) -> Iterator[ParsedBlock]:
        """Return the blocks of a part that have lines; the text of each is there until the next is asked for."""
        self.file = part.path
        self._source = source = open_part(part, self._pipe_command)
        line_numbers = _LineNumbers(part, getattr(source, "begin", 0))
        memory, held, first_line, is_final = memoryview(bytearray(self._block_bytes)), 0, 1 + part.skip, False
        while not is_final:
            if held == len(memory):  # one line is longer than the block
                longer = memoryview(bytearray(2 * held))
                longer[:held] = memory
                memory = longer
            held, is_final = _fill(source, memory, held)
            lines = self._parse(memory[:held], first_line, is_final, line_numbers)
            if lines.num_lines:
                yield ParsedBlock(
                    lines, memory[: lines.consumed], part.path, first_line, line_numbers, part.number
                )
            memory[: held - lines.consumed] = memory[lines.consumed : held]
            held -= lines.consumed
            first_line += lines.num_lines + lines.passed.shape[0]
        self.close()

    def close(self) -> None:
        """End a program that is running, and let go of the file."""
        source, self._source = self._source, None
        if source is not None:
            source.close()

    def _parse(
        self, text: memoryview, first_line: int, is_final: bool, line_numbers: _LineNumbers
    ) -> MultiSlotLines:
        def parse(first_line: int) -> MultiSlotLines:
            return MultiSlotFunctor(
                text,
                self._slots,
                source=str(self.file),
                first_line=first_line,
                final=is_final,
                skip_blank=True,
                skip_bad=self._skip_bad,
            ).run()

        try:
            lines = parse(first_line)
        except FileFormatError:
            if not line_numbers.before:
                raise
            lines = parse(
                first_line + line_numbers.before
            )  # the same error, with the number that the line has
        self.skipped += lines.num_bad
        if lines.num_lines:
            self._slots = [with_width(slot, _width(slot, lines)) for slot in self._slots]
        return lines


class FileBatches(Closing):
    r"""Batches of the lines of files, which run on over files, so that only the last may be short.

    Iterate it once, and close it or use it as a context manager: a `pipe_command` that still runs is then ended.

    Args:
        desc: the slots, the size of batches and the program that files go through.
        next_part: returns what to read next, None when nothing is left. It is called when a part has been read.
        on_bad_line: "error" raises at a line that is not as described; "skip" passes over it and counts it.
        widths: how many values a line has of dense slots, by name; else the first line that this reads tells.
        block_bytes: how much is read and parsed at a time.

    Shape:
        values: (sum of the counts,), int64 or float32; (N, count) for a dense slot.
        offsets: (N + 1,), int64, beginning with 0.

    Raises:
        ArgumentError: `on_bad_line` is neither; no slot is used.
        FileError: while iterating: a file cannot be read, or the program of `pipe_command` fails; the text then has
            its exit status and what it wrote to stderr.
        FileFormatError: while iterating: a bad line; the text names file, line and slot.

    Example:
        >>> feed = mx.DataFeedDesc('multi_slot_desc { slots { name: "words" type: "uint64" is_used: true } }')
        >>> feed.set_batch_size(2)
        >>> for name, text in [("part-0", "2 7 8\n"), ("part-1", "1 9\n1 6\n")]:
        ...     with open(name, "w") as file:
        ...         size = file.write(text)
        >>> parts = iter([FileRange("part-0"), FileRange("part-1")])
        >>> with FileBatches(feed, lambda: next(parts, None)) as batches:
        ...     for batch in batches:
        ...         print(batch.file, batch.first_line, *batch.slots["words"])
        part-0 1 tensor([7, 8, 9]) tensor([0, 2, 3])
        part-1 2 tensor([6]) tensor([0, 1])
    """

    def __init__(
        self,
        desc: DataFeedDesc,
        next_part: Callable[[], FileRange | None],
        on_bad_line: str = "error",
        *,
        widths: Mapping[str, int] | None = None,
        block_bytes: int = _BLOCK_BYTES,
    ) -> None:
        check_on_bad_line("FileBatches", on_bad_line)
        if not desc.used_slots:
            names = [slot.name for slot in desc.slots]
            raise ArgumentError(f"FileBatches: no slot of {names} is used; call set_use_slots([...]) first")
        slots = [with_width(slot, (widths or {}).get(slot.name)) for slot in desc.slots]
        self._reader = BlockReader(slots, desc.pipe_command, on_bad_line, block_bytes)
        self._assembler = _BatchAssembler(desc.batch_size)
        self._next_part = next_part

    @property
    def skipped(self) -> int:
        """How many bad lines were passed over so far."""
        return self._reader.skipped

    @property
    def file(self) -> str | None:
        """Path of the file that is being read, None before the first."""
        return self._reader.file

    def __iter__(self) -> Generator[FeedBatch, None, None]:
        try:
            while (part := self._next_part()) is not None:
                for block in self._reader.blocks(part):
                    yield from self._assembler.cut(block)
            yield from self._assembler.rest()
        finally:
            self.close()

    def close(self) -> None:
        self._reader.close()


def first_batch(desc: DataFeedDesc, parts: Iterable[FileRange], on_bad_line: str) -> FeedBatch | None:
    """Return the first batch of some parts, None if there is no line; reads little more than that.

    Args:
        parts: what is read, in order.
    """
    rest = iter(parts)
    with (
        FileBatches(desc, lambda: next(rest, None), on_bad_line, block_bytes=_FIRST_BLOCK_BYTES) as source,
        closing(iter(source)) as batches,  # what ends by itself would lose a Ctrl-C that comes meanwhile
    ):
        return next(batches, None)


def check_on_bad_line(call: str, on_bad_line: str) -> None:
    """Check the argument of this name."""
    if on_bad_line not in ("error", "skip"):
        raise ArgumentError(f"{call}: on_bad_line is {on_bad_line!r}, expected 'error' or 'skip'")


def _fill(source: ByteSource, memory: memoryview, held: int) -> tuple[int, bool]:
    """Read until the memory is full; return how many bytes it has, and whether nothing follows."""
    while held < len(memory):
        count = source.readinto(memory[held:])
        if count == 0:
            return held, True
        held += count
    return held, False


def _width(slot: Slot, lines: MultiSlotLines) -> int | None:
    found = lines.slots.get(slot.name)
    return None if found is None or not slot.is_dense else found.values.shape[1]


def with_width(slot: Slot, width: int | None) -> Slot:
    """Return a slot whose width is known, if it is dense and has none."""
    is_new = slot.is_dense and slot.width is None and width is not None
    return replace(slot, width=width) if is_new else slot


class _BatchAssembler:
    """Cuts blocks into batches, and joins what is left of them.

    With many slots of one value a line the tensors that a batch consists of take as long to make as the text to
    parse. So each slot of a block is cut at once, and slots with as many values in every line share their offsets.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._left: list[FeedBatch] = []
        self._num_left = 0
        self._even = lru_cache(maxsize=_CACHED_OFFSETS)(_even_offsets)

    def cut(self, block: ParsedBlock) -> Iterator[FeedBatch]:
        """Return the batches that are full now; the rest stays here."""
        count, size, first = block.lines.num_lines, self._batch_size, 0
        if self._left:
            first = min(size - self._num_left, count)
            self._keep(block, 0, first)
            if self._num_left == size:
                yield self._join()
        full = (count - first) // size
        if full:
            yield from self._full_batches(block, first, full)
            first += full * size
        if first < count:
            self._keep(block, first, count)

    def rest(self) -> Iterator[FeedBatch]:
        """Return the last batch, if lines are left."""
        if self._left:
            yield self._join()

    def _keep(self, block: ParsedBlock, first: int, end: int) -> None:
        columns = {name: self._rows(column, first, end) for name, column in block.lines.slots.items()}
        self._left.append(block.batch(columns, first, end - first))
        self._num_left += end - first

    def _join(self) -> FeedBatch:
        left, count = self._left, self._num_left
        self._left, self._num_left = [], 0
        if len(left) == 1:
            return left[0]
        columns = {name: self._concatenate([piece.slots[name] for piece in left]) for name in left[0].slots}
        ends = tuple(end for piece in left for end in piece.ends)
        return replace(left[0], slots=columns, num_lines=count, ends=ends)

    def _full_batches(self, block: ParsedBlock, first: int, full: int) -> Iterator[FeedBatch]:
        names, size = list(block.lines.slots), self._batch_size
        columns = [self._split(column, first, full) for column in block.lines.slots.values()]
        for i, slots in enumerate(zip(*columns)):
            yield block.batch(dict(zip(names, slots)), first + i * size, size)

    def _split(self, column: SlotValues, first: int, full: int) -> Iterable[SlotValues]:
        """Return the values of a slot for `full` batches, in few calls however many they are."""
        size = self._batch_size
        end = first + full * size
        width = _even_width(column)
        if width:
            return map(SlotValues, column.values[first:end].split(size), repeat(self._even(size, width)))
        rows = column.offsets[first : end + 1].unfold(0, size + 1, size)
        bounds = column.offsets[first : end + 1 : size].tolist()
        counts = [after - before for before, after in zip(bounds, bounds[1:])]
        values = column.values[bounds[0] : bounds[-1]].split(counts)
        return map(SlotValues, values, (rows - rows[:, :1]).unbind(0))

    def _rows(self, column: SlotValues, first: int, end: int) -> SlotValues:
        width = _even_width(column)
        if width:
            return SlotValues(column.values[first:end], self._even(end - first, width))
        offsets = column.offsets[first : end + 1]
        return SlotValues(column.values[int(offsets[0]) : int(offsets[-1])], offsets - offsets[0])

    def _concatenate(self, pieces: list[SlotValues]) -> SlotValues:
        values = torch.cat([piece.values for piece in pieces])
        rows = sum(piece.offsets.shape[0] - 1 for piece in pieces)
        if values.dim() == 2:
            return SlotValues(values, self._even(rows, values.numel() // rows))
        counts = torch.cat([piece.offsets.diff() for piece in pieces])
        if values.shape[0] == rows and bool((counts == 1).all()):
            return SlotValues(values, self._even(rows, 1))
        return SlotValues(values, torch.cat([counts.new_zeros(1), counts.cumsum(0)]))


def _even_offsets(rows: int, width: int) -> torch.Tensor:
    """Return the offsets of lines that have `width` values each."""
    return torch.arange(0, rows * width + 1, width)


def _even_width(column: SlotValues) -> int:
    """Return how many values every line has, of a dense slot and where it is one; else 0."""
    shape = column.values.shape
    if len(shape) == 2:
        return int(shape[1])
    offsets = column.offsets
    return int(shape[0] == offsets.shape[0] - 1 and bool((offsets.diff() == 1).all()))
