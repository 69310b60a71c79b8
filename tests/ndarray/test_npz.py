"""Files of arrays of MXNet 2.0, which are archives: dense and sparse arrays, and files that are not read."""

import io
import zipfile

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import FileFormatError

ARRAYS = {
    "arg:features.0.weight": np.arange(6, dtype="f4").reshape(2, 3),
    "arg:scale": np.array(2.5, "f4"),
    "aux:features.1.running_mean": np.asfortranarray(np.arange(6).reshape(3, 2)),
    "arg:half": np.array([1, 2], "f2"),
    "arg:mask": np.array([True, False]),
    "arg:big": np.array([1, 2], ">i4"),
    "arg:empty": np.zeros((0, 3), "f4"),
    "arg:one/data": np.array([7], "i1"),
}


def written(arrays, save=np.savez):
    file = io.BytesIO()
    save(file, **arrays)
    return file.getvalue()


@pytest.mark.parametrize("save", [np.savez, np.savez_compressed])
def test_dense_arrays(tmp_path, save):
    path = tmp_path / "net-0000.params"
    path.write_bytes(written(ARRAYS, save))
    for found in (mx.nd.load(str(path)), mx.nd.load_frombuffer(path.read_bytes())):
        assert list(found) == list(ARRAYS)
        for name, values in ARRAYS.items():
            assert found[name].shape == values.shape
            assert found[name].dtype == values.dtype.newbyteorder("=")
            np.testing.assert_array_equal(found[name].asnumpy(), values)
    found["arg:scale"][:] = 3
    args, aux = mx.model.load_params(str(tmp_path / "net"), 0)
    assert "features.0.weight" in args
    assert list(aux) == ["features.1.running_mean"]


def test_sparse_arrays():
    shape = np.array([3, 2], "i8")
    csr = {
        "data": np.array([5, 6], "f4"),
        "indices": np.array([1, 0], "i8"),
        "indptr": np.array([0, 1, 1, 2], "i8"),
    }
    rows = {"data": np.array([[5, 6]], "f4"), "indices": np.array([2], "i8")}
    arrays = {f"a/{key}": value for key, value in {**csr, "shape": shape, "format": np.array(b"csr")}.items()}
    arrays |= {
        f"b/{key}": value
        for key, value in {**rows, "shape": shape, "format": np.array(b"row_sparse")}.items()
    }
    found = mx.nd.load_frombuffer(written(arrays))
    assert [found[name].stype for name in "ab"] == ["csr", "row_sparse"]
    assert found["a"].asnumpy().tolist() == [[0, 5], [0, 0], [6, 0]]
    assert found["b"].asnumpy().tolist() == [[0, 0], [0, 0], [5, 6]]
    for part, value in (
        ("a/format", np.array(b"bsr")),
        ("b/indices", np.array([3])),
        ("a/shape", np.array([3, 1])),
    ):
        with pytest.raises(FileFormatError, match=f"array '{part[0]}'"):
            mx.nd.load_frombuffer(written({**arrays, part: value}))


def archive(content, name="weight.npy", compression=zipfile.ZIP_STORED):
    file = io.BytesIO()
    with zipfile.ZipFile(file, "w", compression) as made:
        made.writestr(name, content)
    return file.getvalue()


def npy(values, **more):
    file = io.BytesIO()
    np.save(file, values, **more)
    return file.getvalue()


REFUSED = {
    "text": (archive(b"text"), "not an .npy file"),
    "objects": (archive(npy(np.array([{}], object), allow_pickle=True)), "for an array of shape"),
    "words": (archive(npy(np.array(["a"]))), "which no array has"),
    "complex": (archive(npy(np.array([1j]).astype(">c16"))[:-8]), "for an array of shape"),
    "short": (archive(npy(np.zeros(4))[:-1]), "31 bytes for an array of shape"),
    "long": (archive(npy(np.zeros(4)) + b"0"), "33 bytes for an array of shape"),
    "cut": (written(ARRAYS)[:-200], "zip|archive"),
    "damaged": (written({"a": np.arange(100)}).replace(b"\x32\0\0\0\0", b"\x33\0\0\0\0"), "CRC"),
    "bomb": (archive(npy(np.zeros(2**25)), compression=zipfile.ZIP_DEFLATED), "claim to unpack"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_refused_files(name):
    content, why = REFUSED[name]
    with pytest.raises(FileFormatError, match=why):
        mx.nd.load_frombuffer(content)


def test_archives_without_arrays_are_named():
    file = io.BytesIO()
    torch.save({"a": torch.zeros(2)}, file)
    with pytest.raises(FileFormatError, match="torch"):
        mx.nd.load_frombuffer(file.getvalue())
