"""A folder with a whole network: what is in it, that it loads elsewhere, and what is refused."""

import json
import os
from pathlib import Path

import numpy as np
import pytest
import safetensors.torch as theirs

import dpmodule as mx
from dpmodule.base import ArgumentError, FileError
from helpers.programs import run_file

FILES = ["README.md", "config.json", "model.safetensors", "symbol.json"]


def network():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
    return mx.sym.SoftmaxOutput(mx.sym.BatchNorm(net, name="bn"), name="softmax")


def bound(net=None, shape=(4, 5)):
    module = mx.mod.Module(net or network())
    module.bind([("data", shape)], [("softmax_label", shape[:1])])
    module.init_params(mx.init.Xavier())
    return module


def outputs(module):
    module.forward(mx.io.DataBatch([mx.nd.array(np.random.RandomState(0).rand(4, 5))], None), is_train=False)
    return module.get_outputs()[0].asnumpy()


@pytest.fixture
def folder(tmp_path):
    return tmp_path / "net"


def listed(folder):
    return sorted(os.listdir(folder))


# --- what is in it


def test_what_is_saved_computes_the_same(folder):
    module = bound()
    module.save_pretrained(folder)
    assert listed(folder) == FILES
    loaded = mx.mod.Module.from_pretrained(folder, context=[mx.cpu(0), mx.cpu(1)], data_names=("data",))
    np.testing.assert_allclose(outputs(loaded), outputs(module), rtol=1e-6)
    data = mx.io.NDArrayIter(np.random.rand(12, 5).astype("f"), np.arange(12.0) % 3, 6)
    before = loaded.predict(data).asnumpy()
    loaded.fit(data, num_epoch=2, optimizer_params={"learning_rate": 0.5})
    assert abs(loaded.predict(data).asnumpy() - before).max() > 1e-3
    names = "bn_beta bn_gamma bn_moving_mean bn_moving_var fc_bias fc_weight"
    assert " ".join(sorted(theirs.load_file(folder / "model.safetensors"))) == names
    config = json.loads((folder / "config.json").read_text())
    assert config["data"] == [{"name": "data", "shape": [4, 5], "dtype": "float32"}]
    assert (config["label_names"], config["outputs"]) == (["softmax_label"], ["softmax_output"])
    assert (config["dtype"], config["library_version"]) == ("float32", mx.__version__)
    found = mx.interop.load_pretrained(str(folder))
    assert found.data_shapes == [("data", (4, 5))]
    assert (sorted(found.aux_params), found.preprocessor) == (["bn_moving_mean", "bn_moving_var"], {})


def test_what_is_done_to_the_data_and_the_card(folder):
    module, told = bound(), {"mean": [1.0, 2.0], "scale": 0.5, "labels": ["a", "ä"]}
    module.save_pretrained(folder, preprocessor={**told, "mean": np.float32([1, 2])})
    assert mx.interop.load_pretrained(folder).preprocessor == told
    assert "| `data` | (4, 5) | float32 |" in (folder / "README.md").read_text(encoding="utf-8")

    (folder / "README.md").write_text("mine")
    module.save_pretrained(folder)  # neither card nor preprocessing are told, so both stay
    assert (folder / "README.md").read_text() == "mine"
    assert mx.interop.load_pretrained(folder).preprocessor == told
    module.save_pretrained(folder, card="# Ours")
    assert (folder / "README.md").read_text().endswith("- pytorch\n---\n\n# Ours\n")
    module.save_pretrained(folder, card="---\nlicense: mit\n---\n# Ours")
    assert (folder / "README.md").read_text() == "---\nlicense: mit\n---\n# Ours"


def test_large_parameters_are_spread_and_old_files_go(folder):
    module = bound()
    module.save_pretrained(folder, max_shard_bytes=40)
    assert len([name for name in listed(folder) if name.startswith("model-")]) > 2
    assert "model.safetensors" not in listed(folder)
    index = json.loads((folder / "model.safetensors.index.json").read_text())
    assert index["metadata"]["total_size"] == 4 * (3 * 5 + 3 + 4 * 3)
    for name, shard in index["weight_map"].items():
        assert name in theirs.load_file(folder / shard)
    np.testing.assert_array_equal(outputs(mx.mod.Module.from_pretrained(folder)), outputs(module))
    first, second, *_ = index["weight_map"]
    arrays = {**module.get_params()[0], **module.get_params()[1]}
    module.save_pretrained(folder, max_shard_bytes=4 * (arrays[first].size + arrays[second].size))
    places = json.loads((folder / "model.safetensors.index.json").read_text())["weight_map"]
    assert places[first] == places[second]  # they fill a file exactly
    module.save_pretrained(folder)
    assert listed(folder) == FILES
    np.testing.assert_array_equal(outputs(mx.mod.Module.from_pretrained(folder)), outputs(module))


# --- a save that is broken off


def test_a_save_that_fails_leaves_the_old_one(folder, monkeypatch):
    module = bound()
    module.save_pretrained(folder)
    before = {name: (folder / name).read_bytes() for name in listed(folder)}

    def fails(*_):
        raise OSError(28, "no space left")

    with pytest.raises(ArgumentError, match="'lables'"):
        module.save_pretrained(folder, preprocessor={"lables": []})
    monkeypatch.setattr("dpmodule.ndarray.safetensors.bytes_of", fails)
    with pytest.raises(FileError, match="no space left"):
        module.save_pretrained(folder, max_shard_bytes=40)
    assert {name: (folder / name).read_bytes() for name in listed(folder)} == before


# --- repositories


def test_a_repository_is_fetched_by_the_hubs_package(folder):
    bound().save_pretrained(folder)
    done = run_file(Path(__file__).parents[1] / "programs" / "hub.py", folder)
    assert done.returncode == 0, done.stderr
    assert "cannot fetch the repository: '404'" in done.stdout
    assert "is not a folder here; to fetch it as a repository's id, pip install hugg" in done.stdout
