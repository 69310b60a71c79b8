import numpy as np
import pytest
import torch
from torch.nn import functional as F

import dpmodule as mx
from helpers.arrays import f8, randn
from helpers.both_backends import in_native
from helpers.op_case import OpCase, call, check_gradient, check_value, gradients, rules_test, values_test
from helpers.threads import set_threads


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


def images_of(x, gamma, beta):
    return F.instance_norm(x, weight=gamma, bias=beta, eps=1e-3)


def normalized(function, tensors, head, dtype):
    """Return the result, the gradients, the same with a record, and gradients of these."""
    leaves = [each.detach().to(dtype).requires_grad_() for each in tensors]
    out = function(*leaves)
    once = torch.autograd.grad(out, leaves, head.to(dtype), retain_graph=True)
    grads = torch.autograd.grad(out, leaves, head.to(dtype), create_graph=True)
    return [out, *once, *grads, *torch.autograd.grad(sum((each**2).sum() for each in grads), leaves[:2])]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("shape", [(3, 4, 5, 7), (1, 19, 4, 4), (2, 3, 8, 8), (4, 8, 3, 3)])
def test_instance_norm_of_images_in_channels_last(shape, threads):
    tensors = [
        torch.from_numpy(randn(*size, seed=i)) for i, size in enumerate([shape, shape[1:2], shape[1:2]])
    ]
    tensors = [each.float() for each in tensors]
    head = torch.from_numpy(randn(*shape, seed=3)).float()

    def run(x, *vectors):
        return call("InstanceNorm", x.to(memory_format=torch.channels_last), *vectors)[0]

    with set_threads(threads):
        found = normalized(run, tensors, head, torch.float32)
    for one, other in zip(found, normalized(images_of, tensors, head, torch.float64), strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), rtol=1e-4, atol=2e-4)
    assert found[0].is_contiguous(memory_format=torch.channels_last)


ROWS = [
    ("LayerNorm", (1600, 129), 129, {}, lambda x, *vectors: F.layer_norm(x, (129,), *vectors)),
    ("GroupNorm", (16, 24, 11, 53), 24, {"num_groups": 4}, lambda x, *vectors: F.group_norm(x, 4, *vectors)),
    ("InstanceNorm", (17, 12, 1000), 12, {"eps": 1e-5}, lambda x, *vectors: F.group_norm(x, 12, *vectors)),
]


@in_native
@pytest.mark.parametrize(("name", "shape", "channels", "attrs", "reference"), ROWS)
def test_many_rows(name, shape, channels, attrs, reference):
    """Sizes of the extension's kernels, which have the same bits with any number of threads and in prediction."""
    sizes = [shape, (channels,), (channels,), shape]
    *tensors, head = (torch.from_numpy(randn(*size, seed=i)).float() for i, size in enumerate(sizes))

    def run(*given):
        return call(name, *given, **attrs)[0]

    found = []
    for threads in (1, 2):
        with set_threads(threads):
            found.append(normalized(run, tensors, head, torch.float32))
            with torch.no_grad():
                assert torch.equal(run(*tensors), found[-1][0])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)
    for one, other in zip(found[0], normalized(reference, tensors, head, torch.float64), strict=True):
        np.testing.assert_allclose(one.detach(), other.detach(), rtol=1e-4, atol=2e-4)


@pytest.mark.parametrize("layout", [torch.contiguous_format, torch.channels_last])
@pytest.mark.parametrize("lengths", [(128, 128), (64, 32)])
def test_vectors_of_other_lengths_are_refused(lengths, layout):
    data = mx.nd.NDArray(torch.ones(8, 64, 16, 16).to(memory_format=layout), mx.cpu())
    vectors = [mx.nd.ones((length,)) for length in lengths]
    for operator, attrs in ((mx.nd.GroupNorm, {"num_groups": 4}), (mx.nd.InstanceNorm, {})):
        with pytest.raises(mx.base.ShapeError, match=r"expected \((4|64),\)"):
            operator(data, *vectors, **attrs)
