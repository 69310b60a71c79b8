"""Built-in networks of ``fit --network`` and ``train-files --net``.

``fit`` has an MLP, a small LeNet and a small ResNet, for images from 4x4; the networks of ``train-files`` are built
over the slots of a feed.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from .. import symbol as sym
from ..base import ArgumentError, ShapeError, did_you_mean
from ..hogwild import DataFeedDesc
from ..name import NameManager
from ..symbol import Symbol

TABLE_ROWS = 100_000
"""Default number of rows of an embedding table."""

Sample = tuple[int, ...]
"""Shape of one sample, without the axis of the batch."""


def mlp(num_classes: int, sample: Sample | None = None, hidden: tuple[int, ...] = (128, 64)) -> Symbol:
    """Return a multilayer perceptron.

    Shape:
        data: (N, ...), where all axes but the first are features.
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
    """Return a network similar to LeNet, with 3x3 filters for images as small as 8x8.

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
    """Return a residual network with a stage of `blocks` blocks for each of `widths`; each stage halves the size.

    Shape:
        data: (N, C, H, W)
        softmax_label: (N,)
        returns: (N, num_classes), probabilities.

    Source: He et al., "Deep residual learning for image recognition", 2015 (for CIFAR-10).
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
    """Return the network `name` for samples of shape `sample`, which its file stores."""
    if name != "mlp" and (len(sample) != 3 or min(sample[1:]) < 4):
        raise ShapeError(
            f"--network {name} takes images of shape (channels, height, width) from 4x4, "
            f"but a sample has shape {sample}; set --shape, or use --network mlp"
        )
    return NETWORKS[name](num_classes, sample)


def label_names(net: Symbol) -> list[str]:
    """Return the arguments of a network whose names end in "label", as MXNet names labels."""
    return [name for name in net.list_arguments() if name.endswith("label")]


def _data(sample: Sample | None) -> Symbol:
    """Return the input variable; its declared shape has an open batch size."""
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
    both = sym.elemwise_add(body, skip, name=f"{name}_sum")  # explicit name: `+` would number them
    body = sym.Activation(both, act_type="relu", name=f"{name}_relu")
    return body


# over the slots of a feed


@dataclass(frozen=True)
class NetworkSizes:
    """Sizes of a network.

    Args:
        rows: rows of the tables of slots that are not in `rows_of`.
        hidden: units of the hidden layers.
        dropout: dropout rate of hidden layers.
        values: number of values per line for each float slot, by name.
    """

    rows: int
    rows_of: Mapping[str, int]
    width: int = 1
    hidden: Sequence[int] = ()
    dropout: float = 0.0
    classes: int = 2
    values: Mapping[str, int] = field(default_factory=dict)


@dataclass(frozen=True)
class FeedVariables:
    """Input variables from a feed.

    Args:
        floats: (N, values of a line) each.
        label: (N,) or (N, 1).
    """

    ids: Mapping[str, Symbol]
    floats: Sequence[Symbol]
    label: Symbol


@dataclass(frozen=True)
class NetworkKind:
    """A kind of network.

    Args:
        width: default width of embeddings; 0: it has none.
        hidden: default hidden layers; empty: it has none.
    """

    make: Callable[[FeedVariables, NetworkSizes], Symbol]
    width: int
    hidden: tuple[int, ...]
    is_binary: bool


def find_label(feed: DataFeedDesc, name: str | None) -> str:
    """Return the label slot.

    Args:
        name: its name; None: the only used slot whose name ends in "label".
    """
    names: list[str] = [slot.name for slot in feed.used_slots]
    if name is None:
        labels = [slot_name for slot_name in names if slot_name.endswith("label")]
        if len(labels) != 1:
            raise ArgumentError(
                f"which slot is the label? {len(labels)} of the used slots have a name that ends in 'label'; set "
                f"--label SLOT to one of {', '.join(names) or 'none: is_used is false'}"
            )
        return labels[0]
    if name not in names:
        raise ArgumentError(
            f"--label is {name!r}, expected one of the used slots: {', '.join(names) or 'none'}"
            f"{did_you_mean(name, names)}"
        )
    return name


def build_over_files(name: str, feed: DataFeedDesc, label: str, sizes: NetworkSizes) -> Symbol:
    """Return a network over all used slots of a feed.

    Shape:
        slots of type uint64: ragged, row indices of tables.
        slots of type float: (N, values of a line).
        label: (N,) or (N, 1)
        returns: (N, classes), probabilities, of `bow`; (N, 1), probabilities of class 1, of the others.
    """
    slots = [slot for slot in feed.used_slots if slot.name != label]
    if not slots:
        raise ArgumentError(f"no slot except the label {label!r} is used; set is_used: true for one or more")
    with NameManager():  # node names do not depend on earlier networks
        ids = {slot.name: sym.Variable(slot.name, stype="ragged") for slot in slots if slot.type == "uint64"}
        floats = [
            sym.Variable(slot.name, shape=(0, sizes.values[slot.name]))
            for slot in slots
            if slot.name not in ids
        ]
        return FILE_NETWORKS[name].make(FeedVariables(ids, floats, sym.Variable(label)), sizes)


def _bow(inputs: FeedVariables, sizes: NetworkSizes) -> Symbol:
    """Return a bag-of-words network: sums of embeddings of each slot, hidden layers, softmax."""
    pooled = [sym.Activation(each, act_type="tanh") for each in _pooled(inputs, "table", sizes.width, sizes)]
    net: Symbol = _hidden_layers(_concatenate([*pooled, *inputs.floats]), sizes, "tanh")
    net = sym.FullyConnected(net, num_hidden=sizes.classes, name="scores")
    net = sym.SoftmaxOutput(net, inputs.label, name="p")
    return net


def _logistic(inputs: FeedVariables, sizes: NetworkSizes) -> Symbol:
    """Return a logistic regression with one weight for each id."""
    return _probability(_with_bias(_linear(inputs, sizes)), inputs.label)


def _wide_deep(inputs: FeedVariables, sizes: NetworkSizes) -> Symbol:
    """Return the sum of a logistic regression and a perceptron over embeddings.

    Source: Cheng et al., "Wide & deep learning for recommender systems", 2016.
    """
    pooled = _pooled(inputs, "table", sizes.width, sizes)
    deep = _hidden_layers(_concatenate([*pooled, *inputs.floats]), sizes, "relu")
    deep = sym.FullyConnected(deep, num_hidden=1, name="deep")
    return _probability([*_linear(inputs, sizes), deep], inputs.label)


def _fm(inputs: FeedVariables, sizes: NetworkSizes) -> Symbol:
    """Return a factorization machine over all ids of a line; floats are in its linear part.

    Source: Rendle, "Factorization machines", 2010: 0.5 ((sum v)^2 - sum v^2) is the sum over all pairs.
    """
    parts = _with_bias(_linear(inputs, sizes))
    if inputs.ids:
        rows = _lookup(inputs, "table", sizes.width, sizes)
        total = _sum([sym.sequence_pool(each, pool_type="sum") for each in rows])
        squares = _sum([sym.sequence_pool(sym.square(each), pool_type="sum") for each in rows])
        parts.append(0.5 * sym.sum(sym.square(total) - squares, axis=1, keepdims=True))
    return _probability(parts, inputs.label)


FILE_NETWORKS: Mapping[str, NetworkKind] = {
    "bow": NetworkKind(_bow, 128, (128, 96), is_binary=False),
    "fm": NetworkKind(_fm, 8, (), is_binary=True),
    "logistic": NetworkKind(_logistic, 0, (), is_binary=True),
    "wide_deep": NetworkKind(_wide_deep, 16, (64, 32), is_binary=True),
}


def _lookup(inputs: FeedVariables, kind: str, width: int, sizes: NetworkSizes) -> list[Symbol]:
    """Return the embeddings of each id slot, from its own table."""
    return [
        sym.Embedding(
            data,
            input_dim=sizes.rows_of.get(name, sizes.rows),
            output_dim=width,
            sparse_grad=True,
            name=f"{name}_{kind}",
        )
        for name, data in inputs.ids.items()
    ]


def _pooled(inputs: FeedVariables, kind: str, width: int, sizes: NetworkSizes) -> list[Symbol]:
    return [sym.sequence_pool(rows, pool_type="sum") for rows in _lookup(inputs, kind, width, sizes)]


def _linear(inputs: FeedVariables, sizes: NetworkSizes) -> list[Symbol]:
    """Return the terms of a linear model, (N, 1) each."""
    parts = _pooled(inputs, "linear", 1, sizes)
    if inputs.floats:
        parts.append(
            sym.FullyConnected(_concatenate(inputs.floats), num_hidden=1, no_bias=True, name="linear")
        )
    return parts


def _hidden_layers(net: Symbol, sizes: NetworkSizes, activation: str) -> Symbol:
    for number, units in enumerate(sizes.hidden, 1):
        net = sym.FullyConnected(net, num_hidden=units, name=f"fc{number}")
        net = sym.Activation(net, act_type=activation, name=f"{activation}{number}")
        if sizes.dropout:
            net = sym.Dropout(net, p=sizes.dropout, name=f"dropout{number}")
    return net


def _with_bias(parts: Sequence[Symbol]) -> list[Symbol]:
    """Return terms and a bias: the bias of a layer over zeros, since a parameter has no batch axis."""
    return [*parts, sym.FullyConnected(0.0 * parts[0], num_hidden=1, name="intercept")]


def _probability(parts: Sequence[Symbol], label: Symbol) -> Symbol:
    """Return the probability of class 1 from the sum of terms."""
    net: Symbol = sym.LogisticRegressionOutput(_sum(parts), label, name="p")
    return net


def _concatenate(parts: Sequence[Symbol]) -> Symbol:
    return parts[0] if len(parts) == 1 else sym.Concat(*parts, dim=1, name="joined")


def _sum(parts: Sequence[Symbol]) -> Symbol:
    return parts[0] if len(parts) == 1 else sym.add_n(*parts)
