import numpy as np
import pytest

import dpmodule as mx
from dpmodule.executor.passes.fused_norms import FusedNorm
from helpers.switched import same_with_and_without

S = mx.sym
NAME = "fused_norms"
IMAGE = {"data": (3, 4, 6, 6)}
DATA = S.Variable("data")
RELUS = {"relu": S.relu, "Activation": lambda x: S.Activation(x, act_type="relu")}


def relu6(x, least=0):
    return S.clip(x, a_min=least, a_max=6)


def silu(x):
    return x * S.sigmoid(x)


def conv(net, name, size=3):
    options = {"pad": (size // 2,) * 2, "num_filter": 4, "no_bias": True, "name": name}
    return S.Convolution(net, kernel=(size, size), **options)


def norm(net, name, **attrs):
    return S.BatchNorm(net, name=name, **{"fix_gamma": False, **attrs})


def residual(act=S.relu, **attrs):
    net = act(norm(conv(DATA, "c1"), "b1", **attrs))
    inner = norm(conv(act(norm(conv(net, "c2"), "b2", **attrs)), "c3"), "b3", **attrs)
    net = act(net + inner)
    short = norm(conv(net, "c4", 1), "b4", **attrs)
    net = act(short + norm(conv(net, "c5"), "b5", **attrs))
    return S.MakeLoss(S.Pooling(net, global_pool=True, kernel=(1, 1), pool_type="avg"))


INNER = norm(conv(DATA, "c1"), "b1")
ONE = S.MakeLoss(S.relu(INNER))
SUM = [("norm_add_relu", 2)]
BLOCKS = [("norm_relu", 1), ("norm_relu", 1), *SUM, ("norm", 0), *SUM]
NETS = {  # and the steps of the program with how many other nodes each works for
    "relu": (residual(), BLOCKS),
    "Activation": (residual(RELUS["Activation"]), BLOCKS),
    "clip": (
        residual(relu6),
        [("norm_clip", 1), ("norm_clip", 1), ("norm_add", 1), ("norm", 0), ("norm_add", 1)],
    ),
    "silu": (
        residual(silu),
        [("norm_silu", 2), ("norm_silu", 2), ("norm_add", 1), ("norm", 0), ("norm_add", 1)],
    ),
    "clip from -1": (S.MakeLoss(relu6(INNER, -1)), [("norm", 0)]),
    "tanh": (residual(S.tanh), [("norm", 0), ("norm", 0), ("norm_add", 1), ("norm", 0), ("norm_add", 1)]),
    "gamma is 1": (residual(fix_gamma=True), BLOCKS),
    "sum": (S.MakeLoss(S.tanh(INNER + conv(DATA, "c2"))), [("norm_add", 1)]),
    "output": (S.Group([ONE, S.BlockGrad(INNER)]), [("norm", 0)]),
    "two readers": (S.MakeLoss(S.relu(INNER) * S.sigmoid(INNER)), [("norm", 0)]),
    "added to itself": (S.MakeLoss(INNER + INNER), [("norm", 0)]),
    "global statistics": (residual(use_global_stats=True), []),
    "three outputs": (S.MakeLoss(S.relu(norm(conv(DATA, "c1"), "b1", output_mean_var=True)[0])), []),
    "axis": (S.MakeLoss(S.relu(norm(conv(DATA, "c1"), "b1", axis=3))), []),
}


@pytest.mark.parametrize(("net", "expected"), NETS.values(), ids=NETS)
def test_steps_that_are_one(net, expected):
    counts = same_with_and_without(net, IMAGE, NAME, rtol=2e-5 if expected else 0, grad_req="add")
    assert counts.get(NAME, 0) == len(expected)
    steps = net.simple_bind(mx.cpu(), **IMAGE).program(True).low.steps
    assert [(s.name, len(s.covers)) for s in steps if isinstance(s.function, FusedNorm)] == expected


@pytest.mark.parametrize("frozen", ["c", "b", "data", ("b3", "c3")])
def test_some_gradients_are_not_wanted(frozen):
    req = {name: "null" if name.startswith(frozen) else "write" for name in residual().list_arguments()}
    same_with_and_without(residual(), IMAGE, NAME, rtol=2e-5, grad_req=req)


@pytest.mark.parametrize("act", RELUS)
@pytest.mark.parametrize("place", ["data", "other"])
@pytest.mark.parametrize("value", [np.nan, np.inf])
def test_numbers_that_are_not_finite(act, place, value):
    sides = [conv(S.Variable(name), f"c_{name}", 1) for name in ("data", "other")]
    net = S.MakeLoss(RELUS[act](norm(sides[0], "b1") + sides[1]))
    numbers = np.random.RandomState(0).uniform(0.5, 1, (2, 4, 3, 3))
    numbers[1, 2, 1, 1] = value
    shapes = dict.fromkeys(("data", "other"), numbers.shape)
    same_with_and_without(net, shapes, NAME, rtol=2e-5, values={place: numbers})


@pytest.mark.parametrize("shape", [(700, 24), (30, 7, 90), (9, 3, 28, 29), (3, 2, 4, 30, 40)], ids=str)
@pytest.mark.parametrize("value", [0.5, np.nan, np.inf])
def test_contiguous_data(shape, value):
    numbers = np.random.RandomState(0).uniform(0.5, 1, shape)
    numbers[1, 1] = value
    net = S.MakeLoss(S.relu(norm(DATA, "b1") + S.Variable("other")))
    shapes = dict.fromkeys(("data", "other"), shape)
    counts = same_with_and_without(net, shapes, NAME, rtol=2e-5, values={"data": numbers})
    assert counts[NAME] == 1


@pytest.mark.parametrize("shape", [(700, 24), (3, 2, 40, 200)], ids=str)
def test_gradients_at_both_ends_of_a_clip(shape):
    net = S.MakeLoss(S.square(S.clip(norm(DATA, "b1"), a_min=0, a_max=0.5) + S.sin(DATA)))
    numbers = np.random.RandomState(0).uniform(0.5, 1, shape)
    vectors = {"b1_gamma": np.zeros(shape[1]), "b1_beta": np.resize([0, 0.5, 0.25, -1], shape[1])}
    for values in ({"data": numbers}, {"data": numbers, **vectors}):
        counts = same_with_and_without(net, {"data": shape}, NAME, rtol=2e-4, values=values)
        assert counts[NAME] == 1
    numbers[1, 1] = np.nan
    same_with_and_without(net, {"data": shape}, NAME, rtol=2e-4, values={"data": numbers})
