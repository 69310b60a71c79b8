import importlib

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import native
from helpers.switched import fired, results, same_with_and_without

S = mx.sym
NAME = "native_convolutions"
MODULE = importlib.import_module("dpmodule.executor.passes.native_convolutions")
CONVOLVE = MODULE.convolve3x3
SHAPE = {"data": (2, 3, 8, 16)}
needs_kernels = pytest.mark.skipif(
    not hasattr(native.core, "conv3x3_lanes") or native.core.conv3x3_lanes() == 0,
    reason="there are no kernels",
)


@pytest.fixture
def convolved(monkeypatch):
    """Note the steps of the convolutions that the kernels run."""
    steps = []

    def convolve(x, weight, bias, step):
        steps.append(step)
        return CONVOLVE(x, weight, bias, step)

    monkeypatch.setattr(MODULE, "convolve3x3", convolve)
    return steps


def layer(value, name, **attrs):
    options = {"kernel": (3, 3), "pad": (1, 1), "num_filter": 16, **attrs}
    return S.Convolution(value, name=name, **options)


def net(**attrs):
    value = layer(S.Variable("data"), "first", no_bias=True)
    value = S.Activation(S.BatchNorm(value, fix_gamma=False, name="norm"), act_type="relu")
    return S.MakeLoss(S.square(layer(value, "second", **attrs)), name="loss")


@needs_kernels
@pytest.mark.parametrize("grad_req", ["write", "add"])
@pytest.mark.parametrize("attrs", [{}, {"stride": (2, 2), "no_bias": True}], ids=["1", "2"])
def test_results_are_those_without(attrs, grad_req, convolved):
    counts = same_with_and_without(net(**attrs), SHAPE, NAME, rtol=1e-4, grad_req=grad_req)
    assert counts[NAME] == 2
    assert set(convolved) == {1, attrs.get("stride", (1,))[0]}


@needs_kernels
@pytest.mark.parametrize("off", ["channels_last", "unfolded_convolutions", "fused_norms"])
def test_other_passes_may_be_off(off, convolved):
    assert same_with_and_without(net(), SHAPE, NAME, off, rtol=1e-4)[NAME] == 2
    assert convolved


OTHERS = {
    "groups": {"num_group": 2},
    "dilated": {"dilate": (2, 2)},
    "no border": {"pad": (0, 0)},
    "uneven steps": {"stride": (1, 2)},
    "long steps": {"stride": (3, 3)},
    "points": {"kernel": (1, 1)},
}


@pytest.mark.parametrize("case", OTHERS)
def test_other_windows_are_left_alone(case):
    assert fired(net(**OTHERS[case]), SHAPE)[NAME] == 1


def test_a_graph_without_such_windows_is_not_looked_at():
    one = S.MakeLoss(layer(S.Variable("data"), "c", kernel=(5, 5)))
    assert NAME not in fired(one, SHAPE)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_run_as_they_are(dtype, convolved):
    one = S.MakeLoss(layer(S.Variable("data"), "c", num_filter=16))
    found, counts = results(one, SHAPE, dtype=dtype)
    assert counts[NAME] == 1
    wanted, _ = results(one, SHAPE, [NAME], dtype=dtype)
    assert found.keys() == wanted.keys()
    assert all(np.array_equal(found[name], wanted[name]) for name in wanted)
    assert not convolved


@needs_kernels
def test_a_gradient_needs_no_copy():
    one = net().simple_bind(mx.cpu(), **SHAPE)
    one.arg_dict["data"][:] = 1
    one.forward(is_train=True)
    before = one.grad_dict["second_weight"].tensor.data_ptr()
    one.backward()
    after = one.grad_dict["second_weight"].tensor
    assert after.data_ptr() != before
    assert after.is_contiguous()
