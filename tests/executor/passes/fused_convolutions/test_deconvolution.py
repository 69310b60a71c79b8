import numpy as np
import pytest
import torch
from torch import nn

import dpmodule as mx
from dpmodule import executor
from dpmodule._core import torch_private
from helpers.both_backends import in_native
from helpers.threads import prediction_of_any_threads

S = mx.sym
X = S.Variable("x")


def decoder(no_bias=True, **norm):
    x = S.Deconvolution(X, kernel=(4, 4), stride=(2, 2), pad=(1, 1), num_filter=24, no_bias=no_bias, name="d")
    return S.Activation(S.BatchNorm(x, name="n", **norm), act_type="relu")


def bind(net, shape, off=False):
    with executor.disabled(*(("fused_convolutions",) if off else ())):
        bound = net.simple_bind(mx.cpu(), x=shape)
        bound.program(False)
        bound.program(True)
    rng = np.random.RandomState(0)
    for arrays in (bound.arg_dict, bound.aux_dict):
        for name, array in sorted(arrays.items()):
            array[:] = rng.uniform(0.5 if name.endswith(("var", "gamma")) else -1, 1.5, array.shape)
    return bound


def assert_same(one, two, is_train=False):
    for bound in (one, two):
        bound.forward(is_train=is_train)
    for got, want in zip([*one.outputs, *one.aux_arrays], [*two.outputs, *two.aux_arrays], strict=True):
        np.testing.assert_allclose(got.asnumpy(), want.asnumpy(), rtol=2e-4, atol=2e-4)


ACTIVATIONS = nn.ReLU(), nn.LeakyReLU(0.2), nn.Tanh(), nn.GELU(), nn.Hardswish(), None


def assert_predicts(net, x):
    """Check predictions, and return the number of steps."""
    want = net(x).detach()
    symbol, arguments, states = mx.sym.from_torch(net, x)
    names = [name for name in symbol.list_arguments() if name not in arguments]
    given = {**arguments, names[0]: mx.nd.NDArray(x, mx.cpu())}
    bound = symbol.bind(mx.cpu(), given, grad_req="null", aux_states=states)
    for _ in range(3):  # weights are packed in the second run
        found = bound.forward(is_train=False)[0].tensor
        torch.testing.assert_close(found, want, rtol=1e-4, atol=1e-4)
    return len(bound.program(False).low.steps)


@pytest.mark.parametrize(("kernel", "stride", "pad"), [(4, 2, 1), (2, 2, 0), (3, 2, 1), (5, 1, 2), (4, 1, 0)])
@pytest.mark.parametrize("shape", [(1, 16, 1, 1), (1, 96, 16, 16), (3, 16, 5, 4)])
def test_predicts_as_torch(kernel, stride, pad, shape):
    torch.manual_seed(0)
    for filters, act in ((3, ACTIVATIONS[kernel - 2]), (24, ACTIVATIONS[kernel])):
        layers = nn.ConvTranspose2d(shape[1], filters, kernel, stride, pad), nn.BatchNorm2d(filters), act
        net = nn.Sequential(*(layer for layer in layers if layer is not None)).eval()
        with torch.no_grad():
            for tensor in (*net[1].parameters(), net[1].running_mean, net[1].running_var):
                tensor.uniform_(0.5, 2.0)
        assert assert_predicts(net, torch.randn(shape)) == 1


@pytest.mark.parametrize("layer", [nn.Conv2d, nn.ConvTranspose2d])
@pytest.mark.parametrize("public", [False, True])
def test_every_activation_follows_where_torch_lacks_onednn_too(layer, public):
    torch.manual_seed(0)
    torch_private.select(public)
    try:
        for act in (*ACTIVATIONS, nn.SiLU(), nn.Sigmoid(), nn.ReLU6()):
            layers = layer(32, 24, 4, 2), act
            assert_predicts(
                nn.Sequential(*(each for each in layers if each is not None)), torch.randn(2, 32, 9, 9)
            )
    finally:
        torch_private.select()


@pytest.mark.parametrize(
    "norm", [{"fix_gamma": True}, {"fix_gamma": False, "eps": 0.1}, {"use_global_stats": True}]
)
@pytest.mark.parametrize("bias", [[], ["d_bias"]])
def test_follows_changed_parameters_and_trains_as_before(norm, bias):
    net = decoder(no_bias=not bias, **norm)
    one, two = (bind(net, (4, 32, 8, 8), off) for off in (False, True))
    for name in (*bias, "d_weight", "n_beta", "n_gamma", "n_moving_mean", "n_moving_var"):
        for _ in range(3):
            assert_same(one, two)
        for bound in (one, two):
            array = {**bound.arg_dict, **bound.aux_dict}[name]
            array[:] = array * 1.5 + 0.5
    assert_same(one, two)
    assert_same(one, two, is_train=True)
    assert_same(one, two)


@pytest.mark.parametrize("filters", [3, 20])
@pytest.mark.parametrize("shape", [(1, 3, 7, 5), (2, 20, 1, 4)])
@pytest.mark.parametrize(
    "window",
    [
        {"kernel": (5, 4), "stride": (3, 2), "pad": (2, 1), "adj": (2, 1)},
        {"kernel": (2, 2), "stride": (2, 2), "pad": (0, 1)},  # reads no pixel before the first one
        {"kernel": (3, 4), "stride": (2, 3), "target_shape": (2, 9)},
        {"kernel": (1, 2), "stride": (2, 2)},  # some results read no pixel
        {"kernel": (3, 3), "stride": (2, 2), "dilate": (2, 1)},
        {"kernel": (3, 3), "no_bias": False},
    ],
)
def test_sizes(window, shape, filters):
    window = {"num_filter": filters, **window}
    if window.get("target_shape") and shape[2] == 1:
        shape = (*shape[:2], 2, shape[3])
    up = S.Deconvolution(X, name="d", **window)
    rest = S.Convolution(X, kernel=(1, 1), num_filter=20, name="c")
    for net in (up, S.Concat(S.Deconvolution(rest, name="d2", **window), S.relu(up), dim=1)):
        one, two = bind(net, shape), bind(net, shape, off=True)
        for _ in range(3):
            assert_same(one, two)


@in_native
def test_results_do_not_depend_on_threads():
    prediction_of_any_threads(bind(decoder(), (3, 40, 11, 9)))


def test_outputs_within_the_chain_stay():
    inner = S.Deconvolution(X, kernel=(4, 4), stride=(2, 2), num_filter=24, name="d")
    net = S.Group([S.relu(S.BatchNorm(inner, name="n")), inner])
    assert_same(bind(net, (4, 32, 8, 8)), bind(net, (4, 32, 8, 8), off=True))
