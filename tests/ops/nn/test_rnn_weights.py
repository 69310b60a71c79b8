"""The layout of a fused network's weights: order and sizes."""

from itertools import product

from dpmodule.ops.nn import rnn_weights


def test_order_is_layer_direction_part_gate_with_all_weights_first():
    found = [block.suffix for block in rnn_weights.blocks("gru", 2, 5, 3, bidirectional=True)]
    wanted = product(("weight", "bias"), (0, 1), "lr", ("i2h", "h2h"), "rzo")
    assert found == [f"{way}{layer}_{part}_{gate}_{kind}" for kind, layer, way, part, gate in wanted]
