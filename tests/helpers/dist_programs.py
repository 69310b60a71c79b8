"""Small trainings that one process, and two or three with parts of its batches, are to do alike."""

from contextlib import contextmanager
from unittest import mock

import numpy as np
import torch.distributed as dist

import dpmodule as mx
from dpmodule.executor import Executor

__all__ = [
    "OPTIMIZERS",
    "Lengths",
    "by_length",
    "data",
    "early_sums",
    "embedding",
    "mlp",
    "params",
    "part",
    "train",
]

OPTIMIZERS = {
    "sgd": ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3}),
    "adam": ("adam", {"learning_rate": 0.01}),
}


def mlp(dropout=0.0, norm=False):
    """Return a network of two layers."""
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="one")
    net = mx.sym.BatchNorm(net, name="norm") if norm else net
    net = mx.sym.Activation(net, act_type="tanh")
    net = mx.sym.Dropout(net, p=dropout) if dropout else net
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="two"), name="softmax")


def embedding():
    """Return a network with a table of words whose gradient is row-sparse."""
    table = mx.sym.Variable("table_weight", stype="row_sparse")
    net = mx.sym.contrib.SparseEmbedding(
        mx.sym.Variable("data"), table, input_dim=40, output_dim=6, name="table"
    )
    net = mx.sym.FullyConnected(mx.sym.mean(net, axis=1), num_hidden=3, name="out")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def data(words=False, rows=48):
    """Return examples and labels."""
    random = np.random.RandomState(3)
    x = random.randint(0, 40, (rows, 4)) if words else random.randn(rows, 5)
    return x.astype(np.float32), random.randint(0, 3, rows).astype(np.float32)


def part(x, y, batch, rank, size):
    """Return what one of several processes reads, so that all of them together read whole batches of `batch`."""
    own = batch // size
    rows = [i for i in range(len(x)) if own * rank <= i % batch < own * (rank + 1)]
    return x[rows], y[rows], own


def params(module):
    """Return parameters and states as NumPy arrays."""
    return {name: array.asnumpy() for values in module.get_params() for name, array in values.items()}


def train(net, x, y, batch, kvstore, optimizer="sgd", epochs=2, context=None, **options):
    """Train a network on arrays in their order; return the module and what `fit` returned."""
    kind, arguments = OPTIMIZERS[optimizer]
    mx.random.seed(5)
    module = mx.mod.Module(net, context=context or mx.cpu())
    history = module.fit(
        mx.io.NDArrayIter(x, y, batch),
        kvstore=kvstore,
        optimizer=kind,
        optimizer_params=arguments,
        initializer=mx.init.Xavier(),
        num_epoch=epochs,
        **options,
    )
    return module, history


def by_length(length):
    """Return a network for rows of some length, as a `BucketingModule` asks for it."""
    table = mx.sym.Embedding(mx.sym.Variable("data"), input_dim=20, output_dim=6, name="table")
    net = mx.sym.FullyConnected(mx.sym.mean(table, axis=1), num_hidden=3, name="out")
    return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)


class Lengths(mx.io.DataIter):
    """Gives eight batches of two rows of words of 4, 6 or 8, in an order that the seed decides."""

    def __init__(self, seed):
        super().__init__(2)
        self.provide_data, self.provide_label = [("data", (2, 8))], [("softmax_label", (2,))]
        self.default_bucket_key = 8
        self._seed = seed
        self.reset()

    def reset(self):
        random = np.random.RandomState(self._seed)
        self._left = [random.randint(0, 20, (2, length)) for length in random.choice([4, 6, 8], 8)]

    def next(self):
        if not self._left:
            raise StopIteration
        words = self._left.pop()
        label = mx.nd.array(words[:, 0] % 3)
        return mx.io.DataBatch(
            [mx.nd.array(words)],
            [label],
            bucket_key=words.shape[1],
            provide_data=[("data", words.shape)],
            provide_label=[("softmax_label", (2,))],
        )


@contextmanager
def early_sums():
    """Yield a list of the sizes of what begins to be added up over processes while backward runs."""
    found, running = [], []
    backward, all_reduce = Executor.backward, dist.all_reduce

    def noted_backward(*given, **named):
        running.append(True)
        backward(*given, **named)
        running.pop()

    def noted_sum(flat, **named):
        if running:
            found.append(flat.numel())
        return all_reduce(flat, **named)

    with (
        mock.patch.object(Executor, "backward", noted_backward),
        mock.patch.object(dist, "all_reduce", noted_sum),
    ):
        yield found
