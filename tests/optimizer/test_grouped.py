"""Row-sparse gradients and parameters: MXNet's recorded results, and what they cost."""

import json
from itertools import product
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import optimizer
from dpmodule.optimizer.group import slots_of
from helpers.walk import walks

FOLDER = Path(__file__).parents[1] / "data" / "goldens" / "optim"
GOLDENS = dict(np.load(FOLDER / "sparse.npz"))
KINDS = json.loads((FOLDER / "cases.json").read_text())["sparse"]


def rows(values, indices, shape):
    return mx.nd.sparse.row_sparse_array((np.asarray(values, np.float32), indices), shape=shape)


@walks(product(KINDS, ["default", "row_sparse"], [False, True]))
def test_results_are_mxnets(case, stype, at_once):
    name, kwargs = KINDS[case]
    made = optimizer.create(name, param_idx2name={0: "w_weight"}, learning_rate=0.1, **kwargs)
    update, weight = optimizer.get_updater(made), mx.nd.array(GOLDENS["weight"]).tostype(stype)
    other, step = mx.nd.ones((2,)), mx.nd.ones((2,))
    for t in range(4):
        grad = rows(GOLDENS[f"values{t}"], GOLDENS[f"rows{t}"], (6, 3))
        if at_once and name != "groupadagrad":
            update.update_all([0, 1], [grad, step], [weight, other])  # beside a dense one
        else:
            update(0, grad, weight)
        np.testing.assert_allclose(weight.asnumpy(), GOLDENS[f"{case}/{stype}/w"][t], rtol=1e-5, atol=2e-6)
    assert weight.stype == stype
    for i, array in enumerate(slots_of(update.states[0])):
        want = GOLDENS[f"{case}/{stype}/state/{i}"]
        np.testing.assert_allclose(array.asnumpy(), want, rtol=1e-5, atol=2e-6)


ONE_ROW = rows([[2, 2]], [1], (3, 2))


MOVES = [
    ("nag", {"wd": 0.5}, [1, -0.25, 1]),
    ("adam", {"multi_precision": True, "wd": 0.5}, [1, None, 1]),
    ("sgd", {"multi_precision": True, "wd": 0.5}, [0.75, -0.25, 0.75]),
    ("adagrad", {}, [1, 0.5, 1]),
    ("lars", {"wd": 0.1, "momentum": 0.9, "eta": 0.1}, [None, None, None]),
    ("lbsgd", {"wd": 0.1, "momentum": 0.9}, [None, None, None]),
]


@pytest.mark.parametrize(("name", "options", "moved"), MOVES)
def test_which_rows_move(name, options, moved):
    """As in MXNet, of 16-bit parameters those of adam are lazy and those of sgd are not."""
    made = optimizer.create(name, learning_rate=0.5, param_idx2name={0: "w_weight"}, **options)
    weight = mx.nd.ones((3, 2), dtype="float16" if "multi_precision" in options else "float32")
    grad = mx.nd.array(ONE_ROW.asnumpy(), dtype=weight.dtype).tostype("row_sparse")
    optimizer.get_updater(made)(0, grad, weight)
    for found, want in zip(weight.asnumpy(), moved, strict=True):
        assert (found < 1).all() if want is None else found == pytest.approx([want] * 2, rel=1e-6)
    assert made.num_update == 1


def test_compressed_rows_and_stored_rows_may_be_parameters():
    update = optimizer.get_updater(optimizer.create("sgd", learning_rate=0.5))
    weight = mx.nd.ones((2, 2)).tostype("csr")
    update(0, mx.nd.array([[1, 0], [0, 2]]).tostype("csr"), weight)
    assert weight.stype == "csr"
    np.testing.assert_array_equal(weight.asnumpy(), [[0.5, 1], [1, 0]])
    weight = rows([[1, 1]], [2], (3, 2))  # MXNet refuses it; here rows that are missing are zeros
    update(1, rows([[1, 2], [3, 4]], [0, 2], (3, 2)), weight)
    assert weight.stype == "row_sparse"
    np.testing.assert_array_equal(weight.asnumpy(), [[-0.5, -1], [0, 0], [-0.5, -1]])
    update(2, mx.nd.sparse.zeros("row_sparse", (3, 2)), other := mx.nd.ones((3, 2)))
    assert (update.optimizer.num_update, (other.asnumpy() == 1).all()) == (1, True)
