"""What goes out of a network that was made for training."""

import logging

import numpy as np

import dpmodule as mx
from helpers.models import ROOT, by_path, with_parameters
from helpers.onnx_runs import exported, our_outputs, runtime_outputs

S = mx.sym
DATA = S.Variable("data")


def test_ctc_is_left_out_beside_its_softmax(caplog):
    steps = S.FullyConnected(DATA, num_hidden=4, flatten=False, name="fc")
    loss = S.MakeLoss(S.CTCLoss(steps, S.Variable("label"), name="ctc"), name="loss")
    net, rng = S.Group([S.softmax(steps, name="share"), loss]), np.random.RandomState(0)
    arrays = {"data": rng.randn(6, 2, 3), "fc_weight": rng.randn(4, 3), "fc_bias": rng.randn(4)}
    arrays = {name: value.astype("float32") for name, value in arrays.items()}
    with caplog.at_level(logging.WARNING):
        model = exported(net, arrays, ["fc_weight", "fc_bias"])
    assert caplog.messages == ["outputs computed from labels are not exported: loss_output"]
    assert [each.name for each in (*model.graph.input, *model.graph.output)] == ["data", "share_output"]
    ours = our_outputs(net, arrays | {"label": np.ones((2, 3), "float32")})[0]
    np.testing.assert_allclose(runtime_outputs(model, arrays)[0], ours, 1e-5, 1e-6)


# rows of different lengths in ONNX: elements one after the other, and the length of each row


def check(symbol, rows, dense=()):
    """Compare our executor and ONNX Runtime on rows of lengths that the model was not exported for.

    Args:
        symbol: the network.
        rows: below what the numbers of each ragged variable lie, by name.
        dense: shapes of further inputs by name, without the rows.
    """
    rng, dense = np.random.RandomState(0), dict(dense)
    lengths = {name: rng.randint(0, 4, 5) * (np.arange(5) != 2) for name in rows}
    values = {k: rng.randint(0, below, lengths[k].sum()).astype("float32") for k, below in rows.items()}
    others = {name: rng.rand(5, *shape).astype("float32") for name, shape in dense.items()}
    net = with_parameters(symbol, {name: np.zeros((5, *dense.get(name, ()))) for name in (*rows, *others)})
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
    for out, theirs in zip(model.graph.output, runtime_outputs(model, arrays), strict=True):
        np.testing.assert_allclose(theirs, ours[out.name].asnumpy(), 1e-4, 1e-6)


def network(file, *arguments):
    return by_path(ROOT / "examples" / "hogwild" / f"{file}.py", f"example_{file}").network(*arguments)


def test_networks_of_the_examples():
    check(network("bag_of_words", 50), {"words": 50})
    check(network("logistic_regression"), {"features": 50})
    check(network("factorization_machine"), {"features": 50})
    check(network("factorization_machine", False), {"features": 50})
    check(network("wide_and_deep"), {"customer": 50, "article": 50}, {"prices": (2,)})
