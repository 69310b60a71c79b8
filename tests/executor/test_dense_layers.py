"""Networks of dense layers: the same outputs and gradients by oneDNN and by torch."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import NodeError
from dpmodule.ops.nn import dense, linear

S = mx.sym
DATA = S.Variable("data")


def choose(monkeypatch, library):
    """Force one of the two libraries; products of any size count as large."""
    monkeypatch.setenv("DPMODULE_ONEDNN", "1" if library == "onednn" else "0")
    linear.onednn_is_faster.cache_clear()
    for module in (linear, dense):
        monkeypatch.setattr(module, "ONEDNN_MIN_WORK", 0)


@pytest.fixture(autouse=True)
def restored():
    yield
    linear.onednn_is_faster.cache_clear()


def layer(x, name, count=6, **attrs):
    return S.FullyConnected(x, num_hidden=count, name=name, **attrs)


def perceptron(acts=("relu", "tanh", None), no_bias=(False, True, False)):
    net = DATA
    for i, (act, size, bare) in enumerate(zip(acts, (7, 6, 5), no_bias, strict=True)):
        net = layer(net, f"fc{i}", size, no_bias=bare)
        net = S.Activation(net, act_type=act) if act else net
    return S.SoftmaxOutput(net, name="softmax")


def shared_weight():
    net, weight = DATA, S.Variable("w")
    for i in range(3):
        net = S.relu(layer(net, f"fc{i}", 12, weight=weight, no_bias=True))
    return S.SoftmaxOutput(net, name="softmax")


LOW = S.sigmoid(layer(DATA, "fc0"))
INNER = layer(DATA, "fc0")
OF_ROWS = layer(DATA, "fc0", flatten=False)
NETS = {
    "mixed": (perceptron(), (9, 12), {}),
    "add": (perceptron(), (9, 12), {"grad_req": "add", "steps": 2}),
    "predict": (perceptron(), (9, 12), {"grad_req": "add", "steps": 2, "is_train": False}),
    "float64": (perceptron(), (9, 12), {"dtype": "float64"}),
    "float16": (perceptron(), (9, 12), {"dtype": "float16"}),
    "images": (perceptron(), (9, 3, 2, 2), {}),
    "sigmoid": (perceptron(("sigmoid", "sigmoid", "relu")), (9, 12), {}),
    "linear": (perceptron((None, None, None)), (9, 12), {}),
    "others between": (perceptron(("softrelu", "relu", "softsign")), (9, 12), {}),
    "two readers": (
        S.SoftmaxOutput(layer(LOW, "fc1") + S.tanh(layer(LOW, "fc2")), name="softmax"),
        (9, 12),
        {},
    ),
    "shared weight": (shared_weight(), (9, 12), {}),
    "output": (S.Group([S.MakeLoss(layer(S.relu(INNER), "fc1")), S.BlockGrad(INNER)]), (9, 12), {}),
    "rows": (S.MakeLoss(layer(S.relu(OF_ROWS), "fc1", flatten=False)), (2, 3, 4), {}),
    "flattened late": (S.MakeLoss(layer(S.relu(OF_ROWS), "fc1")), (2, 3, 4), {}),
}


def run(net, shape=(9, 12), grad_req="write", dtype="float32", is_train=True, steps=1):
    types = dict.fromkeys(net.list_arguments(), dtype)
    bound, rng = (
        net.simple_bind(mx.cpu(), grad_req=grad_req, type_dict=types, data=shape),
        np.random.RandomState(0),
    )
    for name, array in bound.arg_dict.items():
        array[:] = rng.randint(0, 5, array.shape) if "label" in name else rng.uniform(-1, 1, array.shape)
    for _ in range(steps):
        outs = [o.asnumpy() for o in bound.forward(is_train=is_train)]
        bound.backward()
    return outs + [v.asnumpy() for v in bound.grad_dict.values() if v is not None], bound


@pytest.mark.parametrize("name", NETS)
def test_outputs_and_gradients_agree(name, monkeypatch):
    net, shape, options = NETS[name]
    found = []
    for library in ("torch", "onednn"):
        choose(monkeypatch, library)
        found.append(run(net, shape, **options)[0])
    for a, b in zip(*found, strict=True):
        np.testing.assert_allclose(b, a, rtol=1e-4, atol=1e-5)


def test_nan_behind_a_rectifier():
    """As in MXNet, `relu` passes NaN back where it read NaN, whatever gradient it is given."""
    net = S.MakeLoss(layer(S.relu(layer(DATA, "fc0", 4)), "fc1", 2))
    bound = net.simple_bind(mx.cpu(), data=(3, 5))
    for array in bound.arg_arrays:
        array[:] = 0.5
    bound.arg_dict["data"][1, 2] = np.nan
    bound.forward(is_train=True)
    bound.backward()
    for name, grad in bound.grad_dict.items():
        assert np.isnan(grad.asnumpy()).any() == (name != "fc1_bias"), name
    assert np.isfinite(bound.grad_dict["data"].asnumpy()[[0, 2]]).all()


@pytest.mark.parametrize("library", ["onednn", "torch"])
def test_a_weight_written_before_backward_counts_and_an_error_names_the_node(library, monkeypatch):
    choose(monkeypatch, library)
    bound = run(perceptron())[1]
    bound.forward(is_train=True)
    bound.arg_dict["fc1_weight"][:] = 0
    bound.backward()
    assert not bound.grad_dict["fc0_weight"].asnumpy().any()
    assert bound.grad_dict["fc1_weight"].asnumpy().any()
    bound.arg_dict["fc1_weight"].tensor = bound.arg_dict["fc1_weight"].tensor[:, :2].contiguous()
    with pytest.raises(
        NodeError, match=r"FullyConnected 'fc1' made at .*test_dense_layers.py:\d+ .*fc1_weight"
    ):
        bound.forward(is_train=True)


@pytest.mark.parametrize("kept", ["fc0_weight", "fc1_weight", "fc2_bias", "data"])
@pytest.mark.parametrize("library", ["onednn", "torch"])
def test_only_some_gradients_are_wanted(kept, library, monkeypatch):
    choose(monkeypatch, library)
    some, every = (run(perceptron(), grad_req=req)[1].grad_dict for req in ({kept: "write"}, "write"))
    np.testing.assert_allclose(some[kept].asnumpy(), every[kept].asnumpy(), rtol=1e-5, atol=1e-7)
    assert [name for name, grad in some.items() if grad is not None] == [kept]


@pytest.mark.parametrize("library", ["onednn", "torch"])
def test_second_derivatives_inside_loops_are_right(library, monkeypatch):
    choose(monkeypatch, library)

    def body(x, state):
        return layer(S.relu(layer(x, "in", 3, no_bias=True)), "out", 3, no_bias=True) * state, state

    bound = S.contrib.foreach(body, S.Variable("x"), S.Variable("s"))[0].simple_bind(
        mx.cpu(), x=(2, 4, 3), s=(4, 3)
    )
    for array in bound.arg_dict.values():
        array[:] = 0.5
    bound.forward(is_train=True)
    bound.backward(mx.nd.ones((2, 4, 3)))
    np.testing.assert_allclose(bound.grad_dict["x"].asnumpy(), 0.5 * 9 * 0.25, rtol=1e-5)
