"""Single cells: numbers, states, weights, lengths, misuse; convolutional ones against NumPy (graphs: tests/parity)."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import ArgumentError, ShapeError, StateError
from helpers.rnn_run import as_numpy, close, random_args, run, shapes_of

UNITS, FEATURES, STEPS, ROWS = 3, 4, 5, 2
KINDS = {
    "rnn": lambda **more: mx.rnn.RNNCell(UNITS, prefix="c_", **more),
    "lstm": lambda **more: mx.rnn.LSTMCell(UNITS, prefix="c_", **more),
    "gru": lambda **more: mx.rnn.GRUCell(UNITS, prefix="c_", **more),
}
TORCH = {"rnn": torch.nn.RNN, "lstm": torch.nn.LSTM, "gru": torch.nn.GRU}


def unrolled(cell, layout="NTC", merge=True, **more):
    outputs, states = cell.unroll(STEPS, mx.sym.Variable("data"), layout=layout, merge_outputs=merge, **more)
    return mx.sym.Group(([outputs] if merge else list(outputs)) + states)


def torch_run(kind, args):
    """Return what torch's own module computes from the same weights, time in the middle."""
    module = TORCH[kind](FEATURES, UNITS, batch_first=True)
    names = {
        "weight_ih_l0": "i2h_weight",
        "bias_ih_l0": "i2h_bias",
        "weight_hh_l0": "h2h_weight",
        "bias_hh_l0": "h2h_bias",
    }
    with torch.no_grad():
        for theirs, ours in names.items():
            getattr(module, theirs).copy_(torch.from_numpy(args[f"c_{ours}"].asnumpy()))
    data = torch.from_numpy(args["data"].asnumpy()).requires_grad_()
    outputs, states = module(data)
    found = [outputs, *(states if kind == "lstm" else [states])]
    found[1:] = [state[0] for state in found[1:]]
    heads = [torch.linspace(0.5, 1.5, one.numel()).reshape(one.shape) for one in found]
    torch.autograd.backward(found, heads)
    grads = {f"c_{ours}": getattr(module, theirs).grad.numpy() for theirs, ours in names.items()}
    return [one.detach().numpy() for one in found], {**grads, "data": data.grad.numpy()}


@pytest.mark.parametrize("kind", KINDS)
def test_equals_torch(kind):
    symbol = unrolled(KINDS[kind]())
    args = random_args(shapes_of(symbol, data=(ROWS, STEPS, FEATURES)))
    outputs, grads = run(symbol, args)
    want_outputs, want_grads = torch_run(kind, args)
    close(outputs, want_outputs)
    close(grads, want_grads)


@pytest.mark.parametrize(("kind", "merge"), list(itertools.product(KINDS, (True, False))))
def test_layouts_and_forms_agree(kind, merge):
    reference = unrolled(KINDS[kind]())
    args = random_args(shapes_of(reference, data=(ROWS, STEPS, FEATURES)))
    want = [output.asnumpy() for output in reference.bind(mx.cpu(), args).forward()]
    time_first = {**args, "data": mx.nd.array(args["data"].asnumpy().swapaxes(0, 1))}
    found = [o.asnumpy() for o in unrolled(KINDS[kind](), "TNC", merge).bind(mx.cpu(), time_first).forward()]
    if merge:
        close(found, [want[0].swapaxes(0, 1), *want[1:]])
    else:
        close(found, [*want[0].swapaxes(0, 1), *want[1:]])


@pytest.mark.parametrize("kind", KINDS)
def test_unrolling_is_calling_step_by_step(kind):
    cell = KINDS[kind]()
    states = cell.begin_state()
    steps = []
    for i in range(STEPS):
        output, states = cell(mx.sym.Variable(f"x{i}"), states)
        steps.append(output)
    by_hand = mx.sym.Group(steps + states)
    assert by_hand.list_outputs()[:STEPS] == [f"c_t{i}_out_output" for i in range(STEPS)]
    args = random_args(shapes_of(by_hand, **{f"x{i}": (ROWS, FEATURES) for i in range(STEPS)}))
    want = [output.asnumpy() for output in by_hand.bind(mx.cpu(), args).forward()]
    outputs, last = KINDS[kind]().unroll(STEPS, [mx.sym.Variable(f"x{i}") for i in range(STEPS)])
    found = mx.sym.Group(outputs + last).bind(mx.cpu(), args).forward()
    close([one.asnumpy() for one in found], want)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("merge", [True, False])
@pytest.mark.parametrize("layout", ["NTC", "TNC"])
def test_valid_length_gives_each_row_what_it_gets_alone(kind, merge, layout):
    lengths = [2, 5]
    symbol = unrolled(KINDS[kind](), layout, merge, valid_length=mx.sym.Variable("n"))
    data = (ROWS, STEPS, FEATURES) if layout == "NTC" else (STEPS, ROWS, FEATURES)
    args = random_args(shapes_of(symbol, data=data))
    args["n"] = mx.nd.array(lengths)
    found = [output.asnumpy() for output in symbol.bind(mx.cpu(), args).forward()]
    outputs = np.stack(found[:STEPS], 1) if not merge else found[0]
    outputs = outputs if layout == "NTC" or not merge else outputs.swapaxes(0, 1)
    states = found[1 if merge else STEPS :]
    rows = args["data"].asnumpy() if layout == "NTC" else args["data"].asnumpy().swapaxes(0, 1)
    for row, length in enumerate(lengths):
        alone_outputs, alone_states = KINDS[kind]().unroll(
            length, mx.sym.Variable("data"), merge_outputs=True
        )
        alone = mx.sym.Group([alone_outputs, *alone_states])
        mine = {k: v for k, v in args.items() if k not in ("data", "n")}
        mine["data"] = mx.nd.array(rows[row : row + 1, :length])
        want = [output.asnumpy() for output in alone.bind(mx.cpu(), mine).forward()]
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
        assert args["c_begin_state_1"].shape == (ROWS, UNITS)
        first = [o.asnumpy() for o in symbol.bind(mx.cpu(), args).forward()]
        carried = {**args, "c_begin_state_0": mx.nd.array(first[1]), "c_begin_state_1": mx.nd.array(first[2])}
        second = [o.asnumpy() for o in symbol.bind(mx.cpu(), carried).forward()]
        assert np.abs(first[0] - second[0]).max() > 1e-3

    @pytest.mark.parametrize("func", [mx.sym.zeros, mx.sym.ones])
    def test_batch_size_is_inferred(self, func):
        cell = mx.rnn.GRUCell(UNITS)
        outputs, _ = cell.unroll(1, [mx.sym.Variable("x")], begin_state=cell.begin_state(func=func))
        assert outputs[0].infer_shape(x=(7, FEATURES))[1] == [(7, UNITS)]

    def test_arguments_of_the_maker(self):
        state = mx.rnn.RNNCell(UNITS).begin_state(func=mx.sym.Variable, lr_mult=2.0)[0]
        assert state.attr("lr_mult") == "2.0"
        assert state.attr("__layout__") == "NC"

    def test_names_count_until_reset(self):
        cell = mx.rnn.RNNCell(UNITS, prefix="c_")
        names = [cell.begin_state()[0].name for _ in range(2)]
        cell.reset()
        assert [*names, cell.begin_state()[0].name] == [
            "c_begin_state_0",
            "c_begin_state_1",
            "c_begin_state_0",
        ]


class TestWeights:
    def test_one_container_makes_cells_share(self):
        params = mx.rnn.RNNParams("tied_")
        one, other = mx.rnn.GRUCell(UNITS, "a_", params), mx.rnn.GRUCell(UNITS, "b_", params)
        x = mx.sym.Variable("x")
        symbol = mx.sym.Group([one(x, one.begin_state())[0], other(x, other.begin_state())[0]])
        assert [n for n in symbol.list_arguments() if n != "x"] == [
            "tied_i2h_weight",
            "tied_i2h_bias",
            "tied_h2h_weight",
            "tied_h2h_bias",
        ]
        args = random_args(shapes_of(symbol, x=(ROWS, FEATURES)))
        found = [output.asnumpy() for output in symbol.bind(mx.cpu(), args).forward()]
        np.testing.assert_array_equal(found[0], found[1])

    def test_variables_are_made_once(self):
        params = mx.rnn.RNNParams("p_")
        first = params.get("w", shape=(1, 2))
        assert first is params.get("w")
        assert first.infer_shape()[0] == [(1, 2)]
        assert params.names() == ["p_w"]

    def test_forget_bias_is_where_training_begins(self):
        cell = mx.rnn.LSTMCell(UNITS, prefix="c_", forget_bias=2.5)
        outputs, _ = cell.unroll(1, [mx.sym.Variable("x")])
        module = mx.mod.Module(outputs[0], ["x"], label_names=None)
        module.bind([("x", (ROWS, FEATURES))], None)
        module.init_params(mx.init.One())
        bias = module.get_params()[0]["c_i2h_bias"].asnumpy()
        np.testing.assert_array_equal(bias, [0] * UNITS + [2.5] * UNITS + [0] * 2 * UNITS)

    @settings(max_examples=200, deadline=None, derandomize=True)
    @given(
        st.sampled_from(["rnn", "lstm", "gru"]),
        st.integers(1, 6),
        st.integers(1, 5),
        st.integers(0, 2**31 - 1),
    )
    def test_packing_what_was_unpacked_gives_it_back(self, kind, units, features, seed):
        cell = {"rnn": mx.rnn.RNNCell, "lstm": mx.rnn.LSTMCell, "gru": mx.rnn.GRUCell}[kind](
            units, prefix="c_"
        )
        gates = {"rnn": 1, "lstm": 4, "gru": 3}[kind]
        shapes = {"c_i2h_weight": (gates * units, features), "c_h2h_weight": (gates * units, units)}
        shapes |= {"c_i2h_bias": (gates * units,), "c_h2h_bias": (gates * units,), "other": (2,)}
        args = random_args(shapes, seed)
        unpacked = cell.unpack_weights(args)
        assert len(unpacked) == 1 + 4 * gates
        assert set(unpacked["other"].asnumpy()) == set(args["other"].asnumpy())
        packed = cell.pack_weights(unpacked)
        close(as_numpy(packed), as_numpy(args), 0, 0)
        assert list(args) == list(shapes), "the arrays given were changed"

    def test_unpacked_arrays_are_copies(self):
        cell = mx.rnn.GRUCell(UNITS, prefix="c_")
        shapes = {"c_i2h_weight": (9, 2), "c_h2h_weight": (9, 3), "c_i2h_bias": (9,), "c_h2h_bias": (9,)}
        args = random_args(shapes)
        before = as_numpy(args)
        cell.unpack_weights(args)["c_i2h_z_weight"][:] = 7
        close(as_numpy(args), before, 0, 0)

    def test_missing_and_misshapen(self):
        cell = mx.rnn.LSTMCell(UNITS, prefix="c_")
        with pytest.raises(ArgumentError, match=r"LSTMCell 'c_': args has no 'c_i2h_weight', only nothing"):
            cell.unpack_weights({})
        with pytest.raises(ArgumentError, match="args has no 'c_i2h_i_weight', only x"):
            cell.pack_weights({"x": mx.nd.zeros((1,))})
        with pytest.raises(
            ArgumentError, match=r"c_i2h_weight has shape \(9, 2\), expected 12 rows: 4 gates of 3"
        ):
            cell.unpack_weights({"c_i2h_weight": mx.nd.zeros((9, 2))})


class TestMisuse:
    def test_number_of_states(self):
        cell = mx.rnn.LSTMCell(UNITS, prefix="c_")
        with pytest.raises(
            ArgumentError, match=r"LSTMCell 'c_': got 1 states, expected 2, as begin_state\(\)"
        ):
            cell(mx.sym.Variable("x"), [mx.sym.Variable("h")])
        with pytest.raises(ArgumentError, match="got 3 states, expected 2"):
            cell.unroll(2, mx.sym.Variable("x"), begin_state=[mx.sym.Variable(f"h{i}") for i in range(3)])

    def test_shape_of_a_state(self):
        cell = mx.rnn.RNNCell(UNITS, prefix="c_")
        outputs, _ = cell.unroll(1, [mx.sym.Variable("x")], begin_state=[mx.sym.zeros((5, UNITS))])
        with pytest.raises(mx.base.ShapeError, match=r"\(5, 3\)"):
            outputs[0].infer_shape(x=(ROWS, FEATURES))

    @pytest.mark.parametrize("layout", ["CNT", "NCT", "", None])
    def test_layout(self, layout):
        with pytest.raises(ArgumentError, match="layout is .*, expected 'NTC' .* or 'TNC'"):
            mx.rnn.RNNCell(UNITS).unroll(2, mx.sym.Variable("x"), layout=layout)

    def test_number_of_inputs(self):
        with pytest.raises(ArgumentError, match=r"inputs has 2 steps \(Symbol, Symbol\), expected 3 Symbols"):
            mx.rnn.RNNCell(UNITS).unroll(3, [mx.sym.Variable("a"), mx.sym.Variable("b")])

    def test_group_as_input(self):
        group = mx.sym.Group([mx.sym.Variable("a"), mx.sym.Variable("b")])
        with pytest.raises(ArgumentError, match=r"inputs is a group of 2 symbols; pass list\(inputs\)"):
            mx.rnn.RNNCell(UNITS).unroll(2, group)
        assert len(mx.rnn.RNNCell(UNITS).unroll(2, list(group))[0]) == 2

    def test_arrays_as_input(self):
        with pytest.raises(ArgumentError, match="inputs has 2 steps .*NDArray.*, expected 2 Symbols"):
            mx.rnn.RNNCell(UNITS).unroll(2, [mx.nd.zeros((1, 2))] * 2)

    @pytest.mark.parametrize("length", [0, -1, 2.0, None])
    def test_length(self, length):
        with pytest.raises(ArgumentError, match="length is .*, expected a positive number of steps"):
            mx.rnn.RNNCell(UNITS).unroll(length, mx.sym.Variable("x"))

    @pytest.mark.parametrize("units", [0, "4", True])
    def test_units(self, units):
        with pytest.raises(ArgumentError, match="GRUCell: num_hidden is .*, expected an integer from 1"):
            mx.rnn.GRUCell(units)

    def test_wrapped_cell(self):
        cell = mx.rnn.RNNCell(UNITS, prefix="c_")
        mx.rnn.ZoneoutCell(cell)
        with pytest.raises(StateError, match="RNNCell 'c_' is wrapped by a modifier cell; call the modifier"):
            cell.begin_state()


def test_activation_may_be_a_function():
    cell = mx.rnn.RNNCell(
        UNITS, activation=lambda x, **kw: mx.sym.LeakyReLU(x, act_type="elu", **kw), prefix="c_"
    )
    output, _ = cell(mx.sym.Variable("x"), cell.begin_state())
    assert output.name == "c_t0_out"
    assert "LeakyReLU" in output.debug_str()


def test_rnn_unroll_is_deprecated_but_works():
    with pytest.warns(DeprecationWarning, match="call cell.unroll"):
        outputs, _ = mx.rnn.rnn_unroll(mx.rnn.RNNCell(UNITS, prefix="c_"), 2, input_prefix="in_")
    names = {n for n in outputs[1].list_arguments() if n.startswith("in_")}
    assert names == {"in_t0_data", "in_t1_data"}


def test_cells_of_users_find_what_mxnets_base_class_has():
    class Own(mx.rnn.BaseRNNCell):
        def __init__(self, units, prefix):
            super().__init__(prefix=prefix)
            self.units = units
            self.weight, self.bias = self.params.get("h2h_weight"), self.params.get("h2h_bias")

        @property
        def state_info(self):
            return [{"shape": (0, self.units), "__layout__": "NC"}]

        def __call__(self, inputs, states):
            self._counter += 1
            name = f"{self._prefix}t{self._counter}_"
            options = {"num_hidden": self.units, "name": f"{name}h2h"}
            mapped = mx.sym.FullyConnected(states[0], self.weight, self.bias, **options)
            output = self._get_activation(inputs + mapped, "tanh", name=f"{name}out")
            return output, [output]

    outputs, _ = Own(4, "own_").unroll(2, [mx.sym.Variable("a"), mx.sym.Variable("b")])
    group = mx.sym.Group(outputs)
    assert group.list_outputs() == ["own_t0_out_output", "own_t1_out_output"]
    assert group.infer_shape(a=(3, 4), b=(3, 4))[1] == [(3, 4), (3, 4)]


def test_cells_derived_from_the_lstm_find_its_weights():
    cell = mx.rnn.LSTMCell(5, prefix="l_")
    found = [cell._iW, cell._iB, cell._hW, cell._hB]
    assert [v.name for v in found] == ["l_i2h_weight", "l_i2h_bias", "l_h2h_weight", "l_h2h_bias"]
    assert (cell._num_hidden, cell._gate_names) == (5, ("_i", "_f", "_c", "_o"))
    stack = mx.rnn.SequentialRNNCell()
    stack.add(cell)
    assert stack._cells == [cell]


CHANNELS, HEIGHT, WIDTH, HIDDEN = 2, 4, 5, 3
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
