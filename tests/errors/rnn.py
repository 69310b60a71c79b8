"""Wrong calls of `mx.rnn`."""

import dpmodule as mx
from dpmodule.base import ArgumentError, OpError, ShapeError, StateError

X, Y, rnn = mx.sym.Variable("x"), mx.sym.Variable("y"), mx.rnn
IMAGE = (1, 2, 4, 5)


def cell(kind="RNN", **options):
    return getattr(rnn, f"{kind}Cell")(3, prefix="c_", **options)


def fused(mode="gru"):
    return rnn.FusedRNNCell(3, 1, mode, prefix="f_")


def stack(*cells, **options):
    found = rnn.SequentialRNNCell(**options)
    for each in cells:
        found.add(each)
    return found


def both():
    return rnn.BidirectionalCell(rnn.GRUCell(2, prefix="l_"), rnn.GRUCell(2, prefix="r_"))


def wrapped():
    inner = cell()
    rnn.ZoneoutCell(inner)
    return inner


def pieces():
    found = fused().unpack_weights({"f_parameters": mx.nd.zeros((63,))})
    return {**found, "f_l0_h2h_z_weight": mx.nd.zeros((3, 4))}


def saved(folder):
    gru = rnn.GRUCell(3, prefix="g_")
    args = {"i2h_weight": (9, 4), "i2h_bias": (9,), "h2h_weight": (9, 3), "h2h_bias": (9,)}
    args = {f"g_{name}": mx.nd.ones(shape) for name, shape in args.items()}
    rnn.save_rnn_checkpoint(gru, str(folder / "net"), 0, gru(X, gru.begin_state())[0], args, {})
    return str(folder / "net")


def sentences(**wrong):
    return rnn.BucketSentenceIter(**{"sentences": [[1, 2], [3, 4]], "batch_size": 2, **wrong})


def begun_wrongly():
    outputs, _ = cell().unroll(1, [X], begin_state=[mx.sym.zeros((5, 3))])
    return outputs[0].infer_shape(x=(2, 4))


Wrong = ArgumentError
ROWS = [
    (lambda: cell("LSTM")(X, [Y]), Wrong, r"LSTMCell 'c_': got 1 states, expected 2, as begin_state\(\)"),
    (lambda: cell("LSTM").unroll(2, X, begin_state=[X, Y, X]), Wrong, "got 3 states, expected 2"),
    (lambda: stack(cell(), cell("LSTM")).unroll(2, X, begin_state=[Y]), Wrong, "Sequential.*1 states, expected 3"),
    (lambda: fused("lstm").unroll(2, X, begin_state=[Y]), Wrong, "FusedRNNCell 'f_': got 1 states, expected 2"),
    (begun_wrongly, ShapeError, r"\(5, 3\)"),
    *[(lambda v=v: cell().unroll(2, X, layout=v), Wrong, "layout is .*, expected 'NTC' .* or") for v in ("NCT", None)],
    (lambda: cell().unroll(3, [X, Y]), Wrong, r"inputs has 2 steps \(Symbol, Symbol\), expected 3 Symbols"),
    (lambda: cell().unroll(2, mx.sym.Group([X, Y])), Wrong, r"is a group of 2 symbols; pass list\(inputs\)"),
    *[(lambda n=n: cell().unroll(n, X), Wrong, "length is .*, expected a positive") for n in (0, 2.0)],
    *[(lambda n=n: rnn.GRUCell(n), Wrong, "GRUCell: num_hidden is .*, expected an int") for n in (0, "4", True)],
    (lambda: rnn.FusedRNNCell(3, num_layers="2"), Wrong, "expected an integer from 1"),
    (lambda: rnn.FusedRNNCell(3, mode="elman"), OpError, "mode is 'elman', expected one of rnn_relu, rnn_tanh"),
    (lambda: wrapped().begin_state(), StateError, "RNNCell 'c_' is wrapped by a modifier cell; call the modifier"),
    (lambda: cell("LSTM").unpack_weights({}), Wrong, "LSTMCell 'c_': args has no 'c_i2h_weight', only nothing"),
    (lambda: cell("LSTM").pack_weights({"x": mx.nd.zeros((1,))}), Wrong, "args has no 'c_i2h_i_weight', only x"),
    (lambda: cell("LSTM").unpack_weights({"c_i2h_weight": mx.nd.zeros((9, 2))}), Wrong, r"\(9, 2\), expected 12 rows"),
    (lambda: fused().unpack_weights({}), Wrong, "FusedRNNCell 'f_': args has no 'f_parameters'"),
    (lambda: fused().unpack_weights({"f_parameters": mx.nd.zeros((50,))}), ShapeError, "50 elements, expected 54 plus"),
    (lambda: fused().pack_weights({}), Wrong, "args has no 'f_l0_i2h_r_weight'"),
    (lambda: fused().pack_weights(pieces()), Wrong, r"f_l0_h2h_z_weight has shape \(3, 4\), expected \(3, 3\)"),
    (lambda: rnn.ConvRNNCell(IMAGE, 3, h2h_kernel=(2, 3)), Wrong, r"ConvRNNCell: h2h_kernel is \(2, 3\), .*odd"),
    (lambda: rnn.ConvLSTMCell(IMAGE, 3, i2h_kernel=(7, 3)), ShapeError, "kernel size 7 exceeds the input"),
    (lambda: both()(X, both().begin_state()), NotImplementedError, "use unroll on the whole sequence"),
    (lambda: fused()(X, fused().begin_state()), NotImplementedError, r"use unroll, or unfuse\(\) and call that"),
    (lambda: stack().unroll(2, X), StateError, "there is no cell to unroll; call add"),
    (lambda: stack(3), Wrong, "got 3, expected a cell such as LSTMCell"),
    (lambda: stack(cell(), params=rnn.RNNParams("s_")), Wrong, "pass params to the cells only"),
    (lambda: rnn.ZoneoutCell(stack(both()), 0.1), Wrong, "cannot be called step by step; wrap the cells in a"),
    (lambda: rnn.ZoneoutCell(fused(), 0.1), Wrong, "cannot be called step by step; wrap the cells in a"),
    (lambda: rnn.ZoneoutCell(cell(), 0.1, 2), Wrong, "zoneout_states is 2, expected a number from 0 to 1"),
    *[(lambda v=v: rnn.DropoutCell(v), Wrong, "dropout is .*, expected a number from 0 to 1") for v in ("a", 1.5)],
    (lambda: rnn.ResidualCell(3), Wrong, "ResidualCell: base_cell is 3, expected a cell"),
    (lambda folder: rnn.load_rnn_checkpoint(cell("LSTM"), saved(folder), 0), Wrong, "LSTMCell 'c_': args has no 'c_"),
    (lambda: rnn.do_rnn_checkpoint(cell(), "net", period="daily"), Wrong, "expected a number of epochs from 1"),
    (lambda: rnn.encode_sentences([["x"]], vocab={"a": 1}), Wrong, "'x' is not in vocab; add it, or pass an unknown"),
    (lambda: sentences(layout="CTN"), Wrong, "layout is 'CTN', expected 'NT'"),
    (lambda: sentences(batch_size=0), Wrong, "batch_size is 0, expected a number from 1"),
    (lambda: sentences(buckets=[3, 0]), Wrong, "expected lengths from 1, such as"),
    (lambda: sentences(batch_size=9), Wrong, "occurs in 9 of the 2 sentences, which would give no .*; pass buckets"),
]  # fmt: skip
