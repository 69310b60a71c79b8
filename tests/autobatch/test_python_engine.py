"""What the engine in Python keeps from graph to graph, and what it computes once only."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np
import pytest

import dpmodule.autobatch as dy


@pytest.fixture(autouse=True)
def _engine() -> Iterator[None]:
    dy.configure(engine="python", autobatch=True)
    dy.renew_cg()
    yield
    dy.configure(engine="auto", autobatch=False)
    dy.renew_cg()


def _tripled(number: float) -> dy.Expression:
    return dy.inputTensor(np.full(300, number)) * 3.0


def test_values_that_are_held_outlive_their_graph() -> None:
    held = _tripled(1.0).value_tensor()
    for number in (2.0, 3.0):
        dy.renew_cg()
        assert _tripled(number).npvalue()[0] == 3.0 * number
    assert held[0, 0] == 3.0


def test_memory_is_used_again() -> None:
    addresses = set()
    for number in range(4):
        dy.renew_cg()
        addresses.add(_tripled(number).value_tensor().data_ptr())
    assert len(addresses) == 1


@pytest.mark.parametrize("is_bad", [False, True])
def test_nodes_that_the_loss_does_not_depend_on_give_nothing(is_bad: bool) -> None:
    model = dy.ParameterCollection()
    weight = model.add_parameters((2,), init=1.0)
    inputs = [dy.inputTensor([4.0, 4.0]), dy.inputTensor([0.0 if is_bad else 9.0, 1.0])]
    roots = [dy.sqrt(dy.cmult(weight, x)) for x in inputs]
    dy.forward(roots)  # one batch, of which the loss needs one node
    dy.sum_elems(roots[0]).backward()
    np.testing.assert_allclose(weight.grad_as_array(), [1.0, 1.0], rtol=1e-6)
