"""The 60 operators that MXNet programs use most, at sizes of real nets; plain data for all sides.

A case is (operator, inputs, attributes, gradients, torch): the public name under `mx.nd` and `mx.sym` (with the prefix
"_internal." if it has none), the shape and kind of each input, the attributes, the positions of the inputs that get a
gradient, and the bare torch call as an expression of the inputs x0, x1, ...
"""

from __future__ import annotations

from typing import Any

__all__ = ["CASES", "SMALL", "make_inputs"]

ROWS = (64, 4096)  # activations of a layer: 262,144 numbers
IMAGE = (32, 64, 28, 28)
F, I = "float", "index"  # noqa: E741


def _one(name: str, torch: str, shape: Any = ROWS, grads: Any = (0,), **attrs: Any) -> tuple[Any, ...]:
    return name, [(F, shape)], attrs, grads, torch


def _two(name: str, torch: str, other: Any = ROWS, grads: Any = (0, 1), **attrs: Any) -> tuple[Any, ...]:
    return name, [(F, ROWS), (F, other)], attrs, grads, torch


_CONV = {"kernel": (3, 3), "num_filter": 64, "pad": (1, 1)}
_POOL = {"kernel": (2, 2), "stride": (2, 2), "pool_type": "max"}
_LSTM_SIZE = 4 * 200 * (200 + 200 + 2)

CASES: list[tuple[Any, ...]] = [
    ("zeros", [], {"shape": ROWS}, (), "torch.zeros((64, 4096))"),
    ("ones", [], {"shape": ROWS}, (), "torch.ones((64, 4096))"),
    ("_internal._full", [], {"shape": ROWS, "value": 2.0}, (), "torch.full((64, 4096), 2.0)"),
    ("_internal._arange", [], {"start": 0, "stop": 4096}, (), "torch.arange(0.0, 4096)"),
    _one("identity", "x0.clone()"),
    ("random_uniform", [], {"shape": ROWS}, (), "torch.empty(64, 4096).uniform_(0, 1)"),
    ("random_normal", [], {"shape": ROWS}, (), "torch.empty(64, 4096).normal_(0, 1)"),
    (
        "FullyConnected",
        [(F, (64, 1024)), (F, (1024, 1024)), (F, (1024,))],
        {"num_hidden": 1024},
        (0, 1, 2),
        "F.linear(x0, x1, x2)",
    ),
    _one("Activation", "torch.relu(x0)", act_type="relu"),
    _two("elemwise_add", "x0 + x1"),
    _two("elemwise_sub", "x0 - x1"),
    _two("elemwise_mul", "x0 * x1"),
    _two("elemwise_div", "x0 / x1"),
    _one("_internal._mul_scalar", "x0 * 2.0", scalar=2.0),
    _one("_internal._plus_scalar", "x0 + 2.0", scalar=2.0),
    _one("_internal._minus_scalar", "x0 - 2.0", scalar=2.0),
    _one("_internal._rminus_scalar", "2.0 - x0", scalar=2.0),
    _one("_internal._div_scalar", "x0 / 2.0", scalar=2.0),
    _one("_internal._equal_scalar", "x0.eq(0.5).to(x0.dtype)", grads=(), scalar=0.5),
    _one("_internal._maximum_scalar", "x0.clamp(min=0.5)", scalar=0.5),
    _one("cast_storage", "x0.clone()", grads=(), stype="default"),
    _two("Concat", "torch.cat((x0, x1), 1)", dim=1),
    _two("broadcast_add", "x0 + x1", other=(1, 4096)),
    _two("broadcast_mul", "x0 * x1", other=(1, 4096)),
    _two("broadcast_sub", "x0 - x1", other=(1, 4096)),
    _two("broadcast_div", "x0 / x1", other=(1, 4096)),
    _one("sum", "x0.sum(1)", axis=1),
    _one("mean", "x0.mean(1)", axis=1),
    (
        "Convolution",
        [(F, IMAGE), (F, (64, 64, 3, 3)), (F, (64,))],
        _CONV,
        (0, 1, 2),
        "F.conv2d(x0, x1, x2, padding=1)",
    ),
    _one("SliceChannel", "tuple(p.contiguous() for p in x0.chunk(4, 1))", num_outputs=4),
    _one("slice_axis", "x0[:, 1024:2048].contiguous()", axis=1, begin=1024, end=2048),
    (
        "SoftmaxOutput",
        [(F, (64, 1000)), (I, (64,))],
        {},
        (0,),
        "torch.softmax(x0, 1)",
    ),
    _one("clip", "x0.clamp(0.25, 0.75)", a_min=0.25, a_max=0.75),
    _one("make_loss", "x0.clone()"),
    _one("transpose", "x0.t().contiguous()"),
    _one("Cast", "x0.double()", dtype="float64"),
    _one("Pooling", "F.max_pool2d(x0, 2, 2)", shape=IMAGE, **_POOL),
    _one("square", "x0.square()"),
    _one("sqrt", "x0.sqrt()"),
    _one("Reshape", "x0.reshape(128, 2048).clone()", shape_to=(128, 2048)),
    _one("expand_dims", "x0.unsqueeze(1).clone()", axis=1),
    _one("Dropout", "F.dropout(x0, 0.5)", p=0.5),
    (
        "LinearRegressionOutput",
        [(F, ROWS), (F, ROWS)],
        {},
        (0,),
        "x0.clone()",
    ),
    _one("log", "x0.log()"),
    _one("exp", "x0.exp()"),
    _one("abs", "x0.abs()"),
    _one("relu", "x0.relu()"),
    _one("zeros_like", "torch.zeros_like(x0)", grads=()),
    _one("ones_like", "torch.ones_like(x0)", grads=()),
    ("dot", [(F, (256, 512)), (F, (512, 256))], {}, (0, 1), "x0 @ x1"),
    _one("LeakyReLU", "F.leaky_relu(x0, 0.25)", act_type="leaky"),
    (
        "BatchNorm",
        [(F, IMAGE), (F, (64,)), (F, (64,)), (F, (64,)), (F, (64,))],
        {"fix_gamma": False},
        (0, 1, 2),
        "F.batch_norm(x0, x3, x4, x1, x2, True)",
    ),
    _one("argmax", "x0.argmax(1).float()", grads=(), axis=1),
    _one("BlockGrad", "x0.clone()", grads=()),
    _one("Flatten", "x0.flatten(1).clone()", shape=IMAGE),
    _one("SwapAxis", "x0.transpose(0, 1).contiguous()", dim1=0, dim2=1),
    (
        "where",
        [(I, ROWS), (F, ROWS), (F, ROWS)],
        {},
        (1, 2),
        "torch.where(x0 != 0, x1, x2)",
    ),
    (
        "Embedding",
        [(I, (64, 35)), (F, (10000, 200))],
        {"input_dim": 10000, "output_dim": 200},
        (1,),
        "F.embedding(x0.long(), x1)",
    ),
    (
        "RNN",
        [(F, (35, 32, 200)), (F, (_LSTM_SIZE,)), (F, (1, 32, 200)), (F, (1, 32, 200))],
        {"state_size": 200, "num_layers": 1, "mode": "lstm"},
        (0, 1),
        "",
    ),
    _one("softmax", "torch.softmax(x0, -1)", shape=(64, 1000)),
]
"""In the order of use; `shape_to` replaces `shape` if that is an attribute."""

SMALL: list[tuple[str, str]] = [
    ("nd.relu(x)", "torch.relu(x)"),
    ("nd.elemwise_add(x, x)", "torch.add(x, x)"),
    ("x + x", "x + x"),
    ('nd.Activation(x, act_type="relu")', "torch.relu(x)"),
    ("nd.sum(x, axis=1)", "torch.sum(x, 1)"),
    ("nd.transpose(x, axes=(1, 0))", "x.permute(1, 0).contiguous()"),
    ("nd.concat(x, x, dim=1)", "torch.cat((x, x), 1)"),
    ("nd.FullyConnected(x, w, b, num_hidden=2)", "F.linear(x, w, b)"),
    (
        "nd.Convolution(i, k, kernel=(1, 1), num_filter=1, no_bias=True)",
        "torch.conv2d(i, k)",
    ),
]
"""Calls on tiny arrays, which measure overhead, and the same in torch.

x, w: (2, 2); b: (2,); i: (1, 1, 2, 2); k: (1, 1, 1, 1).
"""


def make_inputs(inputs: list[tuple[str, Any]]) -> list[Any]:
    """Return NumPy arrays for a case: numbers in 0.1..1, or integers below 10."""
    import numpy as np

    random = np.random.RandomState(0)
    return [
        random.uniform(0.1, 1.0, shape).astype("f") if kind == F else random.randint(0, 10, shape).astype("f")
        for kind, shape in inputs
    ]
