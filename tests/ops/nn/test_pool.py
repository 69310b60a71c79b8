import itertools

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import native
from dpmodule.ops.nn import pool as pooling
from helpers.arrays import count, f8, randn
from helpers.op_case import call, gradients, gradients_test, rules_test, run, values_test

ROW = count(1, 1, 5)
PAIRS = {"kernel": (2,), "stride": (2,)}
FULL = {"pooling_convention": "full", "pool_type": "avg"}
test_values = values_test(
    ("Pooling", (ROW,), {**PAIRS, "pooling_convention": "same"}, f8([[[1, 3, 4]]])),
    ("Pooling", (f8([[[1, np.nan, 3, 0, 5]]]),), PAIRS, f8([[[np.nan, 3]]])),
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


@pytest.mark.parametrize("dtype", ["int8", "int32", "int64"])
def test_a_global_average_of_integers_is_float32(dtype):
    x = mx.nd.array([[[[1, 2], [3, 5]]]], dtype=dtype)
    pooled = mx.sym.Pooling(mx.sym.Variable("data", dtype=dtype), global_pool=True, pool_type="avg")
    (found,) = pooled.bind(mx.cpu(), {"data": x}, grad_req="null").forward()
    assert (found.dtype, found.asnumpy().item()) == (np.float32, 2.75)


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

# the extension's kernels

needs_kernel = pytest.mark.skipif(not hasattr(native.core, "run_layers"), reason="there is no such kernel")
WINDOWS = [(2, 2, 0), (3, 2, 1), (3, 1, 1), (5, 1, 2), (4, 3, 1), (4, 5, 0)]


@needs_kernel
@pytest.mark.parametrize("last", [False, True])
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("kind", ["max", "avg"])
def test_windows_of_all_kinds(kind, full, last):
    for (kernel, stride, pad), size in itertools.product(WINDOWS, [(7, 31), (33, 34), (64, 11)]):
        x = torch.randn(2, 24, *size)
        x[0, 0, 3, 4], x[1, 2, 0, 0] = torch.nan, torch.inf
        x = x.contiguous(memory_format=torch.channels_last) if last else x
        convention = "full" if full else "valid"
        shape = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "pad": (pad,) * 2}
        for with_padding in (True, False):
            if kind == "max":
                want = torch.max_pool2d(x, kernel, stride, pad, 1, full)
            else:
                want = torch.nn.functional.avg_pool2d(x.double(), kernel, stride, pad, full, with_padding)
            attrs = {"pooling_convention": convention, "count_include_pad": with_padding}
            array = mx.nd.NDArray(x, mx.cpu())
            found = mx.nd.Pooling(array, pool_type=kind, **shape, **attrs).asnumpy()
            np.testing.assert_allclose(found, want.float(), rtol=1e-5, atol=1e-6)


def average(x, kernel, stride, pad, full=False, with_padding=True):
    shape = {"kernel": (kernel,) * 2, "stride": (stride,) * 2, "pad": (pad,) * 2, "pool_type": "avg"}
    attrs = {"pooling_convention": "full" if full else "valid", "count_include_pad": with_padding}
    return call("Pooling", x, **shape, **attrs)[0]


@needs_kernel
@pytest.mark.parametrize("full", [False, True])
@pytest.mark.parametrize("with_padding", [False, True])
def test_gradients_of_averages(full, with_padding):
    windows = [*WINDOWS, (2, 1, 1), (4, 1, 1), (5, 1, 0), (3, 3, 0), (4, 4, 0)]
    for (kernel, stride, pad), size in itertools.product(windows, [(33, 34), (64, 12), (99, 89)]):
        x = torch.randn(2, 24, *size, requires_grad=True)
        found = average(x, kernel, stride, pad, full, with_padding)
        want = torch.nn.functional.avg_pool2d(x, kernel, stride, pad, full, with_padding)
        torch.testing.assert_close(found, want)
        seed = torch.randn_like(found)
        torch.testing.assert_close(*(torch.autograd.grad(out, x, seed)[0] for out in (found, want)))


@needs_kernel
@pytest.mark.parametrize(("kernel", "stride", "pad"), [(2, 2, 0), (3, 1, 1), (3, 2, 1)])
def test_gradients_of_gradients_of_averages(kernel, stride, pad):
    x, results = torch.randn(1, 2, 128, 130, requires_grad=True), []
    for pool in (average, torch.nn.functional.avg_pool2d):
        out = pool(x, kernel, stride, pad)
        (first,) = torch.autograd.grad(out.pow(3).sum(), x, create_graph=True)
        results.append((first, *torch.autograd.grad(first.pow(2).sum(), x)))
    torch.testing.assert_close(*results)


@needs_kernel
def test_the_number_of_threads_changes_no_bit():
    data, threads = torch.randn(3, 24, 50, 51), torch.get_num_threads()
    found = []
    try:
        for count in (1, 3):
            torch.set_num_threads(count)
            found.append(mx.nd.Pooling(mx.nd.NDArray(data, mx.cpu()), kernel=(3, 3), pool_type="avg").tensor)
    finally:
        torch.set_num_threads(threads)
    assert found[0].equal(found[1])


@needs_kernel
def test_a_long_row_is_left_to_torch():
    data = torch.randn(1, 2, 3, 5000)
    found = mx.nd.Pooling(mx.nd.NDArray(data, mx.cpu()), kernel=(2, 3), pool_type="max").tensor
    assert found.equal(torch.max_pool2d(data, (2, 3), 1))


@needs_kernel
def test_what_is_left_to_torch(monkeypatch):
    data = torch.randn(2, 16, 20, 20)
    assert pooling._fits_native(data)
    for other in (data[:, :3], data.double(), data[:0], data.to("meta")):
        assert not pooling._fits_native(other)
    found = []
    torch.vmap(lambda each: found.append(pooling._fits_native(each)) or each)(torch.randn(3, 2, 16, 20, 20))
    assert found == [False]
    monkeypatch.setattr(pooling, "_native_pool", lambda *_: pytest.fail("no gradient could follow"))
    array = mx.nd.array(data.numpy())
    array.attach_grad()
    for kind in ("max", "avg"):
        with mx.autograd.record():
            out = mx.nd.Pooling(array, kernel=(2, 2), stride=(2, 2), pool_type=kind)
        out.backward()
        assert array.grad.asnumpy().sum() == pytest.approx(out.size, rel=1e-4)
