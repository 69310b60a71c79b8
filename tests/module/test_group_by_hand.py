"""`DataParallelExecutorGroup` as code of 2016 to 2018 uses it: shapes and batches are given per device."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import ndarray as nd
from dpmodule.executor_manager import _split_input_slice
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


def test_a_group_fed_per_device_equals_executors_bound_by_hand():
    symbol, one = network(), batch(4, 2)
    shapes = dict(zip(symbol.list_arguments(), symbol.infer_shape(data=(4, 5))[0]))
    values = {n: nd.array(RNG.randn(*shapes[n]) * 0.3) for n in PARAMS}
    group = DataParallelExecutorGroup(symbol, TWO, [1, 1], *described((4, 2)), PARAMS, True, True)
    group.set_params(values, STATES)
    group.forward(one)
    group.backward()
    (outputs,), (inputs,) = group.get_outputs(False), group.get_input_grads(merge_multi_context=False)
    for i, context in enumerate(TWO):
        args = [*one.data[i], *(values[n] for n in PARAMS), *one.label[i]]  # in the order of list_arguments()
        grads = {n: nd.zeros(a.shape) for n, a in zip(symbol.list_arguments(), args) if n != "softmax_label"}
        aux = [STATES[n].copy() for n in symbol.list_auxiliary_states()]
        hand = symbol.bind(
            context, [a.copyto(context) for a in args], grads, dict.fromkeys(grads, "write"), aux
        )
        np.testing.assert_array_equal(hand.forward(is_train=True)[0].asnumpy(), outputs[i].asnumpy())
        hand.backward(out_grads=[])
        found = {**{n: row[i] for n, row in zip(PARAMS, group.grad_arrays)}, "data": inputs[i]}
        for name, grad in found.items():
            np.testing.assert_array_equal(grad.asnumpy(), grads[name].asnumpy(), err_msg=name)
        for mine, its in zip(aux, group.execs[i].aux_arrays):
            np.testing.assert_array_equal(its.asnumpy(), mine.asnumpy())
    metric = mx.metric.create("acc")
    group.update_metric(metric, one.label)
    right = sum((o.asnumpy().argmax(1) == y[0].asnumpy()).sum() for o, y in zip(outputs, one.label))
    assert metric.get()[1] == right / 6
    group.reshape(*described((3, 1)))
    group.forward(batch(3, 1), is_train=False)
    assert group.get_outputs()[0].shape == (4, 3)
    assert all(e.arg_dict["fc1_weight"] is w for e, w in zip(group.execs, group.param_arrays[0]))


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


def test_old_import_path_splits():
    assert _split_input_slice(8, [3, 1]) == [slice(0, 6), slice(6, 8)]
