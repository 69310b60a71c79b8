"""Whole networks go out: published ones, those of the benchmarks and of the test of equivalence."""

import numpy as np
import pytest

from dpmodule.onnx.hints import fixed_gammas
from helpers.models import CHECKPOINTS, LARGE, NETWORKS, SYMBOLS, model
from helpers.nets import NETS
from helpers.onnx_runs import again, exported, our_outputs, runtime_outputs
from helpers.walk import walks

EVERY = [*CHECKPOINTS, *SYMBOLS, *NETWORKS]


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("again")


def check(name, opset, folder):
    """Export a network with two rows, run it with two and with six, and let it come in again."""
    net = model(name)
    axes = {each: int("begin_state" in each) for each in net.arrays}  # layers come first in begin states
    dynamic = {each: {axes[each]: "batch"} for each in net.inputs}
    found = exported(net.symbol, net.arrays, net.params, opset, dynamic)
    assert [out.name for out in found.graph.output] == net.symbol.list_outputs()
    assert {each.name for each in found.graph.input} == set(net.inputs)
    compare(net.symbol, found, net.arrays)
    outside = [each for each in net.arrays if each not in net.params]
    more = {each: np.concatenate([net.arrays[each]] * 3, axes[each]) for each in outside}
    compare(net.symbol, found, net.arrays | more)
    check_again(net, found, net.arrays | more, folder)


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
            wanted = np.ones_like(arrays[key]) if key in ones else arrays[key]
            np.testing.assert_array_equal(value.asnumpy(), wanted)
    ours = dict(zip(net.symbol.list_outputs(), our_outputs(net.symbol, arrays), strict=True))
    known = {key: value.asnumpy() for key, value in {**args, **states}.items()}
    theirs = our_outputs(symbol, {key: arrays[key] for key in net.inputs} | known)
    for key, value in zip(names, theirs, strict=True):
        np.testing.assert_allclose(value, ours[key], 1e-4, 1e-5 * np.abs(ours[key]).max(), err_msg=key)


def compare(symbol, found, arrays):
    ours = dict(zip(symbol.list_outputs(), our_outputs(symbol, arrays), strict=True))
    for out, theirs in zip(found.graph.output, runtime_outputs(found, arrays), strict=True):
        scale = np.abs(ours[out.name]).max()
        np.testing.assert_allclose(theirs, ours[out.name], 1e-4, 1e-5 * scale, err_msg=out.name)


@walks([name for name in EVERY if name not in LARGE])
def test_small_networks(name, folder):
    check(name, 17, folder)


@pytest.mark.slow
@pytest.mark.parametrize("opset", [13, 17, 21])
@walks(EVERY, family=str)
def test_every_network(name, folder, opset):
    if opset == 17 or "ilsvrc" not in name:
        check(name, opset, folder)


@walks([name for name, net in NETS.items() if not (net.random or net.ragged)])
def test_networks_of_the_test_of_equivalence(name):
    net = NETS[name]
    symbol = net.symbol()
    arrays = net.arrays(symbol)
    inputs = [each for each in net.shapes if each in arrays and not each.endswith("label")]
    params = [each for each in arrays if each not in net.shapes and not each.endswith("label")]
    found = exported(symbol, arrays, params, dynamic={each: {0: "batch"} for each in inputs if net.rows})
    compare(symbol, found, arrays)
    if net.rows:
        more = {each: np.concatenate([arrays[each]] * 3) for each in arrays if each not in params}
        compare(symbol, found, arrays | more)


@pytest.mark.parametrize(("name", "left"), [("resnet20", 0), ("yeyupiaoli_model_model", 1)])
def test_batchnorm_is_folded(name, left):
    net = model(name)
    found = exported(net.symbol, net.arrays, net.params, 17, fold_batchnorm=True)
    compare(net.symbol, found, net.arrays)
    assert [node.op_type for node in found.graph.node].count("BatchNormalization") == left
