"""What training is made of, on the simulated device: passes, optimizers, metrics, stores, autobatch."""

import copy
import importlib
import itertools
import runpy

import numpy as np
import pytest

from helpers import accelerator
from helpers.autobatch_programs import BUILDERS, TRAINERS, network, training
from helpers.op_tables import TESTS
from helpers.switched import assert_same, fired, results
from helpers.walk import walks

mx = accelerator.install()
dy = importlib.import_module("dpmodule.autobatch")
WAITS = accelerator.WAITS
GPU, CPU = mx.gpu(0), mx.cpu(0)
# metrics that need each batch on the host: users' functions, and one whose table grows with the classes it meets
COPIES = {"CustomMetric": 2, "PCC": 1}
RULES = runpy.run_path(str(TESTS / "optimizer" / "test_rules.py"))
PASSES = runpy.run_path(str(TESTS / "executor" / "test_passes.py"))
NETS = PASSES["NETS"]
METRICS = runpy.run_path(str(TESTS / "metric" / "test_merge.py"))["ROWS"]


@pytest.mark.parametrize("name", NETS)
def test_passes(name):
    (net, shape), is_train = NETS[name], PASSES["ROWS"][name].training
    want, _ = results(net, {"data": shape}, is_train=is_train, seeds=not is_train)
    with GPU:
        got, _ = results(net, {"data": shape}, is_train=is_train, seeds=not is_train)
    assert_same(got, want, 2e-4)
    assert name in fired(net, {"data": shape}, is_train, GPU)


def updated(name, ctx):
    """Return weights after a case's first steps, and what the steps waited for."""
    case, given = RULES["CASES"][name], RULES["INPUTS"]
    update = mx.optimizer.get_updater(RULES["make"](case))
    keys, dtype = list(RULES["NAMES"]), case["dtype"]
    weights = [mx.nd.array(given[f"w{i}"], dtype=dtype, ctx=ctx) for i in keys]
    mx.random.seed(5)
    waits = []
    for step in range(3):
        grads = [mx.nd.array(given[f"g{i}_t{step}"], dtype=dtype, ctx=ctx) for i in keys]
        waits += WAITS.during(lambda grads=grads: update.update_all(keys, grads, weights))
    return [weight.asnumpy() for weight in weights], waits


FIRST = {case["optimizer"]: name for name, case in RULES["CASES"].items()}


@walks(list(FIRST.values()))
@pytest.mark.filterwarnings("ignore:.*multi_precision")
def test_every_optimizer(name):
    (found, waits), (wanted, _) = updated(name, GPU), updated(name, CPU)
    assert waits == []
    if RULES["CASES"][name]["optimizer"] != "sgld":  # which draws random numbers
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, 1e-5, 1e-6)


@walks(METRICS)
def test_every_metric(new, draw):
    here, there, source, waits = copy.deepcopy(new), copy.deepcopy(new), np.random.default_rng(3), []
    for _ in range(3):
        label, pred = draw(source, 6)
        arrays = [mx.nd.array(label, ctx=GPU)], [mx.nd.array(pred, ctx=GPU)]
        waits += WAITS.during(lambda arrays=arrays: here.update(*arrays))
        there.update([mx.nd.array(label)], [mx.nd.array(pred)])
    assert len(waits) == 3 * COPIES.get(type(new).__name__, 0), waits
    for (name, value), (_, other) in zip(here.get_name_value(), there.get_name_value(), strict=True):
        assert value == pytest.approx(other, rel=1e-6, nan_ok=True), name


def test_autobatch():
    found, names = [], (next(iter(BUILDERS)), next(iter(TRAINERS)))
    try:
        for device, autobatch in itertools.product((GPU, CPU), (False, True)):
            dy.configure(engine="python", autobatch=autobatch, dtype="float64", device=device)
            found.append([*network(dy, names[0], True), *training(dy, names[1], 5.0, True, 1e-3)])
    finally:
        dy.configure(autobatch=False, dtype="float32", engine="auto", device=CPU)
    for one, other in zip(found[0] + found[1], found[2] + found[3], strict=True):
        np.testing.assert_allclose(one, other, 1e-9, 1e-9)


def pushed(kind, contexts, compression=None):
    store = mx.kv.create(kind)
    if compression:
        store.set_gradient_compression(compression)
    source = np.random.RandomState(0)
    store.init("w", mx.nd.array(source.randn(3, 4), ctx=contexts[0]))
    store.set_optimizer(mx.optimizer.create("sgd", learning_rate=0.1, momentum=0.9))
    out = [mx.nd.zeros((3, 4), ctx=ctx) for ctx in contexts]
    for _ in range(3):
        store.push("w", [mx.nd.array(source.randn(3, 4), ctx=ctx) for ctx in contexts])
        store.pull("w", out)
    return [each.asnumpy() for each in out]


BITS = {"type": "2bit", "threshold": 0.5}


@pytest.mark.parametrize("contexts", [[GPU], [GPU, GPU], [GPU, CPU], [CPU, GPU]], ids=str)
@pytest.mark.parametrize(("kind", "compression"), [("local", None), ("device", None), ("device", BITS)])
def test_stores(kind, contexts, compression):
    wanted = pushed(kind, [mx.cpu(i) for i in range(len(contexts))], compression)
    for one, other in zip(pushed(kind, contexts, compression), wanted, strict=True):
        np.testing.assert_allclose(one, other, 1e-5, 1e-6)
