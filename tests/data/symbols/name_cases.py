"""Calls whose symbols are compared with MXNet's; run by `make_names.py` on MXNet and by the tests on this package."""

import numpy as np


def arithmetic(mx, a, b):
    return {
        "a + b": lambda: a() + b(),
        "a - b": lambda: a() - b(),
        "a * b": lambda: a() * b(),
        "a / b": lambda: a() / b(),
        "a % b": lambda: a() % b(),
        "a ** b": lambda: a() ** b(),
        "a + 1": lambda: a() + 1,
        "1 + a": lambda: 1 + a(),
        "a - 1.5": lambda: a() - 1.5,
        "1 - a": lambda: 1 - a(),
        "a * 2": lambda: a() * 2,
        "2 * a": lambda: 2 * a(),
        "a / 2": lambda: a() / 2,
        "2 / a": lambda: 2 / a(),
        "a % 2": lambda: a() % 2,
        "2 % a": lambda: 2 % a(),
        "a ** 2": lambda: a() ** 2,
        "2 ** a": lambda: 2 ** a(),
        "-a": lambda: -a(),
        "abs(a)": lambda: abs(a()),
        "a + float32": lambda: a() + np.float32(0.1),
        "float32 + a": lambda: np.float32(0.1) + a(),
        "a + int64": lambda: a() + np.int64(3),
        "float64 ** a": lambda: np.float64(2) ** a(),
        "a == b": lambda: a() == b(),
        "a != b": lambda: a() != b(),
        "a > b": lambda: a() > b(),
        "a >= b": lambda: a() >= b(),
        "a < b": lambda: a() < b(),
        "a <= b": lambda: a() <= b(),
        "a == 1": lambda: a() == 1,
        "a != 1": lambda: a() != 1,
        "a > 1": lambda: a() > 1,
        "a >= 1": lambda: a() >= 1,
        "a < 1": lambda: a() < 1,
        "a <= 1": lambda: a() <= 1,
        "1 > a": lambda: 1 > a(),
        "a + nan": lambda: a() + float("nan"),
        "a * inf": lambda: a() * float("inf"),
        "a * 1e-20": lambda: a() * 1e-20,
        "a + 'x'": lambda: a() + "x",
        "a + None": lambda: a() + None,
        "maximum(a, b)": lambda: mx.sym.maximum(a(), b()),
        "maximum(a, 2)": lambda: mx.sym.maximum(a(), 2),
        "maximum(2, a)": lambda: mx.sym.maximum(2, a()),
        "minimum(a, b)": lambda: mx.sym.minimum(a(), b()),
        "minimum(a, 2)": lambda: mx.sym.minimum(a(), 2),
        "power(a, b)": lambda: mx.sym.power(a(), b()),
        "power(a, 2)": lambda: mx.sym.power(a(), 2),
        "power(2, a)": lambda: mx.sym.power(2, a()),
        "hypot(a, b)": lambda: mx.sym.hypot(a(), b()),
        "hypot(a, 2)": lambda: mx.sym.hypot(a(), 2),
    }


def layers(mx, a, b, c):
    S = mx.sym
    return {
        "fc": lambda: S.FullyConnected(a(), num_hidden=3),
        "fc by position": lambda: S.FullyConnected(a(), b(), c(), 4),
        "fc named": lambda: S.FullyConnected(data=a(), weight=b(), num_hidden=3, name="q"),
        "fc no_bias": lambda: S.FullyConnected(a(), num_hidden=3, no_bias=True),
        "fc lr_mult": lambda: S.FullyConnected(a(), num_hidden=3, lr_mult=2.0),
        "fc attr": lambda: S.FullyConnected(a(), num_hidden=3, attr={"__foo__": "bar", "lr_mult": "3"}),
        "fc attr param": lambda: S.FullyConnected(a(), attr={"num_hidden": "3"}),
        "fc bare keyword": lambda: S.FullyConnected(a(), num_hidden=3, foo=2),
        "fc bare attr": lambda: S.FullyConnected(a(), num_hidden=3, attr={"foo": "bar"}),
        "fc free": lambda: S.FullyConnected(a(), num_hidden=3, __foo__=2),
        "fc None": lambda: S.FullyConnected(a(), num_hidden=3, name=None, attr=None),
        "fc no data": lambda: S.FullyConnected(num_hidden=3),
        "fc no num_hidden": lambda: S.FullyConnected(a()),
        "fc of a number": lambda: S.FullyConnected(3, num_hidden=2),
        "conv": lambda: S.Convolution(c(), kernel=(3, 3), num_filter=4),
        "conv NumPy": lambda: S.Convolution(
            c(), kernel=[3, 3], num_filter=np.int64(4), stride=(np.int64(1), 1)
        ),
        "bn": lambda: S.BatchNorm(a()),
        "bn three outputs": lambda: S.BatchNorm(a(), output_mean_var=True),
        "dropout": lambda: S.Dropout(a()),
        "activation": lambda: S.Activation(a(), act_type="relu"),
        "activation no data": lambda: S.Activation(act_type="relu", name="x"),
        "relu": lambda: S.relu(a()),
        "prelu": lambda: S.LeakyReLU(a(), act_type="prelu"),
        "prelu with gamma": lambda: S.LeakyReLU(a(), S.Variable("g"), act_type="prelu"),
        "pooling": lambda: S.Pooling(c(), kernel=(2, 2), pool_type="max"),
        "lrn": lambda: S.LRN(c(), nsize=3),
        "l2": lambda: S.L2Normalization(a()),
        "upsampling": lambda: S.UpSampling(c(), scale=2, sample_type="nearest"),
        "layer norm": lambda: S.LayerNorm(a()),
        "instance norm": lambda: S.InstanceNorm(a()),
        "embedding": lambda: S.Embedding(a(), input_dim=10, output_dim=4),
        "softmax output": lambda: S.SoftmaxOutput(a()),
        "softmax alias": lambda: S.Softmax(a(), name="softmax"),
        "softmax": lambda: S.softmax(a()),
        "log_softmax": lambda: S.log_softmax(a(), axis=-1),
        "cross entropy": lambda: S.softmax_cross_entropy(a(), b()),
        "linear regression": lambda: S.LinearRegressionOutput(a(), b()),
        "svm": lambda: S.SVMOutput(a()),
        "MakeLoss": lambda: S.MakeLoss(a()),
        "make_loss": lambda: S.make_loss(a()),
        "BlockGrad": lambda: S.BlockGrad(a()),
        "stop_gradient": lambda: S.stop_gradient(a()),
        "identity": lambda: S.identity(a()),
        "two": lambda: S.FullyConnected(S.FullyConnected(a(), num_hidden=2), num_hidden=3),
        "activation of two outputs": lambda: S.Activation(S.split(a(), num_outputs=2), act_type="relu"),
    }


def shapes(mx, a, b, c):
    S = mx.sym
    return {
        "Flatten": lambda: S.Flatten(a()),
        "flatten": lambda: S.flatten(a()),
        "Reshape": lambda: S.Reshape(a(), shape=(0, -1)),
        "reshape": lambda: S.reshape(a(), shape=(0, -1)),
        "a.reshape(tuple)": lambda: a().reshape((2, 3)),
        "a.reshape(shape=)": lambda: a().reshape(shape=(2, 3)),
        "a.reshape(reverse)": lambda: a().reshape((2, 3), reverse=True),
        "Concat": lambda: S.Concat(a(), b(), dim=1),
        "concat": lambda: S.concat(a(), b()),
        "concat num_args": lambda: S.Concat(*[a(), b()], num_args=2),
        "concat by name": lambda: S.Concat(arg0=a(), arg1=b()),
        "concat of one": lambda: S.Concat(a()),
        "concat of a number": lambda: S.Concat(a(), 3),
        "add_n": lambda: S.add_n(a(), b()),
        "ElementWiseSum": lambda: S.ElementWiseSum(a(), b(), name="q"),
        "stack": lambda: S.stack(a(), b()),
        "split": lambda: S.split(a(), num_outputs=2),
        "SliceChannel": lambda: S.SliceChannel(a(), num_outputs=2, name="s"),
        "SliceChannel into one": lambda: S.SliceChannel(a(), num_outputs=1, name="s"),
        "split_v2 sections": lambda: S.split_v2(a(), 2),
        "split_v2 into one": lambda: S.split_v2(a(), 1),
        "split_v2 indices": lambda: S.split_v2(a(), (1, 3), axis=1, squeeze_axis=False),
        "a.split": lambda: a().split(num_outputs=3, axis=0),
        "a.split_v2": lambda: a().split_v2(2),
        "cast": lambda: S.Cast(a(), dtype=np.float16),
        "a.astype(str)": lambda: a().astype("float64"),
        "a.astype(type)": lambda: a().astype(np.int32),
        "slice": lambda: S.slice(a(), begin=(0, None), end=(None, 2)),
        "slice_axis": lambda: S.slice_axis(a(), axis=0, begin=0, end=None),
        "expand_dims": lambda: S.expand_dims(a(), axis=1),
        "squeeze": lambda: S.squeeze(a()),
        "SwapAxis": lambda: S.SwapAxis(a(), dim1=0, dim2=1),
        "a.swapaxes": lambda: a().swapaxes(0, 1),
        "transpose": lambda: S.transpose(a(), axes=(1, 0)),
        "a.transpose()": lambda: a().transpose(),
        "a.transpose(axes)": lambda: a().transpose((1, 0)),
        "tile": lambda: S.tile(a(), reps=(2, 1)),
        "repeat": lambda: S.repeat(a(), repeats=2),
        "broadcast_to": lambda: S.broadcast_to(a(), shape=(2, 3)),
        "pad": lambda: S.Pad(c(), mode="constant", pad_width=(0, 0, 0, 0, 1, 1, 1, 1)),
        "where": lambda: S.where(a(), b(), b()),
        "one_hot": lambda: S.one_hot(a(), depth=3),
        "take": lambda: S.take(a(), b()),
        "pick": lambda: S.pick(a(), b()),
    }


def numbers(mx, a, b, c):
    S = mx.sym
    return {
        "zeros": lambda: S.zeros((2, 3)),
        "zeros of one axis": lambda: S.zeros(3),
        "zeros named": lambda: S.zeros((2, 3), name="zz"),
        "ones": lambda: S.ones((2, 3), dtype="float16"),
        "full": lambda: S.full((2,), 3),
        "arange": lambda: S.arange(3),
        "arange, all": lambda: S.arange(1, 10, 2, repeat=2, dtype="int32", name="ar"),
        "eye": lambda: S.eye(3),
        "sum": lambda: S.sum(a(), axis=1),
        "sum over two": lambda: S.sum(a(), axis=(0, 1), keepdims=True),
        "a.sum": lambda: a().sum(),
        "mean": lambda: S.mean(a()),
        "max": lambda: S.max(a()),
        "argmax": lambda: S.argmax(a(), axis=1),
        "topk": lambda: S.topk(a(), k=2, ret_typ="both"),
        "norm": lambda: S.norm(a()),
        "clip": lambda: S.clip(a(), a_min=-1, a_max=1),
        "clip by position": lambda: S.clip(a(), -1.0, 1.0),
        "dot": lambda: S.dot(a(), b(), transpose_b=True),
        "batch_dot": lambda: S.batch_dot(a(), b()),
        "broadcast_add": lambda: S.broadcast_add(a(), b()),
        "broadcast_plus": lambda: S.broadcast_plus(a(), b()),
        "elemwise_add": lambda: S.elemwise_add(a(), b()),
        "elemwise_add of one": lambda: S.elemwise_add(a()),
        "a.sqrt": lambda: a().sqrt(),
        "sigmoid": lambda: S.sigmoid(a()),
        "random.uniform": lambda: S.random.uniform(0, 1, shape=(2, 3)),
        "random.normal": lambda: S.random.normal(0, 1, (2, 3), "float64"),
        "random.uniform of symbols": lambda: S.random.uniform(a(), b(), shape=(2,)),
        "random.normal of symbols": lambda: S.random.normal(a(), b()),
        "random.uniform of both": lambda: S.random.uniform(a(), 1),
        "random.poisson": lambda: S.random.poisson(3, shape=(2,)),
        "random.exponential": lambda: S.random.exponential(2),
        "random.gamma": lambda: S.random.gamma(1, 2, shape=2),
        "random.negative_binomial": lambda: S.random.negative_binomial(a(), b()),
        "random.generalized": lambda: S.random.generalized_negative_binomial(1, 2),
        "random.randint": lambda: S.random.randint(0, 3, (4,)),
        "random.multinomial": lambda: S.random.multinomial(a()),
        "random.shuffle": lambda: S.random.shuffle(a()),
        "random_uniform": lambda: S.random_uniform(low=0, high=1, shape=(2, 3)),
        "uniform": lambda: S.uniform(shape=(2,)),
    }


def variables(mx, a, b, c):
    S = mx.sym
    return {
        "variable": lambda: S.Variable(
            "x", shape=(0, 3), lr_mult=2, wd_mult=0.5, dtype="float16", init="zeros", stype="default", __foo__=3
        ),
        "variable attr": lambda: S.Variable("x", attr={"lr_mult": "3", "foo": "bar"}),
        "variable init": lambda: S.Variable("x", init=mx.init.Xavier()),
        "variable dtype": lambda: S.Variable("x", dtype=np.int32),
        "variable bare keyword": lambda: S.Variable("x", foo=3),
        "variable without name": lambda: S.Variable(3),
        "variable attr number": lambda: S.Variable("x", attr={"foo": 3}),
    }


def scoped(mx):
    with mx.AttrScope(ctx_group="dev1", __x__="1"):
        x = mx.sym.Variable("a", lr_mult=3)
        y = mx.sym.FullyConnected(x, num_hidden=2, attr={"__x__": "2"})
    return mx.sym.BatchNorm(y)


def scoped_bare(mx):
    with mx.AttrScope(foo="1"):
        return mx.sym.FullyConnected(mx.sym.Variable("a"), num_hidden=2)


def prefixed(mx):
    with mx.name.Prefix("p_"):
        x = mx.sym.Variable("a")
        y = mx.sym.FullyConnected(x, num_hidden=2)
        return mx.sym.FullyConnected(y, num_hidden=2, name="q")


def shared_states(mx):
    mean, var = mx.sym.Variable("m"), mx.sym.Variable("v")
    x = mx.sym.BatchNorm(mx.sym.Variable("a"), moving_mean=mean, moving_var=var, name="b1")
    return mx.sym.BatchNorm(x, moving_mean=mean, moving_var=var, name="b2")


def composed(mx):
    one = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=10, name="fc1")
    two = mx.sym.FullyConnected(mx.sym.Variable("data2"), num_hidden=5, name="fc2")
    return two(data2=one, name="composed")


def composing(mx, a, b, c):
    S = mx.sym
    return {
        "attribute scope": lambda: scoped(mx),
        "attribute scope, bare": lambda: scoped_bare(mx),
        "prefix": lambda: prefixed(mx),
        "shared states": lambda: shared_states(mx),
        "compose": lambda: composed(mx),
        "compose group": lambda: S.Group([a() * 2, b()])(a=S.Variable("z")),
        "compose unknown": lambda: (a() * 2)(zz=b()),
        "compose both ways": lambda: (a() + b())(a(), b=b()),
        "compose too many": lambda: (a() * 2)(a(), b()),
        "compose two outputs": lambda: (a() * 2)(a=S.split(b(), num_outputs=2)),
        "compose a number": lambda: (a() * 2)(a=3),
        "group": lambda: S.Group([S.Group([a(), b()]), a() + 1]),
        "group of a node": lambda: S.Group([S.split(a(), num_outputs=3)]),
        "internals": lambda: S.BatchNorm(a() + b(), name="bn").get_internals(),
        "children": lambda: S.BatchNorm(a() + b(), name="bn").get_children(),
        "children of a group": lambda: S.Group([S.relu(a()), b(), S.relu(b())]).get_children(),
    }


def cases(mx):
    """Return functions that make symbols, by name; some of them are refused."""

    def a():
        return mx.sym.Variable("a")

    def b():
        return mx.sym.Variable("b")

    def c():
        return mx.sym.Variable("c", shape=(2, 3, 4, 4))

    found = arithmetic(mx, a, b)
    for part in (layers, shapes, numbers, variables, composing):
        found.update(part(mx, a, b, c))
    return found


def described(mx, make):
    """Return what is compared of one case, None if it is refused."""
    import json

    with mx.name.NameManager():
        try:
            symbol = make()
        except Exception:
            return None
    graph = json.loads(symbol.tojson())
    return {
        "name": symbol.name,
        "repr": repr(symbol),
        "outputs": symbol.list_outputs(),
        "arguments": symbol.list_arguments(),
        "auxiliary": symbol.list_auxiliary_states(),
        "inputs": symbol.list_inputs(),
        "attr_dict": symbol.attr_dict(),
        "debug_str": symbol.debug_str(),
        **{key: graph[key] for key in ("nodes", "arg_nodes", "node_row_ptr", "heads")},
    }
