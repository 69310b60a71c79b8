"""Loops and branches over arrays, against the same functions as graphs and against NumPy."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.ndarray.contrib import flatten, regroup

BODIES = {
    "product": lambda F, x, s, w: (x * s[0] * w, [s[0] + x]),
    "two outputs": lambda F, x, s, w: ([x + w, [F.tanh(x) * s[0]]], [s[0] * 0.5]),
    "state out": lambda F, x, s, w: (s[0], [F.sin(s[0]) + x * w]),
    "weight out": lambda F, x, s, w: ([w, x], [s[0]]),
    "no output": lambda F, x, s, w: ([], [s[0] * w + x]),
}


def flat(value):
    return [leaf for each in value for leaf in flat(each)] if isinstance(value, (list, tuple)) else [value]


def total(F, values):
    """Return one number that depends on all values in different ways."""
    return sum((F.sum(v * (i + 1)) for i, v in enumerate(values)), start=0)


@pytest.mark.parametrize("kind", BODIES)
def test_foreach_gives_what_the_graph_gives(kind):
    draw = np.random.RandomState(0)
    arrays = {k: mx.nd.array(draw.uniform(-1, 1, s)) for k, s in {"x": (4, 3), "s": (3,), "w": (3,)}.items()}
    for array in arrays.values():
        array.attach_grad()
    with mx.autograd.record():
        x, s, w = arrays.values()
        outs = mx.nd.contrib.foreach(lambda x, s: BODIES[kind](mx.nd, x, s, w), x, [s])
        loss = total(mx.nd, flat(outs))
    loss.backward()
    x, s, w = (mx.sym.Variable(k) for k in "xsw")
    made = mx.sym.contrib.foreach(lambda x, s: BODIES[kind](mx.sym, x, s, w), x, [s])
    grads = {k: mx.nd.zeros(v.shape) for k, v in arrays.items()}
    values = {k: mx.nd.array(v.asnumpy()) for k, v in arrays.items()}
    executor = mx.sym.Group(flat(made)).bind(mx.cpu(), values, grads)
    executor.forward(is_train=True)
    for out, expected in zip(executor.outputs, flat(outs), strict=True):
        np.testing.assert_allclose(out.asnumpy(), expected.asnumpy(), rtol=1e-6)
    executor.backward([mx.nd.ones(o.shape) * (i + 1) for i, o in enumerate(executor.outputs)])
    for k, grad in grads.items():
        np.testing.assert_allclose(grad.asnumpy(), arrays[k].grad.asnumpy(), rtol=1e-5, atol=1e-6)


def test_while_loop_gives_what_the_graph_gives():
    def run(F, i, s, k):
        return F.contrib.while_loop(
            lambda i, s: i <= k, lambda i, s: ([i * s, s + k], [i + 1, s * k]), [i, s], max_iterations=6
        )

    start = {"i": 0.0, "s": 0.5, "k": 2.5}
    arrays = {key: mx.nd.array([value]) for key, value in start.items()}
    for array in arrays.values():
        array.attach_grad()
    with mx.autograd.record():
        outs = run(mx.nd, *arrays.values())
        loss = total(mx.nd, flat(outs))
    loss.backward()
    assert outs[0][0].asnumpy().ravel().tolist() == [0, 1.25, 6.25, 0, 0, 0]
    assert outs[0][1].asnumpy().ravel().tolist() == [3, 3.75, 5.625, 0, 0, 0]
    made = run(mx.sym, *(mx.sym.Variable(key) for key in start))
    grads = {key: mx.nd.zeros((1,)) for key in start}
    executor = mx.sym.Group(flat(made)).bind(mx.cpu(), {k: mx.nd.array([v]) for k, v in start.items()}, grads)
    for out, expected in zip(executor.forward(is_train=True), flat(outs), strict=True):
        np.testing.assert_allclose(out.asnumpy(), expected.asnumpy())
    executor.backward([mx.nd.ones(o.shape) * (i + 1) for i, o in enumerate(executor.outputs)])
    for key, grad in grads.items():
        np.testing.assert_allclose(grad.asnumpy(), arrays[key].grad.asnumpy(), rtol=1e-5)


def test_elements_of_a_vector_and_lists_of_data():
    out, state = mx.nd.contrib.foreach(lambda x, s: (x + s, x + s), mx.nd.arange(3), mx.nd.zeros((1,)))
    assert out.asnumpy().tolist() == [[0], [1], [3]]
    assert state.asnumpy().tolist() == [3]
    out, states = mx.nd.contrib.foreach(
        lambda xs, s: (xs[0] * xs[1], s), [mx.nd.arange(3), mx.nd.arange(3)], []
    )
    assert out.asnumpy().tolist() == [[0], [1], [4]]
    assert states == []


def test_while_loop_forms():
    out, last = mx.nd.contrib.while_loop(lambda i: i < 3, lambda i: (i, i + 1), mx.nd.zeros((1,)), 5)
    assert out.asnumpy().tolist() == [[0], [1], [2], [0], [0]]
    assert last.asscalar() == 3
    out, last = mx.nd.contrib.while_loop(lambda i: i < 0, lambda i: (i, i + 1), [mx.nd.zeros((1,))], 5)
    assert out == []
    assert last[0].asscalar() == 0
    out, last = mx.nd.contrib.while_loop(lambda i: 1, lambda i: (None, (i + 2,)), (mx.nd.zeros((1,)),), 5)
    assert out == []
    assert last[0].asscalar() == 10


@pytest.mark.parametrize(
    ("pred", "expected"), [(mx.nd.ones((1,)), 42), (mx.nd.zeros((1, 1)), 12), (True, 42), (0, 12)]
)
def test_cond(pred, expected):
    a, b = mx.nd.array([1]), mx.nd.array([2])
    found = mx.nd.contrib.cond(pred, lambda: (a + 5) * (b + 5), lambda: (a - 5) * (b - 5))
    assert found.asscalar() == expected


def test_gradient_through_cond():
    a = mx.nd.array([3.0])
    a.attach_grad()
    with mx.autograd.record():
        y = mx.nd.contrib.cond(a > 2, lambda: a * a, lambda: a)
    y.backward()
    assert a.grad.asscalar() == 6


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda f, x: f.foreach(lambda x, s: (x, s), 3, []), "data must be one array or symbol"),
        (lambda f, x: f.foreach(lambda x, s: (x, s), [], []), "data is empty"),
        (lambda f, x: f.foreach(lambda x, s: (x, s), [x, mx.nd.ones((3,))], []), r"lengths \[2, 3\]"),
        (lambda f, x: f.foreach(lambda x, s: ("x", s), x, []), "output of body must be"),
        (lambda f, x: f.while_loop(lambda s: s, lambda s: (s, s), [x]), "max_iterations should be specified"),
        (lambda f, x: f.while_loop(lambda s: s, lambda s: (s, s), [], 3), "at least one array"),
        (lambda f, x: f.while_loop(lambda s: 1, lambda s: (s, [s, s]), [x], 3), "returned 2 loop variables"),
        (lambda f, x: f.while_loop(lambda s: s, lambda s: (s, s), [x], 3), "not a scalar"),
        (lambda f, x: f.while_loop(lambda s: "?", lambda s: (s, s), [x], "?"), "max_iterations is '?'"),
        (
            lambda f, x: f.while_loop(lambda s: 1, lambda s: (s, mx.nd.concat(s, s, dim=0)), [x], 3),
            "output 0 of func changes its shape",
        ),
        (lambda f, x: f.cond(x, lambda: 1, lambda: 2), "not a scalar"),
    ],
)
def test_wrong_use_is_explained(make, message):
    with pytest.raises(ValueError, match=message.replace("?", r"\?")):
        make(mx.nd.contrib, mx.nd.ones((2,)))


def test_the_operators_behind_the_graphs_explain_themselves():
    with pytest.raises(mx.MXNetError, match="num_args is required"):
        mx.nd._internal._foreach(mx.nd.ones((2,)))


def leaves(value):
    if isinstance(value, str):
        return [value]
    return value.split() if isinstance(value, Several) else None


class Several:
    """Counts as several leaves."""

    def __init__(self, text):
        self.text = text

    def split(self):
        return self.text.split()


@pytest.mark.parametrize(
    ("value", "flat", "back"),
    [
        ("a", ["a"], "a"),
        ([], [], []),
        (["a"], ["a"], ["a"]),
        (("a", ["b", []], ("c",)), ["a", "b", "c"], ["a", ["b", []], ["c"]]),
        (Several("a b"), ["a", "b"], ["a", "b"]),
        ([Several("a b"), "c"], ["a", "b", "c"], [["a", "b"], "c"]),
    ],
)
def test_round_trip(value, flat, back):
    found, form = flatten(value, leaves, "it")
    assert found == flat
    assert regroup(found, form) == back
    assert regroup([*found, "more"], form) == back


@pytest.mark.parametrize("wrong", [3, ["a", None], {"a": 1}])
def test_something_else_is_refused(wrong):
    with pytest.raises(ValueError, match="it must be one array or symbol"):
        flatten(wrong, leaves, "it")
