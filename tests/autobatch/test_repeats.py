"""Words repeat: operations on equal rows of a table are computed once, which nobody may notice but by the time."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule import native
from helpers.both_engines import on_both

WORDS = [3, 1, 3, 3, 2, 1, 3, 0, 1, 3, 3, 1, 2, 3, 1, 3]


def gradients(m):
    return [each.grad_as_array() for each in m.parameters_list() + m.lookup_parameters_list()]


def test_values_and_gradients_are_those_of_single_operations():
    """Of a network in which much repeats and much does not."""

    def program():
        m, draw = dy.ParameterCollection(), np.random.RandomState(1)
        table, scores = m.add_lookup_parameters((5, 4)), m.add_parameters((5, 4))
        lstm, gru = dy.VanillaLSTMBuilder(1, 4, 3, m), dy.GRUBuilder(1, 4, 3, m)
        weights, bias = m.add_parameters((4, 4)), m.add_parameters(4)
        for p in m.parameters_list():
            p.set_value(draw.uniform(-1, 1, p.shape()))
        table.init_from_array(draw.uniform(-1, 1, (5, 4)))
        terms, early = [], None
        for words in (WORDS, WORDS[::-1]):
            for place, word in enumerate(words):
                leaf = dy.tanh(dy.affine_transform([bias, weights, table[word]]))
                twice = dy.cmult(leaf, table[word]) + dy.concatenate([leaf[2:4], leaf[0:2]])
                state = lstm.initial_state().add_input(twice).add_input(table[words[place - 1]])
                both = dy.squared_norm(state.output()) + dy.dot_product(state.s()[0], state.output())
                last = gru.initial_state().transduce([table[word], leaf])[-1]
                terms += [
                    dy.pickneglogsoftmax(scores * twice, place % 3),
                    both,
                    dy.sum_elems(last * (place + 1.0)),
                ]
            early = early or terms[4].scalar_value()  # a later run meets what this one has computed
        dy.esum(terms).backward()
        return [np.array([early, *dy.values(terms)]), *gradients(m)]

    on_both(program)


def test_every_expression_has_a_gradient_of_its_own(setting):
    m = dy.ParameterCollection()
    table, weights, lstm = (
        m.add_lookup_parameters((4, 3)),
        m.add_parameters((4, 3)),
        dy.VanillaLSTMBuilder(1, 3, 2, m),
    )
    rows = [table[word] for word in WORDS]
    inner, steps = [weights * row for row in rows], [lstm.initial_state().add_input(row) for row in rows]
    outputs, memories = [s.output() for s in steps], [s.s()[0] for s in steps]
    parts = [
        dy.sum_elems(dy.tanh(x)) + dy.sum_elems(h) + dy.sum_elems(c)
        for x, h, c in zip(inner, outputs, memories)
    ]
    dy.esum([part * (place + 1.0) for place, part in enumerate(parts)]).backward(full=True)
    for each in (rows, inner, outputs, memories):
        slopes = [x.gradient() / (place + 1.0) for place, x in enumerate(each)]
        for word, slope in zip(WORDS, slopes):
            assert np.abs(slope).max() > 1e-3
            np.testing.assert_allclose(slope, slopes[WORDS.index(word)], rtol=1e-5)


@pytest.mark.skipif(native.core is None, reason="no native extension")
def test_explain_tells_what_was_left_out(batched):
    m = dy.ParameterCollection()
    table, weights = m.add_lookup_parameters((4, 3)), m.add_parameters((3, 3))
    dy.forward([dy.tanh(weights * table[word]) for word in WORDS])
    (row,) = dy.explain().rows
    assert (row.largest, row.repeats, row.nodes) == (4, 12, 32)
    assert "12 equal to others, computed once" in str(dy.explain())
    dy.renew_cg()
    dy.forward([dy.tanh(weights * dy.dropout(table[word], 0.5)) for word in WORDS])
    assert [row.repeats for row in dy.explain().rows] == [0, 0]


def test_gradients_of_many_parts_are_exact(setting):
    table = dy.ParameterCollection().add_lookup_parameters((2, 2), init=dy.ConstInitializer(0.0))
    dy.esum([dy.sum_elems(dy.tanh(table[1]) * 0.1) for _ in range(3000)]).backward()
    is_native = dy.explain().engine == "native"
    np.testing.assert_allclose(table.grad_as_array()[1], 300.0, rtol=1e-6 if is_native else 1e-4)
