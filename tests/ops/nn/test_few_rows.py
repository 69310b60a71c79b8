"""Products of few rows by the native extension against NumPy's in double precision."""

from itertools import product

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import dpmodule as mx
from dpmodule.ops.nn import linear
from dpmodule.ops.nn.linear import has_few_rows, multiply_few_rows, use_few_rows_kernel
from helpers.numeric import numbers
from helpers.walk import walks

pytestmark = pytest.mark.skipif(
    not hasattr(linear.kernels(), "multiply_few_rows"), reason="there is no kernel for this compiler"
)

# a rest of units and of features, fewer features than a vector has, and enough for several threads
SIZES = [(1, 1), (4, 16), (7, 33), (13, 5), (9, 0), (130, 515), (300, 2000)]


def exact(left, right, bias=None):
    found = left.double().numpy() @ right.double().numpy().T
    return found if bias is None else found + bias.double().numpy()


@walks(product(SIZES, [1, 2, 3, 4], [1, 3], [False, True]))
def test_products(size, rows, threads, with_bias):
    columns, depth = size
    left, right = numbers(rows, depth), numbers(columns, depth, seed=1)
    bias = numbers(columns, seed=2) if with_bias else None
    alone = multiply_few_rows(left, right, bias)
    torch.set_num_threads(threads)
    assert torch.equal(multiply_few_rows(left, right, bias), alone)
    np.testing.assert_allclose(alone, exact(left, right, bias), rtol=1e-5, atol=2e-6 * max(1, depth) ** 0.5)


def test_tensors_of_other_strides():
    left, right, bias = (
        numbers(3, 400)[:, ::2],
        numbers(600, 300, seed=1)[:, 50:250],
        numbers(1200, seed=2)[::2],
    )
    np.testing.assert_allclose(multiply_few_rows(left, right, bias), exact(left, right, bias), atol=1e-4)
    left, right = numbers(1, 200).expand(3, 200), numbers(200, 600, seed=1).t()
    np.testing.assert_allclose(multiply_few_rows(left, right), exact(left, right), atol=1e-4)


def test_nan_and_infinity_stay_in_their_rows_and_units():
    left, right = numbers(3, 130), numbers(20, 130, seed=1)
    left[1, 129], right[5, 6] = np.nan, np.inf
    found = multiply_few_rows(left, right)
    assert found[1].isnan().all()
    assert not found[[0, 2], 5].isfinite().any()
    others = torch.arange(20) != 5
    want = exact(left[[0, 2]], right[others])
    np.testing.assert_allclose(found[[0, 2]][:, others], want, atol=1e-5)


def test_what_does_not_fit_is_refused():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        multiply_few_rows(numbers(2, 300), numbers(300, 299))
    with pytest.raises(RuntimeError, match="size"):
        multiply_few_rows(numbers(2, 300), numbers(300, 300), numbers(7))
    with pytest.raises(RuntimeError, match="dtype"):
        multiply_few_rows(numbers(2, 300), numbers(300, 300), numbers(300).double())
    with pytest.raises(TypeError, match="expected 10 arguments"):
        linear.kernels().multiply_few_rows(1, 2)


def test_sizes_alone_decide():
    assert use_few_rows_kernel(1, 1000, 2048)
    assert use_few_rows_kernel(4, 128, 512)
    assert not use_few_rows_kernel(0, 1000, 2048)
    assert not use_few_rows_kernel(5, 1000, 2048)
    assert not use_few_rows_kernel(1, 127, 512)
    assert not use_few_rows_kernel(1, 20000, 127)


def test_it_is_for_plain_tensors():
    left, right = numbers(2, 300), numbers(300, 300)
    assert has_few_rows(left, right)
    assert not has_few_rows(left.double(), right.double())
    assert not has_few_rows(left[0], right)
    assert not has_few_rows(left, right.to_sparse())


@pytest.mark.parametrize("batch", [1, 3])
def test_predictions_of_small_batches_use_it(batch, monkeypatch):
    shapes, kernel = [], linear.multiply_few_rows

    def multiply(left, right, bias=None):
        shapes.append((*left.shape, *right.shape))
        return kernel(left, right, bias)

    monkeypatch.setattr(linear, "multiply_few_rows", multiply)
    wide = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=300, name="wide")
    net = mx.sym.FullyConnected(mx.sym.tanh(wide), num_hidden=5, name="narrow")
    bound = net.simple_bind(mx.cpu(), data=(batch, 20, 16))
    values = {}
    for name, array in bound.arg_dict.items():
        values[name] = numbers(*array.shape, seed=len(name))
        array[:] = values[name].numpy()
    found = bound.forward(is_train=False)[0].asnumpy()
    assert shapes == [(batch, 320, 300, 320)]
    hidden = F.linear(values["data"].flatten(1), values["wide_weight"], values["wide_bias"]).tanh()
    want = F.linear(hidden, values["narrow_weight"], values["narrow_bias"])
    np.testing.assert_allclose(found, want, atol=1e-5)
    bound.forward(is_train=True)
    bound.backward(mx.nd.ones((batch, 5)))
    assert len(shapes) == 1
