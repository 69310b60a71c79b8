"""Layers: what they compute, against NumPy."""

import numpy as np
import pytest

import dpmodule as mx
import dpmodule.fluid as fluid
from helpers.fluid_programs import run, text_inputs, values

layers = fluid.layers
RAGGED = [[1, 2, 3], [], [4]]


def dense(name="x", width=3):
    return layers.data(name, [width])


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def test_fc_maps_each_input_by_its_own_weight_and_adds():
    a, b = dense("a", 3), dense("b", 2)
    out = layers.fc([a, b], 4, act="tanh")
    x, y = numbers(5, 3), numbers(5, 2, seed=1)
    (found,) = run({"a": x, "b": y}, [out])
    w0, w1, bias = values("fc_0_0_weight", "fc_0_1_weight", "fc_0_bias")
    np.testing.assert_allclose(found, np.tanh(x @ w0.T + y @ w1.T + bias), rtol=1e-5, atol=1e-6)
    assert out.shape == (-1, 4)
    assert (w0.shape, w1.shape) == ((4, 3), (4, 2))


@pytest.mark.parametrize(
    ("axis", "weight", "shape"), [(1, (5, 24), (-1, 5)), (2, (5, 12), (-1, 2, 5)), (3, (5, 4), (-1, 2, 3, 5))]
)
def test_fc_counts_features_from_an_axis_on(axis, weight, shape):
    x = layers.data("x", [2, 3, 4])
    out = layers.fc(x, 5, num_flatten_dims=axis, bias_attr=False)
    given = numbers(6, 2, 3, 4)
    (found,) = run({"x": given}, [out])
    (w,) = values("fc_0_weight")
    expected = given.reshape(*given.shape[:axis], -1) @ w.T
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert (w.shape, out.shape, out.program.var("fc_0") is out) == (weight, shape, True)


def test_embedding_of_sequences_and_of_numbers_share_a_table_by_name():
    words, label = text_inputs()
    table = fluid.ParamAttr(name="table")
    long = layers.sequence_pool(layers.embedding(words, [9, 4], param_attr=table), "sum")
    one = layers.embedding(label, [9, 4], param_attr=table)
    pooled, rows = run({"words": RAGGED, "label": [[0], [5], [8]]}, [long, one])
    (weight,) = values("table")
    expected = [weight[row].sum(0) if row else np.zeros(4) for row in RAGGED]
    np.testing.assert_allclose(pooled, expected, rtol=1e-6)
    np.testing.assert_array_equal(rows, weight[[0, 5, 8]])
    assert one.shape == long.shape == (-1, 4)
    assert [each.name for each in fluid.default_main_program().all_parameters()] == ["table"]


@pytest.mark.parametrize("padding", [3, -6])
def test_embeddings_padding_counts_as_zeros_and_is_not_trained(padding):
    words, label = text_inputs()
    pooled = layers.sequence_pool(layers.embedding(words, [9, 4], padding_idx=padding), "sum")
    one = layers.embedding(label, [9, 4], padding_idx=padding)
    loss = layers.mean(pooled) + layers.mean(one)
    fluid.optimizer.SGD(1.0).minimize(loss)
    feed = {"words": RAGGED, "label": [[3], [5], [8]]}
    found = run(feed, [pooled, one, "embedding_0_weight@GRAD", "embedding_1_weight@GRAD"])
    assert not found[1][0].any()
    assert found[1][1].any()
    assert [bool(gradient[3].any()) for gradient in found[2:]] == [False, False]
    assert found[2][1].any()


def test_tables_several_axes_deep():
    ids = layers.data("ids", [3, 1], dtype="int64")
    out = layers.embedding(ids, [9, 4])
    given = np.arange(6).reshape(2, 3, 1)
    (found,) = run({"ids": given}, [out])
    np.testing.assert_array_equal(found, values("embedding_0_weight")[0][given[..., 0]])
    assert out.shape == (-1, 3, 4)


POINTWISE = {
    "abs": np.abs,
    "exp": np.exp,
    "relu": lambda x: np.maximum(x, 0),
    "sigmoid": lambda x: 1 / (1 + np.exp(-x)),
    "softmax": softmax,
    "softsign": lambda x: x / (1 + np.abs(x)),
    "square": np.square,
    "tanh": np.tanh,
}


def test_activations():
    x = dense()
    outs = [getattr(layers, name)(x) for name in POINTWISE]
    acts = [layers.scale(x, 1.0, act=name) for name in POINTWISE]
    given = numbers(4, 3)
    found = run({"x": given}, outs + acts)
    for i, function in enumerate(POINTWISE.values()):
        np.testing.assert_allclose(found[i], function(given), rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found[i], found[i + len(outs)])


def test_arithmetic_of_variables():
    x, y = dense("x"), dense("y")
    z = (x + y) * 2.0 - y / (x * x + 1.0) + (1.0 - x) - (-y) + 3.0 / (y * y + 1.0)
    a, b = numbers(4, 3), numbers(4, 3, seed=1)
    (found,) = run({"x": a, "y": b}, [z])
    expected = (a + b) * 2 - b / (a * a + 1) + (1 - a) + b + 3 / (b * b + 1)
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert z.shape == (-1, 3)


@pytest.mark.parametrize(
    ("name", "function"),
    [
        ("add", np.add),
        ("sub", np.subtract),
        ("mul", np.multiply),
        ("div", np.divide),
        ("max", np.maximum),
        ("min", np.minimum),
    ],
)
def test_elementwise_layers_repeat_axes(name, function):
    x, row, column = layers.data("x", [2, 3]), layers.data("row", [2]), layers.data("column", [2, 1])
    layer = getattr(layers, f"elementwise_{name}")
    a, b, c = numbers(4, 2, 3), numbers(4, 2, seed=1), numbers(4, 2, 1, seed=2)
    found = run({"x": a, "row": b, "column": c}, [layer(x, x), layer(x, row, axis=0), layer(x, column)])
    for one, other in zip(found, (a, b[..., None], c)):
        np.testing.assert_allclose(one, function(a, other), rtol=1e-6)


def test_joining_and_adding_up():
    x, y = dense("x", 3), dense("y", 2)
    outs = [
        layers.concat([x, y], axis=1),
        layers.sums([x, x, x]),
        layers.reduce_sum(x),
        layers.reduce_sum(x, dim=1, keep_dim=True),
        layers.reduce_mean(x, dim=-1),
        layers.reduce_max(x, dim=1),
        layers.mean(x),
        layers.clip(x, -0.5, 0.5),
        layers.reshape(x, [0, 3, 1]),
        layers.scale(x, 2.0, bias=1.0, bias_after_scale=False),
        layers.cast(x, "int64"),
    ]
    a, b = numbers(4, 3), numbers(4, 2, seed=1)
    found = run({"x": a, "y": b}, outs)
    expected = [
        np.concatenate([a, b], 1), a * 3, [a.sum()], a.sum(1, keepdims=True), a.mean(1), a.max(1), [a.mean()],
        a.clip(-0.5, 0.5), a[..., None], (a + 1) * 2, a.astype("int64"),
    ]  # fmt: skip
    for variable, one, other in zip(outs, found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
        assert variable.shape == tuple(-1 if n == 4 else n for n in one.shape)
    assert (outs[0].shape, outs[-1].dtype) == ((-1, 5), "int64")


def test_cross_entropies():
    x, label, soft = dense(), layers.data("label", [1], dtype="int64"), dense("soft")
    prediction = layers.softmax(x)
    outs = [
        layers.cross_entropy(prediction, label),
        layers.softmax_with_cross_entropy(x, label),
        layers.cross_entropy(prediction, label, ignore_index=2),
        layers.cross_entropy(prediction, soft, soft_label=True),
        layers.softmax_with_cross_entropy(x, soft, soft_label=True),
    ]
    a, right, weights = numbers(4, 3), np.array([[0], [2], [1], [2]]), softmax(numbers(4, 3, seed=1))
    found = run({"x": a, "label": right, "soft": weights}, outs)
    logs = np.log(softmax(a))
    hard = -np.take_along_axis(logs, right, 1)
    expected = [hard, hard, hard * (right != 2), *[-(logs * weights).sum(1, keepdims=True)] * 2]
    for one, other in zip(found, expected):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)
    assert {each.shape for each in outs} == {(-1, 1)}


def test_a_certain_wrong_prediction_costs_a_finite_loss():
    x, label = dense(width=2), layers.data("label", [1], dtype="int64")
    loss = layers.cross_entropy(x, label)
    (found,) = run({"x": [[0.0, 1.0]], "label": [[0]]}, [loss])
    np.testing.assert_allclose(found, [[-np.log(1e-20)]], rtol=1e-6)


def test_other_costs():
    x, y, label = dense("x"), dense("y"), layers.data("label", [3], dtype="int64")
    outs = [layers.square_error_cost(x, y), layers.sigmoid_cross_entropy_with_logits(x, label)]
    a, b, ones = numbers(4, 3), numbers(4, 3, seed=1), (numbers(4, 3, seed=2) > 0).astype("int64")
    found = run({"x": a, "y": b, "label": ones}, outs)
    p = 1 / (1 + np.exp(-a))
    np.testing.assert_allclose(found[0], (a - b) ** 2, rtol=1e-5)
    np.testing.assert_allclose(found[1], -np.where(ones, np.log(p), np.log(1 - p)), rtol=1e-5)


def test_accuracy_of_the_best_k():
    x, label = dense(width=4), layers.data("label", [1], dtype="int64")
    outs = [layers.accuracy(x, label, k) for k in (1, 2, 4)]
    a, right = numbers(50, 4), np.arange(50)[:, None] % 4
    found = run({"x": a, "label": right}, outs)
    ranks = (a > np.take_along_axis(a, right, 1)).sum(1)
    assert [float(each[0]) for each in found] == pytest.approx([(ranks < k).mean() for k in (1, 2, 4)])


def test_dropout_is_for_training_programs():
    x = dense(width=400)
    out = layers.dropout(x, 0.25)
    still = fluid.default_main_program().clone(for_test=True)
    given = np.ones((2, 400), "float32")
    mx.random.seed(3)
    (found,) = run({"x": given}, [out])
    assert set(np.unique(found)) == {0.0, np.float32(1 / 0.75)}
    assert 0.6 < (found > 0).mean() < 0.9
    (same,) = fluid.Executor().run(still, {"x": given}, [out.name])
    np.testing.assert_array_equal(same, given)
    assert still.var(out.name) is out


def test_factorization_machine():
    ids, label = text_inputs()
    first = layers.sequence_pool(layers.embedding(ids, [9, 1]), "sum")
    rows = layers.embedding(ids, [9, 4])
    total = layers.square(layers.sequence_pool(rows, "sum"))
    pairs = layers.reduce_sum(total - layers.sequence_pool(layers.square(rows), "sum"), dim=1, keep_dim=True)
    score = first + pairs * 0.5
    (found,) = run({"words": RAGGED}, [score])
    w, v = values("embedding_0_weight", "embedding_1_weight")
    expected = [
        [sum(w[i, 0] for i in row) + sum(v[i] @ v[j] for a, i in enumerate(row) for j in row[a + 1 :])]
        for row in RAGGED
    ]
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=1e-6)


def bad(layer, *given, **more):
    return lambda: getattr(layers, layer)(*given, **more)


@pytest.mark.parametrize(
    ("call", "error", "text"),
    [
        (lambda: layers.fc(3, 4), ValueError, "fc: input is 3"),
        (lambda: layers.fc(dense(), 4, act="tahn"), ValueError, "did you mean tanh"),
        (lambda: layers.fc([], 4), ValueError, "empty list"),
        (lambda: layers.fc(dense(), 4, num_flatten_dims=2), ValueError, "num_flatten_dims is 2"),
        (lambda: layers.fc([dense()], 4, param_attr=[None, None]), ValueError, "2 entries for 1 inputs"),
        (lambda: layers.data("a", 3), ValueError, "shape is 3"),
        (lambda: layers.data("a", [-1, 0]), ValueError, "sizes from 1"),
        (lambda: layers.data("a", [1], lod_level=2), ValueError, "lod_level is 2"),
        (lambda: (dense(), dense(width=4)), ValueError, "already has <Data x"),
        (lambda: layers.data(layers.tanh(dense()).name, [3]), ValueError, "already has a variable 'tanh_0'"),
        (lambda: layers.embedding(dense(), [3]), ValueError, "size is"),
        (lambda: layers.embedding(dense(), [3, 2], padding_idx=3), ValueError, "padding_idx is 3"),
        (lambda: layers.embedding(dense(), [3, 2], param_attr=3), ValueError, "param_attr is 3"),
        (lambda: layers.sequence_pool(dense(), "sum"), ValueError, "does not hold sequences"),
        (lambda: layers.sequence_pool(text_inputs()[0], "median"), ValueError, "'median'"),
        (lambda: layers.accuracy(dense(), dense("y"), k=7), ValueError, "k is 7"),
        (lambda: layers.dropout(dense(), 0.5, seed=1), ValueError, "mx.random.seed"),
        (lambda: dense() + "x", ValueError, "neither a variable"),
        (lambda: layers.elementwise_add(dense(), 3), ValueError, "y is 3"),
        (lambda: layers.reduce_max(text_inputs()[0]), ValueError, "pool them first"),
    ],
)
def test_errors_name_the_argument(call, error, text):
    with pytest.raises(error, match=text) as raised:
        call()
    assert isinstance(raised.value, mx.MXNetError)
