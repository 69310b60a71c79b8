"""Row-sparse gradients and parameters: MXNet's recorded results, and what they cost."""

from itertools import product
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import optimizer
from dpmodule.optimizer.group import slots_of
from helpers.walk import walks

GOLDENS = dict(np.load(Path(__file__).parents[1] / "data" / "goldens" / "optim" / "sparse.npz"))
KINDS = {
    "sgd": ("sgd", {"wd": 0.1}),
    "sgd_momentum": ("sgd", {"wd": 0.1, "momentum": 0.9, "clip_gradient": 0.5, "rescale_grad": 0.5}),
    "sgd_std": ("sgd", {"wd": 0.1, "momentum": 0.9, "lazy_update": False}),
    "adam": ("adam", {"wd": 0.1, "clip_gradient": 0.5}),
    "adam_std": ("adam", {"wd": 0.1, "lazy_update": False}),
    "ftrl": ("ftrl", {"wd": 0.1}),
    "groupadagrad": ("groupadagrad", {}),
    "rmsprop": ("rmsprop", {"wd": 0.1}),
    "signum": ("signum", {"wd": 0.1}),
    "lamb": ("lamb", {"wd": 0.1}),
}


def rows(values, indices, shape):
    return mx.nd.sparse.row_sparse_array((np.asarray(values, np.float32), indices), shape=shape)


@walks(product(KINDS, ["default", "row_sparse"], [False, True]))
def test_results_are_mxnets(case, stype, at_once):
    name, kwargs = KINDS[case]
    update = optimizer.get_updater(
        optimizer.create(name, param_idx2name={0: "w_weight"}, learning_rate=0.1, **kwargs)
    )
    weight = mx.nd.array(GOLDENS["weight"]).tostype(stype)
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
        np.testing.assert_allclose(
            array.asnumpy(), GOLDENS[f"{case}/{stype}/state/{i}"], rtol=1e-5, atol=2e-6
        )


@pytest.mark.parametrize("kwargs", [{}, {"momentum": 0.9}])
def test_rows_without_gradient_are_not_touched(kwargs):
    """Neither by decay nor by momentum; not even looked at, so that NaN there stays there."""
    update = optimizer.get_updater(optimizer.create("sgd", learning_rate=0.5, **kwargs))
    weight = mx.nd.array([[1, 1], [np.nan, 1], [1, 1]])
    update(0, rows([[1, 2]], [2], (3, 2)), weight)
    np.testing.assert_array_equal(weight.asnumpy(), [[1, 1], [np.nan, 1], [0.5, 0]])


def test_a_gradient_without_rows_counts():
    made = optimizer.create("adam")
    weight = mx.nd.ones((3, 2))
    optimizer.get_updater(made)(0, mx.nd.sparse.zeros("row_sparse", (3, 2)), weight)
    assert made.num_update == 1
    np.testing.assert_array_equal(weight.asnumpy(), 1.0)


def test_a_parameter_that_stores_some_rows():
    """MXNet refuses it; here the rows that are missing count as zeros."""
    for name in ("sgd", "rmsprop"):
        update = optimizer.get_updater(optimizer.create(name, learning_rate=0.5))
        weight = rows([[1, 1]], [2], (3, 2))
        dense = mx.nd.array(weight.asnumpy())
        twin = optimizer.get_updater(optimizer.create(name, learning_rate=0.5))
        grad = rows([[1, 2], [3, 4]], [0, 2], (3, 2))
        update(0, grad, weight)
        twin(0, mx.nd.array(grad.asnumpy()), dense)
        assert weight.stype == "row_sparse"
        # a vector of numbers and a single one may be rounded differently
        np.testing.assert_allclose(weight.asnumpy(), dense.asnumpy(), rtol=1e-6)


def test_adagrad_is_lazy():
    update = optimizer.get_updater(optimizer.create("adagrad", learning_rate=0.5))
    weight = mx.nd.ones((3, 2))
    for _ in range(2):
        update(0, rows([[2, 2]], [1], (3, 2)), weight)
    np.testing.assert_allclose(weight.asnumpy()[1], 1 - 0.5 * (1 + 0.5**0.5), rtol=1e-6)
    np.testing.assert_array_equal(weight.asnumpy()[::2], 1.0)


@pytest.mark.parametrize(
    ("name", "kwargs", "all_rows"),
    [
        ("adagrad", {"wd": 0.1}, False),
        ("lars", {"wd": 0.1, "momentum": 0.9, "eta": 0.1}, True),
        ("lbsgd", {"wd": 0.1, "momentum": 0.9}, True),
    ],
)
def test_which_rows_decay(name, kwargs, all_rows):
    update = optimizer.get_updater(
        optimizer.create(name, learning_rate=0.5, param_idx2name={0: "w_weight"}, **kwargs)
    )
    weight = mx.nd.ones((3, 2)).tostype("row_sparse")
    update(0, rows([[2, 2]], [1], (3, 2)), weight)
    assert (weight.asnumpy() < 1).all(1).tolist() == [all_rows, True, all_rows]


def test_16_bit_and_torch_optimizers_see_dense_gradients():
    made = optimizer.create("sgd", learning_rate=0.5, multi_precision=True)
    weight = mx.nd.ones((3, 2), dtype="float16")
    grad = mx.nd.sparse.row_sparse_array((np.ones((1, 2), np.float16), [1]), shape=(3, 2), dtype="float16")
    optimizer.get_updater(made)(0, grad, weight)
    np.testing.assert_array_equal(weight.asnumpy(), [[1, 1], [0.5, 0.5], [1, 1]])
    weight = mx.nd.ones((3, 2))
    optimizer.get_updater(optimizer.create(torch.optim.SGD, lr=0.5))(0, rows([[1, 1]], [1], (3, 2)), weight)
    np.testing.assert_array_equal(weight.asnumpy(), [[1, 1], [0.5, 0.5], [1, 1]])


def test_compressed_rows_may_be_parameters():
    update = optimizer.get_updater(optimizer.create("sgd", learning_rate=0.5))
    weight = mx.nd.ones((2, 2)).tostype("csr")
    update(0, mx.nd.array([[1, 0], [0, 2]]).tostype("csr"), weight)
    assert weight.stype == "csr"
    np.testing.assert_array_equal(weight.asnumpy(), [[0.5, 1], [1, 0]])


def test_lazy_updates_of_16_bit_parameters_leave_rows_alone():
    """As in MXNet, adam's do and sgd's do not."""
    for name, moves in (("adam", False), ("sgd", True)):
        update = optimizer.get_updater(
            optimizer.create(name, learning_rate=0.5, wd=0.5, multi_precision=True)
        )
        weight = mx.nd.ones((3, 2), dtype="float16")
        grad = mx.nd.sparse.row_sparse_array(
            (np.ones((1, 2), np.float16), [1]), shape=(3, 2), dtype="float16"
        )
        update(0, grad, weight)
        assert (weight.asnumpy()[0] != 1).all() == moves
        assert (weight.asnumpy()[1] != 1).all()


def test_nesterov_without_momentum_is_lazy():
    update = optimizer.get_updater(optimizer.create("nag", learning_rate=0.5, wd=0.5))
    weight = mx.nd.ones((3, 2))
    update(0, rows([[1, 1]], [1], (3, 2)), weight)
    np.testing.assert_array_equal(weight.asnumpy(), [[1, 1], [0.25, 0.25], [1, 1]])


def test_states_of_a_row_sparse_parameter_are_loaded():
    """MXNet keeps them row-sparse and writes them so."""
    update = optimizer.get_updater(optimizer.create("sgd", momentum=0.9))
    update.states = {0: rows([[1, 2]], [1], (3, 2))}
    data = update.get_states()
    update.set_states(data)
    assert update.states[0].stype == "default"
    np.testing.assert_array_equal(update.states[0].asnumpy(), [[0, 0], [1, 2], [0, 0]])
