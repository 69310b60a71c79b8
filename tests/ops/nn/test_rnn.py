"""The fused recurrent network against a NumPy loop over layers, directions, steps and gates."""

import importlib
from itertools import product

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import native
from dpmodule.ops.nn import rnn_weights
from helpers.op_case import OpCase, call, check_gradient, check_value, rules_test, run, types
from helpers.walk import walks

rnn_module = importlib.import_module("dpmodule.ops.nn.rnn")
MODES = rnn_weights.MODES
T, N, C, H = 4, 3, 2, 3
RNG = np.random.RandomState(5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(mode, w, x, h, c):
    """One step of one network; `w` has a matrix and a vector for each gate and part."""

    def part(name, gate, value):
        return value @ w[f"{name}{gate}_weight"].T + w[f"{name}{gate}_bias"]

    if mode == "lstm":
        i, f, g, o = (part("i2h", gate, x) + part("h2h", gate, h) for gate in ("_i", "_f", "_c", "_o"))
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(c), c
    if mode == "gru":
        reset = sigmoid(part("i2h", "_r", x) + part("h2h", "_r", h))
        update = sigmoid(part("i2h", "_z", x) + part("h2h", "_z", h))
        new = np.tanh(part("i2h", "_o", x) + reset * part("h2h", "_o", h))
        return (1 - update) * new + update * h, c
    total = part("i2h", "", x) + part("h2h", "", h)
    return (np.maximum(total, 0) if mode == "rnn_relu" else np.tanh(total)), c


def network(mode, layers, bidirectional, data, vector, state, cell=None, projection=None):
    """Return output and last states of the whole network."""
    weights = rnn_weights.unpack(vector, mode, layers, H, bidirectional, projection)
    cell = np.zeros((*state.shape[:2], H)) if cell is None else cell
    last_h, last_c = state.copy(), cell.copy()
    directions = "lr" if bidirectional else "l"
    for layer in range(layers):
        sides = []
        for d, direction in enumerate(directions):
            start = f"{direction}{layer}_"
            w = {k.removeprefix(start): v for k, v in weights.items() if k.startswith(start)}
            number = layer * len(directions) + d
            h, c = state[number], cell[number]
            side = np.zeros((*data.shape[:2], h.shape[-1]))
            for t in range(len(data))[:: 1 if direction == "l" else -1]:
                h, c = step(mode, w, data[t], h, c)
                h = h @ w["h2r_weight"].T if projection else h
                side[t] = h
            last_h[number], last_c[number] = h, c
            sides.append(side)
        data = np.concatenate(sides, axis=2)
    return (data, last_h, last_c) if mode == "lstm" else (data, last_h)


def inputs(mode, layers, bidirectional, dtype="float64", projection=None):
    rows = layers * (1 + bidirectional)
    size = rnn_weights.vector_size(mode, layers, C, H, bidirectional, projection)
    shapes = [(T, N, C), (size,), (rows, N, projection or H), (rows, N, H)]
    return tuple(RNG.uniform(-1, 1, s).astype(dtype) for s in (shapes if mode == "lstm" else shapes[:3]))


def attrs(mode, layers=1, bidirectional=False, **more):
    return {"mode": mode, "num_layers": layers, "bidirectional": bidirectional, "state_size": H, **more}


@walks(product(MODES, (1, 2, 3), (False, True), (False, True)))
def test_value(mode, layers, bidirectional, with_states):
    given, options = inputs(mode, layers, bidirectional), attrs(mode, layers, bidirectional)
    wanted = network(mode, layers, bidirectional, *given)
    wanted = wanted if with_states else wanted[0]
    check_value(OpCase("RNN", given, {**options, "state_outputs": with_states}, lambda *_: wanted))


@walks(product(("rnn_tanh", "lstm", "gru"), (False, True)))
def test_gradient(mode, bidirectional):
    check_gradient(OpCase("RNN", inputs(mode, 2, bidirectional), attrs(mode, 2, bidirectional)), tol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_gradient_through_the_last_states(mode):
    given = inputs(mode, 1, False)
    tensors = [torch.from_numpy(each).requires_grad_() for each in given]
    _, *last = call("RNN", *tensors, **attrs(mode, state_outputs=True))
    sum(state.sum() for state in last).backward()
    totals = []
    for shift in (1e-6, 0):
        moved = given[1].copy()
        moved[0] += shift
        totals.append(sum(s.sum() for s in network(mode, 1, False, given[0], moved, *given[2:])[1:]))
    assert tensors[1].grad[0].item() == pytest.approx((totals[0] - totals[1]) / 1e-6, abs=1e-4)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_projection(bidirectional):
    given = inputs("lstm", 2, bidirectional, projection=2)
    options = attrs("lstm", 2, bidirectional, state_outputs=True, projection_size=2)
    wanted = network("lstm", 2, bidirectional, *given, projection=2)
    check_value(OpCase("RNN", given, options, lambda *_: wanted))


@walks(product(MODES, [False, True]))
def test_lengths_give_each_sequence_what_it_gets_alone(mode, bidirectional):
    data, vector, *states = inputs(mode, 2, bidirectional)
    lengths = np.array([2, 4, 1])
    options = attrs(mode, 2, bidirectional, state_outputs=True, use_sequence_length=True)
    found = call("RNN", *map(torch.from_numpy, (data, vector, *states, lengths)), **options)
    for row, length in enumerate(lengths):
        alone = [data[:length, row : row + 1], vector, *(state[:, row : row + 1] for state in states)]
        output, *last = network(mode, 2, bidirectional, *alone)
        np.testing.assert_allclose(found[0][:length, row], output[:, 0], 1e-6)
        assert not found[0][length:, row].any()
        for one, want in zip(found[1:], last, strict=True):
            np.testing.assert_allclose(one[:, row], want[:, 0], 1e-6)


# dropout between layers


def test_dropping_everything_leaves_the_upper_layer_without_input():
    given = inputs("lstm", 2, False)
    blind = [given[0], given[1].copy(), *given[2:]]
    for name, piece in rnn_weights.unpack(blind[1], "lstm", 2, H).items():
        if name.startswith("l1_i2h") and name.endswith("weight"):
            piece[:] = 0
    found = call("RNN", *map(torch.from_numpy, given), **attrs("lstm", 2, p=1.0, state_outputs=True))
    for one, want in zip(found, network("lstm", 2, False, *blind), strict=True):
        np.testing.assert_allclose(one, want, 1e-6)


@pytest.mark.parametrize(("layers", "is_train"), [(2, False), (1, True)])
def test_nothing_is_dropped_in_prediction_or_from_one_layer(layers, is_train):
    given = inputs("lstm", layers, False)
    found = run("RNN", *given, is_train=is_train, **attrs("lstm", layers, p=0.9))
    np.testing.assert_allclose(found, network("lstm", layers, False, *given)[0], 1e-6)


def test_share_and_scale():
    # a relu network whose upper layer passes on the sum of what it gets, so that masks show
    vector = np.zeros(rnn_weights.vector_size("rnn_relu", 2, 1, 1))
    pieces = rnn_weights.unpack(vector, "rnn_relu", 2, 1)
    pieces["l0_i2h_weight"][:] = pieces["l1_i2h_weight"][:] = 1
    options = {"mode": "rnn_relu", "num_layers": 2, "state_size": 1, "p": 0.25}
    found = run("RNN", np.ones((50, 40, 1)), vector, np.zeros((2, 40, 1)), **options)
    assert set(np.unique(found.round(6))) == {0.0, round(1 / 0.75, 6)}
    assert (found == 0).mean() == pytest.approx(0.25, abs=0.04)


@pytest.mark.parametrize("lengths", [False, True])
def test_dropout_draws_from_the_generator_it_is_given_alone(lengths):
    given = [*map(torch.from_numpy, inputs("lstm", 2, False)), *[torch.tensor([4, 2, 3])] * lengths]
    before = torch.get_rng_state()
    found = call("RNN", *given, **attrs("lstm", 2, p=0.5, use_sequence_length=lengths))
    assert torch.equal(before, torch.get_rng_state())
    assert found[0].shape == (T, N, H)


def test_seeds_repeat_and_the_gradient_meets_the_mask_of_its_forward():
    net = mx.sym.RNN(mx.sym.Variable("data"), mode="rnn_tanh", num_layers=2, state_size=H, p=0.5, name="r")
    executor = net.simple_bind(mx.cpu(), data=(T, N, C))
    for array in executor.arg_arrays:
        array[:] = mx.nd.array(RNG.uniform(-1, 1, array.shape))

    def forward(seed):
        mx.random.seed(seed)
        return executor.forward(is_train=True)[0].asnumpy()

    other, before = forward(4), forward(3)
    assert (other != before).any()
    np.testing.assert_array_equal(before, forward(3))
    executor.backward([mx.nd.ones((T, N, H))])
    slope = executor.grad_dict["r_parameters"].asnumpy()[0]
    executor.arg_dict["r_parameters"][0] = executor.arg_dict["r_parameters"][0].asscalar() + 1e-3
    assert (forward(3) - before).sum() / 1e-3 == pytest.approx(slope, rel=2e-2, abs=2e-3)


# declarations

GRU_SIZE, LSTM_SIZE = rnn_weights.vector_size("gru", 1, C, H), rnn_weights.vector_size("lstm", 2, C, H, True)
GRU, BOTH = attrs("gru"), attrs("lstm", 2, True, state_outputs=True)
test_shapes = rules_test(
    [
        ("RNN", [(T, N, C), None, None, None], BOTH, [(T, N, C), (LSTM_SIZE,), (4, N, H), (4, N, H)],
         [(T, N, 2 * H), (4, N, H), (4, N, H)]),
        ("RNN", [(T, N, C), None, (1, 0, H)], GRU, [(T, N, C), (GRU_SIZE,), (1, N, H)], None),
        ("RNN", [None, (rnn_weights.vector_size("gru", 1, 7, H),), (1, N, H)], GRU,
         [(0, N, 7), (rnn_weights.vector_size("gru", 1, 7, H),), (1, N, H)], [(0, N, H)]),
        ("RNN", [(N, C), None, None], GRU, [(N, C), (GRU_SIZE,), (1, N, H)], [(N, H)]),  # ragged data
        ("RNN", [(0, 0, C), None, None], GRU, [(T, N, C), (GRU_SIZE,), (1, N, H)], None, [(T, N, H)]),
        ("RNN", [(T, 0, C), None, None, (N,)], {**GRU, "use_sequence_length": True},
         [(T, N, C), (GRU_SIZE,), (1, N, H), (N,)], None),
    ]
)  # fmt: skip
LENGTHS = attrs("lstm", use_sequence_length=True, state_outputs=True)
test_types = rules_test(
    [
        (
            "RNN",
            ["float64", None, None, None, "int32"],
            LENGTHS,
            ["float64"] * 4 + ["int32"],
            ["float64"] * 3,
        ),
        ("RNN", [None] * 5, LENGTHS, ["float16"] * 5, None, ["float16", None, None]),
    ],
    types,
)


def test_names_follow_the_states_returned():
    for mode, extra in (("lstm", ["r_state_output", "r_statecell_output"]), ("gru", ["r_state_output"])):
        net = mx.sym.RNN(mx.sym.Variable("data"), **attrs(mode, state_outputs=True), name="r")
        assert net.list_outputs() == ["r_output", *extra]
    assert net.list_arguments() == ["data", "r_parameters", "r_state"]


def test_limits_of_the_cell_state_are_ignored_with_a_warning():
    given = inputs("lstm", 1, False)
    with pytest.warns(UserWarning, match="lstm_state_clip_min and lstm_state_clip_max have no effect"):
        found = run("RNN", *given, **attrs("lstm", lstm_state_clip_min=-0.1, lstm_state_clip_max=0.1))
    np.testing.assert_allclose(found, network("lstm", 1, False, *given)[0], 1e-6)


@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, False), (1, True)])
def test_small_lstms_run_by_our_own_kernel(layers, bidirectional, monkeypatch):
    calls, own = [], rnn_module.small_lstm
    monkeypatch.setattr(rnn_module, "small_lstm", lambda *given: calls.append(given) or own(*given))
    given = inputs("lstm", layers, bidirectional, "float32")
    found = run("RNN", *given, **attrs("lstm", layers, bidirectional))
    np.testing.assert_allclose(found, network("lstm", layers, bidirectional, *given)[0], 1e-5, 1e-6)
    one_layer = (layers, bidirectional) == (1, False)
    assert len(calls) == (one_layer and hasattr(native.core, "lstm_forward"))


def test_imperative_call():
    given = inputs("gru", 1, False, "float32")
    found = mx.nd.RNN(*map(mx.nd.array, given), **attrs("gru", state_outputs=True))
    for one, want in zip(found, network("gru", 1, False, *given), strict=True):
        np.testing.assert_allclose(one.asnumpy(), want, 1e-5, 1e-6)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_gpu_gives_what_the_cpu_gives(mode):
    given = [torch.from_numpy(each) for each in inputs(mode, 2, True, "float32")]
    on_cpu = call("RNN", *given, **attrs(mode, 2, True, state_outputs=True))
    on_gpu = call("RNN", *(each.cuda() for each in given), **attrs(mode, 2, True, state_outputs=True))
    for one, other in zip(on_cpu, on_gpu, strict=True):
        np.testing.assert_allclose(other.cpu(), one, 1e-3, 1e-4)
