"""Networks of dense layers by oneDNN and by torch; their numbers are compared in tests/ops/nn/test_linear.py."""

from itertools import product

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import NodeError
from dpmodule.ops.nn import dense, linear
from helpers.walk import walks

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


def perceptron():
    net = DATA
    for i, act in enumerate(("relu", "tanh")):
        net = S.Activation(layer(net, f"fc{i}", 7, no_bias=i == 1), act_type=act)
    return S.SoftmaxOutput(layer(net, "fc2", 5), name="softmax")


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
    bound, rng = perceptron().simple_bind(mx.cpu(), data=(9, 12)), np.random.RandomState(0)
    for array in bound.arg_arrays:
        array[:] = rng.uniform(0, 1, array.shape)
    bound.forward(is_train=True)
    bound.arg_dict["fc1_weight"][:] = 0
    bound.backward()
    assert not bound.grad_dict["fc0_weight"].asnumpy().any()
    assert bound.grad_dict["fc1_weight"].asnumpy().any()
    bound.arg_dict["fc1_weight"].tensor = bound.arg_dict["fc1_weight"].tensor[:, :2].contiguous()
    said = r"FullyConnected 'fc1' made at .*test_dense_layers.py:\d+ .*fc1_weight"
    with pytest.raises(NodeError, match=said):
        bound.forward(is_train=True)


@walks(product((3, 40, 300), ("relu", "sigmoid", "tanh", "gelu")))
def test_an_activation_after_a_layer_is_part_of_it(rows, kind):
    of = S.LeakyReLU if kind == "gelu" else S.Activation
    hidden = of(layer(DATA, "fc0", 300), act_type=kind)
    net = S.LeakyReLU(of(layer(hidden, "fc1", 64), act_type=kind), act_type="gelu")
    rng, found = np.random.RandomState(0), []
    for off in ((), ("dense_layers",)):
        with mx.executor.disabled(*off):
            bound = net.simple_bind(mx.cpu(), grad_req="null", data=(rows, 500))
            rng.seed(0)
            for array in bound.arg_arrays:
                array[:] = rng.uniform(-1, 1, array.shape)
            bound.arg_dict["data"][1, 2] = np.nan
            found.append([bound.forward()[0].asnumpy() for _ in range(3)])
            steps = len(bound.program(False).low.steps)
            assert steps == (5 if off else 2)  # a layer takes one activation
    assert np.isnan(found[0]).any()
    np.testing.assert_allclose(*found, 1e-5, 1e-4)


def test_packs_of_mkl_follow_the_rows_and_the_weight():
    rng = np.random.RandomState(0)
    bound = layer(DATA, "fc", 1024).simple_bind(mx.cpu(), grad_req="null", data=(16, 256))
    for rows in (16, 16, 16, 24, 24, 24, 16):
        if bound.arg_dict["data"].shape[0] != rows:
            bound = bound.reshape(allow_up_sizing=True, data=(rows, 256))
        for array in bound.arg_arrays:
            array[:] = rng.uniform(-1, 1, array.shape)
        weight, bias = (bound.arg_dict[f"fc_{part}"].asnumpy() for part in ("weight", "bias"))
        for _ in range(3):
            found = bound.forward()[0].asnumpy()
            np.testing.assert_allclose(found, bound.arg_dict["data"].asnumpy() @ weight.T + bias, 1e-4, 1e-4)
