"""Convolutional cells against NumPy; the graphs they make are compared with MXNet's in tests/parity."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, ShapeError
from helpers.rnn_run import close, random_args, run, shapes_of

ROWS, CHANNELS, HEIGHT, WIDTH, HIDDEN = 2, 2, 4, 5, 3
CELLS = (mx.rnn.ConvRNNCell, mx.rnn.ConvLSTMCell, mx.rnn.ConvGRUCell)


def convolve(data, weight, bias, dilate):
    """Convolve (C, H, W) with (F, C, h, w) so that height and width stay."""
    filters, _, high, wide = weight.shape
    around = [(dilate * (high - 1) // 2,) * 2, (dilate * (wide - 1) // 2,) * 2]
    padded = np.pad(data, [(0, 0), *around])
    out = np.zeros((filters, *data.shape[1:]))
    for y in range(data.shape[1]):
        for x in range(data.shape[2]):
            window = padded[:, y : y + dilate * high : dilate, x : x + dilate * wide : dilate][
                :, :high, :wide
            ]
            out[:, y, x] = np.tensordot(weight, window, 3) + bias
    return out


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(kind, args, x, states, dilate):
    """Compute one step for one row, by the formulas."""
    prefix = kind.default_prefix
    i2h = convolve(x, args[prefix + "i2h_weight"], args[prefix + "i2h_bias"], 1)
    h2h = convolve(states[0], args[prefix + "h2h_weight"], args[prefix + "h2h_bias"], dilate)
    if kind is mx.rnn.ConvRNNCell:
        return [np.tanh(i2h + h2h)]
    if kind is mx.rnn.ConvLSTMCell:
        i, f, c, o = np.split(i2h + h2h, 4)
        cell = sigmoid(f) * states[1] + sigmoid(i) * np.tanh(c)
        return [sigmoid(o) * np.tanh(cell), cell]
    (xr, xz, xn), (hr, hz, hn) = np.split(i2h, 3), np.split(h2h, 3)
    new = np.tanh(xn + sigmoid(xr + hr) * hn)
    update = sigmoid(xz + hz)
    return [(1 - update) * new + update * states[0]]


@pytest.mark.parametrize("kind", CELLS)
@pytest.mark.parametrize("dilate", [1, 2])
def test_value(kind, dilate):
    cell = kind((1, CHANNELS, HEIGHT, WIDTH), HIDDEN, h2h_dilate=(dilate, dilate), activation="tanh")
    outputs, states = cell.unroll(2, [mx.sym.Variable("x0"), mx.sym.Variable("x1")])
    symbol = mx.sym.Group(outputs + states)
    image = (ROWS, CHANNELS, HEIGHT, WIDTH)
    args = random_args(shapes_of(symbol, x0=image, x1=image))
    found = [o.asnumpy() for o in symbol.bind(mx.cpu(), args).forward()]
    arrays = {name: array.asnumpy() for name, array in args.items()}
    for row in range(ROWS):
        now = [np.zeros((HIDDEN, HEIGHT, WIDTH))] * len(states)
        for i in range(2):
            now = step(kind, arrays, arrays[f"x{i}"][row], now, dilate)
            np.testing.assert_allclose(found[i][row], now[0], 1e-4, 1e-5)
        close([state[row] for state in found[2:]], now)


@pytest.mark.parametrize("kind", CELLS)
def test_channels_last_computes_the_same(kind):
    def unrolled(shape, layout):
        cell = kind(shape, HIDDEN, conv_layout=layout)
        return mx.sym.Group(cell.unroll(2, [mx.sym.Variable("x0"), mx.sym.Variable("x1")])[0])

    first = unrolled((1, CHANNELS, HEIGHT, WIDTH), "NCHW")
    args = random_args(shapes_of(first, **{f"x{i}": (ROWS, CHANNELS, HEIGHT, WIDTH) for i in range(2)}))
    outputs, _ = run(first, args)
    last = unrolled((1, HEIGHT, WIDTH, CHANNELS), "NHWC")
    moved = {k: mx.nd.array(np.moveaxis(v.asnumpy(), 1, -1)) if v.ndim == 4 else v for k, v in args.items()}
    found = [o.asnumpy() for o in last.bind(mx.cpu(), moved).forward()]
    close(found, [np.moveaxis(output, 1, -1) for output in outputs])


def test_sequences_of_images_may_be_one_symbol():
    cell = mx.rnn.ConvGRUCell((1, CHANNELS, HEIGHT, WIDTH), HIDDEN)
    outputs, _ = cell.unroll(3, mx.sym.Variable("data"), layout="NTCHW", merge_outputs=True)
    assert outputs.infer_shape(data=(ROWS, 3, CHANNELS, HEIGHT, WIDTH))[1] == [
        (ROWS, 3, HIDDEN, HEIGHT, WIDTH)
    ]


@pytest.mark.parametrize("kind", CELLS)
def test_weights_survive_unpacking(kind):
    cell = kind((1, CHANNELS, HEIGHT, WIDTH), HIDDEN, prefix="c_")
    outputs, _ = cell.unroll(1, [mx.sym.Variable("x")])
    args = random_args(shapes_of(outputs[0], x=(ROWS, CHANNELS, HEIGHT, WIDTH)))
    unpacked = cell.unpack_weights(args)
    if kind is not mx.rnn.ConvRNNCell:
        assert all(unpacked[n].shape[0] == HIDDEN for n in unpacked if n != "x")
    packed = cell.pack_weights(unpacked)
    close({k: v.asnumpy() for k, v in packed.items()}, {k: v.asnumpy() for k, v in args.items()}, 0, 0)


def test_initializers_reach_the_module():
    cell = mx.rnn.ConvRNNCell(
        (1, CHANNELS, HEIGHT, WIDTH),
        HIDDEN,
        i2h_weight_initializer=mx.init.Constant(0.25),
        h2h_bias_initializer="ones",
    )
    outputs, _ = cell.unroll(1, [mx.sym.Variable("x")])
    module = mx.mod.Module(outputs[0], ["x"], None)
    module.bind([("x", (ROWS, CHANNELS, HEIGHT, WIDTH))], None)
    module.init_params(mx.init.Zero())
    found = {name: set(array.asnumpy().ravel()) for name, array in module.get_params()[0].items()}
    assert found["ConvRNN_i2h_weight"] == {0.25}
    assert found["ConvRNN_h2h_bias"] == {1.0}
    assert found["ConvRNN_h2h_weight"] == found["ConvRNN_i2h_bias"] == {0.0}


def test_windows_must_fit():
    with pytest.raises(ArgumentError, match=r"ConvRNNCell: h2h_kernel is \(2, 3\), expected odd sizes"):
        mx.rnn.ConvRNNCell((1, CHANNELS, HEIGHT, WIDTH), HIDDEN, h2h_kernel=(2, 3))
    with pytest.raises(ShapeError, match="kernel size 7 exceeds the input"):
        mx.rnn.ConvLSTMCell((1, CHANNELS, HEIGHT, WIDTH), HIDDEN, i2h_kernel=(7, 3))
