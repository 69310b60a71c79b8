"""`DataParallelExecutorGroup` as code of 2016 to 2018 uses it: shapes and batches are given per device."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import ndarray as nd
from dpmodule.io import DataBatch, DataDesc
from dpmodule.module.executor_group import DataParallelExecutorGroup
from helpers.small_fits import TWO

PARAMS = ["fc1_weight", "fc1_bias", "bn_gamma", "bn_beta", "fc2_weight", "fc2_bias"]
STATES = {"bn_moving_mean": nd.zeros((8,)), "bn_moving_var": nd.ones((8,))}
RNG = np.random.RandomState(3)


def network():
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="fc1")
    net = mx.sym.Activation(mx.sym.BatchNorm(net, name="bn", fix_gamma=False), act_type="tanh", name="tanh")
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="fc2"), name="softmax")


def described(sizes):
    return [[DataDesc("data", (n, 5))] for n in sizes], [[DataDesc("softmax_label", (n,))] for n in sizes]


def batch(*sizes):
    data, label = RNG.randn(4, 5), RNG.randint(0, 3, 4)
    return DataBatch([[nd.array(data[:n])] for n in sizes], [[nd.array(label[:n])] for n in sizes])


def test_a_group_fed_per_device_equals_a_module_for_each_part():
    symbol, one = network(), batch(4, 2)
    shapes = dict(zip(symbol.list_arguments(), symbol.infer_shape(data=(4, 5))[0]))
    values = {n: nd.array(RNG.randn(*shapes[n]) * 0.3) for n in PARAMS}
    group = DataParallelExecutorGroup(symbol, TWO, [1, 1], *described((4, 2)), PARAMS, True, True)
    group.set_params(values, STATES)
    group.forward(one)
    group.backward()
    (outputs,), (inputs,) = group.get_outputs(False), group.get_input_grads(merge_multi_context=False)
    for i, (data, label) in enumerate(zip(one.data, one.label)):
        module, part = mx.mod.Module(symbol), DataBatch(data, label)
        module.bind([("data", data[0].shape)], [("softmax_label", label[0].shape)], inputs_need_grad=True)
        module.init_params(arg_params=values, aux_params=STATES)
        module.forward_backward(part)
        wanted = [*module.get_outputs(), *module.get_input_grads(), *(g for (g,) in module.group.grad_arrays)]
        found = [outputs[i], inputs[i], *(row[i] for row in group.grad_arrays), *group.execs[i].aux_arrays]
        for mine, its in zip(found, [*wanted, *module.group.execs[0].aux_arrays], strict=True):
            np.testing.assert_array_equal(mine.asnumpy(), its.asnumpy())
    metric = mx.metric.create("acc")
    group.update_metric(metric, one.label)
    right = sum((o.asnumpy().argmax(1) == y[0].asnumpy()).sum() for o, y in zip(outputs, one.label))
    assert metric.get()[1] == right / 6
    group.reshape(*described((3, 1)))
    group.forward(batch(3, 1), is_train=False)
    assert group.get_outputs()[0].shape == (4, 3)


def test_groups_share_parameters_and_data_memory():
    first = DataParallelExecutorGroup(network(), TWO, [1, 1], *described((4, 2)), PARAMS, True, False)
    second = DataParallelExecutorGroup(network(), TWO, [1, 1], *described((4, 2)), PARAMS, True, False, first)
    for mine, its in zip(first.execs, second.execs):
        assert its.arg_dict["fc1_weight"] is mine.arg_dict["fc1_weight"]
        its.arg_dict["data"][:] = 7
        assert (mine.arg_dict["data"].asnumpy() == 7).all()


def test_reshaping_a_pooled_array_to_a_smaller_size_is_refused_as_in_mxnet_1_9():
    with pytest.raises(ValueError, match="shape"):
        nd.zeros((4, 5)).reshape((2, 5))
