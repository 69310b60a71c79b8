"""The fused recurrent network beyond MXNet's recordings: lengths, projections, dropout, declarations."""

import importlib
from itertools import product

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule import native
from dpmodule.ops.nn import rnn_weights
from helpers.op_case import OpCase, call, check_gradient, rules_test, run, types
from helpers.walk import walks

rnn_module = importlib.import_module("dpmodule.ops.nn.rnn")
MODES = rnn_weights.MODES
T, N, C, H = 4, 3, 2, 3
RNG = np.random.RandomState(5)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def inputs(mode, layers, bidirectional, dtype="float64", projection=None):
    rows = layers * (1 + bidirectional)
    size = rnn_weights.vector_size(mode, layers, C, H, bidirectional, projection)
    shapes = [(T, N, C), (size,), (rows, N, projection or H), (rows, N, H)]
    return tuple(RNG.uniform(-1, 1, s).astype(dtype) for s in (shapes if mode == "lstm" else shapes[:3]))


def attrs(mode, layers=1, bidirectional=False, **more):
    return {"mode": mode, "num_layers": layers, "bidirectional": bidirectional, "state_size": H, **more}


def results(given, **options):
    return call("RNN", *map(torch.from_numpy, given), **options)


def test_projection():
    given = inputs("lstm", 1, False, projection=2)
    data, vector, (h,), (c,) = given
    w, found = rnn_weights.unpack(vector, "lstm", 1, H, False, 2), []
    for x in data:
        i, f, g, o = (
            x @ w[f"l0_i2h{k}_weight"].T + w[f"l0_i2h{k}_bias"] + h @ w[f"l0_h2h{k}_weight"].T + w[f"l0_h2h{k}_bias"]
            for k in ("_i", "_f", "_c", "_o")
        )  # fmt: skip
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = (sigmoid(o) * np.tanh(c)) @ w["l0_h2r_weight"].T
        found.append(h)
    options = attrs("lstm", state_outputs=True, projection_size=2)
    for one, want in zip(results(given, **options), (np.stack(found), h[None], c[None]), strict=True):
        np.testing.assert_allclose(one, want, 1e-6)
    given = inputs("lstm", 2, True, projection=2)
    check_gradient(OpCase("RNN", given, attrs("lstm", 2, True, projection_size=2)), tol=1e-5)


@walks(product(MODES, [False, True]))
def test_lengths_give_each_sequence_what_it_gets_alone(mode, bidirectional):
    data, vector, *states = given = inputs(mode, 2, bidirectional)
    lengths, options = np.array([2, 4, 1]), attrs(mode, 2, bidirectional, state_outputs=True)
    found = results((*given, lengths), **options, use_sequence_length=True)
    for row, length in enumerate(lengths):
        alone = data[:length, row : row + 1], vector, *(state[:, row : row + 1] for state in states)
        output, *last = results(alone, **options)
        np.testing.assert_allclose(found[0][:length, row], output[:, 0], 1e-6)
        assert not found[0][length:, row].any()
        for one, want in zip(found[1:], last, strict=True):
            np.testing.assert_allclose(one[:, row], want[:, 0], 1e-6)


@pytest.mark.parametrize(("layers", "is_train"), [(2, False), (1, True)])
def test_nothing_is_dropped_in_prediction_or_from_one_layer(layers, is_train):
    given = inputs("lstm", layers, False)
    found = run("RNN", *given, is_train=is_train, **attrs("lstm", layers, p=0.9))
    np.testing.assert_array_equal(found, run("RNN", *given, **attrs("lstm", layers)))


def test_share_and_scale():
    # a relu network whose upper layer passes on the sum of what it gets, so that masks show
    vector = np.zeros(rnn_weights.vector_size("rnn_relu", 2, 1, 1))
    pieces = rnn_weights.unpack(vector, "rnn_relu", 2, 1)
    pieces["l0_i2h_weight"][:] = pieces["l1_i2h_weight"][:] = 1
    options = {"mode": "rnn_relu", "num_layers": 2, "state_size": 1, "p": 0.25}
    found = run("RNN", np.ones((50, 40, 1)), vector, np.zeros((2, 40, 1)), **options)
    assert set(np.unique(found.round(6))) == {0.0, round(1 / 0.75, 6)}
    assert (found == 0).mean() == pytest.approx(0.25, abs=0.04)


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
    sums, weight = [], executor.arg_dict["r_parameters"][0].asscalar()
    for changed in (weight - 1e-2, weight + 1e-2):
        executor.arg_dict["r_parameters"][0] = changed
        sums.append(forward(3).sum(dtype=np.float64))
    assert (sums[1] - sums[0]) / 2e-2 == pytest.approx(slope, rel=2e-2, abs=2e-3)


# declarations

GRU_SIZE, LSTM_SIZE = rnn_weights.vector_size("gru", 1, C, H), rnn_weights.vector_size("lstm", 2, C, H, True)
GRU, BOTH = attrs("gru"), attrs("lstm", 2, True, state_outputs=True)
test_shapes = rules_test(
    ("RNN", [(T, N, C), None, None, None], BOTH, [(T, N, C), (LSTM_SIZE,), (4, N, H), (4, N, H)],
     [(T, N, 2 * H), (4, N, H), (4, N, H)]),
    ("RNN", [(T, N, C), None, (1, 0, H)], GRU, [(T, N, C), (GRU_SIZE,), (1, N, H)], None),
    ("RNN", [None, (rnn_weights.vector_size("gru", 1, 7, H),), (1, N, H)], GRU,
     [(0, N, 7), (rnn_weights.vector_size("gru", 1, 7, H),), (1, N, H)], [(0, N, H)]),
    ("RNN", [(N, C), None, None], GRU, [(N, C), (GRU_SIZE,), (1, N, H)], [(N, H)]),  # ragged data
    ("RNN", [(0, 0, C), None, None], GRU, [(T, N, C), (GRU_SIZE,), (1, N, H)], None, [(T, N, H)]),
    ("RNN", [(T, 0, C), None, None, (N,)], {**GRU, "use_sequence_length": True},
     [(T, N, C), (GRU_SIZE,), (1, N, H), (N,)], None),
)  # fmt: skip
LENGTHS = attrs("lstm", use_sequence_length=True, state_outputs=True)
test_types = rules_test(
    ("RNN", ["float64", *[None] * 3, "int32"], LENGTHS, ["float64"] * 4 + ["int32"], ["float64"] * 3),
    ("RNN", [None] * 5, LENGTHS, ["float16"] * 5, None, ["float16", None, None]),
    rule=types,
)


def test_limits_of_the_cell_state_are_ignored_with_a_warning():
    given = inputs("lstm", 1, False)
    with pytest.warns(UserWarning, match="lstm_state_clip_min and lstm_state_clip_max have no effect"):
        found = run("RNN", *given, **attrs("lstm", lstm_state_clip_min=-0.1, lstm_state_clip_max=0.1))
    np.testing.assert_array_equal(found, run("RNN", *given, **attrs("lstm")))


@pytest.mark.parametrize("mode", MODES)
@pytest.mark.parametrize(("layers", "bidirectional"), [(1, False), (2, False), (2, True)])
def test_small_networks_run_by_our_own_kernel(layers, bidirectional, mode, monkeypatch):
    calls, own = [], rnn_module.predict
    monkeypatch.setattr(rnn_module, "predict", lambda *given: calls.append(given) or own(*given))
    given = inputs(mode, layers, bidirectional, "float32")
    with torch.no_grad():
        found = run("RNN", *given, **attrs(mode, layers, bidirectional))
    wide = run("RNN", *(each.astype("f8") for each in given), **attrs(mode, layers, bidirectional))
    np.testing.assert_allclose(found, wide, 1e-5, 1e-6)
    assert len(calls) == hasattr(native.core, "recurrent")


@pytest.mark.parametrize("mode", MODES)
def test_gradients_of_layers_and_directions_are_those_of_torch(mode):
    given, found = inputs(mode, 2, True, "float32"), []
    for dtype in ("float32", "float64"):  # torch's own function runs the second
        tensors = [torch.from_numpy(each.astype(dtype)).requires_grad_() for each in given]
        outputs = call("RNN", *tensors, **attrs(mode, 2, True, state_outputs=True))
        sum((each * each).sum() for each in outputs).backward()
        found.append([each.detach() for each in (*outputs, *(tensor.grad for tensor in tensors))])
    for one, other in zip(*found, strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-5)


@pytest.mark.gpu
@pytest.mark.parametrize("mode", MODES)
def test_gpu_gives_what_the_cpu_gives(mode):
    given = [torch.from_numpy(each) for each in inputs(mode, 2, True, "float32")]
    on_cpu = call("RNN", *given, **attrs(mode, 2, True, state_outputs=True))
    data, vector, *states = (each.cuda() for each in given)
    states = [state.mT.contiguous().mT for state in states]  # as any operator may return them
    on_gpu = call("RNN", data, vector, *states, **attrs(mode, 2, True, state_outputs=True))
    for one, other in zip(on_cpu, on_gpu, strict=True):
        np.testing.assert_allclose(other.cpu(), one, 1e-3, 1e-4)


@pytest.mark.parametrize("mode", MODES)
def test_initial_states_may_have_another_type(mode):
    data, parameters, *states = inputs(mode, 1, False)
    want = results((data, parameters, *states), **attrs(mode))
    found = results((data, parameters, *(state.astype("float32") for state in states)), **attrs(mode))
    torch.testing.assert_close(found, want, rtol=1e-6, atol=1e-6)
    assert (found if isinstance(found, torch.Tensor) else found[0]).dtype is torch.float64
