"""Sequences in ONNX: recurrent networks, interleaved attention, sequences of different lengths."""

import itertools

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from dpmodule.onnx.to_onnx.call import Untranslatable
from dpmodule.ops.nn.rnn_weights import MODES, vector_size
from helpers.control_flow_goldens import BUILDERS, RUN, recorded
from helpers.onnx_runs import check_dynamic, check_same, exported, our_outputs, runtime_outputs
from helpers.walk import walks

# recurrent networks, against our own executor

STEPS, ROWS, FEATURES, UNITS = 5, 3, 2, 4


def network(mode, layers=1, both=False, lengths=False, states=True, rows=ROWS, steps=STEPS, seed=0, **more):
    """Return an RNN and values of its inputs."""
    rng = np.random.RandomState(seed)
    state = (layers * (1 + both), rows, UNITS)
    arrays = {
        "data": rng.randn(steps, rows, FEATURES),
        "parameters": 0.5 * rng.randn(vector_size(mode, layers, FEATURES, UNITS, both)),
        "state": rng.randn(*state),
    }
    if mode == "lstm":
        arrays["state_cell"] = rng.randn(*state)
    if lengths:
        arrays["sequence_length"] = rng.randint(1, steps + 1, rows)
    symbol = mx.sym.RNN(
        *map(mx.sym.Variable, arrays),
        state_size=UNITS,
        num_layers=layers,
        bidirectional=both,
        mode=mode,
        state_outputs=states,
        use_sequence_length=lengths,
        name="rnn",
        **more,
    )
    return symbol, {name: value.astype("float32") for name, value in arrays.items()}


ROWS_OF_ALL = list(itertools.product(MODES, (1, 2), (False, True), (False, True), (False, True)))


@walks(ROWS_OF_ALL, family=lambda mode, *_: mode)
def test_all_forms(mode, layers, both, lengths, states):
    symbol, arrays = network(mode, layers, both, lengths, states)
    model = check_same(symbol, arrays, ["parameters"])
    assert [node.op_type for node in model.graph.node].count(
        mode[:3].upper().replace("LST", "LSTM")
    ) == layers


@walks(list(itertools.product(MODES, (False, True), (13, 21))))
def test_parameters_that_another_operator_makes(mode, both, opset):
    symbol, arrays = network(mode, 2, both, True)
    check_same(symbol, arrays, opset=opset)


@pytest.mark.parametrize("mode", ["lstm", "gru"])
def test_rows_and_steps_are_dynamic(mode):
    symbol, arrays = network(mode, 2, True, True)
    dynamic = {name: {1: "rows"} for name in arrays if name.startswith("state")}
    dynamic |= {"data": {0: "steps", 1: "rows"}, "sequence_length": {0: "rows"}}
    model = exported(symbol, arrays, ["parameters"], dynamic=dynamic)
    assert [d.dim_param for d in model.graph.output[0].type.tensor_type.shape.dim] == ["steps", "rows", ""]
    more = network(mode, 2, True, True, rows=6, steps=9)[1] | {"parameters": arrays["parameters"]}
    for ours, theirs in zip(our_outputs(symbol, more), runtime_outputs(model, more), strict=True):
        np.testing.assert_allclose(theirs, ours, 1e-4, 1e-5)


@pytest.mark.parametrize("dtype", ["float16", "float64"])
def test_other_types_are_computed_in_single_precision(dtype):
    symbol, arrays = network("gru", 1, True)
    arrays = {name: value.astype(dtype) for name, value in arrays.items()}
    check_same(symbol, arrays, ["parameters"], atol=2e-3)


def test_a_projection_is_refused():
    symbol, arrays = network("lstm", projection_size=3)
    arrays["parameters"] = np.zeros(vector_size("lstm", 1, FEATURES, UNITS, False, 3), "float32")
    arrays["state"] = arrays["state"][:, :, :3]
    with pytest.raises(ArgumentError, match="projection_size is 3, but ONNX's LSTM has no projection"):
        exported(symbol, arrays, ["parameters"])


# interleaved attention for sequences and batches of any length

rng = np.random.RandomState(4)
ANY = {0: "time", 1: "batch"}


def floats(*shape):
    return rng.standard_normal(shape).astype("f4")


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_attention_to_itself(opset):
    x, contrib = mx.sym.Variable("x"), mx.sym.contrib
    weights = mx.sym.softmax(contrib.interleaved_matmul_selfatt_qk(x, heads=2))
    symbol = contrib.interleaved_matmul_selfatt_valatt(x, weights, heads=2)
    check_dynamic(symbol, {"x": floats(5, 2, 24)}, {"x": floats(7, 3, 24)}, {"x": ANY}, opset=opset)


@pytest.mark.parametrize("opset", [13, 17, 21])
def test_attention_to_an_encoder(opset):
    queries, pairs, contrib = mx.sym.Variable("q"), mx.sym.Variable("kv"), mx.sym.contrib
    weights = mx.sym.softmax(contrib.interleaved_matmul_encdec_qk(queries, pairs, heads=2))
    symbol = contrib.interleaved_matmul_encdec_valatt(pairs, weights, heads=2)
    first, other = (
        {"q": floats(5, 2, 8), "kv": floats(3, 2, 16)},
        {"q": floats(4, 3, 8), "kv": floats(9, 3, 16)},
    )
    check_dynamic(symbol, first, other, {"q": ANY, "kv": {0: "source", 1: "batch"}}, opset=opset)


def test_scaling_by_a_length_that_is_not_known():
    symbol = mx.sym.contrib.div_sqrt_dim(mx.sym.Variable("x"))
    check_dynamic(symbol, {"x": floats(2, 4)}, {"x": floats(2, 9)}, {"x": {1: "width"}})


# sequences of different lengths, with other numbers of steps and rows than at export

OPERATORS = ("SequenceMask", "SequenceLast", "SequenceReverse")


def values(axis, steps, rows, *rest):
    """Return data, (T, N, ...) or (N, T, ...), and lengths of which one is too large and one is 1."""
    rng = np.random.RandomState(0)
    shape = (steps, rows, *rest) if axis == 0 else (rows, steps, *rest)
    lengths = rng.randint(1, steps + 1, rows)
    lengths[0] = 1
    return {"x": rng.randn(*shape).astype("float32"), "lengths": lengths.astype("float32")}


@walks(list(itertools.product(OPERATORS, (0, 1), ((), (3,), (2, 2)), (False, True))))
def test_any_steps_and_rows(name, axis, rest, given):
    data, lengths = mx.sym.Variable("x"), [mx.sym.Variable("lengths")] if given else []
    symbol = getattr(mx.sym, name)(data, *lengths, use_sequence_length=given, axis=axis, name="op")
    dynamic = {"x": {axis: "steps", 1 - axis: "rows"}} | ({"lengths": {0: "rows"}} if given else {})
    arrays = {key: value for key, value in values(axis, 4, 3, *rest).items() if key == "x" or given}
    model = exported(symbol, arrays, dynamic=dynamic)
    more = {key: value for key, value in values(axis, 6, 5, *rest).items() if key in arrays}
    (ours,), (theirs,) = our_outputs(symbol, more), runtime_outputs(model, more)
    np.testing.assert_array_equal(theirs, ours)


# loops and branches go out as Scan, Loop and If, with the outputs recorded from MXNet 1.9.1

draw = np.random.RandomState(8)


def drawn(*shape):
    return draw.standard_normal(shape).astype("f4")


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("name", RUN)
def test_loops_and_branches_give_what_mxnet_gives(name, opset):
    symbol = BUILDERS[name][0](mx)
    arrays = recorded(name, "in")
    params = [key for key in arrays if key.endswith(("weight", "bias"))]
    model = check_same(symbol, arrays, params, opset=opset)
    for i, found in enumerate(runtime_outputs(model, arrays)):
        np.testing.assert_allclose(found, recorded(name, "out")[str(i)], rtol=1e-5, atol=1e-6)


def test_loops_over_any_number_of_steps():
    out, state = mx.sym.contrib.foreach(
        lambda x, s: (x * 2 + s, s + x), mx.sym.Variable("x"), mx.sym.Variable("s")
    )
    first, other = ({"x": drawn(t, n, 4), "s": drawn(n, 4)} for t, n in ((3, 2), (6, 5)))
    marks = {"x": {0: "time", 1: "batch"}, "s": {0: "batch"}}
    model = check_dynamic(mx.sym.Group([out, state]), first, other, marks)
    assert "Scan" in {node.op_type for node in model.graph.node}


def test_rows_behind_the_last_step_are_zeros():
    outputs, states = mx.sym.contrib.while_loop(
        lambda i, s: i < 4,
        lambda i, s: ([s * 2], [i + 1, s + 1]),
        [mx.sym.Variable("i"), mx.sym.Variable("s")],
        6,
    )
    symbol = mx.sym.Group([*outputs, *states])
    for start in (0, 3, 4, -9):
        first = {"i": np.full(1, start, "f4"), "s": drawn(2, 4)}
        check_dynamic(symbol, first, {"s": drawn(5, 4)}, {"s": {0: "batch"}})


def test_names_inside_bodies_take_none_from_the_graph():
    def step(x, s):
        made = mx.sym.FullyConnected(x, num_hidden=3, name="fc")
        return made, made + s

    out, _ = mx.sym.contrib.foreach(step, mx.sym.Variable("x"), mx.sym.Variable("s"))
    symbol = mx.sym.Group(
        [mx.sym.FullyConnected(out, num_hidden=2, name="fc_output"), mx.sym.relu(out, name="fc")]
    )
    arrays = {"x": drawn(4, 2, 5), "s": drawn(2, 3), "fc_weight": drawn(3, 5), "fc_bias": drawn(3)}
    arrays.update(fc_output_weight=drawn(2, 6), fc_output_bias=drawn(2))
    params = [name for name in arrays if name.startswith("fc")]
    check_same(symbol, arrays, params)


def test_what_a_body_lacks_is_named():
    out, _ = mx.sym.contrib.foreach(
        lambda x, s: (mx.sym.Correlation(x, x, name="corr"), s), mx.sym.Variable("x"), []
    )
    with pytest.raises(Untranslatable, match="Correlation 'corr'"):
        exported(out, {"x": drawn(2, 1, 3, 4, 4)})
