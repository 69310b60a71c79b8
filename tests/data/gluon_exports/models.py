"""Small networks of the kinds that programs exported from Gluon of MXNet 1.9.1; see `record.py`."""

from layers import Call, net
from mxnet.gluon import nn, rnn
from mxnet.gluon.contrib import nn as contrib_nn
from mxnet.gluon.model_zoo import vision
from mxnet.util import is_np_array

NETS = {}


def model(style="both"):
    return net(style, NETS)


def chain(*blocks):
    sequence = nn.HybridSequential(prefix="")
    sequence.add(*blocks)
    return sequence


def convolution(channels, kernel=3, stride=1, pad=1, groups=1, relu=True):
    blocks = [nn.Conv2D(channels, kernel, stride, pad, groups=groups, use_bias=False), nn.BatchNorm()]
    return chain(*blocks, nn.Activation("relu")) if relu else chain(*blocks)


def dense(units, **kwargs):
    return nn.Dense(units, flatten=False, **kwargs)


# Of the model zoo


@model()
def alexnet(draw):
    blocks = [
        nn.Conv2D(4, 5, 2, 2, activation="relu"),
        nn.MaxPool2D(3, 2),
        nn.Conv2D(6, 3, 1, 1, activation="relu"),
    ]
    blocks += [nn.MaxPool2D(3, 2), nn.Flatten(), nn.Dense(8, activation="relu"), nn.Dropout(0), nn.Dense(3)]
    return chain(*blocks), [draw(1, 3, 16, 16)]


@model()
def vgg_bn(draw):
    blocks = [
        convolution(3),
        nn.MaxPool2D(strides=2),
        convolution(4),
        convolution(4),
        nn.MaxPool2D(strides=2),
    ]
    return chain(*blocks, nn.Dense(6, activation="relu"), nn.Dropout(0), nn.Dense(3)), [draw(2, 3, 8, 8)]


@model()
def resnet_v1(draw):
    return vision.ResNetV1(vision.BasicBlockV1, [1, 1], [3, 3, 4], classes=3, thumbnail=True), [
        draw(2, 3, 6, 6)
    ]


@model()
def resnet_v1_bottleneck(draw):
    return vision.ResNetV1(vision.BottleneckV1, [1, 1], [4, 8, 12], classes=3), [draw(1, 3, 16, 16)]


@model()
def resnet_v2(draw):
    return vision.ResNetV2(vision.BottleneckV2, [1, 1], [4, 8, 12], classes=3, thumbnail=True), [
        draw(2, 3, 6, 6)
    ]


@model()
def mobilenet_v1(draw):
    blocks = [convolution(4, stride=2)]
    for channels, stride in ((6, 1), (8, 2)):
        before = 4 if channels == 6 else 6
        blocks += [convolution(before, stride=stride, groups=before), convolution(channels, 1, 1, 0)]
    return chain(*blocks, nn.GlobalAvgPool2D(), nn.Flatten(), nn.Dense(3)), [draw(2, 3, 8, 8)]


@model("classic")
def mobilenet_v2(draw):
    from mxnet.gluon.model_zoo.vision.mobilenet import LinearBottleneck

    blocks = [
        convolution(4),
        LinearBottleneck(4, 4, 2, 1),
        LinearBottleneck(4, 6, 2, 2),
        convolution(8, 1, 1, 0),
    ]
    head = [nn.GlobalAvgPool2D(), nn.Conv2D(3, 1, use_bias=False), nn.Flatten()]
    return chain(*blocks, *head), [draw(2, 3, 6, 6)]


@model("classic")
def densenet(draw):
    from mxnet.gluon.model_zoo.vision.densenet import _make_dense_block, _make_transition

    blocks = [convolution(4), _make_dense_block(2, 2, 2, 0, 1), _make_transition(4)]
    blocks += [
        _make_dense_block(1, 2, 2, 0, 2),
        nn.BatchNorm(),
        nn.Activation("relu"),
        nn.AvgPool2D(3),
        nn.Dense(3),
    ]
    return chain(*blocks), [draw(2, 3, 6, 6)]


@model("classic")
def squeezenet(draw):
    from mxnet.gluon.model_zoo.vision.squeezenet import _make_fire

    blocks = [nn.Conv2D(4, 3, 2, activation="relu"), nn.MaxPool2D(3, 2, ceil_mode=True), _make_fire(2, 3, 3)]
    head = [nn.Dropout(0), nn.Conv2D(3, 1, activation="relu"), nn.GlobalAvgPool2D(), nn.Flatten()]
    return chain(*blocks, *head), [draw(1, 3, 12, 12)]


@model("classic")
def inception(draw):
    mixed = contrib_nn.HybridConcurrent(axis=1, prefix="")
    mixed.add(convolution(2, 1, 1, 0), chain(convolution(2, 1, 1, 0), convolution(3, (1, 3), 1, (0, 1))))
    mixed.add(chain(nn.AvgPool2D(3, 1, 1), convolution(2, 1, 1, 0)), nn.MaxPool2D(3, 1, 1))
    return chain(convolution(3, 3, 2), mixed, nn.AvgPool2D(3), nn.Dense(3)), [draw(1, 3, 6, 6)]


# Other networks of images


@model("classic")
def ssd(draw):
    def call(self, F, x):
        anchors, classes, boxes = [], [], []
        for block, size in ((self.a, 0.3), (self.b, 0.6)):
            x = block(x)
            scale = "1" if size < 0.5 else "2"
            anchors.append(F.contrib.MultiBoxPrior(x, sizes=(size, size + 0.2), ratios=(1, 2)))
            scores = F.transpose(getattr(self, "class" + scale)(x), (0, 2, 3, 1))
            classes.append(F.flatten(scores))
            boxes.append(F.flatten(F.transpose(getattr(self, "box" + scale)(x), (0, 2, 3, 1))))
        classes = F.softmax(F.reshape(F.concat(*classes, dim=1), (0, -1, 3)))
        classes = F.transpose(classes, (0, 2, 1))
        return F.contrib.MultiBoxDetection(
            classes,
            F.concat(*boxes, dim=1),
            F.concat(*anchors, dim=1),
            threshold=0.2,
            nms_threshold=0.5,
            nms_topk=20,
        )

    blocks = {"a": convolution(4, 3, 2), "b": convolution(4, 3, 2)}
    for i in "12":
        blocks["class" + i], blocks["box" + i] = nn.Conv2D(9, 3, 1, 1), nn.Conv2D(12, 3, 1, 1)
    return Call(call, **blocks), [draw(1, 3, 8, 8)]


@model("classic")
def ssd_training(draw):
    """The targets of a detector, from labels, and the heads that are compared with them."""

    def call(self, F, x, label):
        x = self.a(x)
        anchors = F.contrib.MultiBoxPrior(x, sizes=(0.3, 0.5), ratios=(1, 2))
        scores = F.transpose(F.reshape(F.transpose(self.classes(x), (0, 2, 3, 1)), (0, -1, 3)), (0, 2, 1))
        boxes = F.flatten(F.transpose(self.boxes(x), (0, 2, 3, 1)))
        targets = F.contrib.MultiBoxTarget(anchors, label, scores, overlap_threshold=0.4)
        return [scores, F.smooth_l1(targets[1] * (boxes - targets[0]), scalar=1.0), targets[2]]

    label = draw.tokens(2, 1, 1, 5)
    label[...] = [[[1, 0.1, 0.2, 0.6, 0.7]]]
    blocks = {"a": convolution(4, 3, 2), "classes": nn.Conv2D(9, 3, 1, 1), "boxes": nn.Conv2D(12, 3, 1, 1)}
    return Call(call, **blocks), [draw(1, 3, 6, 6), label]


@model()
def dcgan_generator(draw):
    blocks = [nn.Conv2DTranspose(4, 2, 1, 0, use_bias=False), nn.BatchNorm(), nn.Activation("relu")]
    blocks += [nn.Conv2DTranspose(3, 4, 2, 1, use_bias=False), nn.Activation("tanh")]
    return chain(*blocks), [draw(2, 5, 1, 1)]


@model()
def unet(draw):
    def call(self, F, x):
        high = self.down(x)
        low = self.up(self.bottom(self.pool(high)))
        joined = F.np.concatenate([high, low], axis=1) if is_np_array() else F.concat(high, low, dim=1)
        return self.head(joined)

    blocks = {
        "down": convolution(3),
        "pool": nn.MaxPool2D(),
        "bottom": convolution(4),
        "head": nn.Conv2D(2, 1),
    }
    return Call(call, up=nn.Conv2DTranspose(3, 2, 2), **blocks), [draw(1, 2, 6, 6)]


@model()
def autoencoder(draw):
    blocks = [
        nn.Dense(5, activation="relu"),
        nn.Dense(2),
        nn.Dense(5, activation="relu"),
        nn.Dense(8, activation="sigmoid"),
    ]
    return chain(*blocks), [draw(3, 8)]


# Networks of text


@model()
def text_cnn(draw):
    """Convolutions of two widths over embedded words, and the largest value of each channel."""

    def call(self, F, x):
        is_np = is_np_array()
        embedded = self.embedding(x)
        embedded = F.np.transpose(embedded, (0, 2, 1)) if is_np else F.transpose(embedded, (0, 2, 1))
        rows = [self.pool(conv(embedded)) for conv in (self.a, self.b)]
        rows = [F.np.squeeze(each, axis=2) if is_np else F.flatten(each) for each in rows]
        joined = F.np.concatenate(rows, axis=1) if is_np else F.concat(*rows, dim=1)
        return self.head(self.drop(joined))

    blocks = {
        "embedding": nn.Embedding(9, 4),
        "pool": nn.GlobalMaxPool1D(),
        "drop": nn.Dropout(0),
        "head": nn.Dense(2),
    }
    blocks.update(a=nn.Conv1D(3, 2, activation="relu"), b=nn.Conv1D(3, 3, activation="relu"))
    return Call(call, **blocks), [draw.tokens(9, 2, 6)]


@model()
def lstm_language_model(draw):
    def call(self, F, x, h, c):
        output, states = self.lstm(self.drop(self.embedding(x)), [h, c])
        return [self.head(output), *states]

    blocks = {"embedding": nn.Embedding(9, 4), "drop": nn.Dropout(0), "lstm": rnn.LSTM(4, 2, input_size=4)}
    inputs = [draw.tokens(9, 5, 2), draw(2, 2, 4), draw(2, 2, 4)]
    return Call(call, head=dense(9), **blocks), inputs


@model("classic")
def transformer_encoder(draw):
    """A layer of attention with four-dimensional heads, `batch_dot` and a mask."""

    def call(self, F, x, mask):
        def heads(y):
            y = F.transpose(F.reshape(y, (0, 0, 2, -1)), (0, 2, 1, 3))
            return F.reshape(y, (-1, 0, 0), reverse=True)

        scores = F.batch_dot(heads(self.q(x)), heads(self.k(x)), transpose_b=True)
        scores = F.contrib.div_sqrt_dim(scores)
        mask = F.repeat(F.expand_dims(mask, 1), repeats=2, axis=0)
        weights = F.softmax(F.broadcast_add(scores, (1 - mask) * -1e4))
        context = F.reshape(F.batch_dot(weights, heads(self.v(x))), (-1, 2, 0, 0), reverse=True)
        context = F.reshape(F.transpose(context, (0, 2, 1, 3)), (0, 0, -1))
        x = self.norm(x + self.o(context))
        return self.norm2(x + self.b(self.a(x)))

    blocks = {name: dense(4) for name in "qkvo"}
    blocks.update(a=dense(6, activation="relu"), b=dense(4), norm=nn.LayerNorm(), norm2=nn.LayerNorm())
    mask = draw.tokens(2, 2, 3)
    mask[:, 0] = 1
    return Call(call, **blocks), [draw(2, 3, 4), mask]


@model("classic")
def bert(draw):
    """An encoder with interleaved attention, as gluon-nlp exports it."""

    def call(self, F, tokens, segments, lengths):
        positions = F.contrib.arange_like(tokens, axis=1)
        x = F.broadcast_add(
            self.words(tokens) + self.segments(segments), F.expand_dims(self.positions(positions), 0)
        )
        x = F.transpose(self.norm(x), (1, 0, 2))
        scores = F.contrib.interleaved_matmul_selfatt_qk(self.qkv(x), heads=2)
        steps = F.contrib.arange_like(scores, axis=2)
        mask = F.broadcast_lesser(F.reshape(steps, (1, -1)), F.reshape(lengths, (-1, 1)))
        mask = F.expand_dims(F.repeat(mask, repeats=2, axis=0), 1)
        mask = F.broadcast_like(mask, scores, lhs_axes=(1,), rhs_axes=(1,))
        weights = F.where(
            mask, F.softmax(F.where(mask, scores, F.ones_like(scores) * -1e4)), F.zeros_like(scores)
        )
        x = self.norm1(x + self.o(F.contrib.interleaved_matmul_selfatt_valatt(self.qkv(x), weights, heads=2)))
        x = F.transpose(self.norm2(x + self.b(self.gelu(self.a(x)))), (1, 0, 2))
        return [x, self.pooler(F.slice_axis(x, axis=1, begin=0, end=1))]

    blocks = {"words": nn.Embedding(9, 4), "segments": nn.Embedding(2, 4), "positions": nn.Embedding(6, 4)}
    blocks.update(
        qkv=dense(12),
        o=dense(4),
        a=dense(6),
        gelu=nn.GELU(),
        b=dense(4),
        pooler=nn.Dense(3, activation="tanh"),
    )
    blocks.update({name: nn.LayerNorm(epsilon=1e-12) for name in ("norm", "norm1", "norm2")})
    return Call(call, **blocks), [draw.tokens(9, 2, 4), draw.tokens(2, 2, 4), draw.lengths(2, 4)]


@model("classic")
def translation_attention(draw):
    """Attention between two sequences, interleaved."""

    def call(self, F, target, source):
        scores = F.contrib.interleaved_matmul_encdec_qk(self.q(target), self.kv(source), heads=2)
        return self.o(F.contrib.interleaved_matmul_encdec_valatt(self.kv(source), F.softmax(scores), heads=2))

    return Call(call, q=dense(4), kv=dense(8), o=dense(3)), [draw(3, 2, 4), draw(4, 2, 4)]


@model("classic")
def seq2seq_attention(draw):
    """An encoder of GRUs; the decoder's cell attends to its outputs."""

    def call(self, F, source, target, begin):
        memory, states = self.encoder(self.embedding(source), [begin])
        memory = F.transpose(memory, (1, 0, 2))
        state, rows = F.squeeze(states[0], axis=0), []
        steps = F.split(self.embedding(target), num_outputs=3, axis=0, squeeze_axis=True)
        for step in steps:
            scores = F.batch_dot(memory, F.expand_dims(self.query(state), 2))
            context = F.sum(F.broadcast_mul(F.softmax(scores, axis=1), memory), axis=1)
            state, _ = self.decoder(F.concat(step, context, dim=1), [state])
            rows.append(self.head(state))
        return F.stack(*rows, axis=0)

    blocks = {"embedding": nn.Embedding(9, 4), "encoder": rnn.GRU(4, input_size=4), "query": nn.Dense(4)}
    inputs = [draw.tokens(9, 4, 2), draw.tokens(9, 3, 2), draw(1, 2, 4)]
    return Call(call, decoder=rnn.GRUCell(4), head=nn.Dense(9), **blocks), inputs


@model("classic")
def decoder_step(draw):
    """A step of a translation's decoder: LSTM cells with residuals, and attention to a masked memory."""

    def call(self, F, token, h1, c1, h2, c2, memory, lengths):
        x = self.embedding(token)
        y, (h1, c1) = self.a(x, [h1, c1])
        z, (h2, c2) = self.b(y, [h2, c2])
        z = z + y
        scores = F.batch_dot(F.expand_dims(z, 1), memory, transpose_b=True)
        mask = F.SequenceMask(F.ones_like(F.transpose(scores, (2, 0, 1))), lengths, use_sequence_length=True)
        weights = F.broadcast_mul(F.softmax(scores), F.transpose(mask, (1, 2, 0)))
        context = F.reshape(F.batch_dot(weights, memory), (-1, 4))
        return [F.log_softmax(self.head(F.concat(z, context, dim=1))), h1, c1, h2, c2]

    blocks = {
        "embedding": nn.Embedding(9, 4),
        "a": rnn.LSTMCell(4),
        "b": rnn.LSTMCell(4),
        "head": nn.Dense(9),
    }
    inputs = [draw.tokens(9, 2), *(draw(2, 4) for _ in range(4)), draw(2, 3, 4), draw.lengths(2, 3)]
    return Call(call, **blocks), inputs


# Other networks


@model("classic")
def matrix_factorization(draw):
    def call(self, F, user, item):
        return F.sum(self.user(user) * self.item(item), axis=1) + F.reshape(self.bias(item), (-1,))

    blocks = {"user": nn.Embedding(6, 4), "item": nn.Embedding(7, 4), "bias": nn.Embedding(7, 1)}
    return Call(call, **blocks), [draw.tokens(6, 3), draw.tokens(7, 3)]


@model("np")
def matrix_factorization_np(draw):
    def call(self, F, user, item):
        scores = (self.user(user) * self.item(item)).sum(axis=1)
        return scores + F.np.squeeze(self.bias(item))

    blocks = {"user": nn.Embedding(6, 4), "item": nn.Embedding(7, 4), "bias": nn.Embedding(7, 1)}
    return Call(call, **blocks), [draw.tokens(6, 3), draw.tokens(7, 3)]


@model("classic")
def deepar(draw):
    """A scaled series through LSTMs, and the parameters of Student's t distribution."""

    def call(self, F, series, covariates, h, c):
        scale = F.mean(F.abs(series), axis=1, keepdims=True) + 1
        x = F.concat(F.expand_dims(F.broadcast_div(series, scale), 2), covariates, dim=2)
        output, _ = self.lstm(x, [h, c])
        mu, sigma, nu = F.split(self.head(output), axis=2, num_outputs=3, squeeze_axis=True)
        return [
            F.broadcast_mul(mu, scale),
            F.broadcast_mul(F.Activation(sigma, act_type="softrelu"), scale),
            F.Activation(nu, act_type="softrelu") + 2,
        ]

    inputs = [draw(2, 4), draw(2, 4, 2), draw(1, 2, 4), draw(1, 2, 4)]
    return Call(call, lstm=rnn.LSTM(4, layout="NTC", input_size=3), head=dense(3)), inputs


# As the book d2l.ai writes them


@model("np")
def d2l_lenet(draw):
    blocks = [
        nn.Conv2D(3, 5, padding=2, activation="sigmoid"),
        nn.AvgPool2D(2, 2),
        nn.Conv2D(4, 3, activation="sigmoid"),
    ]
    return chain(*blocks, nn.AvgPool2D(2, 2), nn.Dense(6, activation="sigmoid"), nn.Dense(3)), [
        draw(2, 1, 12, 12)
    ]


@model("np")
def d2l_resnet(draw):
    def call(self, F, x):
        return F.npx.relu(self.b(self.a(x)) + self.skip(x))

    block = Call(call, a=convolution(4, 3, 2), b=convolution(4, relu=False), skip=nn.Conv2D(4, 1, 2))
    return chain(convolution(3), block, nn.GlobalAvgPool2D(), nn.Dense(3)), [draw(2, 1, 6, 6)]


@model("np")
def d2l_mlp(draw):
    return chain(nn.Dense(6, activation="relu"), nn.Dropout(0), nn.Dense(3)), [draw(3, 2, 4)]


@model("np")
def d2l_rnn_scratch(draw):
    def call(self, F, tokens, state):
        rows = []
        for step in F.np.split(F.npx.one_hot(tokens.T, 5), 3, axis=0):
            state = F.np.tanh(self.x(F.np.squeeze(step, axis=0)) + self.h(state))
            rows.append(self.o(state))
        return [F.np.concatenate(rows, axis=0), state]

    return Call(call, x=nn.Dense(4), h=nn.Dense(4, use_bias=False), o=nn.Dense(5)), [
        draw.tokens(5, 2, 3),
        draw(2, 4),
    ]


@model("np")
def d2l_encoder_decoder(draw):
    def call(self, F, source, target, begin):
        output, states = self.encoder(F.np.swapaxes(self.embedding(source), 0, 1), [begin])
        context = F.np.tile(F.np.expand_dims(F.np.squeeze(states[0], axis=0), 0), (3, 1, 1))
        inputs = F.np.concatenate((F.np.swapaxes(self.embedding(target), 0, 1), context), axis=2)
        output, states = self.decoder(inputs, [states[0]])
        return [F.np.swapaxes(self.head(output), 0, 1), states[0]]

    blocks = {
        "embedding": nn.Embedding(9, 3),
        "encoder": rnn.GRU(4, input_size=3),
        "decoder": rnn.GRU(4, input_size=7),
    }
    return Call(call, head=dense(9), **blocks), [draw.tokens(9, 2, 4), draw.tokens(9, 2, 3), draw(1, 2, 4)]


@model("np")
def d2l_bert(draw):
    """The book's encoder, with both heads: masked words at positions, and the next sentence."""

    def call(self, F, tokens, segments, lengths, picked):
        x = self.words(tokens) + self.segments(segments) + self.positions(F.npx.arange_like(tokens, axis=1))

        def heads(y):
            return F.np.transpose(F.npx.reshape(y, (-2, -2, -6, 2, -1, -4)), (0, 2, 1, 3))

        scores = F.np.matmul(heads(self.q(x)), F.np.swapaxes(heads(self.k(x)), 2, 3)) / 2**0.5
        mask = F.npx.arange_like(x, axis=1).reshape((1, 1, 1, -1)) < lengths.reshape((-1, 1, 1, 1))
        weights = F.npx.softmax(F.np.where(mask, scores, F.np.full_like(scores, -1e6)), axis=-1)
        y = F.np.transpose(F.np.matmul(weights, heads(self.v(x))), (0, 2, 1, 3))
        x = self.norm1(x + self.o(F.npx.reshape(y, (-2, -2, -1))))
        x = self.norm2(x + self.b(self.a(x)))
        masked = F.npx.batch_dot(F.npx.one_hot(picked, 4), x)
        return [self.mlm(masked), self.nsp(self.pooler(x[:, 0, :]))]

    blocks = {"words": nn.Embedding(9, 4), "segments": nn.Embedding(2, 4), "positions": nn.Embedding(6, 4)}
    blocks.update({name: dense(4) for name in "qkvo"})
    blocks.update(a=dense(6, activation="relu"), b=dense(4), norm1=nn.LayerNorm(), norm2=nn.LayerNorm())
    blocks.update(mlm=dense(9), pooler=nn.Dense(4, activation="tanh"), nsp=nn.Dense(2))
    return Call(call, **blocks), [
        draw.tokens(9, 2, 4),
        draw.tokens(2, 2, 4),
        draw.lengths(2, 4),
        draw.tokens(4, 2, 2),
    ]
