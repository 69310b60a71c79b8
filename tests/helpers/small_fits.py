"""Small networks and data that `fit` learns in a moment."""

import numpy as np

import dpmodule as mx

__all__ = ["blobs", "classifier", "parameters", "trained"]


def blobs(count=96, seed=3, batch_size=8, shuffle=False):
    """Return an iterator over points of three classes in the plane."""
    source = np.random.RandomState(seed)
    label = source.randint(0, 3, count)
    centres = np.array([[2.0, 0.0], [-1.0, 2.0], [-1.0, -2.0]])
    data = (centres[label] + source.standard_normal((count, 2))).astype("float32")
    return mx.io.NDArrayIter(data, label.astype("float32"), batch_size, shuffle)


def classifier(width=8, dropout=0.0):
    """Return a two-layer network for the points."""
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=width, name="hidden")
    net = mx.sym.Activation(net, act_type="tanh")
    if dropout:
        net = mx.sym.Dropout(net, p=dropout)
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=3, name="scores"), name="softmax")


def trained(batch_size=8, contexts=None, **options):
    """Return a module that has been fit to the points, and the history."""
    mx.random.seed(1)
    module = mx.mod.Module(classifier(), context=contexts or mx.cpu())
    known = {"num_epoch": 2, "optimizer_params": {"learning_rate": 0.2}, "initializer": mx.init.Xavier()}
    history = module.fit(blobs(batch_size=batch_size), **{**known, **options})
    return module, history


def parameters(module):
    """Return parameters and auxiliary states as NumPy arrays by name."""
    args, states = module.get_params()
    return {name: array.asnumpy() for name, array in {**args, **states}.items()}
