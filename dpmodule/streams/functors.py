"""Ready-made functors for `cpp_threaded_worker`: work on bytes in C++ threads, without the GIL.

Make a functor with its data, then await it through a worker, or run it in the calling thread::

    >>> packed = CompressFunctor(b"to be or not to be " * 100).run()
    >>> DecompressFunctor(packed).run()[:12]
    StringHandle(b'to be or not')

Data are a `StringHandle` or anything that it accepts. They are not copied, so do not write to a buffer before the work
is done. A functor may run several times, also concurrently, with equal results. Without the extension, slower Python
versions have the same names; without libz.so.1, this applies to the two functors of zlib. Copies are calls of NumPy,
which lets go of the GIL.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, Generic, TypeVar

from .. import native
from ..base import ArgumentError, BoundsError
from ..native import blocks, multislot
from ..native.blocks import Records as Records
from ..native.multislot import MultiSlotLines as MultiSlotLines
from ..native.multislot import Slot as Slot
from ..native.multislot import SlotValues as SlotValues
from .string_handle import StringHandle

_Result = TypeVar("_Result")


class _PythonJob(Generic[_Result]):
    """A job in Python with the methods of the native one."""

    reentrant = True

    def __init__(self, run: Callable[[], _Result]) -> None:
        self.run = run

    def __dpmodule_functor__(self) -> Any:
        return self if native.core is None else native.core.callback(self.run).__dpmodule_functor__()


class ReadyFunctor(Generic[_Result]):
    """Base class of the ready-made functors: send one to a worker, or call `run` to do the work here.

    Args:
        job: native job; None without one.
        run: Python function that does the same work, called with `args`.
        *args: arguments of `run`, such as bytes.
    """

    __slots__ = ("__weakref__", "_job")

    def __init__(self, job: Any, run: Callable[..., _Result], *args: Any) -> None:
        self._job = _PythonJob(partial(run, *args)) if job is None else job

    def run(self) -> _Result:
        """Do the work in the calling thread and return its result; other Python threads run meanwhile."""
        result: _Result = self._job.run()
        return result

    __call__ = run

    def __dpmodule_functor__(self) -> Any:
        """Return the capsule that pools of C++ threads accept; without the extension, the job itself."""
        return self._job.__dpmodule_functor__()


class CompressFunctor(ReadyFunctor[StringHandle]):
    """Compress bytes into a StringHandle.

    Args:
        data: the bytes.
        format: "gzip", "zlib", or "deflate" for a bare stream without header and checksum.
        level: 0 for none, 1 for fast to 9 for small; -1 for zlib's usual 6.

    Raises:
        ArgumentError: `format` or `level` is invalid.
    """

    __slots__ = ()

    def __init__(self, data: Any, format: str = "gzip", *, level: int = -1) -> None:
        if format not in blocks.WINDOW_BITS:
            raise ArgumentError(
                f"CompressFunctor: format is {format!r}, expected 'gzip', 'zlib' or 'deflate'"
            )
        if isinstance(level, bool) or not isinstance(level, int) or not -1 <= level <= 9:
            raise ArgumentError(f"CompressFunctor: level is {level!r}, expected an integer from -1 to 9")
        handle = StringHandle(data)
        core = native.core
        super().__init__(
            core and core.zlib_version() and core.compress(handle, format, level),
            lambda: StringHandle(blocks.compress(handle, format, level)),
        )


class DecompressFunctor(ReadyFunctor[StringHandle]):
    """Decompress bytes into a StringHandle.

    gzip data may have several members, and zeros after the last one. Anything else after the compressed data is an
    error, in any format; so is an empty input.

    Args:
        data: the compressed bytes.
        format: "gzip", "zlib", "deflate" (a bare stream), or "auto" to detect gzip or zlib by the first bytes.
        max_bytes: largest size of the result; None for any. Set it for untrusted data, which may expand a
            thousand-fold.

    Raises:
        ArgumentError: `format` is unknown, or `max_bytes` is negative.
        FileFormatError: raised by the work: the data are damaged, incomplete, of another format, or expand to more
            than `max_bytes`; the message has the byte offset.
    """

    __slots__ = ()

    def __init__(self, data: Any, format: str = "auto", *, max_bytes: int | None = None) -> None:
        if format != "auto" and format not in blocks.WINDOW_BITS:
            raise ArgumentError(
                f"DecompressFunctor: format is {format!r}, expected 'auto', 'gzip', 'zlib' or 'deflate'"
            )
        limit = -1 if max_bytes is None else _count("DecompressFunctor: max_bytes", max_bytes)
        handle = StringHandle(data)
        core = native.core
        super().__init__(
            core and core.zlib_version() and core.decompress(handle, format, limit),
            lambda: StringHandle(blocks.decompress(handle, format, limit)),
        )


class Crc32cFunctor(ReadyFunctor[int]):
    """Compute the CRC-32C (Castagnoli) of bytes, with the processor's instruction if it has one.

    Args:
        data: the bytes.
        value: the checksum of the bytes before them.

    Raises:
        ArgumentError: `value` is not an unsigned integer of 32 bits.

    Example:
        >>> hex(Crc32cFunctor(b"123456789").run())
        '0xe3069283'
        >>> Crc32cFunctor(b"6789", Crc32cFunctor(b"12345").run()).run() == 0xE3069283
        True
    """

    __slots__ = ()

    def __init__(self, data: Any, value: int = 0) -> None:
        if isinstance(value, bool) or not isinstance(value, int) or not 0 <= value < 2**32:
            raise ArgumentError(f"Crc32cFunctor: value is {value!r}, expected an integer from 0 to 2^32 - 1")
        handle = StringHandle(data)
        core = native.core
        super().__init__(core and core.crc32c(handle, value), blocks.crc32c, handle, value)


class MemcpyFunctor(ReadyFunctor[int]):
    """Copy bytes into a buffer or tensor; the result is their number.

    Both sides are contiguous buffers, or contiguous tensors of any element type on the CPU; offsets count bytes. They
    may overlap.

    Args:
        target: the buffer to write to.
        source: the buffer to read.
        target_offset: first byte of `target` to write.
        source_offset: first byte of `source` to read.
        count: number of bytes; None for all of `source` from its offset on.

    Raises:
        DTypeError: a side is neither buffer nor tensor.
        ArgumentError: a side is not contiguous, or `target` cannot be written to.
        BoundsError: a range is not inside its side.
        DeviceError: a tensor is not on the CPU.
    """

    __slots__ = ()

    def __init__(
        self,
        target: Any,
        source: Any,
        *,
        target_offset: int = 0,
        source_offset: int = 0,
        count: int | None = None,
    ) -> None:
        read = blocks.byte_range("MemcpyFunctor: source", source, source_offset, count)
        written = blocks.byte_range("MemcpyFunctor: target", target, target_offset, len(read), write=True)
        super().__init__(None, blocks.copy, written, read)


class MultiSlotFunctor(ReadyFunctor[MultiSlotLines]):
    r"""Parse text in the MultiSlot format of Paddle's data feeds into tensors.

    Every line has, for each slot in the order of `slots`, the number of its values followed by the values:
    ``2 17 4 1 0`` is a slot with the values 17 and 4 and one with the value 0. Blanks are spaces and tabs; lines may
    end with "\r\n".

    Args:
        data: the text.
        source: name of the text in messages, such as the path of its file.
        first_line: number of the first line, in messages.
        final: True if no text follows, so that the last line may lack a line end. False for a block of a longer
            text, whose incomplete last line is left over.
        skip_blank: skip blank lines, which are errors otherwise.
        skip_bad: skip and count lines that do not match the description; each takes some microseconds.

    Shape:
        values: (sum of the counts,), int64 or float32; (N, count) for a dense slot.
        offsets: (N + 1,), int64.

    Values of uint64 slots keep their 64 bits in int64: from 2^63 on they read as negative. Those of float slots are
    read as double and rounded to float32.

    Raises:
        ArgumentError: there are no slots, or two have the same name.
        FileFormatError: raised by the work: a line does not match the description; the message names line and slot,
            the value found and the value expected.

    Example:
        >>> lines = MultiSlotFunctor(b"2 17 4 1 0\n1 5 1 1\n", [Slot("words"), Slot("label", is_dense=True)]).run()
        >>> lines.slots["words"].values, lines.slots["words"].offsets
        (tensor([17,  4,  5]), tensor([0, 2, 3]))
        >>> lines.slots["label"].values
        tensor([[0],
                [1]])

    Source: the format of Paddle's MultiSlotDataFeed, which ends the process on most of the errors raised here.
    """

    __slots__ = ()

    def __init__(
        self,
        data: Any,
        slots: Sequence[Slot],
        *,
        source: str = "MultiSlot text",
        first_line: int = 1,
        final: bool = True,
        skip_blank: bool = False,
        skip_bad: bool = False,
    ) -> None:
        slot_list = list(slots)
        for slot in slot_list:
            if not isinstance(slot, Slot):
                raise ArgumentError(f"MultiSlotFunctor: slots contains {slot!r}, expected Slot('name', ...)")
        if not slot_list or len({slot.name for slot in slot_list}) < len(slot_list):
            names = [slot.name for slot in slot_list]
            raise ArgumentError(
                f"MultiSlotFunctor: slots are {names}, expected one or more with different names"
            )
        _count("MultiSlotFunctor: first_line", first_line)
        handle = StringHandle(data)
        finish = partial(multislot.to_tensors, slot_list)
        described = [
            (_printable(slot.name), slot.type == "float", slot.is_dense, slot.is_used, slot.width or 0)
            for slot in slot_list
        ]
        core = native.core
        super().__init__(
            core
            and core.multislot(
                handle, described, _printable(source), first_line, final, skip_blank, skip_bad, finish
            ),
            lambda: finish(
                multislot.parse(handle, slot_list, source, first_line, final, skip_blank, skip_bad)
            ),
        )


class RecordsFunctor(ReadyFunctor[Records]):
    """Find the records in a block of a record file, as `mx.recordio` writes them.

    The block begins with a record and may end inside one, which is then left over.

    Args:
        source: name of the data in messages, such as the path of the file.
        offset: position of the block in the file, in bytes, for messages.
        final: True if no data follow, so that an incomplete record is an error.

    Raises:
        FileFormatError: raised by the work: a record is missing where one is expected; the message has the byte
            offset.

    Source: the format of MXNet's RecordIO; it finds the records that `mx.recordio.MXRecordIO` reads.
    """

    __slots__ = ()

    def __init__(
        self, data: Any, *, source: str = "record file", offset: int = 0, final: bool = False
    ) -> None:
        _count("RecordsFunctor: offset", offset)
        handle = StringHandle(data)
        core = native.core
        super().__init__(
            core and core.records(handle, _printable(source), offset, final, Records._make),
            lambda: Records(*blocks.find_records(handle, StringHandle, source, offset, final)),
        )


def _printable(text: str) -> str:
    """Return a text that C++ accepts: file names may hold undecodable bytes."""
    return text.encode("utf-8", "backslashreplace").decode().replace("\0", "\\0")


def _count(name: str, value: Any) -> int:
    if isinstance(value, bool) or not isinstance(value, int):
        raise ArgumentError(f"{name} is {value!r}, expected an integer")
    if not 0 <= value < 2**63:
        raise BoundsError(f"{name} is {value}, expected 0 to 2^63 - 1")
    return value
