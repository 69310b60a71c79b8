"""Small networks, data and modules for tests of training."""

import numpy as np
import pytest

import dpmodule as mx

from . import nets

TWO = [mx.cpu(0), mx.cpu(1)]
CONTEXTS = {"one": [mx.cpu(0)], "two": TWO}
SHAPES = [("data", (8, 6))], [("softmax_label", (8,))]
"""Of the batches that `ready` binds to."""
both_contexts = pytest.mark.parametrize("contexts", CONTEXTS.values(), ids=CONTEXTS)


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


def fixed(*values):
    """Return a metric of training whose values, epoch by epoch, are given."""
    metric = mx.metric.CustomMetric(lambda label, pred: 0.0, "fixed")
    left = iter(values)
    metric.get_global_name_value = lambda: [("fixed", next(left))]
    return metric


def chain():
    """Return a chain of two modules for the points."""
    data = mx.sym.Variable("data")
    low = mx.mod.Module(mx.sym.FullyConnected(data, num_hidden=4, name="a"), label_names=())
    top = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(data, num_hidden=3, name="b"), name="softmax")
    found = mx.mod.SequentialModule().add(low, auto_wiring=True)
    return found.add(mx.mod.Module(top), take_labels=True, auto_wiring=True)


def trained(batch_size=8, contexts=None, **options):
    """Return a module that has been fit to the points, and the history."""
    mx.random.seed(1)
    module = mx.mod.Module(classifier(), context=contexts or mx.cpu())
    known = {"num_epoch": 2, "optimizer_params": {"learning_rate": 0.2}, "initializer": mx.init.Xavier()}
    history = module.fit(blobs(batch_size=batch_size), **{**known, **options})
    return module, history


def ready(net=None, contexts=None, optimizer=None, shapes=SHAPES, init="xavier", **bind):
    """Return a module with parameters, bound to batches of eight; with an optimizer if its arguments are given."""
    module = net
    if not isinstance(net, mx.mod.BaseModule):
        names = [[each[0] for each in part] for part in shapes]
        names += [None] * (2 - len(names))
        module = mx.mod.Module(nets.mlp() if net is None else net, *names, context=contexts)
    module.bind(*shapes, **bind)
    given = () if init is None else (mx.init.create(init) if isinstance(init, str) else init,)
    module.init_params(*given)
    if optimizer is not None:
        module.init_optimizer(optimizer_params=optimizer)
    return module


def batch(count=8, seed=0, shape=(6,)):
    """Return a batch of `nets.blobs`."""
    data, label = nets.blobs(count, shape, seed=seed)
    return mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)])


def bucket_batch(key, data, label=None, **more):
    """Return a batch of a bucket, which describes itself."""
    given = [data] if label is None else [data, label]
    data, *label = [mx.nd.array(each) for each in given]
    more["provide_label"] = [mx.io.DataDesc("softmax_label", each.shape) for each in label] or None
    more["provide_data"] = [mx.io.DataDesc("data", data.shape)]
    return mx.io.DataBatch([data], label or None, bucket_key=key, **more)


def mean_of_bucket(length):
    """Return the network of a bucket that classifies the mean of its rows."""
    data = mx.sym.mean(mx.sym.Variable("data"), axis=1, keepdims=True)
    net = mx.sym.FullyConnected(data, num_hidden=2, name="f")
    return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)


def step(module, one):
    module.forward_backward(one)
    module.update()


def parameters(module):
    """Return parameters and auxiliary states as NumPy arrays by name."""
    args, states = module.get_params()
    return {name: array.asnumpy() for name, array in {**args, **states}.items()}


def same(one, other, tolerance=0.0):
    """Check that two modules have the same parameters, or two dicts the same arrays."""
    first, second = (each if isinstance(each, dict) else parameters(each) for each in (one, other))
    assert first.keys() == second.keys()
    for name in first:
        np.testing.assert_allclose(first[name], second[name], tolerance, tolerance, err_msg=name)
