"""What goes out of a network that was made for training."""

import logging

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from dpmodule.onnx.export import make_model
from dpmodule.onnx.prediction import describe_inputs, prediction_graph
from helpers.models import ROOT, by_path, with_parameters
from helpers.onnx_runs import exported, our_outputs, runtime_outputs
from helpers.walk import walks


def scores(units=4):
    return mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=units, flatten=False, name="fc")


def sent_out(symbol, arrays, inputs):
    """Return the model of a network whose other variables are parameters."""
    params = {name: mx.nd.array(value) for name, value in arrays.items() if name not in inputs}
    shapes = {name: arrays[name].shape for name in inputs}
    return make_model(symbol, params, describe_inputs(symbol, params, shapes, "float32"))


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
    assert caplog.messages == ["outputs computed from labels are not exported: loss_output"]
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


# rows of different lengths in ONNX: elements one after the other, and the length of each row


def both(symbol, rows, dense=(), seed=0):
    """Return what our executor and ONNX Runtime compute, of rows of lengths that the model was not exported for.

    Args:
        symbol: the network.
        rows: below what the numbers of each ragged variable lie, by name.
        dense: shapes of further inputs by name, without the rows.
    """
    rng = np.random.RandomState(seed)
    lengths = {name: rng.randint(0, 4, 5) for name in rows}
    lengths = {name: np.where(np.arange(5) == 2, 0, each) for name, each in lengths.items()}
    values = {
        name: rng.randint(0, below, lengths[name].sum()).astype("float32") for name, below in rows.items()
    }
    others = {name: rng.rand(5, *shape).astype("float32") for name, shape in dict(dense).items()}
    net = with_parameters(
        symbol, {name: np.zeros((5, *dict(dense).get(name, ()))) for name in (*rows, *others)}
    )
    flat = {f"{name}_lengths": each for name, each in lengths.items()}
    arrays = {**net.arrays, **others, **values, **flat}
    dynamic = {name: {0: name} for name in rows} | {name: {0: "batch"} for name in (*flat, *others)}
    model = exported(symbol, arrays, [name for name in net.params if "lengths" not in name], dynamic=dynamic)
    assert {each.name for each in model.graph.input} == {*rows, *flat, *others}
    known = {name: mx.nd.array(value, dtype=value.dtype) for name, value in {**net.arrays, **others}.items()}
    for name in rows:
        known[name] = mx.nd.ragged_array(values[name], np.concatenate([[0], np.cumsum(lengths[name])]))
    bound = symbol.bind(mx.cpu(), {name: known[name] for name in symbol.list_arguments()})
    ours = dict(zip(symbol.list_outputs(), bound.forward(is_train=False), strict=True))
    names = [each.name for each in model.graph.output]
    return [ours[name].asnumpy() for name in names], runtime_outputs(model, arrays)


def check(*arguments, **options):
    for ours, theirs in zip(*both(*arguments, **options), strict=True):
        np.testing.assert_allclose(theirs, ours, 1e-4, 1e-6)


def embedded(**attrs):
    words = mx.sym.Variable("words", stype="ragged")
    return mx.sym.Embedding(words, input_dim=20, output_dim=3, name="table", **attrs)


@walks(["sum", "mean", "sqrt"])
def test_pools(pool_type):
    check(mx.sym.sequence_pool(mx.sym.tanh(embedded()) * 2, pool_type=pool_type, name="op"), {"words": 20})


def network(file, *arguments):
    return by_path(ROOT / "examples" / "hogwild" / f"{file}.py", f"example_{file}").network(*arguments)


@walks(
    [
        ("bag_of_words", 50),
        ("logistic_regression",),
        ("factorization_machine",),
        ("factorization_machine", False),
    ]
)
def test_networks_of_the_examples(file, *arguments):
    name = "words" if file == "bag_of_words" else "features"
    check(network(file, *arguments), {name: 50})


def test_several_ragged_variables():
    check(network("wide_and_deep"), {"customer": 50, "article": 50}, {"prices": (2,)})


@pytest.mark.parametrize(
    ("made", "operator"),
    [
        (lambda: mx.sym.sequence_pool(embedded(), pool_type="max"), "sequence_pool"),
        (lambda: mx.sym.sequence_pool(mx.sym.sequence_softmax(embedded())), "sequence_softmax"),
        (lambda: mx.sym.FullyConnected(embedded(), num_hidden=2), "FullyConnected"),
    ],
)
def test_other_operators_on_rows_are_refused(made, operator):
    arrays = {"words": np.zeros(7, "float32"), "words_lengths": np.ones(3, "int64")}
    with pytest.raises(
        ArgumentError, match=f"{operator} .*works on rows of different lengths, which ONNX lacks"
    ):
        exported(made(), arrays)
