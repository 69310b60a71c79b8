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


def test_calls_are_recorded():
    op = mx.nd.CachedOp(mx.sym.FullyConnected(num_hidden=2, no_bias=True, name="fc"))
    data, weight = mx.nd.array([[1, 2]]), mx.nd.array([[1, 0], [3, 1]])
    weight.attach_grad()
    with mx.autograd.record():
        loss = (op(data, weight) * mx.nd.array([[10, 100]])).sum()
    loss.backward()
    np.testing.assert_array_equal(weight.grad.asnumpy(), [[10, 20], [100, 200]])
