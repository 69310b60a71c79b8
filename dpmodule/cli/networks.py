"""The networks that ``--network`` names: an MLP, a small LeNet and a small ResNet, for images from 4x4."""

from __future__ import annotations

from collections.abc import Callable

from .. import symbol as sym
from ..base import ShapeError
from ..symbol import Symbol

Sample = tuple[int, ...]
"""Shape of one sample, without the axis of the batch."""


def mlp(num_classes: int, sample: Sample | None = None, hidden: tuple[int, ...] = (128, 64)) -> Symbol:
    """Return a multilayer perceptron.

    Shape:
        data: (N, ...), every axis but the first taken as features.
        softmax_label: (N,)
        returns: (N, num_classes), probabilities.
    """
    net = sym.Flatten(_data(sample), name="flatten")
    for number, width in enumerate(hidden, 1):
        net = sym.FullyConnected(net, num_hidden=width, name=f"fc{number}")
        net = sym.Activation(net, act_type="relu", name=f"relu{number}")
    return _classifier(net, num_classes)


def lenet(
    num_classes: int, sample: Sample | None = None, filters: tuple[int, ...] = (16, 32), hidden: int = 64
) -> Symbol:
    """Return a network on LeNet's plan, with 3x3 filters so that 8x8 images are enough.

    Shape:
        data: (N, C, H, W), H and W from 4.
        softmax_label: (N,)
        returns: (N, num_classes), probabilities.

    Source: LeCun et al., "Gradient-based learning applied to document recognition", 1998.
    """
    net = _data(sample)
    for number, width in enumerate(filters, 1):
        net = sym.Convolution(net, kernel=(3, 3), pad=(1, 1), num_filter=width, name=f"conv{number}")
        net = sym.Activation(net, act_type="relu", name=f"relu{number}")
        net = sym.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name=f"pool{number}")
    net = sym.FullyConnected(sym.Flatten(net, name="flatten"), num_hidden=hidden, name="fc1")
    return _classifier(sym.Activation(net, act_type="relu", name="relu_fc1"), num_classes)


def resnet(
    num_classes: int, sample: Sample | None = None, widths: tuple[int, ...] = (16, 32), blocks: int = 1
) -> Symbol:
    """Return a residual network: per entry of `widths` a stage of `blocks` blocks, each at half the size.

    Shape:
        data: (N, C, H, W)
        softmax_label: (N,)
        returns: (N, num_classes), probabilities.

    Source: He et al., "Deep residual learning for image recognition", 2015 (the plan for CIFAR-10).
    """
    net = _convolution(_data(sample), widths[0], 1, "stem")
    net = sym.Activation(net, act_type="relu", name="stem_relu")
    for stage, width in enumerate(widths):
        for block in range(blocks):
            stride = 2 if stage and not block else 1
            net = _residual(net, width, stride, stride != 1, f"stage{stage + 1}_block{block + 1}")
    net = sym.Pooling(net, global_pool=True, kernel=(1, 1), pool_type="avg", name="pool")
    return _classifier(sym.Flatten(net, name="flatten"), num_classes)


NETWORKS: dict[str, Callable[[int, Sample | None], Symbol]] = {"mlp": mlp, "lenet": lenet, "resnet": resnet}


def build(name: str, sample: Sample, num_classes: int) -> Symbol:
    """Return the network `name` for samples of shape `sample`, which its file will tell."""
    if name != "mlp" and (len(sample) != 3 or min(sample[1:]) < 4):
        raise ShapeError(
            f"--network {name} takes images of shape (channels, height, width) from 4x4, "
            f"a sample is {sample}; give --shape, or use --network mlp"
        )
    return NETWORKS[name](num_classes, sample)


def label_names(net: Symbol) -> list[str]:
    """Return the arguments of a network that are labels, by MXNet's custom of naming them."""
    return [name for name in net.list_arguments() if name.endswith("label")]


def _data(sample: Sample | None) -> Symbol:
    """Return the input; its declared shape leaves the batch open and is only read where no other is given."""
    return sym.Variable("data") if sample is None else sym.Variable("data", shape=(0, *sample))


def _classifier(net: Symbol, num_classes: int) -> Symbol:
    net = sym.FullyConnected(net, num_hidden=num_classes, name="scores")
    net = sym.SoftmaxOutput(net, name="softmax")
    return net


def _convolution(net: Symbol, width: int, stride: int, name: str, size: int = 3) -> Symbol:
    net = sym.Convolution(
        net,
        kernel=(size, size),
        stride=(stride, stride),
        pad=(size // 2, size // 2),
        num_filter=width,
        no_bias=True,
        name=f"{name}_conv",
    )
    net = sym.BatchNorm(net, fix_gamma=False, momentum=0.9, name=f"{name}_bn")
    return net


def _residual(net: Symbol, width: int, stride: int, project: bool, name: str) -> Symbol:
    body: Symbol = _convolution(net, width, stride, f"{name}_a")
    body = sym.Activation(body, act_type="relu", name=f"{name}_a_relu")
    body = _convolution(body, width, 1, f"{name}_b")
    skip = _convolution(net, width, stride, f"{name}_skip", size=1) if project else net
    both = sym.elemwise_add(body, skip, name=f"{name}_sum")  # a name of its own: `+` would count them
    body = sym.Activation(both, act_type="relu", name=f"{name}_relu")
    return body
