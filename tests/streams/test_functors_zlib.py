"""Compression and decompression against Python's zlib and gzip, and damaged data of every kind."""

import gzip
import random
import re
import zlib
from itertools import product

import numpy as np
import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from dpmodule import native
from dpmodule.base import ArgumentError, FileFormatError
from dpmodule.streams import CompressFunctor, DecompressFunctor, StringHandle
from helpers.both_backends import in_native
from helpers.functors import backend as backend
from helpers.functors import outcome
from helpers.walk import walks

FORMATS = {"gzip": 31, "zlib": 15, "deflate": -15}
every_format = pytest.mark.parametrize("name", FORMATS)
with_backend = settings(
    max_examples=60,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)


TEXTS = st.binary(max_size=300) | st.builds(
    lambda a, n: a * n, st.binary(max_size=20), st.integers(0, 20_000)
)


def packed(text, name, level=6):
    stream = zlib.compressobj(level, zlib.DEFLATED, FORMATS[name])
    return stream.compress(text) + stream.flush()


@every_format
@with_backend
@given(text=TEXTS, level=st.integers(-1, 9))
def test_zlib_of_python_reads_what_is_compressed(backend, name, text, level):
    assert zlib.decompress(CompressFunctor(text, name, level=level).run(), FORMATS[name]) == text


@every_format
@with_backend
@given(text=TEXTS, level=st.integers(0, 9))
def test_what_zlib_of_python_compresses_is_read(backend, name, text, level):
    data = packed(text, name, level)
    assert DecompressFunctor(data, name).run() == text
    if name != "deflate":
        assert DecompressFunctor(data).run() == text


@with_backend
@given(texts=st.lists(TEXTS, min_size=1, max_size=4), zeros=st.integers(0, 9))
def test_gzip_members_follow_each_other(backend, texts, zeros):
    data = b"".join(gzip.compress(text) for text in texts) + bytes(zeros)
    assert DecompressFunctor(data).run() == b"".join(texts) == gzip.decompress(data)


def test_inputs_of_other_kinds(backend):
    text = bytes(1000)
    data = gzip.compress(text)
    tensor = torch.tensor(list(data), dtype=torch.uint8)
    for given_data in (
        StringHandle(data),
        bytearray(data),
        np.frombuffer(data, np.uint8),
        tensor,
        tensor.share_memory_(),
    ):
        assert DecompressFunctor(given_data).run() == text


def test_result_much_larger_than_guessed(backend):
    text = bytes(20 << 20)
    result = DecompressFunctor(zlib.compress(text, 9)).run()
    assert (len(result), bytes(result[:5]), result[-1]) == (len(text), bytes(5), 0)


@every_format
def test_every_cut_is_noticed(backend, name):
    data = packed(bytes(range(256)) * 3, name)
    for length in range(len(data)):
        with pytest.raises(FileFormatError, match=rf"^{name} data: byte {length}: cut short"):
            DecompressFunctor(data[:length], name).run()


@walks(product(FORMATS, [b"x", b"\x1f\x8c", b"\0\0x", b"trailing garbage"]))
def test_what_follows_is_refused(name, rest, backend):
    data = packed(b"text", name)
    skipped = len(rest) - len(rest.lstrip(b"\0")) if name == "gzip" else 0
    where = len(data) + skipped
    with pytest.raises(
        FileFormatError, match=f"byte {where}: the data end here, but {len(rest) - skipped} bytes"
    ):
        DecompressFunctor(data + rest, name).run()


def test_zeros_behind_other_formats_are_refused(backend):
    with pytest.raises(FileFormatError, match="2 bytes follow"):
        DecompressFunctor(zlib.compress(b"a") + b"\0\0").run()


@walks(product(FORMATS, [0, 1, 999, 1000, 1001]))
def test_limit(name, size, backend):
    data = packed(bytes(1000), name)
    if size >= 1000:
        assert len(DecompressFunctor(data, name, max_bytes=size).run()) == 1000
    else:
        with pytest.raises(FileFormatError, match=rf"more than max_bytes={size}; raise the limit"):
            DecompressFunctor(data, name, max_bytes=size).run()


def test_bomb_is_stopped_before_it_takes_memory(backend):
    bomb = zlib.compress(bytes(50 << 20), 9)
    with pytest.raises(FileFormatError, match="max_bytes=1000000"):
        DecompressFunctor(bomb, max_bytes=10**6).run()


def test_bomb_of_members_is_stopped(backend):
    bomb = gzip.compress(bytes(1000)) * 50
    with pytest.raises(FileFormatError, match="max_bytes=20000"):
        DecompressFunctor(bomb, max_bytes=20_000).run()


def test_size_that_lies_is_no_matter(backend):
    good = gzip.compress(b"text")
    with pytest.raises(FileFormatError, match="incorrect length check"):
        DecompressFunctor(good[:-4] + b"\xff\xff\xff\x7f").run()


def test_preset_dictionary_is_refused(backend):
    stream = zlib.compressobj(zdict=b"words")
    with pytest.raises(FileFormatError, match="preset dictionary"):
        DecompressFunctor(stream.compress(b"words words") + stream.flush()).run()


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: CompressFunctor(b"", "bzip2"), "'bzip2', expected 'gzip', 'zlib' or 'deflate'"),
        (lambda: CompressFunctor(b"", "auto"), "format is 'auto'"),
        (lambda: CompressFunctor(b"", level=10), "level is 10"),
        (lambda: CompressFunctor(b"", level=True), "level is True"),
        (lambda: DecompressFunctor(b"", "lzma"), "'lzma', expected 'auto'"),
        (lambda: DecompressFunctor(b"", max_bytes=-1), "max_bytes is -1"),
        (lambda: DecompressFunctor(b"", max_bytes=1.5), "max_bytes is 1.5, expected an integer"),
    ],
)
def test_arguments_are_checked(backend, make, text):
    with pytest.raises(ArgumentError, match=re.escape(text)):
        make()


def damaged(generator, data):
    """Data with some bytes changed, left out or put in."""
    changed = bytearray(data)
    for _ in range(generator.randint(1, 3)):
        at = generator.randrange(len(changed) + 1)
        kind = generator.randrange(4)
        if kind == 0 and at < len(changed):
            changed[at] = generator.randrange(256)
        elif kind == 1:
            changed[at : at + generator.randint(1, 9)] = b""
        elif kind == 2:
            changed[at:at] = generator.randbytes(generator.randint(1, 9))
        elif at < len(changed):
            changed[at] ^= 1 << generator.randrange(8)
    return bytes(changed)


def compare(seed, rounds, monkeypatch):
    """Decompress damaged data by both; return how many were refused."""
    generator = random.Random(seed)
    functors = []
    for _ in range(rounds):
        name = generator.choice(list(FORMATS))
        text = bytes(generator.choices(b"abcde", k=generator.randrange(2000)))
        data = damaged(generator, packed(text, name, generator.randint(0, 9)))
        most = generator.choice([None, None, len(text) // 2])
        name = generator.choice([name, "auto"])
        functors.append((DecompressFunctor(data, name, max_bytes=most), data, name, most))
    refused = 0
    with monkeypatch.context() as patch:
        patch.setattr(native, "core", None)
        for functor, data, name, most in functors:
            found, expected = outcome(functor), outcome(DecompressFunctor(data, name, max_bytes=most))
            if most is not None and isinstance(
                expected, tuple
            ):  # which of two mistakes is noticed first may differ
                assert (type(found), found[0]) == (tuple, FileFormatError)
            else:
                assert found == expected
            refused += isinstance(found, tuple)
    return refused


@in_native
@pytest.mark.parametrize("seed", range(10))
def test_damaged_data_end_alike(seed, monkeypatch):
    assert compare(seed, 40, monkeypatch) > 20


@in_native
@pytest.mark.slow
@pytest.mark.timeout(900)
def test_damaged_data_end_alike_at_length(monkeypatch):
    assert sum(compare(seed, 400, monkeypatch) for seed in range(100, 350)) > 50_000
