"""Small LSTMs and GRUs by the native extension against NumPy, slopes by differences; more: native/test_kernels.py."""

import numpy as np
import pytest
import torch

from dpmodule import native
from dpmodule.ops.nn.lstm import is_small, predict, small_gru, small_lstm

pytestmark = pytest.mark.skipif(
    not hasattr(native.core, "lstm_forward"),
    reason="there is no extension, or its compiler has no vector types",
)
NAMES = ("x", "hidden", "cell", "w_in", "w_state", "b_in", "b_state")
# steps, rows, features, units: around the widths that are computed at once (4, 8 and 16 units; 1 to 8 rows)
SIZES = [(1, 1, 1, 1), (4, 5, 3, 13), (2, 3, 4, 17)]


def written_out(x, hidden, cell, w_in, w_state, b_in, b_state):
    """Return all hidden states, and the last one and that of the cell, by the definition."""
    found = []
    for row in x:
        gates = row @ w_in.T + b_in + hidden @ w_state.T + b_state
        i, f, g, o = np.split(gates, 4, axis=1)
        i, f, o = (1 / (1 + np.exp(-gate)) for gate in (i, f, o))
        cell = f * cell + i * np.tanh(g)
        hidden = o * np.tanh(cell)
        found.append(hidden)
    return np.stack(found), hidden[None], cell[None]


def values(steps, rows, features, units, biases=True):
    draw = np.random.RandomState(steps * rows + units).uniform
    shapes = (steps, rows, features), (rows, units), (rows, units), (4 * units, features), (4 * units, units)
    made = {n: draw(-1, 1, s) for n, s in zip(NAMES, (*shapes, (4 * units,), (4 * units,)), strict=True)}
    return made if biases else {**made, "b_in": 0 * made["b_in"], "b_state": 0 * made["b_state"]}


def tensors(given, turned=False, grad=False):
    made = {name: torch.from_numpy(np.ascontiguousarray(value, np.float32)) for name, value in given.items()}
    if turned:  # data as it lies in memory with the batch first
        made["x"] = made["x"].transpose(0, 1).contiguous().transpose(0, 1)
    return {name: tensor.requires_grad_(grad) for name, tensor in made.items()}


def run(x, hidden, cell, *weights):
    return small_lstm(x, (hidden, cell), weights)


def close(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one.detach(), other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_states_and_gradients(sizes, turned):
    given = values(*sizes)
    wanted = written_out(**given)
    made = tensors(given, turned, grad=True)
    found = run(*made.values())
    close(found, wanted)
    assert all(each.requires_grad for each in found)
    assert found[0].stride() == tensors({"x": np.zeros(wanted[0].shape)}, turned)["x"].stride()
    seeds = [np.random.RandomState(7).uniform(-1, 1, each.shape) for each in wanted]
    heads = [torch.from_numpy(seed.astype(np.float32)) for seed in seeds]
    for used in ([0, 1, 2], [0], [1], [2]):
        picked = [found[i] for i in used], [made[n] for n in NAMES], [heads[i] for i in used]
        grads = torch.autograd.grad(*picked, retain_graph=True)
        for name, grad in zip(NAMES, grads, strict=True):
            way = np.random.RandomState(len(name)).uniform(-1, 1, given[name].shape)
            ends = [written_out(**{**given, name: given[name] + step * way}) for step in (1e-5, -1e-5)]
            slope = sum(((ends[0][i] - ends[1][i]) * seeds[i]).sum() for i in used) / 2e-5
            assert (grad.double().numpy() * way).sum() == pytest.approx(slope, rel=3e-4, abs=2e-4), name


@pytest.mark.skipif(getattr(native.core, "vector_width", 0) < 8, reason="products are a library's")
def test_an_input_of_other_features_is_refused():
    made = tensors(values(35, 4, 16, 16))
    made["x"] = made["x"][:, :, 1:]
    with torch.no_grad(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        run(*made.values())


def test_small_numbers_keep_their_digits():
    given = {name: np.zeros_like(value) for name, value in values(1, 1, 1, 3).items()}
    given["b_in"][6:9] = [1e-20, -3e-7, 2e-3]
    cell = run(*tensors(given).values())[2]
    np.testing.assert_allclose(cell[0, 0], 0.5 * np.tanh([1e-20, -3e-7, 2e-3]), rtol=1e-6)


@pytest.mark.parametrize("name", NAMES)
def test_nan_is_passed_on(name):
    given = values(3, 2, 4, 9)
    given[name].flat[0] = np.nan
    made = tensors(given, grad=True)
    found = run(*made.values())[0]
    expected = np.isnan(written_out(**given)[0])
    assert expected.any()
    np.testing.assert_array_equal(found.detach().isnan(), expected)
    found.sum().backward()
    assert made["w_state"].grad.isnan().any()


def gru_written_out(x, hidden, w_in, w_state, b_in, b_state):
    found = []
    for row in x:
        (r, z, n), (p, q, m) = (
            np.split(a, 3, axis=1) for a in (row @ w_in.T + b_in, hidden @ w_state.T + b_state)
        )
        reset, keep = (1 / (1 + np.exp(-each)) for each in (r + p, z + q))
        fresh = np.tanh(n + reset * m)
        hidden = fresh + keep * (hidden - fresh)
        found.append(hidden)
    return np.stack(found), hidden[None]


@pytest.mark.parametrize("biases", [True, False])
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_states_of_grus(sizes, turned, biases):
    given = values(*sizes, biases)
    del given["cell"]
    for name in ("w_in", "w_state", "b_in", "b_state"):
        given[name] = given[name][: 3 * sizes[3]]
    x, hidden, *weights = tensors(given, turned).values()
    with torch.no_grad():
        found = small_gru(x, [hidden], weights if biases else weights[:2])
        both, both_last = predict(x, [torch.stack([hidden, hidden])], [*weights, *weights], directions=2)
        assert is_small(x, [hidden], weights)
        assert not is_small(x, [hidden], [weights[0][:, 1:], *weights[1:]])
    close(found, gru_written_out(**given))
    states, last = gru_written_out(**{**given, "x": given["x"][::-1]})
    close((both[..., sizes[3] :], both_last[1:]), (states[::-1], last))
    given["hidden"][0, 0] = np.nan
    expected = np.isnan(gru_written_out(**given)[0])
    with torch.no_grad():
        found = small_gru(*[tensors(given)["x"], [tensors(given)["hidden"]]], weights)[0]
    np.testing.assert_array_equal(found.isnan(), expected)
    assert not is_small(x, [hidden], weights)  # with gradient


def decided(rows, units, steps=7, dtype=torch.float32, device="cpu", features=3, gates=4):
    like = {"dtype": dtype, "device": device}
    begin = [torch.zeros(rows, units, **like)] * (gates - 2)
    weights = [torch.zeros(gates * units, features, **like), torch.zeros(gates * units, units, **like)]
    return is_small(torch.zeros(steps, rows, features, **like), begin, weights)


def test_sizes_types_and_shapes_decide(monkeypatch):
    assert decided(4, 16) and decided(4, 16, steps=1000) and decided(1, 128)  # noqa: PT018
    assert not any([decided(1, 129), decided(256, 8), decided(0, 16)])
    with torch.no_grad():
        assert decided(20, 128) and decided(8, 200, steps=35, features=200)  # noqa: PT018
        assert not any([decided(24, 128), decided(8, 200, steps=35), decided(1, 201)])
    assert not decided(4, 16, dtype=torch.float64)
    assert not decided(4, 16, device="meta")
    for name in NAMES:
        for change in (torch.Tensor.double, *[lambda t: t[1:]] * (name != "x")):
            made = tensors(values(3, 2, 4, 5))
            for fits in (True, False):
                x, hidden, cell, *weights = made.values()
                assert is_small(x, (hidden, cell), weights) == fits
                made[name] = change(made[name])
    monkeypatch.setattr(native, "core", None)
    monkeypatch.setattr("dpmodule.ops.nn.linear._native", None)
    assert not decided(4, 16)
