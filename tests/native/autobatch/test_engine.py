"""The native engine as programs meet it: fusion and memory; and numbers that are not there."""

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


def test_parameters_that_are_gone_are_forgotten():
    words, machines = dy.ParameterCollection().add_lookup_parameters((4, 2), init=1.0), set()
    for _ in range(600):
        dy.renew_cg()
        w = dy.ParameterCollection().add_parameters((2, 2), init=1.0)
        np.testing.assert_allclose((w * words[3]).npvalue(), [2.0, 2.0])
        machines.add(dy.cg().machine.serial)
    assert len(machines) > 1


def test_wrong_numbers_are_refused():
    machine = native.core.AutobatchEngine()
    machine.renew(1)
    of_nodes = [machine.value, machine.forward, machine.backward, machine.dim, machine.gradient]
    for call in (*of_nodes, machine.parameter, machine.passed, machine.touched):
        with pytest.raises(IndexError):
            call(3)
    for call in (machine.set_gradient, machine.set_table_gradient, machine.lookup):
        with pytest.raises(IndexError):
            call(3, 0)
    with pytest.raises(IndexError):
        machine.append(10**6, (0,))
    with pytest.raises(ValueError, match="size"):
        machine.input(machine.input_signature(machine.shape((3,))), np.zeros(2, np.float32))
