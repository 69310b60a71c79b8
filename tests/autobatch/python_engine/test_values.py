"""What values come out as, that they are of the parameters as they are now, and what the engine in Python keeps."""

import json
from itertools import product

import numpy as np
import torch

import dpmodule.autobatch as dy
from helpers.walk import walks


@walks(product([1, 3], [(1,), (4,), (4, 1), (2, 3), (2, 3, 2), (1, 1)]))
def test_numbers_lists_and_arrays(batch, shape, setting):
    whole = (*shape, batch) if batch > 1 else shape
    array = np.arange(np.prod(whole), dtype=float).reshape(whole)
    x = dy.inputTensor(array, batched=batch > 1) * 2.0
    found, value = x.vec_value(), x.value()
    assert ({type(found), *map(type, found)}, found) == ({list, float}, (2 * array).ravel(order="F").tolist())
    assert type(value) is (float if array.size == 1 else list if len(shape) == 1 else np.ndarray)
    np.testing.assert_array_equal(value, found if len(shape) == 1 else 2 * array)


def test_parameters_that_change_between_two_values(setting):
    m = dy.ParameterCollection()
    w, table = m.parameters_from_numpy(np.ones((2, 2))), m.lookup_parameters_from_numpy(np.ones((3, 2)))
    x, y = dy.inputVector([1.0, 2.0]), dy.squared_norm(w)
    assert ((w * x).vec_value(), y.scalar_value()) == ([3.0, 3.0], 4.0)
    w.set_value(np.full((2, 2), 2.0))
    assert (w * x).vec_value() == [6.0, 6.0]
    assert (y.scalar_value(), y.scalar_value(recalculate=True)) == (4.0, 16.0)
    w.tensor.mul_(2)
    table.init_row(1, [5.0, 7.0])
    assert (w * x + table[1]).value() == [17.0, 19.0]


def test_arrays_are_of_doubles_as_in_dynet_and_copies(setting):
    """So `json` and others take their numbers; what the graph computes in is another matter."""
    dy.renew_cg()
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
        assert (each.dtype, each.flags.c_contiguous) == (np.float64, True)
        each[...] = 0.0
    assert json.loads(json.dumps(list(dy.scalarInput(0.5).npvalue()))) == [0.5]
    assert all(each.any() for each in (y.npvalue(), w.as_array(), table.row_grad_as_array(1))), "not a copy"
    assert y.value_tensor().dtype is torch.float32
    assert y.tensor_value().argmax().as_numpy().dtype == np.int64


def tripled(number):
    dy.renew_cg()
    return (dy.inputTensor(np.full(300, number)) * 3.0).value_tensor()


def test_memory_is_used_again_but_for_values_that_are_held():
    dy.configure(engine="python", autobatch=True)
    assert len({tripled(number).data_ptr() for number in range(4)}) == 1
    held = tripled(1.0)
    for number in (2.0, 3.0):
        assert tripled(number)[0, 0] == 3.0 * number
    assert held[0, 0] == 3.0


@walks([True, False])
def test_products_of_several_matrices_with_one_vector(has_bias):
    """The matrices are multiplied side by side; the loss reads some of the sequences."""
    found = []
    for autobatch in (True, False):
        dy.configure(engine="python", autobatch=autobatch, dtype="float64")
        draw, m, ends, states = np.random.RandomState(5), dy.ParameterCollection(), [], []
        weights = [m.parameters_from_numpy(draw.uniform(-1, 1, (4, 4))) for _ in "abc"]
        biases = [m.parameters_from_numpy(draw.uniform(-1, 1, 4)) for _ in "abc"]
        for count in (5, 7, 6):
            x = dy.inputTensor(draw.uniform(-1, 1, 4)) + biases[0]
            for _ in range(count):
                a, b, c = (
                    dy.affine_transform([v, w, x]) if has_bias else w * x for v, w in zip(biases, weights)
                )
                x = dy.cmult(dy.logistic(a), dy.tanh(b)) + c * 0.3
                states.append(x)
            ends.append(dy.squared_norm(x))
        dy.forward(ends)
        (ends[0] + ends[2]).backward()
        found.append([*[p.grad_as_array() for p in (*weights, *biases)], *[x.gradient() for x in states[:4]]])
    for batched, single in zip(*found):
        np.testing.assert_allclose(batched, single, rtol=1e-12, atol=1e-12 * np.abs(single).max())
