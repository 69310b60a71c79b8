"""What training is made of, on the simulated device: passes, optimizers, metrics, stores, autobatch."""

import importlib
import runpy

import numpy as np
import pytest

from helpers import accelerator
from helpers.autobatch_programs import BUILDERS, TRAINERS, network, training
from helpers.nets import blobs, lenet
from helpers.op_tables import TESTS
from helpers.random_nets import random_net
from helpers.switched import ALL_PASSES, assert_same, results
from helpers.walk import walks

mx = accelerator.install()
dy = importlib.import_module("dpmodule.autobatch")
S, WAITS = mx.sym, accelerator.WAITS
GPU, CPU = mx.gpu(0), mx.cpu(0)
# metrics that need each batch on the host: users' functions, and one whose table grows with the classes it meets
COPIES = {"custom": 2, "pcc": 1}
RULES = runpy.run_path(str(TESTS / "optimizer" / "test_rules.py"))
METRICS = runpy.run_path(str(TESTS / "metric" / "test_merge.py"))["KINDS"]


def on_both(net, shapes, seed=0, **options):
    """Compare a graph's results with those of the CPU, and return which passes rewrote it on the device."""
    want, _ = results(net, shapes, seed=seed, ctx=CPU, **options)
    got, fired = results(net, shapes, seed=seed, ctx=GPU, **options)
    assert_same(got, want, 2e-4, f"of net {seed}")
    return set(fired)


def check_random_nets(seeds):
    fired = set()
    for seed in seeds:
        fired |= on_both(*random_net(seed, is_random=False), seed=seed)
    return fired


def test_passes():
    fired = check_random_nets(range(4))
    assert fired >= {"channels_last", "unfolded_convolutions"}


@pytest.mark.slow
def test_passes_of_many_networks():
    assert check_random_nets(range(4, 60)) >= {
        "common_subexpressions",
        "dead_steps",
        "pooling_first",
        "rnn_chains",
    }


def predicted(ctx):
    x = S.Convolution(S.Variable("data"), kernel=(3, 3), num_filter=4, pad=(1, 1), no_bias=True, name="c")
    net = S.Activation(S.BatchNorm(x, fix_gamma=False, name="n"), act_type="relu")
    bound = net.simple_bind(ctx, grad_req="null", data=(2, 3, 6, 6))
    source = np.random.RandomState(0)
    for _, array in sorted({**bound.arg_dict, **bound.aux_dict}.items()):
        array[:] = mx.nd.array(source.uniform(0.5, 1.5, array.shape))
    return bound.forward()[0].asnumpy(), set(bound.program(False).low.fired)


def test_passes_of_prediction():
    (found, fired), (wanted, _) = predicted(GPU), predicted(CPU)
    np.testing.assert_allclose(found, wanted, 1e-5, 1e-5)
    assert "fused_convolutions" in fired


def pooled(ctx):
    """Sums over rows of a table, which a pass looks up and adds at once."""
    net = S.sequence_pool(
        S.Embedding(S.Variable("x"), input_dim=9, output_dim=3, name="table"), pool_type="sum"
    )
    x = mx.nd.ragged_array(np.arange(8) % 9, np.array([0, 3, 3, 8]), dtype="int64").as_in_context(ctx)
    weight = mx.nd.array(np.random.RandomState(0).randn(9, 3), ctx=ctx)
    grad = mx.nd.zeros((9, 3), ctx=ctx)
    bound = net.bind(
        ctx, {"x": x, "table_weight": weight}, {"table_weight": grad}, {"x": "null", "table_weight": "write"}
    )
    out = bound.forward(is_train=True)[0].asnumpy()
    bound.backward(mx.nd.ones(out.shape, ctx=ctx))
    return out, grad.asnumpy(), set(bound.program(True).low.fired)


def test_passes_of_ragged_values():
    found, wanted = pooled(GPU), pooled(CPU)
    np.testing.assert_allclose(found[0], wanted[0], 1e-6)
    np.testing.assert_allclose(found[1], wanted[1], 1e-6)
    assert "pooled_lookups" in found[2]


def test_passes_of_wide_losses():
    net = S.FullyConnected(S.Variable("data"), num_hidden=2048, name="fc")
    assert "score_blocks" in on_both(S.SoftmaxOutput(net, name="softmax"), {"data": (600, 6)})


def mirrored(ctx):
    module = mx.mod.Module(lenet(), context=ctx, mirror=True)
    data, label = blobs(8, (1, 10, 10))
    module.bind([("data", data.shape)], [("softmax_label", label.shape)])
    mx.random.seed(3)
    module.init_params(mx.init.Xavier())
    module.forward_backward(mx.io.DataBatch([mx.nd.array(data)], [mx.nd.array(label)]))
    grads = [grads[0].asnumpy() for grads in module.group.grad_arrays]
    return grads, set(module.group.execs[0].program(True).low.fired)


def test_passes_that_compute_again():
    (found, fired), (wanted, _) = mirrored(GPU), mirrored(CPU)
    assert "mirror" in fired
    for one, other in zip(found, wanted, strict=True):
        np.testing.assert_allclose(one, other, 1e-4, 1e-6)


def test_every_pass_is_here():
    here = {
        "channels_last", "common_subexpressions", "dead_steps", "fused_convolutions", "fused_norms",
        "mirror", "native_convolutions", "pooled_lookups", "pooling_first",
        "rnn_chains", "score_blocks", "unfolded_convolutions",
    }  # fmt: skip
    assert set(ALL_PASSES) == here


def updated(name, at_once, ctx):
    """Return weights after a case's first steps, and what the steps after the first waited for."""
    case, given = RULES["CASES"][name], RULES["INPUTS"]
    update = mx.optimizer.get_updater(RULES["make"](case))
    keys, dtype = list(RULES["NAMES"]), case["dtype"]
    weights = [mx.nd.array(given[f"w{i}"], dtype=dtype, ctx=ctx) for i in keys]
    mx.random.seed(5)
    waits = []
    for step in range(3):
        grads = [mx.nd.array(given[f"g{i}_t{step}"], dtype=dtype, ctx=ctx) for i in keys]
        before = len(WAITS.found)
        if at_once:
            update.update_all(keys, grads, weights)
        else:
            for i in keys:
                update(i, grads[i], weights[i])
        waits += WAITS.found[before:]
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
def test_every_metric(kind):
    make, draw = METRICS[kind]
    here, there = make(), make()
    source = np.random.default_rng(3)
    waits = []
    for _ in range(3):
        label, pred = draw(source, 6)
        arrays = [mx.nd.array(label, ctx=GPU)], [mx.nd.array(pred, ctx=GPU)]
        before = len(WAITS.found)
        here.update(*arrays)
        waits += WAITS.found[before:]
        there.update([mx.nd.array(label)], [mx.nd.array(pred)])
    assert len(waits) == 3 * COPIES.get(kind, 0), waits
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
