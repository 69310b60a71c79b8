"""What our own files say beside the network, so that it trains as before when it comes back."""

import numpy as np
import onnx
import pytest

import dpmodule as mx
from dpmodule.onnx.hints import Hints, fixed_gammas, read_hints
from helpers.onnx_runs import again, exported, our_outputs


def test_a_scale_that_others_read_keeps_its_values(tmp_path):
    gamma = mx.sym.Variable("gamma")
    both = mx.sym.Group([mx.sym.BatchNorm(mx.sym.Variable("data"), gamma, name="norm"), gamma * 2])
    assert fixed_gammas(both.graph) == []
    arrays = {n: np.float32([2, 3, 4]) for n in both.list_inputs()} | {"data": np.ones((2, 3), "float32")}
    net, args, states = again(exported(both, arrays, [n for n in arrays if n != "data"]), tmp_path)
    bound = net.bind(mx.cpu(), {**args, "data": mx.nd.ones((2, 3))}, aux_states=states)
    np.testing.assert_array_equal(bound.forward()[1].asnumpy(), [4, 6, 8])


def recurrent(mode="lstm", layers=1, both=False):
    """Return a network with the values of its variables."""
    cell = mx.rnn.FusedRNNCell(3, layers, mode, bidirectional=both, prefix="r_")
    symbol, _ = cell.unroll(4, mx.sym.Variable("data"), layout="NTC", merge_outputs=True)
    shapes = dict(zip(symbol.list_arguments(), symbol.infer_shape(data=(2, 4, 5))[0], strict=True))
    rng = np.random.RandomState(1)
    return symbol, {name: rng.randn(*shape).astype("float32") for name, shape in shapes.items()}


@pytest.mark.parametrize("options", [("lstm", 2, True), ("gru", 3, False), ("rnn_tanh", 2, False)])
def test_weights_of_recurrent_networks_are_one_vector(tmp_path, options):
    symbol, arrays = recurrent(*options)
    net, args, _ = again(exported(symbol, arrays, ["r_parameters"]), tmp_path)
    assert list(args) == ["r_parameters"]
    np.testing.assert_array_equal(args["r_parameters"].asnumpy(), arrays["r_parameters"])
    np.testing.assert_allclose(our_outputs(net, arrays)[0], our_outputs(symbol, arrays)[0], 1e-5, 1e-6)


def test_what_cannot_be_understood_is_no_hint():
    for text in ("", "[]", "{", '{"packed": 3}', '{"packed": {"a": "b"}}', '{"fix_gamma": 4}', "[" * 9999):
        assert read_hints({"dpmodule": text}) == Hints(), text[:9]


def test_hints_that_do_not_fit_do_no_harm(tmp_path):
    model = exported(*recurrent(), ["r_parameters"])
    for text in ('{"packed": {"r_parameters": 99999999}}', '{"packed": {"x": 1}, "fix_gamma": [1]}'):
        onnx.helper.set_model_props(model, {"dpmodule": text})
        assert sorted(again(model, tmp_path)[1]) == [f"r_parameters/0/{part}" for part in "BRW"]
