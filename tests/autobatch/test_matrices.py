"""A decoder with attention, which looks at the columns of a matrix: the native engine calls nothing in Python."""

from __future__ import annotations

import pytest

import dpmodule.autobatch as dy
from dpmodule import native

EXAMPLES = [[1, 2, 3], [4, 5, 6, 7, 8], [3, 1, 2], [5, 5], [6], [7, 1, 1, 2, 8, 3, 4]]


@pytest.mark.skipif(native.core is None, reason="no native extension")
def test_matrices_of_attention_need_no_calls(batched):
    m, losses = dy.ParameterCollection(), []
    w1, w2, v, u, o = (m.add_parameters(shape) for shape in ((6, 5), (6, 5), (1, 6), (5, 10), (4, 5)))
    words = m.add_lookup_parameters((9, 5))
    for example in EXAMPLES:
        states, state = dy.concatenate_cols([words[i] for i in example]), words[0]
        keys = w1 * states
        for i in example[:4]:
            scores = v * dy.tanh(dy.colwise_add(keys, w2 * state))
            context = states * dy.softmax(dy.transpose(scores))
            state = dy.tanh(u * dy.concatenate([context, words[i]]))
            losses.append(dy.pickneglogsoftmax(o * state, i % 4))
    dy.esum(losses).value()
    operations = [dy.cg().operation(each) for kinds, *_ in dy.cg().machine.batches() for each in kinds]
    assert not [each.name for each in operations if each.call is not None], "these run in torch"
    assert "colwise_add + tanh + multiply" in {row.operation for row in dy.explain().rows}
