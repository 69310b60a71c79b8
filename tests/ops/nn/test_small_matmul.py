"""Products of moderate size by the native extension against NumPy's in double precision."""

from itertools import product

import numpy as np
import pytest
import torch

from dpmodule import native
from dpmodule.ops.nn.linear import (
    dense,
    fastest_product,
    fits_kernel,
    linear,
    multiply,
    pack,
    use_kernel,
    use_packed_kernel,
)
from helpers.programs import run_program
from helpers.walk import walks

pytestmark = pytest.mark.skipif(
    getattr(native.core, "vector_width", 0) < 8, reason="there is no kernel for this compiler or processor"
)

# around the rows and columns of a tile, the depth of a block (256) and the four numbers that are turned at once
SIZES = [
    (1, 1, 1),
    (8, 32, 256),
    (9, 33, 257),
    (7, 31, 5),
    (64, 10, 64),
    (13, 66, 515),
    (5, 3, 0),
    (140, 16, 64),
]


def matrix(rows, columns, seed, turned=False):
    values = np.random.RandomState(seed).uniform(-1, 1, (rows, columns)).astype(np.float32)
    tensor = torch.from_numpy(values)
    return tensor.t().contiguous().t() if turned else tensor


def exact(left, right, bias=None):
    found = left.double().numpy() @ right.double().numpy().T
    return found if bias is None else found + bias.double().numpy()


@walks(product(SIZES, [(False, False), (True, True), (True, False), (False, True)], [True, False]))
def test_products_of_every_layout(sizes, turned, with_bias):
    rows, columns, depth = sizes
    left, right = matrix(rows, depth, 1, turned[0]), matrix(columns, depth, 2, turned[1])
    bias = matrix(1, columns, 3)[0] if with_bias else None
    found = multiply(left, right, bias)
    assert found.is_contiguous()
    assert tuple(found.shape) == (rows, columns)
    np.testing.assert_allclose(found, exact(left, right, bias), rtol=1e-5, atol=2e-6 * max(1, depth) ** 0.5)


@walks(product(SIZES, [False, True], [True, False]))
def test_packed_weights_give_the_same_bits(sizes, turned, with_bias):
    rows, columns, depth = sizes
    left, right = matrix(rows, depth, 1), matrix(columns, depth, 2, turned)
    bias = matrix(1, columns, 3)[0] if with_bias else None
    want = multiply(left, right, bias)
    for rectified in (False, True):
        found = dense(left, [(columns, depth, pack(right), bias, rectified)])
        assert torch.equal(found, want.relu() if rectified else want)


def test_layers_read_what_those_before_make():
    sizes = [(37, 20), (90, 37), (5, 90), (12, 5)]
    weights = [matrix(*size, seed) for seed, size in enumerate(sizes)]
    data = want = matrix(13, 20, 9)
    for weight in weights:
        want = multiply(want, weight).relu()
    layers = [(*size, pack(weight), None, True) for size, weight in zip(sizes, weights, strict=True)]
    assert torch.equal(dense(data, layers), want)


def test_strides_of_parts_and_of_repeated_rows():
    left, right = matrix(40, 80, 1)[::2, ::2], matrix(30, 120, 2)[:, ::3]
    np.testing.assert_allclose(multiply(left, right), exact(left, right), atol=1e-5)
    left = matrix(1, 40, 4).expand(20, 40)
    bias = matrix(1, 60, 5)[0, ::2]
    np.testing.assert_allclose(multiply(left, right, bias), exact(left, right, bias), atol=1e-5)


def test_nan_and_infinity_stay_in_their_rows_and_columns():
    left, right = matrix(20, 30, 1), matrix(40, 30, 2)
    left[3, 4], right[5, 6] = np.nan, np.inf
    found = multiply(left, right)
    assert found[3].isnan().all()
    others = torch.arange(20) != 3
    assert not found[others, 5].isfinite().any()
    columns = torch.arange(40) != 5
    np.testing.assert_allclose(found[others][:, columns], exact(left[others], right[columns]), atol=1e-5)


def test_shapes_that_do_not_fit_are_refused():
    with pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        multiply(matrix(8, 30, 1), matrix(8, 29, 2))
    with pytest.raises(RuntimeError, match="size"):
        multiply(matrix(8, 30, 1), matrix(8, 30, 2), matrix(1, 7, 3)[0])
    with pytest.raises(RuntimeError, match="dtype"):
        multiply(matrix(8, 30, 1), matrix(8, 30, 2), matrix(1, 8, 3)[0].double())


def test_size_alone_decides():
    assert use_kernel(64, 128, 784)
    assert not use_kernel(7, 128, 784)
    assert not use_kernel(64, 128, 1025)
    assert not use_kernel(8, 8, 8)
    torch.set_num_threads(2)
    assert use_kernel(64, 128, 784)


@pytest.mark.parametrize("columns", [16, 128, 200])
@pytest.mark.parametrize("threads", [2, 3])
def test_threads_compute_the_same_numbers(threads, columns):
    left, right, bias = matrix(64, 784, 1), matrix(columns, 784, 2, turned=True), matrix(1, columns, 3)[0]
    alone = multiply(left, right, bias)
    torch.set_num_threads(threads)
    shared = multiply(left, right, bias)
    np.testing.assert_array_equal(shared, alone)
    np.testing.assert_allclose(shared, exact(left, right, bias), atol=1e-4)


def test_large_products_are_shared_by_the_threads():
    program = """
import os, torch
from dpmodule.ops.nn.linear import multiply
def threads():
    return len(os.listdir("/proc/self/task"))
torch.set_num_threads(2)
row = torch.ones(1, 784)  # expanded: torch fills large tensors with its threads
before = threads()
multiply(row[:, :64].expand(64, 64), row[:, :64].expand(128, 64))
between = threads()
multiply(row.expand(64, 784), row.expand(128, 784))
print(between - before, threads() - between)
"""
    assert run_program(program).stdout.split() == ["0", "1"]


def test_size_alone_decides_about_packed_layers():
    layers = [(128, 784), (64, 128), (10, 64)]
    assert use_packed_kernel(256, layers)
    assert not use_packed_kernel(7, layers)
    assert not use_packed_kernel(512, layers)
    assert use_packed_kernel(8, [(8, 8)] * 16)
    assert not use_packed_kernel(8, [(8, 8)] * 17)
    torch.set_num_threads(2)
    assert use_packed_kernel(256, layers)


@pytest.mark.parametrize("rows", [15, 33, 256])
def test_threads_share_the_rows_of_layers(rows):
    sizes = [(128, 784), (64, 128), (10, 64)]
    layers = [(*size, pack(matrix(*size, 1)), matrix(1, size[0], 2)[0], True) for size in sizes]
    alone = dense(matrix(rows, 784, 3), layers)
    for threads in (2, 3, 8):
        torch.set_num_threads(threads)
        assert torch.equal(dense(matrix(rows, 784, 3), layers), alone)


def test_what_is_no_product_for_it():
    left, right = matrix(64, 64, 1), matrix(64, 64, 2)
    assert fits_kernel(left, right)
    assert not fits_kernel(left.double(), right.double())
    assert not fits_kernel(left.half(), right)
    assert not fits_kernel(left.view(64, 8, 8), right)
    assert not fits_kernel(left.to("meta"), right.to("meta"))
    seen = []
    torch.vmap(lambda x: seen.append(fits_kernel(x, right)) or x)(torch.zeros(2, 64, 64))
    assert seen == [False]


def test_without_the_extension_there_is_none(monkeypatch):
    monkeypatch.setattr(native, "core", None)
    monkeypatch.setattr("dpmodule.ops.nn.linear._native", None)
    assert not use_kernel(64, 64, 64)
    assert not use_packed_kernel(64, [(64, 64)])


@pytest.mark.parametrize("function", [linear, fastest_product])
def test_what_calls_it(function, monkeypatch):
    left, right = matrix(64, 64, 1), matrix(32, 64, 2)
    calls = []
    monkeypatch.setattr(
        "dpmodule.ops.nn.linear.multiply", lambda *given: calls.append(given) or multiply(*given)
    )
    with torch.no_grad():
        np.testing.assert_allclose(function(left, right), exact(left, right), atol=1e-5)
    assert len(calls) == 1


def test_a_recorded_product_has_gradients():
    left, right = matrix(64, 64, 1).requires_grad_(), matrix(32, 64, 2).requires_grad_()
    linear(left, right).sum().backward()
    np.testing.assert_allclose(right.grad[0], left.detach().sum(0), atol=1e-4)


def test_wrong_arguments_are_refused():
    with pytest.raises(TypeError, match="expected 12 arguments, got 1"):
        native.core.multiply(1)
    for given in ((1,), (0,) * 10, (0,) * 89):
        with pytest.raises(TypeError, match="expected"):
            native.core.dense(*given)
    with pytest.raises(TypeError):
        native.core.dense(*[0] * 8, "1")
    for position in range(12):
        given = [0] * 12
        given[position] = None
        with pytest.raises(TypeError):
            native.core.multiply(*given)
