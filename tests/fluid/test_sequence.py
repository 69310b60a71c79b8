"""Layers over sequences: against loops, and gradients against finite differences."""

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from helpers.fluid_programs import run, values

layers = fluid.layers
ROWS = [3, 0, 1, 4]


def sequences(width, seed=0, rows=ROWS):
    draw = np.random.default_rng(seed)
    return [draw.normal(size=(n, width)).astype("float32") for n in rows]


def declared(width, name="x"):
    return layers.data(name, [width], lod_level=1)


def as_rows(array):
    return [row.asnumpy() for row in (array[i] for i in range(array.shape[0]))]


POOLS = {
    "sum": lambda x: x.sum(0),
    "average": lambda x: x.mean(0),
    "sqrt": lambda x: x.sum(0) / len(x) ** 0.5,
    "max": lambda x: x.max(0),
    "first": lambda x: x[0],
    "last": lambda x: x[-1],
}


def test_pooling():
    x, given = declared(2), sequences(2)
    outs = [layers.sequence_pool(x, kind) for kind in POOLS]
    outs += [layers.sequence_first_step(x), layers.sequence_last_step(x)]
    found = run({"x": given}, outs)
    for one, function in zip(found, [*POOLS.values(), POOLS["first"], POOLS["last"]]):
        expected = [function(row) if len(row) else np.zeros(2) for row in given]
        np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)
    assert {each.shape for each in outs} == {(-1, 2)}
    assert {each.lod_level for each in outs} == {0}


def test_single_numbers_have_the_axis_that_their_variable_says():
    x, two = declared(1), declared(2, "two")
    ids, label = layers.data("ids", [1], dtype="int64", lod_level=1), layers.data("label", [1])
    start = fluid.ParamAttr(initializer=fluid.initializer.Constant(1.0))
    ones = layers.embedding(layers.sequence_reverse(ids), [5, 2], param_attr=start)
    deep = layers.data("deep", [2, 3], lod_level=1)
    feed = {"x": sequences(1), "two": sequences(2), "ids": [[[i % 5] for i in range(n)] for n in ROWS]}
    feed["label"] = np.arange(4.0).reshape(4, 1)
    feed["deep"] = [each.reshape(-1, 2, 3) for each in sequences(6)]
    rows = feed["x"]
    a, b, each = np.concatenate(rows), np.concatenate(feed["two"]), np.repeat(feed["label"], ROWS, 0)

    def pooled(kind, rows=rows):
        return np.array([POOLS[kind](np.array(row)) if len(row) else [0] for row in rows])

    soft = np.concatenate([np.exp(row) / np.exp(row).sum() for row in rows])
    cases = [
        *((layers.sequence_pool(x, kind), pooled(kind)) for kind in POOLS),
        (layers.sequence_first_step(x), pooled("first")),
        (layers.sequence_last_step(x), pooled("last")),
        (layers.sequence_pool(ids, "last"), pooled("last", feed["ids"])),
        (
            layers.square_error_cost(layers.sequence_pool(x, "sum"), label),
            (pooled("sum") - feed["label"]) ** 2,
        ),
        (layers.sequence_softmax(x), soft),
        (layers.softmax(x), np.ones_like(a)),
        (layers.sequence_reverse(x), np.concatenate([row[::-1] for row in rows])),
        (layers.sequence_expand(label, x), each),
        (layers.sequence_expand(x, x), np.concatenate([np.tile(row, (len(row), 1)) for row in rows])),
        (layers.concat([x, two], axis=1), np.concatenate([a, b], 1)),
        (layers.elementwise_mul(two, x, axis=0), b * a),
        (layers.elementwise_mul(ones, x, axis=0), np.ones((8, 2)) * a),
        (layers.elementwise_mul(deep, x, axis=0), np.concatenate(feed["deep"]) * a[..., None]),
        (layers.elementwise_sub(x, label), a - each),
        (two * x + 1.0, b * a + 1),
        (layers.reduce_sum(x, dim=1, keep_dim=True), a),
        (
            layers.fc(layers.sequence_reverse(x), 2, param_attr=start),
            np.concatenate([r[::-1] for r in rows]) * [1, 1],
        ),
        (layers.scale(x, 2.0), a * 2),
        (x, a),
    ]
    found = run(feed, [variable for variable, _ in cases], return_numpy=False)
    for (variable, expected), one in zip(cases, found):
        one = (one.values if variable.lod_level else one).asnumpy()
        np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6, err_msg=variable.name)
        assert (variable.shape, one.shape) == ((-1, *expected.shape[1:]), expected.shape), variable
    tensor = fluid.create_lod_tensor(a, [ROWS])
    assert tensor.values.shape == (8, 1)
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


def plain_lstm(row, weight, bias, peepholes, is_reverse):
    """Run one sequence step by step in float64; returns states, states of the cell."""
    units = weight.shape[1]
    h = c = np.zeros(units)
    found = []
    for x in row[::-1] if is_reverse else row:
        new, enter, forget, leave = np.split(x + weight @ h + bias[: 4 * units], 4)
        if peepholes:
            p_enter, p_forget, p_leave = np.split(bias[4 * units :], 3)
            enter, forget = enter + p_enter * c, forget + p_forget * c
        c = np.tanh(new) * sigmoid(enter) + c * sigmoid(forget)
        h = sigmoid(leave + (p_leave * c if peepholes else 0)) * np.tanh(c)
        found.append((h, c))
    found = found[::-1] if is_reverse else found
    return (
        [np.array(part).reshape(-1, units) for part in zip(*found)] if found else [np.zeros((0, units))] * 2
    )


@pytest.mark.parametrize("peepholes", [True, False])
@pytest.mark.parametrize("is_reverse", [True, False])
def test_lstm_is_a_loop_over_each_sequence(peepholes, is_reverse):
    x, given = declared(8), sequences(8)
    start = fluid.ParamAttr(initializer=fluid.initializer.Normal(0.0, 0.5))
    outs = layers.dynamic_lstm(
        x, 8, use_peepholes=peepholes, is_reverse=is_reverse, param_attr=start, bias_attr=start
    )
    found = run({"x": given}, list(outs), return_numpy=False)
    weight, bias = values("lstm_0_weight", "lstm_0_bias")
    assert (weight.shape, bias.shape) == ((8, 2), (14 if peepholes else 8,))
    for i, row in enumerate(given):
        expected = plain_lstm(row.astype("float64"), weight, bias, peepholes, is_reverse)
        for one, other in zip(found, expected):
            np.testing.assert_allclose(one[i].asnumpy().reshape(-1, 2), other, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    "attributes", [{}, {"use_peepholes": False, "is_reverse": True, "candidate_activation": "identity"}]
)
def test_lstms_gradients_are_the_slopes(attributes):
    draw = np.random.default_rng(5)
    offsets = [0, 3, 3, 4, 8]
    width = 14 if attributes.get("use_peepholes", True) else 8
    arrays = [draw.normal(size=shape) * 0.5 for shape in ((8, 8), (8, 2), (width,))]
    data = mx.sym.Variable("data", stype="ragged", dtype="float64")
    states, cells = mx.sym.sequence_lstm(
        data, mx.sym.Variable("weight"), mx.sym.Variable("bias"), **attributes
    )
    pooled = mx.sym.sequence_pool(states * states + cells, pool_type="sum")
    head = mx.sym.MakeLoss(mx.sym.sum(pooled))
    executor = head.simple_bind(
        mx.cpu(), data=(4, 8), grad_req="write", type_dict={"data": "float64"}, stype_dict={"data": "ragged"}
    )

    def set_values():
        executor.arg_dict["weight"][:] = mx.nd.array(arrays[1], dtype="float64")
        executor.arg_dict["bias"][:] = mx.nd.array(arrays[2], dtype="float64")
        return {"data": mx.nd.ragged_array(arrays[0], offsets, dtype="float64")}

    def value():
        return float(executor.forward(False, **set_values())[0].asnumpy()[0])

    executor.forward(True, **set_values())
    executor.backward()
    found = [executor.grad_dict[name] for name in ("data", "weight", "bias")]
    found = [np.array((each.values if each.stype == "ragged" else each).asnumpy()) for each in found]
    for array, gradient in zip(arrays, found):
        flat, slopes = array.reshape(-1), gradient.reshape(-1)
        for i in draw.choice(flat.size, min(flat.size, 12), replace=False):
            before = flat[i]
            flat[i] = before + 1e-5
            above = value()
            flat[i] = before - 1e-5
            below = value()
            flat[i] = before
            assert slopes[i] == pytest.approx((above - below) / 2e-5, rel=1e-5, abs=1e-7)


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
    x = declared(8)
    states, _ = layers.dynamic_lstm(x, 8)
    (found,) = run({"x": [np.zeros((0, 8))] * 2}, [layers.sequence_pool(states, "max")])
    np.testing.assert_array_equal(found, np.zeros((2, 2)))
