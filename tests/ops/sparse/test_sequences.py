"""Operators on ragged values: each row on its own gives the same, and gradients are those of finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import dpmodule as mx
from helpers.ragged_values import LENGTHS, bound, check_gradients, f8, ragged
from helpers.walk import walks

S = mx.sym
X = S.Variable("x", stype="ragged")
D = S.Variable("d")

POOLED = {name: lambda row, name=name: getattr(row, name)(0) for name in ("sum", "mean", "max")}
POOLED |= {"first": lambda row: row[0], "last": lambda row: row[-1]}
POOLED["sqrt"] = lambda row: row.sum(0) / np.sqrt(len(row))


@walks(itertools.product(POOLED, [(), (2, 3)]))
def test_pooling_makes_a_dense_row_of_each_and_zeros_of_an_empty_one(kind, trailing):
    x = ragged(LENGTHS, *trailing)
    (out,) = check_gradients(S.sequence_pool(X, pool_type=kind), {"x": x})
    wanted = [POOLED[kind](np.asarray(row)) if row else np.zeros(trailing) for row in x.tolist()]
    assert out.stype == "default"
    np.testing.assert_allclose(out.asnumpy(), wanted)
    np.testing.assert_allclose(mx.nd.sequence_pool(x, pool_type=kind).asnumpy(), wanted)


def test_max_of_equal_negative_infinite_and_nan_elements():
    x = mx.nd.ragged_array([2.0, 5, 5, 1], [0, 3, 3, 4])
    executor = bound(S.sequence_pool(X, pool_type="max"), {"x": x})
    executor.forward(is_train=True)
    executor.backward(mx.nd.array([1, 10, 100]))
    assert executor.grad_dict["x"].tolist() == [[0, 1, 0], [], [100]]
    x = mx.nd.ragged_array([-3.0, -2.0, -np.inf, np.nan, 1.0], [0, 2, 3, 5])
    np.testing.assert_array_equal(mx.nd.sequence_pool(x, pool_type="max").asnumpy(), [-2, -np.inf, np.nan])


@pytest.mark.parametrize("trailing", [(), (3,)])
def test_softmax_within_rows(trailing):
    x = ragged(LENGTHS, *trailing)
    (out,) = check_gradients(S.sequence_softmax(X), {"x": x})
    for got, row in zip(out.tolist(), x.tolist(), strict=True):
        np.testing.assert_allclose(got, torch.tensor(row).softmax(0).numpy() if row else [], rtol=1e-6)
    assert mx.nd.sequence_softmax(mx.nd.ragged_array([1e3, 1e3], [0, 2])).tolist() == [[0.5, 0.5]]


def test_expand_repeats_dense_rows_for_each_element_and_ragged_ones_as_a_whole():
    a = f8(5, 2)
    (out,) = check_gradients(S.sequence_expand(S.Variable("a"), X), {"a": a, "x": ragged()})
    assert [len(row) for row in out.tolist()] == LENGTHS
    np.testing.assert_array_equal(out[3].asnumpy(), np.repeat(a.asnumpy()[3:4], 4, 0))
    net = S.sequence_expand(S.Variable("a", stype="ragged"), X)
    a = mx.nd.ragged_array(np.array([1.0, 2, 3, 5, 6]), [0, 2, 3, 3, 5])
    (out,) = check_gradients(net, {"a": a, "x": ragged([2, 3, 1, 0])})
    assert out.tolist() == [[1, 2, 1, 2], [3, 3, 3], [], []]


@walks([(3, None), (2, None), (4, 0), (3, -5), (2, 3)])
def test_convolution_equals_that_of_each_padded_row(size, start):
    x, weight, bias = ragged(LENGTHS, 2), f8(4, size * 2), f8(4)
    net = S.sequence_conv(X, num_filters=4, filter_size=size, padding_start=start, name="conv")
    (out,) = check_gradients(net, {"x": x, "conv_weight": weight, "conv_bias": bias})
    begin = -(size // 2) if start is None else start
    w = weight.asnumpy().reshape(4, size, 2)
    for got, row in zip(out.tolist(), x.tolist(), strict=True):
        for t, features in enumerate(got):
            inside = [k for k in range(size) if 0 <= t + begin + k < len(row)]
            wanted = bias.asnumpy() + sum(w[:, k] @ row[t + begin + k] for k in inside)
            np.testing.assert_allclose(features, wanted)


def rnn(mode, layers=1, both=False, **options):
    """Return a net, its arguments and its attributes."""
    attrs = {"mode": mode, "num_layers": layers, "bidirectional": both}
    attrs |= {"state_size": 3, "state_outputs": True}
    net = S.RNN(X, **attrs, name="rnn", **options)
    names = net.list_arguments()
    shapes = dict(zip(names, net.infer_shape(x=(len(LENGTHS), 2))[0], strict=True))
    args = {name: f8(*shapes[name], seed=i) for i, name in enumerate(names) if name != "x"}
    return net, {**args, "x": ragged(LENGTHS, 2)}, attrs


@walks([("lstm", 2, True), ("gru", 1, True), ("rnn_tanh", 2, False)])
def test_recurrent_rows_equal_each_row_run_alone(mode, layers, both):
    net, args, attrs = rnn(mode, layers, both)
    outs = bound(net, args, grads=False).forward()
    assert [out.stype for out in outs] == ["ragged", *["default"] * (len(outs) - 1)]
    states = [name for name in net.list_arguments() if "state" in name]
    for i, row in enumerate(args["x"].tolist()):
        wanted = [args[name][:, i : i + 1] for name in states]  # an empty row leaves its states as they were
        if row:
            data = mx.nd.array(np.asarray(row)[:, None], dtype="f8")
            found, *wanted = mx.nd.RNN(data, args["rnn_parameters"], *wanted, **attrs)
            np.testing.assert_allclose(outs[0][i].asnumpy(), found.asnumpy()[:, 0], atol=1e-12)
        for out, state in zip(outs[1:], wanted, strict=True):
            np.testing.assert_allclose(out.asnumpy()[:, i : i + 1], state.asnumpy(), atol=1e-12)


def test_gradients_and_dropout_of_recurrent_rows():
    check_gradients(*rnn("lstm", 1, True)[:2])
    net, args, _ = rnn("gru", 2, p=0.5)
    executor = bound(net, args)
    first, second = (executor.forward(is_train=True)[0].copy().values.asnumpy() for _ in range(2))
    assert (first != second).any()
    net, args, _ = rnn("lstm")
    args["x"] = ragged([0] * 5, 2)
    executor = bound(net, args)
    outs = executor.forward(is_train=True)
    np.testing.assert_array_equal(outs[1].asnumpy(), args["rnn_state"].asnumpy())
    executor.backward(outs)
    np.testing.assert_array_equal(executor.grad_dict["rnn_state"].asnumpy(), outs[1].asnumpy())
    assert not executor.grad_dict["rnn_parameters"].asnumpy().any()


# operators on values

BY_VALUES = {
    "arithmetic": (lambda x: (x * 3 - 1) / 2 + x * x, (2,)),
    "functions": (lambda x: S.exp(S.clip(x, a_min=-0.55, a_max=0.52)), ()),
    "dense": (lambda x: S.FullyConnected(x, num_hidden=3, name="fc"), (2,)),
    "concat": (lambda x: S.Concat(x, x * 2, dim=1), (2,)),
    "softmax of features": (lambda x: S.softmax(x, axis=-1), (3,)),
    "sum of features": (lambda x: S.sum(x, axis=1), (3,)),
    "largest features": (lambda x: S.topk(x, axis=1, k=2, ret_typ="value"), (3,)),
    "sorted features": (lambda x: S.sort(x, axis=-1), (3,)),
    "sums of features before": (lambda x: S.cumsum(x, axis=1), (3,)),
    "features in reverse": (lambda x: S.reverse(x, axis=1), (3,)),
    "layer norm": (lambda x: S.LayerNorm(x, name="ln"), (3,)),
    "flatten": (lambda x: S.Flatten(x), (2, 2)),
    "squeeze": (lambda x: S.squeeze(x, axis=1), (1, 2)),
}


@walks(BY_VALUES.values())
def test_operators_that_work_row_by_row_run_on_the_values(make, trailing):
    x, plain = ragged(LENGTHS, *trailing), make(S.Variable("x"))
    shapes = dict(zip(plain.list_arguments(), plain.infer_shape(x=x.values.shape)[0], strict=True))
    args = {k: f8(*shape, seed=9) for k, shape in shapes.items() if k != "x"}
    (out,) = check_gradients(make(X), {**args, "x": x})
    (wanted,) = bound(plain, {**args, "x": x.values}, grads=False).forward()
    assert out.stype == "ragged"
    np.testing.assert_array_equal(out.values.asnumpy(), wanted.asnumpy())
    np.testing.assert_array_equal(out.offsets.asnumpy(), x.offsets.asnumpy())
    assert out.shape == (5, *wanted.shape[1:])


def test_a_dense_operand_counts_once_for_each_element_of_its_row():
    x, d = ragged(LENGTHS, 2), f8(5, 2)
    (out,) = check_gradients(S.elemwise_mul(X, D), {"x": x, "d": d})
    for i, row in enumerate(x.tolist()):
        np.testing.assert_allclose(out[i].asnumpy(), np.reshape(row, (-1, 2)) * d.asnumpy()[i])
    attention = S.sequence_softmax(S.FullyConnected(X, num_hidden=1, name="score"))
    score = {"score_weight": f8(1, 2), "score_bias": f8(1)}
    for net, args in (
        (S.broadcast_add(X, D), {"x": x, "d": f8(1, 2)}),
        (S.Concat(D, X, dim=1), {"x": x, "d": f8(5, 3)}),
        (S.broadcast_mul(X, D), {"x": ragged([3], 2), "d": f8(1, 2)}),
        (S.sequence_pool(S.broadcast_mul(X, attention), pool_type="sum"), {"x": x, **score}),
    ):
        check_gradients(net, args)


@pytest.mark.parametrize("by_rows", [False, True])
def test_looking_up_rows_of_a_table(by_rows):
    ids, table = mx.nd.ragged_array([[1, 4, 1], [], [0]], dtype="int64"), f8(6, 2)
    lookup = S.Embedding(X, input_dim=6, output_dim=2, sparse_grad=by_rows, name="e")
    grad = mx.nd.zeros((6, 2), dtype="f8", stype="row_sparse" if by_rows else "default")
    net = S.sequence_pool(lookup, pool_type="sum")
    executor = net.bind(mx.cpu(), {"x": ids, "e_weight": table}, {"e_weight": grad})
    t = table.asnumpy()
    np.testing.assert_allclose(executor.forward(is_train=True)[0].asnumpy(), [2 * t[1] + t[4], [0, 0], t[0]])
    executor.backward(mx.nd.array([[1, 2], [3, 4], [5, 6]], dtype="f8"))
    assert grad.asnumpy().tolist() == [[5, 6], [2, 4], [0, 0], [0, 0], [1, 2], [0, 0]]
    assert not by_rows or grad.indices.asnumpy().tolist() == [0, 1, 4]


@walks(
    lambda x: S.sum(x, axis=0),
    lambda x: S.Concat(x, x, dim=0),
    lambda x: S.topk(x, axis=0),
    lambda x: S.cumsum(x),
    lambda x: S.stack(x, x),
    lambda x: S.Reshape(x, shape=(-1,)),
    lambda x: S.softmax(S.sum(x, axis=1), axis=-1),
    lambda x: S.BatchNorm(x, name="bn"),
    lambda x: S.FullyConnected(D, x, num_hidden=2, no_bias=True),
)
def test_an_operator_that_does_not_work_row_by_row_says_so_at_bind(make):
    net = make(X)
    name = list(net.get_internals().list_outputs())[-1].rsplit("_", 1)[0]
    with pytest.raises(mx.base.OpError, match="takes no ragged") as caught:
        net.simple_bind(mx.cpu(), x=(2, 3), **({"d": (4, 3)} if "d" in net.list_arguments() else {}))
    assert name in str(caught.value)
