"""torch's state dictionaries: read as they are, and nothing in the file is executed."""

import os
import pickle

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import FileError, FileFormatError

load = mx.interop.load_torch_state


@pytest.fixture
def path(tmp_path):
    return tmp_path / "net.pt"


def test_a_state_dictionary(path):
    torch.manual_seed(0)
    net = torch.nn.Sequential(torch.nn.Conv2d(1, 2, 3), torch.nn.BatchNorm2d(2)).bfloat16()
    torch.save(net.state_dict(), path)
    found = load(path)
    assert list(found) == list(net.state_dict())
    for name, wanted in net.state_dict().items():
        assert found[name].tensor.dtype == wanted.dtype
        assert torch.equal(found[name].tensor, wanted)
    assert found["1.num_batches_tracked"].shape == ()


@pytest.mark.parametrize("key", ["state_dict", "model_state_dict", "model"])
def test_dictionaries_around_it(key, path):
    torch.save({key: {"a": torch.ones(2)}, "epoch": 3, "optimizer": {}}, path)
    np.testing.assert_array_equal(load(str(path))["a"].asnumpy(), [1, 1])


def test_arrays_have_memory_of_their_own(path):
    weight = torch.nn.Parameter(torch.zeros(4, 3))
    torch.save({"a": weight, "b": weight, "row": weight[1], "turned": weight.t()}, path)
    found = load(path)
    found["a"][:] = 1
    found["turned"][:] = 2
    assert [float(found[name].asnumpy().max()) for name in ("a", "b", "row", "turned")] == [1, 0, 0, 2]


class Evil:
    def __reduce__(self):
        return os.mkdir, ("executed",)


def test_nothing_is_executed(path, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    torch.save({"a": Evil()}, path)
    with pytest.raises(FileFormatError, match=r"net\.pt: not a state dictionary of torch: "):
        load(path)
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(FileFormatError, match="not a state dictionary"):
        load(path)
    assert not (tmp_path / "executed").exists()


def test_what_does_not_fit_is_listed(path):
    torch.save(
        {"a": torch.ones(2, dtype=torch.complex64), "b": 3, "c": torch.ones(2), 4: torch.ones(1)}, path
    )
    with pytest.raises(
        FileFormatError, match=r"'a' is a tensor of torch\.complex64.*'b' is of type int, 4 is a tensor"
    ):
        load(path)
    torch.save([torch.ones(2)], path)
    with pytest.raises(FileFormatError, match="holds of type list"):
        load(path)


def test_damaged_and_foreign_files(path):
    torch.save({"a": torch.ones(200)}, path)
    whole = path.read_bytes()
    for content in (
        whole[: len(whole) // 2],
        b"",
        b"<!DOCTYPE html>",
        b"PK\x03\x04",
        b"\x80\x02}q\x00",
        b"x" * 99,
    ):
        path.write_bytes(content)
        with pytest.raises(FileFormatError, match=r"net\.pt"):
            load(path)
    with pytest.raises(FileError, match=r"missing\.pt"):
        load(path.with_name("missing.pt"))


def test_nd_load_says_what_reads_them(path):
    torch.save({"a": torch.ones(2)}, path)
    with pytest.raises(FileFormatError, match="interop.load_torch_state"):
        mx.nd.load(path)
