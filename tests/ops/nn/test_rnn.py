"""The fused recurrent network against a NumPy loop over layers, directions, steps and gates."""

import importlib
import itertools

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import native, ops
from dpmodule.base import NodeError, OpError, ShapeError
from dpmodule.ops.nn import rnn_weights
from dpmodule.ops.shapes import infer_type
from helpers.op_case import OpCase, call, check_gradient, check_value, run, shapes

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
    units = H
    weights = rnn_weights.unpack(vector, mode, layers, units, bidirectional, projection)
    cell = np.zeros((*state.shape[:2], units)) if cell is None else cell
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
            times = range(data.shape[0]) if direction == "l" else reversed(range(data.shape[0]))
            for t in times:
                h, c = step(mode, w, data[t], h, c)
                if projection:
                    h = h @ w["h2r_weight"].T
                side[t] = h
            last_h[number], last_c[number] = h, c
            sides.append(side)
        data = np.concatenate(sides, axis=2)
    return (data, last_h, last_c) if mode == "lstm" else (data, last_h)


def inputs(mode, layers, bidirectional, dtype="float64", projection=None, features=C):
    rows = layers * (1 + bidirectional)
    size = rnn_weights.vector_size(mode, layers, features, H, bidirectional, projection)
    found = [RNG.uniform(-1, 1, s) for s in [(T, N, features), (size,), (rows, N, projection or H)]]
    if mode == "lstm":
        found.append(RNG.uniform(-1, 1, (rows, N, H)))
    return tuple(each.astype(dtype) for each in found)


def attrs(mode, layers=1, bidirectional=False, **more):
    return {"mode": mode, "num_layers": layers, "bidirectional": bidirectional, "state_size": H, **more}


@pytest.mark.parametrize(
    ("mode", "layers", "bidirectional"), list(itertools.product(MODES, (1, 2, 3), (False, True)))
)
def test_value(mode, layers, bidirectional):
    given = inputs(mode, layers, bidirectional)
    case = OpCase(
        "RNN",
        given,
        attrs(mode, layers, bidirectional, state_outputs=True),
        lambda *arrays: network(mode, layers, bidirectional, *arrays),
    )
    check_value(case)


@pytest.mark.parametrize("mode", MODES)
def test_output_alone(mode):
    given = inputs(mode, 2, True)
    case = OpCase("RNN", given, attrs(mode, 2, True), lambda *arrays: network(mode, 2, True, *arrays)[0])
    check_value(case)


@pytest.mark.parametrize(
    ("mode", "bidirectional"), list(itertools.product(("rnn_tanh", "lstm", "gru"), (False, True)))
)
def test_gradient(mode, bidirectional):
    check_gradient(OpCase("RNN", inputs(mode, 2, bidirectional), attrs(mode, 2, bidirectional)), tol=1e-5)


@pytest.mark.parametrize("mode", MODES)
def test_gradient_through_the_last_states(mode):
    given = inputs(mode, 1, False)
    tensors = [torch.from_numpy(each).requires_grad_() for each in given]
    _, *last = call("RNN", *tensors, **attrs(mode, state_outputs=True))
    sum(state.sum() for state in last).backward()
    shifted = [each.copy() for each in given]
    shifted[1][0] += 1e-6
    change = sum(s.sum() for s in network(mode, 1, False, *shifted)[1:]) - sum(
        s.sum() for s in network(mode, 1, False, *given)[1:]
    )
    assert tensors[1].grad[0].item() == pytest.approx(change / 1e-6, abs=1e-4)


@pytest.mark.parametrize("bidirectional", [False, True])
def test_projection(bidirectional):
    given = inputs("lstm", 2, bidirectional, projection=2)
    case = OpCase(
        "RNN",
        given,
        attrs("lstm", 2, bidirectional, state_outputs=True, projection_size=2),
        lambda *arrays: network("lstm", 2, bidirectional, *arrays, projection=2),
    )
    check_value(case)


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize("bidirectional", [False, True])
def test_lengths_give_each_sequence_what_it_gets_alone(mode, bidirectional):
    given = inputs(mode, 2, bidirectional)
    lengths = np.array([2, 4, 1])
    found = call(
        "RNN",
        *map(torch.from_numpy, given),
        torch.from_numpy(lengths),
        **attrs(mode, 2, bidirectional, state_outputs=True, use_sequence_length=True),
    )
    for row, length in enumerate(lengths):
        data, vector, *states = given
        alone = [data[:length, row : row + 1], vector, *(state[:, row : row + 1] for state in states)]
        output, *last = network(mode, 2, bidirectional, *alone)
        np.testing.assert_allclose(found[0][:length, row], output[:, 0], 1e-6)
        assert not found[0][length:, row].any()
        for one, want in zip(found[1:], last, strict=True):
            np.testing.assert_allclose(one[:, row], want[:, 0], 1e-6)


@pytest.mark.parametrize("lengths", [[0, 1, 2], [1, 2, 5]])
def test_lengths_outside_the_data(lengths):
    given = map(torch.from_numpy, inputs("gru", 1, False))
    with pytest.raises(OpError, match=r"sequence_length is \[\d, \d, \d\], expected lengths from 1 to 4"):
        call("RNN", *given, torch.tensor(lengths), **attrs("gru", use_sequence_length=True))


class TestDropout:
    def draw(self, p, layers=2, is_train=True, lengths=False, **more):
        given = list(map(torch.from_numpy, inputs("lstm", layers, False)))
        if lengths:
            given.append(torch.tensor([4, 2, 3]))
            more["use_sequence_length"] = True
        return call(
            "RNN", *given, is_train=is_train, **attrs("lstm", layers, p=p, state_outputs=True, **more)
        )

    def test_everything_dropped_leaves_the_upper_layer_without_input(self):
        given = inputs("lstm", 2, False)
        blind = [given[0], given[1].copy(), *given[2:]]
        for name, piece in rnn_weights.unpack(blind[1], "lstm", 2, H).items():
            if name.startswith("l1_i2h") and name.endswith("weight"):
                piece[:] = 0
        found = call("RNN", *map(torch.from_numpy, given), **attrs("lstm", 2, p=1.0, state_outputs=True))
        for one, want in zip(found, network("lstm", 2, False, *blind), strict=True):
            np.testing.assert_allclose(one, want, 1e-6)

    @pytest.mark.parametrize(("layers", "is_train"), [(2, False), (1, True)])
    def test_nothing_is_dropped_in_prediction_or_from_one_layer(self, layers, is_train):
        given = inputs("lstm", layers, False)
        found = run("RNN", *given, is_train=is_train, **attrs("lstm", layers, p=0.9))
        np.testing.assert_allclose(found, network("lstm", layers, False, *given)[0], 1e-6)

    def test_share_and_scale(self):
        # a relu network whose upper layer passes on the sum of what it gets, so that masks show
        size = rnn_weights.vector_size("rnn_relu", 2, 1, 1)
        vector = np.zeros(size)
        pieces = rnn_weights.unpack(vector, "rnn_relu", 2, 1)
        pieces["l0_i2h_weight"][:] = pieces["l1_i2h_weight"][:] = 1
        data = np.ones((50, 40, 1))
        found = run(
            "RNN", data, vector, np.zeros((2, 40, 1)), mode="rnn_relu", num_layers=2, state_size=1, p=0.25
        )
        assert set(np.unique(found.round(6))) == {0.0, round(1 / 0.75, 6)}
        assert (found == 0).mean() == pytest.approx(0.25, abs=0.04)

    @pytest.mark.parametrize("lengths", [False, True])
    def test_draws_from_the_generator_it_is_given_alone(self, lengths):
        before = torch.get_rng_state()
        found = self.draw(0.5, lengths=lengths)
        assert torch.equal(before, torch.get_rng_state())
        assert found[0].shape == (T, N, H)

    def test_seed_repeats(self):
        data = mx.sym.Variable("data")
        net = mx.sym.RNN(data, mode="gru", num_layers=3, state_size=H, p=0.5, name="r")
        executor = net.simple_bind(mx.cpu(), data=(T, N, C))
        for array in executor.arg_arrays:
            array[:] = mx.nd.array(RNG.uniform(-1, 1, array.shape))
        found = []
        for seed in (1, 1, 2):
            mx.random.seed(seed)
            found.append(executor.forward(is_train=True)[0].asnumpy())
        np.testing.assert_array_equal(found[0], found[1])
        assert (found[0] != found[2]).any()

    def test_gradient_meets_the_mask_of_its_forward(self):
        net = mx.sym.RNN(
            mx.sym.Variable("data"), mode="rnn_tanh", num_layers=2, state_size=H, p=0.5, name="r"
        )
        executor = net.simple_bind(mx.cpu(), data=(T, N, C))
        for array in executor.arg_arrays:
            array[:] = mx.nd.array(RNG.uniform(-1, 1, array.shape))
        mx.random.seed(3)
        before = executor.forward(is_train=True)[0].asnumpy().sum()
        executor.backward([mx.nd.ones((T, N, H))])
        slope = executor.grad_dict["r_parameters"].asnumpy()[0]
        executor.arg_dict["r_parameters"][0] = executor.arg_dict["r_parameters"][0].asscalar() + 1e-3
        mx.random.seed(3)
        after = executor.forward(is_train=True)[0].asnumpy().sum()
        assert (after - before) / 1e-3 == pytest.approx(slope, rel=2e-2, abs=2e-3)


class TestShapes:
    def test_all_from_data(self):
        ins, outs = shapes("RNN", [(T, N, C), None, None, None], **attrs("lstm", 2, True, state_outputs=True))
        size = rnn_weights.vector_size("lstm", 2, C, H, True)
        assert ins == [(T, N, C), (size,), (4, N, H), (4, N, H)]
        assert outs == [(T, N, 2 * H), (4, N, H), (4, N, H)]

    def test_begin_state_without_batch_size(self):
        ins, _ = shapes("RNN", [(T, N, C), None, (1, 0, H)], **attrs("gru"))
        assert ins[2] == (1, N, H)

    def test_batch_size_from_states_and_features_from_parameters(self):
        size = rnn_weights.vector_size("gru", 1, 7, H)
        ins, outs = shapes("RNN", [None, (size,), (1, N, H)], **attrs("gru"))
        assert ins == [(0, N, 7), (size,), (1, N, H)]
        assert outs == [(0, N, H)]

    def test_ragged_data_has_no_axis_of_time_steps(self):
        ins, outs = shapes("RNN", [(N, C), None, None], **attrs("gru"))
        assert ins == [(N, C), (rnn_weights.vector_size("gru", 1, C, H),), (1, N, H)]
        assert outs == [(N, H)]

    def test_from_the_output(self):
        ins, _ = shapes("RNN", [(0, 0, C), None, None], [(T, N, H)], **attrs("gru"))
        assert ins == [(T, N, C), (rnn_weights.vector_size("gru", 1, C, H),), (1, N, H)]

    def test_lengths(self):
        ins, _ = shapes("RNN", [(T, 0, C), None, None, (N,)], **attrs("gru", use_sequence_length=True))
        assert ins[0] == (T, N, C)
        assert ins[3] == (N,)

    @pytest.mark.parametrize(
        ("ins", "message"),
        [
            ([(T,), None, None], r"data has shape \(4,\), expected \(0, 0, 0\)"),
            ([(T, N, C), (5,), None], r"parameters has shape \(5,\), expected \(63,\) from data \(4, 3, 2\)"),
            ([(T, N, C), None, (2, N, H)], r"state has shape \(2, 3, 3\), expected \(1, 3, 3\)"),
            ([(T, N, C), None, (1, N + 1, H)], r"state has shape \(1, 4, 3\), expected \(1, 3, 3\)"),
            ([None, (64,), None], "parameters have 64 elements, expected 54 plus 9"),
        ],
    )
    def test_contradictions(self, ins, message):
        with pytest.raises(ShapeError, match=message):
            shapes("RNN", ins, **attrs("gru"))

    def test_projection_outside_lstm(self):
        with pytest.raises(
            ShapeError, match="projection_size is 2 in mode gru, expected None; only lstm projects"
        ):
            shapes("RNN", [(T, N, C), None, None], **attrs("gru", projection_size=2))


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"mode": "elman"}, "mode is 'elman', expected one of rnn_relu, rnn_tanh, lstm, gru"),
        ({"num_layers": 0}, "num_layers is '0', expected an integer from 1"),
        ({"p": 1.5}, "p is '1.5', expected a number from 0 to 1"),
    ],
)
def test_wrong_attributes(wrong, message):
    with pytest.raises(OpError, match=message):
        mx.sym.RNN(mx.sym.Variable("data"), **{**attrs("gru"), **wrong})


def test_types():
    op = ops.get("RNN")
    a = op.parse(attrs("lstm", use_sequence_length=True, state_outputs=True))
    assert infer_type(op, a, ["float64", None, None, None, "int32"], [None] * 3) == (
        ["float64"] * 4 + ["int32"],
        ["float64"] * 3,
    )
    assert infer_type(op, a, [None] * 5, ["float16", None, None])[0] == ["float16"] * 5


def test_names_follow_the_states_returned():
    data = mx.sym.Variable("data")
    for mode, extra in (("lstm", ["r_state_output", "r_statecell_output"]), ("gru", ["r_state_output"])):
        net = mx.sym.RNN(data, **attrs(mode, state_outputs=True), name="r")
        assert net.list_outputs() == ["r_output", *extra]
    assert net.list_arguments() == ["data", "r_parameters", "r_state"]


def test_limits_of_the_cell_state_are_ignored_with_a_warning():
    given = inputs("lstm", 1, False)
    with pytest.warns(UserWarning, match="lstm_state_clip_min and lstm_state_clip_max have no effect"):
        found = run("RNN", *given, **attrs("lstm", lstm_state_clip_min=-0.1, lstm_state_clip_max=0.1))
    np.testing.assert_allclose(found, network("lstm", 1, False, *given)[0], 1e-6)


@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, False), (1, True)])
def test_small_lstms_run_by_our_own_kernel(layers, bidirectional, monkeypatch):
    calls = []
    own = rnn_module.small_lstm
    monkeypatch.setattr(rnn_module, "small_lstm", lambda *given: calls.append(given) or own(*given))
    given = inputs("lstm", layers, bidirectional, "float32")
    found = run("RNN", *given, **attrs("lstm", layers, bidirectional))
    np.testing.assert_allclose(found, network("lstm", layers, bidirectional, *given)[0], 1e-5, 1e-6)
    one_layer = (layers, bidirectional) == (1, False)
    assert len(calls) == (one_layer and hasattr(native.core, "lstm_forward"))


@pytest.mark.parametrize(("mode", "size"), [("gru", 63), ("lstm", 84)])
@pytest.mark.parametrize("types", [("float64", "float32"), ("float32", "float64")])
def test_arrays_of_different_types_are_refused_by_name(mode, size, types):
    net = mx.sym.RNN(mx.sym.Variable("data"), **attrs(mode), name="r")
    args = {
        "data": mx.nd.zeros((T, N, C), dtype=types[0]),
        "r_parameters": mx.nd.zeros((size,), dtype=types[1]),
        "r_state": mx.nd.zeros((1, N, H)),
        "r_state_cell": mx.nd.zeros((1, N, H)),
    }
    args = {name: args[name] for name in net.list_arguments()}
    with pytest.raises(NodeError, match="RNN 'r' .*dtype"):
        net.bind(mx.cpu(), args).forward()


def test_imperative_call():
    given = inputs("gru", 1, False, "float32")
    found = mx.nd.RNN(*map(mx.nd.array, given), **attrs("gru", state_outputs=True))
    for one, want in zip(found, network("gru", 1, False, *given), strict=True):
        np.testing.assert_allclose(one.asnumpy(), want, 1e-5, 1e-6)


def test_imperative_call_with_wrong_shapes():
    data, parameters, state = (mx.nd.array(each) for each in inputs("gru", 1, False, "float32"))
    for given, message in [
        ((data[0], parameters, state), "expected"),
        ((data, parameters[1:], state), r"parameters has shape \(62,\), expected \(63,\)"),
        (
            (data, parameters, mx.nd.zeros((1, N + 1, H))),
            r"state has shape \(1, 4, 3\), expected \(1, 3, 3\)",
        ),
    ]:
        with pytest.raises(ShapeError, match=message):
            mx.nd.RNN(*given, **attrs("gru"))


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_gpu_gives_what_the_cpu_gives(mode):
    given = [torch.from_numpy(each) for each in inputs(mode, 2, True, "float32")]
    on_cpu = call("RNN", *given, **attrs(mode, 2, True, state_outputs=True))
    on_gpu = call("RNN", *(each.cuda() for each in given), **attrs(mode, 2, True, state_outputs=True))
    for one, other in zip(on_cpu, on_gpu, strict=True):
        np.testing.assert_allclose(other.cpu(), one, 1e-3, 1e-4)


@pytest.mark.parametrize(
    ("state", "cell"), [((1, 5, 4), (1, 2, 4)), ((1, 2, 4), (2, 2, 4)), ((1, 2, 3), (1, 2, 4))]
)
def test_states_of_another_shape_are_refused(state, cell):
    size = rnn_weights.vector_size("lstm", 1, 3, 4, False, None)
    arrays = [np.zeros(shape, "f4") for shape in ((5, 2, 3), (size,), state, cell)]
    with pytest.raises(ShapeError, match="state.* has shape"):
        mx.nd.RNN(*map(mx.nd.array, arrays), mode="lstm", state_size=4, num_layers=1)
