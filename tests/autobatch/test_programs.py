"""Networks and trainers compute what DyNet computes; updates of any size, of clipped and of left-out parameters."""

import os
from itertools import product

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.autobatch_programs import BUILDERS, TRAINERS, network, training
from helpers.walk import walks

FOUND = np.load(os.path.join(os.path.dirname(__file__), "..", "data", "autobatch", "programs.npz"))
PLAIN = [name for name in TRAINERS if "_" not in name]


def as_dynet(arrays, key):
    for place, array in enumerate(arrays):
        np.testing.assert_allclose(array, FOUND[f"{key}/{place}"], rtol=1e-4, atol=2e-6, err_msg=str(place))


@walks(product([False, True], BUILDERS))
def test_networks(first, name, setting):
    as_dynet(network(dy, name, first), f"{name}/{first:d}")


@walks(product([(5.0, True), (-1.0, False), (0.5, True)], TRAINERS))
def test_trainers(how, name, engine):
    clip, sparse = how
    as_dynet(training(dy, name, clip, sparse, 0.0), f"{name}/{clip:g}/{sparse:d}")


@pytest.mark.parametrize("name", ["SimpleSGDTrainer", "AdamTrainer"])
def test_weight_decay(name, engine):
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


def test_parameters_that_are_not_updated_do_not_count_in_clipping(engine):
    m = dy.ParameterCollection()
    w, fixed = m.add_parameters((1,), init=1.0), m.add_parameters((1,), init=3.0)
    fixed.set_updated(False)
    trainer = dy.SimpleSGDTrainer(m, 1.0)
    trainer.set_clip_threshold(3.5)
    dy.dot_product(w * 4, fixed).backward()
    trainer.update()  # the gradient of w is 12, which is cut to 3.5; DyNet counts the 4 of the other one, too
    np.testing.assert_allclose(w.as_array(), [1 - 3.5], rtol=1e-6)


def test_learning_rate_status_and_restart(capsys, engine):
    m = dy.ParameterCollection()
    w, trainer = m.add_parameters((2,), init=2.0), dy.MomentumSGDTrainer(m, 0.5)
    trainer.set_clip_threshold(1.0)
    for _ in range(2):
        dy.renew_cg()
        dy.sum_elems(dy.square(w)).backward()
        trainer.update()
    trainer.status()
    assert capsys.readouterr().err == "[lr=0.5 clips=2 updates=2] "
    trainer.restart(0.25)
    assert (trainer.learning_rate, trainer.get_clip_threshold()) == (0.25, 1.0)
    before = w.as_array()
    trainer.update()  # no gradient, no momentum left
    np.testing.assert_array_equal(w.as_array(), before)
    trainer.set_clip_threshold(np.array([-2.0]))
    assert trainer.get_clip_threshold() == 0.0


@walks(product([False, True], PLAIN))
def test_updates_of_all_sizes(sparse, name):
    """Steps in float32, which are native code's, are those in float64, and those by a rule of one's own.

    Some are clipped; none uses all parameters, of which one is not updated at first.
    """
    plain, found = getattr(dy, name), []

    class OneByOne(plain):
        """A rule of one's own is called for each parameter."""

        def rule(self, value, gradient, moments):
            super().rule(value, gradient, moments)

    for dtype, kind in (("float64", plain), ("float32", plain), ("float32", OneByOne)):
        dy.configure(dtype=dtype)
        draw, m = np.random.RandomState(2), dy.ParameterCollection()
        weights = [m.parameters_from_numpy(draw.uniform(-1, 1, size)) for size in (1, 7, 8, 33, 200, (3, 3))]
        table, rare = (m.lookup_parameters_from_numpy(draw.uniform(-1, 1, (5, size))) for size in (19, 3))
        trainer = kind(m)
        trainer.set_sparse_updates(sparse)
        trainer.set_clip_threshold(2.0)
        weights[3].set_updated(False)
        for step in range(6):
            dy.renew_cg()
            if step == 3:
                weights[3].set_updated(True)
            used = [weights[place] for place in (step % 3, 3, 4)] + weights[5:] * (step < 2)
            losses = [dy.squared_norm(dy.cube(each)) * (10.0 if step % 2 else 0.1) for each in used]
            losses += [dy.squared_norm(rare[step])] if step in (1, 4) else []
            dy.esum([*losses, dy.squared_norm(table[step % 3]), dy.sum_elems(table[1])]).backward()
            trainer.update()
            assert not any(each.grad_as_array().any() for each in (*weights, table, rare))
        found.append([each.as_array() for each in (*weights, table, rare)])
    for double, *singles in zip(*found):
        for single in singles:
            np.testing.assert_allclose(single, double, rtol=2e-4, atol=1e-6)


@pytest.mark.parametrize("place", ["updated_params", "updated_lookups"])
def test_places_of_update_subset(engine, place):
    """Those that are not there update nothing; those named twice are updated once."""
    m = dy.ParameterCollection()
    p, table = m.parameters_from_numpy(np.eye(3)), m.lookup_parameters_from_numpy(np.ones((2, 3)))
    trainer = dy.MomentumSGDTrainer(m, 0.1)
    dy.sum_elems(p * table[1]).backward()

    wrong = [([0, 1], dy.BoundsError), ([-1], dy.NegativeIndexError), (None, dy.ForeignValueError)]
    for places, error in (*wrong, ([0, "a"], dy.ForeignValueError), ([0, 0], None)):
        options = {"updated_params": [0], "updated_lookups": [0], place: places}
        if error:
            with pytest.raises(error, match=rf"{place}.*\(at .*test_programs\.py:\d+\)"):
                trainer.update_subset(**options)
            assert (p.as_array().tolist(), trainer.updates) == (np.eye(3).tolist(), 0)
    trainer.update_subset(**options)
    np.testing.assert_allclose(p.as_array(), np.eye(3) - 0.1, rtol=1e-6)
    np.testing.assert_allclose(table.as_array(), [[1.0] * 3, [0.9] * 3], rtol=1e-6)
    assert trainer.updates == 1


def test_a_failed_update_changes_nothing_and_names_the_parameter(engine):
    m = dy.ParameterCollection()
    p, q = m.parameters_from_numpy(np.ones(2)), m.parameters_from_numpy(np.ones(2))
    trainer = dy.AdamTrainer(m)
    (dy.sum_elems(p) + dy.sum_elems(dy.log(q * 0.0))).backward()
    with pytest.raises(dy.NonFiniteError, match="gradient is bad: .*that of /_1 is not finite"):
        trainer.update()
    np.testing.assert_array_equal([p.as_array(), q.as_array()], np.ones((2, 2)))
