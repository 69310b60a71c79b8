"""Products, selections, joins and other shapes, of operands with and without minibatches: both engines agree."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.both_engines import on_both
from helpers.walk import walks

BATCH = 3


@pytest.fixture(autouse=True)
def _back():
    yield
    dy.configure(engine="auto", autobatch=False, dtype="float32")


# shapes of the operands, and the operation
TWO = {
    "matrices": (((5, 6), (6, 4)), lambda a, b: a * b),
    "matrix and vector": (((5, 6), (6,)), lambda a, b: a * b),
    "matrix and column": (((5, 6), (6, 1)), lambda a, b: a * b),
    "row and matrix": (((1, 6), (6, 4)), lambda a, b: a * b),
    "row and vector": (((1, 6), (6,)), lambda a, b: a * b),
    "vector and row": (((5,), (1, 4)), lambda a, b: a * b),
    "large matrices": (((130, 131), (131, 3)), lambda a, b: a * b),
    "fused products": (((5, 6), (6, 4)), lambda a, b: dy.tanh(a * dy.tanh(b))),
    "both sides of a product": (((6, 6), (6, 6)), lambda a, b: dy.transpose(a) * b * a),
    "colwise_add": (((5, 4), (5,)), dy.colwise_add),
    "colwise_add of a column": (((5, 4), (5, 1)), dy.colwise_add),
    "colwise_add to one column": (((5, 1), (5,)), dy.colwise_add),
    "colwise_add to a vector": (((5,), (5,)), dy.colwise_add),
    "colwise_add to three dimensions": (((5, 4, 2), (5,)), dy.colwise_add),
    "join": (((2, 3), (4, 3)), lambda a, b: dy.concatenate([a, b, a])),
    "join columns": (((2, 3), (2, 4)), lambda a, b: dy.concatenate([a, b], 1)),
    "join along a third dimension": (((2, 3), (2, 3, 2)), lambda a, b: dy.concatenate([b, a, b], 2)),
    "join vectors": (((4,), (3,)), lambda a, b: dy.concatenate([a, b])),
    "join vectors as columns": (((4,), (4,)), lambda a, b: dy.concatenate_cols([a, b])),
    "join many": (((4, 2), (4, 2)), lambda a, b: dy.concatenate([a, b] * 4, 1)),
    "filter1d_narrow": (((3, 6), (3, 2, 4)), dy.filter1d_narrow),
    "filter1d_narrow, one filter": (((3, 6), (3, 2)), dy.filter1d_narrow),
    "circ_conv": (((7,), (7,)), dy.circ_conv),
    "circ_corr": (((7,), (7,)), dy.circ_corr),
    "trace_of_product": (((4, 5), (4, 5)), dy.trace_of_product),
    "dot_product": (((4, 5), (4, 5)), dy.dot_product),
    "weight_norm": (((4, 5), (1,)), dy.weight_norm),
    "weight_norm of a vector": (((5,), (1, 1)), dy.weight_norm),
    "contract3d_1d": (((4, 5, 3), (3,)), dy.contract3d_1d),
    "contract3d_1d of a matrix": (((4, 5), (1,)), dy.contract3d_1d),
    "conv2d": (((6, 5, 2), (3, 2, 2, 4)), lambda x, f: dy.conv2d(x, f, (2, 1))),
    "conv2d beyond the edge": (((6, 5, 2), (3, 2, 2, 4)), lambda x, f: dy.conv2d(x, f, (1, 1), False)),
}
THREE = {
    "affine_transform of matrices": (
        ((5, 4), (5, 6), (6, 4)),
        lambda b, w, x: dy.affine_transform([b, w, x]),
    ),
    "affine_transform with a column": (
        ((5,), (5, 6), (6, 4)),
        lambda b, w, x: dy.affine_transform([b, w, x]),
    ),
    "affine_transform of vectors": (((5,), (5, 6), (6,)), lambda b, w, x: dy.affine_transform([b, w, x])),
    "affine_transform of columns": (
        ((5, 1), (5, 6), (6, 1)),
        lambda b, w, x: dy.affine_transform([b, w, x, w, dy.tanh(x)]),
    ),
    "affine_transform of vectors and columns": (
        ((5,), (5, 6), (6,)),
        lambda b, w, x: dy.affine_transform([b, w, x, w, dy.reshape(x, (6, 1))]),
    ),
    "contract3d_1d_bias": (((4, 5, 3), (3,), (4, 5)), dy.contract3d_1d_bias),
    "contract3d_1d_1d": (((4, 5, 3), (3,), (5,)), dy.contract3d_1d_1d),
    "contract3d_1d_1d_bias": (
        ((4, 5, 3), (3,), (4, 1)),
        lambda x, y, b: dy.contract3d_1d_1d_bias(x, y, dy.inputTensor(np.arange(5.0) - 2), b),
    ),
    "conv2d_bias": (((4, 4, 2), (2, 2, 2, 3), (3,)), lambda x, f, b: dy.conv2d_bias(x, f, b, (1, 2))),
}


def labels_of(x):
    return [k % x.dim()[0][0] for k in range(x.dim()[1] if x.dim()[1] > 1 else BATCH)]


# the shape of the operand, and the operation
ONE = {
    "maxpooling2d": ((5, 6, 2), lambda x: dy.maxpooling2d(x, (2, 3), (2, 1))),
    "maxpooling2d beyond the edge": ((5, 6), lambda x: dy.maxpooling2d(x, (2, 3), (1, 2), False)),
    **{f"kmax_pooling along {d}": ((4, 5, 3), lambda x, d=d: dy.kmax_pooling(x, 2, d)) for d in (0, 1, 2)},
    "fold_rows": ((6, 4), lambda x: dy.fold_rows(x, 3)),
    "fold_rows of a vector": ((6,), lambda x: dy.fold_rows(x, 2)),
    "softmax of rows": ((4, 5), lambda x: dy.softmax(x, 1)),
    "softmax of columns": ((4, 5), lambda x: dy.softmax(x, 0)),
    "softmax of many columns": ((3, 70), lambda x: dy.softmax(x, 0)),
    "softmax of a row": ((1, 5), lambda x: dy.softmax(x, 1) * 0.5 + dy.softmax(x, 0)),
    "log_softmax": ((4, 5), dy.log_softmax),
    "log_softmax of a column": ((4, 1), dy.log_softmax),
    "log_softmax of some": ((7,), lambda x: dy.select_rows(dy.log_softmax(x, [5, 0, 3]), [0, 3, 5, 3])),
    "log_softmax of some of a column": (
        (7, 1),
        lambda x: dy.select_rows(dy.log_softmax(x, [2, 6]), [6, 2]),
    ),
    "softmax between others": ((4, 5), lambda x: dy.tanh(dy.softmax(dy.tanh(x)) * 3)),
    **{f"cumsum along {d}": ((4, 5, 3), lambda x, d=d: dy.cumsum(x, d)) for d in (0, 1, 2)},
    **{
        f"transpose {order}": ((4, 5, 3), lambda x, order=order: dy.transpose(x, order))
        for order in itertools.permutations(range(3))
    },
    "kmh_ngram": ((3, 6), lambda x: dy.kmh_ngram(x, 3)),
    "kmh_ngram of all": ((3, 6), lambda x: dy.kmh_ngram(x, 6)),
    **{f"moment_elems {r}": ((3, 4), lambda x, r=r: dy.moment_elems(x, r)) for r in range(1, 8)},
    **{f"moment_batches {r}": ((3, 4), lambda x, r=r: dy.moment_batches(x, r)) for r in (1, 2, 5)},
    **{
        f"{name} over {axes}{' and the minibatch' * is_batch}": (
            (3, 4, 2),
            lambda x, f=function, axes=axes, is_batch=is_batch: f(x, axes, is_batch),
        )
        for axes in ([0], [1], [2], [0, 1], [0, 2], [2, 1], [2, 0, 1])
        for is_batch in (False, True)
        for name, function in {
            "sum_dim": dy.sum_dim,
            "mean_dim": dy.mean_dim,
            "std_dim": dy.std_dim,
            "moment_dim 3": lambda x, axes, is_batch: dy.moment_dim(x, axes, 3, is_batch, 5),
        }.items()
    },
    "inverse": ((4, 4), lambda x: dy.inverse(x + dy.inputTensor(np.eye(4)[::-1] * 3))),
    "inverse of a number": ((1, 1), lambda x: dy.inverse(dy.square(x) + 1)),
    "inverse of a large matrix": ((40, 40), lambda x: dy.inverse(x + dy.inputTensor(np.eye(40) * 30))),
    "transpose": ((4, 5), dy.transpose),
    "transpose of a vector": ((4,), dy.transpose),
    "transpose of a row": ((1, 4), dy.transpose),
    "transpose into a third dimension": ((4, 5), lambda x: dy.transpose(x, (2, 0, 1))),
    "fused transpose": ((4, 5), lambda x: dy.tanh(dy.transpose(dy.tanh(x)))),
    "reshape a matrix": ((4, 6), lambda x: dy.reshape(x, (3, 8))),
    "reshape a matrix to a vector": ((4, 6), lambda x: dy.reshape(x, (24,))),
    "reshape a vector to a matrix": ((24,), lambda x: dy.reshape(x, (3, 8))),
    "reshape a vector to a column": ((24,), lambda x: dy.reshape(x, (24, 1))),
    "reshape to the same": ((4, 6), lambda x: dy.reshape(x, (4, 6))),
    "reshape to three dimensions": ((4, 6), lambda x: dy.reshape(x, (2, 3, 4))),
    "reshape three dimensions": ((4, 3, 2), lambda x: dy.reshape(x, (2, 12))),
    "reshape three dimensions to a vector": ((4, 3, 2), lambda x: dy.reshape(x, (24,))),
    "reshape with the minibatch": ((4, 3, 2), lambda x: dy.reshape(x, (6, 4), x.dim()[1])),
    "reshape into a minibatch": ((4, 3, 2), lambda x: dy.reshape(x, (3, 2), 4 * x.dim()[1])),
    "reshape into a minibatch of vectors": ((4, 6), lambda x: dy.reshape(x, (6,), 4 * x.dim()[1])),
    "reshape a vector into a minibatch": ((24,), lambda x: dy.reshape(x, (2, 2), 6 * x.dim()[1])),
    "select_rows": ((4, 5), lambda x: dy.select_rows(x, [3, 0, 3])),
    "select_rows of a vector": ((4,), lambda x: dy.select_rows(x, [3, 0, 3])),
    "select_cols": ((4, 5), lambda x: dy.select_cols(x, [4, 1, 4, 0])),
    "steps": ((7, 4), lambda x: x[1:6:2, ::3]),
    "steps of a vector": ((7,), lambda x: x[::3]),
    "steps in three dimensions": ((5, 4, 3), lambda x: x[::2, 1:3, 1:]),
    "steps of a minibatch": ((5, 4), lambda x: x[::2, 1:3, x.dim()[1] - 1 :]),
    "part of a matrix": ((5, 4), lambda x: x[2:4, 1:3]),
    **{f"pick along {d}": ((4, 5, 3), lambda x, d=d: dy.pick(x, 2, d)) for d in (0, 1, 2)},
    **{f"pick_range along {d}": ((4, 5, 3), lambda x, d=d: dy.pick_range(x, 1, 3, d)) for d in (0, 1, 2)},
    **{
        f"pick_batch along {d}": ((4, 5, 4), lambda x, d=d: dy.pick_batch(x, labels_of(x), d))
        for d in (0, 1, 2)
    },
    "pick_batch of a vector": ((5,), lambda x: dy.pick_batch(x, labels_of(x))),
    "pick_batch of one": ((5,), lambda x: dy.pick_batch(x, labels_of(x)[: x.dim()[1]])),
    "pick_batch_elem": ((4, 2), lambda x: dy.pick_batch_elem(x, x.dim()[1] - 1)),
    "pick_batch_elems": ((4, 2), lambda x: dy.pick_batch_elems(x, [x.dim()[1] - 1, 0, 0])),
}


def compare(shapes, function, batches, parameters):
    """Compute three examples and their gradients on both engines.

    Args:
        shapes: of the operands.
        function: the operation.
        batches: for every operand, the size of its minibatch.
        parameters: the numbers of operands that are one parameter for all examples.
    """

    def program():
        draw, m = np.random.RandomState(0), dy.ParameterCollection()
        held = {k: m.parameters_from_numpy(draw.uniform(-1, 1, shapes[k])) for k in parameters}
        inputs, found, heads = [], [], []
        for _ in range(3):
            operands = []
            for k, (shape, batch) in enumerate(zip(shapes, batches)):
                if k in held:
                    operands.append(held[k])
                    continue
                array = draw.uniform(-1, 1, (*shape, batch) if batch > 1 else shape)
                inputs.append(dy.inputTensor(array, batched=batch > 1))
                operands.append(inputs[-1])
            out = function(*operands)
            found.append(out)
            sizes, batch = out.dim()
            weights = draw.uniform(-1, 1, (*sizes, batch) if batch > 1 else sizes)
            weighted = dy.cmult(dy.sin(out), dy.inputTensor(weights, batched=batch > 1))
            heads.append(dy.sum_batches(dy.sum_elems(weighted)))
        dy.esum(heads).backward(full=True)
        dims = [[*out.dim()[0], out.dim()[1]] for out in found]
        gradients = [x.gradient() for x in inputs] + [p.grad_as_array() for p in held.values()]
        return [*dy.npvalues(found), *dims, *gradients]

    on_both(program)


@walks(itertools.product([1, BATCH], ONE))
def test_one_operand(batch, name):
    shape, function = ONE[name]
    compare([shape], function, [batch], ())


@walks(ONE)
def test_of_a_parameter(name):
    shape, function = ONE[name]
    compare([shape], function, [1], (0,))


@walks(itertools.product(list(itertools.product([1, BATCH], repeat=2)), TWO))
def test_two_operands(batches, name):
    shapes, function = TWO[name]
    compare(shapes, function, batches, ())


@walks(itertools.product([1, BATCH], [0, 1], TWO))
def test_two_operands_of_which_one_is_a_parameter(batch, parameter, name):
    shapes, function = TWO[name]
    batches = [1, batch] if parameter == 0 else [batch, 1]
    compare(shapes, function, batches, (parameter,))


@walks(itertools.product(list(itertools.product([1, BATCH], repeat=3)), THREE))
def test_three_operands(batches, name):
    shapes, function = THREE[name]
    compare(shapes, function, batches, ())


@walks(itertools.product([1, BATCH], THREE))
def test_three_operands_of_which_two_are_parameters(batch, name):
    shapes, function = THREE[name]
    if name == "conv2d_bias":
        compare(shapes, function, [batch, 1, 1], (1, 2))
    else:
        compare(shapes, function, [1, 1, batch], (0, 1))
