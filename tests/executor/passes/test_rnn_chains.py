"""Unrolled recurrent networks run by torch's kernels: the same numbers as step by step, wherever that is possible."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import executor
from dpmodule.executor.passes.rnn_chains.kernels import Recurrence, make_contiguous
from dpmodule.executor.passes.rnn_chains.sequences import RowFunction
from dpmodule.ops.nn import linear
from helpers.unrolled import (
    FEATURES,
    NTC,
    ROWS,
    STEPS,
    TNC,
    UNITS,
    Run,
    by_hand,
    close,
    compare,
    lstm_step,
    slices,
    switched,
    weights_of,
    zeros,
)

S = mx.sym
RECORDED = Path(__file__).parents[2] / "data" / "rnn_chains"
CELLS = {
    "lstm": lambda prefix: mx.rnn.LSTMCell(UNITS, prefix=prefix),
    "gru": lambda prefix: mx.rnn.GRUCell(UNITS, prefix=prefix),
    "tanh": lambda prefix: mx.rnn.RNNCell(UNITS, prefix=prefix),
    "relu": lambda prefix: mx.rnn.RNNCell(UNITS, activation="relu", prefix=prefix),
}


def calls(run):
    return {step.name for step in run.program.low.steps}


def flat(states):
    return [each for s in states for each in (flat(s) if isinstance(s, list) else [s])]


def as_list(outputs):
    return [outputs] if isinstance(outputs, mx.sym.Symbol) else list(outputs)


def stack(*cells):
    found = mx.rnn.SequentialRNNCell()
    for cell in cells:
        found.add(cell)
    return found


def unrolled(make_cell, with_states=True, steps=STEPS, **options):
    def make(dtype):
        cell = make_cell()
        begin = cell.begin_state(dtype=dtype)
        outputs, states = cell.unroll(steps, S.Variable("data"), begin_state=begin, **options)
        return S.Group(as_list(outputs) + (flat(states) if with_states else []))

    return make


# cells


@pytest.mark.parametrize("merge", [True, False, None])
@pytest.mark.parametrize("layout", ["NTC", "TNC"])
@pytest.mark.parametrize("kind", CELLS)
def test_cells_in_every_layout(kind, layout, merge):
    make = unrolled(lambda: CELLS[kind]("c_"), layout=layout, merge_outputs=merge)
    compare(make, {"data": NTC if layout == "NTC" else TNC}, 1)


@pytest.mark.parametrize("kind", CELLS)
def test_predict_and_backward_after_it(kind):
    make = unrolled(lambda: CELLS[kind]("c_"), merge_outputs=True)
    compare(make, {"data": NTC}, 1, is_train=False)
    net = make("float32")
    found = []
    for off in (True, False):
        with switched(off):
            bound = net.simple_bind(mx.cpu(), grad_req="null", data=NTC)
            for name, array in bound.arg_dict.items():
                array[:] = mx.nd.array(np.random.RandomState(len(name)).uniform(-1, 1, array.shape))
            found.append([out.asnumpy() for out in bound.forward()])
            assert bound._prepare(False, False).program.low.fired.get("rnn_chains", 0) == (not off)
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("layout", ["NTC", "TNC"])
@pytest.mark.parametrize("merge", [True, False])
def test_layers_and_directions(layout, merge):
    def make_cell():
        both = mx.rnn.BidirectionalCell(CELLS["lstm"]("a_"), CELLS["gru"]("b_"))
        more = mx.rnn.BidirectionalCell(CELLS["tanh"]("c_"), CELLS["lstm"]("d_"), output_prefix="more_")
        return stack(CELLS["gru"]("e_"), both, more)

    make = unrolled(make_cell, layout=layout, merge_outputs=merge)
    got = compare(make, {"data": NTC if layout == "NTC" else TNC}, 5)
    assert "stacked" not in calls(got)


@pytest.mark.parametrize("with_states", [True, False])
@pytest.mark.parametrize("merge", [True, False, None])
def test_valid_length(merge, with_states):
    def make_cell():
        return stack(CELLS["lstm"]("a_"), mx.rnn.BidirectionalCell(CELLS["lstm"]("b_"), CELLS["gru"]("c_")))

    make = unrolled(make_cell, with_states, merge_outputs=merge, valid_length=S.Variable("lengths"))
    shapes = {"data": NTC, "lengths": (ROWS,)}
    got = compare(make, shapes, 3, values={"lengths": [2, 5]})
    assert ("cell_states" in calls(got)) == with_states


def test_modifiers_between_and_around():
    def make_cell():
        return stack(
            CELLS["lstm"]("a_"),
            mx.rnn.DropoutCell(0.4),
            mx.rnn.ResidualCell(CELLS["gru"]("b_")),
            mx.rnn.DropoutCell(0.2),
            mx.rnn.ResidualCell(CELLS["lstm"]("c_")),
        )

    for merge in (True, False):
        got = compare(unrolled(make_cell, merge_outputs=merge), {"data": NTC}, 3)
        assert merge is False or "unbind" not in calls(got)


def test_zoneout_of_states_is_no_chain_but_of_outputs_is():
    def make_cell(**shares):
        return lambda: mx.rnn.ZoneoutCell(CELLS["lstm"]("z_"), **shares)

    compare(unrolled(make_cell(zoneout_states=0.3)), {"data": NTC}, 0)
    compare(unrolled(make_cell(zoneout_outputs=0.3)), {"data": NTC}, 1)


# inputs and begin states


def test_slices_of_one_tensor_are_not_stacked():
    def make(dtype):
        tokens = S.Embedding(S.Variable("data"), input_dim=9, output_dim=FEATURES, dtype=dtype, name="embed")
        outputs, _ = CELLS["lstm"]("l_").unroll(STEPS, tokens, [zeros(dtype)] * 2, merge_outputs=True)
        return S.FullyConnected(S.Reshape(outputs, shape=(-1, UNITS)), num_hidden=7)

    values = {"data": np.arange(ROWS * STEPS).reshape(ROWS, STEPS) % 9}
    got = compare(make, {"data": (ROWS, STEPS)}, 1, values=values)
    for gone in ("split", "expand_dims", "concat", "stacked", "unbind"):
        assert gone not in calls(got)
    assert got.program.source.count("\n") < 16


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("axis", [0, 1])
@pytest.mark.parametrize("squeezed", [False, True])
def test_pieces_in_any_form(axis, squeezed, turned):
    shape = (2 * STEPS, ROWS, 2) if not axis else (ROWS, 2 * STEPS, 2)
    if squeezed:
        shape = (STEPS, ROWS, 2, 2) if not axis else (ROWS, STEPS, 2, 2)

    def make(dtype):
        steps = list(S.SliceChannel(S.Variable("data"), num_outputs=STEPS, axis=axis, squeeze_axis=squeezed))
        outputs, _ = CELLS["gru"]("g_").unroll(STEPS, steps[::-1] if turned else steps, [S.Variable("begin")])
        return S.Group(outputs[1:])

    rows = 2 if not squeezed and not axis else ROWS
    got = compare(make, {"data": shape, "begin": (rows, UNITS)}, 1)
    assert "stacked" not in calls(got)


def test_a_part_of_a_sequence_and_parts_out_of_order():
    def make(pick):
        def make_net(dtype):
            first, _ = CELLS["tanh"]("a_").unroll(STEPS, S.Variable("data"), [zeros(dtype)])
            steps = pick(first)
            outputs, _ = CELLS["gru"]("b_").unroll(len(steps), steps, [zeros(dtype)])
            return S.Group([S.stack(*outputs, axis=1), S.Concat(*outputs[:-1], dim=1)])

        return make_net

    got = compare(make(lambda s: s[1:]), {"data": NTC}, 2)
    assert "stacked" not in calls(got)
    got = compare(make(lambda s: [s[3], s[1], s[2], s[1]]), {"data": NTC}, 2)
    assert "stacked" in calls(got)


def test_variables_for_steps_and_for_begin_states():
    def make(dtype):
        steps = [S.Variable(f"t{t}_data") for t in range(STEPS)]
        begin = [S.Variable("same")] * 2
        outputs, states = CELLS["lstm"]("l_").unroll(STEPS, steps, begin)
        return S.Group([*outputs, *states])

    compare(make, {**{f"t{t}_data": (ROWS, FEATURES) for t in range(STEPS)}, "same": (ROWS, UNITS)}, 1)


def test_an_encoder_begins_a_decoder():
    def make(dtype):
        _, states = CELLS["lstm"]("e_").unroll(STEPS, S.Variable("data"), [zeros(dtype)] * 2)
        weights, outputs = weights_of("d"), []
        x, back = S.Variable("first"), S.Variable("back_weight")
        for _ in range(STEPS):  # reads its own outputs
            states = lstm_step(x, states, weights)
            outputs.append(states[0])
            x = S.FullyConnected(states[0], back, num_hidden=FEATURES, no_bias=True)
        return S.Group(outputs)

    compare(make, {"data": NTC, "first": (ROWS, FEATURES)}, 1)


@pytest.mark.parametrize("seen", [False, True])
def test_layers_of_their_own_at_every_step(seen):
    """`seen`: others read what they make, so that they stay."""

    def make(dtype):
        table, before, after = S.Variable("table"), weights_of("before")[:2], weights_of("after")[:2]
        steps = []
        for token in slices(S.Variable("data")):
            x = S.Embedding(token, table, input_dim=9, output_dim=FEATURES, dtype=dtype)
            steps.append(S.relu(S.FullyConnected(x, *before, num_hidden=UNITS)))
        outputs, _ = CELLS["lstm"]("l_").unroll(STEPS, steps, [zeros(dtype)] * 2)
        logits = [S.FullyConnected(S.tanh(out), *after, num_hidden=7) for out in outputs]
        merged = S.Concat(*logits, dim=0)
        return S.Group([merged, *logits[1:3], *steps[:2]]) if seen else merged

    values = {"data": np.arange(ROWS * STEPS).reshape(ROWS, STEPS) % 9}
    got = compare(make, {"data": (ROWS, STEPS)}, 1, values=values)
    steps = got.program.low.steps
    assert sum(isinstance(step.function, RowFunction) for step in steps) == (0 if seen else 2)
    assert [step.name for step in steps].count("Embedding") == (STEPS if seen else 1)


def test_deep_sums_of_lists_are_not_followed_for_ever():
    def make(dtype):
        outputs, _ = CELLS["gru"]("g_").unroll(STEPS, S.Variable("data"), [zeros(dtype)])
        other = slices(S.Variable("other"))[::2]
        doubled = outputs[:3]
        for _ in range(60):
            doubled = [0.5 * (a + a) for a in doubled]
        summed = other
        for _ in range(400):
            summed = [a + b for a, b in zip(summed, other, strict=True)]
        for _ in range(40):
            other = [a + a for a in other]
        return S.Group([S.stack(*each, axis=0) for each in (doubled, summed, other)])

    bound = make("float32").simple_bind(mx.cpu(), data=NTC, other=NTC)
    bound.forward(is_train=True)
    assert bound._prepare(True, True).program.low.fired["rnn_chains"] == 1


def test_the_same_input_at_every_step():
    def make(dtype):
        found, x = [], S.Variable("data")
        for kind in CELLS:
            cell = CELLS[kind](f"{kind}_")
            _, states = cell.unroll(STEPS, [x] * STEPS, cell.begin_state(dtype=dtype))
            found += states
        return S.Group(found)

    compare(make, {"data": (ROWS, FEATURES)}, 4)


@pytest.mark.parametrize(
    ("links", "chains"), [({}, 2), ({(0, 4): 1}, 2), ({(0, 4): 1, (1, 3): 0}, 1), ({(0, 4): 4}, 2)]
)
def test_chains_that_read_each_other(links, chains):
    """`links` tells which step of which of two chains reads which state of the other."""

    def make(dtype):
        xs = slices(S.Variable("data"))
        weights, states = [weights_of(p) for p in "ab"], [(zeros(dtype), zeros(dtype))] * 2
        hidden = [[], []]
        wanted = [(i, t) for t in range(STEPS) for i in (1, 0)]
        while wanted:
            for i, t in wanted:
                seen = links.get((i, t))
                if len(hidden[i]) == t and (seen is None or seen < len(hidden[1 - i])):
                    x = xs[t] if seen is None else hidden[1 - i][seen]
                    states[i] = lstm_step(x, states[i], weights[i])
                    hidden[i].append(states[i][0])
                    wanted.remove((i, t))
                    break
        return S.Group(hidden[0] + hidden[1])

    compare(make, {"data": (ROWS, STEPS, UNITS)}, chains)


def test_chains_that_wait_for_themselves():
    def make(dtype):
        a = b = (zeros(dtype), zeros(dtype))
        weights, outputs = [weights_of(p) for p in "ab"], []
        for x in slices(S.Variable("data")):
            a, b = lstm_step(x + b[0], a, weights[0]), lstm_step(a[0], b, weights[1])
            outputs += [a[0], b[0]]
        return S.Group(outputs)

    compare(make, {"data": (ROWS, STEPS, UNITS)}, 0)


# readers


def test_single_states():
    cell = lambda: CELLS["lstm"]("l_")  # noqa: E731

    def make(pick):
        def make_net(dtype):
            outputs, states = cell().unroll(STEPS, S.Variable("data"), [zeros(dtype)] * 2)
            return pick(outputs, states)

        return make_net

    for pick in (
        lambda outputs, states: states[0],
        lambda outputs, states: states[1],
        lambda outputs, states: outputs[2],
        lambda outputs, states: S.Group([outputs[0], outputs[3] * 2, states[1]]),
    ):
        compare(make(pick), {"data": NTC}, 1)


def test_states_of_the_cell_on_the_way():
    def make(dtype):
        states, weights, seen = (S.Variable("h"), S.Variable("c")), weights_of("l"), []
        for x in slices(S.Variable("data")):
            states = lstm_step(x, states, weights)
            seen.append(states[1])
        return S.Group([seen[1], S.sigmoid(seen[3]), S.stack(*seen, axis=0), states[0]])

    got = compare(make, {"data": NTC, "h": (ROWS, UNITS), "c": (ROWS, UNITS)}, 1)
    assert "cell_states" in calls(got)


def test_a_gate_that_is_read_cuts_the_chain():
    def make(seen):
        def make_net(dtype):
            net, _ = CELLS["lstm"]("l_").unroll(8, S.Variable("data"), [zeros(dtype)] * 2, merge_outputs=True)
            inner = net.get_internals()
            return S.Group([net, *(inner[f"l_t{t}_i_output"] for t in seen)])

        return make_net

    shapes = {"data": (ROWS, 8, FEATURES)}
    compare(make([]), shapes, 1)
    compare(make([3]), shapes, 2)  # three steps, one alone, four
    compare(make([2]), shapes, 1)  # two steps are too few
    compare(make([1, 4, 6]), shapes, 0)


def test_short_chains_stay():
    for steps, chains in ((2, 0), (3, 1)):
        make = unrolled(lambda: stack(*(CELLS["gru"](f"{i}_") for i in range(4))), steps=steps)
        compare(make, {"data": (ROWS, steps, FEATURES)}, 4 * chains)


def test_monitors_see_every_operator():
    net = unrolled(lambda: CELLS["lstm"]("l_"), merge_outputs=True)("float32")
    bound = net.simple_bind(mx.cpu(), data=NTC)
    seen = []
    bound.set_monitor_callback(lambda name, array: seen.append(name))
    bound.forward(is_train=True)
    assert {"l_t2_i_output", "l_t4_state_output", "l_t0_slice_output3"} <= set(seen)


# weights


def test_weights_shared_in_a_run_of_steps_only():
    def make(dtype):
        weights = {True: weights_of("a"), False: weights_of("b")}
        states, outputs = (zeros(dtype), zeros(dtype)), []
        for t, x in enumerate(slices(S.Variable("data"), 9)):
            states = lstm_step(x, states, weights[t < 4])
            outputs.append(states[0])
        return S.Concat(*outputs, dim=0)

    compare(make, {"data": (ROWS, 9, FEATURES)}, 2)


def test_one_cell_used_twice():
    def make(dtype):
        cell = CELLS["gru"]("g_")
        left, _ = cell.unroll(STEPS, S.Variable("left"), [zeros(dtype)])
        right, _ = cell.unroll(STEPS, S.Variable("right"), [left[-1]])
        return S.Group([*left, *right])

    # the second reads the state of the first, and so is its continuation
    got = compare(make, {"left": NTC, "right": NTC}, 1)
    assert "stacked" in calls(got)


@pytest.mark.parametrize(("layers", "steps"), [(2, 6), (6, 2), (3, 3)])
def test_layers_that_share_all_weights(layers, steps):
    def make(dtype):
        weights = weights_of("w")
        states = [zeros(dtype) for _ in range(layers)]
        outputs = []
        for x in slices(S.Variable("data"), steps):
            for i in range(layers):
                pairs = zip((x, states[i]), (weights[:2], weights[2:]), strict=True)
                maps = [S.FullyConnected(data, *w, num_hidden=UNITS) for data, w in pairs]
                x = states[i] = S.tanh(maps[0] + maps[1])
            outputs.append(x)
        return S.Group(outputs)

    compare(make, {"data": (ROWS, steps, UNITS)}, min(layers, steps))


@pytest.mark.parametrize("missing", [(1,), (3,), (1, 3)])
def test_biases_that_are_not_there(missing):
    def make(dtype):
        weights = weights_of("l")
        weights = [weights[k : k + 2] if k + 1 not in missing else weights[k : k + 1] for k in (0, 2)]
        state, outputs = zeros(dtype), []
        for x in slices(S.Variable("data")):
            maps = [
                S.FullyConnected(data, *w, num_hidden=UNITS, no_bias=len(w) == 1)
                for data, w in zip((state, x), weights[::-1], strict=True)
            ]
            state = S.relu(maps[0] + maps[1])
            outputs.append(state)
        return S.stack(*outputs, axis=1)

    compare(make, {"data": NTC}, 1)


def test_grad_req_and_a_second_backward():
    net = unrolled(lambda: stack(CELLS["lstm"]("a_"), CELLS["gru"]("b_")), merge_outputs=True)
    names = net("float32").list_arguments()
    some = {name: "null" if i % 2 else "add" for i, name in enumerate(names)}
    for grad_req in ("add", some, dict.fromkeys(names, "null") | {"b_h2h_bias": "write"}):
        compare(net, {"data": NTC}, 2, grad_req=grad_req, again=2)


def test_a_sparse_embedding_in_front():
    def make(dtype):
        weight = S.Variable("embed_weight", stype="row_sparse")
        tokens = S.contrib.SparseEmbedding(S.Variable("data"), weight, input_dim=9, output_dim=FEATURES)
        outputs, _ = CELLS["lstm"]("l_").unroll(STEPS, tokens, merge_outputs=True)
        return outputs

    for off in (True, False):
        with switched(off):
            bound = make("float32").simple_bind(mx.cpu(), data=(ROWS, STEPS))
            for array in bound.arg_dict.values():
                if array.stype == "default":
                    array[:] = 0.3
            bound.arg_dict["data"][:] = 4
            bound.forward(is_train=True)
            bound.backward([mx.nd.ones(NTC[:2] + (UNITS,))])
            if off:
                wanted = {k: v.asnumpy() for k, v in bound.grad_dict.items()}
    for name, grad in wanted.items():
        np.testing.assert_allclose(bound.grad_dict[name].asnumpy(), grad, atol=1e-5, err_msg=name)
    assert bound._prepare(True, True).program.low.fired["rnn_chains"] == 1


# written by hand, other types, several contexts, modules


@pytest.mark.parametrize("gates", ["ifgo", "igfo", "ogif"])
@pytest.mark.parametrize("axis", [0, 1])
def test_networks_written_by_hand(gates, axis):
    make = lambda dtype: by_hand(dtype, 2, 0.0, gates, lambda s: S.Concat(*s, dim=axis))  # noqa: E731
    got = compare(make, {"data": NTC}, 2)
    assert "stacked" not in calls(got)
    assert "concat" not in calls(got)


@pytest.mark.parametrize("layers", [1, 2, 3])
def test_dropout_between_layers_draws_the_same_numbers(layers):
    got = compare(lambda dtype: by_hand(dtype, layers, 0.4), {"data": NTC}, layers, again=2)
    assert "draw" in calls(got)
    compare(lambda dtype: by_hand(dtype, layers, 0.4), {"data": NTC}, layers, is_train=False)


def test_dropout_that_others_read_too():
    def make(dtype):
        outputs, _ = CELLS["gru"]("a_").unroll(STEPS, S.Variable("data"), [zeros(dtype)])
        dropped = [S.Dropout(out, p=0.3) for out in outputs]
        more, _ = CELLS["gru"]("b_").unroll(STEPS, dropped, [zeros(dtype)])
        return S.Group([dropped[1] * 2, *more, S.Dropout(S.Variable("other"), p=0.5)])

    compare(make, {"data": NTC, "other": (7,)}, 2)


@pytest.mark.parametrize("kind", CELLS)
def test_half_precision(kind):
    make = unrolled(lambda: CELLS[kind]("c_"), merge_outputs=True)
    compare(make, {"data": NTC}, 1, dtypes=[("float16", 2e-3)])


@pytest.mark.parametrize("mode", ["lstm", "gru", "rnn_tanh", "rnn_relu"])
def test_bfloat16(mode):
    gates = {"lstm": 4, "gru": 3}.get(mode, 1)
    shapes = [(STEPS, ROWS, FEATURES), *[(ROWS, UNITS)] * (2 if mode == "lstm" else 1)]
    shapes += [(gates * UNITS, FEATURES), (gates * UNITS, UNITS), (gates * UNITS,), (gates * UNITS,)]
    order = tuple(range(gates))
    call = Recurrence(mode, (order, order), (True, True))
    generator = torch.Generator().manual_seed(0)
    exact = [torch.rand(shape, generator=generator) - 0.5 for shape in shapes]
    found = []
    for dtype in (torch.float32, torch.bfloat16):
        given = [each.to(dtype).requires_grad_() for each in exact]
        out = call(*given)
        grads = torch.autograd.grad(out[0].sum(), given)
        found.append([each.detach().float() for each in (*out, *grads)])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one / one.abs().max(), other / one.abs().max(), atol=5e-2)


def test_weights_in_one_piece_pass_their_gradients_on():
    weights = [torch.rand(shape, requires_grad=True) for shape in ((6, 4), (6, 2), (6,), (6,))]
    pieces = make_contiguous(weights)
    ends = [piece.data_ptr() + piece.nbytes for piece in pieces]
    assert [piece.data_ptr() for piece in pieces[1:]] == ends[:-1]
    grads = torch.autograd.grad(sum((i + 2) * piece.sum() for i, piece in enumerate(pieces)), weights)
    for i, (weight, piece, grad) in enumerate(zip(weights, pieces, grads, strict=True)):
        assert torch.equal(weight, piece)
        assert torch.equal(grad, torch.full_like(weight, i + 2))


@pytest.mark.parametrize("kind", ["gru", "tanh", "relu"])
def test_large_products_by_onednn(kind, monkeypatch):
    monkeypatch.setenv("DPMODULE_ONEDNN", "1")
    linear.onednn_is_faster.cache_clear()
    monkeypatch.setattr(linear, "ONEDNN_MIN_WORK", 0)
    make = unrolled(lambda: stack(CELLS[kind]("a_"), CELLS[kind]("b_")), merge_outputs=True)
    compare(make, {"data": NTC}, 2, dtypes=[("float32", 2e-5)])
    linear.onednn_is_faster.cache_clear()


def test_an_empty_batch():
    make = unrolled(lambda: CELLS["lstm"]("l_"), merge_outputs=True)
    step = [s for s in _program(make("float32"), NTC).low.steps if s.name == "lstm"]
    weights = [torch.ones(4 * UNITS, n) for n in (FEATURES, UNITS)] + [torch.ones(4 * UNITS)] * 2
    out, *last = step[0].function(torch.ones(STEPS, 0, FEATURES), *[torch.ones(0, UNITS)] * 2, *weights)
    assert out.shape == (STEPS, 0, UNITS)
    assert [each.shape for each in last] == [(1, 0, UNITS)] * 2


def _program(net, shape):
    return net.simple_bind(mx.cpu(), data=shape)._prepare(True, True).program


def test_graphs_over_several_devices_stay():
    with mx.AttrScope(ctx_group="a"):
        outputs, _ = CELLS["gru"]("g_").unroll(STEPS, S.Variable("data"), merge_outputs=True)
    bound = outputs.simple_bind(mx.cpu(), group2ctx={"a": mx.cpu(1)}, data=NTC)
    assert "rnn_chains" not in bound._prepare(True, True).program.low.fired


@pytest.mark.parametrize("name", ["cells", "by_hand", "gluon"])
def test_graphs_that_mxnet_wrote(name):
    recorded = json.loads((RECORDED / f"{name}.json").read_text())
    net = mx.sym.load_json(json.dumps(recorded["symbol"]))
    bound = net.simple_bind(mx.cpu(), **{k: np.shape(v) for k, v in recorded["inputs"].items()})
    for key, value in recorded["inputs"].items():
        bound.arg_dict[key][:] = mx.nd.array(value)
    outputs = bound.forward(is_train=True)
    bound.backward([mx.nd.array(head) for head in recorded["heads"]])
    assert bound._prepare(True, True).program.low.fired["rnn_chains"] == (3 if name == "cells" else 2)
    for out, wanted in zip(outputs, recorded["outputs"], strict=True):
        np.testing.assert_allclose(out.asnumpy(), wanted, atol=2e-6)
    for key, wanted in recorded["gradients"].items():
        np.testing.assert_allclose(bound.grad_dict[key].asnumpy(), wanted, atol=4e-6, err_msg=key)


def _language_model(steps):
    net = S.Embedding(S.Variable("data"), input_dim=11, output_dim=6, name="embed")
    cell = stack(mx.rnn.LSTMCell(6, prefix="l0_"), mx.rnn.DropoutCell(0.3), mx.rnn.LSTMCell(6, prefix="l1_"))
    outputs, _ = cell.unroll(steps, net, merge_outputs=True)
    net = S.FullyConnected(S.Reshape(outputs, shape=(-1, 6)), num_hidden=11, name="fc")
    return S.SoftmaxOutput(net, S.Reshape(S.Variable("softmax_label"), shape=(-1,)), name="softmax")


def _trained(off, contexts, buckets):
    rng = np.random.RandomState(5)
    with switched(off):
        module = mx.mod.BucketingModule(
            lambda key: (_language_model(key), ("data",), ("softmax_label",)), max(buckets), context=contexts
        )
        shapes = [("data", (4, max(buckets)))], [("softmax_label", (4, max(buckets)))]
        module.bind(*shapes)
        mx.random.seed(1)
        module.init_params(mx.init.Xavier())
        module.init_optimizer(optimizer="sgd", optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
        outputs = []
        for key in buckets:
            tokens = rng.randint(0, 11, (2, 4, key))
            batch = mx.io.DataBatch([mx.nd.array(tokens[0])], [mx.nd.array(tokens[1])])
            batch.bucket_key = key
            batch.provide_data, batch.provide_label = (
                [(name, (4, key))] for name in ("data", "softmax_label")
            )
            module.forward_backward(batch)
            outputs.append(module.get_outputs()[0].asnumpy())
            module.update()
        return outputs, {k: v.asnumpy() for k, v in module.get_params()[0].items()}


@pytest.mark.parametrize("contexts", [mx.cpu(), [mx.cpu(0), mx.cpu(1)]])
def test_buckets_that_share_parameters(contexts):
    buckets = [7, 4, 5, 7, 5, 2]
    wanted, got = (_trained(off, contexts, buckets) for off in (True, False))
    for one, other in zip(got[0], wanted[0], strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-4, atol=1e-6)
    for name, value in wanted[1].items():
        np.testing.assert_allclose(got[1][name], value, rtol=1e-3, atol=1e-5, err_msg=name)


def test_outputs_are_memory_of_their_own_and_copied_once_at_most():
    net = unrolled(lambda: CELLS["lstm"]("l_"), False, merge_outputs=True)("float32")
    run = Run(net, {"data": NTC})
    assert [step.name for step in run.program.low.steps].count("clone") == 1
    copies = [step for step in run.program.low.steps if step.name == "clone"]
    assert all(step.function(torch.ones(3, 2).t()).is_contiguous() for step in copies)
    assert "clone" not in run.bound._prepare(False, False).program.source
    for kind in CELLS:
        outputs, states = CELLS[kind]("c_").unroll(STEPS, S.Variable("data"))
        whole = S.stack(*outputs, axis=0)
        for is_train in (True, False):
            run = Run(S.Group([whole, outputs[-1], *states]), {"data": NTC}, is_train=is_train)
            heads = [out.tensor for out in run.bound.outputs]
            ends = sorted((head.data_ptr(), head.data_ptr() + head.nbytes) for head in heads)
            assert all(end <= begin for (_, end), (begin, _) in zip(ends, ends[1:], strict=False))


@pytest.mark.parametrize("layout", ["TNC", "NTC"])
@pytest.mark.parametrize("kind", CELLS)
def test_outputs_that_are_written_before_backward_change_no_gradient(kind, layout):
    net = unrolled(lambda: CELLS[kind]("c_"), layout=layout, merge_outputs=True)("float32")
    grads = []
    for written in (False, True):
        bound = Run(net, {"data": TNC if layout == "TNC" else (1, *NTC[1:])}).bound
        bound.forward(is_train=True)
        heads = [mx.nd.ones(out.shape) for out in bound.outputs]
        for out in bound.outputs if written else ():
            out[:] = 9
        bound.backward(heads)
        grads.append({name: grad.asnumpy() for name, grad in bound.grad_dict.items()})
    for name, grad in grads[0].items():
        np.testing.assert_array_equal(grads[1][name], grad, name)


@pytest.mark.parametrize("kind", CELLS)
def test_nan_in_a_step(kind):
    data = np.random.RandomState(1).uniform(-1, 1, NTC)
    data[0, 2] = np.nan
    net = unrolled(lambda: CELLS[kind]("c_"), merge_outputs=True)("float64")
    runs = []
    for off in (True, False):
        with switched(off):
            runs.append(Run(net, {"data": NTC}, "float64", values={"data": data}))
    close(runs[1], runs[0], 1e-10)


@pytest.mark.parametrize("kind", CELLS)
def test_steps_of_several_shapes(kind):
    def make(dtype):
        cell = CELLS[kind]("c_")
        steps = [S.Variable("image"), *slices(S.Variable("words"), STEPS - 1)]
        return cell.unroll(STEPS, steps, begin_state=cell.begin_state(dtype=dtype), merge_outputs=True)[0]

    compare(make, {"image": (ROWS, FEATURES, 1, 1), "words": (ROWS, STEPS - 1, FEATURES)}, 1)


@pytest.mark.parametrize("kind", CELLS)
def test_steps_that_are_one_number_for_each_row(kind):
    """FullyConnected reads (N,) as (N, 1)."""

    def make(dtype):
        cell = CELLS[kind]("c_")
        steps = [S.Variable(f"x{i}") for i in range(STEPS)]
        return cell.unroll(STEPS, steps, begin_state=cell.begin_state(dtype=dtype), merge_outputs=True)[0]

    compare(make, {f"x{i}": (ROWS,) for i in range(STEPS)}, 1)
    compare(make, {f"x{i}": (ROWS, 1) if i % 2 else (ROWS,) for i in range(STEPS)}, 1)


def test_explain_tells_which_operators_a_chain_stands_for():
    net = unrolled(lambda: CELLS["gru"]("g_"), merge_outputs=True)("float32")
    low = Run(net, {"data": NTC}).program.low
    covered = {low.graph.nodes[i].name for step in low.steps for i in (*step.covers, step.node) if i >= 0}
    made = {node.name for node in low.graph.nodes if node.op is not None}
    assert {name for name in made - covered if "split" not in name and "expand_dims" not in name} == set()


@pytest.mark.parametrize("is_train", [False, True])
def test_an_error_names_the_operators_of_a_chain(is_train):
    bound = Run(unrolled(lambda: CELLS["gru"]("g_"), merge_outputs=True)("float32"), {"data": NTC}).bound
    bound.arg_dict["g_h2h_weight"].tensor = torch.ones(2, 2)
    with pytest.raises(
        mx.base.MXNetError, match=r"from .*'g_t0.*' made at .*'g_t4_out'.*g_h2h_weight \(9, 3\)"
    ):
        bound.forward(is_train=is_train)


def test_it_can_be_switched_off():
    net = unrolled(lambda: CELLS["lstm"]("l_"))("float32")
    with executor.disabled("rnn_chains"):
        off = Run(net, {"data": NTC})
    on = Run(net, {"data": NTC})
    assert (off.chains, on.chains) == (0, 1)
    close(on, off, 1e-5)
    assert len(on.program.source) < len(off.program.source) / 3


@pytest.mark.gpu
@pytest.mark.parametrize("dtype", ["float32", "float64", "float16"])
@pytest.mark.parametrize("kind", CELLS)
def test_chains_on_a_gpu(kind, dtype):
    net = unrolled(lambda: stack(CELLS[kind]("a_"), CELLS[kind]("b_")), merge_outputs=True)(dtype)
    tolerance = {"float32": 1e-4, "float64": 1e-9, "float16": 1e-2}[dtype]
    runs = []
    for off in (True, False):
        with switched(off):
            runs.append(Run(net, {"data": NTC}, dtype, ctx=mx.gpu()))
    assert [run.chains for run in runs] == [0, 2]
    close(runs[1], runs[0], tolerance)


def test_the_same_zeros_begin_both_states():
    net, _ = mx.rnn.LSTMCell(4, prefix="l_").unroll(5, mx.sym.Variable("data"), merge_outputs=True)
    found = []
    for off in ([], ["rnn_chains"]):
        with executor.disabled(*off):
            bound = net.simple_bind(mx.cpu(), data=(2, 5, 3))
            for array in bound.arg_dict.values():
                array[:] = 0.5
            found.append(bound.forward(is_train=True)[0].asnumpy())
            made = bound._prepare(True, True).program.source.count(" = _zeros(")
            assert made == 1 + len(off)
    np.testing.assert_allclose(found[0], found[1], rtol=1e-5)
