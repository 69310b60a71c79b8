"""Words repeat: what is made of equal rows of a table is computed once, which nobody may notice but by the time."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule import native

WORDS = [3, 1, 3, 3, 2, 1, 3, 0, 1, 3, 3, 1, 2, 3, 1, 3]


def network():
    """Return a table and a function from words to the terms of a loss, in which much repeats and much does not."""
    dy.set_random_seed(1)
    m = dy.ParameterCollection()
    table = m.add_lookup_parameters((5, 4), init=dy.UniformInitializer(1.0))
    lstm = dy.VanillaLSTMBuilder(1, 4, 3, m)
    gru = dy.GRUBuilder(1, 4, 3, m)
    weights, bias = m.add_parameters((4, 4)), m.add_parameters(4)
    scores = m.add_parameters((5, 4))

    def losses(words):
        found = []
        for place, word in enumerate(words):
            leaf = dy.tanh(dy.affine_transform([bias, weights, table[word]]))
            twice = dy.cmult(leaf, table[word]) + dy.concatenate([leaf[2:4], leaf[0:2]])
            state = lstm.initial_state().add_input(twice).add_input(table[words[place - 1]])
            found.append(dy.pickneglogsoftmax(scores * twice, place % 3))
            found.append(
                dy.squared_norm(state.output()) + dy.sum_elems(dy.cmult(state.s()[0], state.output()))
            )
            found.append(dy.sum_elems(gru.initial_state().transduce([table[word], leaf])[-1] * (place + 1.0)))
        return found

    return m, losses


def gradients(m):
    """Return values and gradients of all parameters."""
    lists = m.parameters_list() + m.lookup_parameters_list()
    return [each.grad_as_array() for each in lists]


def test_values_and_gradients_are_those_of_single_operations(setting):
    def results():
        m, losses = network()
        dy.renew_cg()
        terms = losses(WORDS)
        early = terms[4].scalar_value()  # a later run meets what this one has computed
        terms += losses(WORDS[::-1])
        total = dy.esum(terms)
        total.backward()
        return [early, total.scalar_value(), *gradients(m)], [each.scalar_value() for each in terms]

    found, terms = results()
    dy.configure(engine="python", autobatch=False)
    expected, single = results()
    np.testing.assert_allclose(terms, single, rtol=2e-6)
    for one, other in zip(found, expected, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-5 * np.abs(other).max())


def test_every_expression_has_a_gradient_of_its_own(setting):
    m = dy.ParameterCollection()
    table, weights = m.add_lookup_parameters((4, 3)), m.add_parameters((4, 3))
    lstm = dy.VanillaLSTMBuilder(1, 3, 2, m)
    dy.renew_cg()
    rows = [table[word] for word in WORDS]
    inner = [weights * row for row in rows]
    steps = [lstm.initial_state().add_input(row) for row in rows]
    factors = np.arange(1.0, len(WORDS) + 1)
    terms = [
        f * (dy.sum_elems(dy.tanh(x)) + dy.sum_elems(s.output()) + dy.sum_elems(s.s()[0]))
        for f, x, s in zip(factors.tolist(), inner, steps)
    ]
    dy.esum(terms).backward(full=True)
    for word in set(WORDS):
        places = [place for place, other in enumerate(WORDS) if other == word]
        for each in (rows, inner, [s.output() for s in steps], [s.s()[0] for s in steps]):
            parts = [each[place].gradient() / factors[place] for place in places]
            assert np.abs(parts[0]).max() > 1e-3
            np.testing.assert_allclose(parts, [parts[0]] * len(places), rtol=1e-5)


def test_operations_of_torch_take_equal_operands(setting):
    m = dy.ParameterCollection()
    table, lstm = m.add_lookup_parameters((4, 3)), dy.VanillaLSTMBuilder(1, 3, 3, m)
    results = []
    for autobatch in (setting[1], False):
        dy.renew_cg(autobatching=autobatch)
        state = lstm.initial_state().add_input(table[1])
        words = dy.lookup_batch(table, [1, 1, 1])  # beside a state of one element: no kernel takes both
        outputs = [state.add_input(words).output() * factor for factor in (1.0, 2.0, 3.0)]
        dy.esum([dy.sum_batches(dy.sum_elems(each)) for each in outputs]).backward()
        results.append([each.npvalue() for each in outputs] + gradients(m))
        m.reset_gradient()
    for one, other in zip(*results, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


def test_random_numbers_are_drawn_for_each(setting):
    m = dy.ParameterCollection()
    table = m.add_lookup_parameters((2, 64))
    dy.renew_cg()
    dropped = [dy.tanh(dy.dropout(table[1], 0.5)) for _ in range(3)]
    dy.forward(dropped)
    zeros = {tuple(each.npvalue() == 0) for each in dropped}
    assert len(zeros) == 3


def test_values_survive_an_update_and_are_forgotten_by_revert(setting):
    m = dy.ParameterCollection()
    table, weights = m.add_lookup_parameters((4, 3)), m.add_parameters((3, 3))
    trainer = dy.SimpleSGDTrainer(m, 0.5)
    dy.renew_cg()
    held = [dy.tanh(weights * table[1]) for _ in range(4)]
    before = [each.npvalue() for each in held]
    np.testing.assert_array_equal(before, [before[0]] * 4)
    dy.esum([dy.sum_elems(each) for each in held]).backward()
    trainer.update()
    np.testing.assert_array_equal([each.npvalue() for each in held], before)
    dy.cg_checkpoint()
    for _ in range(2):
        again = [dy.tanh(weights * table[1]) for _ in range(2)]
        new = [each.npvalue() for each in again]
        np.testing.assert_array_equal(new[0], new[1])
        np.testing.assert_allclose(new[0], np.tanh(weights.as_array() @ table.row_as_array(1)), rtol=1e-5)
        dy.cg_revert()
        dy.cg_checkpoint()


@pytest.mark.skipif(native.core is None, reason="no native extension")
def test_explain_tells_what_was_left_out():
    m = dy.ParameterCollection()
    table, weights = m.add_lookup_parameters((4, 3)), m.add_parameters((3, 3))
    dy.configure(engine="native", autobatch=True)
    dy.renew_cg()
    dy.forward([dy.tanh(weights * table[word]) for word in WORDS])
    (row,) = dy.explain().rows
    assert (row.largest, row.repeats, row.nodes) == (4, 12, 32)
    assert "12 equal to others, computed once" in str(dy.explain())
    dy.renew_cg()
    dy.forward([dy.tanh(weights * dy.dropout(table[word], 0.5)) for word in WORDS])
    assert [row.repeats for row in dy.explain().rows] == [0, 0]


def test_gradients_of_many_parts_are_exact(setting):
    m = dy.ParameterCollection()
    table = m.add_lookup_parameters((2, 2), init=dy.ConstInitializer(0.0))
    dy.renew_cg()
    parts = [dy.sum_elems(dy.tanh(table[1]) * 0.1) for _ in range(3000)]
    dy.esum(parts).backward()
    is_native = dy.explain().engine == "native"
    np.testing.assert_allclose(table.grad_as_array()[1], 300.0, rtol=1e-6 if is_native else 1e-4)
