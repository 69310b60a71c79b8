"""The listing of Paddle's description of AsyncExecutor, as printed but for Python 3 and the download."""

import json

import pytest

import dpmodule as mx
from helpers.programs import TESTS, run_program


@pytest.mark.parametrize("native", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_the_listing(tmp_path, native):
    text = (TESTS / "data" / "paddle_listing.txt").read_text()
    done = run_program(text, cwd=tmp_path, **{} if native else {"DPMODULE_NATIVE": "0"})
    assert (done.returncode, done.stderr) == (0, ""), done.stderr
    assert done.stdout.startswith('name: "MultiSlotDataFeed"\nbatch_size: 128\n')
    results = json.loads(done.stdout.splitlines()[-1])
    assert [one[2:] for one in results] == [[1680, 4]] * 10
    assert results[0][1] < results[-1][1] > 0.95
    assert 30 < results[0][0] < 70
    folder = tmp_path / "imdb" / "epoch9.model"
    mod = mx.mod.Module.load(f"{folder}/model", 0, data_names=["words", "label"], label_names=None)
    words = mx.io.DataDesc("words", (2,), "int64", stype="ragged")
    mod.bind([words, mx.io.DataDesc("label", (2, 1), "int64")], for_training=False)
    mod.init_params()
    words = mx.nd.ragged_array([list(range(1, 10)), list(range(60, 69))], dtype="int64")
    mod.forward(mx.io.DataBatch([words, mx.nd.array([[0], [1]], dtype="int64")], []))
    assert mod.get_outputs()[0].asnumpy().tolist() == [1.0]
