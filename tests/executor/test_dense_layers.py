"""Networks of dense layers: the same outputs and gradients by oneDNN and by torch."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import NodeError
from dpmodule.ops.nn import dense, linear

S = mx.sym
DATA = S.Variable("data")


@pytest.fixture(params=["0", "1"], ids=["torch", "onednn"])
def library(request, monkeypatch):
    """Force one of the two libraries; products of any size count as large."""
    monkeypatch.setenv("DPMODULE_ONEDNN", request.param)
    linear.onednn_is_faster.cache_clear()
    for module in (linear, dense):
        monkeypatch.setattr(module, "ONEDNN_MIN_WORK", 0)
    yield
    linear.onednn_is_faster.cache_clear()


def layer(x, name, count=6, **attrs):
    return S.FullyConnected(x, num_hidden=count, name=name, **attrs)


def perceptron(acts=("relu", "tanh", None)):
    net = DATA
    for i, (act, size) in enumerate(zip(acts, (7, 6, 5), strict=True)):
        net = layer(net, f"fc{i}", size, no_bias=i == 1)
        net = S.Activation(net, act_type=act) if act else net
    return S.SoftmaxOutput(net, name="softmax")


def shared_weight():
    net, weight = DATA, S.Variable("w")
    for i in range(3):
        net = S.relu(layer(net, f"fc{i}", 12, weight=weight, no_bias=True))
    return S.SoftmaxOutput(net, name="softmax")


LOW, INNER = S.sigmoid(layer(DATA, "fc0")), layer(DATA, "fc0")
OF_ROWS = layer(DATA, "fc0", flatten=False)
NETS = {
    "mixed": (perceptron(), (9, 3, 2, 2)),
    "others between": (perceptron(("softrelu", "relu", "softsign")), (9, 12)),
    "two readers": (S.SoftmaxOutput(layer(LOW, "fc1") + S.tanh(layer(LOW, "fc2")), name="softmax"), (9, 12)),
    "shared weight": (shared_weight(), (9, 12)),
    "output": (S.Group([S.MakeLoss(layer(S.relu(INNER), "fc1")), S.BlockGrad(INNER)]), (9, 12)),
    "rows": (S.MakeLoss(layer(S.relu(OF_ROWS), "fc1", flatten=False)), (2, 3, 4)),
    "flattened late": (S.MakeLoss(layer(S.relu(OF_ROWS), "fc1")), (2, 3, 4)),
}


def run(net, shape=(9, 12), dtype="float32"):
    types, rng = dict.fromkeys(net.list_arguments(), dtype), np.random.RandomState(0)
    bound = net.simple_bind(mx.cpu(), grad_req="add", type_dict=types, data=shape)
    for name, array in bound.arg_dict.items():
        array[:] = rng.randint(0, 5, array.shape) if "label" in name else rng.uniform(-1, 1, array.shape)
    outs = [o.asnumpy() for o in bound.forward(is_train=True)]
    bound.backward()
    return outs + [v.asnumpy() for v in bound.grad_dict.values()], bound


@pytest.mark.usefixtures("library")
@pytest.mark.parametrize("name", NETS)
def test_outputs_and_gradients_agree(name):
    """Products of float64 are torch's in any case."""
    for one, other in zip(run(*NETS[name])[0], run(*NETS[name], "float64")[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


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


@pytest.mark.usefixtures("library")
def test_a_weight_written_before_backward_counts_and_an_error_names_the_node():
    bound = run(perceptron())[1]
    bound.forward(is_train=True)
    for grad in bound.grad_dict.values():
        grad[:] = 0
    bound.arg_dict["fc1_weight"][:] = 0
    bound.backward()
    assert not bound.grad_dict["fc0_weight"].asnumpy().any()
    assert bound.grad_dict["fc1_weight"].asnumpy().any()
    bound.arg_dict["fc1_weight"].tensor = bound.arg_dict["fc1_weight"].tensor[:, :2].contiguous()
    said = r"FullyConnected 'fc1' made at .*test_dense_layers.py:\d+ .*fc1_weight"
    with pytest.raises(NodeError, match=said):
        bound.forward(is_train=True)
