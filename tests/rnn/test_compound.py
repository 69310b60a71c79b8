"""Stacks, bidirectional cells, dropout, zoneout and residual connections (graphs and values of MXNet: tests/parity)."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.rnn_run import as_numpy, close, outputs_of, random_args, shapes_of

ROWS, STEPS, UNITS = 2, 4, 3
X, DATA, LENGTHS = mx.sym.Variable("x"), mx.sym.Variable("data"), mx.sym.Variable("n")


def stack_of(*cells):
    stack = mx.rnn.SequentialRNNCell()
    for cell in cells:
        stack.add(cell)
    return stack


def both(left=None):
    return mx.rnn.BidirectionalCell(left or mx.rnn.LSTMCell(2, prefix="l_"), mx.rnn.GRUCell(3, prefix="r_"))


def merged(cell, steps=STEPS, **options):
    return cell.unroll(steps, DATA, merge_outputs=True, **options)[0]


def rnn():
    return mx.rnn.RNNCell(UNITS, prefix="r_")


def test_bidirectional_states_may_be_given_back():
    _, states = both().unroll(2, X)
    assert [len(part) for part in states] == [2, 1]
    outputs, _ = both().unroll(2, DATA, begin_state=states, merge_outputs=True)
    assert outputs.infer_shape(x=(ROWS, 2, UNITS), data=(ROWS, 2, UNITS))[1] == [(ROWS, 2, 5)]
    assert not stack_of(both()).steppable


def test_weights_of_all_cells_are_unpacked_and_packed():
    residual = mx.rnn.ResidualCell(mx.rnn.ZoneoutCell(mx.rnn.RNNCell(4, prefix="p_"), 0.1))
    stack = stack_of(both(), mx.rnn.FusedRNNCell(4, 2, "gru", prefix="f_"), residual)
    args = random_args(shapes_of(merged(stack), data=(ROWS, STEPS, UNITS)))
    unpacked = stack.unpack_weights(args)
    assert {"l_i2h_f_weight", "r_h2h_z_bias", "f_l1_i2h_o_weight", "p_i2h_weight", "data"} <= set(unpacked)
    close(as_numpy(stack.pack_weights(unpacked)), as_numpy(args), 0, 0)
    inner = residual.base_cell.base_cell
    assert (residual.params, residual.state_info) == (inner.params, inner.state_info)


def test_reset_reaches_the_cell_inside():
    for make in (mx.rnn.ResidualCell, lambda inner: mx.rnn.ZoneoutCell(inner, 0.1)):
        cell = make(rnn())
        for _ in range(2):
            output, _ = cell(X, cell.begin_state())
            assert "r_t0_i2h_output" in output.get_internals().list_outputs()
            cell.reset()


class Own(mx.rnn.BaseRNNCell):
    """A cell as MXNet's users write it: `unroll` and `begin_state` take what MXNet's cells give them."""

    def __init__(self, prefix, units=4):
        super().__init__(prefix=prefix)
        self._num_hidden = units
        names = ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")
        self.weights = [self.params.get(name) for name in names]

    state_info = property(lambda self: [None])
    _gate_names = property(lambda self: ["_a", "_b"])

    def begin_state(self):
        return [mx.sym.ones((0, self._num_hidden), name=f"{self._prefix}start")]

    def __call__(self, inputs, states):
        self._counter += 1
        name, width = f"{self._prefix}t{self._counter}_", 2 * self._num_hidden
        i2h = mx.sym.FullyConnected(inputs, *self.weights[:2], num_hidden=width, name=f"{name}i2h")
        h2h = mx.sym.FullyConnected(states[0], *self.weights[2:], num_hidden=width, name=f"{name}h2h")
        one, other = mx.sym.SliceChannel(i2h + h2h, num_outputs=2)
        output = mx.sym.elemwise_mul(self._get_activation(one, "tanh"), other, name=f"{name}out")
        return output, [output]

    def unroll(self, steps, inputs, layout="NTC", merge_outputs=None, begin_state=None):
        return super().unroll(steps, inputs, self.begin_state(), layout, merge_outputs)


USERS = [
    (lambda: stack_of(Own("own_"), mx.rnn.LSTMCell(5, prefix="l_")), 5),
    (lambda: stack_of(mx.rnn.LSTMCell(5, prefix="l_"), mx.rnn.DropoutCell(0.5), Own("own_")), 4),
    (lambda: mx.rnn.BidirectionalCell(Own("own_"), mx.rnn.ResidualCell(Own("r_"))), 8),
    (lambda: mx.rnn.ZoneoutCell(Own("own_"), 0.1, 0.1), 4),
]


@pytest.mark.parametrize(("make", "width"), USERS)
def test_cells_of_users_inside_others(make, width):
    cell = make()
    outputs, states = cell.unroll(3, DATA)
    group = mx.sym.Group(outputs)
    assert group.infer_shape(data=(2, 3, 4))[1] == [(2, width)] * 3
    assert "own_start" in group.debug_str()  # its own begin state, not a new one
    assert "own_t2_out" in group.debug_str()
    assert len(states) == len(cell.state_info)


def test_a_users_cell_without_valid_length_and_its_gates():
    cell = stack_of(Own("own_", 3))
    with pytest.raises(ArgumentError, match="unroll of Own 'own_' does not accept it"):
        cell.unroll(3, DATA, valid_length=LENGTHS)
    shapes = {"i2h_weight": (6, 4), "i2h_bias": (6,), "h2h_weight": (6, 3), "h2h_bias": (6,)}
    packed = random_args({f"own_{name}": shape for name, shape in shapes.items()})
    parts = cell.unpack_weights(packed)
    wanted = {f"own_{n[:3]}_{gate}{n[3:]}": (3, *shape[1:]) for n, shape in shapes.items() for gate in "ab"}
    assert {name: part.shape for name, part in parts.items()} == wanted
    assert (parts["own_h2h_b_weight"].asnumpy() == packed["own_h2h_weight"].asnumpy()[3:]).all()
    close(as_numpy(cell.pack_weights(parts)), as_numpy(packed), 0, 0)


def test_valid_length_masks_the_input_of_a_residual_cell_too():
    symbol = merged(mx.rnn.ResidualCell(mx.rnn.GRUCell(UNITS, prefix="g_")), valid_length=LENGTHS)
    args = random_args(shapes_of(symbol, data=(ROWS, STEPS, UNITS)))
    (found,) = outputs_of(symbol, {**args, "n": mx.nd.array([1, 3])})
    np.testing.assert_array_equal((found != 0).all(2), np.arange(STEPS) < [[1], [3]])
    assert not found[0, 1:].any()


def test_zoneout_keeps_a_share_of_outputs_and_states():
    outputs, plain = merged(mx.rnn.ZoneoutCell(rnn(), 0.4, 0.0)), merged(rnn())
    args = random_args(shapes_of(outputs, data=(200, STEPS, UNITS)))
    (new,), (found,) = outputs_of(plain, args), outputs_of(outputs, args, is_train=True)
    close(outputs_of(outputs, args), [new])  # nothing happens in prediction
    before = np.concatenate([np.zeros_like(found[:, :1]), found[:, :-1]], axis=1)
    is_new, is_old = np.isclose(found, new), np.isclose(found, before)
    assert (is_new | is_old).all()
    assert is_old.mean() == pytest.approx(0.4, abs=0.04)
    (found,) = outputs_of(merged(mx.rnn.ZoneoutCell(rnn(), 0.0, 1.0)), args, is_train=True)
    for step in range(STEPS):  # every step sees the begin state
        mine = {**args, "data": mx.nd.array(args["data"].asnumpy()[:, step : step + 1])}
        close([found[:, step : step + 1]], outputs_of(merged(rnn(), 1), mine), 1e-5, 1e-6)


def test_dropout_cells():
    outputs, states = mx.rnn.DropoutCell(0.25).unroll(STEPS, DATA)
    assert (outputs.tojson().count('"Dropout"'), states) == (1, [])
    args = {"data": mx.nd.ones((100, STEPS, UNITS))}
    assert (outputs_of(outputs, args)[0] == 1).all()
    assert (outputs_of(outputs, args, is_train=True)[0] == 0).mean() == pytest.approx(0.25, abs=0.05)
    both, _ = mx.rnn.DropoutCell(0.5).unroll(2, [X, DATA], merge_outputs=True)
    assert both.infer_shape(x=(ROWS, UNITS), data=(ROWS, UNITS))[1] == [(ROWS, 2, UNITS)]
    assert mx.rnn.DropoutCell(0)(X, []) == (X, [])
