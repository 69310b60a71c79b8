"""Batches from files in MultiSlot format: blocks are read, parsed as a whole, and sliced into batches."""

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
    """Number of lines of a file before a range; counted on first use, since that reads them."""

    def __init__(self, part: FileRange, begin: int) -> None:
        self._path, self._begin = part.path, begin

    @cached_property
    def before(self) -> int:
        return count_lines(self._path, self._begin) if self._begin else 0


@dataclass(frozen=True)
class FeedBatch:
    """Lines of one or several files, in order.

    Args:
        slots: values and offsets of the used slots by name; views of larger tensors, whose offsets must not be
            modified.
        num_lines: number of lines.
        file: path of the file of the first line.
        line: number of the first line in its range, from 1.
        line_numbers: counts the lines before that range.
        ends: for each range with lines in the batch, its number and the number of its lines read so far.
    """

    slots: Columns
    num_lines: int
    file: str
    line: int
    line_numbers: _LineNumbers
    ends: tuple[tuple[int, int], ...]

    @property
    def first_line(self) -> int:
        """Number of the first line in its file, from 1; for a range within a file this reads the preceding lines."""
        return self.line + self.line_numbers.before


@dataclass(frozen=True)
class ParsedBlock:
    """Parsed lines of a file range.

    Args:
        first_line: number of the block's first line in the range, from 1.
        part: number of the range.
    """

    lines: MultiSlotLines
    text: memoryview
    file: str
    first_line: int
    line_numbers: _LineNumbers
    part: int

    def number(self, row: int) -> int:
        """Return the number of a parsed line in its range."""
        passed = self.lines.passed
        skipped = int(torch.searchsorted(passed, row, right=True)) if passed.shape[0] else 0
        return self.first_line + row + skipped

    def batch(self, columns: Columns, first: int, count: int) -> FeedBatch:
        """Return `columns` of `count` lines from line `first` as a batch."""
        ends = ((self.part, self.number(first + count - 1)),)
        return FeedBatch(columns, count, self.file, self.number(first), self.line_numbers, ends)


class BlockReader:
    """Reads file ranges in blocks and parses their lines.

    Attributes:
        file: path of the current file, None before the first one.
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
        """Yield the blocks of a range that have lines; the text of each is valid until the next one."""
        self.file = part.path
        self._source = source = open_part(part, self._pipe_command)
        line_numbers = _LineNumbers(part, getattr(source, "begin", 0))
        memory, held, first_line, is_final = memoryview(bytearray(self._block_bytes)), 0, 1 + part.skip, False
        while not is_final:
            if held == len(memory):  # a line is longer than the block
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
        """End a running program, and close the file."""
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
            )  # raises the same error with the line number in the file
        self.skipped += lines.num_bad
        if lines.num_lines:
            self._slots = [with_width(slot, _width(slot, lines)) for slot in self._slots]
        return lines


class FileBatches(Closing):
    r"""Iterator over batches of lines, which span files, so that only the last batch may be short.

    Iterate it once, and close it or use it as a context manager, which ends a running `pipe_command`.

    Args:
        desc: the slots, the batch size and the program that reads each file.
        next_part: returns the next file range, None if nothing is left; called after a range has been read.
        on_bad_line: "error" raises at a malformed line; "skip" skips and counts it.
        widths: number of values per line of dense slots, by name; default: from the first line.
        block_bytes: number of bytes to read and parse at a time.

    Shape:
        values: (sum of the counts,), int64 or float32; (N, count) for a dense slot.
        offsets: (N + 1,), int64, starting with 0.

    Raises:
        ArgumentError: `on_bad_line` is not valid, or no slot is used.
        FileError: during iteration: a file cannot be read, or the program of `pipe_command` fails; the text has its
            exit status and its stderr.
        FileFormatError: during iteration: a line is malformed; the text names file, line and slot.

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
        """Number of malformed lines skipped so far."""
        return self._reader.skipped

    @property
    def file(self) -> str | None:
        """Path of the current file, None before the first one."""
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
    """Return the first batch of file ranges, None if there are no lines; reads little more than that.

    Args:
        parts: the ranges in order.
    """
    rest = iter(parts)
    with (
        FileBatches(desc, lambda: next(rest, None), on_bad_line, block_bytes=_FIRST_BLOCK_BYTES) as source,
        closing(iter(source)) as batches,  # garbage collection would lose a Ctrl-C during closing
    ):
        return next(batches, None)


def check_on_bad_line(call: str, on_bad_line: str) -> None:
    """Check the argument `on_bad_line`."""
    if on_bad_line not in ("error", "skip"):
        raise ArgumentError(f"{call}: on_bad_line is {on_bad_line!r}, expected 'error' or 'skip'")


def _fill(source: ByteSource, memory: memoryview, held: int) -> tuple[int, bool]:
    """Read until the memory is full; return the number of bytes, and whether the source has ended."""
    while held < len(memory):
        count = source.readinto(memory[held:])
        if count == 0:
            return held, True
        held += count
    return held, False


def _width(slot: Slot, lines: MultiSlotLines) -> int | None:
    column = lines.slots.get(slot.name)
    return None if column is None or not slot.is_dense else column.values.shape[1]


def with_width(slot: Slot, width: int | None) -> Slot:
    """Return a slot with a width, if it is dense and has none."""
    is_new = slot.is_dense and slot.width is None and width is not None
    return replace(slot, width=width) if is_new else slot


class _BatchAssembler:
    """Slices blocks into batches, and joins the remaining lines.

    With many slots of one value, creating the tensors of batches takes as long as parsing. So each slot of a block is
    split in one call, and slots with the same number of values in every line share their offsets.
    """

    def __init__(self, batch_size: int) -> None:
        self._batch_size = batch_size
        self._left: list[FeedBatch] = []
        self._num_left = 0
        self._even = lru_cache(maxsize=_CACHED_OFFSETS)(_even_offsets)

    def cut(self, block: ParsedBlock) -> Iterator[FeedBatch]:
        """Yield the full batches, and keep the remaining lines."""
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
        """Yield the last batch, if lines are left."""
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
        """Return the values of a slot for `full` batches, in a constant number of calls."""
        size = self._batch_size
        end = first + full * size
        width = _even_width(column)
        if width:
            return map(
                SlotValues, torch.split(column.values[first:end], size), repeat(self._even(size, width))
            )
        rows = column.offsets[first : end + 1].unfold(0, size + 1, size)
        bounds = column.offsets[first : end + 1 : size].tolist()
        counts = [after - before for before, after in zip(bounds, bounds[1:])]
        values = torch.split(column.values[bounds[0] : bounds[-1]], counts)
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
    """Return the offsets of lines with `width` values each."""
    return torch.arange(0, rows * width + 1, width)


def _even_width(column: SlotValues) -> int:
    """Return the number of values per line if the slot is dense or it is always one; else 0."""
    shape = column.values.shape
    if len(shape) == 2:
        return int(shape[1])
    offsets = column.offsets
    return int(shape[0] == offsets.shape[0] - 1 and bool((offsets.diff() == 1).all()))
