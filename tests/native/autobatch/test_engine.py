"""The native engine as programs meet it: memory that is given back."""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy
from dpmodule import native

pytestmark = pytest.mark.skipif(native.core is None, reason="no native extension")


@pytest.fixture(autouse=True)
def _autobatch():
    dy.configure(engine="native", autobatch=True)
    yield
    dy.configure(engine="auto", autobatch=False)


def test_large_graphs_and_parts_taken_back_are_given_back():
    machine, x, sizes = dy.cg().machine, dy.inputTensor(np.ones(100)), []
    for _ in range(50):
        dy.cg_checkpoint()
        dy.esum([dy.tanh(x * float(k % 7)) for k in range(20)]).npvalue()
        dy.cg_revert()
        sizes.append(machine.bytes)
    assert sizes[-1] == sizes[5]
    dy.esum([dy.tanh(x * float(k % 3)) for k in range(50_000)]).npvalue()
    assert machine.bytes > 20_000_000
    for _ in range(3):
        dy.renew_cg()
        dy.tanh(dy.inputTensor(np.ones(100))).npvalue()
    assert machine.bytes < 2_000_000
