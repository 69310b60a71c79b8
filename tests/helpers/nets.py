"""Networks for tests: a few with a name of their own, and `NETS`, which the tests of equivalence run in every way."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from itertools import product
from typing import Any

import numpy as np

import dpmodule as mx
from helpers.random_graphs import random_graph
from helpers.random_nets import random_net

S = mx.sym


def mlp(classes=4, hidden=16, dropout=0.0):
    """data -> FullyConnected -> tanh (-> Dropout) -> FullyConnected -> SoftmaxOutput."""
    net = S.FullyConnected(S.Variable("data"), num_hidden=hidden, name="fc1")
    net = S.Activation(net, act_type="tanh", name="tanh1")
    if dropout:
        net = S.Dropout(net, p=dropout, name="drop1")
    net = S.FullyConnected(net, num_hidden=classes, name="fc2")
    return S.SoftmaxOutput(net, name="softmax")


def lenet(classes=4):
    """Two convolutions with pooling, two dense layers, no BatchNorm."""
    net = S.Variable("data")
    for i, filters in enumerate((4, 6), 1):
        net = S.Convolution(net, kernel=(3, 3), num_filter=filters, name=f"conv{i}")
        net = S.Activation(net, act_type="relu", name=f"relu{i}")
        net = S.Pooling(net, kernel=(2, 2), stride=(2, 2), pool_type="max", name=f"pool{i}")
    net = S.FullyConnected(S.Flatten(net), num_hidden=16, name="fc1")
    net = S.FullyConnected(S.Activation(net, act_type="tanh"), num_hidden=classes, name="fc2")
    return S.SoftmaxOutput(net, name="softmax")


def blobs(count=64, shape=(6,), classes=4, seed=0):
    """Points around `classes` centres: (data, label), both float32."""
    rng = np.random.RandomState(seed)
    centres = rng.randn(classes, *shape) * 2
    label = rng.randint(0, classes, count)
    return (centres[label] + rng.randn(count, *shape)).astype("f4"), label.astype("f4")


@dataclass(frozen=True)
class Net:
    """A network and its inputs.

    Attributes:
        build: makes the symbol; its outputs may be losses.
        shapes: of the inputs by name, the batch first; labels are inputs whose names end in "label".
        below: for inputs that are indices, the number of classes.
        types: dtypes of inputs that are not float32.
        ragged: inputs whose rows have different lengths.
        params: shapes of parameters that cannot be inferred.
        rows: True if every row of the batch is computed by itself, in training, too.
        random: True if the network draws random numbers.
    """

    build: Callable[[], Any]
    shapes: Mapping[str, tuple[int, ...]]
    below: Mapping[str, int] = field(default_factory=dict)
    types: Mapping[str, str] = field(default_factory=dict)
    ragged: Collection[str] = ()
    params: Mapping[str, tuple[int, ...]] = field(default_factory=dict)
    rows: bool = True
    random: bool = False

    def symbol(self) -> Any:
        """Build the symbol; automatic names count from 0."""
        with mx.name.NameManager():
            return self.build()

    def arrays(self, symbol: Any, seed: int = 0) -> dict[str, np.ndarray]:
        """Draw values for all arguments and auxiliary states."""
        shapes, _, states = symbol.infer_shape(**self.shapes, **self.params)
        every = dict(zip(symbol.list_arguments(), shapes, strict=True))
        every |= dict(zip(symbol.list_auxiliary_states(), states, strict=True))
        names = {*symbol.list_arguments()}
        inputs = {name: self.types.get(name, "float32") for name in self.shapes if name in names}
        types, _, _ = symbol.infer_type(**inputs)
        dtypes = dict(zip(symbol.list_arguments(), types, strict=True))
        rng = np.random.RandomState(seed)
        found = {}
        for name, shape in sorted(every.items()):
            drawn = (self._rows if name in self.ragged else self._draw)(rng, name, shape)
            found[name] = drawn if name in self.ragged else drawn.astype(dtypes.get(name, "float32"))
        return found

    def _rows(self, rng: np.random.RandomState, name: str, shape: tuple[int, ...]) -> np.ndarray:
        """Return an array of lists of different lengths."""
        rows = np.empty(shape[0], dtype=object)
        rows[:] = [rng.randint(0, self.below[name], size).tolist() for size in rng.randint(1, 6, len(rows))]
        return rows

    def _draw(self, rng: np.random.RandomState, name: str, shape: tuple[int, ...]) -> np.ndarray:
        if name in self.below or name.endswith("label"):
            return rng.randint(0, self.below.get(name, 3), shape)
        if name.endswith(("gamma", "var")):
            return rng.uniform(0.5, 1.5, shape)
        return rng.uniform(0.1, 1, shape) * rng.choice([-1, 1], shape)


def gated(x):
    return x * S.sigmoid(x)


NETS: dict[str, Net] = {}


def net(
    name: str,
    build: Callable[..., Any],
    *,
    below: Mapping[str, int] | None = None,
    types: Mapping[str, str] | None = None,
    ragged: Collection[str] = (),
    params: Mapping[str, tuple[int, ...]] | None = None,
    rows: bool = True,
    random: bool = False,
    **shapes: tuple[int, ...],
) -> None:
    """Add a network: `build` takes a variable for every input."""

    def symbol() -> Any:
        made = build(*(S.Variable(each, stype="ragged" if each in ragged else None) for each in shapes))
        return S.Group(made) if isinstance(made, (list, tuple)) else made

    below = {each: most for each, most in {"i": 9, **(below or {})}.items() if each in shapes}
    NETS[name] = Net(symbol, shapes, below, types or {}, ragged, params or {}, rows, random)


def op(kind: str, **options: Any) -> Callable[..., Any]:
    """Return a function that calls an operator."""
    return lambda *inputs: getattr(S, kind)(*inputs, **options)


def swapped(x, first=0):
    """Swap two axes that follow each other."""
    return S.SwapAxis(x, dim1=first, dim2=first + 1)


# dense layers and functions of single numbers

net("dense", lambda x: S.FullyConnected(x, num_hidden=5), x=(4, 7))
net("dense without bias", lambda x: S.FullyConnected(x, num_hidden=5, no_bias=True), x=(4, 7))
net("dense of one row", lambda x: S.FullyConnected(x, num_hidden=33), x=(1, 17))
net("dense of many rows", lambda x: S.FullyConnected(x, num_hidden=9), x=(130, 3))
net("dense on three axes", lambda x: S.FullyConnected(x, num_hidden=5, flatten=False), x=(4, 3, 7))
net("dense on flattened images", lambda x: S.FullyConnected(x, num_hidden=5), x=(4, 3, 2, 2))
for kind in ("relu", "sigmoid", "tanh", "softrelu", "softsign"):
    act = op("Activation", act_type=kind)
    net(f"dense and {kind}", lambda x, act=act: act(S.FullyConnected(x, num_hidden=18)), x=(6, 19))
for kind in ("leaky", "elu", "selu", "gelu", "prelu"):
    net(f"LeakyReLU {kind}", lambda x, kind=kind: S.LeakyReLU(x * 2, act_type=kind), x=(4, 3, 5))
for kind in (
    *("exp", "square", "abs", "erf", "arctan", "sin", "cbrt", "expm1", "negative", "hard_sigmoid", "sign"),
    *("floor", "round", "logical_not", "degrees"),
):
    net(f"{kind} of a scaled value", lambda x, kind=kind: getattr(S, kind)(x * 1.7), x=(4, 3, 5))
net("log, sqrt and rsqrt", lambda x: S.log(S.abs(x)) + S.sqrt(S.abs(x)) * S.rsqrt(S.abs(x) + 1), x=(4, 6))
net("clipped", lambda x: S.clip(x * 3, a_min=-0.5, a_max=0.7), x=(4, 6))
net("numbers on both sides", lambda x: (2 - x) / (x * x + 1) - x**2 + 3 / (x + 4), x=(4, 6))
net("comparisons", lambda x, y: (x > y) * x + (x <= 0) * y, x=(4, 6), y=(4, 6))
net("where", lambda x, y: S.where(x > 0, x * y, x - y), x=(4, 6), y=(4, 6))
net("broadcasting", lambda x, y: S.broadcast_add(S.broadcast_mul(x, y), y), x=(4, 3, 5), y=(4, 1, 5))
net("maximum and hypot", lambda x, y: S.broadcast_maximum(x, y) + S.broadcast_hypot(x, y), x=(4, 6), y=(4, 6))
net("one value twice", lambda x: S.tanh(x) * S.sigmoid(x) + S.tanh(x), x=(4, 6))
net("elementwise sum", lambda x, y: S.add_n(x, y, x), x=(4, 6), y=(4, 6))
net("smooth_l1", lambda x: S.smooth_l1(x, scalar=0.5), x=(4, 6))

# shapes

net("transpose and arithmetic", lambda x: S.transpose(x, axes=(0, 2, 1)) * 2 + 1, x=(4, 3, 5))
weight = S.Variable("w", shape=(5, 6))
net("transposed weight", lambda x: S.dot(x, S.transpose(weight)), x=(4, 6))
net("dot with a transposed side", lambda x: S.dot(x, weight, transpose_b=True), x=(4, 6))
net("batch_dot", lambda x, y: S.batch_dot(x, y, transpose_b=True), x=(4, 3, 5), y=(4, 2, 5))
net("reshapes", lambda x: S.Reshape(S.Reshape(x, shape=(0, -3)) * 2, shape=(0, -4, 3, -1)), x=(4, 3, 5))
net("concatenated", lambda x, y: S.Concat(x, y * 2, x, dim=1), x=(4, 3), y=(4, 5))
net("stacked", lambda x, y: S.stack(x, y, axis=1), x=(4, 3), y=(4, 3))
net("split", lambda x: [*S.SliceChannel(x * 2, num_outputs=3, axis=1)], x=(4, 6))
inner = op("slice_axis", axis=1, begin=1, end=-1)
net("sliced", lambda x: inner(x) * S.slice(x, begin=(None, 2), end=(None, 6)), x=(4, 6))
net("sliced with steps", op("slice", begin=(None, 5, 0), end=(None, 0, 4), step=(None, -2, 3)), x=(4, 6, 4))
net("padded", lambda x: S.Pad(x, mode="edge", pad_width=(0, 0, 0, 0, 1, 2, 2, 1)), x=(4, 2, 3, 4))
net("padded by reflection", op("Pad", mode="reflect", pad_width=(0, 0, 0, 0, 1, 1, 1, 1)), x=(4, 2, 3, 4))
net("tiled and repeated", lambda x: S.tile(S.repeat(x, repeats=2, axis=1), reps=(1, 3)), x=(4, 3))
net("reversed", lambda x: S.reverse(x, axis=1) - swapped(swapped(x, 1), 1), x=(4, 3, 5))
net("expanded and squeezed", lambda x: S.squeeze(S.expand_dims(x, axis=1) * 2, axis=1), x=(4, 3))
net("depth to space", lambda x: S.depth_to_space(x, block_size=2), x=(4, 8, 3, 3))
net("space to depth", lambda x: S.space_to_depth(x, block_size=2), x=(4, 2, 4, 6))
for kind in ("sum", "mean", "max", "min", "prod", "norm"):
    over = op(kind, axis=2, keepdims=True)
    net(f"{kind} over an axis", lambda x, over=over: S.broadcast_mul(over(x), x), x=(4, 3, 5))
net("mean over pixels", lambda x: S.mean(x, axis=(2, 3)), x=(4, 3, 5, 6))
net("sum over all but the batch", lambda x: S.sum(x, axis=0, exclude=True), x=(4, 3, 5))
net("sorted", lambda x: S.sort(x, axis=1) + S.topk(x, axis=1, k=5, ret_typ="value"), x=(4, 5))
net("argmax", lambda x: S.argmax(x, axis=1), x=(4, 5))
net("cumsum", lambda x: S.cumsum(x, axis=1), x=(4, 5))
net("picked", lambda x, i: S.pick(x, i, axis=1), below={"i": 5}, x=(4, 5), i=(4,))
net("one_hot", lambda i: S.one_hot(i, depth=5), below={"i": 5}, i=(4,))
table = S.Variable("w", shape=(7, 3), dtype="float32")
net("taken", lambda i: S.take(table, i), below={"i": 7}, i=(4, 2))
net("gather_nd", lambda i: S.gather_nd(table, S.transpose(i)), below={"i": 3}, i=(4, 2), rows=False)

# convolutions and pooling

for kernel, channels in product((1, 2, 3, 5), (1, 3, 8)):
    layer = op("Convolution", kernel=(kernel,) * 2, num_filter=4, pad=(kernel // 2,) * 2)
    net(f"convolution {kernel}x{kernel} of {channels}", layer, x=(3, channels, 7, 6))
net("convolution with stride", op("Convolution", kernel=(3, 3), stride=(2, 1), num_filter=4), x=(3, 3, 9, 8))
net("dilated convolution", op("Convolution", kernel=(3, 3), dilate=(2, 2), num_filter=4), x=(3, 3, 9, 8))
net("grouped convolution", op("Convolution", kernel=(3, 3), num_group=2, num_filter=4), x=(3, 6, 7, 7))
net("depthwise convolution", op("Convolution", kernel=(3, 3), num_group=6, num_filter=6), x=(3, 6, 7, 7))
net("1x1 strided convolution", op("Convolution", kernel=(1, 1), stride=(2, 2), num_filter=4), x=(3, 6, 7, 7))
bare = {"num_filter": 4, "no_bias": True}
net("uneven convolution", op("Convolution", kernel=(1, 5), pad=(0, 2), **bare), x=(3, 3, 6, 8))
net("1-D convolution", lambda x: S.Convolution(x, kernel=(3,), pad=(1,), num_filter=4), x=(3, 2, 9))
net("3-D convolution", lambda x: S.Convolution(x, kernel=(2, 3, 2), num_filter=4), x=(3, 2, 4, 5, 4))
layer = op("Deconvolution", kernel=(3, 3), stride=(2, 2), adj=(1, 1), num_filter=3)
net("deconvolution", layer, x=(3, 4, 5, 4))
net("grouped deconvolution", op("Deconvolution", kernel=(2, 2), num_group=2, num_filter=4), x=(3, 4, 5, 4))
for kind, convention in product(("max", "avg", "sum"), ("valid", "full")):
    how = {"pool_type": kind, "pooling_convention": convention}
    how |= {"kernel": (3, 2), "stride": (2, 2), "pad": (1, 0)}
    net(f"{kind} pooling, {convention}", op("Pooling", **how), x=(3, 3, 7, 6))
net("lp pooling", op("Pooling", kernel=(2, 2), stride=(2, 2), pool_type="lp", p_value=2), x=(3, 3, 6, 6))
layer = op("Pooling", kernel=(3, 3), pad=(1, 1), pool_type="avg", count_include_pad=False)
net("pooling without padding in the mean", layer, x=(3, 3, 6, 6))
net("global pooling", op("Pooling", global_pool=True, kernel=(1, 1), pool_type="max"), x=(3, 3, 6, 5))
net("1-D pooling", lambda x: S.Pooling(x, kernel=(3,), stride=(2,), pool_type="max"), x=(3, 3, 9))
halved = op("Pooling", kernel=(2, 2), stride=(2, 2), pool_type="max")
net("relu and pooling", lambda x: halved(S.relu(x)), x=(3, 3, 6, 6))
net("upsampled", lambda x: S.UpSampling(x, scale=2, sample_type="nearest"), x=(3, 3, 4, 5))
net("resized", lambda x: S.contrib.BilinearResize2D(x, height=7, width=5), x=(3, 3, 4, 4))
net("adaptive pooling", lambda x: S.contrib.AdaptiveAvgPooling2D(x, output_size=(2, 3)), x=(3, 3, 7, 6))


def conv_bn(x, channels, stride=1, act="relu", **options):
    """Return a convolution 3x3, BatchNorm and activation."""
    x = S.Convolution(x, kernel=(3, 3), stride=(stride,) * 2, pad=(1, 1), num_filter=channels, no_bias=True)
    x = S.BatchNorm(x, fix_gamma=False, **options)
    return S.Activation(x, act_type=act) if act else x


def residual(x):
    """Return a small residual network."""
    x = conv_bn(x, 4)
    x = S.relu(conv_bn(conv_bn(x, 4), 4, act=None) + x)
    x = S.relu(conv_bn(conv_bn(x, 6, 2), 6, act=None) + conv_bn(x, 6, 2, None))
    return S.FullyConnected(S.Pooling(x, global_pool=True, kernel=(1, 1), pool_type="avg"), num_hidden=3)


def squeeze_and_excitation(x):
    """Return a convolution whose channels are scaled by a gate."""
    x = S.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=4)
    gate = S.sigmoid(S.FullyConnected(S.mean(x, axis=(2, 3)), num_hidden=4))
    return S.broadcast_mul(x, S.Reshape(gate, shape=(0, 0, 1, 1)))


def dense_block(x):
    """Return a block in which every layer reads all before it."""
    for _ in range(3):
        x = S.Concat(x, S.relu(S.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=3)), dim=1)
    return x


def u_net(x):
    """Return an encoder and a decoder with a connection between them."""
    layer = op("Convolution", kernel=(3, 3), pad=(1, 1), num_filter=4)
    down = S.relu(layer(x))
    low = S.relu(layer(halved(down)))
    up = S.Deconvolution(low, kernel=(2, 2), stride=(2, 2), num_filter=4)
    return S.Convolution(S.Concat(down, up, dim=1), kernel=(1, 1), num_filter=2)


net("residual network", residual, x=(4, 3, 8, 8), rows=False)
net("squeeze and excitation", squeeze_and_excitation, x=(3, 3, 6, 6))
net("dense block", dense_block, x=(3, 2, 6, 6))
net("U-Net", u_net, x=(3, 2, 8, 6))
shapes = {"x": (3, 3, 6, 6), "y": (3, 1, 6, 6)}
net("two towers", lambda x, y: S.Concat(conv_bn(x, 3), conv_bn(y, 2), dim=1), **shapes, rows=False)

# normalisation

net("BatchNorm", lambda x: S.BatchNorm(x, fix_gamma=False), x=(4, 3, 5, 5), rows=False)
net("BatchNorm with fixed gamma", lambda x: S.BatchNorm(x), x=(4, 3, 5, 5), rows=False)
net("BatchNorm of rows", lambda x: S.BatchNorm(x, fix_gamma=False, eps=1e-3), x=(6, 5), rows=False)
net("BatchNorm by moving statistics", op("BatchNorm", fix_gamma=False, use_global_stats=True), x=(4, 3, 5, 5))
net("BatchNorm and relu", lambda x: S.relu(S.BatchNorm(x, fix_gamma=False)), x=(4, 3, 5, 5), rows=False)
net(
    "convolutions of one channel, one column",
    lambda x: S.Convolution(
        S.Convolution(x, kernel=(3, 3), stride=(1, 2), num_filter=2), kernel=(1, 1), num_filter=2
    ),
    x=(5, 1, 6, 3),
)
net("convolution, BatchNorm and relu", lambda x: conv_bn(x, 4), x=(4, 3, 6, 6), rows=False)
net("LayerNorm", lambda x: S.LayerNorm(x), x=(4, 3, 6))
net("LayerNorm of axis 1", lambda x: S.LayerNorm(x, axis=1), x=(4, 5, 3))
net("InstanceNorm", lambda x: S.InstanceNorm(x), x=(4, 3, 5, 5))
net("GroupNorm", lambda x: S.GroupNorm(x, num_groups=2), x=(4, 4, 5, 5))
net(
    "gated convolutions",
    lambda x: gated(
        S.Convolution(gated(S.Convolution(x, kernel=(3, 3), num_filter=4)), kernel=(1, 1), num_filter=3)
    ),
    x=(2, 3, 6, 6),
)
CHANNELS = {"gamma": (4,), "beta": (4,)}
net(
    "GroupNorm by channels",
    lambda x: S.GroupNorm(x, *(S.Variable(k, shape=v) for k, v in CHANNELS.items()), num_groups=2),
    x=(4, 4, 5, 5),
)
net("L2Normalization", lambda x: S.L2Normalization(x, mode="channel"), x=(4, 3, 5, 5))
net("LRN", lambda x: S.LRN(x, nsize=3), x=(4, 5, 3, 3))

# softmax and losses

net("softmax", lambda x: S.softmax(x * 2), x=(4, 5))
net("softmax of axis 1", lambda x: S.softmax(x, axis=1, temperature=2.0), x=(4, 5, 3))
net("log_softmax", lambda x: S.log_softmax(x), x=(4, 5))
net("softmax of one column", lambda x: S.softmax(x), x=(4, 1))
net("SoftmaxActivation of channels", lambda x: S.SoftmaxActivation(x, mode="channel"), x=(4, 5, 3, 3))


dense = op("FullyConnected", num_hidden=3)


def loss(kind, layer=dense, **options):
    """Return a function that adds a loss on a layer."""
    return lambda x, label: getattr(S, kind)(layer(x), label, **options)


net("SoftmaxOutput", loss("SoftmaxOutput"), x=(4, 6), label=(4,))
ignoring = {"use_ignore": True, "ignore_label": 1}
net("SoftmaxOutput with ignored labels", loss("SoftmaxOutput", **ignoring), x=(6, 6), label=(6,))
layer = loss("SoftmaxOutput", **ignoring, normalization="valid")
net("SoftmaxOutput divided by valid labels", layer, x=(6, 6), label=(6,), rows=False)
layer = loss("SoftmaxOutput", smooth_alpha=0.1, grad_scale=0.5)
net("SoftmaxOutput with smoothed labels", layer, x=(4, 6), label=(4,))
layer = loss("SoftmaxOutput", op("Convolution", kernel=(1, 1), num_filter=3), multi_output=True)
net("SoftmaxOutput of pixels", layer, x=(3, 2, 4, 4), label=(3, 16))
net("LinearRegressionOutput", loss("LinearRegressionOutput"), x=(4, 6), label=(4, 3))
net("LogisticRegressionOutput", loss("LogisticRegressionOutput"), below={"label": 2}, x=(4, 6), label=(4, 3))
net("MAERegressionOutput", loss("MAERegressionOutput"), x=(4, 6), label=(4, 3))
net("SVMOutput", loss("SVMOutput"), x=(4, 6), label=(4,))
net("MakeLoss", lambda x: S.MakeLoss(S.square(dense(x)), grad_scale=0.3), x=(4, 6))
cross = lambda x, i: S.MakeLoss(-S.pick(S.log_softmax(dense(x)), i))  # noqa: E731
net("cross-entropy by hand", cross, below={"i": 3}, x=(4, 6), i=(4,))
given = {"x": (4, 6), "label": (4,)}
net("two losses", lambda x, y: [S.SoftmaxOutput(dense(x), y), S.MakeLoss(S.sum(x * x, axis=1))], **given)
blocked = lambda x, label: [S.BlockGrad(x * 2), S.SoftmaxOutput(dense(x), label)]  # noqa: E731
net("a loss and a blocked output", blocked, **given)

# sequences


def recurrent(cell, steps=4, head=True):
    """Return a function that unrolls a cell over (N, T, C)."""

    def build(x):
        outputs, _ = cell().unroll(steps, inputs=x, layout="NTC", merge_outputs=True)
        return S.FullyConnected(outputs, num_hidden=3) if head else outputs

    return build


CELLS = {
    "RNN": lambda: mx.rnn.RNNCell(5), "LSTM": lambda: mx.rnn.LSTMCell(5), "GRU": lambda: mx.rnn.GRUCell(5),
    "fused LSTM": lambda: mx.rnn.FusedRNNCell(5, 1, "lstm"),
    "fused bidirectional GRU": lambda: mx.rnn.FusedRNNCell(5, 2, "gru", bidirectional=True),
    "fused tanh RNN": lambda: mx.rnn.FusedRNNCell(5, 1, "rnn_tanh"),
    "bidirectional LSTM": lambda: mx.rnn.BidirectionalCell(*(mx.rnn.LSTMCell(3, p) for p in ("l_", "r_"))),
    "residual GRU": lambda: mx.rnn.ResidualCell(mx.rnn.GRUCell(6)),
}  # fmt: skip


def two_layers():
    """Return an LSTM on top of a GRU."""
    cell = mx.rnn.SequentialRNNCell()
    cell.add(mx.rnn.GRUCell(4, "first_"))
    cell.add(mx.rnn.LSTMCell(5, "second_"))
    return cell


for title, cell in {**CELLS, "GRU and LSTM": two_layers}.items():
    net(title, recurrent(cell), x=(3, 4, 6))


def words(kind, **options):
    """Return a function that looks up words and runs a recurrent layer."""

    def build(i):
        x = S.Embedding(i, input_dim=9, output_dim=6, **options)
        return recurrent(CELLS[kind])(x)

    return build


def attention(x):
    """Return self-attention of one head with a residual connection and LayerNorm."""
    q, k, v = S.SliceChannel(S.FullyConnected(x, num_hidden=18, flatten=False), num_outputs=3, axis=2)
    weights = S.softmax(S.batch_dot(q, k, transpose_b=True) / 6**0.5)
    return S.LayerNorm(x + S.batch_dot(weights, v))


looked_up = op("Embedding", input_dim=9, output_dim=4)
net("Embedding", looked_up, i=(4, 3))
net("Embedding of int64", looked_up, types={"i": "int64"}, i=(4, 3))
net("mean of embeddings", lambda i: S.mean(looked_up(i), axis=1), i=(4, 3))
sparse = op("Embedding", input_dim=9, output_dim=4, sparse_grad=True)
net("Embedding with sparse gradient", lambda i: S.sum(sparse(i), axis=1), i=(4, 3))
net("words and LSTM", words("LSTM"), i=(3, 4))
net("words with sparse gradient and LSTM", words("LSTM", sparse_grad=True), i=(3, 4))
net("words and fused LSTM", words("fused LSTM"), i=(3, 4))
net("attention", attention, x=(3, 4, 6))
net("SequenceMask", lambda x: swapped(S.SequenceMask(swapped(x))), x=(3, 4, 6))
last = lambda x, n: S.SequenceLast(x, n + 1, axis=1, use_sequence_length=True)  # noqa: E731
net("SequenceLast", last, below={"n": 4}, x=(3, 4, 6), n=(3,))
net("SequenceReverse", lambda x: swapped(S.SequenceReverse(swapped(x))), x=(3, 4, 6))

# rows of different lengths


def bag(pool, loss=False, **options):
    """Return a function that pools the embeddings of a row's words."""

    def build(i, label=None):
        words = S.Embedding(i, input_dim=9, output_dim=4, **options)
        x = S.FullyConnected(S.sequence_pool(words, pool_type=pool), num_hidden=3)
        return x if label is None else S.SoftmaxOutput(x, label)

    return build


for kind in ("sum", "mean", "sqrt", "max", "first", "last"):
    net(f"{kind} of ragged rows", bag(kind), ragged=("i",), i=(5,))
net("bag of words", bag("mean"), ragged=("i",), i=(6,), label=(6,))
net("sparse bag of words", bag("sum", sparse_grad=True), ragged=("i",), i=(6,), label=(6,))
both = lambda i, x, label: S.SoftmaxOutput(S.Concat(bag("mean")(i), x, dim=1), label)  # noqa: E731
net("ragged and dense inputs", both, ragged=("i",), i=(6,), x=(6, 2), label=(6,))

# dtypes, random numbers, odd sizes

net("float64", lambda x: S.tanh(dense(x)), types={"x": "float64"}, x=(4, 6))
net("float16", lambda x: S.tanh(x) * 2, types={"x": "float16"}, x=(4, 6))
net("cast", lambda x: S.Cast(S.Cast(x, dtype="float64") * 2, dtype="float32"), x=(4, 6))
net("integers", lambda i: S.Cast(i * 2 + 1, dtype="float32"), types={"i": "int32"}, i=(4, 3))
net("Dropout", lambda x: S.Dropout(S.FullyConnected(x, num_hidden=8), p=0.4), x=(4, 6), random=True)
dropped = lambda x: conv_bn(S.Dropout(conv_bn(x, 3), p=0.3), 3)  # noqa: E731
net("Dropout between convolutions", dropped, x=(4, 3, 6, 6), random=True, rows=False)
net("one number a row", lambda x: S.sum(S.exp(S.FullyConnected(x, num_hidden=1)), axis=1), x=(5, 1))
net("MLP", lambda data: mlp(), data=(5, 6))
net("LeNet", lambda data: lenet(), data=(3, 1, 12, 12))


for seed in range(20):
    symbol, shapes = random_net(seed)
    build = lambda *_, seed=seed: random_net(seed)[0]  # noqa: E731
    net(f"random network {seed}", build, random=True, rows=False, **shapes)
for seed in range(40):
    symbol, inputs, weights = random_graph(seed)
    batches = {name: (3, *shape) for name, shape in inputs.items()}
    build = lambda *_, seed=seed: random_graph(seed)[0]  # noqa: E731
    net(f"random graph {seed}", build, params=weights, rows=False, **batches)
