"""Stacks, bidirectional cells, dropout, zoneout and residual connections around cells."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, StateError
from helpers.rnn_run import as_numpy, close, random_args, run, shapes_of

ROWS, STEPS, FEATURES = 2, 4, 3


def stack_of(*cells):
    stack = mx.rnn.SequentialRNNCell()
    for cell in cells:
        stack.add(cell)
    return stack


def two():
    return stack_of(mx.rnn.LSTMCell(5, prefix="a_"), mx.rnn.GRUCell(2, prefix="b_"))


def test_second_cell_reads_the_first():
    outputs, states = two().unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)
    symbol = mx.sym.Group([outputs, *states])
    args = random_args(shapes_of(symbol, data=(ROWS, STEPS, FEATURES)))
    found = [o.asnumpy() for o in symbol.bind(mx.cpu(), args).forward()]
    lower, lower_states = mx.rnn.LSTMCell(5, prefix="a_").unroll(
        STEPS, mx.sym.Variable("data"), merge_outputs=True
    )
    first = mx.sym.Group([lower, *lower_states])
    want = [o.asnumpy() for o in first.bind(mx.cpu(), _only(first, args)).forward()]
    upper, upper_states = mx.rnn.GRUCell(2, prefix="b_").unroll(
        STEPS, mx.sym.Variable("data"), merge_outputs=True
    )
    second = mx.sym.Group([upper, *upper_states])
    last = second.bind(mx.cpu(), {**_only(second, args), "data": mx.nd.array(want[0])}).forward()
    close(found, [last[0].asnumpy(), *want[1:], last[1].asnumpy()])


def _only(symbol, args):
    return {name: args[name] for name in symbol.list_arguments()}


def test_calling_step_by_step():
    stack = two()
    states = stack.begin_state()
    outputs = []
    for i in range(2):
        output, states = stack(mx.sym.Variable(f"x{i}"), states)
        outputs.append(output)
    symbol = mx.sym.Group(outputs + states)
    args = random_args(shapes_of(symbol, x0=(ROWS, FEATURES), x1=(ROWS, FEATURES)))
    by_step = [o.asnumpy() for o in symbol.bind(mx.cpu(), args).forward()]
    steps, last = two().unroll(2, [mx.sym.Variable("x0"), mx.sym.Variable("x1")])
    at_once = mx.sym.Group(steps + last).bind(mx.cpu(), args).forward()
    close(by_step, [o.asnumpy() for o in at_once])


def test_bidirectional_is_a_run_from_each_end():
    def side(prefix):
        return mx.rnn.GRUCell(2, prefix=prefix)

    cell = mx.rnn.BidirectionalCell(side("l_"), side("r_"))
    outputs, states = cell.unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)
    symbol = mx.sym.Group([outputs, *states[0], *states[1]])
    args = random_args(shapes_of(symbol, data=(ROWS, STEPS, FEATURES)))
    found = [o.asnumpy() for o in symbol.bind(mx.cpu(), args).forward()]

    def alone(prefix, data):
        one, last = side(prefix).unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)
        both = mx.sym.Group([one, *last])
        mine = {**_only(both, args), "data": mx.nd.array(data)}
        return [o.asnumpy() for o in both.bind(mx.cpu(), mine).forward()]

    data = args["data"].asnumpy()
    left, right = alone("l_", data), alone("r_", data[:, ::-1].copy())
    np.testing.assert_allclose(found[0], np.concatenate([left[0], right[0][:, ::-1]], axis=2), 1e-5, 1e-6)
    close(found[1:], [left[1], right[1]])


@pytest.mark.parametrize("merge", [True, False, None])
@pytest.mark.parametrize("layout", ["NTC", "TNC"])
def test_forms_of_bidirectional_outputs_agree(merge, layout):
    def symbol_of(layout, merge):
        halves = [mx.rnn.LSTMCell(2, prefix="l_"), mx.rnn.GRUCell(3, prefix="r_")]
        outputs, _ = mx.rnn.BidirectionalCell(*halves).unroll(
            STEPS, mx.sym.Variable("data"), layout=layout, merge_outputs=merge
        )
        return outputs if merge else mx.sym.stack(*outputs, axis=layout.index("T"))

    reference = symbol_of("NTC", True)
    args = random_args(shapes_of(reference, data=(ROWS, STEPS, FEATURES)))
    head = np.random.RandomState(2).uniform(-1, 1, (ROWS, STEPS, 5))
    want, want_grads = run(reference, args, [head])
    if layout == "TNC":
        args["data"] = mx.nd.array(args["data"].asnumpy().swapaxes(0, 1))
        head, want = head.swapaxes(0, 1), [want[0].swapaxes(0, 1)]
        want_grads["data"] = want_grads["data"].swapaxes(0, 1)
    found, grads = run(symbol_of(layout, merge), args, [head])
    close(found, want)
    close(grads, want_grads)


def test_states_returned_may_be_given_back():
    def make():
        return mx.rnn.BidirectionalCell(mx.rnn.LSTMCell(2, prefix="l_"), mx.rnn.GRUCell(3, prefix="r_"))

    _, states = make().unroll(2, mx.sym.Variable("x"))
    assert [len(part) for part in states] == [2, 1]
    outputs, _ = make().unroll(2, mx.sym.Variable("y"), begin_state=states, merge_outputs=True)
    assert outputs.infer_shape(x=(ROWS, 2, FEATURES), y=(ROWS, 2, FEATURES))[1] == [(ROWS, 2, 5)]


def test_weights_of_all_cells_are_unpacked_and_packed():
    stack = stack_of(
        mx.rnn.BidirectionalCell(mx.rnn.LSTMCell(2, prefix="l_"), mx.rnn.GRUCell(3, prefix="r_")),
        mx.rnn.FusedRNNCell(4, 2, "gru", prefix="f_"),
        mx.rnn.RNNCell(3, prefix="p_"),
    )
    outputs, _ = stack.unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)
    args = random_args(shapes_of(outputs, data=(ROWS, STEPS, FEATURES)))
    unpacked = stack.unpack_weights(args)
    assert {"l_i2h_f_weight", "r_h2h_z_bias", "f_l1_i2h_o_weight", "p_i2h_weight", "data"} <= set(unpacked)
    close(as_numpy(stack.pack_weights(unpacked)), as_numpy(args), 0, 0)


def test_reset_starts_names_again_in_every_cell():
    stack = stack_of(mx.rnn.GRUCell(2, prefix="a_"), mx.rnn.ZoneoutCell(mx.rnn.GRUCell(2, prefix="b_"), 0.1))
    first = [o.name for o in stack.begin_state()]
    stack(mx.sym.Variable("x"), stack.begin_state())
    stack.reset()
    assert [o.name for o in stack.begin_state()] == first == ["a_begin_state_0", "b_begin_state_0"]


class TestMisuse:
    def test_step_of_a_bidirectional_cell(self):
        cell = mx.rnn.BidirectionalCell(mx.rnn.GRUCell(2, prefix="l_"), mx.rnn.GRUCell(2, prefix="r_"))
        with pytest.raises(NotImplementedError, match="use unroll on the whole sequence"):
            cell(mx.sym.Variable("x"), cell.begin_state())
        assert not stack_of(cell).steppable

    def test_empty_stack(self):
        with pytest.raises(StateError, match="there is no cell to unroll; call add"):
            mx.rnn.SequentialRNNCell().unroll(2, mx.sym.Variable("x"))

    def test_no_cell(self):
        with pytest.raises(ArgumentError, match="got 3, expected a cell such as LSTMCell"):
            mx.rnn.SequentialRNNCell().add(3)

    def test_two_owners_of_weights(self):
        stack = mx.rnn.SequentialRNNCell(params=mx.rnn.RNNParams("s_"))
        with pytest.raises(ArgumentError, match="pass params to the cells only"):
            stack.add(mx.rnn.GRUCell(2))

    def test_number_of_states(self):
        with pytest.raises(ArgumentError, match="SequentialRNNCell '': got 1 states, expected 3"):
            two().unroll(2, mx.sym.Variable("x"), begin_state=[mx.sym.Variable("h")])


class Own(mx.rnn.BaseRNNCell):
    """A cell as MXNet's users write it: `unroll` and `begin_state` take what MXNet's cells give them."""

    def __init__(self, prefix, units=4):
        super().__init__(prefix=prefix)
        self._num_hidden = units
        names = ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")
        self.weights = [self.params.get(name) for name in names]

    @property
    def state_info(self):
        return [None]

    @property
    def _gate_names(self):
        return ["_a", "_b"]

    def begin_state(self):
        return [mx.sym.ones((0, self._num_hidden), name=f"{self._prefix}start")]

    def __call__(self, inputs, states):
        self._counter += 1
        name, width = f"{self._prefix}t{self._counter}_", 2 * self._num_hidden
        i2h = mx.sym.FullyConnected(inputs, *self.weights[:2], num_hidden=width, name=f"{name}i2h")
        h2h = mx.sym.FullyConnected(states[0], *self.weights[2:], num_hidden=width, name=f"{name}h2h")
        one, other = mx.sym.SliceChannel(i2h + h2h, num_outputs=2)
        output = mx.sym.elemwise_mul(one, other, name=f"{name}out")
        return output, [output]

    def unroll(self, steps, inputs, layout="NTC", merge_outputs=None, begin_state=None):
        self.reset()
        if isinstance(inputs, mx.sym.Symbol):
            inputs = mx.sym.SliceChannel(inputs, axis=1, num_outputs=steps, squeeze_axis=True)
        states, outputs = self.begin_state(), []
        for i in range(steps):
            output, states = self(inputs[i], states)
            outputs.append(output)
        return outputs, states


@pytest.mark.parametrize(
    ("make", "width"),
    [
        (lambda: stack_of(Own("own_"), mx.rnn.LSTMCell(5, prefix="l_")), 5),
        (lambda: stack_of(mx.rnn.LSTMCell(5, prefix="l_"), mx.rnn.DropoutCell(0.5), Own("own_")), 4),
        (lambda: mx.rnn.BidirectionalCell(Own("own_"), Own("r_")), 8),
        (lambda: mx.rnn.ResidualCell(Own("own_")), 4),
        (lambda: mx.rnn.ZoneoutCell(Own("own_"), 0.1, 0.1), 4),
        (lambda: stack_of(mx.rnn.ResidualCell(mx.rnn.ZoneoutCell(Own("own_"), 0.1))), 4),
    ],
)
def test_cells_of_users_inside_others(make, width):
    cell = make()
    outputs, states = cell.unroll(3, mx.sym.Variable("data"))
    group = mx.sym.Group(outputs)
    assert group.infer_shape(data=(2, 3, 4))[1] == [(2, width)] * 3
    assert "own_start" in group.debug_str()  # its own begin state, not a new one
    assert len(states) == len(cell.state_info)


def test_a_users_cell_without_valid_length():
    cell = stack_of(Own("own_"))
    with pytest.raises(ArgumentError, match="unroll of Own 'own_' does not accept it"):
        cell.unroll(3, mx.sym.Variable("data"), valid_length=mx.sym.Variable("length"))


def test_gates_of_a_users_cell_are_unpacked():
    cell = stack_of(Own("own_", 3))
    shapes = {"i2h_weight": (6, 4), "i2h_bias": (6,), "h2h_weight": (6, 3), "h2h_bias": (6,)}
    packed = {f"own_{name}": mx.nd.random.normal(shape=shape) for name, shape in shapes.items()}
    parts = cell.unpack_weights(packed)
    assert {name: part.shape for name, part in parts.items()} == {
        f"own_{name[:3]}_{gate}{name[3:]}": (3, *shape[1:]) for name, shape in shapes.items() for gate in "ab"
    }
    assert (parts["own_h2h_b_weight"].asnumpy() == packed["own_h2h_weight"].asnumpy()[3:]).all()
    again = cell.pack_weights(parts)
    assert all((again[name].asnumpy() == packed[name].asnumpy()).all() for name in packed)


UNITS = 3


def values(symbol, args, is_train=False):
    return [o.asnumpy() for o in symbol.bind(mx.cpu(), args).forward(is_train=is_train)]


class TestResidual:
    @pytest.mark.parametrize("merge", [True, False])
    def test_adds_the_input(self, merge):
        def make(wrap):
            outputs, _ = wrap(mx.rnn.GRUCell(UNITS, prefix="g_")).unroll(
                STEPS, mx.sym.Variable("data"), merge_outputs=merge
            )
            return outputs if merge else mx.sym.stack(*outputs, axis=1)

        plain, residual = make(lambda cell: cell), make(mx.rnn.ResidualCell)
        args = random_args(shapes_of(plain, data=(ROWS, STEPS, UNITS)))
        (want,), plain_grads = run(plain, args)
        (found,), grads = run(residual, args)
        np.testing.assert_allclose(found, want + args["data"].asnumpy(), 1e-6, 1e-6)
        head = np.linspace(0.5, 1.5, found.size).reshape(found.shape)
        close(grads, {**plain_grads, "data": plain_grads["data"] + head})

    def test_in_a_bidirectional_stack_equals_its_fused_twin(self):
        def make(fused):
            stack = mx.rnn.SequentialRNNCell()
            for i in range(2):
                cell = mx.rnn.FusedRNNCell(UNITS, 1, "gru", True, prefix=f"f{i}_")
                stack.add(mx.rnn.ResidualCell(cell if fused else cell.unfuse()))
            return stack

        fused, loose = make(True), make(False)
        symbol = fused.unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)[0]
        args = random_args(shapes_of(symbol, data=(ROWS, STEPS, 2 * UNITS)))
        other = loose.unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)[0]
        packed = loose.pack_weights(fused.unpack_weights(args))
        close(values(symbol, args), values(other, packed))

    def test_valid_length_masks_the_input_too(self):
        cell = mx.rnn.ResidualCell(mx.rnn.GRUCell(UNITS, prefix="g_"))
        symbol, _ = cell.unroll(
            STEPS, mx.sym.Variable("data"), merge_outputs=True, valid_length=mx.sym.Variable("n")
        )
        args = random_args(shapes_of(symbol, data=(ROWS, STEPS, UNITS)))
        args["n"] = mx.nd.array([1, 3])
        (found,) = values(symbol, args)
        assert found[0, 0].all()
        assert not found[0, 1:].any()
        assert found[1, :3].all()
        assert not found[1, 3:].any()

    def test_shapes_must_agree(self):
        cell = mx.rnn.ResidualCell(mx.rnn.GRUCell(UNITS, prefix="g_"))
        outputs, _ = cell.unroll(1, [mx.sym.Variable("x")])
        with pytest.raises(mx.base.ShapeError, match="g_t0_out_plus_residual"):
            outputs[0].infer_shape(x=(ROWS, UNITS + 1))


class TestZoneout:
    def make(self, outputs, states):
        cell = mx.rnn.ZoneoutCell(mx.rnn.RNNCell(UNITS, prefix="r_"), outputs, states)
        return cell.unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)[0]

    def test_nothing_happens_in_prediction(self):
        symbol, plain = self.make(0.5, 0.5), mx.rnn.RNNCell(UNITS, prefix="r_")
        want = plain.unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)[0]
        args = random_args(shapes_of(symbol, data=(ROWS, STEPS, UNITS)))
        close(values(symbol, args), values(want, args))

    def test_outputs_keep_a_share_of_the_step_before(self):
        symbol = self.make(0.4, 0.0)
        args = random_args(shapes_of(symbol, data=(200, STEPS, UNITS)))
        plain = mx.rnn.RNNCell(UNITS, prefix="r_").unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)[
            0
        ]
        (new,) = values(plain, args)
        (found,) = values(symbol, args, is_train=True)
        before = np.concatenate([np.zeros_like(found[:, :1]), found[:, :-1]], axis=1)
        is_new, is_old = np.isclose(found, new), np.isclose(found, before)
        assert (is_new | is_old).all()
        assert is_old.mean() == pytest.approx(0.4, abs=0.04)

    def test_states_keep_a_share(self):
        # all of the state is kept, so every step sees the begin state
        symbol = self.make(0.0, 1.0)
        args = random_args(shapes_of(symbol, data=(ROWS, STEPS, UNITS)))
        (found,) = values(symbol, args, is_train=True)
        first = mx.rnn.RNNCell(UNITS, prefix="r_").unroll(1, mx.sym.Variable("data"), merge_outputs=True)[0]
        for step in range(STEPS):
            mine = {**args, "data": mx.nd.array(args["data"].asnumpy()[:, step : step + 1])}
            np.testing.assert_allclose(found[:, step : step + 1], values(first, mine)[0], 1e-5, 1e-6)

    def test_around_a_convolutional_cell(self):
        cell = mx.rnn.ZoneoutCell(mx.rnn.ConvRNNCell((1, 3, 5, 5), 2), 0.5)
        outputs, _ = cell.unroll(2, [mx.sym.Variable("x"), mx.sym.Variable("y")])
        assert outputs[1].infer_shape(x=(ROWS, 3, 5, 5), y=(ROWS, 3, 5, 5))[1] == [(ROWS, 2, 5, 5)]

    @pytest.mark.parametrize("nested", [False, True])
    def test_cells_that_need_whole_sequences(self, nested):
        cell = mx.rnn.BidirectionalCell(mx.rnn.GRUCell(2, prefix="l_"), mx.rnn.GRUCell(2, prefix="r_"))
        if nested:
            stack = mx.rnn.SequentialRNNCell()
            stack.add(cell)
            cell = stack
        for one in (cell, mx.rnn.FusedRNNCell(2)):
            with pytest.raises(ArgumentError, match="cannot be called step by step; wrap the cells in a"):
                mx.rnn.ZoneoutCell(one, 0.1)

    def test_shares(self):
        with pytest.raises(ArgumentError, match="zoneout_states is 2, expected a number from 0 to 1"):
            mx.rnn.ZoneoutCell(mx.rnn.GRUCell(2), 0.1, 2)


class TestDropout:
    def test_merged_sequences_take_one_operator(self):
        outputs, states = mx.rnn.DropoutCell(0.5).unroll(STEPS, mx.sym.Variable("data"))
        assert outputs.tojson().count('"Dropout"') == 1
        assert states == []

    def test_lists_take_one_a_step(self):
        outputs, _ = mx.rnn.DropoutCell(0.5).unroll(2, [mx.sym.Variable("x"), mx.sym.Variable("y")])
        assert [o.list_arguments() for o in outputs] == [["x"], ["y"]]
        merged, _ = mx.rnn.DropoutCell(0.5).unroll(
            2, [mx.sym.Variable("x"), mx.sym.Variable("y")], merge_outputs=True
        )
        assert merged.infer_shape(x=(ROWS, UNITS), y=(ROWS, UNITS))[1] == [(ROWS, 2, UNITS)]

    def test_drops_in_training_alone(self):
        outputs, _ = mx.rnn.DropoutCell(0.25).unroll(STEPS, mx.sym.Variable("data"))
        args = {"data": mx.nd.ones((100, STEPS, UNITS))}
        assert (values(outputs, args)[0] == 1).all()
        (found,) = values(outputs, args, is_train=True)
        assert (found == 0).mean() == pytest.approx(0.25, abs=0.05)

    def test_no_share_leaves_the_input_alone(self):
        x = mx.sym.Variable("x")
        assert mx.rnn.DropoutCell(0)(x, []) == (x, [])

    @pytest.mark.parametrize("share", ["a", 1.5, -0.1, None])
    def test_shares(self, share):
        with pytest.raises(ArgumentError, match="DropoutCell: dropout is .*, expected a number from 0 to 1"):
            mx.rnn.DropoutCell(share)


class TestModifier:
    def test_keeps_weights_states_and_their_packing(self):
        inner = mx.rnn.LSTMCell(UNITS, prefix="l_")
        cell = mx.rnn.ResidualCell(mx.rnn.ZoneoutCell(inner, 0.1))
        assert cell.params is inner.params
        assert cell.state_info == inner.state_info
        args = random_args({n: (4 * UNITS, UNITS)[: 1 + n.endswith("weight")] for n in inner.params.names()})
        unpacked = cell.unpack_weights(args)
        assert "l_i2h_f_weight" in unpacked
        close(
            {k: v.asnumpy() for k, v in cell.pack_weights(unpacked).items()},
            {k: v.asnumpy() for k, v in args.items()},
        )

    def test_begin_state_by_either_name(self):
        for name in ("func", "init_sym"):
            cell = mx.rnn.ZoneoutCell(mx.rnn.GRUCell(UNITS, prefix="g_"), 0.1)
            (state,) = cell.begin_state(**{name: mx.sym.ones})
            assert state.name == "g_begin_state_0"
            assert '"_ones"' in state.tojson()

    def test_reset_reaches_the_cell_inside(self):
        for make in (mx.rnn.ResidualCell, lambda inner: mx.rnn.ZoneoutCell(inner, 0.1)):
            cell = make(mx.rnn.RNNCell(UNITS, prefix="r_"))
            for _ in range(2):
                output, _ = cell(mx.sym.Variable("x"), cell.begin_state())
                assert "r_t0_i2h_output" in output.get_internals().list_outputs()
                cell.reset()

    def test_wraps_cells_alone(self):
        with pytest.raises(ArgumentError, match="ResidualCell: base_cell is 3, expected a cell"):
            mx.rnn.ResidualCell(3)
