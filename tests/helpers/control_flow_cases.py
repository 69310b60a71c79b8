"""Symbols with loops and branches, made by functions of the package (`mx`: MXNet, or the one under test)."""


def foreach_dense(mx):
    """A dense layer in the body, whose parameters are made there, and a weight from outside."""
    w = mx.sym.var("w")

    def body(x, states):
        hidden = mx.sym.FullyConnected(x, num_hidden=3, name="fc") + states[0] * w
        return hidden, [hidden]

    out, states = mx.sym.contrib.foreach(body, mx.sym.var("data"), [mx.sym.var("s0")])
    return mx.sym.Group([out, *states])


def foreach_nested_lists(mx):
    """Several data, nested states, several outputs."""

    def body(xs, states):
        a, (b,) = states
        return [xs[0] * a, [xs[1] + b]], [xs[0] + a, [b * xs[1]]]

    x, y, a, b = (mx.sym.var(n) for n in "xyab")
    (one, (two,)), (p, (q,)) = mx.sym.contrib.foreach(body, [x, y], [a, [b]])
    return mx.sym.Group([one, two, p, q])


def foreach_inside_foreach(mx):
    """Two loops in each other; both read a weight from outside, the inner one makes one."""
    w = mx.sym.var("w")

    def inner(x, state):
        return x * w + state, x + state * mx.sym.var("v")

    def outer(x, state):
        return mx.sym.contrib.foreach(inner, x, state)

    out, state = mx.sym.contrib.foreach(outer, mx.sym.var("x"), mx.sym.var("s"))
    return mx.sym.Group([out * 2, state])


def foreach_without_states(mx):
    """Outputs only, computed from something that was computed outside."""
    w = mx.sym.var("w") * 2
    out, _ = mx.sym.contrib.foreach(lambda x, s: (mx.sym.tanh(x) * w, s), mx.sym.var("x"), [])
    return out


def foreach_states_only(mx):
    """States only; the state is the data of the last step."""
    _, state = mx.sym.contrib.foreach(lambda x, s: ([], x * s + x), mx.sym.var("x"), mx.sym.var("s"))
    return state


def foreach_vector(mx):
    """Elements of a vector."""
    out, state = mx.sym.contrib.foreach(lambda x, s: (x + s, x * s), mx.sym.var("x"), mx.sym.var("s"))
    return mx.sym.Group([out, state])


def foreach_same_outputs(mx):
    """Outputs that are inputs, states or something from outside."""
    w = mx.sym.var("w")
    body = lambda x, s: ([x, s, w], s * x)  # noqa: E731
    (a, b, c), state = mx.sym.contrib.foreach(body, mx.sym.var("x"), mx.sym.var("s"))
    return mx.sym.Group([a, b, c, state])


def foreach_lstm(mx):
    """A cell of the rnn package in the body."""
    cell = mx.rnn.LSTMCell(4, prefix="lstm_")
    states = [mx.sym.var("h"), mx.sym.var("c")]
    out, last = mx.sym.contrib.foreach(lambda x, s: cell(x, s), mx.sym.var("x"), states)
    return mx.sym.Group([out, *last])


def while_sum(mx):
    """Add until a limit from outside, which the body reads as well."""
    k = mx.sym.var("k")
    step = lambda i, s: ([i + s], [i + 1, s + i + k])  # noqa: E731
    first = [mx.sym.var("i"), mx.sym.var("s")]
    outputs, states = mx.sym.contrib.while_loop(lambda i, s: i <= k, step, first, 5)
    return mx.sym.Group(outputs + states)


def while_to_the_end(mx):
    """A loop that takes all steps, with a weight that the body makes."""
    step = lambda x: (x * 2, mx.sym.FullyConnected(x, num_hidden=3, name="fc"))  # noqa: E731
    outputs, states = mx.sym.contrib.while_loop(lambda x: mx.sym.sum(x) < 1000.0, step, [mx.sym.var("x")], 3)
    return mx.sym.Group([outputs, states[0]])


def cond_both(mx):
    """A test computed outside, and branches that read the same things."""
    a, b = mx.sym.var("a"), mx.sym.var("b")
    branches = lambda: (a + 5) * (b + 5), lambda: mx.sym.broadcast_sub(a, b)
    return mx.sym.contrib.cond(mx.sym.sum(a * b) < 5, *branches)


def cond_in_foreach(mx):
    """A branch in a loop."""

    def body(x, s):
        picked = mx.sym.contrib.cond(mx.sym.sum(x) > 0, lambda: x * s, lambda: x - s)
        return picked, s + picked

    out, state = mx.sym.contrib.foreach(body, mx.sym.var("x"), mx.sym.var("s"))
    return mx.sym.Group([out, state])


SHAPES = {
    foreach_dense: {"data": (5, 2, 4), "s0": (2, 3)},
    foreach_nested_lists: {"x": (3, 2), "y": (3, 2, 2), "a": (2,), "b": (2, 2)},
    foreach_inside_foreach: {"x": (3, 2, 4), "s": (4,)}, foreach_without_states: {"x": (3, 2)},
    foreach_states_only: {"x": (4, 3)}, foreach_vector: {"x": (4,)}, foreach_same_outputs: {"x": (3, 2), "w": (2, 2)},
    foreach_lstm: {"x": (3, 2, 5), "h": (2, 4), "c": (2, 4)}, while_sum: {"i": (1,), "s": (1,), "k": (1,)},
    while_to_the_end: {"x": (2, 3), "fc_weight": (3, 3), "fc_bias": (3,)}, cond_both: {"a": (2, 3), "b": (2, 3)},
    cond_in_foreach: {"x": (4, 3), "s": (3,)},
}  # fmt: skip
BUILDERS = {build.__name__: (build, shapes) for build, shapes in SHAPES.items()}
