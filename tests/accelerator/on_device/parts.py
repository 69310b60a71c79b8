"""What training is made of, on the simulated device: passes, optimizers, metrics, stores, autobatch."""

import copy
import importlib
import runpy

import numpy as np
import pytest

from helpers import accelerator
from helpers.autobatch_programs import BUILDERS, TRAINERS, network, training
from helpers.op_tables import TESTS
from helpers.random_nets import random_net
from helpers.switched import assert_same, fired, results
from helpers.walk import walks

mx = accelerator.install()
dy = importlib.import_module("dpmodule.autobatch")
S, WAITS = mx.sym, accelerator.WAITS
GPU, CPU = mx.gpu(0), mx.cpu(0)
# metrics that need each batch on the host: users' functions, and one whose table grows with the classes it meets
COPIES = {"CustomMetric": 2, "PCC": 1}
RULES = runpy.run_path(str(TESTS / "optimizer" / "test_rules.py"))
NETS = runpy.run_path(str(TESTS / "executor" / "test_passes.py"))["NETS"]
METRICS = runpy.run_path(str(TESTS / "metric" / "test_merge.py"))["ROWS"]


def on_both(net, shapes, **options):
    """Compare a graph's results with those of the CPU, and return which passes rewrote it on the device."""
    want, _ = results(net, shapes, ctx=CPU, **options)
    got, counts = results(net, shapes, ctx=GPU, **options)
    assert_same(got, want, 2e-4, str(options))
    return set(counts)


@pytest.mark.parametrize("name", NETS)
def test_passes(name):
    (net, shape), is_train = NETS[name], name != "fused_convolutions"
    on_both(net, {"data": shape}, is_train=is_train)
    assert name in fired(net, {"data": shape}, is_train, GPU)


@pytest.mark.slow
def test_passes_of_many_networks():
    found = [on_both(*random_net(seed, is_random=False), seed=seed) for seed in range(60)]
    assert set.union(*found) >= {"common_subexpressions", "dead_steps", "pooling_first", "rnn_chains"}


def pooled(ctx):
    """Sums over rows of a table, which a pass looks up and adds at once."""
    table = S.Embedding(S.Variable("x"), input_dim=9, output_dim=3, name="table")
    net = S.sequence_pool(table, pool_type="sum")
    x = mx.nd.ragged_array(np.arange(8) % 9, np.array([0, 3, 3, 8]), dtype="int64").as_in_context(ctx)
    args = {"x": x, "table_weight": mx.nd.array(np.random.RandomState(0).randn(9, 3), ctx=ctx)}
    grad = {"table_weight": mx.nd.zeros((9, 3), ctx=ctx)}
    bound = net.bind(ctx, args, grad, {"x": "null", "table_weight": "write"})
    out = bound.forward(is_train=True)[0].asnumpy()
    bound.backward(mx.nd.ones(out.shape, ctx=ctx))
    assert "pooled_lookups" in bound.program(True).low.fired
    return out, grad["table_weight"].asnumpy()


def test_passes_of_ragged_values():
    for found, wanted in zip(pooled(GPU), pooled(CPU), strict=True):
        np.testing.assert_allclose(found, wanted, 1e-6)


def updated(name, at_once, ctx):
    """Return weights after a case's first steps, and what the steps waited for."""
    case, given = RULES["CASES"][name], RULES["INPUTS"]
    update = mx.optimizer.get_updater(RULES["make"](case))
    keys, dtype = list(RULES["NAMES"]), case["dtype"]
    weights = [mx.nd.array(given[f"w{i}"], dtype=dtype, ctx=ctx) for i in keys]
    mx.random.seed(5)
    waits = []
    for step in range(3):
        grads = [mx.nd.array(given[f"g{i}_t{step}"], dtype=dtype, ctx=ctx) for i in keys]
        each = lambda grads=grads: [update(i, grads[i], weights[i]) for i in keys]  # noqa: E731
        all_at_once = lambda grads=grads: update.update_all(keys, grads, weights)  # noqa: E731
        waits += WAITS.during(all_at_once if at_once else each)
    return [weight.asnumpy() for weight in weights], waits


def check_optimizer(name, at_once):
    (found, waits), (wanted, _) = updated(name, at_once, GPU), updated(name, at_once, CPU)
    assert waits == []
    if RULES["CASES"][name]["optimizer"] != "sgld":  # which draws random numbers
        for one, other in zip(found, wanted, strict=True):
            np.testing.assert_allclose(one, other, 1e-5, 1e-6)


FIRST = {case["optimizer"]: name for name, case in RULES["CASES"].items()}


@walks(list(FIRST.values()))
@pytest.mark.filterwarnings("ignore:.*multi_precision")
def test_every_optimizer(name):
    check_optimizer(name, True)


@pytest.mark.slow
@walks([(name, at_once) for name in RULES["CASES"] for at_once in (False, True)])
@pytest.mark.filterwarnings("ignore:.*multi_precision")
def test_every_recorded_optimizer(name, at_once):
    check_optimizer(name, at_once)


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


def some(names):
    """Leave all but the first and the last to the long form."""
    middle = [pytest.param(name, marks=pytest.mark.slow) for name in list(names)[1:-1]]
    return [next(iter(names)), *middle, list(names)[-1]]


@pytest.fixture
def plain():
    yield
    dy.configure(autobatch=False, dtype="float32", engine="auto", device=CPU)


def graphs(program, device, *given):
    found = []
    for autobatch in (False, True):
        dy.configure(engine="python", autobatch=autobatch, dtype="float64", device=device)
        dy.renew_cg()
        found += program(dy, *given)
    return found


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("name", some(BUILDERS))
def test_builders_of_autobatch(name):
    found, wanted = (graphs(network, device, name, True) for device in ("GPU:0", CPU))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, 1e-9, 1e-9)


@pytest.mark.usefixtures("plain")
@pytest.mark.parametrize("name", some(TRAINERS))
def test_trainers_of_autobatch(name):
    found, wanted = (graphs(training, device, name, 5.0, True, 1e-3) for device in (GPU, CPU))
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, 1e-9, 1e-9)
