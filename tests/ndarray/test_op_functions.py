"""Operators as functions: arguments, results, errors, namespaces, signatures, stubs."""

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import ops
from dpmodule._core import mode
from dpmodule.base import OpError
from dpmodule.ndarray import op_dispatch, op_functions

nd = mx.nd


def data():
    return nd.array([[1, -2, 3], [4, 5, -6]])


def test_types_beyond_mxnets():
    flags, ones = nd.array([1, 0], dtype="bool"), nd.ones((2, 2), dtype="int32")
    halves = nd.ones((2, 2), dtype="float16")
    for call, want in {
        **{lambda: nd.sort(flags): [False, True], lambda: nd.reverse(flags, axis=0): [False, True]},
        **{lambda: nd.topk(flags): [0], lambda: flags + flags: [True, False]},
        lambda: nd.dot(ones, ones): [[2, 2], [2, 2]],
        lambda: nd.FullyConnected(ones, ones, no_bias=True, num_hidden=2): [[2, 2], [2, 2]],
        lambda: nd.linalg.gemm2(halves, halves): [[2, 2], [2, 2]],
    }.items():
        assert call().asnumpy().tolist() == want


def test_out_receives_the_result():
    x, out = data(), nd.zeros((2, 3))
    view = out[0]
    for _ in range(2):
        assert nd.relu(x, out=out, name="r") is out
    np.testing.assert_array_equal(out.asnumpy(), [[1, 0, 3], [4, 5, 0]])
    np.testing.assert_array_equal(view.asnumpy(), [1, 0, 3])
    assert nd.relu(x, out=x) is x
    parts = [nd.zeros((2, 1)) for _ in range(3)]
    assert nd.split(data(), num_outputs=3, axis=1, out=parts) is parts
    np.testing.assert_array_equal(parts[1].asnumpy(), [[-2], [5]])
    assert isinstance(nd.split(data(), num_outputs=3, axis=1), list)
    assert nd.split(data(), num_outputs=1, axis=1).shape == (2, 3)


def test_operators_without_inputs():
    assert nd._internal._zeros(shape=(2,), ctx=mx.cpu(1)).context == mx.cpu(1)
    assert nd._internal._zeros((2, 3), dtype="int32").dtype is np.int32
    with mx.cpu(2):
        assert nd._internal._ones(shape=(1,)).context == mx.cpu(2)
    out = nd.zeros((3,), ctx=mx.cpu(1), dtype="float64")
    nd._internal._ones(out=out)
    np.testing.assert_array_equal(out.asnumpy(), [1, 1, 1])


def test_operators_write_the_states_they_change():
    x, gamma, beta = data(), nd.full((3,), 5), nd.zeros((3,))
    mean, var = nd.zeros((3,)), nd.ones((3,))
    with mode.scope(training=True):
        out = nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=True)
    # as MXNet 1.9.1: gamma becomes 1 in every forward, the moving statistics wait for a backward
    np.testing.assert_array_equal(gamma.asnumpy(), [1, 1, 1])
    np.testing.assert_array_equal(mean.asnumpy(), [0, 0, 0])
    np.testing.assert_allclose(out.asnumpy().mean(axis=0), [0, 0, 0], atol=1e-6)
    nd.BatchNorm(x, gamma, beta, mean, var, fix_gamma=False)


def test_nothing_is_recorded_by_torch():
    x = nd.from_torch(torch.ones(2))
    x.torch().requires_grad_()
    assert not nd.relu(x).tensor.requires_grad
    assert not (x + 1).tensor.requires_grad
    x += 1
    x[:] = 3
    x.asnumpy()


def test_kept_plans_stay_few():
    x = data()
    for i in range(3 * op_dispatch._CACHED_PLANS // 2):
        assert nd._internal._plus_scalar(x, scalar=i).asnumpy()[0, 0] == 1 + i
    assert len(op_dispatch._plans) <= op_dispatch._CACHED_PLANS


def test_methods_take_what_the_functions_take():
    x = data()
    np.testing.assert_array_equal(x.sum(axis=1).asnumpy(), [2, 3])
    np.testing.assert_array_equal(x.sum(1, True).asnumpy(), [[2], [3]])
    np.testing.assert_array_equal(x.clip(0, 2).asnumpy(), [[1, 0, 2], [2, 2, 0]])
    np.testing.assert_array_equal(x.relu().sqrt().asnumpy()[1, 0], 2)
    made = x.max(), x.transpose(), x.take(nd.array([1])), x.diag(), x.argmax(axis=1)
    assert [each.shape for each in made] == [(1,), (3, 2), (1, 3), (2,), (2,)]


def test_keywords_without_effect_are_taken_where_mxnet_takes_them():
    array = nd.array([[-1.0, 2.0]])
    for result in (
        nd.relu(array, shape=(3,), ctx="cpu(1)", attr={"a": "b"}, other=array, data_lr_mult=1),
        *(array.relu(slope=[1]), nd.broadcast_add(array, nd.array([[1.0, 0.0]]), axis=1)),
        nd.clip(array, 0, 9, __mark__="x"),
    ):
        assert result.asnumpy().tolist() == [[0, 2]]


def test_named_inputs_in_another_order():
    call = op_functions.make_op_function(ops.get("FullyConnected"), "FullyConnected")
    x, w, b = nd.array([[1, 2]]), nd.array([[1, 1], [2, 2]]), nd.array([10, 20])
    for _ in range(2):
        assert call(bias=b, weight=w, data=x, num_hidden=2).asnumpy().tolist() == [[13, 26]]
        assert call(x, bias=b, num_hidden=2, weight=w).asnumpy().tolist() == [[13, 26]]
        assert call(x, w, num_hidden=2, no_bias=True).asnumpy().tolist() == [[3, 6]]
        assert call(x, w, None, 2, True).asnumpy().tolist() == [[3, 6]]
        assert call(x, w, bias=None, num_hidden=2, no_bias=True).asnumpy().tolist() == [[3, 6]]
        with pytest.raises(OpError, match="'bias' is missing"):
            call(x, w, num_hidden=2)


def test_equal_values_of_other_types_are_told_apart():
    for zero, want in ((0.0, np.inf), (-0.0, -np.inf), (0, np.inf)):
        assert nd._internal._div_scalar(nd.array([1, -1]), scalar=zero).asnumpy().tolist() == [want, -want]
