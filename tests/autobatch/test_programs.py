"""Networks and trainers compute what DyNet computes."""

from __future__ import annotations

import os

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.autobatch_programs import BUILDERS, TRAINERS, network, training

FOUND = np.load(os.path.join(os.path.dirname(__file__), "..", "data", "autobatch", "programs.npz"))


@pytest.fixture(params=["python", "auto"], autouse=True)
def _engine(request):
    dy.configure(engine=request.param, autobatch=False)
    yield
    dy.configure(engine="auto", autobatch=False)


@pytest.mark.parametrize("autobatch", [False, True])
@pytest.mark.parametrize("first", [False, True])
@pytest.mark.parametrize("name", BUILDERS)
def test_networks(name, first, autobatch):
    dy.configure(autobatch=autobatch)
    for place, array in enumerate(network(dy, name, first)):
        wanted = FOUND[f"{name}/{first:d}/{place}"]
        np.testing.assert_allclose(array, wanted, rtol=1e-4, atol=2e-6, err_msg=str(place))


@pytest.mark.parametrize(("clip", "sparse"), [(5.0, True), (-1.0, False), (0.5, True)])
@pytest.mark.parametrize("name", TRAINERS)
def test_trainers(name, clip, sparse):
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
