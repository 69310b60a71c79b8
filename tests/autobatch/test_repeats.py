"""Words repeat: operations on equal rows of a table are computed once, which nobody may notice but by the time."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule import native
from helpers.both_engines import on_both

WORDS = [3, 1, 3, 3, 2, 1, 3, 0, 1, 3, 3, 1, 2, 3, 1, 3]


def test_values_and_gradients_are_those_of_single_operations():
    """Of a network in which much repeats and much does not."""

    def program():
        m, draw = dy.ParameterCollection(), np.random.RandomState(1)
        table = m.lookup_parameters_from_numpy(draw.uniform(-1, 1, (5, 4)))
        weights, bias, scores = (m.add_parameters(shape) for shape in ((4, 4), 4, (5, 4)))
        lstm = dy.VanillaLSTMBuilder(1, 4, 3, m)
        for p in m.parameters_list():
            p.set_value(draw.uniform(-1, 1, p.shape()))
        terms, inner = [], []
        for place, word in enumerate([*WORDS, *WORDS[::-1]]):
            leaf = dy.tanh(dy.affine_transform([bias, weights, table[word]]))
            twice = dy.cmult(leaf, table[word]) + dy.concatenate([leaf[2:4], leaf[0:2]])
            state = lstm.initial_state().add_input(twice).add_input(table[WORDS[place % 5]])
            terms.append(dy.dot_product(state.s()[0], state.output()))
            terms.append(dy.pickneglogsoftmax(scores * twice, place % 3))
            inner += [leaf, twice, state.output()]
            if place == 4:
                terms[4].scalar_value()  # a later run meets what this one has computed
        dy.esum(terms).backward(full=True)
        found = [*dy.npvalues(terms), *[each.gradient() for each in inner], table.grad_as_array()]
        return found + [each.grad_as_array() for each in m.parameters_list()]

    on_both(program)


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
