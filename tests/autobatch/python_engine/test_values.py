"""What values come out as: floats, lists, arrays; and that they are those of the parameters as they are now."""

from __future__ import annotations

import json
from itertools import product

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from helpers.walk import walks

pytestmark = pytest.mark.usefixtures("setting")


@pytest.fixture(autouse=True)
def _new_graph(setting):
    dy.renew_cg()


@walks(product([1, 3], [(1,), (4,), (1, 4), (4, 1), (2, 3), (2, 3, 2), (1, 1)]))
def test_numbers_lists_and_arrays(batch, shape):
    whole = (*shape, batch) if batch > 1 else shape
    array = np.arange(np.prod(whole), dtype=float).reshape(whole)
    x = dy.tanh(dy.inputTensor(array / 10, batched=batch > 1))
    right = np.tanh(array / 10)
    np.testing.assert_allclose(x.npvalue(), right, rtol=1e-5)
    found = x.vec_value()
    assert type(found) is list
    assert all(type(each) is float for each in found)
    np.testing.assert_allclose(found, right.reshape(-1, order="F"), rtol=1e-5)
    value = x.value()
    if array.size == 1:
        assert type(value) is type(x.scalar_value()) is float
        assert value == x.scalar_value() == found[0]
        return
    with pytest.raises(dy.NotScalarError, match="scalar_value"):
        x.scalar_value()
    if len(shape) == 1:
        assert value == found
    else:
        np.testing.assert_allclose(value, right, rtol=1e-5)


def test_a_parameter_that_changes_between_two_values():
    m = dy.ParameterCollection()
    w, table = (
        m.add_parameters((2, 2), init=1.0),
        m.add_lookup_parameters((3, 2), init=dy.ConstInitializer(1.0)),
    )
    x = dy.inputVector([1.0, 2.0])
    assert (w * x).vec_value() == [3.0, 3.0]
    w.set_value(np.full((2, 2), 2.0))
    assert (w * x).vec_value() == [6.0, 6.0]
    w.tensor.mul_(2)
    table.init_row(1, [5.0, 7.0])
    assert (w * x + table[1]).value() == [17.0, 19.0]
    other = m.add_parameters((2,), init=0.5)  # enters the graph late
    assert (w * other).value() == [4.0, 4.0]
    other.set_value([1.0, 1.0])
    assert dy.sum_elems(w * other).scalar_value() == 16.0
    assert other.value() == [1.0, 1.0]


def test_values_of_inputs_that_are_set_again():
    x = dy.vecInput(2)
    y = dy.squared_norm(x)
    for numbers, wanted in (([1.0, 2.0], 5.0), ([3.0, 4.0], 25.0)):
        x.set(numbers)
        assert y.scalar_value() == wanted
        assert y.value(recalculate=True) == wanted


def test_a_value_after_a_change_of_all_parameters():
    m = dy.ParameterCollection()
    w = m.add_parameters((2,), init=1.0)
    y = dy.squared_norm(w)
    assert y.scalar_value() == 2.0
    w.set_value([2.0, 2.0])
    assert y.scalar_value() == 2.0  # is there already
    assert y.scalar_value(recalculate=True) == 8.0
    assert w.vec_value() == [2.0, 2.0]


@pytest.mark.parametrize("rate", [0, 0.0])
def test_dropout_of_nothing_draws_nothing(rate):
    numbers, drawn = [1.0, 2.0, 3.0], []
    for drops in (False, True):
        dy.configure(random_seed=3)
        if drops:
            dy.dropout(dy.inputVector(numbers), rate).value()
        drawn.append(dy.random_uniform((3,), 0.0, 1.0).value())
    assert drawn[0] == drawn[1]
    x = dy.inputVector(numbers)
    y = dy.dropout(dy.tanh(x), rate)
    np.testing.assert_allclose(y.value(), np.tanh(numbers), rtol=1e-5)
    dy.sum_elems(dy.square(dy.dropout(x, rate))).backward(full=True)
    np.testing.assert_allclose(x.gradient(), [2.0, 4.0, 6.0], rtol=1e-6)
    with pytest.raises(dy.ForeignValueError):
        dy.dropout([1.0], rate)


def test_arrays_are_of_doubles_as_in_dynet():
    """So `json` and others take their numbers; what the graph computes in is another matter."""
    m = dy.ParameterCollection()
    w, table = m.add_parameters((2, 3)), m.add_lookup_parameters((4, 3))
    x = dy.inputTensor(np.ones((3, 2), np.float32), batched=True)
    y = dy.tanh(w * x + dy.sum_elems(table[1]))
    loss = dy.sum_batches(dy.sum_elems(y))
    loss.backward(full=True)
    arrays = [loss.npvalue(), y.npvalue(), w.value(), y.tensor_value().as_numpy(), *dy.npvalues([x, loss])]
    arrays += [x.gradient(), w.gradient(), w.as_array(), w.grad_as_array(), table.as_array()]
    arrays += [table.grad_as_array(), table.row_as_array(1), table.rows_as_array([1, 2])]
    arrays += [table.row_grad_as_array(1), table.rows_grad_as_array([1, 2])]
    for each in arrays:
        assert type(each) is np.ndarray
        assert each.dtype == np.float64
        assert each.flags.c_contiguous
        each[...] = 0.0
    assert json.loads(json.dumps(list(dy.scalarInput(0.5).npvalue()))) == [0.5]
    assert y.npvalue().any(), "a copy was written to"
    assert w.as_array().any(), "a copy was written to"
    assert table.row_grad_as_array(1).any(), "a copy was written to"
    assert y.value_tensor().dtype is torch.float32
    assert y.tensor_value().argmax().as_numpy().dtype == np.int64
