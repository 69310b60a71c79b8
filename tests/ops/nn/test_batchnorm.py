from itertools import product
from math import prod

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import dpmodule as mx
from dpmodule import native
from dpmodule.ops.nn.batchnorm import NormEnd, is_native, native_norm
from helpers.arrays import numbers, randn
from helpers.op_case import environment, outputs, rules_test, types
from helpers.walk import walks

rng = np.random.RandomState(3)


def case(shape, axis=1):
    channels = shape[axis]
    vectors = rng.randn(channels), rng.randn(channels), rng.randn(channels), rng.rand(channels) + 0.5
    return rng.randn(*shape) * 2 + 1, *vectors


@pytest.mark.parametrize("train", [True, False])
def test_mean_and_deviation(train):
    data, *rest = case((4, 3, 2))
    env = environment(train)
    mean, var = (data.mean((0, 2)), data.var((0, 2))) if train else rest[2:]
    out, *found = outputs("BatchNorm", data, *rest, env=env, output_mean_var=True)
    np.testing.assert_allclose(found[0], mean)
    np.testing.assert_allclose(found[1], 1 / np.sqrt(var + 1e-3))
    old = outputs("BatchNorm_v1", data, *rest, env=env, output_mean_var=True)  # gives the variance
    np.testing.assert_array_equal(old[0], out)
    np.testing.assert_allclose(old[2], var)
    sync = outputs("_contrib_SyncBatchNorm", data, *rest, env=env, key="x", output_mean_var=True)
    np.testing.assert_allclose(sync[1:3], [mean, var])  # in prediction, too


def test_one_value_per_channel_and_a_constant_channel():
    """The variance of one value is 0; torch's unbiased estimate would be 0 / 0."""
    data, gamma, beta, mean, var = case((1, 3))
    out, _, new_mean, new_var = outputs("BatchNorm", data, gamma, beta, mean, var)
    np.testing.assert_allclose(out, beta[None])
    np.testing.assert_allclose(new_mean, 0.9 * mean + 0.1 * data[0])
    np.testing.assert_allclose(new_var, 0.9 * var)
    zeros = np.zeros(2, "f4")
    assert not outputs("BatchNorm", np.full((8, 2), 1e3, "f4"), zeros + 1, zeros, zeros, zeros)[-1].any()


@pytest.mark.parametrize("use_global_stats", [True, False])
def test_vectors_may_have_strides(use_global_stats):
    values = dict(zip(["x", "n_gamma", "n_beta", "n_moving_mean", "n_moving_var"], case((4, 3))))
    net = mx.sym.BatchNorm(mx.sym.Variable("x"), name="n", fix_gamma=False, use_global_stats=use_global_stats)
    found = []
    for step in (1, 2):
        spread = {name: torch.tensor(value.repeat(step, -1)) for name, value in values.items()}
        if step > 1:
            for tensor in spread.values():
                tensor[..., 1::2] = 1e9
        arrays = {name: mx.nd.NDArray(tensor[..., ::step], mx.cpu()) for name, tensor in spread.items()}
        arrays["x"] = mx.nd.array(values["x"], dtype="float64")
        states = {name: arrays.pop(name) for name in list(arrays) if "moving" in name}
        grads = {name: mx.nd.zeros(array.shape, dtype="float64") for name, array in arrays.items()}
        bound = net.bind(mx.cpu(), arrays, grads, aux_states=states)
        bound.forward(is_train=True)
        bound.backward(mx.nd.arange(12, dtype="float64").reshape((4, 3)))
        found.append([each.asnumpy() for each in (*bound.outputs, *grads.values(), *states.values())])
    for spread, plain in zip(*found, strict=True):
        np.testing.assert_allclose(spread, plain)


@pytest.mark.parametrize("shape", [(2, 1, 8, 1), (1, 2, 8, 1), (2, 3, 8, 1), (2, 8, 1)])
def test_data_of_one_sample_may_be_transposed(shape):
    net = mx.sym.BatchNorm(mx.sym.transpose(mx.sym.Variable("x")), name="n", fix_gamma=False)
    bound = net.simple_bind(mx.cpu(), x=shape, type_dict={"x": "float64"})
    bound.arg_dict["x"][:] = rng.randn(*shape)
    bound.forward(is_train=True)
    heads = rng.randn(*shape[::-1])
    bound.backward(mx.nd.array(heads, dtype="float64"))
    axes = tuple(axis for axis in range(len(shape)) if axis != 1)
    np.testing.assert_allclose(bound.grad_dict["n_beta"].asnumpy(), heads.sum(axes), rtol=1e-6)


@pytest.mark.parametrize("use_global_stats", [True, False])
@pytest.mark.parametrize(("shape", "axes"), [((2, 1, 3, 2), (2, 3)), ((2, 1, 3, 1, 5), (2, 4))])
def test_gradient_between_axes_of_length_one(shape, axes, use_global_stats):
    net = mx.sym.Variable("x")
    for axis in axes:
        net = mx.sym.BatchNorm(net, axis=axis, name=f"n{axis}", use_global_stats=use_global_stats)
    states = {name: np.ones(shape[int(name[1])]) for name in net.list_auxiliary_states()}
    values = {name: np.ones(shape[int(name[1])]) for name in net.list_arguments() if name != "x"}
    values["x"] = rng.randn(*shape)
    mx.test_utils.check_numeric_gradient(
        net, values, states, numeric_eps=1e-5, atol=1e-4, grad_nodes=["x"], dtype=np.float64
    )


@pytest.mark.parametrize(("shape", "strides"), [((1, 2, 3, 4), (1, 1, 8, 2)), ((2, 2, 1, 3), (6, 1, 2, 2))])
def test_gradients_from_heads_of_any_strides(shape, strides):
    net = mx.sym.BatchNorm(mx.sym.Variable("x"), name="n", fix_gamma=False)
    heads = torch.as_strided(torch.randn(24, dtype=torch.float64), shape, strides)
    x, found = mx.nd.array(rng.randn(*shape), dtype="float64"), []
    for head in (heads, heads.clone(memory_format=torch.contiguous_format)):
        bound = net.simple_bind(mx.cpu(), x=shape, type_dict={"x": "float64"})
        bound.arg_dict["n_gamma"][:] = 1.5
        bound.forward(is_train=True, x=x)
        bound.backward(mx.nd.NDArray(head, mx.cpu()))
        found.append(bound.grad_dict["x"].asnumpy())
    np.testing.assert_allclose(*found)


HALF, UNKNOWN = ["float16"] + ["float32"] * 4, [None] * 4
test_types = rules_test(
    ("BatchNorm", ["float16", *UNKNOWN], {"output_mean_var": True}, HALF, HALF[:3]),
    ("BatchNorm", ["float64", *UNKNOWN], {}, ["float64"] * 5, ["float64"]),
    rule=types,
)
# by the native extension; values: native/test_kernels.py

needs_kernel = pytest.mark.skipif(not hasattr(native.core, "norm_forward"), reason="there is no such kernel")


def given(shape, summed=True):
    """Return data, summand, gamma, beta, mean, variance and head gradient."""
    x, other, grad = (numbers(*shape, seed=seed) for seed in range(3))
    gamma, beta, mean, var = (numbers(shape[1], seed=seed) for seed in range(3, 7))
    return x, other if summed else None, gamma + 1.5, beta, mean, var.abs() + 0.5, grad


def run(x, other, gamma, beta, mean, var, grad, end, by_torch=False):
    """Return the result, the moving statistics and the gradients."""
    leaves = [None if t is None else t.detach().requires_grad_() for t in (x, other, gamma, beta)]
    x, other, gamma, beta = leaves
    assert by_torch or is_native(x, other, (gamma, beta, mean, var))
    if by_torch:
        states = [mean.double(), var.double()]
        axes, channels = [n for n in range(x.dim()) if n != 1], (-1, *[1] * (x.dim() - 2))
        out = torch.batch_norm(x.double(), None, None, None, None, True, 0.1, 1e-5, False)
        out = out * gamma.view(channels) + beta.view(channels) + (0 if other is None else other)
        out = {"": lambda x: x, "relu": F.relu, "silu": F.silu}[end.kind](out)
        moved = x.detach().double().mean(axes), x.detach().double().var(axes, unbiased=False)
        states = [0.9 * old + 0.1 * new for old, new in zip(states, moved)]
    else:
        out, *states = native_norm(x, other, (gamma, beta, mean, var), 1e-5, 0.9, end)
    grads = torch.autograd.grad(out, [leaf for leaf in leaves if leaf is not None], grad.to(out.dtype))
    return [t.detach() for t in (out, *states, *grads)]


@needs_kernel
@walks(
    product(
        [
            *((3, 12, 5, 7), (2, 5, 9, 17), (2, 27, 9, 17), (40, 16, 32, 32)),
            *((800, 21), (2048, 64), (6, 70, 41), (2, 1, 9, 17, 70), (40, 900)),
        ],
        [("", False), ("", True), ("relu", False), ("relu", True), ("silu", False)],
    )
)
def test_native_results_and_gradients(shape, kind_and_sum):
    kind, summed = kind_and_sum
    tensors, end = given(shape, summed), NormEnd(kind)
    check_native(tensors, end)
    if len(shape) == 4 and prod(shape) >= 2**14:  # also with each channel's numbers side by side
        contiguous = [t if t is None else t.contiguous() for t in tensors]
        check_native(contiguous, end)


def check_native(tensors, end):
    found, wanted = run(*tensors, end), run(*tensors, end, by_torch=True)
    x, *_, grad = tensors
    terms = float(grad.abs().sum() / x.shape[1])
    for at, (one, other) in enumerate(zip(found, wanted, strict=True)):
        is_sum = at >= len(found) - 2  # the gradients of gamma and beta, whose terms may cancel each other
        scale = max(float(other.abs().max()), 1e-3 * terms * is_sum)
        torch.testing.assert_close(one.double(), other.double(), rtol=0, atol=3e-6 * scale)
    for threads in (2, 3):
        torch.set_num_threads(threads)
        assert all(map(torch.equal, run(*tensors, end), found))


@needs_kernel
def test_numbers_far_from_zero_stay_more_exact_than_in_torch():
    x, other, gamma, beta, mean, var, grad = given((16, 16, 24, 24))
    x = x + 300
    wanted = run(x, other, gamma, beta, mean, var, grad, NormEnd(), by_torch=True)[0]
    theirs = torch.native_batch_norm(x, gamma, beta, mean.clone(), var.clone(), True, 0.1, 1e-5)[0] + other
    found = native_norm(x, other, (gamma, beta, mean, var), 1e-5, 0.9, NormEnd())[0]
    assert (found - wanted).abs().max() <= min(3e-4, (theirs - wanted).abs().max())


@needs_kernel
def test_what_is_left_to_torch():
    x, other, *vectors, _ = given((2, 8, 3, 3))
    assert is_native(x, other, vectors)
    parts = [lambda t: t[:0], lambda t: t[:1, :, :1, :1], lambda t: t[:, 0]]  # too small, or strided
    for change in (torch.Tensor.double, torch.Tensor.contiguous, *parts):
        assert not is_native(change(x), change(other), vectors)
    assert not is_native(x, other[:1], vectors)
    assert not is_native(x, other, [t.double() for t in vectors])
    assert not is_native(x, other, [*vectors[:3], vectors[3].clone().requires_grad_()])
    x, other, *vectors, _ = given((2, 3, 3, 3))
    assert not is_native(x, other, vectors)


def test_sync_batch_norm_counts_each_device_by_itself():
    net = mx.sym.contrib.SyncBatchNorm(mx.sym.Variable("data"), key="one", name="bn", ndev=2)
    module = mx.mod.Module(net, label_names=None, context=[mx.cpu(0), mx.cpu(1)])
    data = randn(4, 3, 2, 2)
    module.bind([("data", data.shape)])
    module.init_params()
    module.forward(mx.io.DataBatch([mx.nd.array(data)]), is_train=True)
    for part in module.get_outputs(merge_multi_context=False)[0]:
        np.testing.assert_allclose(part.asnumpy().mean((0, 2, 3)), 0, atol=1e-6)
