"""What goes out of a network that was made for training."""

import logging

import numpy as np

import dpmodule as mx
from dpmodule.onnx.export import make_model
from dpmodule.onnx.prediction import described_inputs
from dpmodule.onnx.prediction import prediction_graph
from helpers.onnx_runs import our_outputs, runtime_outputs


def scores(units=4):
    return mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=units, flatten=False, name="fc")


def sent_out(symbol, arrays, inputs):
    """Return the model of a network whose other variables are parameters."""
    params = {name: mx.nd.array(value) for name, value in arrays.items() if name not in inputs}
    shapes = {name: arrays[name].shape for name in inputs}
    return make_model(symbol, params, described_inputs(symbol, params, shapes, "float32"))


def parameters(rng, features=3, units=4):
    return {
        "fc_weight": rng.randn(units, features).astype("float32"),
        "fc_bias": rng.randn(units).astype("float32"),
    }


def test_a_label_that_is_reshaped_is_no_input():
    label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
    net = mx.sym.SoftmaxOutput(mx.sym.Reshape(scores(), shape=(-1, 4)), label, name="softmax")
    assert prediction_graph(net.graph).argument_names == ["data", "fc_weight", "fc_bias", "softmax/label1"]
    rng = np.random.RandomState(0)
    arrays = {"data": rng.randn(2, 5, 3).astype("float32"), **parameters(rng)}
    model = sent_out(net, arrays, ["data"])
    assert [each.name for each in model.graph.input] == ["data"]
    (ours,) = our_outputs(net, arrays | {"softmax_label": np.zeros((2, 5), "float32")})
    np.testing.assert_allclose(runtime_outputs(model, arrays)[0], ours, 1e-5, 1e-6)


def test_a_network_that_learns_its_input_keeps_it():
    data = mx.sym.Variable("data")
    code = mx.sym.FullyConnected(data, num_hidden=3, name="fc")
    net = mx.sym.LinearRegressionOutput(code, data, name="image")
    assert prediction_graph(net.graph).argument_names == ["data", "fc_weight", "fc_bias", "image/label1"]


def test_ctc_is_left_out_beside_its_softmax(caplog):
    steps = scores()
    loss = mx.sym.MakeLoss(mx.sym.CTCLoss(steps, mx.sym.Variable("label"), name="ctc"), name="loss")
    net = mx.sym.Group([mx.sym.softmax(steps, name="share"), loss])
    rng = np.random.RandomState(0)
    arrays = {"data": rng.randn(6, 2, 3).astype("float32"), **parameters(rng)}
    with caplog.at_level(logging.WARNING):
        model = sent_out(net, arrays, ["data"])
    assert caplog.messages == ["left out, as computed from labels: loss_output"]
    assert [each.name for each in model.graph.output] == ["share_output"]
    ours = our_outputs(net, arrays | {"label": np.ones((2, 3), "float32")})[0]
    np.testing.assert_allclose(runtime_outputs(model, arrays)[0], ours, 1e-5, 1e-6)


def test_figures_of_training_go_and_predictions_stay():
    label, raw = mx.sym.Variable("label"), scores()
    net = mx.sym.SoftmaxOutput(raw, label, name="softmax")
    right = mx.sym.broadcast_equal(mx.sym.argmax(net, axis=1), label)
    both = mx.sym.Group([net, mx.sym.BlockGrad(right, name="right"), mx.sym.BlockGrad(raw, name="raw")])
    assert prediction_graph(both.graph).output_names == ["softmax_output", "raw_output"]


def test_a_loss_alone_stays():
    net = mx.sym.softmax_cross_entropy(scores(), mx.sym.Variable("label"), name="loss")
    assert prediction_graph(net.graph).output_names == ["loss_output"]
