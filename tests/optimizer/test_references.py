"""Optimizers against ones that a user writes with array operations, over all common options."""

import itertools
import math
import warnings

import numpy as np
import pytest

import dpmodule as mx

SHAPE = (3, 4, 5)
OPTIONS = list(itertools.product([None, 0.4], [None, 0.14], [None, 0.03], [False, True]))


class Reference(mx.optimizer.Optimizer):
    """Brings the gradient into form; a subclass gives `move`."""

    decays_first = True
    slots = 2

    def create_state(self, index, weight):
        return tuple(mx.nd.zeros(weight.shape, weight.context, dtype=weight.dtype) for _ in range(self.slots))

    def update(self, index, weight, grad, state):
        self._update_count(index)
        lr, wd = self._get_lr(index), self._get_wd(index)
        grad = grad * self.rescale_grad
        if self.decays_first:
            grad += wd * weight
        if self.clip_gradient is not None:
            grad = mx.nd.clip(grad, -self.clip_gradient, self.clip_gradient)
        self.move(weight, grad, state, lr, wd, self._index_update_count[index])


class Adam(Reference):
    def __init__(self, learning_rate=0.001, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)

    def move(self, weight, grad, state, lr, wd, t):
        mean, square = state
        mean *= 0.9
        mean += grad * 0.1
        square *= 0.999
        square += 0.001 * mx.nd.square(grad)
        lr *= math.sqrt(1.0 - 0.999**t) / (1.0 - 0.9**t)
        weight -= lr * mean / (mx.nd.sqrt(square) + 1e-8)


class FTML(Reference):
    slots = 3

    def move(self, weight, grad, state, lr, wd, t):
        d, v, z = state
        v[:] = 0.999 * v + 0.001 * mx.nd.square(grad)
        new = (1.0 - 0.6**t) / lr * (mx.nd.sqrt(v / (1.0 - 0.999**t)) + 1e-8)
        z[:] = 0.6 * z + 0.4 * grad - (new - 0.6 * d) * weight
        d[:] = new
        weight[:] = -z / d


class Adamax(Reference):
    def __init__(self, learning_rate=0.002, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)

    def move(self, weight, grad, state, lr, wd, t):
        mean, top = state
        mean[:] = 0.9 * mean + 0.1 * grad
        top[:] = mx.nd.maximum(0.999 * top, mx.nd.abs(grad))
        weight[:] -= lr / (1.0 - 0.9**t) * mean / (top + 1e-8)


class LAMB(Reference):
    decays_first = False

    def __init__(self, learning_rate=0.001, **kwargs):
        super().__init__(learning_rate=learning_rate, **kwargs)

    def move(self, weight, grad, state, lr, wd, t):
        mean, square = state
        mean[:] = 0.9 * mean + 0.1 * grad
        square[:] = 0.999 * square + 0.001 * mx.nd.square(grad)
        step = mean / (1 - 0.9**t) / (mx.nd.sqrt(square / (1 - 0.999**t)) + 1e-6) + wd * weight
        size, slope = weight.norm(), step.norm()
        weight[:] -= lr * (size / slope).asscalar() * step


class Signum(Reference):
    decays_first = False
    slots = 1

    def move(self, weight, grad, state, lr, wd, t):
        (momentum,) = state
        momentum[:] = 0.9 * momentum - 0.1 * (grad + wd * weight)
        weight[:] = weight + lr * mx.nd.sign(momentum)


class SGLD(Reference):
    decays_first = False
    slots = 0

    def move(self, weight, grad, state, lr, wd, t):
        noise = mx.nd.random.normal(
            0, math.sqrt(lr), shape=weight.shape, dtype=weight.dtype, ctx=weight.context
        )
        weight[:] += -lr / 2 * (grad + wd * weight) + noise


def run(made, dtype):
    mx.random.seed(5)
    rng = np.random.RandomState(1)
    weight = mx.nd.array(rng.uniform(-1, 1, SHAPE), dtype=dtype)
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "learning_rate")
        state = made.create_state_multi_precision(0, weight)
    for _ in range(3):
        grad = mx.nd.array(rng.uniform(-1, 1, SHAPE), dtype=dtype)
        made.update_multi_precision(0, weight, grad, state)
    return weight.asnumpy()


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64"])
@pytest.mark.parametrize("reference", [Adam, FTML, Adamax, LAMB, Signum, SGLD])
def test_the_same_as_written_with_arrays(reference, dtype):
    for values in OPTIONS:
        options = dict(zip(("clip_gradient", "rescale_grad", "wd", "multi_precision"), values, strict=True))
        options = {key: value for key, value in options.items() if value is not None}
        if dtype == "float16" and not options["multi_precision"]:
            continue
        ours = run(mx.optimizer.create(reference.__name__, **options), dtype)
        theirs = run(reference(**options), dtype)
        tolerance = {"rtol": 1e-3, "atol": 1e-3} if dtype == "float16" else {"rtol": 1e-4, "atol": 1e-5}
        np.testing.assert_allclose(ours, theirs, **tolerance, err_msg=str(options))
