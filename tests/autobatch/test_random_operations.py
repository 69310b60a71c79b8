"""Operations that draw numbers, and rows of tables: masks, noise and gradients, batched and not."""

import itertools

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("setting")
MASKS = {each.__name__: each for each in (dy.dropout, dy.dropout_batch, dy.block_dropout)}
MASKS["dropout_dim"] = lambda x, rate: dy.dropout_dim(x, 0, rate)


def ones(*shape, batched=False):
    return dy.inputTensor(np.ones(shape), batched=batched)


@walks(itertools.product([False, True], MASKS))
def test_masks(is_batched, name):
    """The gradient has the mask of the value; some elements share one."""
    array = np.arange(1.0, 25.0).reshape(3, 4, 2)
    xs = [dy.inputTensor(array, batched=is_batched) for _ in range(12)]
    nodes = [MASKS[name](x, 0.5) for x in [*xs, *(ones(3, n, batched=True) for n in (1, 3, 9))]]
    dy.esum([dy.sum_batches(dy.sum_elems(dy.square(y))) for y in nodes]).backward(full=True)
    ys = np.stack(dy.npvalues(nodes[:12])) / array
    assert set(ys.ravel().tolist()) == {0.0, 2.0}
    np.testing.assert_allclose([x.gradient() for x in xs], 2 * ys**2 * array, rtol=1e-6)
    along = {"dropout": (), "dropout_dim": (1,), "dropout_batch": (1, 2), "block_dropout": (1, 2, 3)}[name]
    for axis in along if name != "dropout_batch" or is_batched else ():
        assert (ys == ys.take([0], axis)).all(), f"one mask along {axis}"


def test_gates_with_masks_and_joined_inputs():
    draw = np.random.RandomState(0)
    shapes = {"x": 2, "y": 2, "h": 3, "mx": 4, "mh": 3, "wx": (12, 4), "wh": (12, 3), "b": 12}
    arrays, found = {name: draw.uniform(-1, 1, shape) for name, shape in shapes.items()}, []
    for way in range(3):
        dy.renew_cg()
        x = {name: dy.inputTensor(array) for name, array in arrays.items()}
        joined, weights = dy.concatenate([x["x"], x["y"]]), [x[w] for w in ("wx", "wh", "b")]
        masks = [x["mx"], x["mh"]]
        if way == 0:
            gates = dy.vanilla_lstm_gates(dy.cmult(joined, x["mx"]), dy.cmult(x["h"], x["mh"]), *weights)
        elif way == 1:
            gates = dy.vanilla_lstm_gates_dropout(joined, x["h"], *weights, *masks)
        else:
            gates = dy.vanilla_lstm_gates_dropout_concat([x["x"], x["y"]], x["h"], *weights, *masks)
        dy.dot_product(gates, dy.inputTensor(np.linspace(-1, 1, 12))).backward(full=True)
        found.append([gates.npvalue(), *[each.gradient() for each in x.values()]])
    for one, *others in zip(*found):
        for other in others:
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


# what draws, and what torch draws at once for three examples
DRAWN = [
    (lambda d: dy.dropout(ones(*d), 0.3), lambda x, g: x.bernoulli_(0.7, generator=g) / 0.7),
    (lambda d: dy.noise(dy.zeros(d), 0.3), lambda x, g: x.normal_(0.0, 0.3, generator=g)),
    (lambda d: dy.random_normal(d), lambda x, g: x.normal_(0.0, 1.0, generator=g)),
    (lambda d: dy.random_normal(d, 0.5, 2.0), lambda x, g: x.normal_(0.5, 2.0, generator=g)),
    (lambda d: dy.random_uniform(d, -0.3, 1.0), lambda x, g: x.uniform_(-0.3, 1.0, generator=g)),
    (lambda d: dy.random_bernoulli(d, 0.3), lambda x, g: x.bernoulli_(0.3, generator=g)),
    (lambda d: dy.random_bernoulli(d, 0.3, 2.5), lambda x, g: x.bernoulli_(0.3, generator=g) * 2.5),
    (lambda d: dy.random_gumbel(d), lambda x, g: -x.exponential_(1.0, generator=g).log()),
]


@walks(DRAWN)
def test_a_batch_draws_what_torch_draws_at_once(make, draw):
    dy.configure(random_seed=11, autobatch=True)
    wanted = draw(torch.empty(3, 5, 10), torch.Generator().manual_seed(11)).numpy()
    nodes = [make((5, 10)) for _ in range(3)]
    np.testing.assert_allclose(np.stack(dy.npvalues(nodes)), wanted, rtol=1e-6, atol=1e-7)
    assert dy.random_normal(3, batch_size=4).dim() == ((3,), 4)


def test_drawn_numbers_stay_when_a_gradient_is_computed_again():
    """The gradient of a fused node; also behind a checkpoint, where other nodes were."""
    W, x, seen = dy.ParameterCollection().parameters_from_numpy(np.eye(50)), np.linspace(-1, 1, 50), []
    for _ in range(2):
        dy.cg_checkpoint()
        noise = [dy.random_normal(50) for _ in range(3)]
        inner = [W * (dy.inputTensor(x) + each) for each in noise]
        masked = [dy.dropout(dy.tanh(each), 0.5) for each in inner]
        masked[1] = dy.dropout(masked[1], 0.5)
        noisy = [dy.square(dy.noise(each, 0.5)) for each in masked]
        dy.esum([dy.sum_elems(each) for each in noisy]).backward(full=True)
        before, gradients = dy.npvalues([*noise, *masked, *noisy]), [each.gradient() for each in inner]
        np.testing.assert_allclose(dy.npvalues([*noise, *masked, *noisy]), before, rtol=1e-6)
        for k, gradient in enumerate(gradients):
            scale, slope = (before[3 + k] != 0) * (4 if k == 1 else 2), 1 - np.tanh(x + before[k]) ** 2
            wanted = 2 * np.sqrt(before[6 + k]) * scale * slope
            np.testing.assert_allclose(np.abs(gradient), np.abs(wanted), rtol=1e-3, atol=1e-6)
        assert not np.array_equal(noisy[0].npvalue(recalculate=True), before[6]), "recalculated: drawn anew"
        seen.append(before[3])
        dy.cg_revert()
    assert not np.array_equal(*seen)
