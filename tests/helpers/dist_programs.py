"""Small trainings that one process, and two or three with parts of its batches, do in the same way."""

from contextlib import contextmanager
from unittest import mock

import numpy as np
import pytest
import torch.distributed as dist

import dpmodule as mx
from dpmodule.executor import Executor

SGD = ("sgd", {"learning_rate": 0.1, "momentum": 0.9, "wd": 1e-3})
ADAM = ("adam", {"learning_rate": 0.01})


def create(kind="dist_sync", **options):
    return mx.kv.create(kind, **{"timeout_s": 30, **options})


def classified(net):
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="two"), name="softmax")


def mlp(dropout=0.0, norm=False):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=8, name="one")
    net = mx.sym.BatchNorm(net, name="norm") if norm else net
    net = mx.sym.Activation(net, act_type="tanh")
    return classified(mx.sym.Dropout(net, p=dropout) if dropout else net)


def embedding():
    """Return a network with a table of words whose gradient is row-sparse."""
    weight = mx.sym.Variable("table_weight", stype="row_sparse")
    size = {"input_dim": 40, "output_dim": 6, "name": "table"}
    table = mx.sym.contrib.SparseEmbedding(mx.sym.Variable("data"), weight, **size)
    return classified(mx.sym.mean(table, axis=1))


def data(words=False, rows=48):
    random = np.random.RandomState(3)
    x = random.randint(0, 40, (rows, 4)) if words else random.randn(rows, 5)
    return x.astype(np.float32), random.randint(0, 3, rows).astype(np.float32)


def params(module):
    """Return parameters and states as NumPy arrays."""
    return {name: array.asnumpy() for values in module.get_params() for name, array in values.items()}


def train(
    net, x, y, batch, kvstore, optimizer=SGD, epochs=2, context=None, amp=None, shard_rows=True, **options
):
    """Train a network on arrays in their order; return the module and what `fit` returned."""
    mx.random.seed(5)
    module = mx.mod.Module(net, context=context or mx.cpu(), amp=amp, shard_rows=shard_rows)
    options = {"optimizer": optimizer[0], "optimizer_params": optimizer[1], **options}
    options.setdefault("initializer", mx.init.Xavier())
    return module, module.fit(mx.io.NDArrayIter(x, y, batch), kvstore=kvstore, num_epoch=epochs, **options)


def expect(error, text, call):
    """Call a function, which has to raise an error with this text."""
    with pytest.raises(error) as caught:
        call()
    assert text in str(caught.value), caught.value
    return str(caught.value)


@contextmanager
def early_sums():
    """Yield a list of the sizes of the sums over processes that begin while backward runs."""
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

    patch = mock.patch.object
    with patch(Executor, "backward", noted_backward), patch(dist, "all_reduce", noted_sum):
        yield found
