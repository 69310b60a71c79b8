"""Row-sparse gradients: rows without one stay as they are, where MXNet leaves them."""

import numpy as np
import pytest

import dpmodule as mx

GRAD = np.array([[0, 0], [1, -2], [0, 0], [3, 1]], "f4")
STATES = {"sgd_update": 0, "sgd_mom_update": 1, "adam_update": 2, "ftrl_update": 2}
TOUCHED = [False, True, False, True]


def changed(stype, name, states_stype=None, **attrs):
    """Return which rows of weight and states an update changed."""
    drawn = [np.random.RandomState(i).uniform(0.5, 1, (4, 2)).astype("f4") for i in range(STATES[name] + 1)]
    kinds = [stype, *[states_stype or stype] * STATES[name]]
    weight, *states = (mx.nd.array(x).tostype(kind) for x, kind in zip(drawn, kinds, strict=True))
    function = getattr(mx.nd, name)
    found = function(weight, mx.nd.array(GRAD).tostype("row_sparse"), *states, out=weight, lr=0.1, **attrs)
    assert found is weight
    assert [x.stype for x in (weight, *states)] == kinds
    return [(x.asnumpy() != old).any(1).tolist() for x, old in zip((weight, *states), drawn, strict=True)]


@pytest.mark.parametrize("stype", ["default", "row_sparse"])
@pytest.mark.parametrize("name", ["sgd_update", "sgd_mom_update", "adam_update"])
def test_lazy_updates_touch_stored_rows_only(name, stype):
    assert changed(stype, name, wd=0.5) == [TOUCHED] * (STATES[name] + 1)
    eager = changed(stype, name, wd=0.5, lazy_update=False)
    assert eager == [[True] * 4] * (STATES[name] + 1)


def test_states_stored_otherwise_than_the_weight_are_updated_everywhere():
    assert changed("row_sparse", "adam_update", "default", wd=0.5) == [[True] * 4] * 3


def test_ftrl_is_lazy_for_row_sparse_weights_only():
    assert changed("row_sparse", "ftrl_update")[0] == TOUCHED
    assert changed("default", "ftrl_update")[0] == [True] * 4


def test_the_rows_that_move_get_the_dense_numbers():
    weight = np.random.RandomState(1).uniform(size=(4, 2)).astype("f4")
    dense, lazy = mx.nd.array(weight), mx.nd.array(weight)
    states = [mx.nd.zeros((4, 2)) for _ in range(4)]
    mx.nd.adam_update(dense, mx.nd.array(GRAD), *states[:2], out=dense, lr=0.1)
    mx.nd.adam_update(lazy, mx.nd.array(GRAD).tostype("row_sparse"), *states[2:], out=lazy, lr=0.1)
    np.testing.assert_array_equal(lazy.asnumpy()[TOUCHED], dense.asnumpy()[TOUCHED])
    np.testing.assert_array_equal(states[2].asnumpy(), states[0].asnumpy())


def test_a_history_grows_by_the_rows_it_lacks():
    weight, history = mx.nd.ones((4, 2)), mx.nd.sparse.zeros("row_sparse", (4, 2))
    grad = mx.nd.array(GRAD).tostype("row_sparse")
    mx.nd.sparse.adagrad_update(weight.tostype("row_sparse"), grad, history, lr=0.1)
    np.testing.assert_array_equal(history.indices.asnumpy(), [1, 3])
    np.testing.assert_array_equal(history.asnumpy(), GRAD**2)


def test_without_out_the_weight_stays():
    weight = mx.nd.ones((4, 2))
    found = mx.nd.sgd_update(weight, mx.nd.array(GRAD).tostype("row_sparse"), lr=0.1)
    np.testing.assert_array_equal(weight.asnumpy(), np.ones((4, 2)))
    np.testing.assert_allclose(found.asnumpy(), 1 - 0.1 * GRAD, rtol=1e-6)


def test_group_adagrad_has_one_rate_a_row():
    weight, history = mx.nd.ones((4, 2)), mx.nd.zeros((4, 1))
    mx.nd.contrib.group_adagrad_update(
        weight, mx.nd.array(GRAD).tostype("row_sparse"), history, out=weight, lr=0.5
    )
    sums = (GRAD**2).mean(1, keepdims=True)
    np.testing.assert_allclose(history.asnumpy(), sums)
    want = 1 - 0.5 * GRAD / np.sqrt(sums + 1e-5)
    np.testing.assert_allclose(weight.asnumpy(), want, rtol=1e-6)


def test_adagrad_takes_dense_gradients():
    grad = mx.nd.array(GRAD)
    for update, sums in (
        (mx.nd.contrib.group_adagrad_update, (GRAD**2).mean(1, keepdims=True)),
        (mx.nd.sparse.adagrad_update, GRAD**2),
    ):
        history = mx.nd.zeros(sums.shape)
        found = update(mx.nd.ones((4, 2)), grad, history, lr=0.5, epsilon=1e-5)
        np.testing.assert_allclose(history.asnumpy(), sums)
        np.testing.assert_allclose(found.asnumpy(), 1 - 0.5 * GRAD / np.sqrt(sums + 1e-5), rtol=1e-4)
