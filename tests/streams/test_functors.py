"""The ready-made functors: awaited or run at once, without the GIL; checksums, copies and zlib."""

import asyncio
import contextlib
import gc
import gzip
import os
import pickle
import random
import sys
import threading
import time
import types
import zlib

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from dpmodule import native, streams
from dpmodule.base import FileFormatError
from dpmodule.recordio.framing import frame
from dpmodule.streams import Slot, StringHandle
from helpers.both_backends import descriptors, in_native, measures_memory, resident_bytes
from helpers.functors import agree, with_backend
from helpers.programs import again_without_native
from helpers.walk import walks

Crc32c, Memcpy, Records = streams.Crc32cFunctor, streams.MemcpyFunctor, streams.RecordsFunctor
Compress, Decompress, MultiSlot = streams.CompressFunctor, streams.DecompressFunctor, streams.MultiSlotFunctor
TEXT = b"the same bytes again and again " * 50
FUNCTORS = [
    (Compress(TEXT), lambda got: gzip.decompress(got) == TEXT),
    (Decompress(gzip.compress(TEXT)), lambda got: got == TEXT),
    (Crc32c(b"123456789"), lambda got: got == 0xE3069283),
    (Memcpy(bytearray(10), b"1234"), lambda got: got == 4),
    (MultiSlot(b"2 1 2\n", [Slot("a")]), lambda got: got.slots["a"].values.tolist() == [1, 2]),
    (Records(frame(b"one") + frame(b"two")), lambda got: got.records == [b"one", b"two"]),
]


async def test_functors_are_awaited():
    with streams.ThreadPool(2) as pool:
        worker = streams.cpp_threaded_worker(pool)
        for functor, fits in FUNCTORS:
            assert fits(functor())
            assert fits(await worker(functor))
        with pytest.raises(FileFormatError, match=r"gzip data: byte 5\d: cut short"):
            await worker(Decompress(gzip.compress(TEXT)[:-9]))


LONG = {
    "decompress": lambda: Decompress(gzip.compress(bytes(90 << 20), 1)),
    "crc32c": lambda: Crc32c(bytes(180 << 20)),
    "memcpy": lambda: Memcpy(np.zeros(120 << 20, np.uint8), np.ones(120 << 20, np.uint8)),
    "multislot": lambda: MultiSlot(b"3 1 2 3\n" * (3 << 20), [Slot("a")]),
}


@in_native
@pytest.mark.parametrize("name", LONG)
def test_other_threads_run_meanwhile(name):
    made, turns, ended = LONG[name](), [], threading.Event()

    def watch():
        while not ended.wait(0.0005):
            turns.append(time.perf_counter())

    interval = sys.getswitchinterval()
    sys.setswitchinterval(60)  # a thread that holds the GIL keeps it
    watcher = threading.Thread(target=watch)
    watcher.start()
    begin = time.perf_counter()
    made.run()
    end = time.perf_counter()
    ended.set()
    watcher.join()
    sys.setswitchinterval(interval)
    assert end - begin > 0.002
    assert [turn for turn in turns if begin < turn < end]


@in_native
async def test_zlib_in_python_stands_in_where_there_is_no_libz(monkeypatch):
    """The extension without its libz."""
    core = dict.fromkeys(("compress", "decompress"))  # which are not called
    core = types.SimpleNamespace(**{**vars(native.core), **core, "zlib_version": lambda: None})
    monkeypatch.setattr(native, "core", core)
    with streams.ThreadPool(2) as pool:
        worker = streams.cpp_threaded_worker(pool)
        packed = await worker(Compress(TEXT))
        with pytest.raises(FileFormatError, match="cut short"):
            await worker(Decompress(packed[:-1]))
        texts = await asyncio.gather(*(worker(Decompress(packed)) for _ in range(20)))
    assert set(texts) == {TEXT}


@measures_memory
def test_thousands_of_functors_and_handles_leave_nothing(backend):
    packed = gzip.compress(os.urandom(1 << 14))
    text, tensor = b"3 1 2 3 1 0\n" * 50, torch.zeros(1 << 14, dtype=torch.uint8)
    slots = [Slot("a"), Slot("b", is_dense=True)]
    functors = [
        lambda: Decompress(packed),
        lambda: Compress(TEXT, level=1),
        lambda: MultiSlot(text, slots),
        lambda: Records(frame(packed)),
        lambda: Crc32c(pickle.loads(pickle.dumps(StringHandle(tensor)[hash(StringHandle(text)[:9]) % 9 :]))),
        lambda: Decompress(packed[:50]),
        lambda: MultiSlot(b"1\n", slots),
    ]

    def use(rounds):
        for _ in range(rounds):
            for make in functors:
                with contextlib.suppress(FileFormatError):
                    make().run()
        gc.collect()
        return resident_bytes()

    before, references, files = use(100), sys.getrefcount(text), descriptors()
    assert use(2000 if backend == "native" else 200) - before < 3 << 20
    assert (sys.getrefcount(text), descriptors()) == (references, files)


# --- checksums

VECTORS = {
    b"123456789": 0xE3069283,
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
    assert Crc32c(data).run() == value == bitwise(data)


@with_backend(100)
@given(data=st.binary(max_size=1100), begin=st.integers(0, 9), value=st.integers(0, 2**32 - 1))
def test_checksums_of_any_bytes(backend, data, begin, value):
    assert Crc32c(StringHandle(data)[begin:], value).run() == bitwise(data[begin:], value)


@in_native
def test_table_and_instruction_agree():
    generator = random.Random(3)
    around = (511, 512, 513, 767, 768, 769, 1535, 1536, 12287, 12288, 12289, 13057)
    for size in (*around, *range(0, 30_000, 173)):
        data, value = generator.randbytes(size), generator.randrange(2**32)
        assert native.core.crc32c(data, value, True).run() == native.core.crc32c(data, value, False).run()
    assert native.core.crc32c_kind() in ("sse4.2", "arm", "table")


# --- copies


def test_copies_between_tensors_and_arrays_of_any_type(backend):
    target = torch.zeros(2, 3, dtype=torch.float64)
    assert Memcpy(target, np.arange(6, dtype=np.float64).reshape(3, 2)).run() == 48
    assert target.tolist() == [[0, 1, 2], [3, 4, 5]]
    halves = torch.zeros(4, dtype=torch.bfloat16)
    assert Memcpy(halves, torch.tensor([1.5, 2.5], dtype=torch.bfloat16), target_offset=4).run() == 4
    assert halves.tolist() == [0, 0, 1.5, 2.5]
    shared = torch.zeros(10, dtype=torch.uint8).share_memory_()
    Memcpy(shared, StringHandle(b"abcdef")[1:4], target_offset=2).run()
    assert bytes(shared.numpy()) == b"\0\0bcd\0\0\0\0\0"
    for target, source in ((bytearray(), b""), (torch.empty(0), torch.empty(0, 3)), (bytearray(3), b"")):
        assert Memcpy(target, source).run() == 0


def test_copies_of_random_ranges(backend):
    generator = random.Random(5)
    for overlaps in (False, True) * 100:
        target = bytearray(generator.randbytes(60))
        source = target if overlaps else generator.randbytes(generator.randrange(60))
        expected, begin = bytearray(target), generator.randint(0, len(source))
        count = generator.randint(0, len(source) - begin)
        at = generator.randint(0, 60 - count)
        expected[at : at + count] = source[begin : begin + count]
        functor = Memcpy(target, source, target_offset=at, source_offset=begin, count=count)
        assert functor.run() == count
        assert target == expected


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
    assert zlib.decompress(Compress(text, name, level=level).run(), FORMATS[name]) == text
    data = packed(text, name, max(level, 0))
    assert Decompress(data, name).run() == text
    if name != "deflate":
        assert Decompress(data).run() == text


@with_backend(60)
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), zeros=st.integers(0, 9))
def test_gzip_members_follow_each_other(backend, texts, zeros):
    data = b"".join(gzip.compress(text) for text in texts) + bytes(zeros)
    assert Decompress(data).run() == b"".join(texts) == gzip.decompress(data)


@every_format
def test_every_cut_is_noticed(backend, name):
    data = packed(bytes(range(256)) * 3, name)
    for length in range(len(data)):
        with pytest.raises(FileFormatError, match=rf"^{name} data: byte {length}: cut short"):
            Decompress(data[:length], name).run()


ZEROS, PRESET = bytes(1000), zlib.compressobj(zdict=b"words")


@walks(
    [
        *((packed(ZEROS, name), name, size, "") for name in FORMATS for size in (1000, 1001)),
        *((packed(ZEROS, name), name, size, "limit") for name in FORMATS for size in (0, 999)),
        *((packed(ZEROS, name) + b"x", name, None, "data end here, but 1 bytes") for name in FORMATS),
        (gzip.compress(b"text") + b"\0\0x", "gzip", None, "byte 26: the data end here, but 1 bytes"),
        (zlib.compress(bytes(50 << 20), 9), "zlib", 10**6, "limit"),
        (gzip.compress(ZEROS) * 50, "gzip", 20_000, "limit"),
        (gzip.compress(b"text")[:-4] + b"\xff\xff\xff\x7f", "gzip", None, "incorrect length check"),
        (zlib.compress(b"a") + b"\0\0", "auto", None, "2 bytes follow"),
        (PRESET.compress(b"words words") + PRESET.flush(), "zlib", None, "byte 6: .*preset dictionary"),
    ]
)
def test_limits_and_what_lies_about_its_size(data, name, most, text, backend):
    if not text:
        assert len(Decompress(data, name, max_bytes=most).run()) == 1000
        return
    text = f"more than max_bytes={most}; raise the limit" if text == "limit" else text
    with pytest.raises(FileFormatError, match=text):
        Decompress(data, name, max_bytes=most).run()


def damages(seed, rounds):
    generator = random.Random(seed)
    for _ in range(rounds):
        name = generator.choice(list(FORMATS))
        text = bytes(generator.choices(b"abcde", k=generator.randrange(2000)))
        data = bytearray(packed(text, name, generator.randint(0, 9)))
        for _ in range(generator.randint(1, 3)):  # some bytes are changed, left out or put in
            at = generator.randrange(len(data) + 1)
            data[at : at + generator.randrange(3)] = generator.randbytes(generator.randrange(3))
        most = generator.choice([None, None, len(text) // 2])
        yield Decompress, (bytes(data), generator.choice([name, "auto"])), {"max_bytes": most}


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
