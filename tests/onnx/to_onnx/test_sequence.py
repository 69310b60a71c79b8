"""Sequences in ONNX: recurrent networks, interleaved attention, sequences of different lengths."""

from itertools import product

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.ops.nn.rnn_weights import MODES, vector_size
from helpers.control_flow_goldens import BUILDERS, RUN, recorded
from helpers.onnx_runs import check_dynamic, check_same, runtime_outputs
from helpers.walk import walks

# recurrent networks, against our own executor

STEPS, ROWS, FEATURES, UNITS = 5, 3, 2, 4


def network(mode, layers=1, both=False, lengths=False, states=True, rows=ROWS, steps=STEPS):
    """Return an RNN and values of its inputs."""
    rng, state = np.random.RandomState(0), (layers * (1 + both), rows, UNITS)
    arrays = {"data": rng.randn(steps, rows, FEATURES)}
    arrays["parameters"] = 0.5 * rng.randn(vector_size(mode, layers, FEATURES, UNITS, both))
    arrays["state"] = rng.randn(*state)
    if mode == "lstm":
        arrays["state_cell"] = rng.randn(*state)
    if lengths:
        arrays["sequence_length"] = rng.randint(1, steps + 1, rows)
    attrs = {"state_size": UNITS, "num_layers": layers, "bidirectional": both, "mode": mode}
    attrs |= {"state_outputs": states, "use_sequence_length": lengths, "name": "rnn"}
    symbol = mx.sym.RNN(*map(mx.sym.Variable, arrays), **attrs)
    return symbol, {name: value.astype("float32") for name, value in arrays.items()}


NAMES = {"lstm": "LSTM", "gru": "GRU", "rnn_tanh": "RNN", "rnn_relu": "RNN"}
BOTH = (False, True)


@walks(product(MODES, (1, 2), BOTH, BOTH, BOTH), family=lambda mode, *_: mode)
def test_all_forms(mode, layers, both, lengths, states):
    symbol, arrays = network(mode, layers, both, lengths, states)
    model = check_same(symbol, arrays, ["parameters"])
    assert [node.op_type for node in model.graph.node].count(NAMES[mode]) == layers


@walks(product(MODES, BOTH, (13, 21)))
def test_parameters_that_another_operator_makes(mode, both, opset):
    symbol, arrays = network(mode, 2, both, True)
    check_same(symbol, arrays, opset=opset)


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_rows_and_steps_are_dynamic(mode):
    symbol, arrays = network(mode, 2, True, True)
    dynamic = {name: {1: "rows"} for name in arrays if name.startswith("state")}
    dynamic |= {"data": {0: "steps", 1: "rows"}, "sequence_length": {0: "rows"}}
    more = network(mode, 2, True, True, rows=6, steps=9)[1]
    del more["parameters"]
    model = check_dynamic(symbol, arrays, more, dynamic, ["parameters"])
    assert [d.dim_param for d in model.graph.output[0].type.tensor_type.shape.dim] == ["steps", "rows", ""]


# interleaved attention for sequences and batches of any length

rng = np.random.RandomState(4)
ANY = {0: "time", 1: "batch"}


def floats(*shape):
    return rng.standard_normal(shape).astype("f4")


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_interleaved_attention(opset):
    x, kv, contrib = mx.sym.Variable("x"), mx.sym.Variable("kv"), mx.sym.contrib
    weights = mx.sym.softmax(contrib.interleaved_matmul_selfatt_qk(x, heads=2))
    symbol = contrib.interleaved_matmul_selfatt_valatt(x, weights, heads=2)
    check_dynamic(symbol, {"x": floats(5, 2, 24)}, {"x": floats(7, 3, 24)}, {"x": ANY}, opset=opset)
    weights = mx.sym.softmax(contrib.interleaved_matmul_encdec_qk(x, kv, heads=2))
    symbol = contrib.interleaved_matmul_encdec_valatt(kv, weights, heads=2)
    sizes = (5, 2, 3), (4, 3, 9)
    first, other = ({"x": floats(n, rows, 8), "kv": floats(source, rows, 16)} for n, rows, source in sizes)
    check_dynamic(symbol, first, other, {"x": ANY, "kv": {0: "source", 1: "batch"}}, opset=opset)


def test_scaling_by_a_length_that_is_not_known():
    symbol = mx.sym.contrib.div_sqrt_dim(mx.sym.Variable("x"))
    check_dynamic(symbol, {"x": floats(2, 4)}, {"x": floats(2, 9)}, {"x": {1: "width"}})


# loops and branches go out as Scan, Loop and If, with the outputs recorded from MXNet 1.9.1


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("name", RUN)
def test_loops_and_branches_give_what_mxnet_gives(name, opset):
    symbol, arrays = BUILDERS[name][0](mx), recorded(name, "in")
    params = [key for key in arrays if key.endswith(("weight", "bias"))]
    for i, found in enumerate(runtime_outputs(check_same(symbol, arrays, params, opset=opset), arrays)):
        np.testing.assert_allclose(found, recorded(name, "out")[str(i)], rtol=1e-5, atol=1e-6)


def test_names_inside_bodies_take_none_from_the_graph():
    def step(x, s):
        made = mx.sym.FullyConnected(x, num_hidden=3, name="fc")
        return made, made + s

    out, _ = mx.sym.contrib.foreach(step, mx.sym.Variable("x"), mx.sym.Variable("s"))
    dense = mx.sym.FullyConnected(out, num_hidden=2, name="fc_output")
    params = {"fc_weight": floats(3, 5), "fc_bias": floats(3)}
    params |= {"fc_output_weight": floats(2, 6), "fc_output_bias": floats(2)}
    arrays = {"x": floats(4, 2, 5), "s": floats(2, 3), **params}
    check_same(mx.sym.Group([dense, mx.sym.relu(out, name="fc")]), arrays, [*params])
