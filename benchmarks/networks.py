"""The networks as symbols, for dpmodule and for MXNet alike: every function takes the package as `mx`.

This file also runs under Python 3.8, with MXNet 1.9.1.
"""

from __future__ import annotations

from typing import Any

__all__ = ["NETWORKS", "classifier", "lenet", "lstm", "mlp", "resnet18", "resnet20", "resnet50"]


def mlp(mx: Any, classes: int) -> Any:
    """Return 784-128-64-classes with ReLU."""
    net = mx.sym.Variable("data")
    for name, size in (("fc1", 128), ("fc2", 64)):
        net = mx.sym.FullyConnected(net, num_hidden=size, name=name)
        net = mx.sym.Activation(net, act_type="relu")
    return classifier(mx, net, "fc3", classes)


def lenet(mx: Any, classes: int) -> Any:
    """Return LeNet: two 5x5 convolutions of 20 and 50 filters, each with tanh and max pooling; 500 hidden units."""
    net = mx.sym.Variable("data")
    for name, size in (("conv1", 20), ("conv2", 50)):
        net = mx.sym.Convolution(net, kernel=(5, 5), num_filter=size, name=name)
        net = mx.sym.Activation(net, act_type="tanh")
        net = mx.sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max")
    net = mx.sym.FullyConnected(mx.sym.Flatten(net), num_hidden=500, name="fc1")
    return classifier(mx, mx.sym.Activation(net, act_type="tanh"), "fc2", classes)


def resnet20(mx: Any, classes: int) -> Any:
    """Return the residual network of 20 layers for 32x32 images."""
    net = _convolution(mx, mx.sym.Variable("data"), 16, 3, 1, "stem")
    return classifier(mx, _pooled(mx, _basic_units(mx, net, (16, 32, 64), 3)), "fc", classes)


def resnet18(mx: Any, classes: int) -> Any:
    """Return the residual network of 18 layers with the stem for large images."""
    net = _basic_units(mx, _large_stem(mx), (64, 128, 256, 512), 2)
    return classifier(mx, _pooled(mx, net), "fc", classes)


def resnet50(mx: Any, classes: int) -> Any:
    """Return the residual network of 50 layers for 224x224 images: 445 nodes with its variables."""
    net = _large_stem(mx)
    for stage, units in enumerate((3, 4, 6, 3)):
        size = 64 * 2**stage
        for number in range(units):
            stride, name = (2 if stage and not number else 1), f"s{stage}u{number}"
            inner = _convolution(mx, net, size, 1, stride, f"{name}_a")
            inner = _convolution(mx, inner, size, 3, 1, f"{name}_b")
            inner = _convolution(mx, inner, 4 * size, 1, 1, f"{name}_c", active=False)
            if not number:
                net = _convolution(mx, net, 4 * size, 1, stride, f"{name}_short", active=False)
            net = mx.sym.Activation(net + inner, act_type="relu")
    return classifier(mx, _pooled(mx, net), "fc", classes)


def lstm(mx: Any, classes: int) -> Any:
    """Return an LSTM of 16 units, unrolled over 35 steps cell by cell, that predicts a class at every step."""
    cell = mx.rnn.LSTMCell(16, prefix="lstm_l0_")
    net, _ = cell.unroll(35, inputs=mx.sym.Variable("data"), merge_outputs=True, layout="NTC")
    net = mx.sym.FullyConnected(mx.sym.Reshape(net, shape=(-1, 16)), num_hidden=classes, name="fc")
    label = mx.sym.Reshape(mx.sym.Variable("softmax_label"), shape=(-1,))
    return mx.sym.SoftmaxOutput(net, label, name="softmax")


def classifier(mx: Any, net: Any, name: str, classes: int) -> Any:
    """Return scores with the softmax loss on top."""
    return mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=classes, name=name), name="softmax")


def _basic_units(mx: Any, net: Any, sizes: tuple[int, ...], units: int) -> Any:
    """Return stages of residual units of two 3x3 convolutions; every stage but the first halves the image."""
    for stage, size in enumerate(sizes):
        for number in range(units):
            stride, name = (2 if stage and not number else 1), f"s{stage}u{number}"
            inner = _convolution(mx, net, size, 3, stride, f"{name}_a")
            inner = _convolution(mx, inner, size, 3, 1, f"{name}_b", active=False)
            if stride != 1:
                net = _convolution(mx, net, size, 1, stride, f"{name}_short", active=False)
            net = mx.sym.Activation(net + inner, act_type="relu")
    return net


def _large_stem(mx: Any) -> Any:
    net = _convolution(mx, mx.sym.Variable("data"), 64, 7, 2, "stem")
    return mx.sym.Pooling(net, kernel=(3, 3), stride=(2, 2), pad=(1, 1), pool_type="max")


def _convolution(
    mx: Any, net: Any, size: int, kernel: int, stride: int, name: str, active: bool = True
) -> Any:
    """Return a convolution without bias, normalised, and rectified if active."""
    net = mx.sym.Convolution(
        net,
        kernel=(kernel, kernel),
        stride=(stride, stride),
        pad=(kernel // 2, kernel // 2),
        num_filter=size,
        no_bias=True,
        name=name,
    )
    net = mx.sym.BatchNorm(net, fix_gamma=False, eps=1e-5, momentum=0.9, name=f"{name}_bn")
    return mx.sym.Activation(net, act_type="relu") if active else net


def _pooled(mx: Any, net: Any) -> Any:
    return mx.sym.Flatten(mx.sym.Pooling(net, global_pool=True, kernel=(1, 1), pool_type="avg"))


NETWORKS = {each.__name__: each for each in (mlp, lenet, resnet20, resnet18, resnet50, lstm)}
"""Networks by name; each takes the package and the number of classes."""
