"""Safetensors files: the format's own library reads what we write and we what it writes; damaged ones are refused."""

import json
import os
import struct

import numpy as np
import pytest
import safetensors.torch as theirs
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, FileFormatError
from dpmodule.ndarray import safetensors
from helpers.walk import walks

nd = mx.nd
DTYPES = (
    *("float16", "float32", "float64", "bfloat16", "int8", "int16", "int32", "int64"),
    *("uint8", "uint16", "uint32", "uint64", "bool"),
)
ONE = {"dtype": "F32", "shape": [1], "data_offsets": [0, 4]}
one = json.dumps(ONE).encode()


def tensor(dtype, shape, seed=0):
    values = np.random.RandomState(seed).randint(0, 2 if dtype == "bool" else 100, shape)
    return torch.from_numpy(np.asarray(values)).to(getattr(torch, dtype))


def file_of(header, data=b""):
    text = header if isinstance(header, bytes) else json.dumps(header).encode()
    return struct.pack("<Q", len(text)) + text + data


def same(ours, tensors):
    assert set(ours) == set(tensors)
    for name, wanted in tensors.items():
        got = ours[name].tensor
        assert (got.dtype, got.shape, ours[name].context) == (wanted.dtype, wanted.shape, mx.cpu(0)), name
        assert torch.equal(got.double(), wanted.double()), name


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_goes_both_ways(dtype, tmp_path):
    shapes = {"matrix": (3, 5), "scalar": (), "empty": (0, 4), "turned": (2, 3)}
    tensors = {name: tensor(dtype, shape) for name, shape in shapes.items()}
    tensors["turned"] = tensors["turned"].t()
    path = tmp_path / "ours.safetensors"
    nd.save(path, {name: nd.from_torch(value) for name, value in tensors.items()})
    found = theirs.load_file(path)
    assert {name: value.dtype for name, value in found.items()} == {n: v.dtype for n, v in tensors.items()}
    assert all(torch.equal(found[name].double(), value.double()) for name, value in tensors.items())
    same(nd.load(path), tensors)
    path = tmp_path / "theirs.safetensors"
    theirs.save_file({name: value.contiguous() for name, value in tensors.items()}, path)
    same(nd.load(path), tensors)
    same(nd.load_frombuffer(path.read_bytes()), tensors)


def test_data_are_aligned(tmp_path):
    path = tmp_path / "x.safetensors"
    nd.save(path, {"b": nd.array([1], dtype="int8"), "a": nd.array([1, 2, 3], dtype="float64")})
    content = path.read_bytes()
    assert (8 + struct.unpack("<Q", content[:8])[0]) % 64 == 0
    assert nd.load(path)["a"].tensor.data_ptr() % 8 == 0


def test_files_that_align_nothing_are_read_into_aligned_memory(tmp_path):
    flag, x = (
        {"dtype": "BOOL", "shape": [1], "data_offsets": [0, 1]},
        {"dtype": "F64", "shape": [2], "data_offsets": [1, 17]},
    )
    found = nd.load_frombuffer(file_of({"flag": flag, "x": x}, b"\x07" + struct.pack("<2d", 1.5, -2)))
    np.testing.assert_array_equal(found["x"].asnumpy(), [1.5, -2])
    assert found["x"].tensor.data_ptr() % 8 == 0
    assert found["flag"].asnumpy().tolist() == [True]  # any byte but 0 is true


@pytest.mark.parametrize("count", [10, 5 * 2**20])  # the larger file is mapped
def test_loaded_arrays_may_be_written_and_leave_the_file_alone(count, tmp_path):
    path = tmp_path / "x.safetensors"
    nd.save(path, {"a": nd.zeros((count,)), "b": nd.ones((count,))})
    first, second = nd.load(path), nd.load(path)
    first["a"][:] = 7
    assert (second["a"][:3].asnumpy() == 0).all()
    assert (nd.load(path)["a"][:3].asnumpy() == 0).all()
    nd.save(path, {"a": first["a"]})  # replaces the file that both are loaded from
    assert (second["b"].asnumpy() == 1).all()
    theirs.save_file({"a": torch.full((4,), 3.0)}, path)
    assert (second["b"].asnumpy() == 1).all()
    assert (nd.load(path)["a"].asnumpy() == 3).all()


def test_content_tells_the_format(tmp_path):
    for name in ("x.safetensors", "x"):
        nd.save(tmp_path / "as.safetensors", {"a": nd.ones((2,))})
        os.replace(tmp_path / "as.safetensors", tmp_path / name)
        assert list(nd.load(tmp_path / name)) == ["a"]
    nd.save(tmp_path / "net.params", {"b": nd.ones((2,))})
    os.replace(tmp_path / "net.params", tmp_path / "net.safetensors")  # as older versions wrote it
    assert list(nd.load(tmp_path / "net.safetensors")) == ["b"]


def test_what_the_format_cannot_hold_is_refused(tmp_path):
    path = tmp_path / "x.safetensors"
    nd.save(path, {"old": nd.ones((1,))})
    for data, match in (
        *(([nd.ones((2,))], "pass a dict"), (nd.ones((2,)), "pass a dict")),
        ({"a": nd.sparse.zeros("csr", (2, 2))}, r"'a' is of storage type 'csr'.*\.params.*tostype"),
        ({"a": nd.sparse.zeros("row_sparse", (2, 2))}, "'row_sparse'"),
        *(({"__metadata__": nd.ones((2,))}, "rename it"), ({"\ud800": nd.ones((2,))}, "rename it")),
    ):
        with pytest.raises(ArgumentError, match=match):
            nd.save(path, data)
    assert list(nd.load(path)) == ["old"]


def entry(data=b"0000", **changes):
    return file_of({"a": {**ONE, **changes}}, data)


BAD = [
    *((b"", "the file is empty"), (b"PK\x03\x04" + b"x" * 99, "zip archive")),
    (b"version https://git-lfs.github.com/spec/v1\n", "Git LFS"),
    (b"\x02\0\0\0\0\0\0", "header too small; the file is truncated or damaged"),
    (struct.pack("<Q", 10**9) + b"{}", "header too large"),
    *((struct.pack("<Q", 50) + b"{}", "invalid header length"), (file_of(b'{"a":1'), "invalid JSON")),
    (file_of(b'{"a":\xff}'), "invalid UTF-8"),
    (file_of(b'{"a":' + b"[" * 10**5 + b"]" * 10**5 + b"}"), "invalid JSON"),
    (file_of(b'{"a":' + b"9" * 5000 + b"}"), "invalid JSON"),
    (file_of(b'{"a":' + one + b',"a":' + one + b"}", b"0000"), "more than one entry for a;"),
    (file_of({"a": 3}), "expected struct TensorInfo"),
    (entry(b"0", dtype="F8_E5M2", data_offsets=[0, 1]), "'a' is of torch.float8_e5m2, expected one of"),
    (entry(dtype="F128"), "unknown variant `F128`, expected one of"),
    *((entry(shape=[-1]), "integer `-1`"), (entry(shape=[1] * 65), "'a': its shape is")),
    (entry(b"", shape=[2**40, 2**40, 0], data_offsets=[0, 0]), "overflow"),
    (entry(b"", shape=[2**60, 0], data_offsets=[0, 0]), "'a': its shape is"),
    (entry(data_offsets=[4, 0]), "invalid offset for tensor `a`"),
    (entry(data_offsets=[0, 4, 8]), "invalid length 3"),
    (entry(b"0" * 8, data_offsets=[0, 8]), "invalid shape, data type, or offset"),
    *((entry(b"000"), "not fully covered"), (file_of({}, b"00000"), "not fully covered")),
    (file_of({"__metadata__": {"k": 1, "l": None}}), "expected a string"),
]


@walks(BAD)
def test_damage_is_told(data, match, tmp_path):
    path = tmp_path / "x.safetensors"
    path.write_bytes(data)
    with pytest.raises(FileFormatError, match=match) as caught:
        nd.load(path)
    assert str(path) in str(caught.value)
    if data[8:9] == b"{" and "too large" not in str(caught.value):
        with pytest.raises(FileFormatError, match=match):
            nd.load_frombuffer(data)


def test_damage_of_large_files_is_told(tmp_path):
    path = tmp_path / "x.safetensors"
    nd.save(path, {"a": nd.zeros((5 * 2**20,))})
    os.truncate(path, 2**24)
    for load in (nd.load, safetensors.read_metadata):
        with pytest.raises(FileFormatError, match=r"x\.safetensors: .*not fully covered"):
            load(str(path))
