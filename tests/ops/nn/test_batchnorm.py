import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ShapeError
from dpmodule.ops import get
from helpers.numeric import check_gradients, environment, gradients, run, shapes, types

rng = np.random.RandomState(3)


def case(shape, axis=1):
    channels = shape[axis]
    vectors = rng.randn(channels), rng.randn(channels), rng.randn(channels), rng.rand(channels) + 0.5
    return rng.randn(*shape) * 2 + 1, *vectors


def along(vector, data, axis):
    return vector.reshape([-1 if i == axis % data.ndim else 1 for i in range(data.ndim)])


@pytest.mark.parametrize(("shape", "axis"), [((4, 3), 1), ((4, 3, 2), 1), ((2, 3, 2, 2), 1), ((2, 3, 4), -1)])
@pytest.mark.parametrize("fix_gamma", [True, False])
def test_training(shape, axis, fix_gamma):
    data, gamma, beta, mean, var = inputs = case(shape, axis)
    others = tuple(i for i in range(data.ndim) if i != axis % data.ndim)
    attrs = {"axis": axis, "fix_gamma": fix_gamma, "momentum": 0.7, "eps": 0.01}
    out, ones, new_mean, new_var = run("BatchNorm", *inputs, **attrs)
    normal = (data - data.mean(others, keepdims=True)) / np.sqrt(data.var(others, keepdims=True) + 0.01)
    scale = np.ones_like(gamma) if fix_gamma else gamma
    np.testing.assert_allclose(out, normal * along(scale, data, axis) + along(beta, data, axis), rtol=1e-9)
    np.testing.assert_allclose(new_mean, 0.7 * mean + 0.3 * data.mean(others), rtol=1e-9)
    np.testing.assert_allclose(new_var, 0.7 * var + 0.3 * data.var(others), rtol=1e-9)
    assert np.array_equal(ones, np.ones_like(gamma)) if fix_gamma else ones is None
    check_gradients("BatchNorm", *inputs, wanted=(0, 2) if fix_gamma else (0, 1, 2), **attrs)


@pytest.mark.parametrize("train", [True, False])
def test_moving_statistics(train):
    """In prediction, and in training with use_global_stats, the moving statistics are used and stay."""
    data, gamma, beta, mean, var = inputs = case((4, 3))
    attrs = {"fix_gamma": False, "use_global_stats": train}
    out, ones, new_mean, new_var = run("BatchNorm", *inputs, env=environment(train), **attrs)
    np.testing.assert_allclose(out, (data - mean) / np.sqrt(var + 1e-3) * gamma + beta, rtol=1e-9)
    assert (ones, new_mean, new_var) == (None, None, None)
    check_gradients("BatchNorm", *inputs, wanted=(0, 1, 2), env=environment(train), **attrs)


def test_fixed_gamma_has_no_gradient():
    data, gamma = gradients("BatchNorm", *case((4, 3)), head=rng.randn(4, 3), wanted=(0, 1))
    assert data.any()
    assert not gamma.any()


def test_inputs_are_left_alone():
    inputs = case((4, 3))
    before = [x.copy() for x in inputs]
    run("BatchNorm", *inputs)
    for now, then in zip(inputs, before, strict=True):
        assert np.array_equal(now, then)


def test_mean_and_deviation():
    data, *rest = case((4, 3, 2))
    _, mean, scale, *_ = run("BatchNorm", data, *rest, output_mean_var=True)
    np.testing.assert_allclose(mean, data.mean((0, 2)))
    np.testing.assert_allclose(scale, 1 / np.sqrt(data.var((0, 2)) + 1e-3))
    _, mean, scale, *_ = run("BatchNorm", data, *rest, env=environment(False), output_mean_var=True)
    np.testing.assert_allclose(mean, rest[2])
    np.testing.assert_allclose(scale, 1 / np.sqrt(rest[3] + 1e-3))


def test_one_value_per_channel():
    """The variance of one value is 0; torch's unbiased estimate would be 0 / 0."""
    data, gamma, beta, mean, var = case((1, 3))
    out, _, new_mean, new_var = run("BatchNorm", data, gamma, beta, mean, var)
    np.testing.assert_allclose(out, beta[None])
    np.testing.assert_allclose(new_mean, 0.9 * mean + 0.1 * data[0])
    np.testing.assert_allclose(new_var, 0.9 * var)


def test_constant_channel_keeps_a_variance_of_zero():
    data = np.full((8, 2), 1e3, "float32")
    rest = [np.ones(2, "float32"), np.zeros(2, "float32"), np.zeros(2, "float32"), np.zeros(2, "float32")]
    *_, new_var = run("BatchNorm", data, *rest)
    assert np.array_equal(new_var, [0, 0])


def test_half_precision_keeps_wide_parameters():
    ins, outs = types("BatchNorm", "float16", None, None, None, None, outs=[None] * 3, output_mean_var=True)
    assert ins == ["float16"] + ["float32"] * 4
    assert outs == ["float16", "float32", "float32"]
    assert types("BatchNorm", "float64", None, None, None, None) == (["float64"] * 5, ["float64"])
    data, *rest = (x.astype("float32") for x in case((4, 3)))
    out, *_, new_var = run("BatchNorm", data.astype("float16"), *rest)
    assert (out.dtype, new_var.dtype) == (np.float16, np.float32)


def test_shapes():
    assert shapes("BatchNorm", (0, 3, 4), None, None, None, None, outs=[(5, 0, 0)]) == (
        [(5, 3, 4), (3,), (3,), (3,), (3,)],
        [(5, 3, 4)],
    )
    with pytest.raises(ShapeError, match="moving_mean has shape"):
        shapes("BatchNorm", (4, 3), None, None, (2,), None)
    with pytest.raises(ShapeError, match="axis is 2"):
        shapes("BatchNorm", (4, 3), None, None, None, None, axis=2)


def test_declaration():
    op = get("BatchNorm")
    kinds = {i.name: (i.kind, i.init) for i in op.active_inputs(op.parse({}))}
    assert kinds["moving_mean"] == ("aux", '["zero", {}]')
    assert kinds["moving_var"] == ("aux", '["one", {}]')
    assert op.num_hidden(op.parse({})) == 2
    assert op.output_names(op.parse({"output_mean_var": True})) == ("output", "mean", "var")
    assert set(op.commit_in_forward) == {"gamma"}


@pytest.mark.parametrize("train", [True, False])
def test_first_version_returns_the_variance(train):
    data, *rest = case((4, 3, 2))
    new = run("BatchNorm", data, *rest, env=environment(train), output_mean_var=True)
    old = run("BatchNorm_v1", data, *rest, env=environment(train), output_mean_var=True)
    np.testing.assert_array_equal(old[0], new[0])
    np.testing.assert_allclose(old[2], data.var((0, 2)) if train else rest[3])


rng_of_batchnorm = np.random.RandomState(8)


def bound(name, **attrs):
    symbol = getattr(mx.sym.contrib, name)(mx.sym.Variable("data"), name="bn", output_mean_var=True, **attrs)
    executor = symbol.simple_bind(mx.cpu(), data=(4, 3, 2, 2))
    for array in executor.arg_arrays:
        array[:] = rng_of_batchnorm.randn(*array.shape)
    executor.aux_dict["bn_moving_mean"][:] = rng_of_batchnorm.randn(3)
    executor.aux_dict["bn_moving_var"][:] = rng_of_batchnorm.rand(3) + 0.5
    return symbol, executor


def test_sync_batch_norm_gives_the_variance():
    symbol, executor = bound("SyncBatchNorm", key="one", fix_gamma=False, momentum=0.5)
    assert symbol.list_outputs() == ["bn_output", "bn_mean", "bn_var"]
    assert symbol.list_auxiliary_states() == ["bn_moving_mean", "bn_moving_var"]
    before = executor.aux_dict["bn_moving_var"].asnumpy()
    data = executor.arg_dict["data"].asnumpy()
    _, mean, var = executor.forward(is_train=True)
    np.testing.assert_allclose(mean.asnumpy(), data.mean((0, 2, 3)), rtol=1e-5)
    np.testing.assert_allclose(var.asnumpy(), data.var((0, 2, 3)), rtol=1e-4)
    executor.backward([mx.nd.ones(each.shape) for each in executor.outputs])
    moved = 0.5 * before + 0.5 * data.var((0, 2, 3))
    np.testing.assert_allclose(executor.aux_dict["bn_moving_var"].asnumpy(), moved, rtol=1e-4)


def test_sync_batch_norm_gives_the_moving_statistics_in_prediction():
    _, executor = bound("SyncBatchNorm", key="one")
    _, mean, var = executor.forward(is_train=False)
    np.testing.assert_array_equal(mean.asnumpy(), executor.aux_dict["bn_moving_mean"].asnumpy())
    np.testing.assert_allclose(var.asnumpy(), executor.aux_dict["bn_moving_var"].asnumpy(), rtol=1e-6)


def test_sync_batch_norm_counts_each_device_by_itself():
    net = mx.sym.contrib.SyncBatchNorm(mx.sym.Variable("data"), key="one", name="bn", ndev=2)
    module = mx.mod.Module(net, label_names=None, context=[mx.cpu(0), mx.cpu(1)])
    data = rng_of_batchnorm.randn(4, 3, 2, 2)
    module.bind([("data", data.shape)])
    module.init_params()
    module.forward(mx.io.DataBatch([mx.nd.array(data)]), is_train=True)
    for part in module.get_outputs(merge_multi_context=False)[0]:
        np.testing.assert_allclose(part.asnumpy().mean((0, 2, 3)), 0, atol=1e-6)


def test_sync_batch_norm_needs_a_key():
    with pytest.raises(mx.base.MXNetError, match="key is required"):
        mx.sym.contrib.SyncBatchNorm(mx.sym.Variable("data"))


def test_with_relu_equals_a_rectifier_behind():
    _, both = bound("BatchNormWithReLU")
    symbol = mx.sym.BatchNorm(mx.sym.Variable("data"), name="bn")
    plain = mx.sym.Activation(symbol, act_type="relu").bind(
        mx.cpu(), dict(both.arg_dict), aux_states={k: v.copy() for k, v in both.aux_dict.items()}
    )
    for train in (False, True):
        want = plain.forward(is_train=train)[0].asnumpy()
        np.testing.assert_allclose(both.forward(is_train=train)[0].asnumpy(), want, rtol=1e-5, atol=1e-6)
