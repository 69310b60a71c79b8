"""Operations on operands of different shapes: both engines agree, and sums of gradients are exact."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule.autobatch.expression import uses_native
from helpers.both_engines import on_both
from helpers.walk import walks


@pytest.fixture(autouse=True)
def _back():
    yield
    dy.configure(engine="auto", autobatch=False, dtype="float32")


OPERATIONS = {
    "+": lambda x, y: x + y,
    "-": lambda x, y: x - y,
    "cmult": dy.cmult,
    "/": lambda x, y: x / y,
}
SHAPES = [  # of the operands; the last dimension is the minibatch
    ((3, 4, 1), (1, 1)),
    ((3, 4, 1), (3, 1)),
    ((3, 4, 1), (1, 4, 1)),
    ((3, 4, 2), (1, 1)),
    ((3, 4, 2), (3, 2)),
    ((3, 4, 2), (3, 4, 1)),
    ((3, 4, 5, 1), (1, 4, 1, 1)),
    ((3, 4, 5, 2), (3, 1, 5, 1)),
    ((7, 1), (1, 1)),
    ((7, 3), (7, 1)),
    ((1, 3), (1, 1)),
    ((1, 1, 1), (1, 1)),
    ((4, 1, 2), (1, 5, 1)),
    ((5, 1, 1), (1, 6, 1)),
]


def numbers(seed, shape):
    return np.random.RandomState(seed).uniform(0.5, 2.0, shape)


@walks(itertools.product(SHAPES, OPERATIONS, [False, True]))
def test_shapes(shapes, name, turned):
    def program():
        pairs = [
            [dy.inputTensor(numbers(10 * k + i, s), batched=True) for i, s in enumerate(shapes)]
            for k in range(3)
        ]
        shared = dy.inputTensor(numbers(77, shapes[1]), batched=True)
        pairs += [[x, shared] for x, _ in pairs]
        found = [OPERATIONS[name](*(reversed(pair) if turned else pair)) for pair in pairs]
        losses = [dy.sum_batches(dy.squared_norm(y)) for y in found]
        dy.esum(losses).backward(full=True)
        return [*dy.npvalues(found), shared.gradient(), *[x.gradient() for pair in pairs for x in pair]]

    left, right = (shapes[1], shapes[0]) if turned else shapes
    sizes = itertools.zip_longest(left[:-1], right[:-1], fillvalue=1)
    if name == "/" and any(own < other for own, other in sizes):
        for engine in ("python", "auto"):
            dy.configure(engine=engine)
            with pytest.raises(dy.ShapeError, match="right one equal 1"):
                program()
        return
    alone, batched = on_both(program)
    for one, other in zip(alone[:6], batched[:6]):
        np.testing.assert_array_equal(one, other)


def drawn_pair(draw):
    """Return shapes of two operands that go together: any number of dimensions, each there, 1 or left out."""
    rank, batch = draw.randint(1, 5), int(draw.choice([1, 2, 5]))
    full = draw.randint(1, 5, rank)
    pair = []
    for _ in range(2):
        d = np.where(draw.randint(3, size=rank) == 0, 1, full)
        while len(d) > 1 and d[-1] == 1 and draw.randint(2):
            d = d[:-1]
        pair.append((*d.tolist(), batch if draw.randint(2) else 1))
    return pair


@walks(range(200))
def test_drawn_shapes(seed):
    """Both operands of every operation anew in each example, or one of them for all examples; also inside of others."""
    draw = np.random.RandomState(seed)
    name = list(OPERATIONS)[seed % len(OPERATIONS)]
    shapes = [drawn_pair(draw) for _ in range(3)]
    if name == "/":  # the right one is not larger
        shapes = [((*np.maximum(*zip_sizes(x, y)).tolist(), x[-1]), y) for x, y in shapes]
    fused, shared = draw.randint(2), dict.fromkeys(draw.choice(3, 2).tolist())

    def program():
        operands, found = [], []
        for number, pair in enumerate([*shapes, *shapes]):
            xs = [dy.inputTensor(numbers(10 * number + i, s), batched=True) for i, s in enumerate(pair)]
            if number in shared:
                shared[number] = xs[1]
            elif number - 3 in shared:
                xs[1] = shared[number - 3]
            operands += xs
            y = OPERATIONS[name](*[dy.tanh(x) if fused else x for x in xs])
            found.append(dy.sqrt(y * 0.5 + 3) if fused else y)
        dy.esum([dy.sum_batches(dy.squared_norm(y)) for y in found]).backward(full=True)
        return [*dy.npvalues(found), *[x.gradient() for x in operands]]

    on_both(program)


def zip_sizes(x, y):
    """Return the sizes of two shapes without minibatches, of the same number of dimensions."""
    return zip(*itertools.zip_longest(x[:-1], y[:-1], fillvalue=1))


@pytest.mark.parametrize("engine", ["python", "auto"])
def test_what_does_not_fit(engine):
    dy.configure(engine=engine)
    for first, second in (((3, 4, 1), (4, 1)), ((3, 1), (2, 1)), ((3, 2), (3, 5)), ((2, 3, 1), (2, 4, 1))):
        x, y = (dy.inputTensor(np.ones(shape), batched=True) for shape in (first, second))
        for operation in OPERATIONS.values():
            with pytest.raises(dy.ShapeError):
                operation(x, y)
    x, y = dy.inputTensor(np.ones((3, 4))), dy.inputTensor(np.ones(3))
    for operation in (dy.bmax, dy.bmin):
        with pytest.raises(dy.ShapeError):
            operation(x, y)


@pytest.mark.parametrize("autobatch", [False, True])
def test_gradients_of_what_is_repeated_are_exact(autobatch):
    many, tenth = 300_000, float(np.float32(0.1))
    dy.configure(autobatch=autobatch)
    dy.renew_cg()
    number, pair = dy.scalarInput(0.5), dy.inputTensor([[0.5, 0.25]])
    wide, high = dy.inputTensor(np.full(many, 0.1)), dy.inputTensor(np.full((many, 2), 0.1))
    total = dy.sum_elems(dy.cmult(wide, number)) + dy.sum_elems(dy.cmult(high, pair))
    total.backward(full=True)
    np.testing.assert_allclose(number.gradient(), many * tenth, rtol=1e-6)
    np.testing.assert_allclose(pair.gradient(), np.full((1, 2), many * tenth), rtol=1e-6)


@pytest.mark.parametrize("autobatch", [False, True])
def test_gradients_of_what_many_nodes_read(autobatch):
    dy.configure(autobatch=autobatch)
    dy.renew_cg()
    many, third = 6_000, float(np.float32(1 / 3))
    number, vector = dy.scalarInput(0.5), dy.inputTensor([third, third])
    dy.esum([dy.sum_elems(dy.cmult(vector, number)) for _ in range(many)]).backward(full=True)
    # the Python engine adds one node's gradient after the other in float32: every sum is rounded once
    rtol = 1e-6 if uses_native() else many * np.finfo(np.float32).eps / 2
    np.testing.assert_allclose(number.gradient(), 2 * many * third, rtol=rtol)
