"""Recurrent networks on packed weights: the same bits as in every other way, whatever changes between predictions."""

import itertools

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import executor
from dpmodule.ops.nn.rnn_weights import MODES
from helpers.switched import fired

S = mx.sym
STEPS, ROWS, FEATURES, UNITS = 5, 3, 7, 18


def network(mode="lstm", layers=1, bidirectional=False, states=False, layout="TNC"):
    cell = mx.rnn.FusedRNNCell(
        UNITS, layers, mode, bidirectional, get_next_state=True, prefix="cell_", dropout=0.5
    )
    begin = None
    if states:
        count = layers * (1 + bidirectional)
        shape, names = (count, ROWS, UNITS), ("h", "c")[: 1 + (mode == "lstm")]
        begin = [S.Variable(name, shape=shape) for name in names]
    out, last = cell.unroll(STEPS, S.Variable("data"), begin, layout, merge_outputs=True)
    return S.Group([out, *last])


def bound(net, layout="TNC", rows=ROWS):
    shape = (STEPS, rows, FEATURES) if layout == "TNC" else (rows, STEPS, FEATURES)
    one, draw = net.simple_bind(mx.cpu(), "null", data=shape), np.random.RandomState(0)
    for name, array in one.arg_dict.items():
        if name != "data":
            array[:] = draw.uniform(-0.5, 0.5, array.shape)
    return one


def predict(one, seed=1):
    data = np.random.RandomState(seed).randn(*one.arg_dict["data"].shape)
    return [each.asnumpy().copy() for each in one.forward(is_train=False, data=mx.nd.array(data))]


def assert_equal(found, wanted):
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_array_equal(one, other)


CASES = list(itertools.product(MODES, (1, 3), (False, True), (False, True), ("TNC", "NTC")))


@pytest.mark.parametrize(("mode", "layers", "bidirectional", "states", "layout"), CASES)
def test_the_bits_are_those_without_packs(mode, layers, bidirectional, states, layout):
    net = network(mode, layers, bidirectional, states, layout)
    with executor.disabled("recurrent_layers"):
        wanted = predict(bound(net, layout))
    one = bound(net, layout)
    for _ in range(4):  # without a pack, with a new one, with a kept one
        assert_equal(predict(one), wanted)
    counts = one.program(False).low.fired
    assert counts["recurrent_layers"] == 1


def test_zeros_are_not_computed():
    names = []
    for off in (["recurrent_layers"], []):
        with executor.disabled(*off):
            names.append([step.name for step in bound(network()).explain(is_train=False).steps])
    assert [len(set(each)) for each in names] == [3, 1], names


def test_changed_weights_are_read():
    one = bound(network("gru", 2))
    before = [predict(one) for _ in range(3)][-1]
    one.arg_dict["cell_parameters"][:] = 0.1
    with executor.disabled("recurrent_layers"):
        other = bound(network("gru", 2))
        other.arg_dict["cell_parameters"][:] = 0.1
        wanted = predict(other)
    for _ in range(3):
        found = predict(one)
        assert_equal(found, wanted)
    assert np.abs(found[0] - before[0]).max() > 0.01


def test_networks_of_one_vector_share_their_packs_and_differ_by_rows():
    one = bound(network())
    two = one.reshape(data=(STEPS, 1, FEATURES), partial_shaping=True, allow_up_sizing=True)
    whole = [predict(one) for _ in range(3)][-1]
    data = np.random.RandomState(1).randn(STEPS, ROWS, FEATURES)
    for row in range(ROWS):
        out = two.forward(is_train=False, data=mx.nd.array(data[:, row : row + 1]))[0].asnumpy()
        np.testing.assert_allclose(out[:, 0], whole[0][:, row], 1e-5, 1e-6)


def test_networks_of_other_sizes_may_read_one_vector():
    draw = np.random.RandomState(0)
    vector = mx.nd.array(draw.uniform(-0.5, 0.5, 120))
    found = []
    for repeated in (True, False):
        for mode, features, units in (("lstm", 5, 3), ("gru", 4, 4)):
            states = {"state": S.zeros((1, ROWS, units)), "state_cell": S.zeros((1, ROWS, units))}
            states = states if mode == "lstm" else {"state": states["state"]}
            net = S.RNN(S.Variable("x"), S.Variable("p"), **states, mode=mode, state_size=units, num_layers=1)
            data = mx.nd.array(np.random.RandomState(1).randn(STEPS, ROWS, features))
            again = net.bind(
                mx.cpu(), {"x": data, "p": vector if repeated else vector.copy()}, grad_req="null"
            )
            found.append([again.forward()[0].asnumpy() for _ in range(3)][-1])
    for shared, alone in zip(found[:2], found[2:], strict=True):
        assert np.array_equal(shared, alone)


@pytest.mark.parametrize("dtype", ["float64", "float16"])
def test_other_types_run_as_before(dtype):
    net = network()
    one = net.simple_bind(mx.cpu(), "null", data=(STEPS, ROWS, FEATURES), type_dict={"data": dtype})
    one.arg_dict["cell_parameters"][:] = 0.1
    one.arg_dict["data"][:] = 0.2
    exact = bound(net)
    exact.arg_dict["cell_parameters"][:] = 0.1
    exact.arg_dict["data"][:] = 0.2
    pairs = zip(one.forward(is_train=False), exact.forward(is_train=False), strict=True)
    for found, wanted in pairs:
        assert found.dtype == np.dtype(dtype)
        np.testing.assert_allclose(found.asnumpy(), wanted.asnumpy(), 1e-2 if dtype == "float16" else 1e-5)


def test_networks_that_it_leaves_alone():
    data, vector = S.Variable("data"), S.Variable("p")
    states = {"state": S.zeros((1, ROWS, UNITS)), "state_cell": S.zeros((1, ROWS, UNITS))}
    sizes = {"mode": "lstm", "state_size": UNITS, "num_layers": 1}
    shape = {"data": (STEPS, ROWS, FEATURES)}
    plain = S.RNN(data, vector, **states, **sizes)
    assert fired(plain, shape, is_train=False)["recurrent_layers"] == 1
    computed = S.RNN(data, vector * 2, **states, **sizes)
    clipped = S.RNN(data, vector, **states, **sizes, lstm_state_clip_min=-1, lstm_state_clip_max=1)
    lengths = S.RNN(
        data, vector, **states, sequence_length=S.Variable("n"), use_sequence_length=True, **sizes
    )
    for net in (computed, clipped, lengths):
        assert "recurrent_layers" not in fired(net, shape, is_train=False)
