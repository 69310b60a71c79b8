"""Layers over sequences: against loops, and gradients against finite differences."""

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from dpmodule.base import NodeError, ShapeError
from helpers.fluid_programs import run, values

layers = fluid.layers
ROWS = [3, 0, 1, 4]


def sequences(width, seed=0, rows=ROWS):
    draw = np.random.default_rng(seed)
    return [draw.normal(size=(n, width)).astype("float32") for n in rows]


def declared(width, name="x"):
    return layers.data(name, [width], lod_level=1)


POOLS = {
    **{"sum": lambda x: x.sum(0), "average": lambda x: x.mean(0)},
    **{"sqrt": lambda x: x.sum(0) / len(x) ** 0.5, "max": lambda x: x.max(0), "first": lambda x: x[0]},
    "last": lambda x: x[-1],
}


def test_single_numbers_have_the_axis_that_their_variable_says():
    x, two, deep = declared(1), declared(2, "two"), layers.data("deep", [2, 3], lod_level=1)
    ids, label = layers.data("ids", [1], dtype="int64", lod_level=1), layers.data("label", [1])
    start = fluid.ParamAttr(initializer=fluid.initializer.Constant(1.0))
    ones = layers.embedding(layers.sequence_reverse(ids), [5, 2], param_attr=start)
    rows, ends = sequences(1), np.arange(4.0).reshape(4, 1)
    feed = {"x": rows, "two": sequences(2), "ids": [[[i % 5] for i in range(n)] for n in ROWS], "label": ends}
    feed["deep"] = [each.reshape(-1, 2, 3) for each in sequences(6)]
    a, b, each = np.concatenate(rows), np.concatenate(feed["two"]), np.repeat(ends, ROWS, 0)
    turned = np.concatenate([row[::-1] for row in rows])

    def pooled(kind, rows=rows):
        return np.array([POOLS[kind](np.array(row)) if len(row) else [0] * len(rows[0][0]) for row in rows])

    cases = [
        *((layers.sequence_pool(x, kind), pooled(kind)) for kind in POOLS),
        *((layers.sequence_pool(two, kind), pooled(kind, feed["two"])) for kind in POOLS),
        *((layers.sequence_first_step(x), pooled("first")), (layers.sequence_last_step(x), pooled("last"))),
        (layers.sequence_pool(ids, "last"), pooled("last", feed["ids"])),
        (layers.square_error_cost(layers.sequence_pool(x, "sum"), label), (pooled("sum") - ends) ** 2),
        (layers.sequence_softmax(x), np.concatenate([np.exp(row) / np.exp(row).sum() for row in rows])),
        *((layers.softmax(x), np.ones_like(a)), (layers.sequence_reverse(x), turned)),
        (layers.sequence_expand(label, x), each),
        (layers.sequence_expand(x, x), np.concatenate([np.tile(row, (len(row), 1)) for row in rows])),
        (layers.concat([x, two], axis=1), np.concatenate([a, b], 1)),
        (layers.elementwise_mul(two, x, axis=0), b * a),
        (layers.elementwise_mul(ones, x, axis=0), np.ones((8, 2)) * a),
        (layers.elementwise_mul(deep, x, axis=0), np.concatenate(feed["deep"]) * a[..., None]),
        *((layers.elementwise_sub(x, label), a - each), (two * x + 1.0, b * a + 1)),
        (layers.reduce_sum(x, dim=1, keep_dim=True), a),
        (layers.fc(layers.sequence_reverse(x), 2, param_attr=start), turned * [1, 1]),
        *((layers.scale(x, 2.0), a * 2), (x, a)),
    ]
    found = run(feed, [variable for variable, _ in cases], return_numpy=False)
    for (variable, expected), one in zip(cases, found):
        one = (one.values if variable.lod_level else one).asnumpy()
        np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6, err_msg=variable.name)
        assert (variable.shape, one.shape) == ((-1, *expected.shape[1:]), expected.shape), variable
    assert fluid.create_lod_tensor(a, [ROWS]).values.shape == (8, 1)
    assert fluid.DataFeeder(["x"]).feed([(row,) for row in rows])["x"].values.shape == (8, 1)


@pytest.mark.parametrize("size", [3, 4])
def test_convolution_and_pooling(size):
    x, given = declared(2), sequences(2)
    out = fluid.nets.sequence_conv_pool(x, num_filters=5, filter_size=size, act="tanh", pool_type="sum")
    (found,) = run({"x": given}, [out])
    weight, bias = values("sequence_conv_0_weight", "sequence_conv_0_bias")
    before = size // 2
    for one, row in zip(found, given):
        padded = np.concatenate([np.zeros((before, 2)), row, np.zeros((size, 2))])
        windows = [padded[i : i + size].reshape(-1) for i in range(len(row))]
        expected = sum((np.tanh(weight @ window + bias) for window in windows), np.zeros(5))
        np.testing.assert_allclose(one, expected, rtol=1e-4, atol=1e-5)
    assert layers.sequence_conv_pool is fluid.nets.sequence_conv_pool


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def plain_lstm(row, weight, bias, peepholes, is_reverse, h, c):
    """Run one sequence step by step in float64; returns states, states of the cell."""
    units = weight.shape[1]
    found = np.zeros((2, len(row), units))
    p_enter, p_forget, p_leave = np.split(bias[4 * units :], 3) if peepholes else np.zeros(3)
    for t in reversed(range(len(row))) if is_reverse else range(len(row)):
        new, enter, forget, leave = np.split(row[t] + weight @ h + bias[: 4 * units], 4)
        c = np.tanh(new) * sigmoid(enter + p_enter * c) + c * sigmoid(forget + p_forget * c)
        h = sigmoid(leave + p_leave * c) * np.tanh(c)
        found[:, t] = h, c
    return found


@pytest.mark.parametrize("peepholes", [True, False])
@pytest.mark.parametrize("is_reverse", [True, False])
@pytest.mark.parametrize("starts", [True, False])
def test_lstm_is_a_loop_over_each_sequence(peepholes, is_reverse, starts):
    x, given = declared(8), sequences(8)
    first = np.random.default_rng(1).normal(size=(2, len(ROWS), 2)) * starts
    states = {name: layers.data(name, [2]) for name in ("h_0", "c_0")} if starts else {}
    start = fluid.ParamAttr(initializer=fluid.initializer.Normal(0.0, 0.5))
    more = {"param_attr": start, "bias_attr": start}
    outs = layers.dynamic_lstm(x, 8, use_peepholes=peepholes, is_reverse=is_reverse, **more, **states)
    found = run({"x": given, **dict(zip(states, first))}, list(outs), return_numpy=False)
    weight, bias = values("lstm_0_weight", "lstm_0_bias")
    assert (weight.shape, bias.shape) == ((8, 2), (14 if peepholes else 8,))
    for i, row in enumerate(given):
        expected = plain_lstm(row.astype("float64"), weight, bias, peepholes, is_reverse, *first[:, i])
        for one, other in zip(found, expected):
            np.testing.assert_allclose(one[i].asnumpy().reshape(-1, 2), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "attributes",
    [{}, {"use_peepholes": False, "is_reverse": True, "candidate_activation": "identity", "has_state": True}],
)
def test_lstms_gradients_are_the_slopes(attributes):
    draw, offsets = np.random.default_rng(5), [0, 3, 3, 4, 8]
    sizes = {"data": (8, 8), "weight": (8, 2), "bias": (8 if attributes else 14,)}
    arrays = {name: draw.normal(size=size) * 0.5 for name, size in sizes.items()}
    data = mx.sym.Variable("data", stype="ragged", dtype="float64")
    if attributes:
        arrays |= {name: draw.normal(size=(4, 2)) * 0.5 for name in ("state", "state_cell")}
    inputs = data, *map(mx.sym.Variable, [name for name in arrays if name != "data"])
    states, cells = mx.sym.sequence_lstm(*inputs, **attributes)
    head = mx.sym.MakeLoss(mx.sym.sum(mx.sym.sequence_pool(states * states + cells, pool_type="sum")))
    types = {"type_dict": {"data": "float64"}, "stype_dict": {"data": "ragged"}}
    executor = head.simple_bind(mx.cpu(), data=(4, 8), grad_req="write", **types)

    def value(is_train=False):
        for name in arrays.keys() - {"data"}:
            executor.arg_dict[name][:] = mx.nd.array(arrays[name], dtype="float64")
        given = mx.nd.ragged_array(arrays["data"], offsets, dtype="float64")
        return float(executor.forward(is_train, data=given)[0].asnumpy()[0])

    value(True)
    executor.backward()
    for name, array in arrays.items():
        gradient = executor.grad_dict[name]
        slopes = (gradient.values if name == "data" else gradient).asnumpy().reshape(-1)
        flat = array.reshape(-1)
        for i in draw.choice(flat.size, min(flat.size, 12), replace=False):
            before, around = flat[i], []
            for flat[i] in (before + 1e-5, before - 1e-5):
                around.append(value())
            flat[i] = before
            assert slopes[i] == pytest.approx((around[0] - around[1]) / 2e-5, rel=1e-5, abs=1e-7)


def test_losses_of_each_element():
    x, label = declared(3), layers.data("label", [1], dtype="int64", lod_level=1)
    loss = layers.mean(layers.cross_entropy(layers.fc(x, 4, act="softmax"), label))
    given = sequences(3)
    right = [np.arange(len(row)) % 4 for row in given]
    found, total = run({"x": given, "label": right}, [loss, layers.reduce_sum(x)])
    weight, bias = values("fc_0_weight", "fc_0_bias")
    scores = np.concatenate(given) @ weight.T + bias
    logs = scores - np.log(np.exp(scores).sum(1, keepdims=True))
    expected = -np.take_along_axis(logs, np.concatenate(right)[:, None], 1).mean()
    np.testing.assert_allclose(found, [expected], rtol=1e-5)
    np.testing.assert_allclose(total, [np.concatenate(given).sum()], rtol=1e-4, atol=1e-5)


def test_a_batch_of_empty_sequences():
    states, _ = layers.dynamic_lstm(declared(8), 8)
    (found,) = run({"x": [np.zeros((0, 8))] * 2}, [layers.sequence_pool(states, "max")])
    np.testing.assert_array_equal(found, np.zeros((2, 2)))


def test_elements_of_sequences_are_like_rows():
    """A layer of sequences computes the same as that of a batch with all elements as rows."""
    x, label = declared(4), layers.data("label", [1], dtype="int64", lod_level=1)
    given, right = sequences(4), [np.arange(n)[:, None] % 4 for n in ROWS]
    table = fluid.ParamAttr("w", fluid.initializer.Normal(0.0, 0.5))
    cases = [
        lambda x, label: layers.topk(x, 2)[0],
        lambda x, label: layers.topk(x, 2)[1],
        lambda x, label: layers.argsort(x, descending=True)[0],
        lambda x, label: layers.cumsum(x, 1, reverse=True),
        lambda x, label: layers.one_hot(label, 5),
        lambda x, label: layers.split(x, 2, dim=1)[1],
        lambda x, label: layers.slice(x, [1], [1], [3]),
        lambda x, label: layers.unsqueeze(x, [1]),
        lambda x, label: layers.matmul(x, layers.create_parameter([4, 3], attr=table)),
        lambda x, label: layers.matmul(x, layers.create_parameter([4, 3], attr=table), alpha=2.0),
        lambda x, label: fluid.nets.glu(x),
        lambda x, label: layers.accuracy(x, label, 2),
        lambda x, label: layers.accuracy(x, label),
        lambda x, label: layers.hsigmoid(
            x, label, 5, param_attr=fluid.ParamAttr("h", fluid.initializer.Normal())
        ),
        lambda x, label: layers.softmax_with_cross_entropy(x, label, return_softmax=True)[1],
    ]
    rows, numbers = layers.data("rows", [4]), layers.data("numbers", [1], dtype="int64")
    outs = [build(x, label) for build in cases], [build(rows, numbers) for build in cases]
    feed = {"x": given, "label": right}
    found = run(feed, outs[0], return_numpy=False)
    batch = {"rows": np.concatenate(given), "numbers": np.concatenate(right)}
    expected = fluid.Executor().run(feed=batch, fetch_list=outs[1])
    for variable, dense, one, other in zip(*outs, found, expected):
        one = (one.values if variable.lod_level else one).asnumpy()
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6, err_msg=variable.name)
        assert (variable.shape, variable.dtype) == (dense.shape, dense.dtype), variable


def test_noise_contrast_of_sequences_trains():
    words = layers.data("words", [1], dtype="int64", lod_level=1)
    following = layers.data("following", [1], dtype="int64", lod_level=1)
    hidden = layers.dynamic_gru(layers.fc(layers.embedding(words, [20, 8]), 24), 8)
    loss = layers.mean(layers.nce(hidden, following, 20, num_neg_samples=4))
    fluid.optimizer.Adam(0.03).minimize(loss)
    rows = [[(start + i) % 20 for i in range(n)] for start, n in zip(range(20), [3, 5, 1, 4] * 5)]
    feed = {"words": rows, "following": [[(word + 1) % 20 for word in row] for row in rows]}
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    losses = [executor.run(feed=feed, fetch_list=[loss])[0][0] for _ in range(80)]
    assert losses[-1] < 0.5 * losses[0]


def test_sequences_of_one_length_are_rows_for_reshape_losses_and_metrics():
    ids, label = (layers.data(name, [1], dtype="int64", lod_level=1) for name in ("ids", "label"))
    weight, pair = layers.data("weight", [3]), layers.data("pair", [2], lod_level=1)
    table = fluid.embedding(ids, [20, 2], param_attr="table")
    kept = [layers.reshape(pair, [-1, 2]), layers.reshape(table, [0, -1]), layers.reshape(ids, [-1, 1])]
    rows = layers.reshape(table, [-1, 3, 2]) * layers.reshape(weight, [-1, 3, 1])
    share = layers.sigmoid(layers.reduce_sum(rows, [1, 2], keep_dim=True)[:, :, 0])
    shares = layers.concat([1.0 - share, share], 1)
    truth = layers.cast(label, "float32")
    losses = [
        *(layers.log_loss(share, truth, epsilon=1e-7), layers.cross_entropy(shares, label)),
        *(layers.square_error_cost(share, truth), layers.softmax_with_cross_entropy(shares, label)),
        layers.sigmoid_cross_entropy_with_logits(share, truth),
    ]
    metrics = [
        layers.accuracy(shares, label),
        layers.auc(shares, label)[0],
        layers.auc(layers.scale(truth), label)[0],
    ]
    assert [each.lod_level for each in (*kept, rows, *losses)] == [1, 1, 1, *[0] * 6]
    assert (table.shape, rows.shape, share.shape) == ((-1, 1, 2), (-1, 3, 2), (-1, 1))
    draw = np.random.default_rng(0)
    feed = {"ids": draw.integers(0, 20, (6, 3, 1)), "label": np.array([[[i % 2]] for i in range(6)])}
    feed |= {
        "weight": draw.normal(size=(6, 3)).astype("float32"),
        "pair": sequences(2, rows=[1, 0, 2, 1, 3, 1]),
    }
    found = run(feed, [*kept, share, *losses, *metrics], return_numpy=False)
    (rows_of,) = values("table")
    picked = (rows_of[feed["ids"][..., 0]] * feed["weight"][..., None]).sum((1, 2))[:, None]
    p, y = sigmoid(picked), feed["label"][:, 0].astype(float)
    chosen, exponents = np.where(y, p, 1 - p), np.exp(np.concatenate([1 - p, p], 1))
    softmax = np.where(y, exponents[:, 1:], exponents[:, :1]) / exponents.sum(1, keepdims=True)
    pairs = (p[y == 1][:, None] > p[y == 0]).mean()
    expected = [
        *(np.concatenate(feed["pair"]), rows_of[feed["ids"].ravel()], feed["ids"].reshape(-1, 1), p),
        *(-np.log(chosen + 1e-7), -np.log(chosen), (p - y) ** 2, -np.log(softmax)),
        *(np.log1p(np.exp(p)) - p * y, [((p > 0.5) == y).mean()], [pairs], [1.0]),
    ]
    for one, wanted in zip(found, expected):
        np.testing.assert_allclose(np.array(one), wanted, rtol=1e-4, atol=1e-4)
    with pytest.raises(NodeError, match="which do not fill a row of shape"):
        run({**feed, "ids": [[[1]] * 3, [[2]] * 2] * 3}, [share])
    with pytest.raises(ShapeError, match="expected -1 first, and then sizes from 1"):
        layers.reshape(pair, [3, 2])


def test_numbers_are_added_to_places_of_rows():
    x, places, numbers = (
        layers.data("x", [6]),
        layers.data("places", [1], dtype="int64", lod_level=1),
        declared(1, "y"),
    )
    out = layers.sequence_scatter(x, places, numbers)
    wanted = np.random.default_rng(1).normal(size=(4, 6)).astype("float32")
    index = [[[(3 * j + i) % 5] for j in range(n)] for i, n in enumerate(ROWS)]
    feed = {"x": wanted.copy(), "places": index, "y": sequences(1)}
    for i, n in enumerate(ROWS):
        for j in range(n):
            wanted[i, index[i][j][0]] += feed["y"][i][j, 0]
    np.testing.assert_allclose(run(feed, [out])[0], wanted, rtol=1e-6)
