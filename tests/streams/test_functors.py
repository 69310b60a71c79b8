"""What the ready-made functors have in common: awaited or run at once, without the GIL, again and again."""

import asyncio
import gc
import gzip
import os
import sys
import threading
import time
import weakref

import numpy as np
import pytest
import torch

from dpmodule import native
from dpmodule.base import FileFormatError
from dpmodule.recordio.framing import frame
from dpmodule.streams import (
    CompressFunctor,
    Crc32cFunctor,
    DecompressFunctor,
    MemcpyFunctor,
    MultiSlotFunctor,
    RecordsFunctor,
    Slot,
    StringHandle,
    ThreadPool,
    cpp_threaded_worker,
)
from helpers.both_backends import in_native, measures_memory, resident_bytes
from helpers.functors import backend as backend
from helpers.loops import every_loop, run
from helpers.programs import again_without_native

TEXT = b"the same bytes again and again " * 50


def functors():
    """One functor of each kind with what it gives."""
    lines = MultiSlotFunctor(b"2 1 2 1 0\n", [Slot("a"), Slot("b")])
    return {
        "compress": (CompressFunctor(TEXT), lambda got: gzip.decompress(got) == TEXT),
        "decompress": (DecompressFunctor(gzip.compress(TEXT)), lambda got: got == TEXT),
        "crc32c": (Crc32cFunctor(b"123456789"), lambda got: got == 0xE3069283),
        "memcpy": (MemcpyFunctor(bytearray(10), b"1234"), lambda got: got == 4),
        "multislot": (lines, lambda got: got.slots["a"].values.tolist() == [1, 2]),
        "records": (
            RecordsFunctor(frame(b"one") + frame(b"two")),
            lambda got: got.records == [b"one", b"two"],
        ),
    }


@pytest.mark.parametrize("name", functors())
def test_functor_runs_here_and_again(backend, name):
    functor, fits = functors()[name]
    assert fits(functor.run())
    assert fits(functor())
    assert fits(functor.run())


@every_loop
def test_functors_are_awaited(new_loop):
    async def main():
        with ThreadPool(2) as pool:
            worker = cpp_threaded_worker(pool)
            for functor, fits in functors().values():
                assert fits(await worker(functor))
                many = await asyncio.gather(*(worker(functor) for _ in range(20)))
                assert all(map(fits, many))
            with pytest.raises(FileFormatError, match=r"gzip data: byte 5\d: cut short"):
                await worker(DecompressFunctor(gzip.compress(TEXT)[:-9]))
            assert await worker(Crc32cFunctor(b"123456789")) == 0xE3069283

    run(main(), new_loop)


def test_result_outlives_functor_and_input():
    data = torch.tensor(list(frame(b"payload") * 3), dtype=torch.uint8)
    alive = weakref.ref(data)
    functor = RecordsFunctor(StringHandle(data))
    records = functor.run().records
    del data, functor
    gc.collect()
    assert (records[2] == b"payload", alive() is not None) == (True, True)
    del records
    gc.collect()
    assert alive() is None


def test_functor_that_nobody_awaits_is_dropped():
    data = torch.zeros(1 << 20, dtype=torch.uint8)
    alive, functors = weakref.ref(data), [Crc32cFunctor(data)]
    del data

    async def main():
        with ThreadPool(1) as pool:
            cpp_threaded_worker(pool)(functors.pop()).cancel()
            await asyncio.sleep(0.01)

    run(main())
    gc.collect()
    assert alive() is None


@in_native
@pytest.mark.parametrize("name", ["decompress", "crc32c", "memcpy", "multislot"])
def test_other_threads_run_meanwhile(name):
    size = 3 << 20
    made = {
        "decompress": lambda: DecompressFunctor(gzip.compress(bytes(size * 30), 1)),
        "crc32c": lambda: Crc32cFunctor(bytes(size * 60)),
        "memcpy": lambda: MemcpyFunctor(np.zeros(size * 40, np.uint8), np.ones(size * 40, np.uint8)),
        "multislot": lambda: MultiSlotFunctor(b"3 1 2 3\n" * size, [Slot("a")]),
    }[name]()
    turns, ended = [], threading.Event()

    def watch():
        while not ended.is_set():
            turns.append(time.perf_counter())
            time.sleep(0.0005)

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # a thread that holds the GIL keeps it
    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        begin = time.perf_counter()
        made.run()
        end = time.perf_counter()
    finally:
        ended.set()
        watcher.join()
        sys.setswitchinterval(interval)
    inside = [turn for turn in turns if begin < turn < end]
    assert end - begin > 0.002
    assert inside


@in_native
def test_zlib_in_python_stands_in_where_there_is_no_libz(monkeypatch):
    class Core:
        """The extension, but for its libz."""

        def __getattr__(self, name):
            return getattr(_core, name)

        def zlib_version(self):
            return None

        def decompress(self, *_):
            raise AssertionError("there is no libz")

        compress = decompress

    _core = native.core
    monkeypatch.setattr(native, "core", Core())

    async def main():
        with ThreadPool(2) as pool:
            worker = cpp_threaded_worker(pool)
            packed = await worker(CompressFunctor(TEXT))
            assert await worker(DecompressFunctor(packed)) == TEXT
            with pytest.raises(FileFormatError, match="cut short"):
                await worker(DecompressFunctor(packed[:-1]))
            return await asyncio.gather(*(worker(DecompressFunctor(packed)) for _ in range(20)))

    assert set(run(main())) == {TEXT}


@measures_memory
def test_thousands_of_functors_leave_nothing(backend):
    packed = gzip.compress(os.urandom(1 << 14))
    text = b"3 1 2 3 1 0\n" * 50
    rounds = 2000 if backend == "native" else 200

    def use():
        DecompressFunctor(packed).run()
        CompressFunctor(TEXT, level=1).run()
        MultiSlotFunctor(text, [Slot("a"), Slot("b", is_dense=True)]).run()
        RecordsFunctor(frame(packed)).run()
        for broken in (DecompressFunctor(packed[:50]), MultiSlotFunctor(b"1\n", [Slot("a")])):
            with pytest.raises(FileFormatError):
                broken.run()

    for _ in range(100):
        use()
    gc.collect()
    before = resident_bytes()
    for _ in range(rounds):
        use()
    gc.collect()
    assert resident_bytes() - before < 3 << 20


@pytest.mark.timeout(120)
def test_the_same_without_the_extension():
    """But for the functors in Python that are tried above, beside those of the extension."""
    again_without_native(__file__, "-k", "not python")
