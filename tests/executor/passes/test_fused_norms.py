import numpy as np
import pytest

import dpmodule as mx
from dpmodule import executor, native
from dpmodule.executor.passes.fused_norms import FusedNorm
from helpers.switched import assert_same, fired, results, same_with_and_without

S = mx.sym
NAME = "fused_norms"
IMAGE = {"data": (3, 4, 6, 6)}

needs_kernels = pytest.mark.skipif(
    not hasattr(native.core, "norm_forward"),
    reason="there is no extension, or its compiler has no vector types",
)


def conv(net, name, **attrs):
    options = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 4, "no_bias": True, **attrs}
    return S.Convolution(net, name=name, **options)


def norm(net, name, **attrs):
    return S.BatchNorm(net, name=name, **{"fix_gamma": False, **attrs})


def activation(net):
    return S.Activation(net, act_type="relu")


def residual(act=S.relu, **attrs):
    net = act(norm(conv(S.Variable("data"), "c1"), "b1", **attrs))
    inner = norm(conv(act(norm(conv(net, "c2"), "b2", **attrs)), "c3"), "b3", **attrs)
    net = act(net + inner)
    short = norm(conv(net, "c4", kernel=(1, 1), pad=(0, 0)), "b4", **attrs)
    net = act(short + norm(conv(net, "c5"), "b5", **attrs))
    return S.MakeLoss(S.Pooling(net, global_pool=True, kernel=(1, 1), pool_type="avg"))


def sum_without_relu():
    data = S.Variable("data")
    return S.MakeLoss(S.tanh(norm(conv(data, "c1"), "b1") + conv(data, "c2")))


NETS = {
    "relu": (residual, 5),
    "Activation": (lambda: residual(activation), 5),
    "tanh": (lambda: residual(S.tanh), 5),
    "gamma is 1": (lambda: residual(fix_gamma=True), 5),
    "sum": (sum_without_relu, 1),
}


def calls(net, shapes=IMAGE):
    """Return what a bound graph for training has of the pass, and for how many nodes each works."""
    steps = net.simple_bind(mx.cpu(), **shapes).program(True).low.steps
    return [(s.name, len(s.covers)) for s in steps if isinstance(s.function, FusedNorm)]


@pytest.mark.parametrize("name", NETS)
@pytest.mark.parametrize("grad_req", ["write", "add"])
def test_results_are_those_without(name, grad_req):
    make, count = NETS[name]
    counts = same_with_and_without(make(), IMAGE, NAME, rtol=2e-5, grad_req=grad_req)
    assert counts[NAME] == count


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_run_as_they_did(dtype):
    net = S.MakeLoss(S.relu(norm(S.Variable("data"), "b1"))) if dtype == "float16" else residual()
    same_with_and_without(net, IMAGE, NAME, rtol=0, dtype=dtype)


@pytest.mark.parametrize(
    "net",
    [
        residual(use_global_stats=True),
        S.MakeLoss(S.relu(norm(conv(S.Variable("data"), "c1"), "b1", output_mean_var=True)[0])),
        S.MakeLoss(S.relu(norm(conv(S.Variable("data"), "c1"), "b1", axis=3))),
    ],
    ids=["use_global_stats", "output_mean_var", "axis"],
)
def test_it_leaves_alone_what_the_kernels_do_not_do(net):
    assert NAME not in same_with_and_without(net, IMAGE, NAME, rtol=0)


def test_predictions_and_forwards_without_training_are_the_same_bits():
    same_with_and_without(residual(), IMAGE, NAME, rtol=0, is_train=False)


def test_one_value_for_each_channel_runs_as_it_did():
    net = S.MakeLoss(S.relu(norm(conv(S.Variable("data"), "c1"), "b1")))
    same_with_and_without(net, {"data": (1, 4, 1, 1)}, NAME, rtol=0)


@pytest.mark.parametrize("frozen", ["c", "b", "data", ("c", "b"), "b3", ("b3", "c3")])
def test_some_gradients_are_not_wanted(frozen):
    net = residual()
    req = {name: "null" if name.startswith(frozen) else "write" for name in net.list_arguments()}
    same_with_and_without(net, IMAGE, NAME, rtol=2e-5, grad_req=req)


def test_steps_that_are_one():
    assert calls(residual()) == [
        ("norm_relu", 1),
        ("norm_relu", 1),
        ("norm_add_relu", 2),
        ("norm", 0),
        ("norm_add_relu", 2),
    ]
    assert calls(sum_without_relu()) == [("norm_add", 1)]


def test_what_others_read_is_computed():
    inner = norm(conv(S.Variable("data"), "c1"), "b1")
    net = S.Group([S.MakeLoss(S.relu(inner)), S.BlockGrad(inner)])
    assert calls(net) == [("norm", 0)]
    same_with_and_without(net, IMAGE, NAME, rtol=2e-5)
    twice = S.MakeLoss(S.relu(inner) * S.sigmoid(inner))
    assert calls(twice) == [("norm", 0)]
    same_with_and_without(twice, IMAGE, NAME, rtol=2e-5)
    assert calls(S.MakeLoss(inner + inner)) == [("norm", 0)]


def test_a_monitor_sees_every_operator():
    one = residual().simple_bind(mx.cpu(), **IMAGE)
    seen = []
    one.set_monitor_callback(lambda name, array: seen.append(name))
    one.forward(is_train=True)
    assert {"b1_output", "b5_output"} <= set(seen)


def with_one(value, place, net, off):
    """Return results and gradients where one number of an input is not finite."""
    with executor.disabled(*off):
        one = net.simple_bind(mx.cpu(), data=(2, 4, 3, 3), other=(2, 4, 3, 3))
    for name, array in sorted(one.arg_dict.items()):
        numbers = np.random.RandomState(len(name)).uniform(0.5, 1, array.shape)
        if name == place:
            numbers[1, 2, 1, 1] = value
        array[:] = mx.nd.array(numbers)
    one.forward(is_train=True)
    one.backward()
    found = {name: grad.asnumpy() for name, grad in one.grad_dict.items()}
    return found | {"out": one.outputs[0].asnumpy()}


@pytest.mark.parametrize("act", [S.relu, activation], ids=["relu", "Activation"])
@pytest.mark.parametrize("place", ["data", "other"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite(act, place, value):
    sides = [conv(S.Variable(name), f"c_{name}", kernel=(1, 1), pad=(0, 0)) for name in ("data", "other")]
    net = S.MakeLoss(act(norm(sides[0], "b1") + sides[1]))
    assert_same(with_one(value, place, net, ()), with_one(value, place, net, (NAME,)), 2e-5)


@needs_kernels
def test_a_second_run_gives_the_same_bits():
    first, _ = results(residual(), {"data": (8, 4, 24, 24)})
    again, _ = results(residual(), {"data": (8, 4, 24, 24)})
    assert_same(again, first, 0)


def test_it_stays_off_where_results_are_computed_again(monkeypatch):
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")
    assert NAME not in fired(residual(), IMAGE)
