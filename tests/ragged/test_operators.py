"""Operators on ragged values: each row on its own gives the same, and gradients are those of finite differences."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
import torch

import dpmodule as mx

LENGTHS = [3, 0, 1, 4, 0]
S = mx.sym
X = S.Variable("x", stype="ragged")


def ragged(lengths=LENGTHS, *trailing, seed=0):
    """Return a float64 ragged array of distinct numbers."""
    total = sum(lengths)
    rng = np.random.RandomState(seed)
    values = rng.permutation(total * int(np.prod(trailing, dtype=int))).reshape(total, *trailing) / 7 - 0.95
    return mx.nd.ragged_array(values, np.cumsum([0, *lengths]))


def bound(net, args, grads=True, **options):
    """Bind a net to arrays, with a place for each gradient."""
    args = {k: v for k, v in args.items() if k in net.list_arguments()}
    places = {k: v.copy() for k, v in args.items()} if grads else None
    return net.bind(mx.cpu(), args, places, **options)


def numbers_of(array):
    return array.values.asnumpy() if array.stype == "ragged" else array.asnumpy()


def with_numbers(array, numbers):
    return (
        mx.nd.ragged_array(numbers, array.offsets)
        if array.stype == "ragged"
        else mx.nd.array(numbers, dtype="f8")
    )


def check_gradients(net, args, names=None, is_train=False):
    """Compare every gradient with central differences of the outputs weighted at random."""
    executor = bound(net, args)
    outputs = executor.forward(is_train=True)
    rng = np.random.RandomState(5)
    heads = [with_numbers(out, rng.rand(*numbers_of(out).shape)) for out in outputs]
    executor.backward(heads)

    def total(changed):
        found = bound(net, {**args, **changed}, grads=False).forward(is_train=is_train)
        return sum(float((numbers_of(o) * numbers_of(h)).sum()) for o, h in zip(found, heads, strict=True))

    for name in names or net.list_arguments():
        start, got = numbers_of(args[name]), numbers_of(executor.grad_dict[name])
        assert got.shape == start.shape, name
        for place in itertools.islice(np.ndindex(*start.shape), 40):
            step = np.zeros(start.shape)
            step[place] = 1e-5
            up, down = (total({name: with_numbers(args[name], start + s)}) for s in (step, -step))
            assert got[place] == pytest.approx((up - down) / 2e-5, abs=1e-6), (name, place)


def f8(*shape, seed=3):
    return mx.nd.array(np.random.RandomState(seed).randn(*shape), dtype="f8")


POOLED = {
    "sum": lambda row: row.sum(0),
    "mean": lambda row: row.mean(0),
    "sqrt": lambda row: row.sum(0) / np.sqrt(len(row)),
    "max": lambda row: row.max(0),
    "first": lambda row: row[0],
    "last": lambda row: row[-1],
}


@pytest.mark.parametrize("trailing", [(), (2,), (2, 3)])
@pytest.mark.parametrize("kind", POOLED)
def test_pooling_makes_a_dense_row_of_each_and_zeros_of_an_empty_one(kind, trailing):
    x = ragged(LENGTHS, *trailing)
    net = S.sequence_pool(X, pool_type=kind)
    (out,) = bound(net, {"x": x}, grads=False).forward()
    rows = [np.asarray(row) for row in x.tolist()]
    wanted = [POOLED[kind](row) if len(row) else np.zeros(trailing) for row in rows]
    assert out.stype == "default"
    np.testing.assert_allclose(out.asnumpy(), wanted)
    np.testing.assert_allclose(mx.nd.sequence_pool(x, pool_type=kind).asnumpy(), wanted)
    check_gradients(net, {"x": x})


def test_the_gradient_of_max_goes_to_the_first_of_equal_elements():
    x = mx.nd.ragged_array([2.0, 5.0, 5.0, 1.0], [0, 3, 3, 4])
    executor = bound(S.sequence_pool(X, pool_type="max"), {"x": x})
    executor.forward(is_train=True)
    executor.backward(mx.nd.array([1, 10, 100]))
    assert executor.grad_dict["x"].tolist() == [[0, 1, 0], [], [100]]


def test_max_of_negative_and_infinite_and_nan_elements():
    x = mx.nd.ragged_array([-3.0, -2.0, -np.inf, np.nan, 1.0], [0, 2, 3, 5])
    found = mx.nd.sequence_pool(x, pool_type="max").asnumpy()
    np.testing.assert_array_equal(found, [-2, -np.inf, np.nan])


@pytest.mark.parametrize("trailing", [(), (3,)])
def test_softmax_within_rows(trailing):
    x = ragged(LENGTHS, *trailing)
    net = S.sequence_softmax(X)
    (out,) = bound(net, {"x": x}, grads=False).forward()
    for got, row in zip(out.tolist(), x.tolist(), strict=True):
        np.testing.assert_allclose(got, torch.tensor(row).softmax(0).numpy() if row else [], rtol=1e-6)
    check_gradients(net, {"x": x})


def test_softmax_of_large_numbers_is_stable():
    x = mx.nd.ragged_array([1000.0, 1000.0, -1000.0], [0, 2, 3])
    assert mx.nd.sequence_softmax(x).tolist() == [[0.5, 0.5], [1.0]]


def test_reverse():
    x = ragged(LENGTHS, 2)
    net = S.sequence_reverse(X)
    (out,) = bound(net, {"x": x}, grads=False).forward()
    assert out.tolist() == [row[::-1] for row in x.tolist()]
    check_gradients(net, {"x": x})


def test_expand_repeats_dense_rows_for_each_element():
    y, x = ragged(), f8(5, 2)
    net = S.sequence_expand(S.Variable("a"), X)
    (out,) = bound(net, {"a": x, "x": y}, grads=False).forward()
    assert [len(row) for row in out.tolist()] == LENGTHS
    np.testing.assert_array_equal(out[3].asnumpy(), np.repeat(x.asnumpy()[3:4], 4, 0))
    check_gradients(net, {"a": x, "x": y})


def test_expand_repeats_ragged_rows_as_a_whole():
    a = mx.nd.ragged_array([[1, 2], [3], [], [5, 6]])
    y = mx.nd.ragged_array([[0, 0], [0, 0, 0], [0], []])
    assert mx.nd.sequence_expand(a, y).tolist() == [[1, 2, 1, 2], [3, 3, 3], [], []]
    net = S.sequence_expand(S.Variable("a", stype="ragged"), X)
    check_gradients(net, {"a": ragged([2, 1, 0, 2], 2), "x": ragged([2, 3, 1, 0])})


def test_expand_refuses_other_numbers_of_rows():
    a, y = mx.nd.ragged_array([[1], [2]]), mx.nd.ragged_array([[1], [2], [3]])
    with pytest.raises(mx.base.ShapeError, match="3 rows"):
        mx.nd.sequence_expand(a, y)
    with pytest.raises(mx.base.ShapeError):
        mx.nd.sequence_expand(mx.nd.ones((2, 1)), y)


@pytest.mark.parametrize(("size", "start"), [(3, None), (1, None), (2, None), (4, 0), (3, -5), (2, 3)])
def test_convolution_equals_that_of_each_padded_row(size, start):
    x, weight, bias = ragged(LENGTHS, 2), f8(4, size * 2), f8(4)
    net = S.sequence_conv(X, num_filters=4, filter_size=size, padding_start=start, name="conv")
    args = {"x": x, "conv_weight": weight, "conv_bias": bias}
    (out,) = bound(net, args, grads=False).forward()
    begin = -(size // 2) if start is None else start
    w = weight.asnumpy().reshape(4, size, 2)
    for got, row in zip(out.tolist(), x.tolist(), strict=True):
        for t, features in enumerate(got):
            wanted = bias.asnumpy().copy()
            for k in range(size):
                if 0 <= t + begin + k < len(row):
                    wanted += w[:, k] @ row[t + begin + k]
            np.testing.assert_allclose(features, wanted)
    check_gradients(net, args)


def test_convolution_infers_its_parameters():
    net = S.sequence_conv(X, num_filters=4, filter_size=5, no_bias=True, name="conv")
    args, outs, _ = net.infer_shape(x=(7, 3))
    assert (args, outs) == ([(7, 3), (4, 15)], [(7, 4)])
    numbers = S.sequence_conv(X, num_filters=2, filter_size=3, name="conv")
    args = {"x": ragged(), "conv_weight": f8(2, 3), "conv_bias": f8(2)}
    assert numbers.infer_shape(x=(5,))[0] == [(5,), (2, 3), (2,)]
    check_gradients(numbers, args)


def rnn(mode, layers=1, both=False, **options):
    """Return a net, its arguments and the number of states."""
    directions, size = 2 if both else 1, 3
    net = S.RNN(
        X,
        mode=mode,
        num_layers=layers,
        bidirectional=both,
        state_size=size,
        state_outputs=True,
        name="rnn",
        **options,
    )
    names = net.list_arguments()
    shapes = dict(zip(names, net.infer_shape(x=(len(LENGTHS), 2))[0], strict=True))
    args = {name: f8(*shapes[name], seed=i) for i, name in enumerate(names) if name != "x"}
    return net, {**args, "x": ragged(LENGTHS, 2)}, directions * layers


@pytest.mark.parametrize(
    ("mode", "layers", "both"),
    [("lstm", 1, False), ("lstm", 2, True), ("gru", 1, True), ("rnn_tanh", 2, False), ("rnn_relu", 1, False)],
)
def test_recurrent_rows_equal_each_row_run_alone(mode, layers, both):
    net, args, _ = rnn(mode, layers, both)
    outs = bound(net, args, grads=False).forward()
    assert [out.stype for out in outs] == ["ragged", *["default"] * (len(outs) - 1)]
    states = [name for name in net.list_arguments() if "state" in name]
    for i, row in enumerate(args["x"].tolist()):
        before = [args[name][:, i : i + 1] for name in states]
        if not row:  # an empty row leaves its states as they were
            wanted = [np.zeros((0, outs[0].shape[1])), *(state.asnumpy() for state in before)]
        else:
            data = mx.nd.array(np.asarray(row)[:, None], dtype="f8")
            options = {
                "mode": mode,
                "num_layers": layers,
                "bidirectional": both,
                "state_size": 3,
                "state_outputs": True,
            }
            alone = mx.nd.RNN(data, args["rnn_parameters"], *before, **options)
            wanted = [alone[0].asnumpy()[:, 0], *(state.asnumpy() for state in alone[1:])]
        np.testing.assert_allclose(outs[0][i].asnumpy(), wanted[0], atol=1e-12)
        for out, state in zip(outs[1:], wanted[1:], strict=True):
            np.testing.assert_allclose(out.asnumpy()[:, i : i + 1], state, atol=1e-12)


@pytest.mark.parametrize(("mode", "layers", "both"), [("lstm", 1, True), ("gru", 2, False)])
def test_gradients_of_recurrent_rows(mode, layers, both):
    net, args, _ = rnn(mode, layers, both)
    check_gradients(net, args)


def test_recurrent_rows_that_are_all_empty():
    net, args, _ = rnn("lstm")
    args["x"] = ragged([0] * 5, 2)
    executor = bound(net, args)
    outs = executor.forward(is_train=True)
    np.testing.assert_array_equal(outs[1].asnumpy(), args["rnn_state"].asnumpy())
    executor.backward([outs[0], outs[1], outs[2]])
    np.testing.assert_array_equal(executor.grad_dict["rnn_state"].asnumpy(), outs[1].asnumpy())
    assert not executor.grad_dict["rnn_parameters"].asnumpy().any()


def test_a_recurrent_network_drops_out_between_layers():
    net, args, _ = rnn("gru", 2, p=0.5)
    executor = bound(net, args)
    first, second = (executor.forward(is_train=True)[0].copy().values.asnumpy() for _ in range(2))
    assert (first != second).any()


def test_dense_data_of_two_axes_is_refused_when_a_recurrent_network_runs():
    net = S.RNN(S.Variable("d"), mode="gru", num_layers=1, state_size=3, name="rnn")
    with pytest.raises(mx.base.NodeError, match="expected three axes"):
        net.simple_bind(mx.cpu(), d=(5, 2)).forward()


def test_200_random_nets_equal_padded_ones():
    rng = np.random.RandomState(8)
    table = torch.tensor(rng.randn(9, 2))
    nets = {kind: pooled_lookup(kind) for kind in POOLED}
    for _ in range(200):
        kind = rng.choice(list(POOLED))
        lengths = rng.randint(0, 6, rng.randint(1, 7))
        ids = rng.randint(0, 9, lengths.sum())
        x = mx.nd.ragged_array(ids, np.cumsum([0, *lengths]))
        args = {"x": x, "e_weight": mx.nd.array(table.numpy(), dtype="f8")}
        grads = {
            "e_weight": mx.nd.zeros((9, 2), dtype="f8", stype=str(rng.choice(["default", "row_sparse"])))
        }
        executor = nets[kind].bind(mx.cpu(), args, grads)
        (out,) = executor.forward(is_train=True)
        head = rng.randn(len(lengths), 2)
        executor.backward(mx.nd.array(head, dtype="f8"))
        leaf = table.clone().requires_grad_()
        wanted = padded_lookup(kind, leaf, x.padded().torch(), torch.tensor(lengths))
        wanted.backward(torch.tensor(head))
        np.testing.assert_allclose(out.asnumpy(), wanted.detach().numpy(), atol=1e-12)
        np.testing.assert_allclose(grads["e_weight"].asnumpy(), leaf.grad.numpy(), atol=1e-12)


def pooled_lookup(kind):
    return S.sequence_pool(S.tanh(S.Embedding(X, input_dim=9, output_dim=2, name="e")), pool_type=kind)


def padded_lookup(kind, table, ids, lengths):
    """Do the same on padded rows, in plain torch."""
    inside = (torch.arange(ids.shape[1])[None] < lengths[:, None])[..., None]
    values, some = torch.tanh(table[ids]), lengths[:, None] > 0
    if not ids.shape[1]:
        return values.sum(1) + 0 * table.sum()
    if kind == "max":
        return torch.where(some, values.masked_fill(~inside, -np.inf).max(1).values, 0)
    if kind in ("first", "last"):
        at = torch.zeros_like(lengths) if kind == "first" else (lengths - 1).clamp(min=0)
        return torch.where(some, values[torch.arange(len(at)), at], 0)
    counts = lengths.clamp(min=1)[:, None].double()
    return (values * inside).sum(1) / {"sum": 1, "mean": counts, "sqrt": counts.sqrt()}[kind]


# operators on values

BY_VALUES = {
    "activation": (lambda x: S.Activation(x, act_type="tanh"), (2,)),
    "arithmetic": (lambda x: (x * 3 - 1) / 2 + x * x, (2,)),
    "functions": (lambda x: S.exp(S.clip(x, a_min=-0.55, a_max=0.52)), ()),
    "dense": (lambda x: S.FullyConnected(x, num_hidden=3, name="fc"), (2,)),
    "dense of three axes": (lambda x: S.FullyConnected(x, num_hidden=3, flatten=False, name="fc"), (2, 2)),
    "concat": (lambda x: S.Concat(x, x * 2, dim=1), (2,)),
    "last axis": (lambda x: S.Concat(x, x * x, dim=-1), (2, 2)),
    "softmax of features": (lambda x: S.softmax(x, axis=-1), (3,)),
    "sum of features": (lambda x: S.sum(x, axis=1), (3,)),
    "slice of features": (lambda x: S.slice_axis(x, axis=1, begin=1, end=3), (3,)),
    "layer norm": (lambda x: S.LayerNorm(x, name="ln"), (3,)),
    "prelu": (lambda x: S.LeakyReLU(x, act_type="leaky", slope=0.3), (3,)),
    "flatten": (lambda x: S.Flatten(x), (2, 2)),
    "squeeze": (lambda x: S.squeeze(x, axis=1), (1, 2)),
}


@pytest.mark.parametrize("name", BY_VALUES)
def test_operators_that_work_row_by_row_run_on_the_values(name):
    make, trailing = BY_VALUES[name]
    x, net = ragged(LENGTHS, *trailing), make(X)
    plain = make(S.Variable("x"))
    shapes = dict(zip(plain.list_arguments(), plain.infer_shape(x=x.values.shape)[0], strict=True))
    args = {k: f8(*shape, seed=9) for k, shape in shapes.items() if k != "x"}
    (out,) = bound(net, {**args, "x": x}, grads=False).forward()
    (wanted,) = bound(plain, {**args, "x": x.values}, grads=False).forward()
    assert out.stype == "ragged"
    np.testing.assert_array_equal(out.values.asnumpy(), wanted.asnumpy())
    np.testing.assert_array_equal(out.offsets.asnumpy(), x.offsets.asnumpy())
    assert out.shape == (5, *wanted.shape[1:])
    check_gradients(net, {**args, "x": x})


def test_a_dense_operand_counts_once_for_each_element_of_its_row():
    x, d = ragged(LENGTHS, 2), f8(5, 2)
    net = S.elemwise_mul(X, S.Variable("d"))
    (out,) = bound(net, {"x": x, "d": d}, grads=False).forward()
    for i, row in enumerate(x.tolist()):
        np.testing.assert_allclose(out[i].asnumpy(), np.reshape(row, (-1, 2)) * d.asnumpy()[i])
    check_gradients(net, {"x": x, "d": d})
    check_gradients(S.broadcast_add(X, S.Variable("d")), {"x": x, "d": f8(1, 2)})
    check_gradients(S.broadcast_sub(X, S.Variable("d")), {"x": x, "d": f8(5, 1)})
    check_gradients(S.Concat(S.Variable("d"), X, dim=1), {"x": x, "d": f8(5, 3)})


def test_a_single_dense_row_beside_a_single_ragged_one():
    x = ragged([3], 2)
    check_gradients(S.elemwise_add(X, S.Variable("d")), {"x": x, "d": f8(1, 2)})
    check_gradients(S.broadcast_mul(X, S.Variable("d")), {"x": x, "d": f8(1, 2)})


def test_attention_made_of_sequence_operators():
    scores = S.FullyConnected(X, num_hidden=1, name="score")
    weights = S.sequence_softmax(scores)
    context = S.sequence_pool(S.broadcast_mul(X, weights), pool_type="sum")
    args = {"x": ragged(LENGTHS, 2), "score_weight": f8(1, 2), "score_bias": f8(1)}
    check_gradients(context, args)


def test_rows_of_two_ragged_values_must_be_equally_long():
    a, b = mx.nd.ragged_array([[1, 2], [3]]), mx.nd.ragged_array([[1], [2, 3]])
    with pytest.raises(mx.base.ShapeError, match=r"add.*different row lengths"):
        a + b
    assert (a + a).tolist() == [[2, 4], [6]]


def test_dropout_draws_for_each_element():
    x = mx.nd.ragged_array(np.ones((1000, 3), "f4"), [0, 400, 1000])
    executor = bound(S.Dropout(X, p=0.5), {"x": x})
    (out,) = executor.forward(is_train=True)
    found = out.values.asnumpy()
    assert set(np.unique(found)) == {0, 2}
    assert 0.4 < (found == 0).mean() < 0.6
    executor.backward(x)
    np.testing.assert_array_equal(executor.grad_dict["x"].values.asnumpy(), found)
    assert executor.forward(is_train=False)[0].tolist() == x.tolist()


# tables


@pytest.mark.parametrize("by_rows", [False, True])
def test_looking_up_rows_of_a_table(by_rows):
    ids = mx.nd.ragged_array([[1, 4, 1], [], [0]], dtype="int64")
    table = f8(6, 2)
    net = S.sequence_pool(
        S.Embedding(X, input_dim=6, output_dim=2, sparse_grad=by_rows, name="e"), pool_type="sum"
    )
    grad = mx.nd.zeros((6, 2), dtype="f8", stype="row_sparse" if by_rows else "default")
    executor = net.bind(mx.cpu(), {"x": ids, "e_weight": table}, {"e_weight": grad})
    (out,) = executor.forward(is_train=True)
    t = table.asnumpy()
    np.testing.assert_allclose(out.asnumpy(), [2 * t[1] + t[4], [0, 0], t[0]])
    executor.backward(mx.nd.array([[1, 2], [3, 4], [5, 6]], dtype="f8"))
    wanted = np.zeros((6, 2))
    wanted[1], wanted[4], wanted[0] = [2, 4], [1, 2], [5, 6]
    np.testing.assert_array_equal(grad.asnumpy(), wanted)
    if by_rows:
        assert grad.indices.asnumpy().tolist() == [0, 1, 4]


def test_ids_outside_of_a_table_take_its_ends_row_as_elsewhere():
    ids = mx.nd.ragged_array([[-1, 9]], dtype="int64")
    table = f8(4, 2)
    out = mx.nd.Embedding(ids, table, input_dim=4, output_dim=2)
    np.testing.assert_array_equal(out[0].asnumpy(), table.asnumpy()[[0, 3]])
    with pytest.raises(mx.base.BoundsError):
        mx.nd.contrib.SparseEmbedding(ids, table, input_dim=4, output_dim=2)


# refusals


@pytest.mark.parametrize(
    "make",
    [
        lambda x: S.sum(x),
        lambda x: S.sum(x, axis=0),
        lambda x: S.Concat(x, x, dim=0),
        lambda x: S.SoftmaxOutput(x),
        lambda x: S.topk(x),
        lambda x: S.transpose(x),
        lambda x: S.Reshape(x, shape=(-1,)),
        lambda x: S.stack(x, x),
        lambda x: S.softmax(S.sum(x, axis=1), axis=-1),
        lambda x: S.BatchNorm(x, name="bn"),
        lambda x: S.SequenceLast(x),
        lambda x: S.FullyConnected(S.Variable("d"), x, num_hidden=2, no_bias=True),
    ],
)
def test_an_operator_that_does_not_work_row_by_row_says_so_at_bind(make):
    net = make(X)
    name = list(net.get_internals().list_outputs())[-1].rsplit("_", 1)[0]
    with pytest.raises(mx.base.OpError, match="takes no ragged") as caught:
        net.simple_bind(mx.cpu(), x=(2, 3), **({"d": (4, 3)} if "d" in net.list_arguments() else {}))
    assert name in str(caught.value)


@pytest.mark.parametrize(
    "name", ["sequence_pool", "sequence_softmax", "sequence_reverse", "sequence_conv", "sequence_expand"]
)
def test_sequence_operators_refuse_dense_data_at_bind(name):
    dense = S.Variable("d")
    options = {"num_filters": 2} if name == "sequence_conv" else {}
    inputs = (dense, dense) if name == "sequence_expand" else (dense,)
    net = getattr(S, name)(*inputs, **options)
    with pytest.raises(mx.base.OpError, match=rf"{name} takes ragged .* got a dense value"):
        net.simple_bind(mx.cpu(), d=(2, 3))
    if name != "sequence_conv":
        arrays = [mx.nd.ones((2, 3))] * len(inputs)
        with pytest.raises(mx.base.OpError, match=f"{name} takes ragged"):
            getattr(mx.nd, name)(*arrays)


def test_arrays_refuse_by_name_too():
    a = mx.nd.ragged_array([[1, 2], [3]])
    with pytest.raises(mx.base.OpError, match="dot takes no ragged input"):
        mx.nd.dot(a, a)
    with pytest.raises(mx.base.OpError, match="sum takes no ragged input"):
        a.sum()
