"""The fused cell against the stack it unfuses to: forward, gradients, weights, Modules on one and two contexts."""

import itertools

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import ArgumentError, OpError, ShapeError
from helpers.rnn_run import as_arrays, as_numpy, close, random_args, run, shapes_of

UNITS, FEATURES, STEPS, ROWS = 3, 4, 5, 4
MODES = ("rnn_relu", "rnn_tanh", "lstm", "gru")
SHAPES = list(itertools.product(MODES, (1, 2), (False, True)))


def fused_cell(mode, layers, bidirectional, **more):
    return mx.rnn.FusedRNNCell(UNITS, layers, mode, bidirectional, prefix="f_", **more)


def unrolled(cell, layout="NTC", **more):
    outputs, _ = cell.unroll(STEPS, mx.sym.Variable("data"), layout=layout, merge_outputs=True, **more)
    return outputs


def arguments(symbol, layout="NTC", seed=0):
    data = (ROWS, STEPS, FEATURES) if layout == "NTC" else (STEPS, ROWS, FEATURES)
    return random_args(shapes_of(symbol, data=data), seed)


@pytest.mark.parametrize(("mode", "layers", "bidirectional"), SHAPES)
@pytest.mark.parametrize("layout", ["NTC", "TNC"])
def test_equals_the_unfused_stack_in_outputs_and_gradients(mode, layers, bidirectional, layout):
    cell = fused_cell(mode, layers, bidirectional)
    stack = cell.unfuse()
    fused, loose = unrolled(cell, layout), unrolled(stack, layout)
    args = arguments(fused, layout)
    outputs, grads = run(fused, args)
    loose_outputs, loose_grads = run(loose, stack.pack_weights(cell.unpack_weights(args)))
    close(outputs, loose_outputs)
    packed = cell.pack_weights(stack.unpack_weights(as_arrays(loose_grads)))
    close(grads, as_numpy(packed))


@pytest.mark.parametrize(("mode", "bidirectional"), list(itertools.product(("lstm", "gru"), (False, True))))
def test_equals_torch(mode, bidirectional):
    cell = fused_cell(mode, 2, bidirectional)
    symbol = unrolled(cell)
    args = arguments(symbol)
    loose = cell.unfuse().pack_weights(cell.unpack_weights(args))
    module = {"lstm": torch.nn.LSTM, "gru": torch.nn.GRU}[mode](
        FEATURES, UNITS, 2, bidirectional=bidirectional, batch_first=True
    )
    names = {}
    for theirs, _ in module.named_parameters():
        kind, part, layer = theirs.removesuffix("_reverse").split("_")
        side = "r" if theirs.endswith("reverse") else "l"
        names[theirs] = f"f_{side}{layer[1:]}_{'i2h' if part == 'ih' else 'h2h'}_{kind}"
    with torch.no_grad():
        for theirs, parameter in module.named_parameters():
            parameter.copy_(torch.from_numpy(loose[names[theirs]].asnumpy()))
    data = torch.from_numpy(args["data"].asnumpy()).requires_grad_()
    want = module(data)[0]
    want.backward(torch.linspace(0.5, 1.5, want.numel()).reshape(want.shape))
    outputs, grads = run(symbol, args)
    close(outputs, [want.detach().numpy()])
    np.testing.assert_allclose(grads["data"], data.grad.numpy(), 1e-4, 1e-5)
    found = cell.unfuse().pack_weights(
        cell.unpack_weights({"f_parameters": mx.nd.array(grads["f_parameters"])})
    )
    for theirs, parameter in module.named_parameters():
        np.testing.assert_allclose(found[names[theirs]].asnumpy(), parameter.grad.numpy(), 1e-4, 1e-5)


def network(cell, length=STEPS):
    outputs, _ = cell.unroll(length, mx.sym.Variable("data"), merge_outputs=True)
    return mx.sym.LinearRegressionOutput(
        mx.sym.FullyConnected(mx.sym.mean(outputs, axis=1), num_hidden=2, name="out"),
        mx.sym.Variable("label"),
        name="loss",
    )


def train(cell, contexts, args, steps=3):
    """Return the weights, one array for each gate, after a few steps of momentum descent."""
    module = mx.mod.Module(network(cell), ["data"], ["label"], context=contexts)
    module.bind([("data", (ROWS, STEPS, FEATURES))], [("label", (ROWS, 2))])
    module.init_params(arg_params=cell.pack_weights(args), aux_params={})
    module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    random = np.random.RandomState(1)
    batch = mx.io.DataBatch(
        [mx.nd.array(random.uniform(-1, 1, (ROWS, STEPS, FEATURES)))],
        [mx.nd.array(random.uniform(-1, 1, (ROWS, 2)))],
    )
    for _ in range(steps):
        module.forward_backward(batch)
        module.update()
    return as_numpy(cell.unpack_weights(module.get_params()[0]))


@pytest.mark.parametrize("mode", ["rnn_tanh", "lstm", "gru"])
def test_trains_as_the_unfused_stack_does_on_one_and_two_contexts(mode):
    cell = fused_cell(mode, 2, True)
    stack = cell.unfuse()
    shapes = shapes_of(network(cell), data=(ROWS, STEPS, FEATURES))
    args = random_args({name: shape for name, shape in shapes.items() if name not in ("data", "label")}, 3)
    args = cell.unpack_weights(args)
    want = train(cell, [mx.cpu(0)], args)
    assert np.abs(want["f_l0_i2h" + {"rnn_tanh": "", "lstm": "_f", "gru": "_z"}[mode] + "_weight"]).max() > 0
    for one, contexts in [(cell, 2), (stack, 1), (stack, 2)]:
        close(train(one, [mx.cpu(i) for i in range(contexts)], args), want, 1e-4, 1e-5)


def test_default_prefix_and_begin_values():
    cell = mx.rnn.FusedRNNCell(UNITS, 1, "lstm", forget_bias=3.0)
    assert cell.params.names() == ["lstm_parameters"]
    module = mx.mod.Module(unrolled(cell), ["data"], None)
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


@pytest.mark.parametrize("mode", MODES)
def test_next_states_are_those_of_the_unfused_stack(mode):
    cell = fused_cell(mode, 2, False, get_next_state=True)
    stack = cell.unfuse()
    outputs, states = cell.unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)
    loose_outputs, loose_states = stack.unroll(STEPS, mx.sym.Variable("data"), merge_outputs=True)
    fused, loose = mx.sym.Group([outputs, *states]), mx.sym.Group([loose_outputs, *loose_states])
    args = arguments(fused)
    found = [o.asnumpy() for o in fused.bind(mx.cpu(), args).forward()]
    args = stack.pack_weights(cell.unpack_weights(args))
    want = [o.asnumpy() for o in loose.bind(mx.cpu(), args).forward()]
    count = len(states)
    for i, state in enumerate(found[1:]):
        close(list(state), want[1 + i :: count])
    assert states[0].attr("__layout__") == "LNC"


def test_states_carried_by_hand():
    cell = fused_cell("lstm", 1, False, get_next_state=True)
    begin = cell.begin_state(func=mx.sym.Variable)
    outputs, states = cell.unroll(2, mx.sym.Variable("data"), begin_state=begin, merge_outputs=True)
    half = mx.sym.Group([outputs, *states])
    whole = unrolled_to(4)
    args = random_args(shapes_of(whole, data=(ROWS, 4, FEATURES)))
    want = whole.bind(mx.cpu(), args).forward()[0].asnumpy()
    carried = [mx.nd.zeros((1, ROWS, UNITS))] * 2
    for start in (0, 2):
        mine = {
            "data": mx.nd.array(args["data"].asnumpy()[:, start : start + 2]),
            "f_parameters": args["f_parameters"],
            "f_begin_state_0": carried[0],
            "f_begin_state_1": carried[1],
        }
        found, *carried = (o.copy() for o in half.bind(mx.cpu(), mine).forward())
        np.testing.assert_allclose(found.asnumpy(), want[:, start : start + 2], 1e-5, 1e-6)


def unrolled_to(length):
    return fused_cell("lstm", 1, False).unroll(length, mx.sym.Variable("data"), merge_outputs=True)[0]


@pytest.mark.parametrize(("mode", "bidirectional"), list(itertools.product(MODES, (False, True))))
def test_valid_length_as_in_the_unfused_stack(mode, bidirectional):
    cell = fused_cell(mode, 2, bidirectional)
    stack = cell.unfuse()
    lengths = mx.sym.Variable("n")
    fused, loose = unrolled(cell, valid_length=lengths), unrolled(stack, valid_length=lengths)
    args = arguments(fused)
    args["n"] = mx.nd.array([1, 5, 3, 2])
    outputs, grads = run(fused, args)
    loose_outputs, loose_grads = run(loose, stack.pack_weights(cell.unpack_weights(args)))
    close(outputs, loose_outputs)
    close(grads, as_numpy(cell.pack_weights(stack.unpack_weights(as_arrays(loose_grads)))))


def test_split_outputs():
    cell = fused_cell("gru", 1, False)
    outputs, states = cell.unroll(
        STEPS, [mx.sym.Variable(f"x{i}") for i in range(STEPS)], merge_outputs=False
    )
    assert len(outputs) == STEPS
    assert states == []
    assert outputs[2].infer_shape(**{f"x{i}": (ROWS, FEATURES) for i in range(STEPS)})[1] == [(ROWS, UNITS)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.sampled_from(MODES),
    st.integers(1, 3),
    st.integers(1, 5),
    st.integers(1, 6),
    st.booleans(),
    st.integers(0, 1000),
)
def test_weights_survive_unpacking_unfusing_and_back(mode, layers, units, features, bidirectional, seed):
    cell = mx.rnn.FusedRNNCell(units, layers, mode, bidirectional, prefix="f_")
    size = mx.ops.nn.rnn_weights.vector_size(mode, layers, features, units, bidirectional)
    args = random_args({"f_parameters": (size,), "other": (2,)}, seed)
    unpacked = cell.unpack_weights(args)
    assert sum(array.size for array in unpacked.values()) == size + 2
    stack = cell.unfuse()
    loose = stack.pack_weights(unpacked)
    assert {name for name in loose if name != "other"} == set(stack.params.names())
    close(as_numpy(cell.pack_weights(stack.unpack_weights(loose))), as_numpy(args), 0, 0)


class TestMisuse:
    def test_mode(self):
        with pytest.raises(OpError, match="mode is 'elman', expected one of rnn_relu, rnn_tanh, lstm, gru"):
            mx.rnn.FusedRNNCell(UNITS, mode="elman")

    @pytest.mark.parametrize("wrong", [{"num_hidden": 0}, {"num_hidden": 3, "num_layers": "2"}])
    def test_sizes(self, wrong):
        with pytest.raises(ArgumentError, match="expected an integer from 1"):
            mx.rnn.FusedRNNCell(**wrong)

    def test_single_step(self):
        cell = fused_cell("gru", 1, False)
        with pytest.raises(NotImplementedError, match=r"use unroll, or unfuse\(\) and call that"):
            cell(mx.sym.Variable("x"), cell.begin_state())
        assert not cell.steppable

    def test_states(self):
        with pytest.raises(ArgumentError, match="FusedRNNCell 'f_': got 1 states, expected 2"):
            fused_cell("lstm", 1, False).unroll(2, mx.sym.Variable("x"), begin_state=[mx.sym.Variable("s")])

    def test_weights(self):
        cell = fused_cell("gru", 1, False)
        with pytest.raises(ArgumentError, match="FusedRNNCell 'f_': args has no 'f_parameters'"):
            cell.unpack_weights({})
        with pytest.raises(ShapeError, match="parameters have 50 elements, expected 54 plus 9"):
            cell.unpack_weights({"f_parameters": mx.nd.zeros((50,))})
        with pytest.raises(ArgumentError, match="args has no 'f_l0_i2h_r_weight'"):
            cell.pack_weights({})
        pieces = cell.unpack_weights({"f_parameters": mx.nd.zeros((63,))})
        pieces["f_l0_h2h_z_weight"] = mx.nd.zeros((3, 4))
        with pytest.raises(ArgumentError, match=r"f_l0_h2h_z_weight has shape \(3, 4\), expected \(3, 3\)"):
            cell.pack_weights(pieces)
