"""MXNet's array files: recorded ones load and are written again byte for byte; damaged ones are refused."""

import random
import struct
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import util
from dpmodule.base import FileFormatError

nd = mx.nd
FILES = Path(__file__).parents[1] / "data" / "formats"
AGAIN = ["v2_dense.params", "v2_list.nd", "v2_single.nd", "v2_sparse.params"]
RECORDED = [*AGAIN, "v0_handmade.params", "v1_handmade.params", "v3_npshape.params", "legacy_ndarray.v0"]


def expected(name):
    with np.load(FILES / "expected.npz") as stored:
        keys = (k for k in stored.files if k.startswith(name + "|") and "#" not in k)
        return {k.partition("|")[2]: stored[k] for k in keys}


def by_name(loaded):
    return loaded if isinstance(loaded, dict) else {str(i): v for i, v in enumerate(loaded)}


def one_array(record, names=0):
    return struct.pack("<QQQ", 0x112, 0, 1) + record + struct.pack("<Q", names)


def v2(shape, code=0, data=b"", storage=0, magic=0xF993FAC9):
    head = struct.pack(f"<Iii{len(shape)}q", magic, storage, len(shape), *shape)
    return head + struct.pack("<iii", 1, 0, code) + data


@pytest.mark.parametrize("name", RECORDED)
def test_recorded_files_load(name):
    want = expected(name)
    for loaded in (nd.load(str(FILES / name)), nd.load_frombuffer((FILES / name).read_bytes())):
        got = by_name(loaded)
        assert sorted(got) == sorted(want)
        for key, value in want.items():
            array = got[key].asnumpy()
            assert (array.dtype, array.shape, got[key].context) == (value.dtype, value.shape, mx.cpu(0)), key
            np.testing.assert_array_equal(array, value, err_msg=key)


@pytest.mark.parametrize("name", [*AGAIN, "empty.nd", "v3_npshape.params"])
def test_saving_again_gives_the_same_bytes(name, tmp_path):
    target, loaded = tmp_path / "again", nd.load(FILES / name)
    with util.np_shape(name.startswith("v3")):
        nd.save(target, loaded[0] if name == "v2_single.nd" else loaded)
    assert target.read_bytes() == (FILES / name).read_bytes()


@pytest.mark.parametrize("inside", [False, True])
def test_an_array_without_axes_is_saved_in_the_newer_record(inside, tmp_path):
    target = str(tmp_path / "scalar")
    with util.np_shape(inside):
        nd.save(target, [nd.array(np.float32(3)), nd.ones((2,))])
    with util.np_shape(not inside):
        scalar, plain = nd.load(target)
    assert (scalar.shape, scalar.asscalar(), plain.shape) == ((), 3, (2,))
    assert (tmp_path / "scalar").read_bytes()[24:28] == struct.pack("<I", 0xF993FACA)


ONE = v2((1,), 0, bytes(4))


def test_damage_is_reported_with_its_place(tmp_path):
    for content, words in (
        *((b"", "is empty"), (b"\x12\x01", "truncated"), (b"<!DOCTYPE html><html>404</html>", "HTML page")),
        (b"version https://git-lfs.github.com/spec/v1\noid", "git lfs pull"),
        *((b"PK\x03\x04" + bytes(30), "zip archive"), (bytes(64), "not an MXNet array file")),
        (struct.pack("<QQQ", 0x112, 0, 2**62), "arrays do not fit"),
        (one_array(v2((2**40, 2**10))), "data of shape"),
        *((one_array(v2(shape)), "impossible") for shape in ((2**62, 2**62), (-4,), (0, 2**62, 2**62))),
        (one_array(struct.pack("<4I3i", 3, 0, 2**31, 2**31, 1, 0, 0)), "impossible"),
        (one_array(v2((2,), 99, bytes(8))), "unknown type number 99"),
        (one_array(v2((2,), 0, bytes(7))), "number of names needs"),
        (one_array(v2((2,), 0, bytes(8), storage=5)), "no storage type 5"),
        (one_array(struct.pack("<I", 77)), "does not start an array"),
        (one_array(ONE, 2), "2 names for 1 arrays"),
        (one_array(ONE, 1) + struct.pack("<Q", 2) + b"\xff\xff", "not UTF-8"),
        (one_array(ONE) + b"more", "4 bytes follow"),
    ):
        target = tmp_path / "bad.params"
        target.write_bytes(content)
        with pytest.raises(FileFormatError, match=rf"(?s)bad\.params: byte .*{words}"):
            nd.load(target)


def test_every_truncation_is_refused():
    content = (FILES / "v2_list.nd").read_bytes()
    for length in range(len(content)):
        with pytest.raises(FileFormatError):
            nd.load_frombuffer(content[:length])


def mutated(content, rng):
    """Change, drop, repeat or insert a few bytes, with a liking for extreme numbers."""
    data = bytearray(content)
    for _ in range(rng.randint(1, 4)):
        at, most = rng.randrange(len(data)), [-1, 0, 1, 2**31, 2**62, 2**63 - 1, -(2**63)]
        length, some = rng.randint(1, 16), bytes(rng.randrange(256) for _ in range(rng.randint(1, 8)))
        changes = [(1, some[:1]), (8, struct.pack("<q", rng.choice(most))), (length, b"")]
        size, new = rng.choice([*changes, (0, data[at : at + length]), (0, some)])
        data[at : at + size] = new
        data = data or bytearray(b"\0")
    return bytes(data)


def fuzz(count, seed):
    rng = random.Random(seed)
    seeds = [(FILES / name).read_bytes() for name in (*RECORDED, "empty.nd")]
    seeds, refused = [s for s in seeds if len(s) < 1100], 0
    for _ in range(count):
        content = mutated(rng.choice(seeds), rng)
        try:
            for array in by_name(nd.load_frombuffer(content)).values():
                stored = array.data if array.stype != "default" else array
                assert stored.asnumpy().nbytes <= len(content)
        except FileFormatError as error:
            refused += 1
            str(error).encode()
    assert 0 < refused < count


@pytest.mark.timeout(300)
@pytest.mark.parametrize(("count", "seed"), [(2000, 1), pytest.param(10_000, 2, marks=pytest.mark.slow)])
def test_mutated_files_load_or_are_refused(count, seed):
    fuzz(count, seed)


def test_an_array_of_another_context_is_written_for_any_machine(tmp_path):
    here, there = tmp_path / "here", tmp_path / "there"
    nd.save(here, nd.ones((2,)))
    nd.save(there, nd.ones((2,), ctx=mx.cpu(1)))
    assert here.read_bytes() == there.read_bytes()


@pytest.mark.parametrize(
    "record",
    [struct.pack("<I", 0), struct.pack("<Ii", 0xF993FAC8, 0), struct.pack("<Iii", 0xF993FAC9, 0, 0)]
    + [struct.pack("<Iii", 0xF993FACA, 0, -1)],
    ids=["v0", "v1", "v2", "v3"],
)
def test_an_array_without_shape_is_empty(record):
    assert nd.load_frombuffer(one_array(record))[0].shape == (0,)
