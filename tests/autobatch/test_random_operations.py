"""Operations that draw numbers, and others that the table of cases leaves out: gradients, batched and not."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy


@pytest.fixture(params=[(e, b) for e in ("python", "auto") for b in (False, True)], autouse=True)
def _engine(request):
    engine, autobatch = request.param
    dy.configure(engine=engine, autobatch=autobatch)
    yield
    dy.configure(engine="auto", autobatch=False)


MASKED = {
    "dropout": lambda x: dy.dropout(x, 0.5),
    "dropout_dim": lambda x: dy.dropout_dim(x, 0, 0.5),
    "dropout_batch": lambda x: dy.dropout_batch(x, 0.5),
    "block_dropout": lambda x: dy.block_dropout(x, 0.5),
}


@pytest.mark.parametrize("is_batched", [False, True])
@pytest.mark.parametrize("name", MASKED)
def test_masks_of_values_are_those_of_gradients(name, is_batched):
    array = np.arange(1.0, 25.0).reshape(3, 4, 2)
    xs = [dy.inputTensor(array, batched=is_batched) for _ in range(6)]
    ys = [MASKED[name](x) for x in xs]
    dy.esum([dy.sum_batches(dy.sum_elems(y)) for y in ys]).backward(full=True)
    found = np.stack([x.gradient() for x in xs])
    assert set(found.ravel().tolist()) <= {0.0, 2.0}
    for x, y in zip(xs, ys):
        np.testing.assert_allclose(x.gradient() * array, y.npvalue(), rtol=1e-6)


def test_noise_passes_gradients_on():
    xs = [dy.inputTensor(np.zeros(2000)) for _ in range(2)]
    ys = [dy.noise(x, 0.5) for x in xs]
    dy.esum([dy.sum_elems(y * 3) for y in ys]).backward(full=True)
    np.testing.assert_array_equal(xs[1].gradient(), np.full(2000, 3.0))
    drawn = np.stack([y.npvalue() for y in ys])
    assert drawn.std() == pytest.approx(0.5, rel=0.1)
    assert abs(np.corrcoef(drawn)[0, 1]) < 0.1, "every node draws its own numbers"


def test_gates_with_masks_and_joined_inputs():
    draw = np.random.RandomState(0)
    shapes = {"x": 2, "y": 2, "h": 3, "mx": 4, "mh": 3, "wx": (12, 4), "wh": (12, 3), "b": 12}
    arrays = {name: draw.uniform(-1, 1, shape) for name, shape in shapes.items()}

    def run(function):
        dy.renew_cg()
        x = {name: dy.inputTensor(array) for name, array in arrays.items()}
        gates = function(x, dy.concatenate([x["x"], x["y"]]))
        dy.dot_product(gates, dy.inputTensor(np.linspace(-1, 1, 12))).backward(full=True)
        return [gates.npvalue(), *[each.gradient() for each in x.values()]]

    def spelled(x, joined):
        masked = dy.cmult(joined, x["mx"]), dy.cmult(x["h"], x["mh"])
        return dy.vanilla_lstm_gates(*masked, x["wx"], x["wh"], x["b"])

    weights = ("wx", "wh", "b", "mx", "mh")
    wanted = run(spelled)
    for function in (
        lambda x, joined: dy.vanilla_lstm_gates_dropout(joined, x["h"], *[x[w] for w in weights]),
        lambda x, joined: dy.vanilla_lstm_gates_dropout_concat(
            [x["x"], x["y"]], x["h"], *[x[w] for w in weights]
        ),
    ):
        for one, other in zip(wanted, run(function)):
            np.testing.assert_allclose(other, one, rtol=1e-4, atol=1e-5)


def test_rows_of_tables():
    m = dy.ParameterCollection()
    table = m.lookup_parameters_from_numpy(np.arange(8.0).reshape(4, 2))
    row, rows, constant = dy.lookup(table, 1), dy.lookup_batch(table, [3, 1, 3]), dy.lookup(table, 2, False)
    loss = dy.sum_elems(row * 5) + dy.sum_batches(dy.sum_elems(rows)) + dy.sum_elems(constant)
    assert loss.value() == 5 * 5 + (13 + 5 + 13) + 9
    loss.backward()
    np.testing.assert_array_equal(table.grad_as_array(), [[0, 0], [6, 6], [0, 0], [2, 2]])


def test_to_device_is_the_identity():
    x = dy.inputTensor([1.0, 2.0])
    y = dy.to_device(x, "CPU")
    dy.squared_norm(y).backward(full=True)
    assert y.vec_value() == [1.0, 2.0]
    np.testing.assert_array_equal(x.gradient(), [2.0, 4.0])


def drawn(count, **options):
    """Return the values of some nodes that draw, of one seed."""
    dy.configure(random_seed=11, **options)
    dy.renew_cg()
    W = dy.ParameterCollection().parameters_from_numpy(np.ones((4, 4)))
    nodes = []
    for k in range(count):
        x = dy.tanh(W * dy.inputTensor(np.full(4, 0.01 * k)))
        nodes.append(dy.dropout(dy.noise(x, 0.1), 0.1) + dy.dropout(x, 0.3))
        nodes.append(dy.dropout(dy.inputTensor(np.ones((4, 3)), batched=True), 1 / 3))
    nodes += [dy.noise(W, 0.5), dy.dropout(W, 0.5), dy.dropout(W, 1.0), dy.dropout(W, 0)]
    return [each.ravel() for each in dy.npvalues(nodes)]


def test_a_seed_draws_the_same_on_both_engines():
    for one, other in zip(
        drawn(5, engine="python", autobatch=False), drawn(5, engine="auto", autobatch=False)
    ):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-7)


def test_a_batch_draws_what_torch_draws_at_once():
    dy.configure(random_seed=11, autobatch=True)
    nodes = [dy.dropout(dy.inputTensor(np.ones(50)), 0.3) for _ in range(4)]
    mask = torch.empty(4, 50).bernoulli_(1 - 0.3, generator=torch.Generator().manual_seed(11)) / (1 - 0.3)
    np.testing.assert_array_equal(np.stack(dy.npvalues(nodes)), mask.numpy())
    dy.configure(random_seed=11)
    dy.renew_cg()
    nodes = [dy.noise(dy.inputTensor(np.zeros(50)), 0.3) for _ in range(4)]
    noise = torch.empty(4, 50).normal_(0.0, 0.3, generator=torch.Generator().manual_seed(11))
    np.testing.assert_array_equal(np.stack(dy.npvalues(nodes)), noise.numpy())


def test_what_has_been_drawn_stays_when_a_gradient_is_computed_again():
    """That of a node inside of what the engine computes in one go."""
    W = dy.ParameterCollection().parameters_from_numpy(np.eye(50))
    inner = [W * dy.inputTensor(np.linspace(-1, 1, 50)) for _ in range(3)]
    masked = [dy.dropout(dy.tanh(x), 0.5) for x in inner]
    noisy = [dy.square(dy.noise(x, 0.5)) for x in masked]
    dy.esum([dy.sum_elems(x) for x in noisy]).backward(full=True)
    before = dy.npvalues([*masked, *noisy])
    gradients = [x.gradient() for x in inner]
    after = dy.npvalues([*masked, *noisy])
    np.testing.assert_allclose(np.stack(after), np.stack(before), rtol=1e-6)
    for gradient, mask, sums in zip(gradients, before[:3], before[3:]):
        slope = 1 - np.tanh(np.linspace(-1, 1, 50)) ** 2
        np.testing.assert_allclose(
            np.abs(gradient), np.abs(2 * np.sqrt(sums) * 2 * (mask != 0) * slope), rtol=1e-4
        )
    assert not np.array_equal(noisy[0].npvalue(recalculate=True), after[3]), "recalculated: drawn anew"


def test_numbers_of_nodes_that_are_gone_are_not_used():
    x = dy.inputTensor(np.ones(50))
    W = dy.ParameterCollection().parameters_from_numpy(np.eye(50))
    seen = []
    for _ in range(2):
        dy.cg_checkpoint()
        inner = W * x
        masked = dy.dropout(dy.tanh(inner), 0.5)
        dy.sum_elems(masked).backward(full=True)
        seen.append(masked.npvalue())
        np.testing.assert_array_equal(inner.gradient() != 0, seen[-1] != 0)
        dy.cg_revert()
    assert not np.array_equal(*seen)
