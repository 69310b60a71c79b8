"""Row-sparse gradients: rows without one stay as they are, where MXNet leaves them."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.walk import walks

GRAD = np.array([[0, 0], [1, -2], [0, 0], [3, 1]], "f4")
STATES = {"sgd_update": 0, "sgd_mom_update": 1, "adam_update": 2, "ftrl_update": 2}
TOUCHED, ALL = [False, True, False, True], [True] * 4
LAZY = [(name, stype) for name in [*STATES][:3] for stype in ("default", "row_sparse")]


def sparse():
    return mx.nd.array(GRAD).tostype("row_sparse")


def changed(name, stype, states_stype=None, **attrs):
    """Return which rows of weight and states an update changed."""
    drawn = [np.random.RandomState(i).uniform(0.5, 1, (4, 2)).astype("f4") for i in range(STATES[name] + 1)]
    kinds = [stype, *[states_stype or stype] * STATES[name]]
    arrays = weight, *states = [mx.nd.array(x).tostype(kind) for x, kind in zip(drawn, kinds, strict=True)]
    assert getattr(mx.nd, name)(weight, sparse(), *states, out=weight, lr=0.1, **attrs) is weight
    assert [x.stype for x in arrays] == kinds
    return [(x.asnumpy() != old).any(1).tolist() for x, old in zip(arrays, drawn, strict=True)]


CHANGES = [(given, {"wd": 0.5}, TOUCHED) for given in LAZY]
CHANGES += [(given, {"wd": 0.5, "lazy_update": False}, ALL) for given in LAZY]
CHANGES += [(("ftrl_update", "row_sparse"), {}, TOUCHED), (("ftrl_update", "default"), {}, ALL)]
# states stored otherwise than the weight
CHANGES += [(("adam_update", "row_sparse", "default"), {"wd": 0.5}, ALL)]


@walks(CHANGES)
def test_rows_that_change(given, attrs, rows):
    found = changed(*given, **attrs)
    found = found[:1] if given[0] == "ftrl_update" else found
    assert found == [rows] * len(found)


def test_the_rows_that_move_get_the_dense_numbers():
    weight = np.random.RandomState(1).uniform(size=(4, 2)).astype("f4")
    found = []
    for grad in (mx.nd.array(GRAD), sparse()):
        arrays = [mx.nd.array(weight), mx.nd.zeros((4, 2)), mx.nd.zeros((4, 2))]
        mx.nd.adam_update(arrays[0], grad, *arrays[1:], out=arrays[0], lr=0.1)
        found.append([array.asnumpy() for array in arrays])
    np.testing.assert_array_equal(found[0][0][TOUCHED], found[1][0][TOUCHED])
    np.testing.assert_array_equal(found[0][1:], found[1][1:])


def test_a_history_grows_by_the_rows_it_lacks():
    weight, history = mx.nd.ones((4, 2)).tostype("row_sparse"), mx.nd.sparse.zeros("row_sparse", (4, 2))
    mx.nd.sparse.adagrad_update(weight, sparse(), history, lr=0.1)
    np.testing.assert_array_equal(history.indices.asnumpy(), [1, 3])
    np.testing.assert_array_equal(history.asnumpy(), GRAD**2)


@pytest.mark.parametrize("grad", [sparse(), mx.nd.array(GRAD)], ids=["sparse", "dense"])
def test_adagrad_of_elements_and_of_rows(grad):
    for update, sums in (
        (mx.nd.contrib.group_adagrad_update, (GRAD**2).mean(1, keepdims=True)),
        (mx.nd.sparse.adagrad_update, GRAD**2),
    ):
        if grad.stype == "row_sparse" and update is mx.nd.sparse.adagrad_update:
            continue  # its history is row-sparse
        weight, history = mx.nd.ones((4, 2)), mx.nd.zeros(sums.shape)
        assert update(weight, grad, history, lr=0.5, epsilon=1e-5, out=weight) is weight
        np.testing.assert_allclose(history.asnumpy(), sums)
        np.testing.assert_allclose(weight.asnumpy(), 1 - 0.5 * GRAD / np.sqrt(sums + 1e-5), rtol=1e-4)
