import numpy as np
import pytest

from helpers.arrays import f8, randn
from helpers.op_case import OpCase, check_gradient, check_value, gradients, rules_test, values_test


def check(name, inputs, attrs, expected):
    case = OpCase(name, inputs, attrs, lambda *_: expected)
    check_value(case, rtol=1e-7, atol=1e-12)
    check_gradient(case, tol=1e-5)


def normal(x, axes, eps):
    mean, std = x.mean(axes, keepdims=True), np.sqrt(x.var(axes, keepdims=True) + eps)
    return (x - mean) / std, mean, std


@pytest.mark.parametrize("axis", [-1, 0, 1, 2])
def test_layer_norm(axis):
    data = randn(3, 4, 5)
    gamma, beta = randn(data.shape[axis]), randn(data.shape[axis], seed=1)
    spread = [-1 if i == axis % 3 else 1 for i in range(3)]
    scaled, mean, std = normal(data, axis, 0.1)
    want = scaled * gamma.reshape(spread) + beta.reshape(spread)
    attrs = {"axis": axis, "eps": 0.1, "output_mean_var": True}
    check("LayerNorm", (data, gamma, beta), attrs, (want, mean, std))


@pytest.mark.parametrize("axis", [-1, 0])
def test_layer_norm_keeps_the_digits_of_long_sums(axis):
    data, head = (randn(2048, 64, seed=seed).astype("float32") for seed in (0, 1))
    data, head = (data.T, head.T) if axis == 0 else (data, head)
    gamma, beta = randn(2, 64).astype("float32")
    found = gradients("LayerNorm", data, gamma, beta, head=head, axis=axis)[1:]
    exact = normal(data.astype("float64"), axis, 1e-5)[0]
    for got, want in zip(found, (exact * head, head.astype("float64")), strict=True):
        np.testing.assert_allclose(got, want.sum(1 + axis), rtol=0, atol=2e-4)


CHANNELS = f8([[[1]], [[2]], [[3]]])[None]
test_lrn_of_an_even_size_sums_one_channel_fewer = values_test(
    ("LRN", (CHANNELS,), {"nsize": 2, "alpha": 1.0}, lambda x: x / (2 + x**2 / 2) ** 0.75)
)
test_shapes = rules_test(
    ("GroupNorm", [(2, 6, 3), None, None], {"num_groups": 2}, [(2, 6, 3), (2,), (2,)], None),
    ("LayerNorm", [(3, 4, 5), None, None], {"axis": 1}, [(3, 4, 5), (4,), (4,)], None),
)
