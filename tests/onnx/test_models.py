"""Whole networks go out: published ones, those of the benchmarks and of the examples."""

import re

import numpy as np
import pytest

from dpmodule.base import ArgumentError
from dpmodule.onnx.hints import fixed_gammas
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
from helpers.onnx_runs import again, exported, our_outputs, runtime_outputs
from helpers.walk import walks

EVERY = [*CHECKPOINTS, *SYMBOLS, *NETWORKS, *EXAMPLES]

FIXED_BATCH = {}
"""Networks that name the batch size in an attribute, such as the shape of a Reshape: none."""

FROM_LABELS = {"detection_ssd": r"loc_loss_output|blockgrad\d+_output"}
"""Outputs that are computed from labels, and are left out: patterns, since operators without names are counted."""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("again")


def batch_axis(name):
    """Return the axis of the rows: begin states of recurrent networks have their layers first."""
    return 1 if "begin_state" in name else 0


def check(name, opset, folder, **options):
    """Export a network with two rows, run it with two and with six, and let it come in again."""
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
        check_again(net, found, net.arrays | more, folder)
    return found


def check_again(net, found, arrays, folder):
    """Let a network come in, and run it: its parameters and outputs have their names, and all values are the same."""
    symbol, args, states = again(found, folder)
    names = [out.name for out in found.graph.output]
    assert symbol.list_outputs() == names
    assert set(states) == set(net.params).intersection(net.symbol.list_auxiliary_states())
    constant = {key for key in args if "/" in key}
    assert set(args) - constant == set(net.params).intersection(net.symbol.list_arguments())
    ones = fixed_gammas(net.symbol.graph)
    for key, value in {**args, **states}.items():
        if key not in constant:
            np.testing.assert_array_equal(
                value.asnumpy(), np.ones_like(arrays[key]) if key in ones else arrays[key]
            )
    ours = dict(zip(net.symbol.list_outputs(), our_outputs(net.symbol, arrays), strict=True))
    known = {key: value.asnumpy() for key, value in {**args, **states}.items()}
    theirs = our_outputs(symbol, {key: arrays[key] for key in net.inputs} | known)
    for key, value in zip(names, theirs, strict=True):
        scale = np.abs(ours[key]).max()
        np.testing.assert_allclose(value, ours[key], 1e-4, 1e-5 * scale, err_msg=key)


def compare(symbol, found, arrays):
    ours = dict(zip(symbol.list_outputs(), our_outputs(symbol, arrays), strict=True))
    for out, theirs in zip(found.graph.output, runtime_outputs(found, arrays), strict=True):
        scale = np.abs(ours[out.name]).max()
        np.testing.assert_allclose(theirs, ours[out.name], 1e-4, 1e-5 * scale, err_msg=out.name)


@walks([name for name in EVERY if name not in LARGE])
def test_small_networks(name, folder):
    check(name, 17, folder)


@pytest.mark.slow
@walks(
    [(n, o) for n in EVERY for o in (13, 17, 21) if o == 17 or "ilsvrc" not in n],
    family=lambda name, opset: name,
)
def test_every_network(name, opset, folder):
    check(name, opset, folder)


def test_operators_of_the_users_are_refused():
    net = by_path(ROOT / "examples" / "custom_operator.py", "example_custom_operator").network()
    net = with_parameters(net, {"data": np.zeros((2, 64), "float32")})
    with pytest.raises(
        ArgumentError, match="(?s)Custom 'swish'.* it runs user-defined Python code.*Custom 'softmax'"
    ):
        exported(net.symbol, net.arrays, net.params)


@pytest.mark.parametrize(("name", "left"), [("resnet20", 0), ("yeyupiaoli_model_model", 1)])
def test_batchnorm_is_folded(name, left):
    net = model(name)
    found = exported(net.symbol, net.arrays, net.params, 17, fold_batchnorm=True)
    compare(net.symbol, found, net.arrays)
    count = [node.op_type for node in found.graph.node].count("BatchNormalization")
    assert count == left
