"""Work on bytes that a coroutine hands to two threads: functors in C++, or Python's libraries and NumPy.

Run as ``python -m benchmarks.sides.work SYSTEM``, one of `SYSTEMS`.
"""

from __future__ import annotations

import asyncio
import random
import sys
import time
import zlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np

from .serve import Clock, serve

__all__ = ["SYSTEMS", "prepare"]

THREADS = 2
MB = 1_000_000
GZIP = 31
"""zlib's window size for the gzip format."""

SLOTS = ("words", "tags", "weights", "label")
"""Slots of the text; the third has fractions, the last has one value in each line."""

Send = Callable[[bytes], Awaitable[Any]]


def text(megabytes: float) -> bytes:
    """Return lines of text with four slots."""
    draw = random.Random(0)
    lines, size = [], 0
    while size < megabytes * MB:
        words = [draw.randrange(1_000_000) for _ in range(draw.randrange(1, 30))]
        tags = [draw.randrange(1000) for _ in range(draw.randrange(1, 6))]
        weights = [round(draw.random(), 4) for _ in tags]
        slots = (words, tags, weights, [draw.randrange(2)])
        line = " ".join(" ".join(map(str, (len(values), *values))) for values in slots) + "\n"
        lines.append(line)
        size += len(line)
    return "".join(lines).encode()


def parsed_by_numpy(data: bytes) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return (values, offsets) of every slot: NumPy reads the numbers, a loop finds where they belong."""
    numbers = np.array(data.split(), np.float64)
    found: list[list[np.ndarray]] = [[] for _ in SLOTS]
    counts: list[list[int]] = [[] for _ in SLOTS]
    place = 0
    while place < len(numbers):
        for values, lengths in zip(found, counts, strict=True):
            count = int(numbers[place])
            values.append(numbers[place + 1 : place + 1 + count])
            lengths.append(count)
            place += 1 + count
    kinds = (np.int64, np.int64, np.float32, np.int64)
    return {
        name: (np.concatenate(values).astype(kind), np.cumsum([0, *lengths]))
        for name, kind, values, lengths in zip(SLOTS, kinds, found, counts, strict=True)
    }


def _summed(parts: dict[str, tuple[Any, Any]]) -> list[float]:
    return [float(np.asarray(each).sum(dtype=np.float64)) for pair in parts.values() for each in pair]


class Ours:
    """Functors in C++ threads."""

    def __init__(self) -> None:
        from dpmodule import streams

        self._streams, self._worker = streams, streams.cpp_threaded_worker(streams.ThreadPool(THREADS))
        kinds = {"weights": "float"}
        self._slots = [
            streams.Slot(name, kinds.get(name, "uint64"), is_dense=name == "label") for name in SLOTS
        ]

    def gunzip(self, data: bytes) -> Awaitable[Any]:
        """Decompress."""
        return self._worker(self._streams.DecompressFunctor(data, "gzip"))

    def checksum(self, data: bytes) -> Awaitable[Any]:
        """Compute the CRC-32C."""
        return self._worker(self._streams.Crc32cFunctor(data))

    def parse(self, data: bytes) -> Awaitable[Any]:
        """Parse text with slots."""
        return self._worker(self._streams.MultiSlotFunctor(data, self._slots))

    def check(self, what: str, found: Any) -> Any:
        """Return what is to be the same in all systems."""
        return _summed(found.slots) if what == "parse" else len(found) if what == "gunzip" else None

    def view(self, size: int) -> Callable[[], Any]:
        """Return a function that creates a memoryview of a handle."""
        return partial(memoryview, self._streams.StringHandle(bytes(size)))


class Python:
    """Python's zlib, which lets go of the GIL, and NumPy, in Python threads."""

    def __init__(self) -> None:
        self._threads = ThreadPoolExecutor(THREADS)

    def _run(self, function: Callable[..., Any], *args: Any) -> Awaitable[Any]:
        return asyncio.get_running_loop().run_in_executor(self._threads, function, *args)

    def gunzip(self, data: bytes) -> Awaitable[Any]:
        """Decompress."""
        return self._run(zlib.decompress, data, GZIP)

    def checksum(self, data: bytes) -> Awaitable[Any]:
        """Compute the CRC-32 of zlib; Python has no CRC-32C."""
        return self._run(zlib.crc32, data)

    def parse(self, data: bytes) -> Awaitable[Any]:
        """Parse text with slots."""
        return self._run(parsed_by_numpy, data)

    def check(self, what: str, found: Any) -> Any:
        """Return what is to be the same in all systems."""
        return _summed(found) if what == "parse" else len(found) if what == "gunzip" else None

    def view(self, size: int) -> Callable[[], Any]:
        """Return what copies a view of bytes."""
        return partial(bytes, memoryview(bytes(size)))


SYSTEMS: dict[str, Callable[[], Ours | Python]] = {"ours": Ours, "python": Python}


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    system = SYSTEMS[sys.argv[1]]()
    data: dict[tuple[str, float], bytes] = {}

    def blob(kind: str, megabytes: float) -> bytes:
        """Return what the work is done on."""
        if (kind, megabytes) not in data:
            plain = text(megabytes)
            if kind == "gunzip":
                packer = zlib.compressobj(wbits=GZIP)
                plain = packer.compress(plain) + packer.flush()
            data[kind, megabytes] = plain
        return data[kind, megabytes]

    async def send(kind: str, megabytes: float, count: int) -> list[Any]:
        function, given = getattr(system, kind), blob(kind, megabytes)
        return await asyncio.gather(*[function(given) for _ in range(count)])

    def work(kind: str, megabytes: float, count: int) -> dict[str, float]:
        """Return the milliseconds of a megabyte, of text that is read or comes out."""
        blob(kind, megabytes)
        clock = Clock()
        asyncio.run(send(kind, megabytes, count))
        return {key: value / megabytes for key, value in clock.read(count).items()}

    def check(kind: str, megabytes: float) -> Any:
        return system.check(kind, asyncio.run(send(kind, megabytes, 1))[0])

    def view(size: int, count: int) -> dict[str, float]:
        call = system.view(size)
        begin = time.perf_counter()
        for _ in range(count):
            call()
        return {"wall": (time.perf_counter() - begin) * 1e3 / count}

    return {"work": work, "check": check, "view": view}


if __name__ == "__main__":
    serve(prepare)
