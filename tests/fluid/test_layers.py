"""Layers: what they compute, against NumPy."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch
import torch.nn.functional as F

import dpmodule as mx
import dpmodule.fluid as fluid
from dpmodule.base import ArgumentError, ShapeError
from helpers.fluid_programs import run, text_inputs, values

layers = fluid.layers
RAGGED = [[1, 2, 3], [], [4]]


def numbers(*shape, seed=0):
    return np.random.default_rng(seed).normal(size=shape).astype("float32")


def softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def huber(x, delta):
    return np.where(abs(x) <= delta, x**2 / 2, delta * (abs(x) - delta / 2))


def pairwise(x, label):
    """Mean of -log(sigmoid(score of the label - score of another class))."""
    losses = np.log1p(np.exp(x - np.take_along_axis(x, label, 1)))
    np.put_along_axis(losses, label, 0, 1)
    return losses.sum(1, keepdims=True) / (x.shape[1] - 1)


FEED = {
    **{"x": numbers(4, 3), "y": numbers(4, 3, seed=1), "z": numbers(4, 2, seed=2)},
    **{"cube": numbers(4, 2, 3), "row": numbers(4, 2, seed=1), "column": numbers(4, 2, 1, seed=2)},
    **{"soft": softmax(numbers(4, 3, seed=1)), "label": np.array([[0], [2], [1], [2]])},
    "hits": (numbers(4, 3, seed=2) > 0).astype("int64"),
}
A = SimpleNamespace(**FEED)
LOGS = np.log(softmax(A.x))
HARD = -np.take_along_axis(LOGS, A.label, 1)
SOFT = -(LOGS * A.soft).sum(1, keepdims=True)
POINTWISE = {
    **{"abs": np.abs(A.x), "exp": np.exp(A.x), "relu": np.maximum(A.x, 0), "sigmoid": sigmoid(A.x)},
    **{"softmax": softmax(A.x), "softsign": A.x / (1 + np.abs(A.x)), "square": A.x**2},
    **{"tanh": np.tanh(A.x), "ceil": np.ceil(A.x), "floor": np.floor(A.x), "round": np.round(A.x)},
    **{"cos": np.cos(A.x), "sin": np.sin(A.x), "reciprocal": 1 / A.x, "softplus": np.log1p(np.exp(A.x))},
}
BINARY = {n[:3]: getattr(np, n) for n in ("add", "subtract", "multiply", "divide", "maximum", "minimum")}


def elementwise(name, second, **more):
    return lambda v: getattr(layers, f"elementwise_{name}")(v.cube, getattr(v, second), **more)


COMPARISONS = {
    **{"less_than": np.less, "less_equal": np.less_equal, "equal": np.equal, "not_equal": np.not_equal},
    **{"greater_than": np.greater, "greater_equal": np.greater_equal},
}
DIVERGENCES = {
    **{"none": lambda x: x, "mean": lambda x: [x.mean()], "sum": lambda x: [x.sum()]},
    "batchmean": lambda x: [x.sum() / 4],
}
CASES = {
    **{name: (lambda v, name=name: getattr(layers, name)(v.x), found) for name, found in POINTWISE.items()},
    **{f"act {name}": (lambda v, name=name: layers.scale(v.x, 1.0, act=name), y) for name, y in POINTWISE.items()},
    **{f"{name} same": (elementwise(name, "cube"), each(A.cube, A.cube)) for name, each in BINARY.items()},
    **{f"{name} row": (elementwise(name, "row", axis=0), f(A.cube, A.row[..., None])) for name, f in BINARY.items()},
    **{f"{name} column": (elementwise(name, "column"), each(A.cube, A.column)) for name, each in BINARY.items()},
    "arithmetic": (
        lambda v: (v.x + v.y) * 2.0 - v.y / (v.x * v.x + 1.0) + (1.0 - v.x) - (-v.y) + 3.0 / (v.y * v.y + 1.0),
        (A.x + A.y) * 2 - A.y / (A.x**2 + 1) + (1 - A.x) + A.y + 3 / (A.y**2 + 1),
    ),
    **{
        f"act {name}": (lambda v, name=name: layers.scale(v.x, 1.0, act=name), found)
        for name, found in {
            "stanh": 1.7159 * np.tanh(0.67 * A.x),
            "relu6": A.x.clip(0, 6),
            "leaky_relu": np.where(A.x > 0, A.x, 0.02 * A.x),
        }.items()
    },
    "powers": (lambda v: v.soft**v.y + v.soft**np.float32(2) + 2.0**v.x, A.soft**A.y + A.soft**2 + 2**A.x),
    "pow": (lambda v: layers.pow(v.soft, 1.5), A.soft**1.5),
    "rsqrt": (lambda v: layers.rsqrt(v.soft), A.soft**-0.5),
    "relu6": (lambda v: layers.relu6(v.x, 0.5), A.x.clip(0, 0.5)),
    "leaky_relu": (lambda v: layers.leaky_relu(v.x), np.where(A.x > 0, A.x, 0.02 * A.x)),
    "elu": (lambda v: layers.elu(v.x, 0.5), np.where(A.x > 0, A.x, 0.5 * np.expm1(A.x))),
    "hard_sigmoid": (lambda v: layers.hard_sigmoid(v.x), (0.2 * A.x + 0.5).clip(0, 1)),
    "swish": (lambda v: layers.swish(v.x, 2.0), A.x * sigmoid(2 * A.x)),
    "reduce_prod": (lambda v: layers.reduce_prod(v.x, dim=1), A.x.prod(1)),
    "matmul alpha": (lambda v: layers.matmul(v.x, v.y, transpose_y=True, alpha=0.5), A.x @ A.y.T / 2),
    "concat": (lambda v: layers.concat([v.x, v.z], axis=1), np.concatenate([A.x, A.z], 1)),
    "sums": (lambda v: layers.sums([v.x, v.x, v.x]), A.x * 3),
    "reduce_sum": (lambda v: layers.reduce_sum(v.x), [A.x.sum()]),
    "reduce_sum keep": (lambda v: layers.reduce_sum(v.x, dim=1, keep_dim=True), A.x.sum(1, keepdims=True)),
    "reduce_mean": (lambda v: layers.reduce_mean(v.x, dim=-1), A.x.mean(1)),
    "reduce_max": (lambda v: layers.reduce_max(v.x, dim=1), A.x.max(1)),
    "mean": (lambda v: layers.mean(v.x), [A.x.mean()]),
    "clip": (lambda v: layers.clip(v.x, -0.5, 0.5), A.x.clip(-0.5, 0.5)),
    "reshape": (lambda v: layers.reshape(v.x, [0, 3, 1]), A.x[..., None]),
    "reshape -1": (lambda v: layers.reshape(v.cube, [0, 1, -1]), A.cube.reshape(4, 1, 6)),
    "matmul": (lambda v: layers.matmul(v.cube, layers.reshape(v.cube, [0, 3, 2])), A.cube @ A.cube.reshape(4, 3, 2)),
    "scale": (lambda v: layers.scale(v.x, 2.0, bias=1.0, bias_after_scale=False), (A.x + 1) * 2),
    "cast": (lambda v: layers.cast(v.x, "int64"), A.x.astype("int64")),
    "cross_entropy": (lambda v: layers.cross_entropy(layers.softmax(v.x), v.label), HARD),
    "with softmax": (lambda v: layers.softmax_with_cross_entropy(v.x, v.label), HARD),
    "ignored": (lambda v: layers.cross_entropy(layers.softmax(v.x), v.label, ignore_index=2), HARD * (A.label != 2)),
    "soft labels": (lambda v: layers.cross_entropy(layers.softmax(v.x), v.soft, soft_label=True), SOFT),
    "softmax, soft": (lambda v: layers.softmax_with_cross_entropy(v.x, v.soft, soft_label=True), SOFT),
    "square_error_cost": (lambda v: layers.square_error_cost(v.x, v.y), (A.x - A.y) ** 2),
    "logits": (
        lambda v: layers.sigmoid_cross_entropy_with_logits(v.x, v.hits),
        -np.where(A.hits, np.log(sigmoid(A.x)), np.log(1 - sigmoid(A.x))),
    ),
    "certain and wrong": (lambda v: layers.cross_entropy(layers.scale(v.soft, 0.0), v.label), [[-np.log(1e-20)]] * 4),
    "transpose": (lambda v: layers.transpose(v.cube, [0, 2, 1]), A.cube.transpose(0, 2, 1)),
    "squeeze": (lambda v: layers.squeeze(v.column, [2]), A.column[..., 0]),
    "squeeze all": (lambda v: layers.squeeze(v.column, []), A.column[..., 0]),
    "unsqueeze": (lambda v: layers.unsqueeze(v.x, [1, 3]), A.x[:, None, :, None]),
    "flatten": (lambda v: layers.flatten(v.cube), A.cube.reshape(4, 6)),
    "flatten from 2": (lambda v: layers.reduce_sum(layers.flatten(v.cube, 2)), [A.cube.sum()]),
    "slice": (lambda v: layers.slice(v.cube, [1, 2], [0, -2], [1, 99]), A.cube[:, :1, -2:]),
    "split in 3": (lambda v: layers.split(v.x, 3)[1], A.x[:, 1:2]),
    "split by lengths": (lambda v: layers.split(v.cube, [1, -1], dim=2)[1], A.cube[..., 1:]),
    "stack": (lambda v: layers.stack([v.x, v.y], axis=1), np.stack([A.x, A.y], 1)),
    "expand": (lambda v: layers.expand(v.row, [1, 3]), np.tile(A.row, (1, 3))),
    "gather": (lambda v: layers.gather(v.x, v.label), A.x[A.label[:, 0]]),
    "one_hot": (lambda v: layers.one_hot(v.label, 3), np.eye(3, dtype="f4")[A.label[:, 0]]),
    "softmax of an axis": (lambda v: layers.softmax(v.cube, axis=1), softmax(A.cube.swapaxes(1, 2)).swapaxes(1, 2)),
    "sign": (lambda v: layers.sign(v.x), np.sign(A.x)),
    "logsigmoid": (lambda v: layers.logsigmoid(v.x), np.log(sigmoid(A.x))),
    "gelu": (lambda v: layers.gelu(v.x), F.gelu(torch.tensor(A.x))),
    "brelu": (lambda v: layers.brelu(v.x, -0.3, 0.4), A.x.clip(-0.3, 0.4)),
    "soft_relu": (lambda v: layers.soft_relu(v.x, 0.5), np.log1p(np.exp(A.x.clip(-0.5, 0.5)))),
    "stanh": (lambda v: layers.stanh(v.x, 0.5, 2.0), 2 * np.tanh(A.x / 2)),
    **{
        name: (lambda v, name=name: getattr(layers, name)(v.x, v.y), each(A.x, A.y))
        for name, each in COMPARISONS.items()
    },
    **{
        f"logical_{name}": (
            lambda v, name=name: getattr(layers, f"logical_{name}")(v.hits, layers.less_than(v.x, v.y)),
            getattr(np, f"logical_{name}")(A.hits, A.x < A.y),
        )
        for name in ("and", "or", "xor")
    },
    "logical_not": (lambda v: layers.logical_not(v.hits), A.hits == 0),
    "argmax": (lambda v: layers.argmax(v.x, axis=1), A.x.argmax(1)),
    "argmin": (lambda v: layers.argmin(v.cube, axis=-1), A.cube.argmin(-1)),
    "argsort": (lambda v: layers.argsort(v.x)[0], np.sort(A.x)),
    "argsort descending": (lambda v: layers.argsort(v.x, 1, True)[1], A.x.argsort(1)[:, ::-1]),
    "topk": (lambda v: layers.topk(v.x, 2)[0], -np.sort(-A.x)[:, :2]),
    "topk indices": (lambda v: layers.topk(v.x, 2)[1], (-A.x).argsort(1)[:, :2]),
    "softmax of a loss": (
        lambda v: layers.softmax_with_cross_entropy(v.x, v.label, return_softmax=True)[1],
        softmax(A.x),
    ),
    "logits, ignored": (
        lambda v: layers.sigmoid_cross_entropy_with_logits(v.x, v.hits, ignore_index=0),
        -np.log(sigmoid(A.x)) * A.hits,
    ),
    "logits, normalized": (
        lambda v: layers.sigmoid_cross_entropy_with_logits(v.x, v.hits, ignore_index=0, normalize=True),
        -np.log(sigmoid(A.x)) * A.hits / A.hits.sum(),
    ),
    "logits, all ignored": (
        lambda v: layers.sigmoid_cross_entropy_with_logits(v.x, v.hits * 0, ignore_index=0, normalize=True),
        A.x * 0,
    ),
    "mse_loss": (lambda v: layers.mse_loss(v.x, v.y), [((A.x - A.y) ** 2).mean()]),
    **{
        f"kldiv_loss {kind}": (
            lambda v, kind=kind: layers.kldiv_loss(v.x, v.soft, kind), pooled(A.soft * (np.log(A.soft) - A.x)),
        )
        for kind, pooled in DIVERGENCES.items()
    },
    "rank_loss": (lambda v: layers.rank_loss(v.hits, v.x, v.y), np.log1p(np.exp(A.x - A.y)) - A.hits * (A.x - A.y)),
    "margin_rank_loss": (
        lambda v: layers.margin_rank_loss(layers.sign(v.z), v.z, layers.scale(v.z, 0.5), 0.3),
        (0.3 - np.sign(A.z) * A.z / 2).clip(0),
    ),
    "label_smooth": (lambda v: layers.label_smooth(v.soft, epsilon=0.3), 0.7 * A.soft + 0.1),
    "label_smooth prior": (
        lambda v: layers.label_smooth(v.soft, layers.reduce_mean(v.soft, 0, True), 0.5),
        0.5 * A.soft + 0.5 * A.soft.mean(0),
    ),
    "l2_normalize": (lambda v: layers.l2_normalize(v.cube, 1), A.cube / np.linalg.norm(A.cube, axis=1, keepdims=True)),
    "unstack": (lambda v: layers.unstack(v.cube, 1)[1], A.cube[:, 1]),
    "reverse": (lambda v: layers.reverse(v.cube, [1, 2]), A.cube[:, ::-1, ::-1]),
    "pad": (
        lambda v: layers.pad(v.cube, [0, 0, 1, 2, 3, 0], 7.0),
        np.pad(A.cube, [(0, 0), (1, 2), (3, 0)], constant_values=7),
    ),
    "cumsum": (lambda v: layers.cumsum(v.x), A.x.cumsum(1)),
    "cumsum of others": (lambda v: layers.cumsum(v.cube, 1, True, True), A.cube[:, ::-1].cumsum(1)[:, ::-1] - A.cube),
    "expand_as": (lambda v: layers.expand_as(v.column, v.cube), np.tile(A.column, (1, 1, 3))),
    "reshape act": (lambda v: layers.reshape(v.x, [-1, 3, 1], act="relu"), A.x.clip(0)[..., None]),
    "matmul of 4 axes": (
        lambda v: layers.matmul(layers.unsqueeze(v.cube, [1]), layers.unsqueeze(v.cube, [1]), transpose_y=True),
        (A.cube @ A.cube.swapaxes(1, 2))[:, None],
    ),
    "log_loss": (
        lambda v: layers.log_loss(v.soft, v.hits, 1e-3),
        -A.hits * np.log(A.soft + 1e-3) - (1 - A.hits) * np.log(1 - A.soft + 1e-3),
    ),
    "huber_loss": (lambda v: layers.huber_loss(v.x, v.y, 0.7), huber(A.x - A.y, 0.7)),
    "smooth_l1": (lambda v: layers.smooth_l1(v.x, v.y), huber(A.x - A.y, 1.0).sum(1, keepdims=True)),
    "bpr_loss": (lambda v: layers.bpr_loss(v.x, v.label), pairwise(A.x, A.label)),
    "cos_sim": (
        lambda v: layers.cos_sim(v.x, v.y),
        (A.x * A.y).sum(1, keepdims=True) / np.sqrt((A.x**2).sum(1) * (A.y**2).sum(1))[:, None],
    ),
    **{
        f"accuracy of {k}": (
            lambda v, k=k: layers.accuracy(v.x, v.label, k),
            [((A.x > np.take_along_axis(A.x, A.label, 1)).sum(1) < k).mean()],
        )
        for k in (1, 2, 3)
    },
}  # fmt: skip


@pytest.mark.parametrize("case", CASES)
def test_values(case):
    build, expected = CASES[case]
    inputs = {
        name: layers.data(name, [*array.shape[1:]], dtype=str(array.dtype)) for name, array in FEED.items()
    }
    variable = build(SimpleNamespace(**inputs))
    (found,) = run(FEED, [variable])
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert variable.shape == tuple(-1 if n == 4 else n for n in found.shape)
    assert variable.dtype == str(found.dtype)


def test_what_cannot_be_split_or_sliced_is_an_error():
    x, words = layers.data("x", [3]), text_inputs()[0]
    for call, error, text in (
        (lambda: layers.split(x, 2), ShapeError, "split: num_or_sections is 2 for axis -1 of 'x'"),
        (lambda: layers.split(x, [1, 1]), ShapeError, r"num_or_sections is \[1, 1\]"),
        (lambda: layers.slice(x, [1], [0], []), ArgumentError, "have 1, 1 and 0 items"),
        (lambda: layers.unsqueeze(x, []), ArgumentError, "axes is empty"),
        (lambda: layers.flatten(x, 3), ShapeError, "flatten: axis is 3 for 'x'"),
        (lambda: layers.transpose(words, [1, 0]), ArgumentError, "transpose: 'words' holds sequences"),
        (lambda: layers.smooth_l1(x, x, x), ArgumentError, "weights are not supported"),
    ):
        with pytest.raises(error, match=text):
            call()


def weights(name):
    return torch.tensor(values(name)[0])


@pytest.mark.parametrize(
    ("size", "more"),
    [
        (np.int64(3), {}),
        ([3, 2], {"stride": [2, 1], "padding": [1, 0], "act": "relu"}),
        (2, {"groups": 2, "dilation": 2, "bias_attr": False}),
    ],
)
def test_convolutions(size, more):
    image, x = layers.data("image", [4, 7, 6]), numbers(2, 4, 7, 6)
    out = layers.conv2d(image, 6, size, **more)
    (found,) = run({"image": x}, [out])
    options = {key: more[key] for key in ("stride", "padding", "dilation", "groups") if key in more}
    bias = None if "bias_attr" in more else weights("conv2d_0_bias")
    expected = torch.conv2d(torch.tensor(x), weights("conv2d_0_weight"), bias, **options)
    np.testing.assert_allclose(found, expected.relu() if "act" in more else expected, rtol=1e-4, atol=1e-5)
    assert out.shape == (-1, *expected.shape[1:])


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        ({"pool_size": 2, "pool_stride": 2}, lambda x: F.max_pool2d(x, 2)),
        ({"pool_size": [3, 2], "pool_type": "avg"}, lambda x: F.avg_pool2d(x, (3, 2), 1)),
        (
            {"pool_size": 3, "pool_type": "avg", "pool_stride": 2, "pool_padding": 1, "exclusive": False},
            lambda x: F.avg_pool2d(x, 3, 2, 1),
        ),
        (
            {"pool_size": 3, "pool_type": "avg", "pool_stride": 2, "pool_padding": 1},
            lambda x: F.avg_pool2d(x, 3, 2, 1, count_include_pad=False),
        ),
        ({"pool_size": 2, "pool_stride": 2, "ceil_mode": True}, lambda x: F.max_pool2d(x, 2, ceil_mode=True)),
        (
            {"pool_size": 2, "pool_type": "avg", "pool_stride": 2, "ceil_mode": True, "exclusive": False},
            lambda x: F.avg_pool2d(F.pad(x, (0, 1, 0, 1)), 2),
        ),
        ({"global_pooling": True, "pool_type": "avg"}, lambda x: x.mean((2, 3), keepdim=True)),
    ],
)
def test_pooling(given, expected):
    x = numbers(2, 3, 7, 5)
    (found,) = run({"image": x}, [layers.pool2d(layers.data("image", [3, 7, 5]), **given)])
    np.testing.assert_allclose(found, expected(torch.tensor(x)), rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("axis", [1, 2])
@pytest.mark.parametrize("plain", [False, True])
def test_layer_norm(axis, plain):
    cube = layers.data("cube", [2, 3])
    start = {"param_attr": fluid.ParamAttr(initializer=fluid.initializer.Constant(3.0))}
    given = {"scale": False, "shift": False} if plain else start
    (found,) = run({"cube": A.cube}, [layers.layer_norm(cube, begin_norm_axis=axis, **given)])
    normal = F.layer_norm(torch.tensor(A.cube), A.cube.shape[axis:])
    np.testing.assert_allclose(found, normal if plain else 3 * normal, rtol=1e-4, atol=1e-5)


def test_a_network_of_images_trains():
    image, label = layers.data("image", [1, 8, 8]), layers.data("label", [1], dtype="int64")
    part = layers.pool2d(layers.conv2d(image, 4, 3, act="relu"), 2, pool_stride=2)
    prediction = layers.fc(layers.layer_norm(part), 2, act="softmax")
    loss = layers.mean(layers.cross_entropy(prediction, label))
    fluid.optimizer.Adam(0.01).minimize(loss)
    y = np.arange(32)[:, None] % 2
    x = numbers(32, 1, 8, 8) + y[..., None, None] * np.linspace(-1, 1, 8)
    executor = fluid.Executor()
    executor.run(fluid.default_startup_program())
    feed = {"image": x.astype("float32"), "label": y}
    losses = [executor.run(feed=feed, fetch_list=[loss])[0][0] for _ in range(60)]
    assert losses[-1] < 0.2 < 0.5 < losses[0]


@pytest.mark.parametrize(("axis", "shape"), [(1, (-1, 5)), (2, (-1, 2, 5)), (3, (-1, 2, 3, 5))])
def test_fc_counts_features_from_an_axis_on(axis, shape):
    out = layers.fc(layers.data("x", [2, 3, 4]), 5, num_flatten_dims=axis, bias_attr=False)
    given = numbers(6, 2, 3, 4)
    (found,) = run({"x": given}, [out])
    expected = given.reshape(*given.shape[:axis], -1) @ values("fc_0_weight")[0].T
    np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-5)
    assert (out.shape, out.program.var("fc_0") is out) == (shape, True)


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
    fluid.optimizer.SGD(1.0).minimize(layers.mean(pooled) + layers.mean(one))
    feed = {"words": RAGGED, "label": [[3], [5], [8]]}
    _, rows, *gradients = run(feed, [pooled, one, "embedding_0_weight@GRAD", "embedding_1_weight@GRAD"])
    assert [rows[0].any(), rows[1].any()] == [False, True]
    assert [gradient[3].any() for gradient in gradients] == [False, False]
    assert gradients[0][1].any()


def test_tables_several_axes_deep():
    out = layers.embedding(layers.data("ids", [3, 1], dtype="int64"), [9, 4])
    given = np.arange(6).reshape(2, 3, 1)
    (found,) = run({"ids": given}, [out])
    np.testing.assert_array_equal(found, values("embedding_0_weight")[0][given[..., 0]])
    assert out.shape == (-1, 3, 4)


@pytest.mark.parametrize(
    ("how", "kept", "predicted"),
    [({}, 1.0, 0.75), ({"dropout_implementation": "upscale_in_train"}, 1 / 0.75, 1.0)],
)
def test_dropout_is_for_training_programs(how, kept, predicted):
    out = layers.dropout(layers.data("x", [400]), 0.25, **how)
    still, given = fluid.default_main_program().clone(for_test=True), np.ones((2, 400), "float32")
    mx.random.seed(3)
    (found,) = run({"x": given}, [out])
    np.testing.assert_allclose(np.unique(found), [0.0, kept], rtol=1e-6)
    assert 0.6 < (found > 0).mean() < 0.9
    (same,) = fluid.Executor().run(still, {"x": given}, [out.name])
    np.testing.assert_array_equal(same, np.float32(predicted) * given)
    assert still.var(out.name) is out


@pytest.mark.parametrize("kernel", [(2, 5), (3, 4)])
@pytest.mark.parametrize("stride", [1, 2])
@pytest.mark.parametrize(
    ("padding", "sides"),
    [
        ("SAME", None),
        ("valid", [0] * 4),
        ((1, 2, 0, 3), [0, 3, 1, 2]),
        ([[0, 0], [0, 0], [2, 2], [0, 1]], [0, 1, 2, 2]),
    ],
)
def test_padding_of_convolutions_by_name_and_by_side(kernel, stride, padding, sides):
    image = layers.data("image", [2, 7, 6])
    out = layers.conv2d(image, 3, kernel, stride=stride, padding=padding, bias_attr=False)
    array = np.random.default_rng(0).normal(size=(2, 2, 7, 6)).astype("float32")
    (found,) = run({"image": array}, [out])
    if sides is None:
        whole = [max((-(-n // stride) - 1) * stride + k - n, 0) for n, k in zip((7, 6), kernel)]
        sides = [*(whole[1] // 2, whole[1] - whole[1] // 2), *(whole[0] // 2, whole[0] - whole[0] // 2)]
    padded = F.pad(torch.tensor(array), sides)
    expected = F.conv2d(padded, weights("conv2d_0_weight"), stride=stride)
    np.testing.assert_allclose(found, expected.numpy(), rtol=1e-4, atol=1e-5)
    assert out.shape[1:] == tuple(expected.shape[1:])


def test_pooling_with_padding_by_name():
    image = layers.data("image", [1, 6, 6])
    array = np.random.default_rng(0).normal(size=(2, 1, 6, 6)).astype("float32")
    cases = [layers.pool2d(image, 3, pool_padding="SAME"), layers.pool2d(image, 2, "avg", 2, "VALID")]
    same, valid = run({"image": array}, cases)
    np.testing.assert_allclose(same, F.max_pool2d(torch.tensor(array), 3, 1, 1).numpy())
    np.testing.assert_allclose(valid, F.avg_pool2d(torch.tensor(array), 2).numpy(), rtol=1e-5)
    with pytest.raises(ArgumentError, match="adds 0 rows above and 1 below, 0 columns left and 1 right"):
        layers.pool2d(image, 2, pool_padding="SAME")


def test_networks_for_batches_of_one_size():
    x = layers.data("x", [3])
    first, second = layers.slice(x, [0], [0], [4]), layers.slice(x, [0], [4], [8])
    whole = layers.fc(layers.reshape(first - second, [2, 6]), 1, bias_attr=False, param_attr="w")
    array = np.arange(24.0, dtype="float32").reshape(8, 3)
    (found,) = run({"x": array}, [whole])
    expected = (array[:4] - array[4:]).reshape(2, 6) @ weights("w").numpy().T
    np.testing.assert_allclose(found, expected, rtol=1e-5)
