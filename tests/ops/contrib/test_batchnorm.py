import numpy as np
import pytest

import dpmodule as mx

rng = np.random.RandomState(8)


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
    data = rng.randn(4, 3, 2, 2)
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
