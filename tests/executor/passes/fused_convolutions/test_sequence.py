"""Convolutions over sequences, alone and in networks."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpmodule as mx
from dpmodule import executor
from helpers.both_backends import in_native
from helpers.threads import prediction_of_any_threads

S = mx.sym
X, W, B = map(S.Variable, "xwb")
ACTIVATIONS = {
    None: lambda y: y,
    "relu": torch.relu,
    "tanh": torch.tanh,
    "leaky": lambda y: F.leaky_relu(y, 0.25),
    "gelu": F.gelu,
}


def network(act, filters, bias, **window):
    net = S.Convolution(X, W, B if bias else None, num_filter=filters, no_bias=not bias, **window)
    if act in ("leaky", "gelu"):
        return S.LeakyReLU(net, act_type=act)
    return net if act is None else S.Activation(net, act_type=act)


@pytest.mark.parametrize("shape", [(1, 3, 40), (3, 1, 17), (2, 20, 9), (5, 8, 2500)])
@pytest.mark.parametrize(
    ("window", "act"),
    [
        ({"kernel": (3,)}, "relu"),
        ({"kernel": (5,), "pad": (4,), "stride": (2,)}, "leaky"),
        ({"kernel": (2,), "dilate": (3,), "pad": (1,)}, "tanh"),
        ({"kernel": (1,)}, "gelu"),
        ({"kernel": (4,), "stride": (3,)}, None),
    ],
)
@pytest.mark.parametrize(("filters", "bias"), [(2, True), (70, False)])
def test_predicts_as_torch(shape, window, act, filters, bias):
    torch.manual_seed(0)
    data, weight = torch.randn(shape), torch.randn(filters, shape[1], *window["kernel"])
    shift = torch.randn(filters) if bias else None
    options = {name: window[key][0] for name, key in OPTIONS if key in window}
    want = ACTIVATIONS[act](F.conv1d(data, weight, shift, **options)).numpy()
    for moved in (False, True):  # channels may be innermost already
        net = network(act, filters, bias, **window)
        if moved:
            net = net(x=S.transpose(X, axes=(0, 2, 1)))
        given = {"x": data.transpose(1, 2).contiguous() if moved else data, "w": weight}
        given |= {"b": shift} if bias else {}
        arrays = {name: mx.nd.array(each.numpy()) for name, each in given.items()}
        bound = net.bind(mx.cpu(), arrays, grad_req="null")
        for _ in range(3):  # weights are packed in the second run
            found = bound.forward(is_train=False)[0].asnumpy()
            np.testing.assert_allclose(found, want, rtol=1e-4, atol=1e-4)
        arrays["w"][:] = arrays["w"] * 2
        twice = ACTIVATIONS[act](F.conv1d(data, weight * 2, shift, **options)).numpy()
        np.testing.assert_allclose(bound.forward()[0].asnumpy(), twice, rtol=1e-4, atol=1e-4)


OPTIONS = ("padding", "pad"), ("stride", "stride"), ("dilation", "dilate")


@in_native
def test_results_do_not_depend_on_threads_and_relu_turns_nan_into_zero():
    bound = network("relu", 40, False, kernel=(3,)).simple_bind(mx.cpu(), x=(8, 30, 200))
    for name in "xw":
        bound.arg_dict[name][:] = np.random.RandomState(0).randn(*bound.arg_dict[name].shape)
    bound.arg_dict["x"][3, 0, 5] = np.nan
    found = prediction_of_any_threads(bound)
    assert (found[3, :, 3:6] == 0).all()
    assert np.isfinite(found).all()


def test_other_types_run_as_before():
    net = nn.Sequential(nn.Conv1d(4, 6, 3), nn.ReLU()).double().eval()
    x = torch.randn(2, 4, 9, dtype=torch.float64)
    symbol, arguments, _ = mx.sym.from_torch(net, x)
    name = next(name for name in symbol.list_arguments() if name not in arguments)
    bound = symbol.bind(mx.cpu(), {**arguments, name: mx.nd.NDArray(x, mx.cpu())}, grad_req="null")
    torch.testing.assert_close(bound.forward(is_train=False)[0].tensor, net(x).detach())


def conv(x, name, filters=24, width=3, **window):
    return S.Convolution(x, name=name, kernel=(width,), pad=(width // 2,), num_filter=filters, **window)


def text_network(x):
    features = [S.max(S.relu(conv(x, f"c{width}", 20, width)), axis=2) for width in (3, 4, 5)]
    return S.FullyConnected(S.Concat(*features, dim=1), num_hidden=3, name="last")


def residual(x):
    first = S.Activation(S.BatchNorm(conv(x, "a"), name="norm", fix_gamma=False), act_type="relu")
    return S.BatchNorm(conv(first, "b") + first, name="after") + conv(x, "short", width=1)


NETWORKS = {
    "text": text_network,
    "residual": residual,
    "pooling": lambda x: S.Flatten(
        S.Pooling(
            S.Pooling(conv(x, "a"), kernel=(3,), stride=(2,), pad=(1,), pool_type="max"),
            kernel=(2,),
            pool_type="avg",
        )
    ),
    "global": lambda x: S.Pooling(conv(x, "a"), global_pool=True, pool_type="avg"),
    "groups": lambda x: (
        conv(conv(x, "a", 12), "b", 24, num_group=12) + conv(conv(x, "c", 24), "d", num_group=24)
    ),
    "mean": lambda x: S.FullyConnected(S.mean(conv(x, "a"), axis=-1), num_hidden=4, name="last"),
    "kept axis": lambda x: S.broadcast_mul(
        conv(x, "a"), S.sigmoid(S.mean(conv(x, "b"), axis=2, keepdims=True))
    ),
    "channels": lambda x: S.max(conv(x, "a"), axis=1),
    "others": lambda x: S.mean(conv(x, "a"), axis=2, exclude=True),
    "of a mean": lambda x: S.max(S.mean(conv(x, "a"), axis=2), axis=-1),
    "rows": lambda x: S.Concat(
        *(S.Flatten(S.transpose(conv(x, name, stride=(2,)), axes=(0, 2, 1))) for name in "ab"), dim=1
    ),
    "flat": lambda x: S.FullyConnected(conv(x, "a"), num_hidden=5, name="last"),
    "four axes": lambda x: S.mean(
        S.Convolution(S.expand_dims(conv(x, "a"), axis=2), name="d", kernel=(1, 3), num_filter=9), axis=(2, 3)
    ),
}


@pytest.mark.parametrize("network", NETWORKS.values(), ids=NETWORKS)
@pytest.mark.parametrize("shape", [(1, 5, 30), (3, 16, 17), (4, 2, 9)])
@pytest.mark.parametrize("dtype", ["float32", "float64"])
def test_networks_predict_as_without_the_pass(network, shape, dtype):
    found, rng = [], np.random.RandomState(0)
    given = {}
    for off in ((), ("fused_convolutions",)):
        with executor.disabled(*off):
            bound = network(S.Variable("data")).simple_bind(
                mx.cpu(), data=shape, grad_req="null", type_dict={"data": dtype}
            )
            bound.program(False)
        for name, array in (bound.arg_dict | bound.aux_dict).items():
            if name not in given:
                given[name] = rng.uniform(0.1, 1, array.shape) - (0 if name.endswith("var") else 0.5)
            array[:] = given[name]
        for _ in range(3):
            result = bound.forward(is_train=False)[0]
        found.append(result.asnumpy())
    assert found[0].shape == found[1].shape
    np.testing.assert_allclose(*found, rtol=1e-4, atol=1e-5)
