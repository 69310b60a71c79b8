import numpy as np
import pytest
import torch

import dpmodule as mx
from helpers.random_nets import random_net
from helpers.switched import assert_same, fired, results

S = mx.sym
NAME = "mirror"
SHAPE = (8, 3, 6, 6)
FLAT = {"data": (4, 6)}


@pytest.fixture
def cheap(monkeypatch):
    """MXNet's environment variable asks for recomputation."""
    monkeypatch.setenv("MXNET_BACKWARD_DO_MIRROR", "1")


def residual():
    x = S.Variable("data")
    for i in range(3):
        y = S.Convolution(x, kernel=(3, 3), pad=(1, 1), num_filter=3, name=f"u{i}_c")
        y = S.Activation(S.BatchNorm(y, name=f"u{i}_b"), act_type="relu")
        x = S.Activation(x + S.Dropout(y, p=0.3), act_type="relu")
    return S.SoftmaxOutput(S.FullyConnected(S.Flatten(x), num_hidden=3, name="fc"), name="softmax")


def deep():
    x = S.Variable("data")
    for i in range(12):
        x = S.Activation(S.FullyConnected(x, num_hidden=64, name=f"fc{i}"), act_type="tanh", name=f"act{i}")
    return S.SoftmaxOutput(x, name="softmax")


def batch(shape, source=np.random):
    return mx.io.DataBatch([mx.nd.array(source.rand(*shape))], [mx.nd.array(source.randint(0, 3, shape[0]))])


def run_module(net, mirror, steps=3, shape=SHAPE):
    """Train a few steps; return outputs, parameters and states, and the module."""
    source = np.random.RandomState(0)
    module = mx.mod.Module(net, mirror=mirror)
    module.bind([("data", shape)], [("softmax_label", (shape[0],))])
    np.random.seed(0)
    mx.random.seed(7)
    module.init_params(mx.init.Xavier())
    module.init_optimizer(optimizer_params={"learning_rate": 0.5, "momentum": 0.9})
    found = {}
    for step in range(steps):
        module.forward_backward(batch(shape, source))
        module.update()
        found[f"output {step}"] = module.get_outputs()[0].asnumpy()
    arguments, states = module.get_params()
    return found | {k: v.asnumpy() for k, v in {**arguments, **states}.items()}, module


def plan(module):
    return module.group.execs[0].program(True).low.fired.get(NAME, 0)


@pytest.mark.parametrize("mirror", [True, 2, 3])
def test_training_is_the_same_bits_dropout_and_moving_means_too(mirror):
    want, plain = run_module(residual(), False)
    got, module = run_module(residual(), mirror)
    assert plan(plain) == 0
    assert plan(module) >= 6
    assert_same(got, want, 0)


@pytest.mark.usefixtures("cheap")
@pytest.mark.parametrize("is_train", [True, False])
def test_the_environment_asks_for_it(is_train):
    names = residual().list_arguments()
    options = {"grad_req": {n: "null" if n.startswith("u0") else "add" for n in names}, "is_train": is_train}
    got, counts = results(residual(), {"data": SHAPE}, **options)
    want, without = results(residual(), {"data": SHAPE}, [NAME], **options)
    assert_same(got, want, 0)
    assert counts[NAME] > 0
    assert NAME not in without


@pytest.mark.parametrize("seed", range(12))
def test_random_networks_at_once_and_in_parts(seed, monkeypatch):
    net, shapes = random_net(seed)
    want, _ = results(net, shapes, [NAME, "fused_norms"], seed=seed)
    monkeypatch.setattr("dpmodule.executor.program.policy", lambda given: True if seed < 6 else 3)
    assert_same(results(net, shapes, seed=seed)[0], want, 1e-5)


@pytest.mark.usefixtures("cheap")
def test_what_several_operators_read_is_kept():
    data = S.Variable("data")
    first = S.tanh(data)
    last = S.tanh(S.sigmoid(first))
    counts = [fired(S.tanh(last + other), FLAT)[NAME] for other in (data, first)]
    assert counts == [5, 4]  # all, or all but the first


# memory


def kept(call, *arguments, **options):
    """Return how many more bytes are allocated after a call than before."""
    with torch.profiler.profile(profile_memory=True) as seen:
        call(*arguments, **options)
    return sum(e.nbytes() for e in seen.profiler.kineto_results.events() if e.name() == "[memory]")


LAYER = 512 * 64 * 4


@pytest.mark.parametrize(("mirror", "low", "high"), [(False, 11, 99), (True, 0, 99), (4, 0, 6)])
def test_memory_between_forward_and_backward_and_after(mirror, low, high):
    """Every layer makes LAYER bytes."""
    _, module = run_module(deep(), mirror, 1, (512, 64))
    given = batch((512, 64))
    module.forward_backward(given)
    results = sum(g.tensor.nbytes for g in module.group.execs[0].grad_dict.values() if g is not None) + LAYER
    assert kept(module.forward_backward, given) < results + LAYER / 8  # the old ones count as if they stayed
    assert kept(module.forward, given, is_train=False) < LAYER * 9 / 8
    assert low * LAYER < kept(module.forward, given, is_train=True) < high * LAYER
