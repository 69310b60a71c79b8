"""Constant, Bilinear, LSTMBias, Mixed and Load."""

import json
import logging
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.ops.nn import rnn_weights

GOLDENS = json.loads((Path(__file__).parents[1] / "data/goldens/initializer/initializers.json").read_text())
Desc = mx.init.InitDesc


def filled(init, shape, name="w_weight", attrs=None):
    arr = mx.nd.full(shape, -9)
    init(Desc(name, attrs), arr)
    return arr.asnumpy()


@pytest.mark.parametrize(("shape", "want"), GOLDENS["bilinear"])
def test_bilinear_is_mxnets(shape, want):
    np.testing.assert_allclose(filled(mx.init.Bilinear(), tuple(shape)), want, rtol=1e-6)


def test_lstm_bias_is_mxnets():
    init = mx.init.LSTMBias(forget_bias=1.5)
    values = filled(init, (20,), "lstm_i2h_bias", {"__init__": init.dumps()})
    assert values.tolist() == GOLDENS["lstmbias"]


def test_mixed_takes_the_first_pattern_that_matches_from_the_start():
    init = mx.init.Mixed([".*special", "fc", ".*"], [*map(mx.init.Constant, (3, 4, 5))])
    names = ["a_special_weight", "fc1_weight", "other_fc_weight", "fc1_bias"]
    assert [filled(init, (1,), name)[0] for name in names] == [3, 4, 5, 0]
    assert filled(init, (1,), "fc", {"__init__": "one"})[0] == 1


def test_load(caplog, tmp_path):
    caplog.set_level(logging.INFO)
    saved = {"arg:w": mx.nd.full((2,), 3), "aux:v": mx.nd.full((2,), 4), "u": mx.nd.full((2,), 5)}
    mx.nd.save(tmp_path / "net.params", saved)
    for source in (saved, str(tmp_path / "net.params")):
        init = mx.init.Load(source, default_init=mx.init.Constant(9), verbose=True)
        assert [filled(init, (2,), name).tolist() for name in ("w", "v", "u")] == [[3, 3], [4, 4], [5, 5]]
        assert filled(init, (2,), "z_weight").tolist() == [9, 9]
        assert caplog.messages[-2:] == ["Initialized u by loading", "Initialized z_weight by default"]
    init(Desc("u"), array := mx.nd.zeros((2,)))
    array[:] = 0
    assert saved["u"].asnumpy().tolist() == [5, 5]


# fusedRNN: which piece of the packed vector gets what; the rules were seen in MXNet 1.9.1
LAYOUTS = (
    ("lstm", 2, 5, 3, True),
    ("gru", 1, 4, 3, False),
    ("rnn_tanh", 3, 2, 2, True),
    ("rnn_relu", 1, 2, 2, False),
)


def pieces(vector, mode, layers, inputs, hidden, both):
    return {b.suffix: b.of(vector.asnumpy()) for b in rnn_weights.blocks(mode, layers, inputs, hidden, both)}


def empty(mode, layers, inputs, hidden, both):
    return mx.nd.full((rnn_weights.vector_size(mode, layers, inputs, hidden, both),), -9)


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize("own", [True, False])
def test_constants_of_recurrent_layers(layout, own):
    mode, layers, _, hidden, both = layout
    inner = mx.init.Constant(2.0) if own else None
    init, vector = mx.init.FusedRNN(inner, hidden, layers, mode, both, forget_bias=5.0), empty(*layout)
    mx.init.Constant(7.0)(Desc("net_parameters", {"__init__": init.dumps()}), vector)
    for suffix, piece in pieces(vector, *layout).items():
        bias = 5.0 if mode == "lstm" and suffix.endswith("_f_bias") else 0.0
        assert (piece == (bias if suffix.endswith("bias") else 2.0 if own else 7.0)).all(), suffix


def test_pieces_are_called_by_name_in_order_and_as_matrices():
    seen = []

    class Noted(mx.init.Initializer):
        def _init_weight(self, name, arr):
            seen.append((str(name), arr.shape, name.global_init))
            arr[:] = len(seen)

        _init_bias = _init_weight

    noted, vector = Noted(), empty("lstm", 1, 2, 3, False)
    mx.init.FusedRNN(None, 3, 1, "lstm")._init_weight(Desc("parameters", global_init=noted), vector)
    rows = [(f"l0_{h}2h_{g}_weight", (3, n), noted) for h, n in (("i", 2), ("h", 3)) for g in "ifco"]
    rows += [(f"l0_{h}2h_{g}_bias", (3,), noted) for h in "ih" for g in "ico"]
    assert seen == rows
    np.testing.assert_array_equal(vector.asnumpy()[:24], np.repeat([1, 2, 3, 4], 6))
