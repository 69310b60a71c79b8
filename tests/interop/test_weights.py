"""torch's state dictionaries: read as they are, and nothing in the file is executed."""

import os
import pickle

import pytest
import torch

import dpmodule as mx
from dpmodule.base import FileFormatError

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
    assert load(str(path))["a"].asnumpy().tolist() == [1, 1]


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
    for _ in range(2):
        with pytest.raises(FileFormatError, match=r"net\.pt: not a state dictionary of torch: "):
            load(path)
        path.write_bytes(pickle.dumps(Evil()))
    assert not (tmp_path / "executed").exists()
