import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule import native
from dpmodule.ops.nn import pool as pooling
from dpmodule.ops.nn.pool import native_max_pool, use_native_max_pool
from helpers.arrays import INF, NAN, count, f8, randn
from helpers.op_case import gradients, gradients_test, rules_test, run, values_test

ROW = count(1, 1, 5)
FULL = {"pooling_convention": "full", "pool_type": "avg"}
test_values = values_test(
    [
        (
            "Pooling",
            (ROW,),
            {"kernel": (2,), "stride": (2,), "pooling_convention": "same"},
            f8([[[1, 3, 4]]]),
        ),
        ("Pooling", (-ROW,), {"kernel": (2,), "pool_type": "lp", "p_value": 1}, f8([[[-1, -3, -5, -7]]])),
        ("Pooling", (ROW[..., :3],), {"kernel": (1,), "stride": (3,), **FULL}, f8([[[0, 0]]])),
    ]
)
test_gradient_of_a_window_beyond_the_border = gradients_test(
    [("Pooling", (ROW[..., :3],), {"kernel": (2,), "stride": (2,), **FULL}, [[[[0.5, 0.5, 1]]]])]
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


def test_the_first_version_of_whole_images():
    data = randn(1, 2, 4, 4)
    np.testing.assert_allclose(run("Pooling_v1", data, global_pool=True)[..., 0, 0], data.max((2, 3)))


test_shapes = rules_test(
    [
        ("Pooling", [(0, 3, 8, 0)], {"kernel": (3, 3)}, [(0, 3, 8, 0)], [(0, 3, 6, 0)]),
        ("Pooling", [(0, 3, 8, 8)], {"kernel": (3, 3)}, [(4, 3, 8, 8)], None, [(4, 3, 6, 6)]),
    ]
)

# the extension's maxima

needs_kernel = pytest.mark.skipif(not hasattr(native.core, "max_pool"), reason="there is no such kernel")
PAIR = st.tuples(st.integers(1, 4), st.integers(1, 4))


def images(shape, odd=()):
    """Return numbers of both signs, some of them the odd ones given."""
    found = torch.randn(shape, generator=torch.Generator().manual_seed(sum(shape)))
    for place, value in enumerate(odd):
        found.view(-1)[place * 7 % found.numel()] = value
    return found


@needs_kernel
@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.tuples(st.integers(1, 3), st.integers(1, 40), st.integers(1, 9), st.integers(1, 9)),
    *(PAIR, PAIR, st.tuples(st.integers(0, 2), st.integers(0, 2))),
    st.booleans(),
    st.lists(st.sampled_from([NAN, INF, -INF, -0.0]), max_size=5),
    st.sampled_from([lambda x: x, lambda x: x.transpose(2, 3), lambda x: torch.cat([x, x])[::2]]),
)
def test_maxima_are_those_of_torch(shape, kernel, stride, pad, full, odd, turn):
    data = turn(images(shape, odd))
    assume(all(2 * p <= k <= x + 2 * p for p, k, x in zip(pad, kernel, data.shape[2:], strict=True)))
    found, expected = (
        native_max_pool(data, kernel, stride, pad, full),
        torch.max_pool2d(data, kernel, stride, pad, 1, full),
    )
    torch.testing.assert_close(found, expected, rtol=0, atol=0, equal_nan=True)
    assert found.is_contiguous(memory_format=torch.channels_last)


@needs_kernel
def test_what_is_left_to_torch(monkeypatch):
    data = images((2, 16, 4, 4))
    assert use_native_max_pool(data)
    for other in (images((2, 3, 4, 4)), data.double(), data[:0], data.to("meta")):
        assert not use_native_max_pool(other)
    found = []
    torch.vmap(lambda each: found.append(use_native_max_pool(each)) or each)(images((3, 2, 16, 4, 4)))
    assert found == [False]
    monkeypatch.setattr(pooling, "native_max_pool", lambda *_: pytest.fail("no gradient could follow"))
    array = mx.nd.array(data.numpy())
    array.attach_grad()
    with mx.autograd.record():
        out = mx.nd.Pooling(array, kernel=(2, 2), stride=(2, 2), pool_type="max")
    out.backward()
    assert array.grad.asnumpy().sum() == out.size


@needs_kernel
@pytest.mark.parametrize("shape", [(3, 16, 61, 40), (1, 8, 3, 700)])
def test_threads_share_the_rows(shape):
    window = (3, 3), (2, 2), (1, 1), False
    alone = native_max_pool(images(shape), *window)
    for threads in (2, 3, 8):
        torch.set_num_threads(threads)
        assert torch.equal(native_max_pool(images(shape), *window), alone)
