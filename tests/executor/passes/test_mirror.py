import gc
import weakref

import numpy as np
import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError
from dpmodule.executor.passes.mirror import marked
from helpers.random_nets import random_net
from helpers.switched import assert_same, fired, results

S = mx.sym
NAME = "mirror"
SHAPE = {"data": (8, 3, 6, 6)}


@pytest.fixture
def cheap(monkeypatch):
    """MXNet's environment variable asks for recomputation."""
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")


def unit(x, name, dropout):
    y = S.BatchNorm(
        S.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=3, name=f"{name}_c"), name=f"{name}_b"
    )
    y = S.Activation(y, act_type="relu")
    y = S.Dropout(y, p=0.3) if dropout else S.tanh(y)
    return S.Activation(x + y, act_type="relu")


def residual(units=3, dropout=True):
    x = S.Variable("data")
    for i in range(units):
        x = unit(x, f"u{i}", dropout)
    x = S.FullyConnected(S.Flatten(x), num_hidden=3, name="fc")
    return S.SoftmaxOutput(x, name="softmax")


def deep(layers=12, width=64):
    x = S.Variable("data")
    for i in range(layers):
        x = S.Activation(S.FullyConnected(x, num_hidden=width, name=f"fc{i}"), act_type="tanh")
    return S.SoftmaxOutput(x, name="softmax")


def run_module(net, mirror, steps=3, shape=(8, 3, 6, 6), monitor=None):
    """Train a few steps; return outputs, parameters and states, and the module."""
    rng = np.random.RandomState(0)
    module = mx.mod.Module(net, mirror=mirror)
    module.bind([("data", shape)], [("softmax_label", (shape[0],))])
    np.random.seed(0)
    mx.random.seed(7)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    if monitor is not None:
        module.install_monitor(monitor)
    found = {}
    for step in range(steps):
        data, label = mx.nd.array(rng.rand(*shape)), mx.nd.array(rng.randint(0, 3, shape[0]))
        module.forward_backward(mx.io.DataBatch([data], [label]))
        module.update()
        found[f"output {step}"] = module.get_outputs()[0].asnumpy()
    arguments, states = module.get_params()
    found.update({k: v.asnumpy() for k, v in {**arguments, **states}.items()})
    return found, module


def plan(module):
    return module.group.execs[0].program(True).low


@pytest.mark.parametrize("mirror", [True, 2, 3, 5])
def test_training_is_the_same_bits_dropout_and_moving_means_too(mirror):
    want, plain = run_module(residual(), False)
    got, module = run_module(residual(), mirror)
    assert NAME not in plan(plain).fired
    assert plan(module).fired[NAME] >= 6
    assert_same(got, want, 0)


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("is_train", [True, False])
@pytest.mark.parametrize("grad_req", ["write", "add", {"data": "write"}])
def test_the_environment_asks_for_it(grad_req, is_train):
    options = {"grad_req": grad_req, "is_train": is_train}
    if isinstance(grad_req, dict):
        names = residual().list_arguments()
        options["grad_req"] = {n: "null" if n.startswith("u0") else "write" for n in names}
    got, counts = results(residual(), SHAPE, **options)
    want, without = results(residual(), SHAPE, [NAME], **options)
    assert_same(got, want, 0)
    assert counts[NAME] > 0
    assert NAME not in without


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("seed", range(25))
def test_random_networks(seed):
    net, shapes = random_net(seed)
    got, _ = results(net, shapes, seed=seed)
    want, _ = results(net, shapes, [NAME, "fused_norms"], seed=seed)
    assert_same(got, want, 1e-5)


@pytest.mark.usefixtures("cheap")
def test_what_several_operators_read_is_kept():
    data = S.Variable("data")
    first = S.tanh(data, name="first")
    last = S.tanh(S.sigmoid(first))
    counts = [fired(S.tanh(last + other), {"data": (4, 6)})[NAME] for other in (data, first)]
    assert counts == [5, 4]  # all, or all but the first


@pytest.mark.parametrize("seed", range(25, 40))
def test_random_networks_in_parts(seed, monkeypatch):
    net, shapes = random_net(seed)
    want, _ = results(net, shapes, [NAME, "fused_norms"], seed=seed)
    monkeypatch.setattr("dpmodule.executor.program.policy", lambda given: 3)
    got, _ = results(net, shapes, seed=seed)
    assert_same(got, want, 1e-5)


def test_only_what_the_attribute_names_is_recomputed():
    x = S.Variable("data")
    for i in range(4):
        with mx.AttrScope(**({"__force_mirroring__": "True"} if i % 2 else {})):
            x = S.Activation(
                S.FullyConnected(x, num_hidden=5, name=f"fc{i}"), act_type="tanh", name=f"act{i}"
            )
    net = S.SoftmaxOutput(x, name="softmax")
    nodes = net.graph.nodes
    assert {nodes[i].name for i in marked(net.graph, None)} == {"fc1", "act1", "fc3", "act3"}
    assert marked(net.graph, False) == frozenset()
    assert fired(net, {"data": (4, 6)})[NAME] == 4
    got, _ = results(net, {"data": (4, 6)})
    want, _ = results(net, {"data": (4, 6)}, [NAME])
    assert_same(got, want, 1e-6)


def test_the_bare_attribute_counts_too():
    x = S.tanh(S.Variable("data"), attr={"force_mirroring": "true"}, name="t")
    net = S.SoftmaxOutput(S.FullyConnected(x, num_hidden=3, name="fc"), name="softmax")
    assert [net.graph.nodes[i].name for i in marked(net.graph, None)] == ["t"]


def test_graphs_that_differ_in_the_attribute_alone_have_programs_of_their_own():
    def net(**attr):
        x = S.tanh(S.Variable("data"), name="t", attr=attr)
        return S.SoftmaxOutput(S.FullyConnected(x, num_hidden=3, name="fc"), name="softmax")

    assert NAME not in fired(net(), {"data": (4, 6)})
    assert fired(net(__force_mirroring__="True"), {"data": (4, 6)})[NAME] == 1
    assert NAME not in fired(net(), {"data": (4, 6)})


def kept(call, *arguments, **options):
    """Return how many more bytes are allocated after a call than before."""
    with torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU], profile_memory=True
    ) as seen:
        call(*arguments, **options)
    return sum(e.nbytes() for e in seen.profiler.kineto_results.events() if e.name() == "[memory]")


LAYER = 512 * 64 * 4


def wide(mirror):
    """Return a module whose every layer makes LAYER bytes, run once, and a batch."""
    _, module = run_module(deep(), mirror, 1, (512, 64))
    batch = mx.io.DataBatch([mx.nd.ones((512, 64))], [mx.nd.zeros((512,))])
    module.forward_backward(batch)
    return module, batch


def test_less_is_kept_for_backward():
    plain, parts = (kept(module.forward, batch, is_train=True) for module, batch in map(wide, (False, 4)))
    assert plain > 11 * LAYER
    assert parts < 6 * LAYER


@pytest.mark.parametrize("mirror", [False, True, 4])
def test_after_backward_and_after_prediction_nothing_is_kept(mirror):
    module, batch = wide(mirror)
    results = sum(g.tensor.nbytes for g in module.group.execs[0].grad_dict.values() if g is not None) + LAYER
    assert kept(module.forward_backward, batch) < results + LAYER / 8  # the old ones count as if they stayed
    assert kept(module.forward, batch, is_train=False) < LAYER * 9 / 8


@pytest.mark.parametrize("mirror", [False, True, 3])
def test_backward_leaves_nothing_alive(mirror):
    _, module = run_module(residual(), mirror)
    batch = mx.io.DataBatch([mx.nd.ones((8, 3, 6, 6))], [mx.nd.zeros((8,))])
    gc.collect()
    before = set(map(id, gc.get_objects()))
    module.forward(batch, is_train=True)
    after = [t for t in gc.get_objects() if type(t) is torch.Tensor and id(t) not in before]
    made = {id(t): weakref.ref(t) for t in after if t.grad_fn is not None}
    del after
    assert made
    gc.disable()
    try:
        module.backward()
        assert [ref() for ref in made.values() if ref() is not None] == []
    finally:
        gc.enable()


def test_a_monitor_sees_every_operator():
    seen = []
    monitor = mx.mon.Monitor(1, stat_func=lambda x: x, pattern=".*_output")
    monitor.stat_func = lambda x: seen.append(1) or x
    _, module = run_module(residual(dropout=False), 3, 1, monitor=monitor)
    monitor.tic()
    module.forward_backward(mx.io.DataBatch([mx.nd.ones((8, 3, 6, 6))], [mx.nd.zeros((8,))]))
    monitor.toc()
    assert len(seen) >= len([n for n in residual(dropout=False).graph.nodes if n.op is not None])


def test_several_heads_one_of_them_in_the_middle():
    x = S.Variable("data")
    middle = S.tanh(S.FullyConnected(x, num_hidden=4, name="a"))
    net = S.Group([S.MakeLoss(S.sum(S.square(middle))), S.BlockGrad(middle), S.tanh(middle * 2)])
    want, _ = results(net, {"data": (3, 5)}, [NAME], seeds=True)
    for value in ("0", "1"):
        with pytest.MonkeyPatch.context() as patch:
            patch.setenv("MXNET_BACKWARD_DO_MIRROR", value)
            got, counts = results(net, {"data": (3, 5)}, seeds=True)
        assert (NAME in counts) is (value == "1")
        assert_same(got, want, 1e-6)


def test_a_long_chain_is_no_deep_recursion(monkeypatch):
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")
    x = S.Variable("data")
    for _ in range(1500):
        x = S.sin(x)
    net = S.MakeLoss(x)
    got, counts = results(net, {"data": (2,)})
    want, _ = results(net, {"data": (2,)}, [NAME])
    assert counts[NAME] == 1500
    assert_same(got, want, 1e-6)


def test_a_wrong_option_is_refused():
    with pytest.raises(
        ArgumentError, match="mirror is 'all', expected None, True, False, or the number of parts"
    ):
        mx.mod.Module(residual(), mirror="all")
    with pytest.raises(ArgumentError, match="mirror is -1"):
        mx.mod.Module(residual(), mirror=-1)


def test_buckets_take_the_option():
    module = mx.mod.BucketingModule(lambda key: (residual(), ("data",), ("softmax_label",)), 1, mirror=2)
    module.bind([("data", (8, 3, 6, 6))], [("softmax_label", (8,))])
    assert plan(module._curr_module).fired[NAME] > 0


def test_measured_memory_counts_what_is_recomputed():
    def held(mirror):
        module, _ = wide(mirror)
        results = []
        with module.group.execs[0].trial_run(True) as trial_run:
            return kept(lambda: results.append(trial_run.forward()))

    assert held(4) < held(False) / 2
