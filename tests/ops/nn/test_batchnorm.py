from itertools import product

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import native
from dpmodule.ops import get
from dpmodule.ops.nn.batchnorm import Rectifier, is_native, native_norm
from helpers.arrays import numbers, randn
from helpers.op_case import OpCase, check_gradient, environment, gradients, outputs, rules_test, types
from helpers.walk import walks

rng = np.random.RandomState(3)


def case(shape, axis=1):
    channels = shape[axis]
    vectors = rng.randn(channels), rng.randn(channels), rng.randn(channels), rng.rand(channels) + 0.5
    return rng.randn(*shape) * 2 + 1, *vectors


@walks(product([((4, 3), 1), ((4, 3, 2), 1), ((2, 3, 2, 2), 1), ((2, 3, 4), -1)], [True, False]))
def test_training(where, fix_gamma):
    shape, axis = where
    data, gamma, beta, mean, var = inputs = case(shape, axis)
    before = [x.copy() for x in inputs]
    others = tuple(i for i in range(data.ndim) if i != axis % data.ndim)
    along = [-1 if i == axis % data.ndim else 1 for i in range(data.ndim)]
    attrs = {"axis": axis, "fix_gamma": fix_gamma, "momentum": 0.7, "eps": 0.01}
    out, ones, new_mean, new_var = outputs("BatchNorm", *inputs, **attrs)
    normal = (data - data.mean(others, keepdims=True)) / np.sqrt(data.var(others, keepdims=True) + 0.01)
    scale = 1 if fix_gamma else gamma.reshape(along)
    np.testing.assert_allclose(out, normal * scale + beta.reshape(along), rtol=1e-9)
    np.testing.assert_allclose(new_mean, 0.7 * mean + 0.3 * data.mean(others), rtol=1e-9)
    np.testing.assert_allclose(new_var, 0.7 * var + 0.3 * data.var(others), rtol=1e-9)
    assert np.array_equal(ones, np.ones_like(gamma)) if fix_gamma else ones is None
    check_gradient(OpCase("BatchNorm", inputs, attrs), (0, 2) if fix_gamma else (0, 1, 2), tol=1e-5)
    assert fix_gamma == (not gradients("BatchNorm", *inputs, head=rng.randn(*shape), **attrs)[1].any())
    for now, then in zip(inputs, before, strict=True):
        np.testing.assert_array_equal(now, then)


@pytest.mark.parametrize("train", [True, False])
def test_moving_statistics(train):
    """In prediction, and in training with use_global_stats, the moving statistics are used and stay."""
    data, gamma, beta, mean, var = inputs = case((4, 3))
    attrs, env = {"fix_gamma": False, "use_global_stats": train}, environment(train)
    out, *moved = outputs("BatchNorm", *inputs, env=env, **attrs)
    np.testing.assert_allclose(out, (data - mean) / np.sqrt(var + 1e-3) * gamma + beta, rtol=1e-9)
    assert moved == [None, None, None]
    check_gradient(OpCase("BatchNorm", inputs, attrs), (0, 1, 2), tol=1e-5, env=env)


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


def test_one_value_per_channel_and_a_constant_channel():
    """The variance of one value is 0; torch's unbiased estimate would be 0 / 0."""
    data, gamma, beta, mean, var = case((1, 3))
    out, _, new_mean, new_var = outputs("BatchNorm", data, gamma, beta, mean, var)
    np.testing.assert_allclose(out, beta[None])
    np.testing.assert_allclose(new_mean, 0.9 * mean + 0.1 * data[0])
    np.testing.assert_allclose(new_var, 0.9 * var)
    zeros = np.zeros(2, "f4")
    assert not outputs("BatchNorm", np.full((8, 2), 1e3, "f4"), zeros + 1, zeros, zeros, zeros)[-1].any()


def test_half_precision_keeps_wide_parameters():
    data, *rest = (x.astype("float32") for x in case((4, 3)))
    out, *_, new_var = outputs("BatchNorm", data.astype("float16"), *rest)
    assert (out.dtype, new_var.dtype) == (np.float16, np.float32)


HALF = ["float16"] + ["float32"] * 4
test_types = rules_test(
    [
        (
            "BatchNorm",
            ["float16"] + [None] * 4,
            {"output_mean_var": True},
            HALF,
            ["float16", "float32", "float32"],
        ),
        ("BatchNorm", ["float64"] + [None] * 4, {}, ["float64"] * 5, ["float64"]),
    ],
    types,
)
test_shapes = rules_test(
    [("BatchNorm", [(0, 3, 4)] + [None] * 4, {}, [(5, 3, 4)] + [(3,)] * 4, [(5, 3, 4)], [(5, 0, 0)])]
)


def test_declaration():
    op = get("BatchNorm")
    kinds = {i.name: (i.kind, i.init) for i in op.active_inputs(op.parse({}))}
    assert kinds["moving_mean"] == ("aux", '["zero", {}]')
    assert kinds["moving_var"] == ("aux", '["one", {}]')
    assert op.num_hidden(op.parse({})) == 2
    assert op.output_names(op.parse({"output_mean_var": True})) == ("output", "mean", "var")
    assert set(op.commit_in_forward) == {"gamma"}


def bound(name, **attrs):
    symbol = getattr(mx.sym.contrib, name)(mx.sym.Variable("data"), name="bn", output_mean_var=True, **attrs)
    executor = symbol.simple_bind(mx.cpu(), data=(4, 3, 2, 2))
    for array in executor.arg_arrays:
        array[:] = rng.randn(*array.shape)
    executor.aux_dict["bn_moving_mean"][:] = rng.randn(3)
    executor.aux_dict["bn_moving_var"][:] = rng.rand(3) + 0.5
    return symbol, executor


def test_sync_batch_norm_gives_the_variance():
    symbol, executor = bound("SyncBatchNorm", key="one", fix_gamma=False, momentum=0.5)
    assert symbol.list_outputs() == ["bn_output", "bn_mean", "bn_var"]
    assert symbol.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    old_mean, old_var = (array.asnumpy() for array in executor.aux_arrays)
    data = executor.arg_dict["data"].asnumpy()
    for train, wanted in ((False, (old_mean, old_var)), (True, (data.mean((0, 2, 3)), data.var((0, 2, 3))))):
        for one, other in zip(executor.forward(is_train=train)[1:], wanted, strict=True):
            np.testing.assert_allclose(one.asnumpy(), other, rtol=1e-4)
    executor.backward([mx.nd.ones(each.shape) for each in executor.outputs])
    moved = 0.5 * old_var + 0.5 * data.var((0, 2, 3))
    np.testing.assert_allclose(executor.aux_dict["bn_moving_var"].asnumpy(), moved, rtol=1e-4)


def test_sync_batch_norm_counts_each_device_by_itself():
    net = mx.sym.contrib.SyncBatchNorm(mx.sym.Variable("data"), key="one", name="bn", ndev=2)
    module = mx.mod.Module(net, label_names=None, context=[mx.cpu(0), mx.cpu(1)])
    data = randn(4, 3, 2, 2)
    module.bind([("data", data.shape)])
    module.init_params()
    module.forward(mx.io.DataBatch([mx.nd.array(data)]), is_train=True)
    for part in module.get_outputs(merge_multi_context=False)[0]:
        np.testing.assert_allclose(part.asnumpy().mean((0, 2, 3)), 0, atol=1e-6)


# by the native extension; values: native/test_kernels.py

needs_kernel = pytest.mark.skipif(not hasattr(native.core, "norm_forward"), reason="there is no such kernel")


def given(shape, summed=True):
    """Return data, summand, gamma, beta, mean, variance and head gradient."""
    x, other, grad = (numbers(*shape, seed=seed) for seed in range(3))
    gamma, beta, mean, var = (numbers(shape[1], seed=seed) for seed in range(3, 7))
    return x, other if summed else None, gamma + 1.5, beta, mean, var.abs() + 0.5, grad


def run(x, other, gamma, beta, mean, var, grad, end, by_torch=False):
    """Return the result, the moving statistics and the gradients."""
    leaves = [
        each.detach().requires_grad_() if each is not None else None for each in (x, other, gamma, beta)
    ]
    x, other, gamma, beta = leaves
    assert by_torch or is_native(x, other, (gamma, beta, mean, var))
    if by_torch:
        states = [mean.double(), var.double()]
        axes = (0, 2, 3)
        out = torch.batch_norm(x.double(), None, None, None, None, True, 0.1, 1e-5, False)
        out = out * gamma[:, None, None] + beta[:, None, None] + (0 if other is None else other)
        out = out.relu() if end.relu else out
        moved = x.detach().double().mean(axes), x.detach().double().var(axes, unbiased=False)
        states = [0.9 * old + 0.1 * new for old, new in zip(states, moved)]
    else:
        out, *states = native_norm(x, other, (gamma, beta, mean, var), 1e-5, 0.9, end)
    grads = torch.autograd.grad(out, [leaf for leaf in leaves if leaf is not None], grad.to(out.dtype))
    return [t.detach() for t in (out, *states, *grads)]


@needs_kernel
@walks(product([(3, 12, 5, 7), (2, 16, 9, 17), (40, 16, 32, 32)], [False, True], [False, True]))
def test_native_results_and_gradients(shape, relu, summed):
    tensors, end = given(shape, summed), Rectifier(relu=relu)
    found, wanted = run(*tensors, end), run(*tensors, end, by_torch=True)
    for one, other in zip(found, wanted, strict=True):
        torch.testing.assert_close(one.double(), other.double(), rtol=0, atol=3e-6 * float(other.abs().max()))
    for threads in (2, 3):
        torch.set_num_threads(threads)
        assert all(map(torch.equal, run(*tensors, end), found))


@needs_kernel
def test_numbers_far_from_zero_stay_more_exact_than_in_torch():
    x, other, gamma, beta, mean, var, grad = given((16, 16, 24, 24))
    x = x + 300
    wanted = run(x, other, gamma, beta, mean, var, grad, Rectifier(), by_torch=True)[0]
    theirs = torch.native_batch_norm(x, gamma, beta, mean.clone(), var.clone(), True, 0.1, 1e-5)[0] + other
    found = native_norm(x, other, (gamma, beta, mean, var), 1e-5, 0.9, Rectifier())[0]
    assert (found - wanted).abs().max() <= min(3e-4, (theirs - wanted).abs().max())


@needs_kernel
@pytest.mark.parametrize("stays", [False, True])
def test_gradient_of_relu_at_nan(stays):
    tensors = given((3, 4, 5, 5))
    tensors[1][1, 2, 3, 4] = float("nan")
    found = run(*tensors, Rectifier(relu=True, nan_stays=stays))
    assert found[0].isnan().nonzero().tolist() == [[1, 2, 3, 4]]
    for_other = found[4][1, 2, 3, 4]
    assert for_other.isnan() if stays else for_other == tensors[-1][1, 2, 3, 4]


@needs_kernel
def test_only_the_gradients_that_are_wanted():
    tensors, end = given((3, 8, 5, 5)), Rectifier(relu=True)
    whole = run(*tensors, end)
    for place in range(4):
        leaves = [t.detach().requires_grad_(i == place) for i, t in enumerate(tensors[:4])]
        out = native_norm(*leaves[:2], (*leaves[2:], *tensors[4:6]), 1e-5, 0.9, end)[0]
        assert torch.equal(torch.autograd.grad(out, leaves[place], tensors[6])[0], whole[3 + place])


@needs_kernel
def test_what_is_left_to_torch():
    x, other, *vectors, _ = given((2, 8, 3, 3))
    assert is_native(x, other, vectors)
    for change in (
        torch.Tensor.double,
        torch.Tensor.contiguous,
        lambda t: t[:0],
        lambda t: t[:1, :, :1, :1],
        lambda t: t[:, 0],
    ):
        assert not is_native(change(x), change(other), vectors)
    assert not is_native(x, other[:1], vectors)
    assert not is_native(x, other, [t.double() for t in vectors])
    assert not is_native(x, other, [*vectors[:3], vectors[3].clone().requires_grad_()])
    x, other, *vectors, _ = given((2, 6, 3, 3))
    assert not is_native(x, other, vectors)
