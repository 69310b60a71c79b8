"""Constant, Bilinear, LSTMBias, Mixed and Load."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, ShapeError

GOLDENS = json.loads((Path(__file__).parents[1] / "data/goldens/initializer/initializers.json").read_text())
Desc = mx.init.InitDesc


def filled(init, shape, name="w_weight", attrs=None):
    arr = mx.nd.full(shape, -9)
    init(Desc(name, attrs), arr)
    return arr.asnumpy()


def test_constants():
    assert (filled(mx.init.Zero(), (2, 2)) == 0).all()
    assert (filled(mx.init.One(), (2, 2)) == 1).all()
    assert (filled(mx.init.Constant(2.5), (2, 3)) == 2.5).all()
    for value in ([1, 2, 3], np.array([1, 2, 3]), mx.nd.array([1, 2, 3])):
        assert filled(mx.init.Constant(value), (2, 3)).tolist() == [[1, 2, 3]] * 2


@pytest.mark.parametrize(("shape", "want"), GOLDENS["bilinear"])
def test_bilinear_is_mxnets(shape, want):
    np.testing.assert_allclose(filled(mx.init.Bilinear(), tuple(shape)), want, rtol=1e-6)


def test_lstm_bias_is_mxnets():
    init = mx.init.LSTMBias(forget_bias=1.5)
    values = filled(init, (20,), "lstm_i2h_bias", {"__init__": init.dumps()})
    assert values.tolist() == GOLDENS["lstmbias"]


def test_shapes_are_checked():
    with pytest.raises(ShapeError, match=r"Bilinear: w_weight has shape \(4, 4\), expected 4 axes"):
        filled(mx.init.Bilinear(), (4, 4))
    with pytest.raises(ShapeError, match=r"LSTMBias: w_weight has shape \(6,\), expected a first axis of 4"):
        filled(mx.init.LSTMBias(), (6,))


def test_mixed_takes_the_first_pattern_that_matches_from_the_start():
    init = mx.init.Mixed(
        [".*special", "fc", ".*"], [mx.init.Constant(3), mx.init.Constant(4), mx.init.Constant(5)]
    )
    names = ["a_special_weight", "fc1_weight", "other_fc_weight", "fc1_bias"]
    assert [filled(init, (1,), name)[0] for name in names] == [3, 4, 5, 0]
    assert filled(init, (1,), "fc", {"__init__": "one"})[0] == 1


def test_mixed_refuses():
    with pytest.raises(ArgumentError, match=r"no pattern fits 'foo' \(tried 'bar', 'baz'\)"):
        filled(mx.init.Mixed(["bar", "baz"], [mx.init.Zero(), mx.init.Zero()]), (1,), "foo")
    with pytest.raises(ArgumentError, match="2 patterns for 1 initializers"):
        mx.init.Mixed(["a", "b"], [mx.init.Zero()])


def test_load_from_a_dict(caplog):
    caplog.set_level(logging.INFO)
    saved = {"arg:w": mx.nd.full((2,), 3), "aux:v": mx.nd.full((2,), 4), "u": mx.nd.full((2,), 5)}
    init = mx.init.Load(saved, default_init=mx.init.Constant(9), verbose=True)
    assert [filled(init, (2,), name).tolist() for name in ("w", "v", "u")] == [[3, 3], [4, 4], [5, 5]]
    assert filled(init, (2,), "z_weight").tolist() == [9, 9]
    assert caplog.messages[-2:] == ["Initialized u by loading", "Initialized z_weight by default"]
    assert saved["u"].asnumpy().tolist() == [5, 5]


def test_load_from_a_file(tmp_path):
    path = str(tmp_path / "net.params")
    mx.nd.save(path, {"arg:w": mx.nd.full((2,), 3)})
    assert filled(mx.init.Load(path), (2,), "w").tolist() == [3, 3]
    mx.nd.save(path, [mx.nd.zeros((2,))])
    with pytest.raises(ArgumentError, match="expected arrays by name"):
        mx.init.Load(path)


def test_loaded_arrays_are_copied():
    saved = mx.nd.full((2,), 3)
    arr = mx.nd.zeros((2,))
    mx.init.Load({"w": saved})(Desc("w"), arr)
    arr[:] = 0
    assert saved.asnumpy().tolist() == [3, 3]


def test_load_refuses():
    init = mx.init.Load({"w": mx.nd.zeros((2,))})
    with pytest.raises(ShapeError, match=r"w has shape \(3,\), but \(2,\) in what was loaded"):
        filled(init, (3,), "w")
    with pytest.raises(ArgumentError, match="x is not among the loaded arrays, and there is no default_init"):
        filled(init, (2,), "x")
