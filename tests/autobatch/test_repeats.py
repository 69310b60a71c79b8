"""Words repeat: operations on equal rows of a table are computed once, which nobody may notice but by the time."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule import native

WORDS = [3, 1, 3, 3, 2, 1, 3, 0, 1, 3, 3, 1, 2, 3, 1, 3]


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
