"""Cells of automatic batching whose symbols take ragged inputs."""

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.autobatch as dy

S = mx.sym
TABLE = np.random.RandomState(0).randn(20, 3).astype("f4")
ROWS = [[1, 2, 3], [4, 5, 6], [7], [8, 9, 1], [2]]


@pytest.fixture(autouse=True)
def _fresh():
    dy.configure(autobatch=True, random_seed=1)
    dy.renew_cg()
    yield
    dy.renew_cg()


def words():
    return S.Embedding(S.Variable("words", stype="ragged"), input_dim=20, output_dim=3, name="table")


def test_pooled_rows_of_equal_lengths_are_one_call():
    table = mx.nd.array(TABLE)
    bag = dy.cell(S.sequence_pool(words(), pool_type="mean", name="pool"), {"table_weight": table})
    found = [bag(dy.inputVector(row)) for row in ROWS]
    loss = dy.esum([dy.sum_elems(each) for each in found])
    loss.backward()
    for row, each in zip(ROWS, found, strict=True):
        np.testing.assert_allclose(each.npvalue(), TABLE[row].mean(0), rtol=1e-5)
    wanted = np.zeros_like(TABLE)
    for row in ROWS:
        wanted[row] += 1 / len(row)
    np.testing.assert_allclose(table.grad.asnumpy(), wanted, rtol=1e-5)
    assert "cell" in (told := str(dy.explain()))
    assert "one by one" not in told


def test_ragged_outputs_have_the_rows_length():
    table = mx.nd.array(TABLE)
    net = S.sequence_softmax(S.FullyConnected(words(), num_hidden=2, name="fc"))
    weights = {"fc_weight": mx.nd.array(TABLE[:2]), "fc_bias": mx.nd.zeros((2,)), "table_weight": table}
    score = dy.cell(net, weights)
    found = [score(dy.inputVector(row)) for row in ROWS]
    assert [each.dim()[0] for each in found] == [(len(row), 2) for row in ROWS]
    for row, each in zip(ROWS, found, strict=True):
        raw = np.exp(TABLE[row] @ TABLE[:2].T)
        np.testing.assert_allclose(each.npvalue(), raw / raw.sum(0), rtol=1e-4)
