import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import native
from dpmodule.ops.nn import pool as pooling
from dpmodule.ops.nn.pool import use_native_max_pool
from helpers.arrays import count, f8, randn
from helpers.op_case import gradients, gradients_test, rules_test, run, values_test

ROW = count(1, 1, 5)
PAIRS = {"kernel": (2,), "stride": (2,)}
FULL = {"pooling_convention": "full", "pool_type": "avg"}
test_values = values_test(
    ("Pooling", (ROW,), {**PAIRS, "pooling_convention": "same"}, f8([[[1, 3, 4]]])),
    ("Pooling", (-ROW,), {"kernel": (2,), "pool_type": "lp", "p_value": 1}, f8([[[-1, -3, -5, -7]]])),
    ("Pooling", (ROW[..., :3],), {"kernel": (1,), "stride": (3,), **FULL}, f8([[[0, 0]]])),
)
test_gradient_of_a_window_beyond_the_border = gradients_test(
    ("Pooling", (ROW[..., :3],), {**PAIRS, **FULL}, [[[[0.5, 0.5, 1]]]])
)


def test_one_of_equal_maxima_gets_the_gradient():
    for attrs in ({"kernel": (2, 2)}, {"global_pool": True}):
        (grad,) = gradients("Pooling", np.ones((1, 1, 2, 2)), **attrs)
        assert sorted(grad.ravel()) == [0, 0, 0, 1]


@pytest.mark.parametrize("dtype", ["float16", "bfloat16"])
def test_a_global_average_of_large_numbers_is_finite(dtype):
    x = mx.nd.ones((2, 3, 64, 64), dtype=dtype) * 1000
    found = mx.nd.Pooling(x, global_pool=True, pool_type="avg").astype("float32").asnumpy()
    np.testing.assert_allclose(found, 1000.0, rtol=1e-2)


@pytest.mark.parametrize(
    "size", [9, 40]
)  # on both sides of the size from which forward runs in channels_last
@pytest.mark.parametrize(
    ("kernel", "stride", "pad", "full"), [(2, 2, 0, False), (3, 2, 1, True), (3, 1, 1, False)]
)
def test_maximum_and_gradient_are_those_of_torch(size, kernel, stride, pad, full):
    x = torch.randint(-3, 4, (2, 24, size, size + 1)).float().requires_grad_()  # with equal maxima
    want = torch.max_pool2d(x, kernel, stride, pad, ceil_mode=full)
    head = torch.randn_like(want)
    want.backward(head)
    convention = "full" if full else "valid"
    pooled = mx.sym.Pooling(
        mx.sym.Variable("x"), kernel=(kernel,) * 2, stride=(stride,) * 2, pad=(pad,) * 2,
        pool_type="max", pooling_convention=convention,
    )  # fmt: skip
    bound = pooled.simple_bind(mx.cpu(), x=x.shape)
    found = bound.forward(is_train=True, x=mx.nd.array(x.detach().numpy()))[0]
    bound.backward(mx.nd.array(head.numpy()))
    np.testing.assert_array_equal(found.asnumpy(), want.detach().numpy())
    np.testing.assert_allclose(bound.grad_dict["x"].asnumpy(), x.grad.numpy(), rtol=1e-5, atol=1e-6)


def test_the_first_version_of_whole_images():
    data = randn(1, 2, 4, 4)
    np.testing.assert_allclose(run("Pooling_v1", data, global_pool=True)[..., 0, 0], data.max((2, 3)))


test_shapes = rules_test(
    ("Pooling", [(0, 3, 8, 0)], {"kernel": (3, 3)}, [(0, 3, 8, 0)], [(0, 3, 6, 0)]),
    ("Pooling", [(0, 3, 8, 8)], {"kernel": (3, 3)}, [(4, 3, 8, 8)], None, [(4, 3, 6, 6)]),
)

# the extension's maxima

needs_kernel = pytest.mark.skipif(not hasattr(native.core, "run_layers"), reason="there is no such kernel")


@needs_kernel
def test_what_is_left_to_torch(monkeypatch):
    data = torch.randn(2, 16, 4, 4)
    assert use_native_max_pool(data)
    for other in (torch.randn(2, 3, 4, 4), data.double(), data[:0], data.to("meta")):
        assert not use_native_max_pool(other)
    found = []
    torch.vmap(lambda each: found.append(use_native_max_pool(each)) or each)(torch.randn(3, 2, 16, 4, 4))
    assert found == [False]
    monkeypatch.setattr(pooling, "native_max_pool", lambda *_: pytest.fail("no gradient could follow"))
    array = mx.nd.array(data.numpy())
    array.attach_grad()
    with mx.autograd.record():
        out = mx.nd.Pooling(array, kernel=(2, 2), stride=(2, 2), pool_type="max")
    out.backward()
    assert array.grad.asnumpy().sum() == out.size
