"""LARS, LAMB and LBSGD: trust, corrected momentum and large batches."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import optimizer

NAMES = {0: "a_weight", 1: "b_weight", 2: "n_gamma", 3: "n_beta", 4: "a_bias"}


def test_momenta_with_different_pasts():
    """One parameter skipped the batch at another rate, so the two are corrected by different factors."""
    made = optimizer.create("lars", momentum=0.5, learning_rate=0.1, param_idx2name=NAMES)
    update, weights = optimizer.get_updater(made), [mx.nd.array([1.0]) for _ in range(2)]
    indices, zero = [3, 4], [mx.nd.zeros((1,))] * 2
    update.update_all(indices, [mx.nd.ones((1,))] * 2, weights)  # both momenta are -0.1
    made.set_learning_rate(0.2)
    update(3, zero[0], weights[0])  # to -0.1 * 0.5 * 2
    update.update_all(indices, zero, weights)
    assert update.states[3].asscalar() == pytest.approx(-0.1 * 0.5)
    assert update.states[4].asscalar() == pytest.approx(-0.1 * 0.5 * 2)


@pytest.mark.parametrize("name", ["lars", "lamb", "lbsgd"])
def test_nothing_is_nan_without_gradient_or_parameter(name):
    extra = {"warmup_strategy": "lars"} if name == "lbsgd" else {}
    for weight, grad in (([0.0, 0.0], [1.0, 2.0]), ([1.0, 2.0], [0.0, 0.0]), ([0.0, 0.0], [0.0, 0.0])):
        for rescale in (1.0, 0.0):
            made = optimizer.create(name, learning_rate=0.1, rescale_grad=rescale, **extra)
            array = mx.nd.array(weight)
            made.update(0, array, mx.nd.array(grad), made.create_state(0, array))
            assert np.isfinite(array.asnumpy()).all()


def test_norms_of_16_bit_parameters_do_not_overflow():
    made = optimizer.create("lamb", learning_rate=0.25)
    weight = mx.nd.full((200,), 30000, dtype="float16")
    state = made.create_state(0, weight)
    made.update(0, weight, mx.nd.ones((200,), dtype="float16"), state)
    np.testing.assert_allclose(weight.asnumpy(), 22500, rtol=1e-3)


def test_a_large_batch_waits_for_its_gradients():
    made = optimizer.create("lbsgd", learning_rate=0.5, batch_scale=3, warmup_strategy="none")
    update, weights = optimizer.get_updater(made), [mx.nd.zeros((2,)), mx.nd.zeros((2,))]
    for t in range(1, 7):
        before = [w.asnumpy() for w in weights]
        update.update_all([0, 1], [mx.nd.full((2,), t), mx.nd.full((2,), -t)], weights)
        for i, sign in ((0, -1), (1, 1)):
            moved = weights[i].asnumpy() - before[i]
            np.testing.assert_allclose(moved, 0.0 if t % 3 else sign * 0.5 * (t - 1), rtol=1e-6)
    assert made.cumgrads == {i: {"cum_grad": 0, "num_cums": 6} for i in (0, 1)}


def test_a_large_batch_counts_from_the_updates_of_the_epochs_before():
    made = optimizer.create(
        "lbsgd",
        learning_rate=0.1,
        batch_scale=2,
        updates_per_epoch=5,
        warmup_epochs=2,
        begin_epoch=1,
        momentum=0.5,
    )
    update, weight, found = optimizer.get_updater(made), mx.nd.zeros((1,)), []
    for t in range(1, 4):
        update(0, mx.nd.full((1,), t), weight)
        found.append(weight.asscalar())
    np.testing.assert_allclose(found, [-0.08, -0.08, -0.57], rtol=1e-5)  # of MXNet 1.9.1
