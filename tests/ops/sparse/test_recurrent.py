"""GRU on ragged values, against a loop over each row."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.ragged_values import LENGTHS, check_gradients, f8, ragged

S = mx.sym


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


@pytest.mark.parametrize(
    "attributes", [{}, {"is_reverse": True}, {"origin_mode": True, "candidate_activation": "identity"}]
)
@pytest.mark.parametrize("has_state", [False, True])
def test_gru_is_a_loop_over_each_row(attributes, has_state):
    x, weight, bias, first = ragged(LENGTHS, 6), f8(6, 2), f8(6), f8(len(LENGTHS), 2)
    net = S.sequence_gru(S.Variable("x", stype="ragged"), name="gru", has_state=has_state, **attributes)
    args = {"x": x, "gru_weight": weight, "gru_bias": bias, "gru_state": first}
    (out,) = check_gradients(net, args)
    candidate_of = np.tanh if "candidate_activation" not in attributes else np.positive
    w, b = weight.asnumpy(), bias.asnumpy()
    for i, (got, row) in enumerate(zip(out.tolist(), x.tolist(), strict=True)):
        h = first.asnumpy()[i] if has_state else np.zeros(2)
        order = range(len(row))
        for t in reversed(order) if attributes.get("is_reverse") else order:
            mapped = np.array(row[t]) + b
            update, reset = np.split(sigmoid(mapped[:4] + w[:4] @ h), 2)
            candidate = candidate_of(mapped[4:] + w[4:] @ (reset * h))
            kept, new = (h, candidate) if attributes.get("origin_mode") else (candidate, h)
            h = update * kept + (1 - update) * new
            np.testing.assert_allclose(got[t], h)
