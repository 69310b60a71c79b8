"""Recurrent layers by the native extension against NumPy, slopes by differences; more: native/test_kernels.py."""

from types import SimpleNamespace

import numpy as np
import pytest
import torch

from dpmodule import native
from dpmodule.ops.nn.recurrence import is_fastest, predict, run_layer
from helpers.threads import set_threads

pytestmark = pytest.mark.skipif(
    not hasattr(native.core, "recurrent"),
    reason="there is no extension, or its compiler has no vector types",
)
NAMES = ("x", "hidden", "w_in", "w_state", "b_in", "b_state", "cell")
# steps, rows, features, units: around the widths that are computed at once (4, 8 and 16 units; 1 to 8 rows)
SIZES = [(1, 1, 1, 1), (4, 5, 3, 13), (2, 3, 4, 17)]


MODES = {"rnn_relu": 1, "rnn_tanh": 1, "gru": 3, "lstm": 4}


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def step(mode, ours, of_state, hidden, cell):
    """Return the states after a step, by the definition."""
    if mode == "lstm":
        i, f, g, o = np.split(ours + of_state, 4, axis=1)
        cell = sigmoid(f) * cell + sigmoid(i) * np.tanh(g)
        return sigmoid(o) * np.tanh(cell), cell
    if mode == "gru":
        (r, z, n), (p, q, m) = (np.split(each, 3, axis=1) for each in (ours, of_state))
        fresh = np.tanh(n + sigmoid(r + p) * m)
        return fresh + sigmoid(z + q) * (hidden - fresh), cell
    return (np.tanh if mode == "rnn_tanh" else lambda x: np.maximum(x, 0))(ours + of_state), cell


def written_out(mode, x, hidden, w_in, w_state, b_in, b_state, cell=None):
    """Return all hidden states, and the last one and that of the cell, by the definition."""
    found = []
    for row in x:
        hidden, cell = step(mode, row @ w_in.T + b_in, hidden @ w_state.T + b_state, hidden, cell)
        found.append(hidden)
    return np.stack(found), hidden[None], *([] if cell is None else [cell[None]])


def values(mode, steps, rows, features, units, biases=True):
    draw = np.random.RandomState(steps * rows + units).uniform
    count = MODES[mode] * units
    shapes = (
        (steps, rows, features),
        (rows, units),
        (count, features),
        (count, units),
        (count,),
        (count,),
        (rows, units),
    )
    made = {n: draw(-1, 1, s) for n, s in zip(names_of(mode), shapes, strict=False)}
    return made if biases else {**made, "b_in": 0 * made["b_in"], "b_state": 0 * made["b_state"]}


def names_of(mode):
    return NAMES if mode == "lstm" else NAMES[:-1]


def tensors(given, turned=False, grad=False):
    made = {name: torch.from_numpy(np.ascontiguousarray(value, np.float32)) for name, value in given.items()}
    if turned:  # data as it lies in memory with the batch first
        made["x"] = made["x"].transpose(0, 1).contiguous().transpose(0, 1)
    return {name: tensor.requires_grad_(grad) for name, tensor in made.items()}


def run(mode, x, hidden, w_in, w_state, b_in, b_state, cell=None, backwards=False):
    begin = [hidden] if cell is None else [hidden, cell]
    return run_layer(mode, x, begin, [w_in, w_state, b_in, b_state], backwards)


def close(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.detach(), other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("backwards", [False, True])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mode", MODES)
def test_states_and_gradients(mode, sizes, turned, backwards):
    given = values(mode, *sizes)

    def wanted(**changed):
        all_given = {**given, **changed}
        states, *last = written_out(mode, **{**all_given, "x": all_given["x"][:: -1 if backwards else 1]})
        return states[:: -1 if backwards else 1], *last

    made = tensors(given, turned, grad=True)
    found = run(mode, **made, backwards=backwards)
    close(found, wanted())
    assert all(each.requires_grad for each in found)
    assert found[0].stride() == tensors({"x": np.zeros(found[0].shape)}, turned)["x"].stride()
    seeds = [np.random.RandomState(7).uniform(-1, 1, each.shape) for each in found]
    heads = [torch.from_numpy(seed.astype(np.float32)) for seed in seeds]
    for used in ([*range(len(found))], *([i] for i in range(len(found)))):
        picked = [found[i] for i in used], [*made.values()], [heads[i] for i in used]
        grads = torch.autograd.grad(*picked, retain_graph=True)
        for name, grad in zip(made, grads, strict=True):
            way = np.random.RandomState(len(name)).uniform(-1, 1, given[name].shape)
            ends = [wanted(**{name: given[name] + size * way}) for size in (1e-5, -1e-5)]
            slope = sum(((ends[0][i] - ends[1][i]) * seeds[i]).sum() for i in used) / 2e-5
            assert (grad.double().numpy() * way).sum() == pytest.approx(slope, rel=3e-4, abs=2e-4), name


@pytest.mark.parametrize("mode", MODES)
def test_only_wanted_gradients_are_computed(mode):
    made = tensors(values(mode, 3, 2, 4, 5), grad=True)
    for name in made:
        alone = {key: each.detach().requires_grad_(key == name) for key, each in made.items()}
        run(mode, **alone)[0].sum().backward()
        whole = torch.autograd.grad(run(mode, **made)[0].sum(), made[name])
        torch.testing.assert_close(alone[name].grad, *whole)


@pytest.mark.parametrize("mode", MODES)
def test_threads_do_not_change_the_bits(mode):
    sizes, found = (3, 64, 32, 200), []
    for threads in (1, 2):
        with set_threads(threads):
            made = tensors(values(mode, *sizes), grad=True)
            states = run(mode, **made)[0]
            grad = torch.autograd.grad(states.sum(), made["hidden"])[0]
            with torch.no_grad():
                found.append([states.detach(), grad, run(mode, **made)[0]])
    for one, other in zip(*found, strict=True):
        assert torch.equal(one, other)


@pytest.mark.skipif(getattr(native.core, "vector_width", 0) < 8, reason="products are a library's")
def test_an_input_of_other_features_is_refused():
    made = tensors(values("lstm", 35, 4, 16, 16))
    made["x"] = made["x"][:, :, 1:]
    with torch.no_grad(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        run("lstm", **made)


def test_small_numbers_keep_their_digits():
    given = {name: np.zeros_like(value) for name, value in values("lstm", 1, 1, 1, 3).items()}
    given["b_in"][6:9] = [1e-20, -3e-7, 2e-3]
    cell = run("lstm", **tensors(given))[2]
    np.testing.assert_allclose(cell[0, 0], 0.5 * np.tanh([1e-20, -3e-7, 2e-3]), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("mode", MODES)
def test_nan_is_passed_on(mode, name):
    if name not in names_of(mode):
        return
    given = values(mode, 3, 2, 4, 9)
    given[name].flat[0] = np.nan
    made = tensors(given, grad=True)
    found = run(mode, **made)[0]
    expected = np.isnan(written_out(mode, **given)[0])
    assert expected.any()
    np.testing.assert_array_equal(found.detach().isnan(), expected)
    with torch.no_grad():
        np.testing.assert_array_equal(run(mode, **made)[0].isnan(), expected)
    found.sum().backward()
    assert made["w_state"].grad.isnan().any()


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
@pytest.mark.parametrize("mode", MODES)
def test_predictions_of_both_directions(mode, sizes, turned, biases):
    given = values(mode, *sizes, biases)
    made = tensors(given, turned)
    begin = [made["hidden"], *([made["cell"]] if mode == "lstm" else [])]
    weights = [made[name] for name in ("w_in", "w_state", "b_in", "b_state")][: 4 if biases else 2]
    with torch.no_grad():
        found = run_layer(mode, made["x"], begin, weights)
        states = [torch.stack([each, each]) for each in begin]
        both, *both_last = predict(mode, made["x"], states, [*weights, *weights], directions=2)
        assert is_fastest(mode, made["x"], begin, weights)
    close(found, written_out(mode, **given))
    states, *last = written_out(mode, **{**given, "x": given["x"][::-1]})
    close((both[..., sizes[3] :], *(each[1:] for each in both_last)), (states[::-1], *last))


def decided(mode, rows, units, steps=7, dtype=torch.float32, device="cpu", features=3):
    like = {"dtype": dtype, "device": device}
    begin = [torch.zeros(rows, units, **like)] * (2 if mode == "lstm" else 1)
    count = MODES[mode] * units
    weights = [torch.zeros(count, features, **like), torch.zeros(count, units, **like)]
    return is_fastest(mode, torch.zeros(steps, rows, features, **like), begin, weights)


@pytest.mark.parametrize("mode", MODES)
def test_sizes_types_and_shapes_decide(mode, monkeypatch):
    monkeypatch.setattr(
        "dpmodule.ops.nn.recurrence.kernels", lambda: SimpleNamespace(vector_width=8, recurrent=None)
    )
    with set_threads(1):
        assert decided(mode, 4, 16)
        assert decided(mode, 8, 1024)
        assert decided(mode, 4, 16, steps=1) == (mode == "lstm")
        assert decided(mode, 64, 256) == (mode != "lstm")
        with torch.no_grad():
            assert decided(mode, 4, 16, steps=1)
            assert decided(mode, 64, 256)
    assert not decided(mode, 0, 16)
    assert not decided(mode, 4, 16, dtype=torch.float64)
    assert not decided(mode, 4, 16, device="meta")
    for name in names_of(mode):
        for change in (torch.Tensor.double, *[lambda t: t[1:]] * (name != "x")):
            made = tensors(values(mode, 3, 2, 4, 5))
            for fits in (True, False):
                x, hidden, *weights = [each for key, each in made.items() if key != "cell"]
                begin = [hidden, *([made["cell"]] if mode == "lstm" else [])]
                assert is_fastest(mode, x, begin, weights) == fits
                made[name] = change(made[name])
    monkeypatch.setattr("dpmodule.ops.nn.recurrence.kernels", lambda: None)
    assert not decided(mode, 4, 16)
