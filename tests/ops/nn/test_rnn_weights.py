"""The layout of a fused network's weights: order, sizes, and the way back from a size."""

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule.base import ShapeError
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
def test_blocks_fill_the_vector_and_its_size_tells_the_features(network):
    size = rnn_weights.vector_size(**network)
    for layout in (rnn_weights.blocks, rnn_weights.matrices):
        blocks = list(layout(**network))
        ends = [block.offset + int(np.prod(block.shape)) for block in blocks]
        assert [block.offset for block in blocks] == [0, *ends[:-1]]
        assert ends[-1] == size
        assert len({block.suffix for block in blocks}) == len(blocks)
    rest = {k: v for k, v in network.items() if k != "input_size"}
    assert rnn_weights.input_size(size, **rest) == network["input_size"]
    one, two = (rnn_weights.vector_size(**{**network, "input_size": n}) for n in (1, 2))
    if two - one > 1:
        with pytest.raises(ShapeError, match="for each input feature"):
            rnn_weights.input_size(size + 1, **rest)
    vector = np.zeros(size)
    for piece in rnn_weights.unpack(vector, **rest).values():  # views that cover everything once
        piece += 1
    assert (vector == 1).all()


def test_order_is_layer_direction_part_gate_with_all_weights_first():
    found = [block.suffix for block in rnn_weights.blocks("gru", 2, 5, 3, bidirectional=True)]
    wanted = product(("weight", "bias"), (0, 1), "lr", ("i2h", "h2h"), "rzo")
    assert found == [f"{way}{layer}_{part}_{gate}_{kind}" for kind, layer, way, part, gate in wanted]


def test_figures_seen_in_mxnet():
    # bidirectional LSTM of two layers, 5 features, 3 units: 504 numbers, biases from 408 on
    blocks = list(rnn_weights.blocks("lstm", 2, 5, 3, bidirectional=True))
    assert rnn_weights.vector_size("lstm", 2, 5, 3, bidirectional=True) == 504
    assert next(block.offset for block in blocks if block.suffix.endswith("bias")) == 408
    assert blocks[0] == ("l0_i2h_i_weight", (3, 5), 0)
