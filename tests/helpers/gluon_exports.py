"""Run exports of Gluon's layers and models as blocks; run by MXNet (data/record_mxnet.py) and by the tests."""

import zlib

import numpy as np

LENGTH = 5
"""Steps of the sequences that cells are unrolled over."""


def normal(*shape):
    return {"shape": shape}


def numbers(below, *shape):
    return {"shape": shape, "below": below}


INPUTS = [{1: normal(2, 3, 7), 2: normal(2, 3, 7, 6), 3: normal(1, 2, 4, 5, 4)}[d] for d in (1, 2, 3)]
SEQUENCE = normal(2, LENGTH, 3)

LAYERS = {
    "nn.Dense(4)": normal(2, 3, 5),
    "nn.Dense(4, flatten=False, activation='tanh', use_bias=False)": normal(2, 3, 5),
    "nn.Conv1D(4, 3, strides=2)": INPUTS[0],
    "nn.Conv2D(4, (3, 2), padding=1, dilation=2, groups=2)": normal(2, 4, 7, 7),
    "nn.Conv3D(2, 2)": INPUTS[2],
    "nn.Conv1DTranspose(4, 3, strides=2, output_padding=1)": INPUTS[0],
    "nn.Conv2DTranspose(4, 3, strides=2, padding=1)": INPUTS[1],
    "nn.Conv3DTranspose(2, 2)": INPUTS[2],
    **{
        f"nn.{name.format(i + 1)}": INPUTS[i]
        for name in (
            "MaxPool{}D(3, 2, 1)",
            "AvgPool{}D(3, 2, 1, ceil_mode=True, count_include_pad=False)",
            "GlobalMaxPool{}D()",
            "GlobalAvgPool{}D()",
        )
        for i in range(3)
    },
    "nn.ReflectionPad2D(2)": INPUTS[1],
    "nn.BatchNorm()": INPUTS[1],
    "nn.BatchNorm(scale=False, center=False, axis=-1)": INPUTS[0],
    "nn.BatchNorm(use_global_stats=True)": INPUTS[1],
    "nn.BatchNormReLU()": INPUTS[1],
    "nn.LayerNorm()": normal(4, 3, 5),
    "nn.GroupNorm(2)": normal(2, 4, 5, 5),
    "nn.InstanceNorm()": INPUTS[1],
    "cnn.SyncBatchNorm(num_devices=1)": INPUTS[1],
    "nn.Embedding(10, 4)": numbers(10, 3, 2),
    **{
        f"nn.{name}": normal(3, 4, 2)
        for name in (
            "LeakyReLU(0.2)",
            "PReLU()",
            "ELU()",
            "SELU()",
            "Swish()",
            "GELU()",
            "Activation('softsign')",
            "Flatten()",
            "Dropout(0.0)",
            "HybridLambda('erf')",
        )
    },
    "cnn.Identity()": normal(3, 4),
    "cnn.PixelShuffle1D(2)": normal(2, 4, 3),
    "cnn.PixelShuffle2D(2)": normal(2, 4, 3, 3),
    "cnn.PixelShuffle3D(2)": normal(2, 8, 3, 2, 3),
    "convs.DeformableConvolution(4, kernel_size=(3, 3), padding=(1, 1))": normal(1, 2, 5, 5),
    "rnn.LSTM(4)": SEQUENCE,
    "rnn.GRU(4, num_layers=2, bidirectional=True, layout='NTC')": SEQUENCE,
    "rnn.RNN(4, activation='tanh')": SEQUENCE,
    "rnn.LSTMCell(4)": SEQUENCE,
    "rnn.GRUCell(4)": SEQUENCE,
    "rnn.RNNCell(4)": SEQUENCE,
    "rnn.ResidualCell(rnn.GRUCell(3))": SEQUENCE,
    "rnn.BidirectionalCell(rnn.LSTMCell(3), rnn.LSTMCell(3))": SEQUENCE,
    "cells.Conv1DLSTMCell((3, 6), 2, 3, 3, i2h_pad=1)": normal(1, LENGTH, 3, 6),
    "cells.Conv2DGRUCell((3, 4, 4), 2, 3, 3, i2h_pad=1)": normal(1, LENGTH, 3, 4, 4),
    "cells.LSTMPCell(4, 2)": SEQUENCE,
}
"""Calls that make a layer, with its input; cells are unrolled."""

MODELS = {
    "alexnet": 192,
    "densenet121": 224,
    "densenet169": 224,
    "inceptionv3": 299,
    "mobilenet0.25": 224,
    "mobilenet0.5": 224,
    "mobilenet0.75": 224,
    "mobilenetv2_0.25": 128,
    "mobilenetv2_0.5": 128,
    "resnet18_v1": 64,
    "resnet18_v2": 64,
    "resnet34_v1": 64,
    "resnet34_v2": 64,
    "resnet50_v1": 160,
    "resnet50_v2": 160,
    "squeezenet1.0": 224,
    "squeezenet1.1": 224,
    "vgg11": 32,
    "vgg11_bn": 32,
    "vgg13_bn": 32,
}
"""Models of Gluon's zoo, with the size of their images."""


def draw(name, shape, below=None):
    """Return the same values in both systems for a name."""
    random = np.random.RandomState(zlib.crc32(name.encode()) % 2**31)
    if below is not None:
        return random.randint(0, below, shape).astype("f")
    values = random.randn(*shape).astype("f")
    if name.endswith(("gamma", "running_var")):
        return (0.4 if name.endswith("gamma") else 1) + np.abs(values) / 4
    if len(shape) < 2:
        return values / 10
    return values * np.float32(np.sqrt(2 / max(1, np.prod(shape[1:])))) if "weight" in name else values


def results(mx, symbol, inputs):
    """Open a network, predict, train a step and predict again; return both predictions."""
    block = mx.gluon.SymbolBlock(mx.sym.load_json(symbol), mx.sym.var("data"))
    block.initialize()
    x = mx.nd.array(draw("data", **inputs))
    block.infer_shape(x)
    for name, param in block.collect_params().items():
        param.set_data(mx.nd.array(draw(name, param.shape)))
    first = block(x)
    trained = {name: p for name, p in block.collect_params().items() if p.grad_req != "null"}
    if trained:
        trainer = mx.gluon.Trainer(trained, "sgd", {"learning_rate": 0.01})
        with mx.autograd.record():
            loss = mx.nd.log(1 + block(x) ** 2).mean()
        loss.backward()
        trainer.step(1)
    return [out.asnumpy().ravel().tolist() for out in (first, block(x))]
