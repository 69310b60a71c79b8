"""`gradient()` of expressions: what it is after other things have happened, on every engine."""

from __future__ import annotations

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy

pytestmark = pytest.mark.usefixtures("engine")


def weights():
    collection = dy.ParameterCollection()
    return collection, collection.parameters_from_numpy(np.array([0.1, 0.2, 0.3]))


@pytest.mark.parametrize("is_computed", [False, True])
def test_a_revert_keeps_what_began_before_the_checkpoint(is_computed):
    collection, w = weights()
    inner = w * 2.0
    loss = dy.sum_elems(dy.tanh(inner))
    if is_computed:
        loss.backward()
    dy.cg_checkpoint()
    later = dy.tanh(inner)
    if not is_computed:
        loss.backward()
    later.value()
    dy.cg_revert()
    wanted = 1 - np.tanh([0.2, 0.4, 0.6]) ** 2
    for _ in range(2):
        np.testing.assert_allclose(inner.gradient(), wanted, rtol=1e-5)
        np.testing.assert_allclose(w.gradient(), 2 * wanted, rtol=1e-5)
        with pytest.raises(dy.StateError, match="called twice"):
            loss.backward()
        dy.sum_elems(dy.sin(inner)).value()  # the graph goes on
    np.testing.assert_allclose(w.grad_as_array(), 2 * wanted, rtol=1e-5)


def test_a_revert_of_the_loss_takes_its_gradients():
    collection, w = weights()
    inner = w * 2.0
    inner.value()
    dy.cg_checkpoint()
    dy.sum_elems(dy.tanh(inner)).backward()
    dy.cg_revert()
    with pytest.raises(dy.NoGradientError):
        inner.gradient()
    dy.sum_elems(dy.sin(inner)).backward()
    np.testing.assert_allclose(inner.gradient(), np.cos([0.2, 0.4, 0.6]), rtol=1e-5)


def test_an_input_set_after_a_revert_allows_another_backward():
    collection, w = weights()
    x = dy.scalarInput(1.0)
    loss = dy.sum_elems(w * x)
    dy.cg_checkpoint()
    loss.backward()
    dy.cg_revert()
    x.set(2.0)
    loss.backward()
    np.testing.assert_allclose(w.grad_as_array(), 3.0)


def test_parameters_after_their_gradients_were_set_to_zero():
    collection, w = weights()
    constant = dy.const_parameter(w)
    dy.sum_elems(dy.cmult(constant, w)).backward()
    collection.reset_gradient()
    for expression, wanted in ((constant, [0, 0, 0]), (w, [0.1, 0.2, 0.3]), (w.expr(), [0.1, 0.2, 0.3])):
        np.testing.assert_allclose(expression.gradient(), wanted, rtol=1e-6)
    assert not w.grad_as_array().any()


def test_parameters_after_their_gradients_were_scaled():
    collection, w = weights()
    dy.sum_elems(w * 2.0).backward()
    w.scale_gradient(3.0)
    np.testing.assert_allclose(w.gradient(), 2.0)
    np.testing.assert_allclose(w.grad_as_array(), 6.0)


def test_a_parameter_after_two_passes_and_a_reset():
    collection, w = weights()
    dy.sum_elems(w * 2.0).backward()
    dy.sum_elems(w * 3.0).backward()
    np.testing.assert_allclose(w.gradient(), 3.0)
    collection.reset_gradient()
    np.testing.assert_allclose(w.gradient(), 3.0)


def test_random_numbers_stay_when_a_gradient_is_asked_for():
    values = np.tile([0.1, 0.2, 0.3], 20)
    w = dy.ParameterCollection().parameters_from_numpy(values)
    inner = w * 1.0
    dropped = dy.dropout(dy.tanh(inner), 0.5)
    noisy = dy.noise(dy.sin(inner), 0.1) + dy.random_normal(60)
    loss = dy.sum_elems(dy.cmult(dropped, noisy))
    loss.backward()
    before = [each.npvalue() for each in (dropped, noisy, loss)]
    found = inner.gradient()  # fused away in the native engine
    for each, value in zip((dropped, noisy, loss), before):
        np.testing.assert_array_equal(each.npvalue(), value)
    noise = before[1]
    mask = 2.0 * (before[0] != 0)
    wanted = mask * (1 - np.tanh(values) ** 2) * noise + mask * np.tanh(values) * np.cos(values)
    np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-5)
    fresh = dy.dropout(dropped, 0.5)  # later nodes draw for themselves
    assert not np.array_equal(fresh.npvalue() != 0, dy.dropout(dropped, 0.5).npvalue() != 0)


def test_random_numbers_of_a_batch_that_is_computed_in_parts():
    w = dy.ParameterCollection().parameters_from_numpy(np.tile([0.1, 0.2, 0.3], 10))
    inner = [w * float(count) for count in range(1, 7)]
    dropped = [dy.dropout(dy.tanh(x), 0.5) for x in inner]
    dropped[2] = dy.dropout(dropped[2], 0.5)
    loss = dy.esum([dy.squared_norm(x) for x in dropped])
    loss.backward()
    values = [x.npvalue() for x in dropped]
    for x, value in zip(inner, values):
        assert ((x.gradient() != 0) == (value != 0)).all()
    dy.cg_checkpoint()
    dy.cg_revert()
    for x, value in zip(dropped, values):
        np.testing.assert_array_equal(x.npvalue(), value)


def test_statistics_move_once_when_a_gradient_is_asked_for():
    norm = torch.nn.BatchNorm1d(3)
    normed = dy.wrap(norm, rows=True)
    collection, w = weights()
    inner = [w * float(count) for count in range(4)]
    loss = dy.esum([dy.squared_norm(normed(dy.tanh(x))) for x in inner])
    loss.backward()
    value = loss.value()
    averages = norm.running_mean.clone()
    assert inner[1].gradient().shape == (3,)
    assert norm.num_batches_tracked == 1
    assert torch.equal(norm.running_mean, averages)
    assert loss.value() == value


@pytest.mark.parametrize("dtype", ["float64", "float32"])
def test_a_table_whose_memory_was_replaced(dtype):
    table = dy.ParameterCollection().add_lookup_parameters((3, 2), init=1.0)
    dy.sum_elems(table[1]).backward()
    dy.configure(dtype=dtype)
    table.storage.tensor = torch.ones(3, 2, dtype=getattr(torch, dtype))
    table.storage.clear_gradient()
    dy.squared_norm(table[2]).backward()
    dy.configure(dtype="float32")
    assert table.grad.dtype is table.tensor.dtype
    np.testing.assert_allclose(table.grad_as_array(), [[0, 0], [0, 0], [2, 2]])


CHANGES = {
    "update": lambda collection, w: dy.SimpleSGDTrainer(collection).update(),
    "update_subset": lambda collection, w: dy.SimpleSGDTrainer(collection).update_subset([0], []),
    "set_value": lambda collection, w: w.set_value([1.0, 2.0, 3.0]),
    "zero": lambda collection, w: w.zero(),
    "scale": lambda collection, w: w.scale(2.0),
    "load_tensors": lambda collection, w: collection.load_tensors({w.name(): torch.ones(3)}),
}


@pytest.mark.parametrize("change", CHANGES)
def test_no_gradients_after_parameters_have_changed(change):
    collection, w = weights()
    x = dy.inputTensor([1.0, 2.0, 3.0])
    inner = dy.cmult(w, x)
    part = inner[1]
    loss = dy.sum_elems(dy.tanh(inner)) + part
    loss.backward(full=True)
    CHANGES[change](collection, w)
    for expression in (inner, part, w, w.expr(), loss):
        with pytest.raises(dy.StateError, match=rf"parameter {w.name()} .* before trainer\.update\(\)"):
            expression.gradient()
    wanted = np.array([0.1, 0.2, 0.3]) * (1 - np.tanh([0.1, 0.4, 0.9]) ** 2 + [0, 1, 0])
    np.testing.assert_allclose(x.gradient(), wanted, rtol=1e-5)


@pytest.mark.parametrize("read", [lambda t: t[1], lambda t: dy.sum_batches(dy.lookup_batch(t, [0, 1]))])
def test_no_gradients_after_a_table_has_changed(read):
    collection, w = weights()
    others, v = weights()
    table = collection.add_lookup_parameters((2, 3), init=1.0)
    row = read(table)
    dy.sum_elems(dy.cmult(row, v)).backward()
    dy.SimpleSGDTrainer(others).restart()
    w.zero()  # the loss does not read it
    np.testing.assert_allclose(row.gradient(), [0.1, 0.2, 0.3], rtol=1e-6)
    table.init_row(0, [0.0, 0.0, 0.0])
    with pytest.raises(dy.StateError, match=table.name()):
        row.gradient()


@pytest.mark.parametrize("change", CHANGES)
def test_values_stay_when_parameters_change(change):
    collection, w = weights()
    doubled = w * 2.0  # fused into what follows in the native engine
    inner = dy.sin(dy.tanh(doubled)) + 1.0
    loss = dy.squared_norm(inner)
    lost = loss.value()
    loss.backward()
    CHANGES[change](collection, w)
    assert not np.allclose(w.as_array(), [0.1, 0.2, 0.3])
    doubled_before = np.array([0.2, 0.4, 0.6])
    np.testing.assert_allclose(doubled.npvalue(), doubled_before, rtol=1e-6)
    np.testing.assert_allclose(inner.npvalue(), np.sin(np.tanh(doubled_before)) + 1, rtol=1e-5)
    assert loss.value() == lost
    again = dy.squared_norm(inner + doubled)  # the graph goes on, from the values that there are
    wanted = np.sin(np.tanh(doubled_before)) + 1 + doubled_before
    assert abs(again.value() - np.square(wanted).sum()) < 1e-4
    dy.renew_cg()
    np.testing.assert_allclose((w * 2.0).npvalue(), 2 * w.as_array(), rtol=1e-6)


def test_weight_noise_is_drawn_in_every_graph_and_stays_in_it():
    collection = dy.ParameterCollection()
    network = dy.CompactVanillaLSTMBuilder(1, 3, 4, collection)
    network.set_weightnoise(0.5)
    found = []
    for _ in range(2):
        dy.renew_cg()
        scaled = dy.inputTensor([1.0, 2.0, 3.0]) * 0.5
        x = dy.tanh(scaled)
        outputs = [network.initial_state().transduce([x, x])[-1] for _ in range(2)]
        loss = dy.squared_norm(dy.esum(outputs))
        loss.backward(True)
        value = loss.value()
        assert scaled.gradient().any()
        assert loss.value() == value
        found.append(value)
    assert found[0] != found[1]
    network.set_weightnoise(0.0)
    plain = [network.initial_state().add_input(x).output().npvalue() for _ in range(2)]
    np.testing.assert_array_equal(*plain)


class FailsAtFirst(torch.autograd.Function):
    """Doubles; the first time it is differentiated it fails."""

    failures = 0

    @staticmethod
    def forward(ctx, x):
        return 2 * x

    @staticmethod
    def backward(ctx, gradient):
        FailsAtFirst.failures += 1
        if FailsAtFirst.failures == 1:
            raise KeyError("broken")
        return 2 * gradient


@pytest.mark.parametrize("has_gradients", [False, True])
def test_a_failing_pass_leaves_the_gradients_as_they_were(has_gradients):
    collection, w = weights()
    table = collection.add_lookup_parameters((4, 3), init=1.0)
    if has_gradients:
        dy.sum_elems(dy.cmult(w, table[0])).backward()
    before = [each.grad_as_array() for each in (w, table)]
    FailsAtFirst.failures = 0
    doubled = dy.wrap(FailsAtFirst.apply, rows=True)(table[1])
    loss = dy.sum_elems(dy.cmult(w, dy.cmult(doubled, table[2])))
    with pytest.raises(KeyError, match="broken"):
        loss.backward()
    for each, gradient in zip((w, table), before):
        np.testing.assert_array_equal(each.grad_as_array(), gradient)
    with pytest.raises(dy.NoGradientError):
        doubled.gradient()
    loss.backward()
    np.testing.assert_allclose(w.grad_as_array(), before[0] + 2.0)
    scale = np.array([0.1, 0.2, 0.3])
    np.testing.assert_allclose(table.grad_as_array()[1:3] - before[1][1:3], [2 * scale, 2 * scale], rtol=1e-6)


@pytest.mark.parametrize("has_gradients", [False, True])
def test_a_failing_pass_adds_no_rows_of_minibatches(has_gradients):
    collection, w = weights()
    table = collection.add_lookup_parameters((4, 3), init=1.0)
    if has_gradients:
        dy.sum_elems(dy.cmult(w, table[0])).backward()
    before = table.grad_as_array()
    FailsAtFirst.failures = 0
    doubled = dy.wrap(FailsAtFirst.apply, rows=True)(w)
    doubled.value()  # what is computed later is differentiated first
    rows = dy.lookup_batch(table, [1, 2, 1])
    loss = dy.sum_elems(dy.cmult(doubled, dy.sum_batches(rows)))
    with pytest.raises(KeyError, match="broken"):
        loss.backward()
    np.testing.assert_array_equal(table.grad_as_array(), before)
    loss.backward()
    scale = np.array([0.2, 0.4, 0.6])
    np.testing.assert_allclose(table.grad_as_array()[1:3], [2 * scale, scale], rtol=1e-6)
    np.testing.assert_array_equal(table.grad_as_array()[[0, 3]], before[[0, 3]])


def test_a_failing_pass_leaves_gradients_of_constants():
    collection, w = weights()
    used, fixed = (collection.add_lookup_parameters((4, 3), init=1.0) for _ in range(2))
    dy.sum_elems(dy.cmult(w, used[0] + fixed[0])).backward()
    fixed.set_updated(False)
    FailsAtFirst.failures = 0
    doubled = dy.wrap(FailsAtFirst.apply, rows=True)(w)
    constant = dy.lookup(used, 2, update=False)
    loss = dy.dot_product(doubled, used[1] + fixed[1] + constant)
    with pytest.raises(KeyError, match="broken"):
        loss.backward()
    for each in (used, fixed):
        np.testing.assert_allclose(each.grad_as_array()[:2], [[0.1, 0.2, 0.3], [0, 0, 0]], rtol=1e-6)


def test_parameters_that_are_not_updated_gather_no_gradients():
    collection, w = weights()
    table = collection.add_lookup_parameters((4, 3), init=1.0)
    for each in (w, table):
        each.set_updated(False)
    rows = dy.lookup_batch(table, [1, 2])
    loss = dy.sum_elems(dy.sum_batches(dy.cmult(w, dy.cmult(table[1], rows))))
    loss.backward()
    assert not w.grad_as_array().any()
    assert not table.grad_as_array().any()
    np.testing.assert_allclose(w.gradient(), 2.0)


def test_a_revert_of_another_parameter():
    collection, w = weights()
    other = collection.add_parameters((3,), init=1.0)
    inner = w * 2.0
    loss = dy.sum_elems(dy.tanh(inner))
    dy.cg_checkpoint()
    later = dy.cmult(other, inner)
    loss.backward()
    later.value()
    dy.cg_revert()
    np.testing.assert_allclose(inner.gradient(), 1 - np.tanh([0.2, 0.4, 0.6]) ** 2, rtol=1e-5)


def test_a_bias_that_is_computed_has_a_gradient():
    model = dy.ParameterCollection()
    weight, start = model.add_parameters((3, 2), init=0.5), model.add_parameters((3,), init=0.25)
    bias = dy.tanh(start)
    total = dy.affine_transform([bias, weight, dy.inputTensor([1.0, 2.0])])
    dy.squared_norm(total).backward()
    by_hand = 2 * (np.tanh(0.25) + 1.5)
    np.testing.assert_allclose(bias.gradient(), [by_hand] * 3, rtol=1e-5)
    np.testing.assert_allclose(start.grad_as_array(), [by_hand * (1 - np.tanh(0.25) ** 2)] * 3, rtol=1e-5)


def test_what_shares_a_batch_with_the_loss_but_does_not_feed_it_has_none():
    _, w = weights()
    inner = [w * number for number in (1.0, 2.0, 3.0)]
    losses = [dy.sum_elems(dy.tanh(each)) for each in inner]
    after = [dy.exp(each) for each in losses]
    dy.forward(after)
    losses[1].backward()
    for number, each in enumerate(inner):
        wanted = 1 - np.tanh([0.2, 0.4, 0.6]) ** 2 if number == 1 else np.zeros(3)
        np.testing.assert_allclose(each.gradient(), wanted, rtol=1e-5)
    np.testing.assert_allclose(w.gradient(), 2 * (1 - np.tanh([0.2, 0.4, 0.6]) ** 2), rtol=1e-5)
