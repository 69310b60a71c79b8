"""What an executor tells about its plan, its times and its memory; and that telling changes nothing."""

import time
from dataclasses import replace

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule._devices.generators import generator
from dpmodule.base import StateError
from dpmodule.executor import passes
from dpmodule.executor.explanation import MemoryUse
from dpmodule.executor.interpreter import call_step
from dpmodule.executor.lowering import lower
from dpmodule.executor.program import Program
from helpers.graphs import random_graph
from helpers.nets import lenet

S = mx.sym
X = S.Variable("data")
MB = 2**20


def net():
    x = S.Convolution(X, kernel=(3, 3), num_filter=4, name="conv")
    x = S.BatchNorm(x, fix_gamma=False, name="bn")
    x = S.Pooling(S.Activation(x, act_type="relu", name="act"), kernel=(2, 2), stride=(2, 2), pool_type="max")
    x = S.Dropout(S.FullyConnected(x, num_hidden=5, name="fc"), p=0.5, name="drop")
    return S.SoftmaxOutput(x, name="softmax")


def bound(symbol=None, inputs=("data", "softmax_label"), seed=0, shape=(6, 3, 10, 10), **more):
    symbol = net() if symbol is None else symbol
    wanted = {name: "null" if name in inputs else "write" for name in symbol.list_arguments()}
    made = symbol.simple_bind(mx.cpu(), grad_req=wanted, data=shape, **more)
    rng = np.random.RandomState(seed)
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
    assert [row.operator for row in found.steps] == [
        "Convolution", "BatchNorm", "Activation", "Pooling", "FullyConnected", "Dropout", "SoftmaxOutput",
    ]  # fmt: skip
    assert found.is_train
    assert rows["conv"].shapes == ((6, 4, 8, 8),)
    assert rows["conv"].nbytes == 6 * 4 * 8 * 8 * 4
    assert rows["conv"].dtype == "float32"
    assert rows["conv"].parameters == 4 * 3 * 9 + 4
    assert rows["conv"].flops == 2 * 6 * 4 * 64 * 27
    assert rows["conv"].backward_flops == rows["conv"].flops  # of the weight alone
    assert rows["fc"].backward_flops == 2 * rows["fc"].flops
    assert rows["bn"].parameters == 8
    assert rows["bn"].forward_s is rows["bn"].backward_s is None
    assert rows["act"].nodes == ("act",)
    assert found.parameters == sum(row.parameters for row in found.steps) == 112 + 8 + 5 * 64 + 5
    assert found.flops == sum(row.flops for row in found.steps)
    assert found.backward_flops == sum(row.backward_flops for row in found.steps)
    assert found.merged == ()


def test_the_text_holds_the_plan():
    executor = bound()
    text = str(executor.explain())
    assert repr(executor.explain()) == text
    assert text.count("def forward(values, env, shaped):") == 2
    for part in (
        "# predict: passes: ",
        "# training: passes: ",
        "channels_last",
        "(6, 4, 8, 8)",
        "float32",
        "parameters: 445\n",
        " forward, ",
        "memory of a run (estimated): ",
    ):
        assert part in text, part
    assert "as a whole" not in text
    assert "def forward" not in executor.explain().summary


def test_both_modes_can_be_asked_for():
    executor = bound()
    assert executor.explain(False).backward_flops == 0
    assert not executor.explain(False).is_train
    assert executor.explain(False).summary.startswith("predict: ")
    plain = net().simple_bind(mx.cpu(), grad_req="null", data=(6, 3, 10, 10)).explain()
    assert not plain.is_train
    assert plain.training.source != plain.predict.source


def test_passes_are_listed_by_what_they_did():
    def plan(**how):
        return bound(lenet(), shape=(2, 1, 20, 20), **how).explain().training

    on = plan()
    assert on.fired["channels_last"] > 0
    with passes.disabled("channels_last"):
        off = plan()
    assert off.off == ("channels_last",)
    assert "channels_last" not in {*off.fired, *off.idle}
    assert "off: channels_last" in off.passes
    assert {*on.fired, *on.idle} == {each.name for each in passes.PASSES if each.training}
    executor = bound(lenet(), shape=(2, 1, 20, 20))
    executor.set_monitor_callback(lambda name, array: None)
    assert set(executor.explain().training.off) == {p.name for p in passes.PASSES if p.hides and p.training}


def test_equal_operators_that_became_one_are_told():
    data = X + 1
    twice = S.tanh(data, name="first") * S.tanh(data, name="second")
    found = bound(twice, shape=(2, 3)).explain()
    assert found.steps[1].nodes == ("first", "second")
    assert found.flops == 4 * 6  # counted by the graph


def test_a_step_tells_all_nodes_whose_work_it_does(monkeypatch):
    executor = bound(lenet(), shape=(2, 1, 20, 20))
    low = lower(executor.graph, recorded=False)
    conv, relu, pool = low.steps[:3]
    low.steps[:3] = [replace(relu, inputs=conv.inputs, outputs=pool.outputs, covers=(conv.node, relu.node))]
    monkeypatch.setattr(executor, "program", lambda is_train: Program(low))
    found = executor.explain(False)
    assert found.steps[0].nodes == ("conv1", "relu1")
    assert found.steps[0].cells()[0] == "relu1 +1"
    assert found.steps[0].shapes == ((2, 4, 9, 9),)  # of what it makes
    assert found.steps[0].flops == 2 * 2 * 4 * 18 * 18 * 9 + 2 * 4 * 18 * 18
    assert found.merged == ("pool1",)
    assert found.summary.endswith("not run, or part of other steps: pool1")
    assert found.flops == sum(row.flops for row in found.steps) + 2 * 4 * 9 * 9 * 4


@pytest.mark.parametrize("start", range(0, 60, 20))
def test_every_node_is_in_one_row(start):
    for seed in range(start, start + 20):
        symbol, _, graph = random_graph(seed)
        shapes = {k: s for k, s in graph.shapes.items() if k in symbol.list_arguments()}
        executor = symbol.simple_bind(mx.cpu(), **shapes)
        for is_train in (False, True):
            found = executor.explain(is_train)
            named = [name for row in found.steps for name in row.nodes] + list(found.merged)
            operators = [node.name for node in symbol.graph.nodes if node.op is not None]
            assert sorted(named) == sorted(operators), seed
            for row in found.steps:
                assert len(row.shapes) >= 1


def test_shapes_are_those_of_the_run():
    executor = bound(lenet(), shape=(2, 1, 20, 20))
    with executor.trial_run(False) as run:
        known = dict(enumerate(run.values))
        for step in run.program.low.steps:
            known.update(zip(step.outputs, call_step(run.program, step, known, run.env, run.shaped)))
        made = [tuple(known[step.outputs[0]].shape) for step in run.program.low.steps]
    assert [row.shapes[0] for row in executor.explain(False).steps] == made


def test_parameters_are_those_that_operators_declare_or_that_are_named():
    weight = S.Variable("weight", shape=(4, 5))
    executor = S.FullyConnected(S.dot(X, weight), num_hidden=2, name="fc").simple_bind(mx.cpu(), data=(3, 4))
    assert executor.explain().parameters == 12
    found = executor.explain(parameters=["weight", "fc_weight"])
    assert found.parameters == 30
    assert [row.parameters for row in found.steps if row.parameters] == [20, 10]


# measuring


@pytest.mark.parametrize("when", ["before", "forward", "backward", "predict"])
def test_times_can_be_taken_at_any_moment_and_change_nothing(when):
    def run(explained):
        mx.random.seed(3)
        executor = bound()
        if when in ("forward", "backward"):
            executor.forward(is_train=True)
        if when == "backward":
            executor.backward()
        if when == "predict":
            executor.forward()
        before = everything(executor)
        if explained:
            found = executor.explain(times=True, repeats=2)
            assert all(row.forward_s > 0 for row in found.steps)
            assert any(row.backward_s > 0 for row in found.steps)
            assert found.forward_s > 0
            assert found.backward_s > 0
            assert " as a whole" in found.summary
            assert executor.explain(False, times=True, repeats=1).steps[0].backward_s is None
            assert same(before, everything(executor))
        executor.backward()
        executor.forward(is_train=True)
        predicted = executor.forward()[0].asnumpy()
        return [*everything(executor), predicted]

    assert same(run(False), run(True))


def test_the_slow_step_is_seen():
    class Slow(mx.operator.CustomOp):
        def forward(self, is_train, req, in_data, out_data, aux):
            time.sleep(0.01)
            self.assign(out_data[0], req[0], in_data[0] * 2)

        def backward(self, req, out_grad, in_data, out_data, in_grad, aux):
            time.sleep(0.02)
            self.assign(in_grad[0], req[0], out_grad[0] * 2)

    @mx.operator.register("slow_step")
    class SlowProp(mx.operator.CustomOpProp):
        def create_operator(self, ctx, shapes, dtypes):
            return Slow()

    x = S.Custom(S.FullyConnected(X, num_hidden=3), op_type="slow_step", name="slow")
    rows = bound(S.tanh(x), shape=(2, 4)).explain(times=True, repeats=1).steps
    (row,) = [row for row in rows if row.name == "slow"]
    assert row.forward_s > 0.01
    assert row.backward_s > 0.02


@pytest.mark.parametrize(
    ("net", "shapes"),
    [
        (S.broadcast_add(S.square(X), S.sum(X)), {"data": (3, 4)}),
        (S.Group([S.MakeLoss(S.mean(X * X)), S.BlockGrad(X * 2)]), {"data": (3, 4)}),
        (S.RNN(X, state_size=3, num_layers=2, mode="lstm", state_outputs=True, p=0.3), {"data": (5, 2, 4)}),
        (S.dot(S.Variable("data", stype="csr"), S.Variable("w", stype="row_sparse")), {"data": (3, 4), "w": (4, 2)}),
        (S.contrib.foreach(lambda x, s: (x * s, s + x), X, S.Variable("s", shape=(4,)))[0], {"data": (3, 4)}),
    ],
    ids=["heads without loss", "blocked", "rnn", "sparse", "loop"],
)  # fmt: skip
def test_every_kind_of_graph_can_be_timed(net, shapes):
    executor = net.simple_bind(mx.cpu(), **shapes)
    for is_train in (True, False):
        found = executor.explain(is_train, times=True, repeats=1)
        assert len(found.steps) == len(executor.program(is_train).low.steps)
        assert str(found)


@pytest.mark.parametrize("start", range(0, 30, 10))
def test_random_graphs_can_be_measured_without_a_trace(start):
    for seed in range(start, start + 10):
        symbol, _, graph = random_graph(seed)
        given = {k: v for k, v in graph.arrays().items() if k in symbol.list_arguments()}
        executor = symbol.simple_bind(mx.cpu(), **{k: v.shape for k, v in given.items()})
        executor.forward(is_train=True, **given)
        before = everything(executor)
        assert all(row.forward_s > 0 for row in executor.explain(times=True, repeats=1).steps)
        assert executor.explain(False, times=True, repeats=1).forward_s > 0
        assert same(before, everything(executor)), seed


def test_several_contexts_can_be_timed():
    with mx.AttrScope(ctx_group="one"):
        x = S.FullyConnected(X, num_hidden=3)
    with mx.AttrScope(ctx_group="two"):
        x = S.tanh(x)
    places = {"one": mx.cpu(0), "two": mx.cpu(1)}
    executor = x.simple_bind(mx.cpu(), group2ctx=places, data=(2, 4))
    found = executor.explain(times=True, repeats=1)
    assert found.forward_s > 0
    assert set(found.training.off) == {p.name for p in passes.PASSES if p.training and not p.moved}


def chain(function, length):
    x = X
    for _ in range(length):
        x = function(x)
    return x


def test_memory_of_known_networks():
    size, shape = MB, (256, 1024)
    root = bound(chain(S.sqrt, 6), shape=shape)
    for measured in (False, True):  # one value is read while the next is made
        found = root.memory(False, measure=measured)
        assert found.measured is measured
        assert found.forward == pytest.approx(2 * size, abs=1000)
        assert found.backward == 0
        assert found.peak == found.arguments + found.outputs + found.forward
    assert (root.memory().arguments, root.memory().gradients, root.memory().outputs) == (size, 0, size)
    square = bound(chain(S.square, 6), (), shape=shape)  # every input is kept, the last result is the output
    for measured in (False, True):
        found = square.memory(measure=measured)
        assert found.forward == pytest.approx(6 * size, abs=1000)
        assert found.backward == pytest.approx(
            9 * size, abs=size
        )  # with the head's gradient, and another two
        assert found.peak == found.arguments + found.gradients + max(
            found.outputs + found.forward, found.backward
        )
    plus = bound(chain(lambda x: x + 1, 6), (), shape=shape)  # nothing is kept
    for measured in (False, True):
        assert plus.memory(measure=measured).forward == pytest.approx(2 * size, abs=1000)


@pytest.mark.parametrize("is_train", [True, False])
@pytest.mark.parametrize(
    "name",
    [
        "lenet",
        "bn",
        pytest.param(
            "rnn",
            marks=pytest.mark.skipif(torch.__version__ < "2.7", reason="more memory inside torch's LSTM"),
        ),
    ],
)
def test_estimates_come_near_what_is_measured(name, is_train):
    nets = {
        "lenet": (lenet(), (32, 1, 28, 28)),
        "bn": (net(), (32, 3, 40, 40)),
        "rnn": (S.RNN(X, state_size=32, num_layers=2, mode="lstm"), (20, 16, 32)),
    }
    executor = bound(nets[name][0], shape=nets[name][1])
    estimated, measured = executor.memory(is_train), executor.memory(is_train, measure=True)
    assert estimated.peak == pytest.approx(measured.peak, rel=0.35)
    assert estimated.forward == pytest.approx(measured.forward, rel=0.6)
    assert replace(measured, forward=0, backward=0) == replace(
        estimated, forward=0, backward=0, measured=True
    )


def test_what_holds_most_is_told():
    def held(found):
        assert sum(each.nbytes for each in found.holders) == found.peak  # where none is left out
        return {(each.what, each.name): each.nbytes for each in found.holders}

    shape, size = (512, 1024), 2 * MB
    symbol = S.square(S.tanh(X + 1, name="tanh"), name="square")
    executor = symbol.simple_bind(mx.cpu(), data=shape)
    first = ("argument", "data"), ("gradient array", "data")
    made = ("value", "tanh"), ("value", "square"), ("gradient", "square"), ("gradient", "tanh")
    assert held(executor.memory()) == dict.fromkeys((*first, *made), size)
    for _ in range(2):
        executor.forward(is_train=True)
        executor.backward(mx.nd.ones(shape))
    found = executor.memory()  # the gradient's array gives up its memory first, so that forward takes more
    assert found.freed == size
    assert {"output", "value"} < {each.what for each in found.holders}
    held(found)
    assert str(found).splitlines()[2:4] == ["largest at the peak (estimated):", "  2 MiB  argument data"]

    sizes = [each.nbytes for each in bound().memory().holders]
    assert len(sizes) == 8
    assert sizes == sorted(sizes, reverse=True)


def test_holders_have_the_names_of_arrays_and_nodes():
    x = S.Convolution(X, kernel=(3, 3), num_filter=4, name="conv")
    x = S.Pooling(S.Activation(x, act_type="tanh"), kernel=(2, 2), pool_type="max", name="pool")
    executor = bound(S.FullyConnected(x, num_hidden=500, name="fc"), ("data",), shape=(2, 3, 10, 10))
    assert {each[:2] for each in executor.memory().holders} >= {
        ("argument", "fc_weight"), ("gradient array", "fc_weight"), ("new gradient", "fc_weight"), ("kept", "pool"),
    }  # fmt: skip
    copied = bound(S.Convolution(X, kernel=(3, 3), num_filter=4, name="conv"), ("data",)).memory()
    assert ("copy", "data", 6 * 3 * 10 * 10 * 4) in copied.holders


def test_measuring_memory_changes_nothing():
    mx.random.seed(5)
    executor = bound()
    executor.forward(is_train=True)
    before = everything(executor)
    executor.memory(measure=True)
    assert same(before, everything(executor))
    assert executor.peak_bytes == executor.memory().peak
    assert "memory of a run (measured): " in executor.explain(measure_memory=True).summary


@pytest.mark.gpu
def test_memory_of_known_networks_on_a_gpu():
    symbol = chain(S.square, 6)
    executor = symbol.simple_bind(mx.gpu(), data=(256, 1024))
    executor.forward(is_train=True, data=np.ones((256, 1024)))
    executor.backward(mx.nd.ones((256, 1024), mx.gpu()))
    found = executor.memory(measure=True)
    assert found.forward == pytest.approx(6 * MB, abs=1000)
    assert found.backward == pytest.approx(9 * MB, abs=MB)
    timed = executor.explain(times=True)
    assert all(row.forward_s > 0 for row in timed.steps)


def test_memory_is_not_measured_under_a_profiler():
    executor = bound(S.tanh(X), shape=(2, 3))
    with (
        torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]),
        pytest.raises(StateError, match="while no profiler runs"),
    ):
        executor.memory(measure=True)


def test_memory_of_sparse_arrays_is_that_of_what_they_store():
    weight = S.Variable("weight", stype="row_sparse", shape=(1000, 8))
    executor = S.sparse.dot(S.Variable("data", stype="csr"), weight).simple_bind(mx.cpu(), data=(3, 1000))
    executor.arg_dict["weight"][:] = mx.nd.sparse.row_sparse_array((np.ones((2, 8)), [3, 5]), shape=(1000, 8))
    assert 2 * 8 * 4 < executor.memory().arguments < 1000


def test_numbers_have_three_digits_and_a_unit():
    memory = MemoryUse(999, 1024, 1536, 10 * MB, 1023 * MB, 5 * 2**30)
    assert str(memory) == (
        "memory of arrays: arguments 999 B, gradients 1 KiB, states 1.5 KiB, outputs 10 MiB\n"
        "memory of a run (estimated): 1023 MiB in forward, 5 GiB in backward; at most 5 GiB in all"
    )


# through modules


def test_modules_explain_their_executor():
    module = mx.mod.Module(net())
    with pytest.raises(StateError, match="explain"):
        module.explain()
    module.bind([("data", (6, 3, 10, 10))], [("softmax_label", (6,))])
    found = module.explain()
    assert found.is_train
    assert found.parameters == 445
    module.init_params()
    module.forward(mx.io.DataBatch([mx.nd.ones((6, 3, 10, 10))], [mx.nd.zeros(6)]))
    before = module.get_outputs()[0].asnumpy()
    assert module.explain(times=True).forward_s > 0
    assert module.explain(False, measure_memory=True).memory.measured
    assert np.array_equal(before, module.get_outputs()[0].asnumpy())
    module.backward()


def test_a_bucketing_module_explains_the_current_bucket():
    def make(length):
        x = S.Embedding(X, input_dim=9, output_dim=4, name="embed")
        x = S.FullyConnected(S.sum(x, axis=1), num_hidden=3, name="fc")
        return S.SoftmaxOutput(x, name="softmax"), ("data",), ("softmax_label",)

    module = mx.mod.BucketingModule(make, default_bucket_key=8)
    module.bind([("data", (2, 8))], [("softmax_label", (2,))])
    module.init_params()
    assert module.explain().parameters == 9 * 4 + 15
    shapes = [("data", (2, 5))], [("softmax_label", (2,))]
    module.switch_bucket(5, *shapes)
    rows = {row.operator: row for row in module.explain().steps}
    assert rows["Embedding"].shapes == ((2, 5, 4),)
