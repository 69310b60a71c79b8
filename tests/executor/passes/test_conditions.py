"""What a pass needs and does not get: networks in which it fires, with storage, rank, type, layout, gradients changed.

Results are those without the pass, or the error is.
"""

import random
import re

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import executor
from helpers.nets import NETS, Net
from helpers.switched import ALL_PASSES, assert_same

S = mx.sym
X = S.Variable("x")


def perceptron(*acts):
    net = X
    for act in acts:
        net = S.Activation(S.FullyConnected(net, num_hidden=3), act_type=act)
    return S.SoftmaxOutput(S.FullyConnected(net, num_hidden=3), S.Variable("label"))


def many_weights():
    net = S.Pooling(X, global_pool=True, kernel=(1, 1))
    for _ in range(2):
        net = S.Convolution(net, kernel=(1, 1), num_filter=300)
    return net


def attention(x=X):
    scores = S.linalg_gemm2(x, S.tanh(x), transpose_b=True) / 2
    return S.linalg_gemm2(S.softmax(S.broadcast_add(scores, S.mean(scores * 0, axis=0, keepdims=True))), x)


def mirrored():
    with mx.AttrScope(force_mirroring="True"):
        return S.tanh(S.sin(X)) * S.sin(X)


SCORES = S.SoftmaxOutput(S.FullyConnected(X, num_hidden=2100), S.Variable("label"))
MORE = {
    "one layer": Net(lambda: perceptron("relu"), {"x": (5, 4)}),
    "two layers": Net(lambda: perceptron("tanh", "relu"), {"x": (5, 4)}),
    "of numbers": Net(lambda: perceptron("relu", "sigmoid"), {"x": (5,)}),
    "many classes": Net(lambda: SCORES, {"x": (600, 4)}),
    "many weights": Net(many_weights, {"x": (2, 4, 6, 6)}),
    "gated": Net(lambda: S.hard_sigmoid(X, alpha=1 / 6) * X + S.sigmoid(X) * X, {"x": (3, 4)}),
    "attention": Net(attention, {"x": (2, 5, 4)}),
    "attention of heads": Net(lambda: attention(S.Reshape(X, shape=(0, 0, -4, 2, -1))), {"x": (2, 5, 8)}),
    "mirrored": Net(mirrored, {"x": (3, 4)}),
    "turned": Net(
        lambda: S.Deconvolution(
            S.Deconvolution(X, kernel=(3, 2), num_filter=17, stride=(2, 1)),
            kernel=(3, 3),
            stride=(2, 2),
            dilate=(1, 2),
            pad=(1, 0),
            adj=(1, 0),
            num_filter=2,
            no_bias=False,
        ),
        {"x": (2, 32, 4, 3)},
    ),
    "sequences": Net(
        lambda: S.relu(S.Convolution(X, kernel=(3,), stride=(2,), pad=(1,), num_filter=4)), {"x": (2, 3, 17)}
    ),
    "pooled": Net(lambda: S.Pooling(S.tanh(X * 2), kernel=(2, 2), stride=(2, 2)), {"x": (2, 3, 6, 6)}),
}
ALL = MORE | {k: net for k, net in NETS.items() if not (net.ragged or net.random or net.types or net.below)}


def laid_out(tensor, kind):
    """Return the same numbers with other strides."""
    if kind == "turned":
        axes = tuple(range(tensor.dim()))[::-1]
        return tensor.permute(axes).contiguous().permute(axes)
    if kind == "channels_last" and tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    return torch.stack([tensor, tensor], -1).flatten(-2)[..., ::2] if kind == "gapped" else tensor


def conditions(source, net):
    """Draw what a batch is like, and which gradients are wanted."""
    dense = ["default"] * 3 + (["csr", "row_sparse"] if len(net.shapes.get("x", ())) == 2 else [])
    return {
        "stype": source.choice(dense),
        "declared": source.random() < 0.5,
        "dtype": source.choice(("float32", "float32", "float64", "float16", "bfloat16")),
        "layout": source.choice(("plain", "turned", "gapped", "channels_last")),
        "fixed": source.choice(("^$", ".*weight", ".*bias", ".*[13]_.*", ".*conv.*", ".*")),
        "wants_data": source.random() < 0.3,
        "training": source.random() < 0.8,
    }


def results(net, drawn, off):
    """Return everything that two runs and a prediction leave, by name; or the type of the error."""
    with executor.disabled(*off):
        try:
            return ran(net, drawn)
        except mx.base.MXNetError as error:
            return type(error), {}


def ran(net, drawn):
    symbol = net.symbol()
    values, training = net.arrays(symbol), drawn["training"]
    labels = [name for name in values if name.endswith("label")]
    data = [name for name in net.shapes if name in values and name not in labels]
    wants = drawn["wants_data"] and drawn["stype"] != "csr"  # whose gradient is not stored as such
    stays = lambda k: not wants if k in data else re.fullmatch(drawn["fixed"], k)  # noqa: E731
    fixed = {k for k in values if k in labels or stays(k)}
    bound = symbol.simple_bind(
        mx.cpu(),
        {name: "null" if name in fixed else "write" for name in symbol.list_arguments()},
        dict.fromkeys(data, drawn["dtype"]),
        {"x": drawn["stype"]} if "x" in data and drawn["declared"] else None,
        **{name: values[name].shape for name in (*data, *labels, *net.params)},
    )
    for name, array in {**bound.arg_dict, **bound.aux_dict}.items():
        array[:] = values[name] * (values[name] > 0) if array.stype != "default" else values[name]
    dense = {k: bound.arg_dict[k] for k in data if bound.arg_dict[k].stype == "default"}
    lent = {k: laid_out(array.torch().clone(), drawn["layout"]) for k, array in dense.items()}
    if "x" in dense and drawn["stype"] != "default":
        lent["x"] = mx.nd.relu(dense["x"]).tostype(drawn["stype"]).raw
    found, numbers = {}, np.random.RandomState(0)
    for turn in range(2):
        bound.run(training, lent)
        arrays = {f"output {i}": out for i, out in enumerate(bound.outputs)}
        if training:
            bound.backward([mx.nd.array(numbers.rand(*o.shape), dtype=o.dtype) for o in bound.outputs])
            arrays |= {f"gradient of {k}": grad for k, grad in bound.grad_dict.items() if grad is not None}
        found |= {f"{k}, {turn}": v.asnumpy().astype("float64") for k, v in arrays.items()}
    found["prediction"] = bound.forward()[0].asnumpy().astype("float64")
    return found, dict(bound.program(True).low.fired)


TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 3e-2, "bfloat16": 0.25}


def check(seed):
    """Compare a network under drawn conditions with all passes and without some; return what has fired."""
    source = random.Random(seed)
    name = source.choice([*MORE] * 8 + [*ALL])
    drawn, some = conditions(source, ALL[name]), source.sample(ALL_PASSES, source.randint(1, 6))
    off = source.choice((ALL_PASSES, some))
    (want, _), (got, fired) = results(ALL[name], drawn, off), results(ALL[name], drawn, ())
    if isinstance(want, type) or isinstance(got, type):
        assert got is want, f"of {name}, {drawn}"
        return fired
    assert_same(got, want, TOLERANCE[drawn["dtype"]], f"of {name}, {drawn}")
    return fired


# only in prediction, on request, and for ragged data
OTHERS = {
    "dense_layers",
    "fused_convolutions",
    "recurrent_layers",
    "small_steps",
}
OTHERS |= {"rnn_weights", "dead_steps", "mirror", "pooled_lookups"}


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seeds", [range(300), pytest.param(range(300, 5000), marks=pytest.mark.slow)])
def test_conditions_of_passes(seeds):
    fired, failures = set(), []
    for seed in seeds:
        try:
            fired |= set(check(seed))
        except Exception as error:
            failures.append(f"{seed}: {type(error).__name__}: {str(error)[:600]}")
    assert not failures, "\n".join(failures)
    assert fired >= set(ALL_PASSES) - OTHERS
