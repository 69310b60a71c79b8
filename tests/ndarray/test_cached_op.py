"""CachedOp: a Symbol as a function of arrays."""

import numpy as np

import dpmodule as mx


def test_outputs_follow_the_inputs_order():
    op = mx.nd.CachedOp(mx.sym.var("a") - 2 * mx.sym.var("b"))
    a, b = mx.nd.array([5, 6]), mx.nd.array([1, 2])
    np.testing.assert_array_equal(op(a, b).asnumpy(), [3, 2])
    out = mx.nd.zeros(2)
    assert op(a, b, out=out) is out
    np.testing.assert_array_equal(out.asnumpy(), [3, 2])


def test_several_outputs_come_as_a_list():
    x = mx.sym.var("x")
    first, second = mx.nd.CachedOp(mx.sym.Group([x + 1, x * 3]))(mx.nd.array([2]))
    assert (first.asscalar(), second.asscalar()) == (3, 6)


def test_calls_are_recorded():
    op = mx.nd.CachedOp(mx.sym.FullyConnected(num_hidden=2, no_bias=True, name="fc"))
    data, weight = mx.nd.array([[1, 2]]), mx.nd.array([[1, 0], [3, 1]])
    weight.attach_grad()
    with mx.autograd.record():
        loss = (op(data, weight) * mx.nd.array([[10, 100]])).sum()
    loss.backward()
    np.testing.assert_array_equal(weight.grad.asnumpy(), [[10, 20], [100, 200]])


def test_moving_averages_change_in_training_only():
    op = mx.nd.CachedOp(mx.sym.BatchNorm(mx.sym.var("x"), momentum=0.5, name="bn"))
    x, one, mean = mx.nd.array([[2.0], [4.0]]), mx.nd.ones(1), mx.nd.zeros(1)
    state = [one, mx.nd.zeros(1), mean, mx.nd.ones(1)]
    op(x, *state)
    assert mean.asscalar() == 0
    x.attach_grad()
    with mx.autograd.record():
        out = op(x, *state)
    out.backward()
    assert mean.asscalar() == 1.5
