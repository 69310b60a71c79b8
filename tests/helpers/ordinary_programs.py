"""Ordinary programs, drawn at random, each in a process that has imported torch and nothing of ours.

Run as ``python -m helpers.ordinary_programs FIRST LAST``: forks a child for every number, which draws a network of
usual layers and sizes, trains, scores, saves, loads and predicts with it. What a process decides once, such as which
kernels it takes, each child decides for itself with whatever comes first. Prints the failures.
"""

import contextlib
import gc
import io
import os
import random
import sys
import tempfile
import traceback

import numpy as np
import numpy.random  # NumPy imports these when they are asked for, and each child would do so
import numpy.testing
import torch

__all__ = ["run"]


class Draw:
    """What one program is made of.

    Args:
        seed: the same one draws the same program.
    """

    def __init__(self, seed):
        self.random = random.Random(seed)
        one = self.random.choice
        self.kind = one(("dense", "dense", "convolutional", "recurrent", "embedding", "sparse"))
        self.batch = one((1, 7, 32, 50, 128, 200))
        self.classes = one((2, 3, 10))
        self.act = one(("relu", "tanh", "sigmoid", "softrelu"))
        self.num_contexts = one((1, 1, 2))
        self.optimizer = one(("sgd", "sgd", "adam", "rmsprop", "adagrad"))
        self.threads = one((1, 1, 2))
        self.feed = one(("iterator", "iterator", "loader", "list"))
        self.first = one(("fit", "fit", "fit", "predict", "load"))
        self.count = self.batch * one((1, 2)) + one((0, 0, self.batch // 2))
        self.epochs = one((1, 1, 2))

    def __str__(self):
        return ", ".join(f"{name}={value}" for name, value in vars(self).items() if name != "random")


def dense(mx, draw):
    """Return layers of any usual width, and the shape of an example."""
    one, value = draw.random.choice, mx.sym.Variable("data")
    for i in range(one((1, 2, 2, 3))):
        value = mx.sym.FullyConnected(value, num_hidden=one((3, 16, 70, 128, 128, 512, 1024)), name=f"fc{i}")
        value = mx.sym.Activation(value, act_type=draw.act)
        if one(range(5)) == 0:
            value = mx.sym.Dropout(value, p=0.2)
    return value, (one((1, 2, 64, 70, 784)),)


def convolutional(mx, draw):
    one, value = draw.random.choice, mx.sym.Variable("data")
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
            value, size = (
                mx.sym.Pooling(value, kernel=(2, 2), stride=(2, 2), pool_type=one(("max", "avg"))),
                size // 2,
            )
    return mx.sym.Flatten(value), shape


def recurrent(mx, draw):
    one, value = draw.random.choice, mx.sym.Variable("data")
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


def embedding(mx, draw):
    one, value = draw.random.choice, mx.sym.Variable("data")
    draw.words = one((20, 3000))
    value = mx.sym.Embedding(value, input_dim=draw.words, output_dim=one((4, 64)), name="embed")
    return mx.sym.mean(value, axis=1), (one((1, 12)),)


def sparse(mx, draw):
    draw.feed, value = "iterator", mx.sym.Variable("data", stype="csr")
    if draw.random.random() < 0.3:
        value = mx.sym.dot(value, mx.sym.Variable("w_weight", stype="row_sparse", shape=(200, 8)))
    else:
        value = mx.sym.FullyConnected(value, num_hidden=draw.random.choice((4, 64)), name="fc")
    return mx.sym.Activation(value, act_type=draw.act), (200,)


KINDS = {each.__name__: each for each in (dense, convolutional, recurrent, embedding, sparse)}


def network(mx, draw):
    """Return a network and the data it reads: one class for each side of a line, or each range of words."""
    value, shape = KINDS[draw.kind](mx, draw)
    net = mx.sym.FullyConnected(value, num_hidden=draw.classes, name="scores")
    net = mx.sym.SoftmaxOutput(net, name="softmax")
    numbers = np.random.RandomState(draw.random.randrange(1000))
    if draw.kind == "embedding":
        x = numbers.randint(0, draw.words, (draw.count, *shape)).astype("f4")
        y = x[:, 0] * draw.classes // draw.words
    else:
        x = numbers.uniform(-1, 1, (draw.count, *shape)).astype("f4")
        if draw.kind == "sparse":
            x[numbers.uniform(size=x.shape) < 0.9] = 0
        y = x.reshape(draw.count, -1).sum(1).argsort().argsort() * draw.classes // draw.count
    return net, x, y.astype("f4")


def fed(mx, draw, x, y):
    """Return data in a form that `fit` takes."""
    if draw.kind == "sparse":
        x = mx.nd.sparse.csr_matrix(x)
    elif draw.feed == "loader":
        pairs = torch.utils.data.TensorDataset(torch.from_numpy(x), torch.from_numpy(y))
        return torch.utils.data.DataLoader(pairs, draw.batch)
    elif draw.feed == "list":
        cuts = range(0, len(x), draw.batch)
        return [(x[i : i + draw.batch], y[i : i + draw.batch]) for i in cuts]
    return mx.io.NDArrayIter(x, y, draw.batch)


def contexts(mx, draw):
    return [mx.cpu(i) for i in range(draw.num_contexts)]


INPUTS = ("data", "softmax_label")
RATES = {"sgd": 0.05, "adam": 0.002, "rmsprop": 0.002, "adagrad": 0.02}


def trained(mx, draw, net, x, y):
    """Return a module that has been trained."""
    module = mx.mod.Module(net, context=contexts(mx, draw))
    mx.random.seed(0)
    rule = {"optimizer": draw.optimizer, "optimizer_params": {"learning_rate": RATES[draw.optimizer]}}
    module.fit(fed(mx, draw, x, y), num_epoch=draw.epochs, initializer=mx.init.Xavier(), **rule)
    return module


def predicted(mx, draw, module, x):
    found = module.predict(fed(mx, draw, x, np.zeros(len(x), "f4")))
    assert found.shape == (len(x), draw.classes), found.shape
    found = found.asnumpy()
    assert np.isfinite(found).all()
    np.testing.assert_allclose(found.sum(1), 1, rtol=1e-4)
    return found


def program(mx, draw):
    """Do what a program does; raises where something is wrong."""
    net, x, y = network(mx, draw)
    with tempfile.TemporaryDirectory() as folder:
        prefix = os.path.join(folder, "net")
        if draw.first != "fit":  # a process that only predicts, of parameters that others have trained
            shape, numbers = (draw.batch, *x.shape[1:]), np.random.RandomState(1)
            args, _, auxs = net.infer_shape(data=shape)
            values = dict(zip(net.list_arguments(), args, strict=True))
            values = {
                n: mx.nd.array(numbers.uniform(-0.3, 0.3, s)) for n, s in values.items() if n not in INPUTS
            }
            states = {n: mx.nd.ones(s) for n, s in zip(net.list_auxiliary_states(), auxs, strict=True)}
            mx.model.save_checkpoint(prefix, 0, net, values, states)
            module = mx.mod.Module.load(prefix, 0)
            module.bind([("data", shape)], for_training=False)
            predicted(mx, draw, module, x)
        module = trained(mx, draw, net, x, y)
        (_, value), *_ = module.score(fed(mx, draw, x, y), "ce")
        assert np.isfinite(value)
        before = predicted(mx, draw, module, x)
        module.save_checkpoint(prefix, 2, save_optimizer_states=True)
        again = mx.mod.Module.load(prefix, 2, load_optimizer_states=True, context=contexts(mx, draw))
        again.bind(module.data_shapes, for_training=False)
        np.testing.assert_array_equal(predicted(mx, draw, again, x), before)
        again.fit(fed(mx, draw, x, y), num_epoch=1, optimizer=draw.optimizer, force_rebind=True)
        predicted(mx, draw, again, x)
    # the plainest way to compute the same, in the same process
    with mx.executor.disabled(*(each.name for each in mx.executor.passes.PASSES)):
        plain = predicted(mx, draw, trained(mx, draw, net, x, y), x)
    np.testing.assert_allclose(before, plain, rtol=0.02, atol=0.01)


def run(seed):
    """Run one program in this process; returns what is wrong, nothing if all is well."""
    draw = Draw(seed)
    torch.set_num_threads(draw.threads)
    said = io.StringIO()
    try:
        with contextlib.redirect_stdout(said), contextlib.redirect_stderr(said):
            gc.disable()  # else the import counts what the parent has frozen
            import dpmodule as mx

            gc.enable()
            program(mx, draw)
    except BaseException:
        return f"program {seed} ({draw}):\n{traceback.format_exc(limit=-6)}"
    return ""


def in_a_child(seed):
    """Run one program in a process of its own; returns what is wrong."""
    reader, writer = os.pipe()
    pid = os.fork()
    if not pid:
        os.close(reader)
        with os.fdopen(writer, "w") as told:
            told.write(run(seed))
        os._exit(0)
    os.close(writer)
    with os.fdopen(reader) as told:
        text = told.read()
    _, status = os.waitpid(pid, 0)
    return text or (f"program {seed} ({Draw(seed)}): exit status {status}" if status else "")


if __name__ == "__main__":
    assert "dpmodule" not in sys.modules
    wrong = list(filter(None, map(in_a_child, range(int(sys.argv[1]), int(sys.argv[2])))))
    print(*wrong[:5], sep="\n")
    sys.exit(bool(wrong))
