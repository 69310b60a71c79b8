"""The layout of a fused network's weights: order, sizes, and the way back from a size."""

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule.base import OpError, ShapeError
from dpmodule.ops.nn import rnn_weights

NETWORKS = st.fixed_dictionaries(
    {
        "mode": st.sampled_from(rnn_weights.MODES),
        "num_layers": st.integers(1, 4),
        "input_size": st.integers(1, 9),
        "state_size": st.integers(1, 7),
        "bidirectional": st.booleans(),
        "projection": st.none() | st.integers(1, 5),
    }
)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(NETWORKS)
def test_blocks_fill_the_vector_without_gap(network):
    for layout in (rnn_weights.blocks, rnn_weights.matrices):
        blocks = list(layout(**network))
        ends = [block.offset + int(np.prod(block.shape)) for block in blocks]
        assert [block.offset for block in blocks] == [0, *ends[:-1]]
        assert ends[-1] == rnn_weights.vector_size(**network)
        assert len({block.suffix for block in blocks}) == len(blocks)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(NETWORKS)
def test_size_tells_the_input_features_and_nothing_else_does(network):
    size = rnn_weights.vector_size(**network)
    features = network["input_size"]
    rest = {k: v for k, v in network.items() if k != "input_size"}
    assert rnn_weights.input_size(size, **rest) == features
    if (
        rnn_weights.vector_size(**{**network, "input_size": 2})
        - rnn_weights.vector_size(**{**network, "input_size": 1})
        > 1
    ):
        with pytest.raises(ShapeError, match="for each input feature"):
            rnn_weights.input_size(size + 1, **rest)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(NETWORKS)
def test_unpacked_blocks_are_views_that_cover_everything_once(network):
    vector = np.zeros(rnn_weights.vector_size(**network))
    rest = {k: v for k, v in network.items() if k != "input_size"}
    for piece in rnn_weights.unpack(vector, **rest).values():
        piece += 1
    assert (vector == 1).all()


def test_order_is_layer_direction_part_gate_with_all_weights_first():
    found = [block.suffix for block in rnn_weights.blocks("gru", 2, 5, 3, bidirectional=True)]
    want = [
        f"{direction}{layer}_{part}_{gate}_{kind}"
        for kind, layer, direction, part, gate in itertools.product(
            ("weight", "bias"), (0, 1), "lr", ("i2h", "h2h"), "rzo"
        )
    ]
    assert found == want


def test_figures_seen_in_mxnet():
    # bidirectional LSTM of two layers, 5 features, 3 units: 504 numbers, biases from 408 on
    blocks = list(rnn_weights.blocks("lstm", 2, 5, 3, bidirectional=True))
    assert rnn_weights.vector_size("lstm", 2, 5, 3, bidirectional=True) == 504
    assert next(block.offset for block in blocks if block.suffix.endswith("bias")) == 408
    assert blocks[0] == ("l0_i2h_i_weight", (3, 5), 0)


def test_matrices_hold_the_gates_of_a_weight_one_after_the_other():
    vector = np.arange(rnn_weights.vector_size("lstm", 1, 2, 3))
    gates = rnn_weights.unpack(vector, "lstm", 1, 3)
    for block in rnn_weights.matrices("lstm", 1, 2, 3):
        name, _, kind = block.suffix.rpartition("_")
        want = np.concatenate([gates[f"{name}{gate}_{kind}"] for gate in rnn_weights.gates("lstm")])
        np.testing.assert_array_equal(block.of(vector), want)


def test_unknown_mode():
    with pytest.raises(OpError, match=r"mode is 'elman', expected one of rnn_relu, rnn_tanh, lstm, gru"):
        list(rnn_weights.blocks("elman", 1, 2, 3))
