"""Whole networks go out: published ones, those of the benchmarks and of the examples."""

import re

import numpy as np
import pytest

from dpmodule.base import ArgumentError
from helpers.models import (
    CHECKPOINTS,
    EXAMPLES,
    LARGE,
    NETWORKS,
    ROOT,
    SYMBOLS,
    by_path,
    model,
    with_parameters,
)
from helpers.onnx_runs import exported, our_outputs, runtime_outputs
from helpers.walk import walks

EVERY = [*CHECKPOINTS, *SYMBOLS, *NETWORKS, *EXAMPLES]

FIXED_BATCH = {}
"""Networks that name the batch size in an attribute, such as the shape of a Reshape: none."""

FROM_LABELS = {"detection_ssd": r"loc_loss_output|blockgrad\d+_output"}
"""Outputs that are computed from labels, and are left out: patterns, since operators without names are counted."""


def batch_axis(name):
    """Return the axis of the rows: begin states of recurrent networks have their layers first."""
    return 1 if "begin_state" in name else 0


def check(name, opset, **options):
    """Export a network with two rows, and run it with two and with six."""
    net = model(name)
    dynamic = {each: {batch_axis(each): "batch"} for each in net.inputs}
    fixed = name in FIXED_BATCH
    found = exported(net.symbol, net.arrays, net.params, opset, not fixed and dynamic, **options)
    names = [out.name for out in found.graph.output]
    left_out = FROM_LABELS.get(name, "")
    assert names == [each for each in net.symbol.list_outputs() if not re.fullmatch(left_out, each)]
    assert {each.name for each in found.graph.input} == set(net.inputs)
    compare(net.symbol, found, net.arrays)
    if not fixed:
        outside = [each for each in net.arrays if each not in net.params]
        more = {each: np.concatenate([net.arrays[each]] * 3, batch_axis(each)) for each in outside}
        compare(net.symbol, found, net.arrays | more)
    return found


def compare(symbol, found, arrays):
    ours = dict(zip(symbol.list_outputs(), our_outputs(symbol, arrays), strict=True))
    for out, theirs in zip(found.graph.output, runtime_outputs(found, arrays), strict=True):
        scale = np.abs(ours[out.name]).max()
        np.testing.assert_allclose(theirs, ours[out.name], 1e-4, 1e-5 * scale, err_msg=out.name)


@walks([name for name in EVERY if name not in LARGE])
def test_small_networks(name):
    check(name, 17)


@pytest.mark.slow
@walks(
    [(n, o) for n in EVERY for o in (13, 17, 21) if o == 17 or "ilsvrc" not in n],
    family=lambda name, opset: name,
)
def test_every_network(name, opset):
    check(name, opset)


def test_operators_of_the_users_are_refused():
    net = by_path(ROOT / "examples" / "custom_operator.py", "example_custom_operator").network()
    net = with_parameters(net, {"data": np.zeros((2, 64), "float32")})
    with pytest.raises(
        ArgumentError, match="(?s)Custom 'swish'.* it runs Python code of the user's.*Custom 'softmax'"
    ):
        exported(net.symbol, net.arrays, net.params)


@pytest.mark.parametrize(("name", "left"), [("resnet20", 0), ("yeyupiaoli_model_model", 1)])
def test_batchnorm_is_folded(name, left):
    found = check(name, 17, fold_batchnorm=True)
    count = [node.op_type for node in found.graph.node].count("BatchNormalization")
    assert count == left
