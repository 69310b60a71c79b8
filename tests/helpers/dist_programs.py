"""Small trainings that one process, and two or three with parts of its batches, are to do alike."""

import numpy as np

import dpmodule as mx

__all__ = ["OPTIMIZERS", "data", "embedding", "mlp", "params", "part", "train"]

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
