"""Unrolled recurrent networks run by torch's kernels: the same numbers as step by step, wherever that is possible."""

import json
from functools import partial
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import executor
from dpmodule.executor.passes.rnn_chains.kernels import make_contiguous
from dpmodule.executor.passes.rnn_chains.sequences import RowFunction
from helpers.switched import assert_same, fired, results

S = mx.sym
DATA = S.Variable("data")
STEPS, ROWS, FEATURES, UNITS = 5, 2, 4, 3
NTC, TNC = (ROWS, STEPS, FEATURES), (STEPS, ROWS, FEATURES)


def compare(make, shapes, chains, dtypes=(("float64", 1e-10), ("float32", 2e-5)), **options):
    """Compare a graph with chains found and not; `make` gets the type that zeros must have."""
    for dtype, tolerance in dtypes:
        net, options = make(dtype), options | {"dtype": dtype, "seeds": True, "seed": 3}
        wanted, plain = results(net, shapes, ["rnn_chains"], **options)
        got, counts = results(net, shapes, **options)
        assert (plain.get("rnn_chains", 0), counts.get("rnn_chains", 0)) == (0, chains)
        assert_same(got, wanted, tolerance)


def bind(net, shapes):
    """Bind, draw values, and run forward."""
    bound, rng = net.simple_bind(mx.cpu(), **shapes), np.random.RandomState(0)
    for array in bound.arg_dict.values():
        array[:] = rng.uniform(-0.8, 0.8, array.shape)
    bound.forward(is_train=True)
    return bound


def lstm_step(data, states, weights, gates="ifgo"):
    """One step as users write it; `gates` is the order in which the maps have them."""
    pairs = zip((data, states[0]), (weights[:2], weights[2:]), strict=True)
    maps = [S.FullyConnected(x, *w, num_hidden=4 * UNITS) for x, w in pairs]
    parts = dict(zip(gates, S.SliceChannel(maps[0] + maps[1], num_outputs=4), strict=True))
    i, f, o = (S.Activation(parts[k], act_type="sigmoid") for k in "ifo")
    cell = f * states[1] + i * S.Activation(parts["g"], act_type="tanh")
    return o * S.Activation(cell, act_type="tanh"), cell


def weights_of(prefix):
    return [S.Variable(f"{prefix}_{name}") for name in ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")]


def slices(net, count=STEPS, axis=1):
    return list(S.SliceChannel(net, num_outputs=count, axis=axis, squeeze_axis=True))


def zeros(dtype):
    return S.zeros((0, UNITS), dtype=dtype)


def by_hand(dtype, layers=2, dropout=0.0, gates="igfo"):
    """Layers inside the loop over time, as in old examples."""
    weights = [weights_of(f"l{i}") for i in range(layers)]
    states = [(zeros(dtype), zeros(dtype)) for _ in range(layers)]
    outputs = []
    for h in slices(S.Variable("data")):
        for i in range(layers):
            if i and dropout:
                h = S.Dropout(h, p=dropout)
            states[i] = lstm_step(h, states[i], weights[i], gates)
            h = states[i][0]
        outputs.append(S.Dropout(h, p=dropout) if dropout else h)
    return S.Concat(*outputs, dim=0)


RECORDED = Path(__file__).parents[2] / "data" / "rnn_chains"
CELLS = {kind: partial(mx.rnn.RNNCell, UNITS, kind) for kind in ("tanh", "relu")}
CELLS |= {"lstm": partial(mx.rnn.LSTMCell, UNITS), "gru": partial(mx.rnn.GRUCell, UNITS)}
STATES = {"lstm": 2}
BOTH = mx.rnn.BidirectionalCell


def cell(kind="lstm", prefix="c_"):
    return CELLS[kind](prefix=prefix)


def steps_in(net, shapes):
    return net.simple_bind(mx.cpu(), **shapes).program(True).low.steps


def flat(states):
    return [each for s in states for each in (flat(s) if isinstance(s, list) else [s])]


def stack(*cells):
    found = mx.rnn.SequentialRNNCell()
    for each in cells:
        found.add(each)
    return found


def unrolled(make_cell, steps=STEPS, data=DATA, with_states=True, **options):
    """Return what makes a network of a type."""

    def make(dtype):
        made = make_cell()
        outputs, states = made.unroll(steps, data, made.begin_state(dtype=dtype), **options)
        outputs = list(outputs) if isinstance(outputs, list) else [outputs]
        return S.Group([*outputs, *(flat(states) if with_states else [])])

    return make


merged = partial(unrolled, merge_outputs=True)


def steps_of(kind, data, dtype, prefix="c_"):
    """Return outputs and states of a cell."""
    steps = len(data) if isinstance(data, list) else STEPS
    return cell(kind, prefix).unroll(steps, data, [zeros(dtype)] * STATES.get(kind, 1))


def layers():
    more = BOTH(cell("tanh", "c_"), cell("lstm", "d_"), output_prefix="more_")
    return stack(cell("gru", "e_"), BOTH(cell("lstm", "a_"), cell("gru", "b_")), more)


def embedded(dtype):
    tokens = S.Embedding(DATA, input_dim=9, output_dim=FEATURES, dtype=dtype, name="embed")
    outputs, _ = cell().unroll(STEPS, tokens, [zeros(dtype)] * 2, merge_outputs=True)
    return S.FullyConnected(S.Reshape(outputs, shape=(-1, UNITS)), num_hidden=7)


def pieces(axis, squeezed, dtype):
    steps = list(S.SliceChannel(DATA, num_outputs=STEPS, axis=axis, squeeze_axis=squeezed))
    outputs, _ = cell("gru").unroll(STEPS, steps[::-1] if squeezed else steps, [S.Variable("begin")])
    return S.Group(outputs[1:])


def picked(pick, dtype):
    outputs, _ = steps_of("gru", pick(steps_of("tanh", DATA, dtype, "a_")[0]), dtype)
    return S.Group([S.stack(*outputs, axis=1), S.Concat(*outputs[:-1], dim=1)])


def layers_at_every_step(seen, dtype):
    """`seen`: others read what they make, so that they stay."""
    table, before, after = S.Variable("table"), weights_of("before")[:2], weights_of("after")[:2]
    looked = [S.Embedding(x, table, input_dim=9, output_dim=FEATURES, dtype=dtype) for x in slices(DATA)]
    steps = [S.relu(S.FullyConnected(x, *before, num_hidden=UNITS)) for x in looked]
    outputs = steps_of("lstm", steps, dtype)[0]
    logits = [S.FullyConnected(S.tanh(out), *after, num_hidden=7) for out in outputs]
    joined = S.Concat(*logits, dim=0)
    return S.Group([joined, *logits[1:3], *steps[:2]]) if seen else joined


def linked(links, dtype):
    """`links` tells which step of which of two chains reads which state of the other."""
    xs, weights, states = slices(DATA), [weights_of(p) for p in "ab"], [(zeros(dtype), zeros(dtype))] * 2
    hidden, wanted = [[], []], [(i, t) for t in range(STEPS) for i in (1, 0)]
    while wanted:
        for i, t in wanted:
            seen = links.get((i, t))
            if len(hidden[i]) == t and (seen is None or seen < len(hidden[1 - i])):
                states[i] = lstm_step(xs[t] if seen is None else hidden[1 - i][seen], states[i], weights[i])
                hidden[i].append(states[i][0])
                wanted.remove((i, t))
                break
    return S.Group(hidden[0] + hidden[1])


def gates_read(seen, dtype):
    net, _ = cell().unroll(8, DATA, [zeros(dtype)] * 2, merge_outputs=True)
    return S.Group([net, *(net.get_internals()[f"c_t{t}_i_output"] for t in seen)])


def by_maps(layers, steps, missing, dtype):
    """Layers that share all weights; without the biases at `missing`."""
    weights, states, outputs = weights_of("w"), [zeros(dtype)] * layers, []
    weights = [[w for i, w in enumerate(weights[k : k + 2], k) if i not in missing] for k in (0, 2)]
    for x in slices(DATA, steps):
        for i in range(layers):
            pairs = zip((x, states[i]), weights, strict=True)
            maps = [S.FullyConnected(v, *w, num_hidden=UNITS, no_bias=len(w) == 1) for v, w in pairs]
            x = states[i] = S.tanh(maps[0] + maps[1])
        outputs.append(x)
    return S.stack(*outputs, axis=1)


def several_shapes(dtype):
    return S.Group(steps_of("lstm", [S.Variable("image"), *slices(S.Variable("words"), STEPS - 1)], dtype)[0])


SEQUENCE, SQUARE = {"data": NTC}, {"data": (ROWS, STEPS, UNITS)}
TOKENS = {"data": np.arange(ROWS * STEPS).reshape(ROWS, STEPS) % 9}
PIECES = {(0, False): ((2 * STEPS, ROWS, 2), 2), (1, True): ((ROWS, STEPS, 2, 2), ROWS)}
HALVES = [("float16", 5e-3)]
BY_NAME = {"grad_req": dict.fromkeys(("data", "c_i2h_weight", "c_h2h_bias"), "add")}


def row(make, shapes, chains, absent="", **options):
    """Describe a network: what makes it, chains found in it, what its program does not call, options of a run."""
    return make, shapes, chains, set(absent.split()), options


NETWORKS = {
    "layers": row(merged(layers), SEQUENCE, 5, "stacked"),
    "two steps": row(merged(layers, 2), {"data": (ROWS, 2, FEATURES)}, 0),
    "embedded": row(embedded, {"data": (ROWS, STEPS)}, 1, "split concat stacked unbind", values=TOKENS),
    "other order": row(partial(picked, lambda s: [s[3], s[1], s[2], s[1]]), SEQUENCE, 2),
    "dropout predicts": row(partial(by_hand, dropout=0.4), SEQUENCE, 2, is_train=False),
    "dropouts": row(partial(by_hand, layers=3, dropout=0.4, gates="ogif"), SEQUENCE, 3),
    "some gradients": row(merged(partial(cell, "gru")), SEQUENCE, 1, **BY_NAME),
    "time first": row(unrolled(cell, layout="TNC"), {"data": TNC}, 1),
    "of shapes": row(several_shapes, {"image": (ROWS, FEATURES, 1, 1), "words": (ROWS, 4, FEATURES)}, 1),
    **{f"{name} in halves": row(merged(partial(cell, name)), SEQUENCE, 1, dtypes=HALVES) for name in CELLS},
}
for key, (shape, rows) in PIECES.items():
    shapes = {"data": shape, "begin": (rows, UNITS)}
    NETWORKS[f"pieces {key}"] = row(partial(pieces, *key), shapes, 1, "stacked")
for links, count in ({(0, 4): 1}, 2), ({(0, 4): 1, (1, 3): 0}, 1), ({(0, 4): 4}, 2):
    NETWORKS[f"links {links}"] = row(partial(linked, links), SQUARE, count)
for seen, count in ((3,), 2), ((2,), 1), ((1, 4, 6), 0):  # two steps are too few
    NETWORKS[f"gates {seen}"] = row(partial(gates_read, seen), {"data": (ROWS, 8, FEATURES)}, count)
for count, steps, missing in (6, 2, ()), (3, 3, ()), (1, 5, (1,)), (1, 5, (1, 3)):
    make = partial(by_maps, count, steps, missing)
    NETWORKS[f"maps {count} {missing}"] = row(make, {"data": (ROWS, steps, UNITS)}, min(count, steps))


@pytest.mark.parametrize(("make", "shapes", "chains", "absent", "options"), NETWORKS.values(), ids=NETWORKS)
def test_networks(make, shapes, chains, absent, options):
    compare(make, shapes, chains, **options)
    assert not absent & {step.name for step in steps_in(make("float32"), shapes)}


@pytest.mark.parametrize("with_states", [True, False])
def test_valid_length(with_states):
    make = lambda: stack(cell("lstm", "a_"), BOTH(cell("lstm", "b_"), cell("gru", "d_")))  # noqa: E731
    make = unrolled(make, with_states=with_states, valid_length=S.Variable("lengths"))
    shapes = {"data": NTC, "lengths": (ROWS,)}
    compare(make, shapes, 3, values={"lengths": [2, 5]})
    assert ("cell_states" in [step.name for step in steps_in(make("float32"), shapes)]) == with_states


@pytest.mark.parametrize("seen", [False, True])
def test_layers_of_their_own_at_every_step(seen):
    make, shapes = partial(layers_at_every_step, seen), {"data": (ROWS, STEPS)}
    compare(make, shapes, 1, values=TOKENS)
    steps = steps_in(make("float32"), shapes)
    rows = [step for step in steps if isinstance(step.function, RowFunction)]
    looked = [step for step in steps if step.name == "Embedding"]
    assert (len(rows), len(looked)) == ((0, STEPS) if seen else (2, 1))


def test_long_sums_of_lists_are_not_followed_for_ever():
    outputs, other = steps_of("gru", DATA, "float32")[0], slices(S.Variable("other"))[::2]
    doubled, summed = outputs[:3], other
    for _ in range(60):
        doubled = [0.5 * (a + a) for a in doubled]
    for _ in range(400):
        summed = [a + b for a, b in zip(summed, other, strict=True)]
    for _ in range(40):
        other = [a + a for a in other]
    net = S.Group([S.stack(*each, axis=0) for each in (doubled, summed, other)])
    assert fired(net, {"data": NTC, "other": NTC})["rnn_chains"] == 1


# kernels


def test_weights_in_one_piece_pass_their_gradients_on():
    weights = [torch.rand(shape, requires_grad=True) for shape in ((6, 4), (6, 2), (6,), (6,))]
    joined = make_contiguous(weights)
    assert all(one.data_ptr() + one.nbytes == other.data_ptr() for one, other in pairwise(joined))
    grads = torch.autograd.grad(sum((i + 2) * piece.sum() for i, piece in enumerate(joined)), weights)
    for i, (weight, piece, grad) in enumerate(zip(weights, joined, grads, strict=True)):
        assert torch.equal(weight, piece)
        assert torch.equal(grad, torch.full_like(weight, i + 2))


@pytest.mark.parametrize(("name", "chains"), [("cells", 3), ("by_hand", 2), ("gluon", 2)])
def test_graphs_that_mxnet_wrote(name, chains):
    recorded = json.loads((RECORDED / f"{name}.json").read_text())
    net = S.load_json(json.dumps(recorded["symbol"]))
    bound = net.simple_bind(mx.cpu(), **{k: np.shape(v) for k, v in recorded["inputs"].items()})
    outputs = bound.forward(is_train=True, **{k: mx.nd.array(v) for k, v in recorded["inputs"].items()})
    bound.backward([mx.nd.array(head) for head in recorded["heads"]])
    assert bound._prepare(True, True).program.low.fired["rnn_chains"] == chains
    for out, wanted in zip(outputs, recorded["outputs"], strict=True):
        np.testing.assert_allclose(out.asnumpy(), wanted, atol=2e-6)
    for key, wanted in recorded["gradients"].items():
        np.testing.assert_allclose(bound.grad_dict[key].asnumpy(), wanted, atol=4e-6, err_msg=key)


# outputs, errors


@pytest.mark.parametrize("kind", CELLS)
def test_outputs_are_memory_of_their_own_and_may_be_written_before_backward(kind):
    outputs, states = cell(kind).unroll(STEPS, DATA)
    net, grads = S.Group([S.stack(*outputs, axis=0), outputs[-1], *states]), []
    for written in (False, True):
        bound = bind(net, SEQUENCE)
        ends = sorted((o.tensor.data_ptr(), o.tensor.data_ptr() + o.tensor.nbytes) for o in bound.outputs)
        assert all(end <= begin for (_, end), (begin, _) in pairwise(ends))
        heads = [mx.nd.ones(out.shape) for out in bound.outputs]
        for out in bound.outputs if written else ():
            out[:] = 9
        bound.backward(heads)
        grads.append({name: grad.asnumpy() for name, grad in bound.grad_dict.items()})
    for name, grad in grads[0].items():
        np.testing.assert_array_equal(grads[1][name], grad, name)


@pytest.mark.parametrize("is_train", [False, True])
def test_an_error_names_the_operators_of_a_chain(is_train):
    bound = bind(merged(partial(cell, "gru"))("float32"), SEQUENCE)
    bound.arg_dict["c_h2h_weight"].tensor = torch.ones(2, 2)
    said = r"from .*'c_t0.*' made at .*'c_t4_out'.*c_h2h_weight \(9, 3\)"
    with pytest.raises(mx.base.MXNetError, match=said):
        bound.forward(is_train=is_train)


@pytest.mark.gpu
@pytest.mark.parametrize("kind", CELLS)
def test_chains_on_a_gpu(kind):
    make = merged(lambda: stack(cell(kind, "a_"), cell(kind, "b_")))
    with mx.gpu():
        compare(make, SEQUENCE, 2, [("float32", 1e-4)])


@pytest.mark.parametrize(
    ("cell", "rows"), [(mx.rnn.LSTMCell, 2), (mx.rnn.GRUCell, 2), (mx.rnn.LSTMCell, 300)]
)
def test_packed_weights_are_those_of_the_last_change(cell, rows):
    net, _ = cell(24, prefix="l_").unroll(6, mx.sym.Variable("data"), layout="NTC", merge_outputs=True)
    one, draw = net.simple_bind(mx.cpu(), "null", data=(rows, 6, 5)), np.random.RandomState(0)
    for factor in (1.0, 0.5):
        for array in one.arg_dict.values():
            array[:] = factor * draw.uniform(-0.5, 0.5, array.shape)
        with executor.disabled("rnn_chains"):
            wanted = net.bind(mx.cpu(), one.arg_dict, grad_req="null").forward()[0].asnumpy()
        found = [one.forward()[0].asnumpy().copy() for _ in range(4)]
        np.testing.assert_allclose(found[0], wanted, 1e-5, 1e-6)
        for each in found[1:]:
            np.testing.assert_array_equal(each, found[0])
