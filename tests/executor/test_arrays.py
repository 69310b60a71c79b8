"""`Executor.reshape`, by the rules of MXNet 1.9.1."""

import numpy as np

import dpmodule as mx

S = mx.sym
X = S.Variable("x")


def bound():
    net = S.SoftmaxOutput(S.FullyConnected(S.Variable("data"), num_hidden=3, name="fc"), name="softmax")
    return net.simple_bind(mx.cpu(), data=(4, 5))


def test_downwards_views_the_same_memory_and_both_run():
    executor = bound()
    small = executor.reshape(data=(2, 5), softmax_label=(2,))
    assert small.outputs[0].shape == (2, 3)
    assert small.arg_dict["fc_weight"] is executor.arg_dict["fc_weight"]
    assert small.grad_dict["fc_weight"] is executor.grad_dict["fc_weight"]
    small.arg_dict["data"][:], small.grad_dict["data"][:] = 7, 3
    assert executor.arg_dict["data"].asnumpy()[:, 0].tolist() == [7, 7, 0, 0]
    assert executor.grad_dict["data"].asnumpy()[:, 0].tolist() == [3, 3, 0, 0]
    executor.arg_dict["fc_weight"][:] = mx.nd.array(np.arange(15).reshape(3, 5))
    small.forward(is_train=True, data=np.ones((2, 5)))
    small.backward()
    view = small.grad_dict["data"].asnumpy()
    assert np.array_equal(executor.grad_dict["data"].asnumpy()[:2], view)
    executor.forward(is_train=True, data=np.ones((4, 5)))
    np.testing.assert_allclose(executor.outputs[0].asnumpy()[:2], small.outputs[0].asnumpy(), rtol=1e-6)


def test_allowed_changes():
    executor = bound()
    assert executor.reshape(partial_shaping=True, data=(4, 3)).arg_dict["fc_weight"].shape == (3, 3)
    grown = executor.reshape(allow_up_sizing=True, data=(8, 5), softmax_label=(8,))
    grown.arg_dict["data"][:] = 1
    assert executor.arg_dict["data"].asnumpy().max() == 0
    assert grown.arg_dict["fc_weight"] is executor.arg_dict["fc_weight"]
    both = executor.reshape(partial_shaping=True, allow_up_sizing=True, data=(2, 8))
    assert both.arg_dict["fc_weight"].shape == (3, 8)
    executor = S.BatchNorm(X, name="bn").simple_bind(mx.cpu(), x=(2, 4))
    small = executor.reshape(partial_shaping=True, x=(2, 3))
    small.aux_arrays[0][:] = 5
    assert executor.aux_arrays[0].asnumpy().tolist() == [5, 5, 5, 0]


def test_an_executor_that_has_not_run_shows_what_a_smaller_one_computed():
    # in MXNet both have the same memory for outputs
    first = S.FullyConnected(X, num_hidden=4, name="fc").simple_bind(mx.cpu(), x=(5, 4), grad_req="null")
    for array in first.arg_arrays:
        array[:] = 1
    smaller = first.reshape(x=(3, 4))
    smaller.forward()
    np.testing.assert_array_equal(first.outputs[0].asnumpy()[:3], np.full((3, 4), 5.0))
    first.forward()
    first.arg_dict["fc_bias"][:] = 0
    smaller.forward()
    np.testing.assert_array_equal(first.outputs[0].asnumpy(), np.full((5, 4), 5.0))  # has run: keeps its own
