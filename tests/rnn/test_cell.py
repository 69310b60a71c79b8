"""Single cells: weights, activations and cells of users (graphs and values of MXNet: tests/parity)."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.rnn_run import as_numpy, close, outputs_of, random_args, shapes_of

UNITS, FEATURES, ROWS = 3, 4, 2
X = mx.sym.Variable("x")


def test_one_container_makes_cells_share():
    params = mx.rnn.RNNParams("tied_")
    first = params.get("w", shape=(1, 2))
    assert first is params.get("w")
    assert (first.infer_shape()[0], params.names()) == ([(1, 2)], ["tied_w"])
    one, other = mx.rnn.GRUCell(UNITS, "a_", params), mx.rnn.GRUCell(UNITS, "b_", params)
    symbol = mx.sym.Group([one(X, one.begin_state())[0], other(X, other.begin_state())[0]])
    names = ["tied_i2h_weight", "tied_i2h_bias", "tied_h2h_weight", "tied_h2h_bias"]
    assert [n for n in symbol.list_arguments() if n != "x"] == names
    np.testing.assert_array_equal(*outputs_of(symbol, random_args(shapes_of(symbol, x=(ROWS, FEATURES)))))


def test_activation_may_be_a_function():
    cell = mx.rnn.RNNCell(UNITS, lambda x, **kw: mx.sym.LeakyReLU(x, act_type="elu", **kw), prefix="c_")
    output, _ = cell(X, cell.begin_state())
    assert (output.name, "LeakyReLU" in output.debug_str()) == ("c_t0_out", True)


def test_rnn_unroll_is_deprecated_but_works():
    with pytest.warns(DeprecationWarning, match="call cell.unroll"):
        outputs, _ = mx.rnn.rnn_unroll(mx.rnn.RNNCell(UNITS, prefix="c_"), 2, input_prefix="in_")
    assert {n for n in outputs[1].list_arguments() if n.startswith("in_")} == {"in_t0_data", "in_t1_data"}


def test_cells_derived_from_the_lstm_find_its_weights():
    cell, stack = mx.rnn.LSTMCell(5, prefix="l_"), mx.rnn.SequentialRNNCell()
    stack.add(cell)
    names = [v.name for v in (cell._iW, cell._iB, cell._hW, cell._hB)]  # which users' classes read
    assert names == ["l_i2h_weight", "l_i2h_bias", "l_h2h_weight", "l_h2h_bias"]
    assert (cell._num_hidden, cell._gate_names, stack._cells) == (5, ("_i", "_f", "_c", "_o"), [cell])


IMAGE, HIDDEN = (2, 4, 5), 3


@pytest.mark.parametrize("kind", [mx.rnn.ConvRNNCell, mx.rnn.ConvLSTMCell, mx.rnn.ConvGRUCell])
def test_convolutional_cells_with_channels_last_and_their_weights(kind):
    def unrolled(shape, layout):
        cell = kind((1, *shape), HIDDEN, conv_layout=layout)
        return cell, mx.sym.Group(cell.unroll(2, [mx.sym.Variable("x0"), mx.sym.Variable("x1")])[0])

    (cell, first), (_, last) = unrolled(IMAGE, "NCHW"), unrolled((*IMAGE[1:], IMAGE[0]), "NHWC")
    args = random_args(shapes_of(first, x0=(ROWS, *IMAGE), x1=(ROWS, *IMAGE)))
    moved = {k: mx.nd.array(np.moveaxis(v.asnumpy(), 1, -1)) if v.ndim == 4 else v for k, v in args.items()}
    close(outputs_of(last, moved), [np.moveaxis(output, 1, -1) for output in outputs_of(first, args)])
    unpacked = cell.unpack_weights(args)
    assert kind is mx.rnn.ConvRNNCell or {v.shape[0] for n, v in unpacked.items() if n[0] != "x"} == {HIDDEN}
    close(as_numpy(cell.pack_weights(unpacked)), as_numpy(args), 0, 0)


def test_sequences_of_images_may_be_one_symbol():
    cell = mx.rnn.ConvGRUCell((1, *IMAGE), HIDDEN)
    outputs, _ = cell.unroll(3, mx.sym.Variable("data"), layout="NTCHW", merge_outputs=True)
    assert outputs.infer_shape(data=(ROWS, 3, *IMAGE))[1] == [(ROWS, 3, HIDDEN, *IMAGE[1:])]
