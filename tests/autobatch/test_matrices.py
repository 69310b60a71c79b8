"""Matrices: values by numpy's formulas, gradients by differences of these; batched, alone, and of nodes fused away."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("setting")


def softmax(x, axis=0):
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def upright(x):
    return x.reshape(len(x), -1)


# (shapes of the operands, what this package computes, what numpy does)
CASES = {
    "matrices": (((5, 4), (4, 3)), lambda a, b: a * b, lambda a, b: a @ b),
    "large": (((37, 70), (70, 41)), lambda a, b: a * b, lambda a, b: a @ b),
    "larger": (
        ((130, 131), (131, 3)),
        lambda a, b: dy.tanh(a * dy.tanh(b)),
        lambda a, b: np.tanh(a @ np.tanh(b)),
    ),
    "row_matrix": (((1, 6), (6, 20)), lambda a, b: a * b, lambda a, b: a @ b),
    "two_rows": (((2, 6), (6, 20)), lambda a, b: a * b, lambda a, b: a @ b),
    "matrix_column": (((20, 6), (6, 1)), lambda a, b: a * b, lambda a, b: a @ b),
    "matrix_vector": (((20, 6), (6,)), lambda a, b: a * b, lambda a, b: a @ b),
    "column_row": (((5, 1), (1, 4)), lambda a, b: a * b, lambda a, b: a @ b),
    "vector_row": (((5,), (1, 4)), lambda a, b: a * b, lambda a, b: upright(a) @ b),
    "square": (((4, 4),), lambda a: a * a, lambda a: a @ a),
    "large_square": (((130, 130),), lambda a: a * a * 0.1, lambda a: a @ a * 0.1),
    "both_sides": (
        ((3, 3), (3, 2)),
        lambda w, x: w * dy.tanh(w * x) + dy.tanh(w * x),
        lambda w, x: w @ np.tanh(w @ x) + np.tanh(w @ x),
    ),
    "quadratic": (((4, 3), (4, 4)), lambda x, w: dy.transpose(x) * w * x, lambda x, w: x.T @ w @ x),
    "colwise_add": (((20, 7), (20,)), dy.colwise_add, lambda x, c: x + upright(c)),
    "colwise_add_column": (((5, 7), (5, 1)), dy.colwise_add, lambda x, c: x + c),
    "colwise_add_to_column": (((5, 1), (5,)), dy.colwise_add, lambda x, c: x + upright(c)),
    "add_column": (((5, 7), (5,)), lambda x, c: c + x, lambda x, c: x + upright(c)),
    "column_plus_vector": (((5, 1), (5,)), lambda x, y: x + y, lambda x, y: x + upright(y)),
    "vector_minus_column": (((5,), (5, 1)), lambda x, y: x - y, lambda x, y: upright(x) - y),
    "vector_times_column": (((5,), (5, 1)), dy.cmult, lambda x, y: upright(x) * y),
    "fused": (
        ((6, 5), (5, 7), (6,), (1, 6)),
        lambda w, x, c, v: v * dy.tanh(dy.colwise_add(w * x, c)),
        lambda w, x, c, v: v @ np.tanh(w @ x + upright(c)),
    ),
    "concatenate_cols": (
        ((5,), (5, 1), (5, 3), (5,), (5,), (5,)),
        lambda *xs: dy.concatenate_cols(list(xs)),
        lambda *xs: np.hstack([upright(x) for x in xs]),
    ),
    "concatenate_cols_many": (
        ((3,),) * 19,
        lambda *xs: dy.concatenate_cols(list(xs)),
        lambda *xs: np.stack(xs, 1),
    ),
    "concatenate_same": (((3,),), lambda x: dy.concatenate_cols([x, x, x]), lambda x: np.stack([x, x, x], 1)),
    "concatenate_rows": (
        ((2, 3), (1, 3)),
        lambda x, y: dy.concatenate([x, y]),
        lambda x, y: np.concatenate([x, y]),
    ),
    "concatenate_column_vector": (
        ((4, 1), (3,)),
        lambda x, y: dy.concatenate([x, y]),
        lambda x, y: np.concatenate([x, upright(y)]),
    ),
    "transpose": (((5, 3),), dy.transpose, lambda x: x.T),
    "transpose_vector": (((5,),), dy.transpose, lambda x: x[None]),
    "transpose_row": (((1, 5),), dy.transpose, lambda x: x.T),
    "transpose_column": (((5, 1),), dy.transpose, lambda x: x.T),
    "transpose_number": (((1,),), dy.transpose, lambda x: x),
    "reshape_to_vector": (((3, 4),), lambda x: dy.reshape(x, (12,)), lambda x: x.ravel("F")),
    "reshape_to_matrix": (((12,),), lambda x: dy.reshape(x, (3, 4)), lambda x: x.reshape(3, 4, order="F")),
    "reshape_matrix": (((6, 2),), lambda x: dy.reshape(x, (3, 4)), lambda x: x.reshape(3, 4, order="F")),
    "reshape_column": (((6, 1),), lambda x: dy.reshape(x, (1, 6)), lambda x: x.reshape(1, 6)),
    "row": (((4, 3),), lambda x: x[1], lambda x: x[1]),
    "last_row": (((4, 3),), lambda x: x[-1], lambda x: x[-1]),
    "rows": (((5, 3),), lambda x: x[1:4], lambda x: x[1:4]),
    "overlapping_rows": (
        ((5, 3),),
        lambda x: dy.cmult(x[1:4], x[2:5]) + x[:3],
        lambda x: x[1:4] * x[2:5] + x[:3],
    ),
    "pick_row": (((4, 3),), lambda x: dy.pick(x, 2), lambda x: x[2]),
    "pick_column": (((4, 3),), lambda x: dy.pick(x, 2, 1), lambda x: x[:, 2]),
    "pick_of_row": (((1, 3),), lambda x: dy.pick(x, 2, 1), lambda x: x[:, 2]),
    "pick_of_column": (((3, 1),), lambda x: dy.pick(x, 2), lambda x: x[2]),
    "columns": (((4, 5),), lambda x: dy.pick_range(x, 1, 4, 1), lambda x: x[:, 1:4]),
    "part_of_row": (((1, 5),), lambda x: dy.pick_range(x, 1, 4, 1), lambda x: x[:, 1:4]),
    "slab": (((2, 3, 4),), lambda x: x[1], lambda x: x[1]),
    "slabs": (((3, 2, 4),), lambda x: x[1:3], lambda x: x[1:3]),
    "concatenate_slabs": (
        ((1, 3, 2), (2, 3, 2)),
        lambda x, y: dy.concatenate([x, y]),
        lambda x, y: np.concatenate([x, y]),
    ),
    "reshape_line": (((1, 1, 5),), lambda x: dy.reshape(x, (5,)), lambda x: x.reshape(5)),
    "softmax_column": (((7, 1),), dy.softmax, softmax),
    "softmax_columns": (((7, 3),), dy.softmax, softmax),
    "softmax_rows": (((3, 7),), lambda x: dy.softmax(x, d=1), lambda x: softmax(x, 1)),
    "softmax_row": (((1, 7),), lambda x: dy.softmax(x, d=1), lambda x: softmax(x, 1)),
    "softmax_of_ones": (((1, 7),), dy.softmax, np.ones_like),
    "log_softmax_column": (((7, 1),), dy.log_softmax, lambda x: np.log(softmax(x))),
    "log_softmax_columns": (((7, 3),), dy.log_softmax, lambda x: np.log(softmax(x))),
    "loss_of_column": (
        ((7, 1),),
        lambda x: dy.pickneglogsoftmax(x, 2),
        lambda x: -np.log(softmax(x))[2],
    ),
    "affine": (
        ((5,), (5, 4), (4, 3)),
        lambda b, w, x: dy.affine_transform([b, w, x]),
        lambda b, w, x: upright(b) + w @ x,
    ),
    "affine_matrices": (
        ((5, 3), (5, 4), (4, 3), (5, 2), (2, 3)),
        lambda b, *xs: dy.affine_transform([b, *xs]),
        lambda b, w, x, u, y: b + w @ x + u @ y,
    ),
    "affine_column": (
        ((5,), (5, 4), (4, 1), (5, 2), (2,)),
        lambda b, *xs: dy.affine_transform([b, *xs]),
        lambda b, w, x, u, y: b + w @ x[:, 0] + u @ y,
    ),
    "affine_vectors": (
        ((5,), (5, 4), (4,)),
        lambda b, w, x: dy.affine_transform([b, w, x]),
        lambda b, w, x: b + w @ x,
    ),
    "affine_column_bias": (
        ((5, 1), (5, 4), (4,)),
        lambda b, w, x: dy.affine_transform([b, w, x]),
        lambda b, w, x: b[:, 0] + w @ x,
    ),
}


def slopes(function, arrays, place, weights, elements):
    """Return the derivatives of the weighted sum of a numpy function with respect to elements of one operand."""
    found, step = [], 1e-5
    for at in elements:
        ends = []
        for sign in (1, -1):
            moved = [x.copy() for x in arrays]
            moved[place].flat[at] += sign * step
            ends.append((weights * function(*moved)).sum())
        found.append((ends[0] - ends[1]) / (2 * step))
    return np.array(found)


def some(place, array):
    """Return the places of at most 40 elements of an operand."""
    return np.random.RandomState(place).permutation(array.size)[:40]


@walks(product([False, True], CASES))
def test_as_numpy(are_parameters, name):
    """Three examples in one graph; parameters are those of all of them."""
    shapes, ours, theirs = CASES[name]
    draw = np.random.RandomState(len(name))
    dy.renew_cg()
    m = dy.ParameterCollection()
    shared = [draw.uniform(-1, 1, shape) for shape in shapes]
    parameters = [m.parameters_from_numpy(x) for x in shared]
    examples, losses = [], []
    for _ in range(3):
        arrays = shared if are_parameters else [draw.uniform(-1, 1, shape) for shape in shapes]
        xs = parameters if are_parameters else [dy.inputTensor(x) for x in arrays]
        y = ours(*xs)
        wanted = theirs(*arrays)
        assert y.dim() == (wanted.shape, 1)
        weights = draw.uniform(-1, 1, wanted.shape)
        losses.append(dy.dot_product(y, dy.inputTensor(weights)))
        examples.append((arrays, xs, y, wanted, weights))
    dy.esum(losses).backward(full=True)
    totals = [0.0] * len(shapes)
    for arrays, xs, y, wanted, weights in examples:
        np.testing.assert_allclose(y.npvalue(), wanted, rtol=1e-5, atol=1e-5)
        for place, x in enumerate(xs):
            elements = some(place, arrays[place])
            found = slopes(theirs, arrays, place, weights, elements)
            totals[place] = totals[place] + found
            if not are_parameters:
                np.testing.assert_allclose(x.gradient().flat[elements], found, rtol=1e-4, atol=2e-5)
    for place, wanted in enumerate(totals if are_parameters else ()):
        gradient = parameters[place].grad_as_array().flat[some(place, shared[place])]
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4, atol=5e-5)


class Attention:
    """A decoder that looks at the columns of a matrix, one example of which is a list of numbers."""

    def __init__(self, updated=True):
        draw = np.random.RandomState(3)
        self.m = dy.ParameterCollection()
        shapes = {"w1": (6, 5), "w2": (6, 5), "v": (1, 6), "u": (5, 10), "o": (4, 5)}
        self.p = {n: self.m.parameters_from_numpy(draw.uniform(-1, 1, shape)) for n, shape in shapes.items()}
        self.words = self.m.lookup_parameters_from_numpy(draw.uniform(-1, 1, (9, 5)))
        if not updated:
            self.p = {n: dy.const_parameter(p) for n, p in self.p.items()}
        self.inner = []

    def loss(self, example):
        p = self.p
        states = dy.concatenate_cols([self.words[i] for i in example])
        keys, state, losses = p["w1"] * states, self.words[0], []
        for i in example[:4]:
            mixed = dy.tanh(dy.colwise_add(keys, p["w2"] * state))
            scores = p["v"] * mixed
            share = dy.softmax(dy.transpose(scores))
            context = states * share
            state = dy.tanh(p["u"] * dy.concatenate([context, self.words[i]]))
            losses.append(dy.pickneglogsoftmax(p["o"] * state, i % 4))
            self.inner += [mixed, scores, share, context]
        return dy.esum(losses)

    def gradients(self):
        found = [p.grad_as_array() for p in (*self.m.parameters_list(), self.words)]
        self.m.reset_gradient()
        return found


EXAMPLES = [[1, 2, 3], [4, 5, 6, 7, 8], [3, 1, 2], [5, 5], [6], [7, 1, 1, 2, 8, 3, 4]]


@pytest.fixture
def reference(setting):
    """Return what the engine in Python computes with 64 bits, one operation at a time."""
    engine, autobatch = setting
    dy.configure(engine="python", autobatch=False, dtype="float64")
    dy.renew_cg()
    net = Attention()
    loss = dy.esum([net.loss(each) for each in EXAMPLES])
    loss.backward(full=True)
    values = [x.npvalue() for x in net.inner]
    inner = [x.gradient() for x in net.inner]
    found = loss.value(), net.gradients(), values, inner
    dy.configure(engine=engine, autobatch=autobatch, dtype="float32")
    return found


def close(found, wanted):
    assert len(found) == len(wanted)
    for one, other in zip(found, wanted):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("asked", ["never", "before", "after"])
def test_attention(asked, reference):
    """Values of what was fused away: asked for before the rest is computed, after it, not at all."""
    value, gradients, values, inner = reference
    dy.renew_cg()
    net = Attention()
    losses = []
    for example in EXAMPLES:
        losses.append(net.loss(example))
        if asked == "before":
            net.inner[-4].value()
    loss = dy.esum(losses)
    assert loss.value() == pytest.approx(value, rel=1e-5)
    if asked == "after":
        close([x.npvalue() for x in net.inner], values)
    loss.backward(full=True)
    close([x.gradient() for x in net.inner], inner)
    close(net.gradients(), gradients)


def test_a_reverted_part_leaves_nothing(reference):
    value, gradients, _, _ = reference
    dy.renew_cg()
    net = Attention()
    first = [net.loss(each) for each in EXAMPLES[:3]]
    dy.cg_checkpoint()
    wrong = net.loss([8, 8, 8, 8])
    wrong.value()
    dy.cg_revert()
    loss = dy.esum([*first, *[net.loss(each) for each in EXAMPLES[3:]]])
    assert loss.value() == pytest.approx(value, rel=1e-5)
    loss.backward()
    close(net.gradients(), gradients)


def test_constant_matrices_have_no_gradient(reference):
    _, gradients, _, _ = reference
    dy.renew_cg()
    net = Attention(updated=False)
    dy.esum([net.loss(each) for each in EXAMPLES]).backward()
    found = net.gradients()
    close(found[-1:], gradients[-1:])
    assert not any(each.any() for each in found[:-1])


def test_a_matrix_that_nobody_differentiates():
    m = dy.ParameterCollection()
    w = m.parameters_from_numpy(np.array([[1.0, -2.0], [0.5, 3.0]]))
    x, y = np.array([[1.0, 2.0, 0.0], [3.0, -1.0, 1.0]]), np.array([[2.0], [1.0], [-1.0]])
    dy.sum_elems(w * dy.inputTensor(x) * dy.inputTensor(y)).backward()
    np.testing.assert_allclose(w.grad_as_array(), np.ones((2, 1)) @ (x @ y).T)


def test_minibatches_as_before():
    draw = np.random.RandomState(0)
    m = dy.ParameterCollection()
    w, x = draw.uniform(-1, 1, (3, 4)), draw.uniform(-1, 1, (4, 2, 5))
    p, e = m.parameters_from_numpy(w), dy.inputTensor(x, batched=True)
    y = dy.colwise_add(p * e, p[:3][0:3] * dy.inputTensor([1.0, 1.0, 1.0, 1.0]))
    wanted = np.einsum("ij,jkb->ikb", w, x) + w.sum(1)[:, None, None]
    np.testing.assert_allclose(y.npvalue(), wanted, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(dy.transpose(y).npvalue(), wanted.transpose(1, 0, 2), rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(y[1].npvalue(), wanted[1], rtol=1e-5, atol=1e-6)


def test_matrices_of_attention_need_no_calls():
    dy.renew_cg()
    net = Attention()
    dy.esum([net.loss(each) for each in EXAMPLES]).value()
    found = dy.explain()
    if found.engine != "native":
        assert "colwise_add" in {row.operation for row in found.rows}
        return
    operations = [dy.cg().operation(each) for kinds, *_ in dy.cg().machine.batches() for each in kinds]
    assert not [each.name for each in operations if each.call is not None], "these run in torch"
    names = " + ".join(row.operation for row in found.rows)
    for name in ("concatenate", "colwise_add", "tanh", "multiply", "softmax", "pickneglogsoftmax"):
        assert name in names
    if found.is_batched:
        assert "colwise_add + tanh + multiply" in {row.operation for row in found.rows}


def test_what_does_not_fit():
    x, y = dy.inputTensor(np.ones((3, 4))), dy.inputTensor(np.ones((3, 2)))
    for wrong in (
        lambda: x * y,
        lambda: dy.colwise_add(x, dy.inputTensor([1.0, 2.0])),
        lambda: dy.concatenate([x, y]),
        lambda: dy.affine_transform([y, x, y]),
        lambda: dy.reshape(x, (5, 3)),
        lambda: dy.softmax(x, d=2),
        lambda: dy.pick_range(x, 2, 5, 1),
        lambda: dy.bmax(dy.inputTensor([1.0]), dy.inputTensor([[1.0]])),
    ):
        with pytest.raises(dy.errors.ShapeError):
            wrong()
    for index in (3, -4):
        with pytest.raises(dy.errors.BoundsError):
            x[index]
    with pytest.raises(dy.errors.BoundsError):
        dy.pick(x, 4, 1)


@pytest.mark.parametrize("size", [2, 40])
def test_a_matrix_without_an_inverse(size):
    x = dy.inputTensor(np.ones((size, size)))
    with pytest.raises(dy.errors.ArgumentError, match="singular"):
        dy.inverse(x).value()
    dy.renew_cg()
    np.testing.assert_allclose(dy.inverse(dy.inputTensor(np.eye(2) * 2)).npvalue(), np.eye(2) / 2)
