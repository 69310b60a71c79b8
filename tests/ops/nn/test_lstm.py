"""Small LSTMs by the native extension: the recurrence written out in NumPy, and its slopes by differences."""

import itertools

import numpy as np
import pytest
import torch

from dpmodule import native
from dpmodule.ops.nn.lstm import _use_fused_forward, is_small, small_lstm

pytestmark = pytest.mark.skipif(
    not hasattr(native.core, "lstm_forward"),
    reason="there is no extension, or its compiler has no vector types",
)

NAMES = ("x", "hidden", "cell", "w_in", "w_state", "b_in", "b_state")
# steps, rows, features, units: around the widths that are computed at once (4, 8 and 16 units; 1 to 8 rows)
SIZES = [(1, 1, 1, 1), (3, 2, 5, 4), (4, 5, 3, 13), (6, 9, 2, 16), (2, 3, 4, 17), (5, 4, 7, 33)]


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


def values(steps, rows, features, units):
    draw = np.random.RandomState(steps * rows + units).uniform
    shapes = (steps, rows, features), (rows, units), (rows, units), (4 * units, features), (4 * units, units)
    return {n: draw(-1, 1, s) for n, s in zip(NAMES, (*shapes, (4 * units,), (4 * units,)), strict=True)}


def tensors(given, turned=False, grad=False):
    made = {name: torch.from_numpy(np.ascontiguousarray(value, np.float32)) for name, value in given.items()}
    if turned:  # data as it lies in memory with the batch first
        made["x"] = made["x"].transpose(0, 1).contiguous().transpose(0, 1)
    return {name: tensor.requires_grad_(grad) for name, tensor in made.items()}


def run(x, hidden, cell, *weights):
    return small_lstm(x, (hidden, cell), weights)


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_states(sizes, turned):
    given = values(*sizes)
    expected = written_out(**given)
    for recorded in (False, True):
        with torch.set_grad_enabled(recorded):
            found = run(*tensors(given, turned, grad=recorded).values())
        assert [each.requires_grad for each in found] == [recorded] * 3
        for one, other in zip(found, expected, strict=True):
            assert tuple(one.shape) == other.shape
            np.testing.assert_allclose(one.detach(), other, rtol=1e-5, atol=1e-6)
    assert found[0].stride() == tensors({"x": np.zeros(expected[0].shape)}, turned)["x"].stride()


@pytest.mark.skipif(getattr(native.core, "vector_width", 0) < 8, reason="products are a library's")
@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("biases", [False, True])
def test_prediction_in_one_call(turned, biases):
    given = values(35, 4, 16, 17)
    if not biases:
        given["b_in"][:] = given["b_state"][:] = 0
    made = tensors(given, turned)
    if not biases:
        made["b_in"] = made["b_state"] = None
    x, hidden, cell, *weights = made.values()
    weights = weights if biases else weights[:2]
    assert _use_fused_forward(x, weights)
    apart = [weights[0].t().contiguous().t(), *weights[1:]]
    assert not _use_fused_forward(x, apart)
    with torch.no_grad():
        found, again = (small_lstm(x, (hidden, cell), each) for each in (weights, apart))
    for one, other, expected in zip(found, again, written_out(**given), strict=True):
        np.testing.assert_allclose(one, expected, rtol=1e-5, atol=1e-6)
        assert one.stride() == other.stride()
        assert not one.requires_grad
    assert len({each.untyped_storage().data_ptr() for each in (*found, x, hidden, cell)}) == 6


@pytest.mark.skipif(getattr(native.core, "vector_width", 0) < 8, reason="products are a library's")
def test_an_input_of_other_features_is_refused():
    made = tensors(values(35, 4, 16, 16))
    made["x"] = made["x"][:, :, 1:]
    with torch.no_grad(), pytest.raises(RuntimeError, match="shapes cannot be multiplied"):
        run(*made.values())


@pytest.mark.parametrize("turned", [False, True])
@pytest.mark.parametrize("sizes", SIZES)
def test_gradients(sizes, turned):
    given = values(*sizes)
    seeds = [np.random.RandomState(7).uniform(-1, 1, each.shape) for each in written_out(**given)]
    made = tensors(given, turned, grad=True)
    heads = [torch.from_numpy(seed.astype(np.float32)) for seed in seeds]
    torch.autograd.backward(run(*made.values()), heads)
    for name in NAMES:
        way = np.random.RandomState(len(name)).uniform(-1, 1, given[name].shape)
        ends = [written_out(**{**given, name: given[name] + step * way}) for step in (1e-5, -1e-5)]
        slope = sum(((up - down) * seed).sum() for up, down, seed in zip(*ends, seeds, strict=True)) / 2e-5
        found = (made[name].grad.double().numpy() * way).sum()
        assert found == pytest.approx(slope, rel=2e-4, abs=2e-4), name


@pytest.mark.parametrize("head", range(3))
def test_gradients_of_one_result_alone(head):
    given = values(3, 2, 4, 5)
    made = tensors(given, grad=True)
    found = run(*made.values())
    seed = np.random.RandomState(3).uniform(-1, 1, found[head].shape)
    grad = torch.autograd.grad(found[head], made["w_state"], torch.from_numpy(seed.astype(np.float32)))[0]
    way = np.random.RandomState(4).uniform(-1, 1, given["w_state"].shape)
    ends = [written_out(**{**given, "w_state": given["w_state"] + s * way})[head] for s in (1e-5, -1e-5)]
    assert (grad.double().numpy() * way).sum() == pytest.approx(
        ((ends[0] - ends[1]) * seed).sum() / 2e-5, rel=1e-3
    )


def test_only_wanted_gradients_are_computed():
    made = tensors(values(3, 2, 4, 5))
    made["b_state"].requires_grad_()
    found = run(*made.values())[0]
    grads = torch.autograd.grad(found.sum(), [made["b_state"]])
    assert grads[0].shape == (20,)
    assert found.grad_fn.next_functions[0][0] is None


def test_without_biases():
    given = values(4, 3, 2, 6)
    given["b_in"][:] = given["b_state"][:] = 0
    made = tensors(given)
    x, hidden, cell, w_in, w_state = list(made.values())[:5]
    np.testing.assert_allclose(
        small_lstm(x, (hidden, cell), [w_in, w_state])[0], written_out(**given)[0], atol=1e-6
    )


def test_weights_and_states_of_any_strides():
    given = values(4, 3, 2, 6)
    made = tensors(given)
    odd = {name: torch.stack([t, t], -1)[..., 0] for name, t in made.items()}
    assert not any(t.is_contiguous() for t in odd.values())
    assert torch.equal(run(*odd.values())[0], run(*made.values())[0])


def test_gates_that_are_far_out():
    given = {name: np.zeros_like(value) for name, value in values(1, 1, 1, 5).items()}
    given["b_in"][:] = np.repeat([0.0, 0.0, 1.0, 0.0], 5)
    size = np.array([-1e30, -95.0, 0.0, 95.0, np.inf])
    for gate, expected in ((0, [0, 0, 0.5, 1, 1]), (3, [0, 0, 0.5, 1, 1]), (2, [-1, -1, 0, 1, 1])):
        bias = given["b_in"].copy()
        bias[5 * gate : 5 * gate + 5] = size
        _, hidden, cell = run(*tensors({**given, "b_in": bias}).values())
        g = np.tanh(1.0)
        want = {0: np.array(expected) * g, 3: np.full(5, 0.5 * g), 2: 0.5 * np.array(expected)}[gate]
        np.testing.assert_allclose(cell[0, 0], want, atol=1e-6)
        out = np.array(expected) if gate == 3 else 0.5
        np.testing.assert_allclose(hidden[0, 0], out * np.tanh(want), atol=1e-6)


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
    found = run(*made.values())
    expected = np.isnan(written_out(**given)[0])
    assert expected.any()
    np.testing.assert_array_equal(found[0].detach().isnan(), expected)
    found[0].sum().backward()
    assert made["w_state"].grad.isnan().any()


def test_results_are_memory_of_their_own():
    made = tensors(values(1, 2, 3, 4))
    places = [t.untyped_storage().data_ptr() for t in (*run(*made.values()), *made.values())]
    assert len(set(places)) == len(places)


def test_outputs_may_be_written_before_backward():
    grads = []
    for written in (False, True):
        made = tensors(values(3, 2, 4, 5), grad=True)
        found = run(*made.values())
        if written:
            for each in found:
                each.data.zero_()
        grads.append(torch.autograd.grad(found[0].sum(), list(made.values()), allow_unused=True))
    for one, other in zip(*grads, strict=True):
        assert torch.equal(one, other)


def decided(rows, units, steps=7, dtype=torch.float32, device="cpu"):
    like = {"dtype": dtype, "device": device}
    begin = [torch.zeros(rows, units, **like)] * 2
    weights = [torch.zeros(4 * units, 3, **like), torch.zeros(4 * units, units, **like)]
    return is_small(torch.zeros(steps, rows, 3, **like), begin, weights)


def test_sizes_and_types_alone_decide():
    assert decided(4, 16)
    assert decided(4, 16, steps=1000)
    assert decided(1, 128)
    assert not decided(1, 129)
    assert not decided(256, 8)
    assert not decided(0, 16)
    assert not decided(4, 16, dtype=torch.float64)
    assert not decided(4, 16, device="meta")


@pytest.mark.parametrize("name", NAMES[1:])
def test_shapes_that_do_not_fit_are_left_to_torch(name):
    made = tensors(values(3, 2, 4, 5))
    for fits in (True, False):
        x, hidden, cell, *weights = made.values()
        assert is_small(x, (hidden, cell), weights) == fits
        made[name] = made[name][1:]


@pytest.mark.parametrize("name", NAMES)
def test_types_that_differ_are_left_to_torch(name):
    made = tensors(values(3, 2, 4, 5))
    made[name] = made[name].double()
    x, hidden, cell, *weights = made.values()
    assert not is_small(x, (hidden, cell), weights)


def test_without_the_extension_nothing_is_small(monkeypatch):
    monkeypatch.setattr(native, "core", None)
    monkeypatch.setattr("dpmodule.ops.nn.linear._native", None)
    assert not decided(4, 16)


@pytest.mark.parametrize("name", ["lstm", "lstm_forward", "lstm_backward"])
def test_wrong_arguments_are_refused(name):
    call = getattr(native.core, name)
    count = {"lstm": 16, "lstm_forward": 15, "lstm_backward": 14}[name]
    with pytest.raises(TypeError, match=f"expected {count} arguments, got 2"):
        call(1, 2)
    for position in itertools.chain(range(2), [count - 1]):
        given = [0] * count
        given[position] = "1"
        with pytest.raises(TypeError):
            call(*given)
