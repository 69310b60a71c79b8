"""Single cells: states, weights, lengths and cells of users (graphs and values of MXNet: tests/parity)."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from helpers.rnn_run import as_numpy, close, outputs_of, random_args, run, shapes_of

UNITS, FEATURES, STEPS, ROWS = 3, 4, 5, 2
X = mx.sym.Variable("x")
KINDS = {"rnn": mx.rnn.RNNCell, "lstm": mx.rnn.LSTMCell, "gru": mx.rnn.GRUCell}
GATES = {"rnn": 1, "lstm": 4, "gru": 3}


@pytest.mark.parametrize(
    ("kind", "merge", "layout"), [*itertools.product(KINDS, (True, False), ("NTC", "TNC"))]
)
def test_valid_length_gives_each_row_what_it_gets_alone(kind, merge, layout):
    def unrolled(length, **options):
        outputs, states = KINDS[kind](UNITS, prefix="c_").unroll(length, mx.sym.Variable("data"), **options)
        return mx.sym.Group([*([outputs] if options["merge_outputs"] else outputs), *states])

    symbol = unrolled(STEPS, layout=layout, merge_outputs=merge, valid_length=mx.sym.Variable("n"))
    rows = np.random.RandomState(1).uniform(-0.6, 0.6, (ROWS, STEPS, FEATURES)).astype("f4")
    data = rows if layout == "NTC" else rows.swapaxes(0, 1)
    args = {
        **random_args(shapes_of(symbol, data=data.shape)),
        "data": mx.nd.array(data),
        "n": mx.nd.array([2, 5]),
    }
    found = outputs_of(symbol, args)
    outputs, states = (found[0], found[1:]) if merge else (np.stack(found[:STEPS], 1), found[STEPS:])
    outputs = outputs.swapaxes(0, 1) if merge and layout == "TNC" else outputs
    for row, length in enumerate([2, 5]):
        mine = {**args, "data": mx.nd.array(rows[row : row + 1, :length])}
        want = outputs_of(unrolled(length, merge_outputs=True), mine)
        np.testing.assert_allclose(outputs[row, :length], want[0][0], 1e-5, 1e-6)
        assert not outputs[row, length:].any()
        close([state[row] for state in states], [state[0] for state in want[1:]])


class TestBeginState:
    def test_given_as_variables_they_are_fed(self):
        cell = mx.rnn.LSTMCell(UNITS, prefix="c_")
        begin = cell.begin_state(func=mx.sym.Variable)
        assert [state.name for state in begin] == ["c_begin_state_0", "c_begin_state_1"]
        outputs, states = cell.unroll(2, mx.sym.Variable("data"), begin_state=begin, merge_outputs=True)
        symbol = mx.sym.Group([outputs, *states])
        args = random_args(shapes_of(symbol, data=(ROWS, 2, FEATURES)))
        first = outputs_of(symbol, args)
        assert first[2].shape == args["c_begin_state_1"].shape == (ROWS, UNITS)
        carried = {f"c_begin_state_{i}": mx.nd.array(first[1 + i]) for i in range(2)}
        assert np.abs(first[0] - outputs_of(symbol, {**args, **carried})[0]).max() > 1e-3

    @pytest.mark.parametrize("func", [mx.sym.zeros, mx.sym.ones])
    def test_batch_size_is_inferred(self, func):
        cell = mx.rnn.GRUCell(UNITS)
        outputs, _ = cell.unroll(1, [X], begin_state=cell.begin_state(func=func))
        assert outputs[0].infer_shape(x=(7, FEATURES))[1] == [(7, UNITS)]

    def test_arguments_and_names(self):
        cell = mx.rnn.RNNCell(UNITS, prefix="c_")
        state = cell.begin_state(func=mx.sym.Variable, lr_mult=2.0)[0]
        assert (state.attr("lr_mult"), state.attr("__layout__")) == ("2.0", "NC")
        names = [cell.begin_state()[0].name]
        cell.reset()
        assert [*names, cell.begin_state()[0].name] == ["c_begin_state_1", "c_begin_state_0"]


class TestWeights:
    def test_one_container_makes_cells_share(self):
        params = mx.rnn.RNNParams("tied_")
        first = params.get("w", shape=(1, 2))
        assert first is params.get("w")
        assert (first.infer_shape()[0], params.names()) == ([(1, 2)], ["tied_w"])
        one, other = mx.rnn.GRUCell(UNITS, "a_", params), mx.rnn.GRUCell(UNITS, "b_", params)
        symbol = mx.sym.Group([one(X, one.begin_state())[0], other(X, other.begin_state())[0]])
        names = ["tied_i2h_weight", "tied_i2h_bias", "tied_h2h_weight", "tied_h2h_bias"]
        assert [n for n in symbol.list_arguments() if n != "x"] == names
        np.testing.assert_array_equal(*outputs_of(symbol, random_args(shapes_of(symbol, x=(ROWS, FEATURES)))))

    def test_forget_bias_is_where_training_begins(self):
        outputs, _ = mx.rnn.LSTMCell(UNITS, prefix="c_", forget_bias=2.5).unroll(1, [X])
        module = mx.mod.Module(outputs[0], ["x"], label_names=None)
        module.bind([("x", (ROWS, FEATURES))], None)
        module.init_params(mx.init.One())
        bias = module.get_params()[0]["c_i2h_bias"].asnumpy()
        np.testing.assert_array_equal(bias, [0] * UNITS + [2.5] * UNITS + [0] * 2 * UNITS)

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(st.sampled_from([*KINDS]), st.integers(1, 6), st.integers(1, 5), st.integers(0, 2**31 - 1))
    def test_packing_unpacked_weights_gives_them_back(self, kind, units, features, seed):
        cell, gates = KINDS[kind](units, prefix="c_"), GATES[kind]
        shapes = {"c_i2h_weight": (gates * units, features), "c_h2h_weight": (gates * units, units)}
        shapes |= {"c_i2h_bias": (gates * units,), "c_h2h_bias": (gates * units,), "other": (2,)}
        args = random_args(shapes, seed)
        before, unpacked = as_numpy(args), cell.unpack_weights(args)
        assert len(unpacked) == 1 + 4 * gates
        close(as_numpy(cell.pack_weights(unpacked)), before, 0, 0)
        if kind != "rnn":
            unpacked[f"c_h2h{cell._gate_names[0]}_weight"][:] = 7  # a copy
        assert list(args) == list(shapes)
        close(as_numpy(args), before, 0, 0)


def test_activation_may_be_a_function():
    cell = mx.rnn.RNNCell(
        UNITS, activation=lambda x, **kw: mx.sym.LeakyReLU(x, act_type="elu", **kw), prefix="c_"
    )
    output, _ = cell(X, cell.begin_state())
    assert output.name == "c_t0_out"
    assert "LeakyReLU" in output.debug_str()


def test_rnn_unroll_is_deprecated_but_works():
    with pytest.warns(DeprecationWarning, match="call cell.unroll"):
        outputs, _ = mx.rnn.rnn_unroll(mx.rnn.RNNCell(UNITS, prefix="c_"), 2, input_prefix="in_")
    assert {n for n in outputs[1].list_arguments() if n.startswith("in_")} == {"in_t0_data", "in_t1_data"}


def test_cells_derived_from_the_lstm_find_its_weights():
    cell, stack = mx.rnn.LSTMCell(5, prefix="l_"), mx.rnn.SequentialRNNCell()
    stack.add(cell)
    names = [
        v.name for v in (cell._iW, cell._iB, cell._hW, cell._hB)
    ]  # which derived classes of MXNet's users read
    assert names == ["l_i2h_weight", "l_i2h_bias", "l_h2h_weight", "l_h2h_bias"]
    assert (cell._num_hidden, cell._gate_names, stack._cells) == (5, ("_i", "_f", "_c", "_o"), [cell])


IMAGE, HIDDEN = (2, 4, 5), 3
CELLS = (mx.rnn.ConvRNNCell, mx.rnn.ConvLSTMCell, mx.rnn.ConvGRUCell)


@pytest.mark.parametrize("kind", CELLS)
def test_convolutional_cells_with_channels_last_and_their_weights(kind):
    def unrolled(shape, layout):
        cell = kind((1, *shape), HIDDEN, conv_layout=layout)
        return cell, mx.sym.Group(cell.unroll(2, [mx.sym.Variable("x0"), mx.sym.Variable("x1")])[0])

    (cell, first), (_, last) = unrolled(IMAGE, "NCHW"), unrolled((*IMAGE[1:], IMAGE[0]), "NHWC")
    args = random_args(shapes_of(first, x0=(ROWS, *IMAGE), x1=(ROWS, *IMAGE)))
    outputs, _ = run(first, args)
    moved = {k: mx.nd.array(np.moveaxis(v.asnumpy(), 1, -1)) if v.ndim == 4 else v for k, v in args.items()}
    close(outputs_of(last, moved), [np.moveaxis(output, 1, -1) for output in outputs])
    unpacked = cell.unpack_weights(args)
    assert kind is mx.rnn.ConvRNNCell or all(
        each.shape[0] == HIDDEN for n, each in unpacked.items() if n[0] != "x"
    )
    close(as_numpy(cell.pack_weights(unpacked)), as_numpy(args), 0, 0)


def test_sequences_of_images_may_be_one_symbol():
    cell = mx.rnn.ConvGRUCell((1, *IMAGE), HIDDEN)
    outputs, _ = cell.unroll(3, mx.sym.Variable("data"), layout="NTCHW", merge_outputs=True)
    assert outputs.infer_shape(data=(ROWS, 3, *IMAGE))[1] == [(ROWS, 3, HIDDEN, *IMAGE[1:])]


def test_initializers_reach_the_module():
    options = {"i2h_weight_initializer": mx.init.Constant(0.25), "h2h_bias_initializer": "ones"}
    outputs, _ = mx.rnn.ConvRNNCell((1, *IMAGE), HIDDEN, **options).unroll(1, [X])
    module = mx.mod.Module(outputs[0], ["x"], None)
    module.bind([("x", (ROWS, *IMAGE))], None)
    module.init_params(mx.init.Zero())
    found = {name: set(array.asnumpy().ravel()) for name, array in module.get_params()[0].items()}
    assert found == {
        f"ConvRNN_{name}": {value}
        for name, value in (("i2h_weight", 0.25), ("h2h_bias", 1.0), ("h2h_weight", 0.0), ("i2h_bias", 0.0))
    }
