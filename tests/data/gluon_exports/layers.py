"""Networks of one layer or block each, in the styles in which Gluon of MXNet 1.9.1 has them; see `record.py`."""

from mxnet.gluon import HybridBlock, nn, rnn
from mxnet.gluon.contrib import nn as contrib_nn
from mxnet.gluon.contrib import rnn as contrib_rnn

NETS = {}


def net(style="both", table=NETS):
    """Register a function of a `Draw` that returns a block and its inputs."""

    def register(function):
        table[function.__name__] = (style, function)
        return function

    return register


class Call(HybridBlock):
    """A block of a function of ``F`` and its inputs, and of the blocks that the function calls."""

    def __init__(self, function, **blocks):
        super().__init__(prefix="")
        self._function = function
        for name, block in blocks.items():
            setattr(self, name, block)

    def hybrid_forward(self, F, *inputs):
        return self._function(self, F, *inputs)


def layer(name, make, *shape, style="both"):
    net(style)(type("", (), {"__name__": name, "__call__": lambda _, draw: (make(), [draw(*shape)])})())


layer("dense", lambda: nn.Dense(4, activation="relu"), 3, 2, 3)
layer("dense_not_flat", lambda: nn.Dense(4, activation="tanh", flatten=False, use_bias=False), 3, 2, 3)
layer("conv1d", lambda: nn.Conv1D(3, 3, 2, 1), 2, 2, 7)
layer(
    "conv2d", lambda: nn.Conv2D(4, (3, 2), (1, 2), (1, 0), (2, 1), groups=2, activation="sigmoid"), 2, 4, 6, 5
)
layer("conv3d", lambda: nn.Conv3D(2, 2, padding=1), 1, 2, 3, 3, 3)
layer("conv1d_transpose", lambda: nn.Conv1DTranspose(2, 3, 2, 1, 1), 2, 3, 4)
layer("conv2d_transpose", lambda: nn.Conv2DTranspose(2, 4, 2, 1, groups=2, in_channels=4), 2, 4, 3, 3)
layer("conv3d_transpose", lambda: nn.Conv3DTranspose(2, 2, 2), 1, 2, 2, 2, 2)
layer("max_pool1d", lambda: nn.MaxPool1D(3, 2, ceil_mode=True), 2, 2, 8)
layer("max_pool2d", lambda: nn.MaxPool2D(3, 2, 1), 2, 2, 6, 5)
layer("max_pool3d", lambda: nn.MaxPool3D(2, 1), 1, 2, 3, 3, 3)
layer("avg_pool1d", lambda: nn.AvgPool1D(3, 2, 1), 2, 2, 8)
layer("avg_pool2d", lambda: nn.AvgPool2D(3, 2, 1, ceil_mode=True, count_include_pad=False), 2, 2, 6, 5)
layer("avg_pool3d", lambda: nn.AvgPool3D(2, 2), 1, 2, 4, 4, 4)
layer("global_max_pool1d", lambda: nn.GlobalMaxPool1D(), 2, 3, 5)
layer("global_max_pool2d", lambda: nn.GlobalMaxPool2D(), 2, 3, 3, 3)
layer("global_avg_pool2d", lambda: nn.GlobalAvgPool2D(), 2, 3, 3, 3)
layer("global_avg_pool3d", lambda: nn.GlobalAvgPool3D(), 2, 3, 2, 2, 2)
layer("batch_norm", lambda: nn.BatchNorm(), 4, 3, 3)
layer("batch_norm_fixed", lambda: nn.BatchNorm(-1, scale=False, use_global_stats=True), 4, 2, 3)
layer("layer_norm", lambda: nn.LayerNorm(), 3, 2, 5)
layer("group_norm", lambda: nn.GroupNorm(2), 2, 4, 3, style="classic")
layer("instance_norm", lambda: nn.InstanceNorm(scale=True), 2, 3, 5, style="classic")
layer("dropout", lambda: nn.Dropout(0.5), 4, 5)
layer("leaky_relu", lambda: nn.LeakyReLU(0.2), 3, 4)
layer("prelu", lambda: nn.PReLU(), 3, 4)
layer("elu", lambda: nn.ELU(0.7), 3, 4)
layer("selu", lambda: nn.SELU(), 3, 4)
layer("gelu", lambda: nn.GELU(), 3, 4)
layer("swish", lambda: nn.Swish(1.5), 3, 4)
layer("softsign", lambda: nn.Activation("softsign"), 3, 4)
layer("flatten", lambda: nn.Flatten(), 2, 3, 2)
layer("pixel_shuffle1d", lambda: contrib_nn.PixelShuffle1D(2), 2, 4, 3, style="classic")
layer("pixel_shuffle2d", lambda: contrib_nn.PixelShuffle2D((2, 1)), 2, 4, 2, 3, style="classic")
layer("reflection_pad2d", lambda: nn.ReflectionPad2D(1), 2, 2, 3, 4, style="classic")
layer("lstm", lambda: rnn.LSTM(3, 2, bidirectional=True), 4, 2, 3)
layer("gru", lambda: rnn.GRU(3, 2, "NTC"), 2, 4, 3)
layer("rnn_relu", lambda: rnn.RNN(3, activation="relu"), 4, 2, 3)


@net()
def embedding(draw):
    return nn.Embedding(6, 3), [draw.tokens(6, 2, 4)]


@net("classic")
def hybrid_lambda(draw):
    return nn.HybridLambda(lambda F, x: F.sqrt(F.square(x) + 1) / F.broadcast_add(x, F.ones_like(x) * 4)), [
        draw(3, 4)
    ]


@net("np")
def hybrid_lambda_np(draw):
    return nn.HybridLambda(
        lambda F, x: F.np.sqrt(F.np.square(x) + 1) / (x + 4) - F.np.mean(x, axis=1, keepdims=True)
    ), [draw(3, 4)]


@net("classic")
def hybrid_concurrent(draw):
    block = contrib_nn.HybridConcurrent(axis=1)
    block.add(nn.Dense(3, activation="relu"), nn.Dense(2), contrib_nn.Identity())
    return block, [draw(3, 4)]


@net("np")
def concatenate_np(draw):
    blocks = {"a": nn.Dense(3, activation="relu"), "b": contrib_nn.Identity()}
    return Call(lambda self, F, x: F.np.concatenate([self.a(x), self.b(x)], axis=-1), **blocks), [draw(3, 4)]


@net()
def lstm_with_states(draw):
    layer = rnn.LSTM(3)
    return Call(lambda self, F, x, h, c: self.layer(x, [h, c]), layer=layer), [
        draw(4, 2, 3),
        draw(1, 2, 3),
        draw(1, 2, 3),
    ]


def unrolled(cell, steps=3):
    def call(self, F, x, *states):
        outputs, states = self.cell.unroll(steps, x, list(states), layout="NTC", merge_outputs=True)
        return [outputs, *states]

    return Call(call, cell=cell)


@net("classic")
def rnn_cell(draw):
    return unrolled(rnn.RNNCell(3)), [draw(2, 3, 2), draw(2, 3)]


@net("classic")
def lstm_cell(draw):
    return unrolled(rnn.LSTMCell(3)), [draw(2, 3, 2), draw(2, 3), draw(2, 3)]


@net("classic")
def gru_cell(draw):
    return unrolled(rnn.GRUCell(3)), [draw(2, 3, 2), draw(2, 3)]


@net("classic")
def residual_cell(draw):
    return unrolled(rnn.ResidualCell(rnn.GRUCell(3))), [draw(2, 3, 3), draw(2, 3)]


@net("classic")
def conv_lstm_cell(draw):
    cell = contrib_rnn.Conv2DLSTMCell((2, 4, 3), 2, 3, 3, i2h_pad=1)

    def call(self, F, x, h, c):
        first, states = self.cell(x, [h, c])
        second, states = self.cell(x, states)
        return [first, second, states[1]]

    return Call(call, cell=cell), [draw(1, 2, 4, 3), draw(1, 2, 4, 3), draw(1, 2, 4, 3)]


@net("np")
def multi_head_attention_np(draw):
    """Attention with masks of lengths, as in programs that write it by hand."""
    blocks = {name: nn.Dense(4, flatten=False, use_bias=False) for name in ("q", "k", "v", "o")}

    def call(self, F, x, lengths):
        def heads(y):
            return F.npx.reshape(y, (-2, -2, 2, -1))

        scores = F.np.einsum("bqhd,bkhd->bhqk", heads(self.q(x)), heads(self.k(x))) / 2**0.5
        steps = F.npx.arange_like(x, axis=1)
        mask = F.np.expand_dims(F.np.expand_dims(steps.reshape((1, -1)) < lengths.reshape((-1, 1)), 1), 1)
        scores = F.np.where(mask, scores, F.np.ones_like(scores) * -1e9)
        weights = F.npx.softmax(scores, axis=-1)
        context = F.np.einsum("bhqk,bkhd->bqhd", weights, heads(self.v(x)))
        return self.o(F.npx.reshape(context, (-2, -2, -1)))

    return Call(call, **blocks), [draw(2, 3, 4), draw.lengths(2, 3)]


@net("np")
def masked_attention_np(draw):
    """Dot product attention with `sequence_mask` and `batch_dot`, as in d2l.ai's book."""

    def call(self, F, q, k, v, lengths):
        scores = F.npx.batch_dot(q, k, transpose_b=True) / 2
        flat = F.npx.reshape(scores, (-5, -1))
        flat = F.npx.sequence_mask(
            flat, F.np.repeat(lengths, 3), use_sequence_length=True, value=-1e6, axis=1
        )
        weights = F.npx.softmax(F.npx.reshape_like(flat, scores), axis=-1)
        return F.npx.batch_dot(weights, v)

    return Call(call), [draw(2, 3, 4), draw(2, 4, 4), draw(2, 4, 2), draw.lengths(2, 4)]


@net("classic")
def foreach(draw):
    def call(self, F, x, state):
        def step(row, states):
            new = F.tanh(self.a(row) + self.b(states[0]))
            return new * 2, [new]

        outputs, states = F.contrib.foreach(step, x, [state])
        return [outputs, states[0]]

    return Call(call, a=nn.Dense(3, in_units=2), b=nn.Dense(3, in_units=3)), [draw(4, 2, 2), draw(2, 3)]


@net("classic")
def while_loop(draw):
    def call(self, F, x):
        def step(i, y):
            return y * 2, [i + 1, self.a(y)]

        outputs, (_, last) = F.contrib.while_loop(
            lambda i, y: i < 3, step, [F.zeros((1,)), x], max_iterations=5
        )
        return [
            F.slice_axis(outputs[0] if isinstance(outputs, list) else outputs, axis=0, begin=0, end=3),
            last,
        ]

    return Call(call, a=nn.Dense(3, activation="tanh", in_units=3)), [draw(2, 3)]


@net("classic")
def cond(draw):
    def call(self, F, x, y):
        return F.contrib.cond(F.sum(x) < F.sum(y), lambda: self.a(x), lambda: self.a(y) * 2)

    return Call(call, a=nn.Dense(3, in_units=3)), [draw(2, 3), draw(2, 3)]
