"""Dropout, zoneout and residual connections around cells."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.rnn_run import close, random_args, run, shapes_of

ROWS, STEPS, UNITS = 2, 4, 3


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
