import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import OpError, ShapeError
from helpers.numeric import check_gradients, run, shapes, types

rng = np.random.RandomState(0)


@pytest.mark.parametrize(
    ("shape", "flatten", "columns"),
    [((4, 3), True, 3), ((4, 3), False, 3), ((2, 3, 2), True, 6), ((2, 3, 2), False, 2), ((5,), True, 1)],
)
@pytest.mark.parametrize("no_bias", [True, False])
def test_values_and_gradients(shape, flatten, columns, no_bias):
    data, weight, bias = rng.randn(*shape), rng.randn(2, columns), rng.randn(2)
    rows = data.reshape(shape[0], -1) if flatten else data
    inputs = [data, weight] if no_bias else [data, weight, bias]
    attrs = {"num_hidden": 2, "flatten": flatten, "no_bias": no_bias}
    out = run("FullyConnected", *inputs, **attrs)
    np.testing.assert_allclose(out, rows @ weight.T + (0 if no_bias else bias), rtol=1e-12)
    check_gradients("FullyConnected", *inputs, wanted=range(len(inputs)), **attrs)


def test_parameters_from_data():
    assert shapes("FullyConnected", (4, 3, 2), None, None, num_hidden=5) == (
        [(4, 3, 2), (5, 6), (5,)],
        [(4, 5)],
    )
    assert shapes("FullyConnected", (4, 3, 2), None, num_hidden=5, no_bias=True, flatten=False) == (
        [(4, 3, 2), (5, 2)],
        [(4, 3, 5)],
    )


def test_batch_size_comes_from_the_output():
    """The begin state of an unrolled RNN is (0, H); its rows follow from what it is added to."""
    ins, outs = shapes("FullyConnected", (0, 3), None, None, outs=[(7, 5)], num_hidden=5)
    assert (ins, outs) == ([(7, 3), (5, 3), (5,)], [(7, 5)])


def test_columns_come_from_the_weight():
    ins, outs = shapes("FullyConnected", (7, 0), (5, 3), num_hidden=5, no_bias=True)
    assert (ins, outs) == ([(7, 3), (5, 3)], [(7, 5)])


def test_unknown_stays_unknown():
    assert shapes("FullyConnected", (0, 3), None, num_hidden=2, no_bias=True) == ([(0, 3), (2, 3)], [(0, 2)])
    assert shapes("FullyConnected", None, None, None, num_hidden=2) == ([None, None, (2,)], [None])


def test_wrong_weight_is_named():
    with pytest.raises(ShapeError, match=r"weight has shape \(5, 9\), expected \(5, 3\) from data \(7, 3\)"):
        shapes("FullyConnected", (7, 3), (5, 9), num_hidden=5, no_bias=True)


def test_attributes_are_checked():
    with pytest.raises(OpError, match="num_hidden is required"):
        shapes("FullyConnected", (7, 3), None, None)
    with pytest.raises(OpError, match="num_hidden is 0"):
        shapes("FullyConnected", (7, 3), None, None, num_hidden=0)


@pytest.mark.parametrize("flatten", [True, False])
def test_a_bias_may_be_one_column(flatten):
    """MXNet's language model uses an embedding of width 1 as the bias of its decoder."""
    ins, _ = shapes("FullyConnected", (7, 3), None, (5, 1), num_hidden=5, flatten=flatten)
    assert ins == [(7, 3), (5, 3), (5, 1)]
    x, w, b = (mx.sym.Variable(name) for name in "xwb")
    net = mx.sym.FullyConnected(x, w, b, num_hidden=2, flatten=flatten)
    executor = net.simple_bind(mx.cpu(), x=(3, 4), b=(2, 1))
    executor.arg_dict["b"][:] = np.array([[1], [2]])
    executor.forward(is_train=True)
    assert executor.outputs[0].asnumpy().tolist() == [[1, 2]] * 3
    executor.backward([mx.nd.array([[1, 10]] * 3)])
    assert executor.grad_dict["b"].asnumpy().tolist() == [[3], [30]]
    with pytest.raises(ShapeError, match=r"bias has shape \(4, 1\)"):
        shapes("FullyConnected", (7, 3), None, (4, 1), num_hidden=5)


TABLE = np.random.RandomState(6).randn(4, 3)
ATTRS = {"input_dim": 4, "output_dim": 3}


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64", "uint8"])
def test_rows(dtype):
    indices = np.array([[0, 3, 1], [2, 2, 0]], dtype)
    np.testing.assert_array_equal(run("Embedding", indices, TABLE, **ATTRS), TABLE[indices.astype(int)])


def test_fractions_are_cut_off_and_ends_repeat():
    out = run("Embedding", np.array([-5.0, 1.9, 99.0]), TABLE, **ATTRS)
    np.testing.assert_array_equal(out, TABLE[[0, 1, 3]])


def test_gradient_adds_up_repeated_rows():
    check_gradients("Embedding", np.array([1.0, 1.0, 7.0, 0.0]), TABLE, wanted=(1,), **ATTRS)


def test_shapes_both_ways():
    assert shapes("Embedding", (2, 5), None, **ATTRS) == ([(2, 5), (4, 3)], [(2, 5, 3)])
    assert shapes("Embedding", None, None, outs=[(2, 5, 3)], **ATTRS)[0] == [(2, 5), (4, 3)]
    with pytest.raises(ShapeError, match="weight has shape"):
        shapes("Embedding", (2, 5), (9, 3), **ATTRS)


def test_types():
    assert types("Embedding", "int32", None, **ATTRS) == (["int32", "float32"], ["float32"])
    assert types("Embedding", "int32", None, dtype="float16", **ATTRS) == (["int32", "float16"], ["float16"])
    assert types("Embedding", "float64", "float64", **ATTRS) == (["float64", "float64"], ["float64"])
