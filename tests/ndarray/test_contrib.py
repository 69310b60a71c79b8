"""Loops and branches over arrays, against the same functions as graphs and against NumPy."""

import numpy as np
import pytest

import dpmodule as mx

BODIES = {
    "product": lambda F, x, s, w: (x * s[0] * w, [s[0] + x]),
    "two outputs": lambda F, x, s, w: ([x + w, [F.tanh(x) * s[0]]], [s[0] * 0.5]),
    "nested": lambda F, x, s, w: ((x, [w * 1, []], (s[0],)), [s[0] * 1]),
    "state out": lambda F, x, s, w: (s[0], [F.sin(s[0]) + x * w]),
    "weight out": lambda F, x, s, w: ([w, x], [s[0]]),
    "no output": lambda F, x, s, w: ([], [s[0] * w + x]),
}


def loop(kind, F, x, s, w):
    if kind != "while":
        return F.contrib.foreach(lambda x, s: BODIES[kind](F, x, s, w), x, [s])
    start = [F.sum(s) * 0, F.sum(s)]
    step = lambda i, s: ([i * s, s + 2.5], [i + 1, s * 2.5])  # noqa: E731
    product = F.broadcast_mul(x, F.expand_dims(w, axis=0))
    return F.contrib.while_loop(lambda i, s: i <= 2.5, step, start, max_iterations=6), [product]


def flat(value):
    return [leaf for each in value for leaf in flat(each)] if isinstance(value, (list, tuple)) else [value]


@pytest.mark.parametrize("kind", [*BODIES, "while"])
def test_loops_give_what_the_graph_gives(kind):
    draw = np.random.RandomState(0)
    arrays = {k: mx.nd.array(draw.uniform(-1, 1, s)) for k, s in {"x": (4, 3), "s": (3,), "w": (3,)}.items()}
    for array in arrays.values():
        array.attach_grad()
    with mx.autograd.record():
        outs = flat(loop(kind, mx.nd, *arrays.values()))
        loss = sum((mx.nd.sum(v * (i + 1)) for i, v in enumerate(outs)), start=0)
    loss.backward()
    made = flat(loop(kind, mx.sym, *(mx.sym.Variable(k) for k in "xsw")))
    grads = {k: mx.nd.zeros(v.shape) for k, v in arrays.items()}
    executor = mx.sym.Group(made).bind(mx.cpu(), {k: v.copy() for k, v in arrays.items()}, grads)
    executor.forward(is_train=True)
    for out, expected in zip(executor.outputs, outs, strict=True):
        np.testing.assert_allclose(out.asnumpy(), expected.asnumpy(), rtol=1e-6)
    executor.backward([mx.nd.ones(o.shape) * (i + 1) for i, o in enumerate(executor.outputs)])
    for k, grad in grads.items():
        np.testing.assert_allclose(grad.asnumpy(), arrays[k].grad.asnumpy(), rtol=1e-5, atol=1e-6)


def test_elements_of_a_vector_and_lists_of_data():
    out, state = mx.nd.contrib.foreach(lambda x, s: (x + s, x + s), mx.nd.arange(3), mx.nd.zeros((1,)))
    assert (out.asnumpy().tolist(), state.asnumpy().tolist()) == ([[0], [1], [3]], [3])
    out, states = mx.nd.contrib.foreach(lambda x, s: (x[0] * x[1], s), [mx.nd.arange(3), mx.nd.arange(3)], [])
    assert (out.asnumpy().tolist(), states) == ([[0], [1], [4]], [])


def test_while_loop_forms():
    zero, repeat = mx.nd.zeros((1,)), mx.nd.contrib.while_loop
    out, last = repeat(lambda i: i < 3, lambda i: (i, i + 1), zero, 5)
    assert (out.asnumpy().tolist(), last.asscalar()) == ([[0], [1], [2], [0], [0]], 3)
    out, last = repeat(lambda i: i < 0, lambda i: (i, i + 1), [zero], 5)
    assert (out, last[0].asscalar()) == ([], 0)
    out, last = repeat(lambda i: 1, lambda i: (None, (i + 2,)), [zero], 5)
    assert (out, last[0].asscalar()) == ([], 10)


def test_cond():
    a, b = mx.nd.array([1]), mx.nd.array([2])
    for pred, want in ((mx.nd.ones((1,)), 42), (mx.nd.zeros((1, 1)), 12), (True, 42), (0, 12)):
        found = mx.nd.contrib.cond(pred, lambda: (a + 5) * (b + 5), lambda: (a - 5) * (b - 5))
        assert found.asscalar() == want
