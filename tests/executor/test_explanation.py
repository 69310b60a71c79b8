"""What an executor tells about its plan, its times and its memory; and that telling changes nothing."""

from functools import reduce

import numpy as np
import pytest

import dpmodule as mx
from dpmodule._devices.generators import generator
from dpmodule.executor import passes
from dpmodule.executor.explanation import MemoryUse
from helpers.random_graphs import random_graph

S = mx.sym
X = S.Variable("data")
MB = 2**20


def net():
    x = S.Convolution(X, kernel=(3, 3), num_filter=4, name="conv")
    x = S.BatchNorm(x, fix_gamma=False, name="bn")
    x = S.Pooling(S.Activation(x, act_type="relu", name="act"), kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = S.Dropout(S.FullyConnected(x, num_hidden=5, name="fc"), p=0.5, name="drop")
    return S.SoftmaxOutput(x, name="softmax")


def bound(symbol=None, inputs=("data", "softmax_label"), shape=(6, 3, 10, 10)):
    symbol = net() if symbol is None else symbol
    wanted = {name: "null" if name in inputs else "write" for name in symbol.list_arguments()}
    made, rng = symbol.simple_bind(mx.cpu(), grad_req=wanted, data=shape), np.random.RandomState(0)
    for name, array in (made.arg_dict | made.aux_dict).items():
        if name != "softmax_label":
            array[:] = rng.uniform(0.1, 1, array.shape)
    return made


def everything(executor):
    """All that a user can see of an executor."""
    arrays = [*executor.arg_arrays, *executor.grad_arrays, *executor.aux_arrays, *executor.outputs]
    return [a.asnumpy().copy() for a in arrays if a is not None] + [generator(mx.cpu()).get_state().numpy()]


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_rows_say_what_each_step_makes_and_costs():
    with passes.disabled(*(each.name for each in passes.PASSES)):
        found = bound().explain()
    rows = {row.name: row for row in found.steps}
    operators = ["Convolution", "BatchNorm", "Activation", "Pooling", "FullyConnected", "Dropout"]
    assert [row.operator for row in found.steps] == [*operators, "SoftmaxOutput"]
    conv, fc = rows["conv"], rows["fc"]
    assert (conv.shapes, conv.nbytes, conv.dtype) == (((6, 4, 8, 8),), 6 * 4 * 8 * 8 * 4, "float32")
    assert (conv.parameters, conv.flops) == (4 * 3 * 9 + 4, 2 * 6 * 4 * 64 * 27)
    assert conv.backward_flops == conv.flops  # of the weight alone
    assert fc.backward_flops == 2 * fc.flops
    assert rows["bn"].parameters == 8
    assert found.parameters == sum(row.parameters for row in found.steps) == 112 + 8 + 5 * 64 + 5


def test_the_text_has_the_facts_of_both_modes():
    executor = bound()
    found = executor.explain()
    facts = ["# predict: passes: ", "# training: passes: ", "(6, 4, 8, 8)", "float32", "parameters: 445\n"]
    assert [each for each in (*facts, "memory of a run (estimated): ") if each not in repr(found)] == []
    assert executor.explain(False).backward_flops == 0
    assert not net().simple_bind(mx.cpu(), grad_req="null", data=(6, 3, 10, 10)).explain().is_train


def test_a_step_tells_all_nodes_whose_work_it_does():
    first, *_, last = bound().explain(False).steps
    assert (first.nodes, first.cells()[0]) == (("conv", "bn", "act"), "conv +2")
    assert (first.shapes, first.flops) == (((6, 4, 8, 8),), 2 * 6 * 4 * 64 * 27 + 2 * 6 * 4 * 64)
    assert last.nodes == ("softmax",)
    chain = mx.rnn.GRUCell(4, prefix="c_").unroll(5, X, merge_outputs=True)[0]
    assert "not run, or part of other steps: " in bound(chain, ("data",), (2, 5, 3)).explain().summary


def test_random_graphs():
    """Every node is in one row."""
    for seed in range(30):
        symbol, inputs, weights = random_graph(seed)
        shapes = {name: (3, *shape) for name, shape in inputs.items()}
        executor = symbol.simple_bind(mx.cpu(), **shapes, **weights)
        operators = sorted(node.name for node in symbol.graph.nodes if node.op is not None)
        for is_train in (False, True):
            found = executor.explain(is_train)
            named = [name for row in found.steps for name in row.nodes] + list(found.merged)
            assert sorted(named) == operators, seed
            assert all(name in found.summary for name in found.merged)


def test_numbers_have_three_digits_and_a_unit():
    memory = MemoryUse(999, 1024, 1536, 10 * MB, 1023 * MB, 5 * 2**30)
    said = "arguments 999 B, gradients 1 KiB, states 1.5 KiB, outputs 10 MiB\nmemory of a run (estimated): "
    assert said + "1023 MiB in forward, 5 GiB in backward; at most 5 GiB in all" in str(memory)


# times


@pytest.mark.parametrize("when", ["before", "forward", "backward", "predict"])
def test_measuring_at_any_moment_changes_nothing(when):
    def run(explained):
        mx.random.seed(3)
        executor = bound()
        if when != "before":
            executor.forward(is_train=when != "predict")
        if when == "backward":
            executor.backward()
        if explained:
            before = everything(executor)
            found = executor.explain(times=True, repeats=2)
            assert all(row.forward_s > 0 for row in found.steps)
            assert min(found.forward_s, found.backward_s) > 0
            assert executor.explain(False, times=True, repeats=1).steps[0].backward_s is None
            assert executor.explain(measure_memory=True).memory.measured
            assert executor.peak_bytes == executor.memory().peak
            assert same(before, everything(executor))
        executor.backward()
        executor.forward(is_train=True)
        predicted = executor.forward()[0].asnumpy()
        return [*everything(executor), predicted]

    assert same(run(False), run(True))


@pytest.mark.parametrize("is_train", [True, False])
def test_loops_and_recurrent_layers_can_be_timed(is_train):
    loop = S.contrib.foreach(lambda x, s: (x * s, s + x), X, S.Variable("s", shape=(2, 4)))[0]
    net = S.RNN(loop, state_size=3, num_layers=2, mode="lstm", state_outputs=True, p=0.3)
    executor = net.simple_bind(mx.cpu(), data=(5, 2, 4))
    found = executor.explain(is_train, times=True, repeats=1)
    assert len(found.steps) == len(executor.program(is_train).low.steps)


# memory


def chain(function, inputs=()):
    return bound(reduce(lambda x, _: function(x), range(6), X), inputs, (256, 1024))


@pytest.mark.parametrize("measured", [False, True])
def test_memory_of_known_networks(measured):
    # one value is read while the next is made
    found = chain(S.sqrt, ("data",)).memory(False, measure=measured)
    assert (found.measured, found.backward) == (measured, 0)
    assert (found.arguments, found.gradients, found.outputs) == (MB, 0, MB)
    assert found.forward == pytest.approx(2 * MB, abs=1000)
    found = chain(S.square).memory(measure=measured)  # every input is kept, the last result is the output
    assert found.forward == pytest.approx(6 * MB, abs=1000)
    assert found.backward == pytest.approx(9 * MB, abs=MB)  # with the head's gradient, and another two
    most = max(found.outputs + found.forward, found.backward)
    assert found.peak == found.arguments + found.gradients + most
    found = chain(lambda x: x + 1).memory(measure=measured)  # nothing is kept
    assert found.forward == pytest.approx(2 * MB, abs=1000)


@pytest.mark.parametrize("is_train", [True, False])
def test_estimates_come_near_what_is_measured(is_train):
    with passes.disabled("fused_convolutions"):
        executor = bound(shape=(32, 3, 40, 40))
        estimated, measured = executor.memory(is_train), executor.memory(is_train, measure=True)
    assert estimated.peak == pytest.approx(measured.peak, rel=0.35)
    assert estimated.forward == pytest.approx(measured.forward, rel=0.6)


def test_layers_in_one_call_take_no_more_than_is_estimated():
    executor = bound(shape=(32, 3, 40, 40))
    estimated, measured = executor.memory(False), executor.memory(False, measure=True)
    assert measured.peak <= 1.35 * estimated.peak


def held(found):
    assert sum(each.nbytes for each in found.holders) == found.peak  # where none is left out
    return {(each.what, each.name): each.nbytes for each in found.holders}


def test_what_holds_most_is_told():
    symbol = S.square(S.tanh(X + 1, name="tanh"), name="square")
    executor = symbol.simple_bind(mx.cpu(), data=(512, 1024))
    first = ("argument", "data"), ("gradient array", "data")
    made = ("value", "tanh"), ("value", "square"), ("gradient", "square"), ("gradient", "tanh")
    assert held(executor.memory()) == dict.fromkeys((*first, *made), 2 * MB)
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward(mx.nd.ones((512, 1024)))
    found = executor.memory()  # the gradient's array gives up its memory first, so that forward takes more
    assert found.freed == 2 * MB
    assert {"output", "value"} < {what for what, _ in held(found)}
    sizes = [each.nbytes for each in bound().memory().holders]
    assert len(sizes) == 8
    assert sizes == sorted(sizes, reverse=True)
