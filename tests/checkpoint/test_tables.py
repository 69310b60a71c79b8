"""Tables in parts: damaged, missing and strange files, and leftovers; programs/dist_saved_tables.py has processes."""

import json
import re

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import BoundsError, FileError, FileFormatError
from dpmodule.checkpoint import tables


@pytest.fixture
def saved(tmp_path):
    """Save a table of ids in two epochs, of which the second has fewer; returns the prefix and the parts."""
    rows = mx.sym.Embedding(mx.sym.Variable("data"), hash_rows=True, output_dim=2, name="words")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(mx.sym.sum(rows, axis=1), num_hidden=2), name="softmax")
    prefix = str(tmp_path / "net")
    for epoch, count in (1, 3000), (2, 40):
        module = mx.mod.Module(net)
        x = mx.nd.array(np.arange(count).reshape(-1, 2) * 977, dtype="int64")
        module.fit(mx.io.NDArrayIter(x, np.zeros(count // 2), 20), num_epoch=1, optimizer="adagrad")
        module.save_checkpoint(prefix, epoch, save_optimizer_states=True)
    return prefix, sorted(tmp_path.glob("net-*.tables.*"))


def test_a_missing_or_wrong_part_is_an_error(saved):
    prefix, (first, second) = saved
    kept = second.read_bytes()
    second.write_bytes(first.read_bytes()[:-8])
    with pytest.raises(FileFormatError, match=re.escape(str(second))):
        mx.model.load_checkpoint(prefix, 2)
    second.unlink()
    with pytest.raises(FileError, match=re.escape(str(second))):
        mx.model.load_checkpoint(prefix, 2)
    second.write_bytes(kept)
    _, args, _ = mx.model.load_checkpoint(prefix, 2)
    assert args["words_weight"].indices.shape == (40,)


def test_a_wrong_manifest_is_an_error(saved):
    prefix, _ = saved
    path = f"{prefix}-0001.tables"
    with open(path) as file:
        content = json.load(file)
    for change, text in (
        ({"version": 2}, "version 2 of a manifest; this package reads version 1"),
        ({"parts": []}, "has tables, but no parts"),
        ({"tables": [1]}, "the manifest of the tables is damaged"),
    ):
        with open(path, "w") as file:
            json.dump({**content, **change}, file)
        with pytest.raises(FileFormatError, match=text):
            mx.model.load_checkpoint(prefix, 1)


def test_rows_are_read_where_they_are(tmp_path):
    rows = np.arange(70_000.0, dtype="f4").reshape(-1, 2)
    paths = [str(tmp_path / f"part{k}") for k in range(3)]
    for k, path in enumerate(paths):
        with open(path, "wb") as file:
            mx.ndarray.safetensors.write(file, {"w": mx.nd.array(rows[k::3])})
    table = tables.SavedTable(paths, "w", rows.shape, "float32")
    table.check()
    wanted = np.random.default_rng(0).integers(0, len(rows), 5000)
    found = table.look_up(mx.nd.array(wanted, dtype="int64").raw)
    np.testing.assert_array_equal(found.numpy(), rows[wanted])
    np.testing.assert_array_equal(table.whole().numpy(), rows)
    for wrong in (-1, len(rows)):
        with pytest.raises(BoundsError, match=f"w: row {wrong} of a table with 35000 rows"):
            table.look_up(mx.nd.array([0, wrong], dtype="int64").raw)


def test_what_a_killed_save_left_is_removed(saved, tmp_path):
    prefix, parts = saved
    left = tmp_path / "net-0001.tables.deadbeef-00002-of-00002.safetensors"
    other = tmp_path / "net-0001.tables.txt"
    for path in (left, other):
        path.write_text("x")
    module = mx.mod.Module.load(prefix, 1)
    data = mx.io.NDArrayIter(mx.nd.array(np.zeros((20, 2)), dtype="int64"), np.zeros(20), 20)
    module.fit(data, num_epoch=1, optimizer="adagrad")
    module.save_checkpoint(prefix, 1)
    assert not left.exists()
    assert not parts[0].exists()
    assert other.exists()
    assert len(list(tmp_path.glob("net-0001.tables.*.safetensors"))) == 1
    assert len(mx.checkpoint.files(prefix)) == 9  # and the graph, parameters, states, manifests and parts
