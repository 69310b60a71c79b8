"""`gradient()` and values after parameters have changed, after failures, and where numbers were drawn."""

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy

pytestmark = pytest.mark.usefixtures("engine")
START = np.array([0.1, 0.2, 0.3])


def weights():
    collection = dy.ParameterCollection()
    return collection, collection.parameters_from_numpy(START)


def test_a_revert_of_the_loss_takes_its_gradients():
    _, w = weights()
    inner = w * 2.0
    inner.value()
    dy.cg_checkpoint()
    dy.sum_elems(dy.tanh(inner)).backward()
    dy.cg_revert()
    with pytest.raises(dy.NoGradientError):
        inner.gradient()
    dy.sum_elems(dy.sin(inner)).backward()
    np.testing.assert_allclose(inner.gradient(), np.cos(2 * START), rtol=1e-5)


def test_gradients_of_parameters_after_others_were_reset_or_scaled():
    collection, w = weights()
    constant = dy.const_parameter(w)
    dy.sum_elems(dy.cmult(constant, w)).backward()
    collection.reset_gradient()
    for expression, wanted in ((constant, [0, 0, 0]), (w, START), (w.expr(), START)):
        np.testing.assert_allclose(expression.gradient(), wanted, rtol=1e-6)
    assert not w.grad_as_array().any()
    dy.sum_elems(w * 2.0).backward()
    dy.sum_elems(w * 3.0).backward()
    w.scale_gradient(3.0)
    np.testing.assert_allclose(w.gradient(), 3.0)
    np.testing.assert_allclose(w.grad_as_array(), 15.0)


def test_statistics_move_once_when_a_gradient_is_asked_for():
    norm = torch.nn.BatchNorm1d(3)
    normed, (_, w) = dy.wrap(norm, rows=True), weights()
    inner = [w * float(count) for count in range(4)]
    loss = dy.esum([dy.squared_norm(normed(dy.tanh(x))) for x in inner])
    loss.backward()
    value, averages = loss.value(), norm.running_mean.clone()
    assert (inner[1].gradient().shape, norm.num_batches_tracked) == ((3,), 1)
    assert torch.equal(norm.running_mean, averages)
    assert loss.value() == value


@pytest.mark.parametrize("size", [3, 40])
def test_operands_read_beside_their_concatenation(size):
    collection = weights()[0]
    start = np.linspace(0.1, 0.5, size, dtype=np.float32)
    wide = np.linspace(-0.05, 0.05, 2 * size**2, dtype=np.float32).reshape(size, 2 * size)
    narrow = np.linspace(0.01, 0.09, size**2, dtype=np.float32).reshape(size, size)
    w, first, second = (collection.parameters_from_numpy(each) for each in (start, wide, narrow))
    made = [dy.tanh(w * float(n)) for n in range(5)]
    places = [(0, 3), (1, 0), (4, 1), (2, 4), (3, 3)]  # not evenly spaced
    joined = [dy.concatenate([made[left], made[right]]) for left, right in places]
    losses = []
    for number, (both, (left, right)) in enumerate(zip(joined, places)):
        losses.append(dy.cmult(dy.tanh(first * both), dy.logistic(second * made[left])))
        if number % 2:  # only products read the other concatenations
            losses.append(dy.cmult(both[size:], made[right]))
    dy.sum_elems(dy.esum(losses)).backward()
    kept = [torch.tensor(np.tanh(start * n), dtype=torch.float32, requires_grad=True) for n in range(5)]
    whole = [torch.cat([kept[left], kept[right]]) for left, right in places]
    for number, (both, (left, right)) in enumerate(zip(whole, places)):
        both.retain_grad()
        found = torch.tanh(torch.tensor(wide) @ both) * torch.sigmoid(torch.tensor(narrow) @ kept[left])
        (found + number % 2 * both[size:] * kept[right]).sum().backward()
    for found, wanted in zip(made + joined, kept + whole):
        np.testing.assert_allclose(found.gradient(), wanted.grad.numpy(), rtol=1e-4, atol=1e-6)


def test_gradients_of_many_rows_of_a_recurrence():
    size, lanes, steps = 40, 150, 3
    source = np.random.RandomState(3)
    start, bias, wide = (
        source.uniform(-0.3, 0.3, n).astype(np.float32) for n in (size, size, (size, 2 * size))
    )
    inputs = source.uniform(-1, 1, (lanes, steps, size)).astype(np.float32)
    collection = weights()[0]
    given = [collection.parameters_from_numpy(each) for each in (start, bias, wide)]
    hub, losses = dy.tanh(given[0]), []  # all lanes read it
    for lane in inputs:
        h = hub
        for x in lane:
            h = dy.tanh(dy.affine_transform([given[1], given[2], dy.concatenate([h, dy.inputVector(x)])]))
        losses.append(dy.squared_norm(h))
    dy.esum(losses).backward()
    kept = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in (start, bias, wide)]
    h = torch.tanh(kept[0]).expand(lanes, size)
    for step in range(steps):
        h = torch.tanh(
            torch.cat([h, torch.tensor(inputs[:, step], dtype=torch.float64)], 1) @ kept[2].T + kept[1]
        )
    h.square().sum().backward()
    for found, wanted in zip(given, kept):
        np.testing.assert_allclose(found.grad_as_array(), wanted.grad.numpy(), rtol=1e-4, atol=1e-4)


CHANGES = {
    "update": lambda collection, w: dy.SimpleSGDTrainer(collection).update(),
    "update_subset": lambda collection, w: dy.SimpleSGDTrainer(collection).update_subset([0], []),
    "set_value": lambda collection, w: w.set_value(np.array([1, 2, 3])),
    **{"zero": lambda collection, w: w.zero(), "scale": lambda collection, w: w.scale(2.0)},
    "clip_inplace": lambda collection, w: w.clip_inplace(0.15, 0.25),
    "load_tensors": lambda collection, w: collection.load_tensors({w.name(): torch.ones(3)}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_parameters_that_change_leave_values_but_no_gradients(change):
    collection, w = weights()
    x = dy.inputTensor([1.0, 2.0, 3.0])
    inner = dy.cmult(w, x)  # fused into what follows in the native engine
    part, outer = inner[1], dy.sin(dy.tanh(inner)) + 1.0
    loss = dy.squared_norm(outer) + part
    lost = loss.value()
    loss.backward(full=True)
    CHANGES[change](collection, w)
    assert not np.allclose(w.as_array(), START)
    for expression in (inner, part, w, w.expr(), loss):
        with pytest.raises(dy.StateError, match=rf"parameter {w.name()} .* before trainer\.update\(\)"):
            expression.gradient()
    before = START * [1, 2, 3]
    value, slope = np.sin(np.tanh(before)) + 1, np.cos(np.tanh(before)) * (1 - np.tanh(before) ** 2)
    np.testing.assert_allclose(x.gradient(), START * (2 * value * slope + [0, 1, 0]), rtol=1e-5)
    np.testing.assert_allclose(inner.npvalue(), before, rtol=1e-6)
    np.testing.assert_allclose(outer.npvalue(), value, rtol=1e-5)
    assert loss.value() == lost
    again = dy.squared_norm(outer + inner)  # the graph goes on, from the values that there are
    assert again.value() == pytest.approx(np.square(value + before).sum(), rel=1e-5)
    dy.renew_cg()
    np.testing.assert_allclose((w * 2.0).npvalue(), 2 * w.as_array(), rtol=1e-6)


def test_zero_clears_the_gradient_of_a_parameter_but_not_of_a_table():
    collection, w = weights()
    table = collection.add_lookup_parameters((2, 3), init=1.0)
    (dy.squared_norm(w) + dy.sum_elems(table[1])).backward()
    w.zero()
    table.zero()
    dy.SimpleSGDTrainer(collection, 0.5).update()
    assert w.as_array().tolist() == [0, 0, 0]
    assert table.as_array().tolist() == [[0, 0, 0], [-0.5, -0.5, -0.5]]


@pytest.mark.parametrize("read", [lambda t: t[1], lambda t: dy.sum_batches(dy.lookup_batch(t, [0, 1]))])
def test_no_gradients_after_a_table_has_changed(read):
    (collection, w), (others, v) = weights(), weights()
    table = collection.add_lookup_parameters((2, 3), init=1.0)
    row = read(table)
    dy.sum_elems(dy.cmult(row, v)).backward()
    dy.SimpleSGDTrainer(others).restart()
    w.zero()  # the loss does not read it
    np.testing.assert_allclose(row.gradient(), START, rtol=1e-6)
    table.init_row(0, [0.0, 0.0, 0.0])
    with pytest.raises(dy.StateError, match=table.name()):
        row.gradient()


def test_weight_noise_is_drawn_in_every_graph_and_stays_in_it():
    network, found = dy.CompactVanillaLSTMBuilder(1, 3, 4, dy.ParameterCollection()), []
    network.set_weightnoise(0.5)
    for _ in range(2):
        dy.renew_cg()
        scaled = dy.inputTensor([1.0, 2.0, 3.0]) * 0.5
        x = dy.tanh(scaled)
        loss = dy.squared_norm(dy.esum([network.initial_state().transduce([x, x])[-1] for _ in range(2)]))
        loss.backward(True)
        found.append(loss.value())
        assert scaled.gradient().any()
        assert loss.value() == found[-1]
    assert found[0] != found[1]
    network.set_weightnoise(0.0)
    plain = [network.initial_state().add_input(x).output().npvalue() for _ in range(2)]
    np.testing.assert_array_equal(*plain)


def doubled(x):
    """Double a vector; the first time it is differentiated it fails."""
    calls = []

    def fails_at_first(gradient):
        calls.append(gradient)
        if len(calls) == 1:
            raise KeyError("broken")

    def function(x):
        y = 2 * x
        if y.requires_grad:
            y.register_hook(fails_at_first)
        return y

    return dy.wrap(function, rows=True)(x)


# losses of parameters and two tables; what they add to the gradient of the first table
LOSSES = [
    (lambda w, t, f: dy.dot_product(w, dy.cmult(doubled(t[1]), t[2])), [0, 2, 2, 0]),
    (lambda w, t, f: dy.dot_product(doubled(w), dy.sum_batches(dy.lookup_batch(t, [1, 2, 1]))), [0, 4, 2, 0]),
    (lambda w, t, f: dy.dot_product(doubled(w), t[1] + f[1] + dy.lookup(t, 2, update=False)), [0, 2, 0, 0]),
]


@pytest.mark.parametrize("has_gradients", [False, True])
@pytest.mark.parametrize(("make", "counts"), LOSSES)
def test_a_failing_pass_leaves_the_gradients_as_they_were(make, counts, has_gradients):
    collection, w = weights()
    table, fixed = (collection.add_lookup_parameters((4, 3), init=1.0) for _ in range(2))
    if has_gradients:
        dy.sum_elems(dy.cmult(w, table[0] + fixed[0])).backward()
    fixed.set_updated(False)
    before, inner = [each.grad_as_array() for each in (w, table, fixed)], w * 1.0
    loss = make(inner, table, fixed)
    with pytest.raises(KeyError, match="broken"):
        loss.backward()
    for each, gradient in zip((w, table, fixed), before):
        np.testing.assert_array_equal(each.grad_as_array(), gradient)
    if not has_gradients:
        with pytest.raises(dy.NoGradientError):
            inner.gradient()
    loss.backward()
    found = table.grad_as_array() - before[1]
    np.testing.assert_allclose(found, np.outer(counts, START), rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(fixed.grad_as_array(), before[2])


def test_parameters_that_are_not_updated_gather_no_gradients():
    collection, w = weights()
    table = collection.add_lookup_parameters((4, 3), init=1.0)
    for each in (w, table):
        each.set_updated(False)
    dy.sum_elems(dy.sum_batches(dy.cmult(w, dy.cmult(table[1], dy.lookup_batch(table, [1, 2]))))).backward()
    assert not w.grad_as_array().any()
    assert not table.grad_as_array().any()
    np.testing.assert_allclose(w.gradient(), 2.0)


@pytest.mark.parametrize("batches", [False, True])
def test_rows_looked_up_before_the_loss_are_updated_without_a_gradient(engine, batches):
    dy.configure(autobatch=batches)
    found = []
    for before, after in ((True, False), (False, True)):
        collection = dy.ParameterCollection()
        table = collection.lookup_parameters_from_numpy(np.ones((3, 2)))
        trainer = dy.MomentumSGDTrainer(collection, 0.1)
        dy.squared_norm(table[0]).backward()
        trainer.update()
        dy.renew_cg()
        unread = dy.tanh(table[0]) if before else None
        loss = dy.squared_norm(table[1])
        unread = dy.tanh(table[0]) if after else unread
        loss.backward()
        trainer.update()
        found.append(table.as_array()[0, 0])
    np.testing.assert_allclose(found, [0.62, 0.8], rtol=1e-6)  # DyNet's, with and without batches
