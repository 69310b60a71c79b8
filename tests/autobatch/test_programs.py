"""Networks and trainers compute what DyNet computes."""

from __future__ import annotations

import os
from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.autobatch_programs import BUILDERS, TRAINERS, network, training
from helpers.walk import walks

FOUND = np.load(os.path.join(os.path.dirname(__file__), "..", "data", "autobatch", "programs.npz"))


@pytest.fixture(params=["python", "auto"], autouse=True)
def _engine(request):
    dy.configure(engine=request.param, autobatch=False)
    yield
    dy.configure(engine="auto", autobatch=False)


@walks(product([False, True], [False, True], BUILDERS))
def test_networks(autobatch, first, name):
    dy.configure(autobatch=autobatch)
    for place, array in enumerate(network(dy, name, first)):
        wanted = FOUND[f"{name}/{first:d}/{place}"]
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=2e-6, err_msg=str(place))


@walks([(*a, b) for a, b in product([(5.0, True), (-1.0, False), (0.5, True)], TRAINERS)])
def test_trainers(clip, sparse, name):
    for place, array in enumerate(training(dy, name, clip, sparse, 0.0)):
        wanted = FOUND[f"{name}/{clip:g}/{sparse:d}/{place}"]
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=2e-6, err_msg=str(place))


@pytest.mark.parametrize("name", ["SimpleSGDTrainer", "AdamTrainer"])
def test_weight_decay(name):
    """Every update shrinks updated parameters by 1 - lambda, after the step."""
    values = []
    for decay in (0.0, 0.25):
        m = dy.ParameterCollection()
        m.set_weight_decay(decay)
        w, fixed = m.add_parameters((2,), init=2.0), m.add_parameters((2,), init=2.0)
        fixed.set_updated(False)
        dy.renew_cg()
        dy.sum_elems(dy.square(w)).backward()
        getattr(dy, name)(m).update()
        values.append(w.as_array())
        assert fixed.as_array().tolist() == [2.0, 2.0]
    np.testing.assert_allclose(values[1], 0.75 * values[0], rtol=1e-6)


def test_parameters_that_are_not_updated_do_not_count_in_clipping():
    m = dy.ParameterCollection()
    w, fixed = m.add_parameters((1,), init=1.0), m.add_parameters((1,), init=3.0)
    fixed.set_updated(False)
    trainer = dy.SimpleSGDTrainer(m, 1.0)
    trainer.set_clip_threshold(3.5)
    dy.renew_cg()
    dy.dot_product(w * 4, fixed).backward()
    trainer.update()  # the gradient of w is 12, which is cut to 3.5; DyNet counts the 4 of the other one, too
    np.testing.assert_allclose(w.as_array(), [1 - 3.5], rtol=1e-6)


def test_learning_rate_status_and_restart(capsys):
    m = dy.ParameterCollection()
    w = m.add_parameters((2,), init=2.0)
    trainer = dy.MomentumSGDTrainer(m, 0.5)
    trainer.set_clip_threshold(1.0)
    for _ in range(2):
        dy.renew_cg()
        dy.sum_elems(dy.square(w)).backward()
        trainer.update()
    trainer.status()
    assert capsys.readouterr().err == "[lr=0.5 clips=2 updates=2] "
    trainer.restart(0.25)
    assert trainer.learning_rate == 0.25
    assert trainer.get_clip_threshold() == 1.0
    before = w.as_array()
    trainer.update()  # no gradient, no momentum left
    np.testing.assert_array_equal(w.as_array(), before)


@walks(product([False, True], [name for name in TRAINERS if "_" not in name]))
def test_trainers_of_all_sizes(sparse, name):
    """Steps in float32, which are native code's, are those in float64, which are torch's."""
    found = []
    for dtype in ("float32", "float64"):
        dy.configure(dtype=dtype, random_seed=1)
        draw = np.random.RandomState(2)
        m = dy.ParameterCollection()
        weights = [m.parameters_from_numpy(draw.uniform(-1, 1, size)) for size in (1, 7, 8, 33, 200)]
        table = m.lookup_parameters_from_numpy(draw.uniform(-1, 1, (5, 19)))
        trainer = getattr(dy, name)(m)
        trainer.set_sparse_updates(sparse)
        for step in range(4):
            dy.renew_cg()
            losses = [dy.squared_norm(dy.cube(each)) * (step + 1) for each in weights]
            dy.esum([*losses, dy.squared_norm(table[step % 3]), dy.sum_elems(table[1])]).backward()
            trainer.update()
        found.append([each.as_array() for each in (*weights, table)])
    dy.configure(dtype="float32")
    for single, double in zip(*found):
        np.testing.assert_allclose(single, double, rtol=2e-4, atol=1e-6)


@walks([name for name in TRAINERS if "_" not in name])
def test_a_derived_trainer_steps_by_its_own_rule(name):
    class Signs(getattr(dy, name)):
        def rule(self, value, gradient, moments):
            value.sub_(gradient.sign(), alpha=0.5)

    m = dy.ParameterCollection()
    w = m.add_parameters((3,), init=2.0)
    trainer = Signs(m)
    dy.renew_cg()
    dy.dot_product(w, dy.inputVector([1.0, -1.0, 0.0])).backward()
    trainer.update()
    assert w.as_array().tolist() == [1.5, 2.5, 2.0]


@walks([name for name in TRAINERS if "_" not in name])
def test_parameters_that_a_graph_leaves_out_step_as_by_the_rule_in_python(name):
    trainer_class = getattr(dy, name)

    class Slow(trainer_class):
        def rule(self, value, gradient, moments):
            super().rule(value, gradient, moments)

    found = []
    for each in (trainer_class, Slow):
        m = dy.ParameterCollection()
        weights = [m.parameters_from_numpy(np.linspace(-1, 1, size)) for size in (3, 20)]
        trainer = each(m)
        for used in (0, 1, 1, 0):
            dy.renew_cg()
            dy.squared_norm(weights[used]).backward()
            trainer.update()
            assert not any(w.grad_as_array().any() for w in weights)
        found.append([w.as_array() for w in weights])
    for native, slow in zip(*found):
        np.testing.assert_allclose(native, slow, rtol=1e-5, atol=1e-7)
