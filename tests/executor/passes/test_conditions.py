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
from dpmodule.executor import passes
from helpers.switched import ALL_PASSES, assert_same

S = mx.sym
ACTIVATIONS = ("relu", "tanh", "sigmoid", "softrelu")


def dense(value, source, units=None, **attrs):
    return S.FullyConnected(value, num_hidden=units or source.choice((1, 3, 6)), **attrs)


def active(value, source):
    if source.random() < 0.3:
        return source.choice((S.relu, S.tanh, S.sigmoid))(value)
    return S.Activation(value, act_type=source.choice(ACTIVATIONS))


def perceptron(value, source):
    for _ in range(source.randint(1, 3)):
        value = active(dense(value, source, no_bias=source.random() < 0.3), source)
    return value


def recurrent(value, source):
    steps = source.choice((3, 4))
    kind = source.choice((mx.rnn.LSTMCell, mx.rnn.GRUCell, mx.rnn.RNNCell))
    numbers = source.random() < 0.5  # steps that are numbers
    value_of = dense(value, source, steps * (1 if numbers else 2))
    inputs = list(S.SliceChannel(value_of, num_outputs=steps, squeeze_axis=numbers))
    cell = kind(3, prefix="cell_")
    begin = [S.zeros_like(dense(value, source, 3))] * len(cell.state_info)  # of the data's type
    return cell.unroll(steps, inputs, begin_state=begin, merge_outputs=True)[0]


NORMS = (
    lambda value: S.BatchNorm(value, fix_gamma=False),
    lambda value: S.InstanceNorm(value),
    lambda value: S.GroupNorm(value, num_groups=2),
    *[lambda value: value] * 2,
)


def convolutional(value, source):
    value = S.Convolution(value, kernel=(3, 3), pad=(1, 1), num_filter=source.choice((2, 4)), no_bias=True)
    value = active(source.choice(NORMS)(value), source)
    if source.random() < 0.6:
        value = S.Pooling(value, kernel=(2, 2), stride=(2, 2), pool_type=source.choice(("max", "avg")))
    if source.random() < 0.5:
        value = S.broadcast_add(value, S.Convolution(value, kernel=(1, 1), num_filter=1))
    if source.random() < 0.4:  # few positions, many weights
        value = S.Pooling(value, global_pool=True, kernel=(1, 1))
        for _ in range(2):
            value = S.Convolution(value, kernel=(1, 1), num_filter=300)
    return value


def twice(value, source):
    with mx.AttrScope(force_mirroring="True"):
        value = active(value, source) * 0.5 + active(value, source)
    return value - S.tanh(value) * S.tanh(value)


BODIES = {"perceptron": perceptron, "recurrent": recurrent, "convolutional": convolutional, "twice": twice}


def network(source):
    """Return a network, the shapes that its data may have, and how many classes there are."""
    body = source.choice(sorted(BODIES))
    rows = source.choice((1, 2, 5))
    shapes = [(rows,), (rows, 4), (rows, 2, 3)]
    if body == "convolutional":
        shapes = [(rows, source.choice((1, 2)), 6, 6)]
    elif body == "recurrent":
        shapes = [(rows, 4), (rows,)]
    classes = 3
    if source.random() < 0.1:
        classes, shapes = 2100, [(600, 4)] if body == "perceptron" else shapes
    net = BODIES[body](S.Variable("data"), source)
    net = dense(net, source, classes, name="scores")
    if source.random() < 0.2:
        return S.MakeLoss(S.square(net), name="loss", grad_scale=0.1), shapes, 0
    return S.SoftmaxOutput(net, name="softmax"), shapes, classes


def laid_out(tensor, kind):
    """Return the same numbers with other strides."""
    if kind == "turned":
        axes = tuple(range(tensor.dim()))[::-1]
        return tensor.permute(axes).contiguous().permute(axes)
    if kind == "channels_last" and tensor.dim() == 4:
        return tensor.contiguous(memory_format=torch.channels_last)
    return torch.stack([tensor, tensor], -1).flatten(-2)[..., ::2] if kind == "gapped" else tensor


def as_stored(values, stype, dtype, layout):
    """Return the data of a batch."""
    if stype != "default":
        values = np.where(np.random.RandomState(1).uniform(size=values.shape) < 0.6, 0, values)
        return mx.nd.array(values, dtype=dtype).tostype(stype)
    if dtype == "bfloat16":
        return mx.nd.array(values, dtype="bfloat16")
    return mx.nd.from_dlpack(laid_out(torch.from_numpy(values), layout).to(getattr(torch, dtype)))


def conditions(source, shape):
    """Draw what a batch is like, and which gradients are wanted."""
    stypes = ["default"] * 3 + (["csr", "row_sparse"] if len(shape) == 2 else [])
    return {
        "stype": source.choice(stypes),
        "dtype": source.choice(("float32", "float32", "float64", "float16", "bfloat16")),
        "layout": source.choice(("plain", "turned", "gapped", "channels_last")),
        "fixed": source.choice(("", ".*weight", ".*bias", ".*[13]_.*", ".*conv.*", ".*")),
        "wants_data": source.random() < 0.3,
        "training": source.random() < 0.8,
    }


def results(net, shape, classes, drawn, off):
    """Return everything that a training step and a prediction leave, by name; or the type of the error."""
    numbers, training, dtype = np.random.RandomState(0), drawn["training"], drawn["dtype"]
    values = numbers.uniform(-1, 1, shape).astype("float32")
    batch = mx.io.DataBatch([as_stored(values, drawn["stype"], dtype, drawn["layout"])])
    labels = mx.io.DataDesc("softmax_label", (shape[0],), np.float32) if classes else None
    batch.label = [mx.nd.array(numbers.randint(0, classes, shape[0]))] if classes else None
    names = [name for name in net.list_arguments() if name not in ("data", "softmax_label")]
    fixed = [name for name in names if drawn["fixed"] and re.fullmatch(drawn["fixed"], name)]
    module = mx.mod.Module(net, label_names=labels and ["softmax_label"], fixed_param_names=fixed or None)
    wants, found = drawn["wants_data"] and drawn["stype"] != "csr", {}  # whose gradient is not stored as such
    with executor.disabled(*off):
        try:
            module.bind([mx.io.DataDesc("data", shape, dtype)], labels and [labels], training, wants)
            mx.random.seed(3)
            module.init_params(mx.init.Uniform(0.5))
            for turn in range(2):
                module.forward(batch, is_train=training)
                arrays = {f"output {i}": out for i, out in enumerate(module.get_outputs())}
                if training:
                    module.backward()
                    grads = zip(module.group.param_names, module.group.grad_arrays)
                    arrays |= {f"gradient of {n}": g[0] for n, g in grads if g and g[0] is not None}
                    arrays |= {"gradient of data": module.get_input_grads()[0]} if wants else {}
                found |= {f"{k}, {turn}": v.asnumpy().astype("float64") for k, v in arrays.items()}
            module.forward(batch, is_train=False)
            found["prediction"] = module.get_outputs()[0].asnumpy().astype("float64")
        except mx.base.MXNetError as error:
            return type(error), {}
        return found, dict(module.group.execs[0].program(True).low.fired)


TOLERANCE = {"float64": 1e-9, "float32": 2e-4, "float16": 3e-2, "bfloat16": 0.25}


def check(seed):
    """Compare one drawn network under drawn conditions with all passes and without some; return what has fired."""
    source = random.Random(seed)
    net, shapes, classes = network(source)
    shape = source.choice(shapes)
    drawn = conditions(source, shape)
    off = ALL_PASSES if source.random() < 0.5 else [source.choice(ALL_PASSES)]
    want, _ = results(net, shape, classes, drawn, off)
    got, fired = results(net, shape, classes, drawn, ())
    what = f"of net {seed}, {shape}, {drawn}"
    if isinstance(want, type) or isinstance(got, type):
        assert got is want, what
        return fired
    assert_same(got, want, TOLERANCE[drawn["dtype"]], what)
    return fired


OTHERS = {"fused_convolutions", "dead_steps", "mirror", "pooled_lookups"}  # the last is for ragged data


@pytest.mark.timeout(3000)
@pytest.mark.parametrize("seeds", [range(200), pytest.param(range(200, 5000), marks=pytest.mark.slow)])
def test_conditions_of_passes(seeds):
    fired, failures = set(), []
    for seed in seeds:
        try:
            fired |= set(check(seed))
        except Exception as error:
            failures.append(f"{seed}: {type(error).__name__}: {str(error)[:600]}")
    assert not failures, "\n".join(failures)
    assert fired >= set(ALL_PASSES) - OTHERS


@pytest.mark.parametrize("each", passes.PASSES, ids=lambda each: each.name)
def test_every_pass_says_what_it_needs(each):
    needs = re.findall(r"^    (storage|rank|type|layout|gradients): \w", each.module.__doc__, re.MULTILINE)
    assert needs == ["storage", "rank", "type", "layout", "gradients"]
