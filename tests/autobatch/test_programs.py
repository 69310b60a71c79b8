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
