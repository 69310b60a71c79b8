"""The ready-made functors: awaited or run at once, without the GIL; checksums, copies and zlib."""

import asyncio
import gc
import gzip
import itertools
import os
import random
import sys
import threading
import time
import weakref
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

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
from helpers.functors import agree, with_backend
from helpers.functors import backend as backend
from helpers.loops import every_loop, run
from helpers.programs import again_without_native
from helpers.walk import walks

TEXT = b"the same bytes again and again " * 50


def functors():
    """One functor of each kind with what it gives."""
    lines = MultiSlotFunctor(b"2 1 2 1 0\n", [Slot("a"), Slot("b")])
    found = RecordsFunctor(frame(b"one") + frame(b"two"))
    return {
        "compress": (CompressFunctor(TEXT), lambda got: gzip.decompress(got) == TEXT),
        "decompress": (DecompressFunctor(gzip.compress(TEXT)), lambda got: got == TEXT),
        "crc32c": (Crc32cFunctor(b"123456789"), lambda got: got == 0xE3069283),
        "memcpy": (MemcpyFunctor(bytearray(10), b"1234"), lambda got: got == 4),
        "multislot": (lines, lambda got: got.slots["a"].values.tolist() == [1, 2]),
        "records": (found, lambda got: got.records == [b"one", b"two"]),
    }


@pytest.mark.parametrize("name", functors())
def test_functor_runs_here_and_again(backend, name):
    functor, fits = functors()[name]
    assert fits(functor.run())
    assert fits(functor())


@every_loop
async def test_functors_are_awaited():
    with ThreadPool(2) as pool:
        worker = cpp_threaded_worker(pool)
        for functor, fits in functors().values():
            assert fits(await worker(functor))
            assert all(map(fits, await asyncio.gather(*(worker(functor) for _ in range(20)))))
        with pytest.raises(FileFormatError, match=r"gzip data: byte 5\d: cut short"):
            await worker(DecompressFunctor(gzip.compress(TEXT)[:-9]))
        assert await worker(Crc32cFunctor(b"123456789")) == 0xE3069283


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


SIZE = 3 << 20
LONG = {
    "decompress": lambda: DecompressFunctor(gzip.compress(bytes(SIZE * 30), 1)),
    "crc32c": lambda: Crc32cFunctor(bytes(SIZE * 60)),
    "memcpy": lambda: MemcpyFunctor(np.zeros(SIZE * 40, np.uint8), np.ones(SIZE * 40, np.uint8)),
    "multislot": lambda: MultiSlotFunctor(b"3 1 2 3\n" * SIZE, [Slot("a")]),
}


@in_native
@pytest.mark.parametrize("name", LONG)
def test_other_threads_run_meanwhile(name):
    made, turns, ended = LONG[name](), [], threading.Event()

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
    assert end - begin > 0.002
    assert [turn for turn in turns if begin < turn < end]


@in_native
async def test_zlib_in_python_stands_in_where_there_is_no_libz(monkeypatch):
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
    with ThreadPool(2) as pool:
        worker = cpp_threaded_worker(pool)
        packed = await worker(CompressFunctor(TEXT))
        with pytest.raises(FileFormatError, match="cut short"):
            await worker(DecompressFunctor(packed[:-1]))
        texts = await asyncio.gather(*(worker(DecompressFunctor(packed)) for _ in range(20)))
    assert set(texts) == {TEXT}


@measures_memory
def test_thousands_of_functors_leave_nothing(backend):
    packed = gzip.compress(os.urandom(1 << 14))
    text = b"3 1 2 3 1 0\n" * 50

    def use(rounds):
        for _ in range(rounds):
            DecompressFunctor(packed).run()
            CompressFunctor(TEXT, level=1).run()
            MultiSlotFunctor(text, [Slot("a"), Slot("b", is_dense=True)]).run()
            RecordsFunctor(frame(packed)).run()
            for broken in (DecompressFunctor(packed[:50]), MultiSlotFunctor(b"1\n", [Slot("a")])):
                with pytest.raises(FileFormatError):
                    broken.run()
        gc.collect()
        return resident_bytes()

    before = use(100)
    assert use(2000 if backend == "native" else 200) - before < 3 << 20


# --- checksums

VECTORS = {
    b"": 0x00000000,
    b"a": 0xC1D04330,
    b"123456789": 0xE3069283,
    b"The quick brown fox jumps over the lazy dog": 0x22620404,
    bytes(32): 0x8A9136AA,  # this and those below: RFC 3720, B.4
    b"\xff" * 32: 0x62A8AB43,
    bytes(range(32)): 0x46DD794E,
    bytes(range(31, -1, -1)): 0x113FDB5C,
}


def bitwise(data, value=0):
    crc = value ^ 0xFFFFFFFF
    for byte in data:
        crc ^= byte
        for _ in range(8):
            crc = (crc >> 1) ^ (0x82F63B78 if crc & 1 else 0)
    return crc ^ 0xFFFFFFFF


@walks(VECTORS.items())
def test_published_checksums(data, value, backend):
    assert Crc32cFunctor(data).run() == value == bitwise(data)


@with_backend(100)
@given(data=st.binary(max_size=1100), begin=st.integers(0, 9), value=st.integers(0, 2**32 - 1))
def test_checksums_of_any_bytes(backend, data, begin, value):
    assert Crc32cFunctor(StringHandle(data)[begin:], value).run() == bitwise(data[begin:], value)


@walks([511, 512, 513, 767, 768, 769, 1535, 1536, 12287, 12288, 12289, 13057, 30_000])
def test_checksums_of_sizes_around_those_of_its_steps(size, backend):
    data = random.Random(size).randbytes(size)
    assert Crc32cFunctor(data, 99).run() == bitwise(data, 99)
    numbers = np.frombuffer(data[: size // 8 * 8], np.float64)
    assert Crc32cFunctor(numbers.reshape(-1, 1)).run() == bitwise(numbers.tobytes())


def test_checksums_are_continued_in_pieces(backend):
    data = random.Random(1).randbytes(50_000)
    whole = Crc32cFunctor(data).run()
    generator = random.Random(2)
    for _ in range(20):
        cuts = sorted([0, *(generator.randrange(50_001) for _ in range(5)), 50_000])
        value = 0
        for begin, end in itertools.pairwise(cuts):
            value = Crc32cFunctor(data[begin:end], value).run()
        assert value == whole


@in_native
def test_table_and_instruction_agree():
    generator = random.Random(3)
    for _ in range(200):
        data = generator.randbytes(generator.randrange(40_000))
        value = generator.randrange(2**32)
        assert native.core.crc32c(data, value, True).run() == native.core.crc32c(data, value, False).run()
    assert native.core.crc32c_kind() in ("sse4.2", "arm", "table")


# --- copies


def test_copies_between_tensors_and_arrays_of_any_type(backend):
    target = torch.zeros(2, 3, dtype=torch.float64)
    assert MemcpyFunctor(target, np.arange(6, dtype=np.float64).reshape(3, 2)).run() == 48
    assert target.tolist() == [[0, 1, 2], [3, 4, 5]]
    halves = torch.zeros(4, dtype=torch.bfloat16)
    assert MemcpyFunctor(halves, torch.tensor([1.5, 2.5], dtype=torch.bfloat16), target_offset=4).run() == 4
    assert halves.tolist() == [0, 0, 1.5, 2.5]
    shared = torch.zeros(10, dtype=torch.uint8).share_memory_()
    MemcpyFunctor(shared, StringHandle(b"abcdef")[1:4], target_offset=2).run()
    assert bytes(shared.numpy()) == b"\0\0bcd\0\0\0\0\0"
    for target, source in ((bytearray(), b""), (torch.empty(0), torch.empty(0, 3)), (bytearray(3), b"")):
        assert MemcpyFunctor(target, source).run() == 0


def test_copies_of_random_ranges(backend):
    generator = random.Random(5)
    for overlaps in (False, True) * 100:
        target = bytearray(generator.randbytes(60))
        source = target if overlaps else generator.randbytes(generator.randrange(60))
        expected, begin = bytearray(target), generator.randint(0, len(source))
        count = generator.randint(0, len(source) - begin)
        at = generator.randint(0, 60 - count)
        expected[at : at + count] = source[begin : begin + count]
        functor = MemcpyFunctor(target, source, target_offset=at, source_offset=begin, count=count)
        assert functor.run() == count
        assert target == expected


def test_memory_lives_until_the_copy_is_done(backend):
    target = bytearray(4)
    functor = MemcpyFunctor(target, bytes([1, 2, 3, 4]))
    with pytest.raises(BufferError):
        target.append(1)
    assert functor.run() == 4
    del functor
    target.append(1)
    assert target == b"\1\2\3\4\1"


# --- zlib

FORMATS = {"gzip": 31, "zlib": 15, "deflate": -15}
every_format = pytest.mark.parametrize("name", FORMATS)
TEXTS = st.binary(max_size=300) | st.builds(bytes.__mul__, st.binary(max_size=20), st.integers(0, 20_000))


def packed(text, name, level=6):
    stream = zlib.compressobj(level, zlib.DEFLATED, FORMATS[name])
    return stream.compress(text) + stream.flush()


@every_format
@with_backend(60)
@given(text=TEXTS, level=st.integers(-1, 9))
def test_zlib_of_python_reads_what_is_compressed_and_the_reverse(backend, name, text, level):
    assert zlib.decompress(CompressFunctor(text, name, level=level).run(), FORMATS[name]) == text
    data = packed(text, name, max(level, 0))
    assert DecompressFunctor(data, name).run() == text
    if name != "deflate":
        assert DecompressFunctor(data).run() == text


@with_backend(60)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), zeros=st.integers(0, 9))
def test_gzip_members_follow_each_other(backend, texts, zeros):
    data = b"".join(gzip.compress(text) for text in texts) + bytes(zeros)
    assert DecompressFunctor(data).run() == b"".join(texts) == gzip.decompress(data)


def test_results_much_larger_than_guessed_from_inputs_of_all_kinds(backend):
    data = gzip.compress(bytes(20 << 20))
    tensor = torch.tensor(list(data), dtype=torch.uint8)
    for source in (StringHandle(data), np.frombuffer(data, np.uint8), tensor, tensor.share_memory_()):
        result = DecompressFunctor(source).run()
        assert (len(result), bytes(result[:5]), result[-1]) == (20 << 20, bytes(5), 0)


@every_format
def test_every_cut_is_noticed(backend, name):
    data = packed(bytes(range(256)) * 3, name)
    for length in range(len(data)):
        with pytest.raises(FileFormatError, match=rf"^{name} data: byte {length}: cut short"):
            DecompressFunctor(data[:length], name).run()


@walks(itertools.product(FORMATS, [b"x", b"\x1f\x8c", b"\0\0x", b"trailing garbage"]))
def test_what_follows_is_refused(name, rest, backend):
    data = packed(b"text", name)
    skipped = len(rest) - len(rest.lstrip(b"\0")) if name == "gzip" else 0
    text = f"byte {len(data) + skipped}: the data end here, but {len(rest) - skipped} bytes"
    with pytest.raises(FileFormatError, match=text):
        DecompressFunctor(data + rest, name).run()


def dictionary():
    stream = zlib.compressobj(zdict=b"words")
    return stream.compress(b"words words") + stream.flush()


@walks(
    [
        *((packed(bytes(1000), name), name, size, "") for name in FORMATS for size in (1000, 1001)),
        *((packed(bytes(1000), name), name, size, "limit") for name in FORMATS for size in (0, 1, 999)),
        (zlib.compress(bytes(50 << 20), 9), "zlib", 10**6, "limit"),
        (gzip.compress(bytes(1000)) * 50, "gzip", 20_000, "limit"),
        (gzip.compress(b"text")[:-4] + b"\xff\xff\xff\x7f", "gzip", None, "incorrect length check"),
        (zlib.compress(b"a") + b"\0\0", "auto", None, "2 bytes follow"),
        (dictionary(), "zlib", None, "preset dictionary"),
    ]
)
def test_limits_and_what_lies_about_its_size(data, name, most, text, backend):
    if not text:
        assert len(DecompressFunctor(data, name, max_bytes=most).run()) == 1000
        return
    text = f"more than max_bytes={most}; raise the limit" if text == "limit" else text
    with pytest.raises(FileFormatError, match=text):
        DecompressFunctor(data, name, max_bytes=most).run()


def damaged(generator, data):
    """Data with some bytes changed, left out or put in."""
    changed = bytearray(data)
    for _ in range(generator.randint(1, 3)):
        at, kind = generator.randrange(len(changed) + 1), generator.randrange(4)
        if kind == 0:
            changed[at : at + 1] = bytes([generator.randrange(256)])
        elif kind == 1:
            changed[at : at + generator.randint(1, 9)] = b""
        elif kind == 2:
            changed[at:at] = generator.randbytes(generator.randint(1, 9))
        else:
            changed[at : at + 1] = bytes(byte ^ 1 << generator.randrange(8) for byte in changed[at : at + 1])
    return bytes(changed)


def damages(seed, rounds):
    generator = random.Random(seed)
    for _ in range(rounds):
        name = generator.choice(list(FORMATS))
        text = bytes(generator.choices(b"abcde", k=generator.randrange(2000)))
        data = damaged(generator, packed(text, name, generator.randint(0, 9)))
        most = generator.choice([None, None, len(text) // 2])
        yield DecompressFunctor, (data, generator.choice([name, "auto"])), {"max_bytes": most}


@in_native
@pytest.mark.parametrize(
    ("seeds", "rounds"),
    [(range(10), 40), pytest.param(range(100, 350), 400, marks=[pytest.mark.slow, pytest.mark.timeout(900)])],
)
def test_damaged_data_end_alike(seeds, rounds, monkeypatch):
    for seed in seeds:
        calls = list(damages(seed, rounds))
        limited = [call for call in calls if call[2]["max_bytes"] is not None]
        free = [call for call in calls if call[2]["max_bytes"] is None]
        # which of two mistakes is noticed first may differ
        refused = agree(monkeypatch, limited, lambda found: found[0] if type(found) is tuple else found)
        assert refused + agree(monkeypatch, free) > rounds // 2


@pytest.mark.timeout(120)
def test_the_same_without_the_extension():
    """But for the functors in Python that are tried above, beside those of the extension."""
    again_without_native(__file__, "-k", "not python")
