import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import OpError
from helpers.numeric import check_gradients, gradients, run, shapes, types

rng = np.random.RandomState(7)
DATA = rng.randn(2, 3, 4)


def softmax(x, axis):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


@pytest.mark.parametrize("axis", [-1, 0, 1])
@pytest.mark.parametrize("temperature", [None, 2.0])
def test_family(axis, temperature):
    attrs = {"axis": axis, "temperature": temperature}
    x = DATA / (temperature or 1.0)
    np.testing.assert_allclose(run("softmax", DATA, **attrs), softmax(x, axis))
    np.testing.assert_allclose(run("log_softmax", DATA, **attrs), np.log(softmax(x, axis)))
    np.testing.assert_allclose(run("softmin", DATA, **attrs), softmax(-x, axis))
    for name in ("softmax", "log_softmax", "softmin"):
        check_gradients(name, DATA, **attrs)


@pytest.mark.parametrize("axis", [0, 1, 2])
def test_length(axis):
    length = rng.randint(0, DATA.shape[axis] + 2, [n for i, n in enumerate(DATA.shape) if i != axis])
    out = run("softmax", DATA, length, axis=axis, use_length=True)
    rows = np.moveaxis(DATA, axis, -1)
    want = np.zeros_like(rows)
    for at in np.ndindex(*length.shape):
        n = length[at]
        if n:
            want[at][:n] = softmax(rows[at][:n], -1)
    np.testing.assert_allclose(np.moveaxis(out, axis, -1), want)
    (grad,) = gradients("softmax", DATA, length, head=rng.randn(*DATA.shape), axis=axis, use_length=True)
    assert np.isfinite(grad).all()
    assert not np.moveaxis(grad, axis, -1)[want == 0].any()


def test_output_type():
    half = DATA.astype("float16")
    out = run("softmax", half, dtype="float32")
    assert out.dtype == np.float32
    np.testing.assert_allclose(out, softmax(half.astype("float32"), -1), rtol=1e-6)
    assert run("log_softmax", DATA, dtype="float16").dtype == np.float16
    for name in ("softmax", "log_softmax", "softmin"):
        assert getattr(mx.nd, name)(mx.nd.array(half, dtype="float16"), dtype=None).dtype == np.float16
    assert types("softmax", "float16", dtype="float64") == (["float16"], ["float64"])
    assert types("softmax", "float16", None, use_length=True) == (["float16", None], ["float16"])


def test_shapes():
    assert shapes("softmax", (2, 3, 4), None, axis=1, use_length=True) == ([(2, 3, 4), (2, 4)], [(2, 3, 4)])
    assert shapes("log_softmax", (0, 3), outs=[(5, 0)]) == ([(5, 3)], [(5, 3)])


def test_only_softmax_takes_a_length():
    for name in ("log_softmax", "softmin"):
        with pytest.raises(OpError, match=f"{name} takes no length"):
            run(name, DATA, use_length=True)


def test_activation_form():
    np.testing.assert_allclose(run("SoftmaxActivation", DATA), softmax(DATA, -1))
    np.testing.assert_allclose(run("SoftmaxActivation", DATA, mode="channel"), softmax(DATA, 1))
    for mode in ("instance", "channel"):
        check_gradients("SoftmaxActivation", DATA, mode=mode)
