"""An ordinary program, drawn at random; for processes that have imported torch and nothing of ours.

Run as ``python -m helpers.ordinary_programs NUMBER``: draws a network of usual layers and sizes, trains, scores, saves,
loads and predicts with it. What a process decides once, such as which kernels it takes, it decides for itself with
whatever comes first.
"""

import os
import random
import sys
import tempfile
from types import SimpleNamespace

import numpy as np
import torch

CHOICES = {
    "kind": ("dense", "dense", "convolutional", "recurrent", "sparse"), "batch": (1, 7, 32, 50, 128, 200),
    "classes": (2, 3, 10), "act": ("relu", "tanh", "sigmoid", "softrelu"), "num_contexts": (1, 1, 2),
    "optimizer": ("sgd", "sgd", "adam", "rmsprop", "adagrad"), "threads": (1, 1, 2),
    "feed": ("iterator", "iterator", "loader", "list"), "predicts_first": (False, False, True), "epochs": (1, 1, 2),
}  # fmt: skip
RATES = {"sgd": 0.05, "adam": 0.002, "rmsprop": 0.002, "adagrad": 0.02}


def dense(mx, draw, one, value):
    """Return layers of any usual width, and the shape of an example."""
    for i in range(one((1, 2, 2, 3))):
        value = mx.sym.FullyConnected(value, num_hidden=one((3, 16, 70, 128, 128, 512, 1024)), name=f"fc{i}")
        value = mx.sym.Activation(value, act_type=draw.act)
        if one(range(5)) == 0:
            value = mx.sym.Dropout(value, p=0.2)
    return value, (one((1, 2, 64, 70, 784)),)


def convolutional(mx, draw, one, value):
    size = one((8, 8, 13, 28))
    shape = (one((1, 3)), size, size)
    draw.batch, draw.count = min(draw.batch, 7), min(draw.count, 14)
    for i in range(one((1, 2, 3))):
        kernel, norm = one((1, 3, 5)), one(("BatchNorm", "InstanceNorm", None, None, None))
        options = {"kernel": (kernel,) * 2, "pad": (kernel // 2,) * 2, "num_filter": one((4, 16, 48))}
        value = mx.sym.Convolution(value, name=f"conv{i}", **options)
        if norm:
            value = getattr(mx.sym, norm)(value, name=f"norm{i}")
        value = mx.sym.Activation(value, act_type=draw.act)
        if size >= 4 and one((True, False)):
            value = mx.sym.Pooling(value, kernel=(2, 2), stride=(2, 2), pool_type=one(("max", "avg")))
            size //= 2
    return mx.sym.Flatten(value), shape


def recurrent(mx, draw, one, value):
    steps, units, features = one((3, 8, 20)), one((5, 16, 64)), one(((), (4,)))
    draw.batch, draw.count = min(draw.batch, 50), min(draw.count, 60)
    kind, stack = one((mx.rnn.LSTMCell, mx.rnn.GRUCell, mx.rnn.RNNCell)), mx.rnn.SequentialRNNCell()
    for i in range(one((1, 1, 2))):
        stack.add(kind(units, prefix=f"cell{i}_"))
    if not features:  # one number a step
        value = list(mx.sym.SliceChannel(value, num_outputs=steps, axis=1, squeeze_axis=True))
    outputs, _ = stack.unroll(steps, value, layout="NTC", merge_outputs=one((True, False)))
    last = outputs if isinstance(outputs, mx.sym.Symbol) and len(outputs) == 1 else list(outputs)[-1]
    return mx.sym.Flatten(last), (steps, *features)


def sparse(mx, draw, one, value):
    draw.feed, value = "iterator", mx.sym.Variable("data", stype="csr")
    if one((True, False, False)):
        value = mx.sym.dot(value, mx.sym.Variable("w_weight", stype="row_sparse", shape=(200, 8)))
    else:
        value = mx.sym.FullyConnected(value, num_hidden=one((4, 64)), name="fc")
    return mx.sym.Activation(value, act_type=draw.act), (200,)


def network(mx, draw, one):
    """Return a network and the data it reads: one class for each side of a line."""
    value, shape = globals()[draw.kind](mx, draw, one, mx.sym.Variable("data"))
    net = mx.sym.FullyConnected(value, num_hidden=draw.classes, name="scores")
    numbers = np.random.RandomState(one(range(1000)))
    x = numbers.uniform(-1, 1, (draw.count, *shape)).astype("f4")
    if draw.kind == "sparse":
        x[numbers.uniform(size=x.shape) < 0.9] = 0
    y = x.reshape(draw.count, -1).sum(1).argsort().argsort() * draw.classes // draw.count
    return mx.sym.SoftmaxOutput(net, name="softmax"), x, y.astype("f4")


def fed(mx, draw, x, y):
    """Return data in a form that `fit` takes."""
    if draw.feed == "loader":
        pairs = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        return torch.utils.data.DataLoader(pairs, draw.batch)
    if draw.feed == "list":
        return [(x[i : i + draw.batch], y[i : i + draw.batch]) for i in range(0, len(x), draw.batch)]
    return mx.io.NDArrayIter(mx.nd.sparse.csr_matrix(x) if draw.kind == "sparse" else x, y, draw.batch)


def trained(mx, draw, module, x, y):
    mx.random.seed(0)
    rule = {"optimizer": draw.optimizer, "optimizer_params": {"learning_rate": RATES[draw.optimizer]}}
    module.fit(fed(mx, draw, x, y), num_epoch=draw.epochs, initializer=mx.init.Xavier(), **rule)
    return module


def predicted(mx, draw, module, x):
    found = module.predict(fed(mx, draw, x, np.zeros(len(x), "f4"))).asnumpy()
    assert found.shape == (len(x), draw.classes), found.shape
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-4)
    return found


def program(mx, draw, one):
    """Do what a program does; raises where something is wrong."""
    net, x, y = network(mx, draw, one)
    with tempfile.TemporaryDirectory() as folder:
        prefix, contexts = os.path.join(folder, "net"), [mx.cpu(i) for i in range(draw.num_contexts)]
        if draw.predicts_first:  # a process that only predicts
            module = mx.mod.Module(net)
            module.bind([("data", (draw.batch, *x.shape[1:]))], for_training=False)
            module.init_params(mx.init.Uniform(0.3))
            predicted(mx, draw, module, x)
        module = trained(mx, draw, mx.mod.Module(net, context=contexts), x, y)
        (_, value), *_ = module.score(fed(mx, draw, x, y), "ce")
        assert np.isfinite(value)
        before = predicted(mx, draw, module, x)
        module.save_checkpoint(prefix, 2, save_optimizer_states=True)
        again = mx.mod.Module.load(prefix, 2, load_optimizer_states=True, context=contexts)
        again.bind(module.data_shapes, for_training=False)
        np.testing.assert_array_equal(predicted(mx, draw, again, x), before)
        again.fit(fed(mx, draw, x, y), num_epoch=1, optimizer=draw.optimizer, force_rebind=True)
        predicted(mx, draw, again, x)
    # the plainest way to compute the same, in the same process
    with mx.executor.disabled(*(each.name for each in mx.executor.passes.PASSES)):
        plain = predicted(mx, draw, trained(mx, draw, mx.mod.Module(net, context=contexts), x, y), x)
    np.testing.assert_allclose(before, plain, rtol=0.02, atol=0.01)


if __name__ == "__main__":
    one = random.Random(int(sys.argv[1])).choice
    draw = SimpleNamespace(**{name: one(choices) for name, choices in CHOICES.items()})
    draw.count = draw.batch * one((1, 2)) + one((0, 0, draw.batch // 2))
    print(draw)
    torch.set_num_threads(draw.threads)
    assert "dpmodule" not in sys.modules
    import dpmodule

    program(dpmodule, draw, one)
