"""The layout of a fused network's weights: order and sizes."""

from itertools import product

from dpmodule.ops.nn import rnn_weights


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
