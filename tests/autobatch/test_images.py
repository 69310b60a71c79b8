"""Convolutions and pooling of images of different sizes, and joining along any dimension: both engines agree."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.both_engines import on_both
from helpers.walk import walks


@pytest.fixture(autouse=True)
def _back():
    yield
    dy.configure(engine="auto", autobatch=False, dtype="float32")


def uniform(seed, *shape):
    return np.random.RandomState(seed).uniform(-1, 1, shape)


SIZES = [(6, 7), (6, 7), (5, 9), (6, 7)]


@walks(
    [
        (a, b, *c, d)
        for a, b, c, d in product(
            [False, True],
            [(1, 1), (2, 3), (4, 1), (9, 9)],
            [((3, 2), 3), ((1, 1), 1), ((5, 7), 2), ((2, 5), 17)],
            ["one parameter", "two parameters", "values"],
        )
    ],
    family=lambda *row: row[-1],
)
def test_convolutions(is_valid, stride, window, channels, filters):
    def program():
        m = dy.ParameterCollection()
        f = [m.parameters_from_numpy(uniform(k, *window, channels, 4)) for k in range(2)]
        b = [m.parameters_from_numpy(uniform(k, 4)) for k in range(2)]
        images = [dy.inputTensor(uniform(k, *size, channels)) for k, size in enumerate(SIZES)]
        found = []
        for k, x in enumerate(images):
            place = k % 2 if filters == "two parameters" else 0
            f_k = f[place] if filters != "values" else dy.tanh(f[place] * (1 + k))
            found += [dy.conv2d_bias(x, f_k, b[place], stride, is_valid), dy.conv2d(x, f_k, stride, is_valid)]
        dy.esum([dy.squared_norm(y) for y in found]).backward(full=True)
        gradients = [np.zeros(1) if p.grad_as_array() is None else p.grad_as_array() for p in (*f, *b)]
        return [*dy.npvalues(found), *[x.gradient() for x in images], *gradients]

    alone, batched = on_both(program)
    if dy.explain().engine == "native":  # a value is the same batched and alone there, to the bit
        for one, other in zip(alone[:8], batched[:8]):
            np.testing.assert_array_equal(one, other)


@walks(product([False, True], [(1, 1), (2, 3), (9, 9)], [(2, 2), (1, 1), (5, 7)], [(), (1,), (5,)]))
def test_pooling(is_valid, stride, window, channels):
    def program():
        images = [dy.inputTensor(uniform(k, *size, *channels)) for k, size in enumerate(SIZES)]
        found = [dy.maxpooling2d(x, window, stride, is_valid) for x in images]
        dy.esum([dy.squared_norm(y) for y in found]).backward(full=True)
        return [*dy.npvalues(found), *[x.gradient() for x in images]]

    on_both(program)


def test_images_without_channels_and_minibatches():
    def program():
        m = dy.ParameterCollection()
        f = m.parameters_from_numpy(uniform(0, 2, 2, 1, 3))
        x, xs = dy.inputTensor(uniform(1, 4, 4)), dy.inputTensor(uniform(2, 4, 4, 1, 5), batched=True)
        ys = dy.conv2d(xs, f, (1, 1))
        found = [dy.conv2d(x, f, (1, 1)), ys, dy.maxpooling2d(ys, (2, 2), (1, 1))]
        dy.esum([dy.sum_batches(dy.squared_norm(y)) for y in found]).backward(full=True)
        return [*dy.npvalues(found), x.gradient(), xs.gradient(), f.grad_as_array()]

    on_both(program)


@pytest.mark.parametrize("engine", ["python", "auto"])
def test_the_first_of_equal_numbers_has_the_gradient(engine):
    dy.configure(engine=engine)
    x = dy.inputTensor(np.ones((2, 4, 2)))
    y = dy.maxpooling2d(x, (2, 2), (2, 2))
    dy.sum_elems(y).backward(full=True)
    wanted = np.zeros((2, 4, 2))
    wanted[0, ::2] = 1.0
    np.testing.assert_array_equal(x.gradient(), wanted)
    odd = np.ones((2, 2, 2))
    odd[1, 0, 0] = np.nan
    np.testing.assert_array_equal(
        dy.maxpooling2d(dy.inputTensor(odd), (2, 2), (1, 1)).npvalue(), [[[np.nan, 1.0]]]
    )


@pytest.mark.parametrize("engine", ["python", "auto"])
def test_what_does_not_fit(engine):
    dy.configure(engine=engine)
    x, f = dy.inputTensor(np.ones((3, 3, 2))), dy.inputTensor(np.ones((2, 2, 2, 4)))
    for call in (
        lambda: dy.conv2d(x, dy.inputTensor(np.ones((2, 2, 3, 4))), (1, 1)),
        lambda: dy.conv2d(x, dy.inputTensor(np.ones((4, 2, 2, 4))), (1, 1)),
        lambda: dy.conv2d_bias(x, f, dy.inputTensor(np.ones(3)), (1, 1)),
        lambda: dy.conv2d(dy.inputTensor(np.ones(3)), f, (1, 1)),
        lambda: dy.maxpooling2d(x, (4, 1), (1, 1)),
        lambda: dy.concatenate([x, dy.inputTensor(np.ones((3, 2, 2)))], 2),
    ):
        with pytest.raises(dy.ShapeError):
            call()
    for call in (lambda: dy.conv2d(x, f, (0, 1)), lambda: dy.maxpooling2d(x, (1, 1), (1,))):
        with pytest.raises(dy.ArgumentError):
            call()
    assert dy.conv2d(x, f, (2**40, 1)).dim() == ((1, 2, 4), 1)
    assert dy.maxpooling2d(x, (2, 2), (2**40, 1)).dim() == ((1, 2, 2), 1)


@walks(product([0, 1, 2, 3], [2, 5, 40], [1, 3]))
def test_joining_along_any_dimension(axis, count, batch):
    def program():
        parts = []
        for k in range(count):
            shape = [2, 3, 2]
            if axis < 3:
                shape[axis] = 1 + k % 3
            parts.append(dy.inputTensor(uniform(k, *shape, batch), batched=True))
        whole = dy.concatenate(parts, axis)
        weights = dy.inputTensor(uniform(99, *whole.dim()[0]))
        dy.sum_batches(dy.sum_elems(dy.cmult(whole, weights))).backward(full=True)
        return [whole.npvalue(), *[x.gradient() for x in parts]]

    on_both(program)
