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


def _gated(is_partly: bool, has_bias: bool, is_updated: bool) -> list[np.ndarray]:
    """Return the gradients of a network that multiplies three matrices with every state, and the first states'."""
    source = np.random.RandomState(5)
    model = dy.ParameterCollection()
    matrices = [model.parameters_from_numpy(source.uniform(-1, 1, (4, 4))) for _ in "abc"]
    biases = [model.parameters_from_numpy(source.uniform(-1, 1, 4)) for _ in "abc"]
    lasts, states = [], []
    for length in (5, 7, 6):
        state = dy.inputTensor(source.uniform(-1, 1, 4)) + biases[0]
        for _ in range(length):
            a, b, c = (
                dy.affine_transform([bias.expr(is_updated), matrix, state]) if has_bias else matrix * state
                for matrix, bias in zip(matrices, biases)
            )
            state = dy.cmult(dy.logistic(a), dy.tanh(b)) + c * 0.3
            states.append(state)
        lasts.append(dy.squared_norm(state))
    dy.forward(lasts)
    (lasts[0] + lasts[2] if is_partly else dy.esum(lasts)).backward()
    return [each.grad_as_array() for each in (*matrices, *biases)] + [each.gradient() for each in states[:4]]


@pytest.mark.parametrize("is_partly", [False, True])
@pytest.mark.parametrize(("has_bias", "is_updated"), [(True, True), (True, False), (False, True)])
def test_products_of_several_matrices_with_one_vector(
    is_partly: bool, has_bias: bool, is_updated: bool
) -> None:
    dy.configure(dtype="float64")
    try:
        found = []
        for autobatch in (True, False):
            dy.renew_cg(autobatching=autobatch)
            found.append(_gated(is_partly, has_bias, is_updated))
        for batched, single in zip(*found):
            np.testing.assert_allclose(batched, single, rtol=1e-12, atol=1e-12 * np.abs(single).max())
    finally:
        dy.configure(dtype="float32")
