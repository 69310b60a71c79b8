"""The fused cell against the stack it unfuses to: outputs, gradients, states, lengths and weights."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.rnn_run import as_numpy, close, random_args, run, shapes_of

UNITS, FEATURES, STEPS, ROWS = 3, 4, 5, 4
MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
DATA = mx.sym.Variable("data")


def fused_cell(mode, layers, bidirectional, **more):
    return mx.rnn.FusedRNNCell(UNITS, layers, mode, bidirectional, prefix="f_", **more)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, True)])
@pytest.mark.parametrize("lengths", [None, [1, 5, 3, 2]])
def test_equals_the_unfused_stack_in_outputs_and_gradients(mode, layers, bidirectional, lengths):
    cell = fused_cell(mode, layers, bidirectional)
    more = {"valid_length": mx.sym.Variable("n")} if lengths else {}
    stack, layout = cell.unfuse(), "NTC" if layers == 2 else "TNC"
    more |= {"layout": layout, "merge_outputs": True}
    fused, loose = (each.unroll(STEPS, DATA, **more)[0] for each in (cell, stack))
    shape = (ROWS, STEPS, FEATURES) if layers == 2 else (STEPS, ROWS, FEATURES)
    args = random_args(shapes_of(fused, data=shape)) | ({"n": mx.nd.array(lengths)} if lengths else {})
    outputs, grads = run(fused, args)
    loose_outputs, loose_grads = run(loose, stack.pack_weights(cell.unpack_weights(args)))
    close(outputs, loose_outputs)
    loose_grads = {name: mx.nd.array(value) for name, value in loose_grads.items()}
    close(grads, as_numpy(cell.pack_weights(stack.unpack_weights(loose_grads))))


def test_default_prefix_and_begin_values():
    cell = mx.rnn.FusedRNNCell(UNITS, 1, "lstm", forget_bias=3.0)
    assert cell.params.names() == ["lstm_parameters"]
    assert not cell.steppable
    module = mx.mod.Module(cell.unroll(STEPS, DATA, merge_outputs=True)[0], ["data"], None)
    module.bind([("data", (ROWS, STEPS, FEATURES))], None)
    module.init_params(mx.init.Xavier())
    found = as_numpy(cell.unpack_weights(module.get_params()[0]))
    for part in ("i2h", "h2h"):
        np.testing.assert_array_equal(found[f"lstm_l0_{part}_f_bias"], 3.0)
        assert not found[f"lstm_l0_{part}_o_bias"].any()
        bound = np.sqrt(3 / ((found[f"lstm_l0_{part}_c_weight"].shape[1] + UNITS) / 2))
        assert 0.4 * bound < np.abs(found[f"lstm_l0_{part}_c_weight"]).max() <= bound


def test_unfused_cells_keep_the_forget_bias():
    cell = mx.rnn.FusedRNNCell(UNITS, 1, "lstm", forget_bias=3.0, prefix="f_").unfuse()
    bias = cell.unroll(1, mx.sym.Variable("x"))[0][0].attr_dict()["f_l0_i2h_bias"]
    assert bias["__init__"] == '["lstmbias", {"forget_bias": 3.0}]'
