"""Operations that draw numbers, and others that the table of cases leaves out: gradients, batched and not."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from helpers.walk import walks


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


@walks(product([False, True], MASKED))
def test_masks_of_values_are_those_of_gradients(is_batched, name):
    array = np.arange(1.0, 25.0).reshape(3, 4, 2)
    xs = [dy.inputTensor(array, batched=is_batched) for _ in range(6)]
    ys = [MASKED[name](x) for x in xs]
    dy.esum([dy.sum_batches(dy.sum_elems(y)) for y in ys]).backward(full=True)
    found = np.stack([x.gradient() for x in xs])
    assert set(found.ravel().tolist()) <= {0.0, 2.0}
    for x, y in zip(xs, ys):
        np.testing.assert_allclose(x.gradient() * array, y.npvalue(), rtol=1e-6)


@walks(range(50))
def test_masks_of_examples_with_and_without_minibatches(seed):
    """Several sizes of minibatches, shapes and rates in one graph, alone and inside of other operations."""
    dy.configure(random_seed=seed)
    draw = np.random.RandomState(seed)
    m = dy.ParameterCollection()
    table = m.lookup_parameters_from_numpy(draw.uniform(1, 2, (5, 3)))
    row = m.parameters_from_numpy(draw.uniform(1, 2, 3))
    rows = []
    for _ in range(8):
        batch, rate = int(draw.choice([1, 2, 3, 9])), float(draw.choice([0.0, 0.25, 0.5]))
        kind = ["dropout", "dropout_dim", "dropout_batch", "block_dropout"][draw.randint(4)]
        place = draw.randint(4)
        if place == 0:
            x = dy.inputTensor(draw.uniform(1, 2, (3, 2, batch)), batched=True)
        elif place == 1:
            x = dy.lookup_batch(table, draw.randint(0, 5, batch).tolist())
        elif place == 2:
            x = dy.cmult(dy.inputTensor(draw.uniform(1, 2, (3, batch)), batched=True), row)
        else:
            x = table[int(draw.randint(5))] + 0.0
        y = dy.dropout_dim(x, 0, rate) if kind == "dropout_dim" else getattr(dy, kind)(x, rate)
        rows.append(
            (x, y, dy.sum_batches(dy.sum_elems(dy.square(y) if draw.randint(2) else y * 3)), kind, rate)
        )
    dy.esum([loss for *_, loss, _, _ in rows]).backward(full=True)
    for x, y, _, kind, rate in rows:
        value, before, slope = y.npvalue(), x.npvalue(), x.gradient()
        kept = value != 0
        assert kept.all() or rate > 0
        scale = value[kept] / before[kept]
        if kind != "block_dropout":
            np.testing.assert_allclose(scale, 1 / (1 - rate), rtol=1e-6)
        else:
            assert kept.all() or not kept.any()
        np.testing.assert_array_equal(slope != 0, kept)
        assert np.allclose(slope[kept], 3 * scale, rtol=1e-5) or np.allclose(
            slope[kept], 2 * value[kept] * scale, rtol=1e-5
        )


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


def test_to_device_takes_the_device_of_the_graph_only():
    with pytest.raises(dy.ArgumentError, match="Invalid device name: GPU:0; this graph is on CPU"):
        dy.to_device(dy.inputTensor([1.0, 2.0]), "GPU:0")


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
        batch = dy.inputTensor(np.full((4, k + 1), 0.5), batched=True)
        nodes.append(dy.tanh(W * dy.dropout(batch, 0.5)) + dy.noise(dy.cmult(batch, x), 0.2))
        nodes.append(dy.random_normal(4, 0.0, 1.0, k + 1) * 0.5 + dy.dropout_batch(batch, 0.5))
        nodes.append(dy.block_dropout(x, 0.5) + dy.dropout_dim(W * 1.0, k % 2, 0.4))
        nodes.append(dy.dropout_batch(dy.inputTensor(np.ones((4, 3)), batched=True), 0.5))
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


RANDOM = {
    "normal": (lambda d: dy.random_normal(d), lambda x, g: x.normal_(0.0, 1.0, generator=g)),
    "other normal": (lambda d: dy.random_normal(d, 0.5, 2.0), lambda x, g: x.normal_(0.5, 2.0, generator=g)),
    "uniform": (lambda d: dy.random_uniform(d, -0.3, 1.0), lambda x, g: x.uniform_(-0.3, 1.0, generator=g)),
    "bernoulli": (lambda d: dy.random_bernoulli(d, 0.3), lambda x, g: x.bernoulli_(0.3, generator=g)),
    "scaled bernoulli": (
        lambda d: dy.random_bernoulli(d, 0.3, 2.5),
        lambda x, g: x.bernoulli_(0.3, generator=g) * 2.5,
    ),
    "gumbel": (lambda d: dy.random_gumbel(d), lambda x, g: -x.exponential_(1.0, generator=g).log()),
}


@walks(RANDOM)
def test_random_inputs_are_what_torch_draws_at_once(name):
    make, draw = RANDOM[name]
    dy.configure(random_seed=11, autobatch=True)
    nodes = [make((5, 10)) for _ in range(3)]
    wanted = draw(torch.empty(3, 5, 10), torch.Generator().manual_seed(11)).numpy()
    np.testing.assert_allclose(np.stack(dy.npvalues(nodes)), wanted, rtol=1e-6, atol=1e-7)
    assert dy.random_normal(3, batch_size=4).dim() == ((3,), 4)


def test_random_inputs_stay_when_a_gradient_is_computed_again():
    W = dy.ParameterCollection().parameters_from_numpy(np.eye(20))
    noise = [dy.random_normal(20) for _ in range(3)]
    inner = [W * x for x in noise]
    dy.esum([dy.sum_elems(dy.tanh(x)) for x in inner]).backward(full=True)
    before = dy.npvalues(noise)
    for x, drawn_before in zip(inner, before):
        np.testing.assert_allclose(x.gradient(), 1 - np.tanh(drawn_before) ** 2, rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(dy.npvalues(noise), before)


@walks(
    [
        lambda: dy.random_normal(3, 0.0, -1.0),
        lambda: dy.random_normal(3, np.inf),
        lambda: dy.random_uniform(3, 1.0, 0.0),
        lambda: dy.random_bernoulli(3, 1.5),
        lambda: dy.random_gumbel(3, 0.0, np.nan),
        lambda: dy.dropout(dy.scalarInput(1.0), 1.5),
        lambda: dy.noise(dy.scalarInput(1.0), -0.5),
    ]
)
def test_numbers_that_nothing_can_be_drawn_with(call):
    with pytest.raises(dy.ArgumentError):
        call()


def test_rows_of_a_minibatch_in_one_batch():
    m = dy.ParameterCollection()
    table = m.lookup_parameters_from_numpy(np.arange(24.0).reshape(4, 2, 3))
    found = [dy.lookup_batch(table, rows) for rows in ([3, 1, 3], (0, 2, 1), np.array([1, 1, 1]), [2])]
    assert [x.dim() for x in found] == [((2, 3), 3)] * 3 + [((2, 3), 1)]
    weights = [1.0, 2.0, 4.0, 8.0]
    dy.esum([dy.sum_batches(dy.sum_elems(x * w)) for x, w in zip(found, weights)]).backward()
    values = np.arange(24.0).reshape(4, 2, 3)
    for x, rows in zip(found, ([3, 1, 3], [0, 2, 1], [1, 1, 1])):
        np.testing.assert_array_equal(x.npvalue(), np.moveaxis(values[rows], 0, -1))
    counts = [2.0, 1 + 2 + 4 * 3, 2 + 8, 2]
    np.testing.assert_array_equal(
        table.grad_as_array(), np.broadcast_to(np.array(counts)[:, None, None], (4, 2, 3))
    )
    for rows, error in (([4], dy.BoundsError), ([-1], dy.NegativeIndexError), ([], dy.EmptySequenceError)):
        with pytest.raises(error):
            dy.lookup_batch(table, rows)


@walks([2, 3, 2.0, 1, 0.5])
def test_powers(exponent):
    x = dy.inputTensor([0.5, 2.0, 3.0])
    y = x**exponent
    dy.sum_elems(y).backward(full=True)
    numbers = np.array([0.5, 2.0, 3.0])
    np.testing.assert_allclose(y.npvalue(), numbers**exponent, rtol=1e-6)
    np.testing.assert_allclose(x.gradient(), exponent * numbers ** (exponent - 1), rtol=1e-6)
    with pytest.raises(TypeError):
        pow(x, exponent, 2)
