"""Small networks and data for tests of training."""

import numpy as np

import dpmodule as mx

__all__ = ["blobs", "lenet", "mlp"]


def mlp(classes=4, hidden=16, dropout=0.0):
    """data -> FullyConnected -> tanh (-> Dropout) -> FullyConnected -> SoftmaxOutput."""
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=hidden, name="fc1")
    net = mx.sym.Activation(net, act_type="tanh", name="tanh1")
    if dropout:
        net = mx.sym.Dropout(net, p=dropout, name="drop1")
    net = mx.sym.FullyConnected(net, num_hidden=classes, name="fc2")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def lenet(classes=4):
    """Two convolutions with pooling, two dense layers, no BatchNorm."""
    net = mx.sym.Variable("data")
    for i, filters in enumerate((4, 6), 1):
        net = mx.sym.Convolution(net, kernel=(3, 3), num_filter=filters, name=f"conv{i}")
        net = mx.sym.Activation(net, act_type="relu", name=f"relu{i}")
        net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name=f"pool{i}")
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=16, name="fc1")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="tanh"), num_hidden=classes, name="fc2")
    return mx.sym.SoftmaxOutput(net, name="softmax")


def blobs(count=64, shape=(6,), classes=4, seed=0):
    """Points around `classes` centres: (data, label), both float32."""
    rng = np.random.RandomState(seed)
    centres = rng.randn(classes, *shape) * 2
    label = rng.randint(0, classes, count)
    return (centres[label] + rng.randn(count, *shape)).astype("f4"), label.astype("f4")
