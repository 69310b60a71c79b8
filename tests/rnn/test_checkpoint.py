"""Checkpoints of recurrent networks: saved gate by gate, read by fused and unfused cells."""

import numpy as np
import pytest

import dpmodule as mx
from helpers.rnn_run import as_numpy, close, outputs_of, random_args, shapes_of

SHAPE = (2, 3, 4)


def network(cell):
    outputs, _ = cell.unroll(SHAPE[1], mx.sym.Variable("data"), merge_outputs=True)
    return mx.sym.FullyConnected(outputs, num_hidden=2, name="out")


def params_of(symbol):
    return random_args({name: s for name, s in shapes_of(symbol, data=SHAPE).items() if name != "data"})


@pytest.mark.parametrize("mode", ["rnn_tanh", "lstm", "gru"])
def test_fused_weights_are_read_by_the_unfused_stack_and_back(tmp_path, mode):
    fused, prefix = mx.rnn.FusedRNNCell(3, 2, mode, True, prefix="f_"), str(tmp_path / "net")
    symbol, data = network(fused), mx.nd.array(np.linspace(-1, 1, 24).reshape(SHAPE))
    args = params_of(symbol)
    before = as_numpy(args)
    mx.rnn.save_rnn_checkpoint(fused, prefix, 3, symbol, args, {})
    close(as_numpy(args), before, 0, 0)
    assert not any("parameters" in name for name in mx.nd.load(f"{prefix}-0003.params"))
    stack = fused.unfuse()
    saved, loose, aux = mx.rnn.load_rnn_checkpoint(stack, prefix, 3)
    assert (saved.tojson(), aux) == (symbol.tojson(), {})
    found = outputs_of(network(stack), {**loose, "data": data})
    close(found, outputs_of(symbol, {**args, "data": data}), 1e-5, 1e-6)
    mx.rnn.save_rnn_checkpoint([stack], prefix, 4, None, loose, {})
    _, again, _ = mx.rnn.load_rnn_checkpoint([fused], prefix, 4)
    close(as_numpy(again), before, 0, 0)


def test_callback_saves_every_period(tmp_path):
    cell, prefix = mx.rnn.GRUCell(3, prefix="g_"), str(tmp_path / "net")
    symbol, callback = network(cell), mx.rnn.do_rnn_checkpoint(cell, prefix, period=2)
    args = params_of(symbol)
    for epoch in range(5):
        callback(epoch, symbol, args, {})
    assert sorted(p.name for p in tmp_path.glob("*.params")) == ["net-0002.params", "net-0004.params"]
    _, found, _ = mx.rnn.load_rnn_checkpoint(cell, prefix, 4)
    close(as_numpy(found), as_numpy(args), 0, 0)
