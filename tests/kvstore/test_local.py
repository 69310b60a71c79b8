import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError, ShapeError, StateError

DEVICES = [mx.cpu(0), mx.cpu(1), mx.cpu(2)]


def on_devices(*values, shape=(2, 3)):
    return [mx.nd.full(shape, v, ctx=c) for v, c in zip(values, DEVICES)]


@pytest.fixture(params=["local", "device"])
def store(request):
    return mx.kv.create(request.param)


def test_push_sums_over_devices_and_pull_copies_back(store):
    store.init("w", mx.nd.ones((2, 3)))
    store.push("w", on_devices(1, 2, 4))
    out = on_devices(0, 0, 0)
    store.pull("w", out)
    assert all((o.asnumpy() == 7).all() for o in out)
    assert [o.context for o in out] == DEVICES


def test_lists_of_keys(store):
    store.init([3, 5], [mx.nd.zeros((2,)), mx.nd.zeros((2,))])
    store.push([3, 5], [on_devices(1, 1, shape=(2,)), on_devices(2, 3, shape=(2,))])
    out = [mx.nd.zeros((2,)), mx.nd.zeros((2,))]
    store.pull([3, 5], out)
    assert [o.asnumpy().tolist() for o in out] == [[2, 2], [5, 5]]


def test_pushed_arrays_stay_as_they_are(store):
    store.init("w", mx.nd.zeros((2, 3)))
    given = on_devices(1, 2)
    store.push("w", given)
    assert [g.asnumpy()[0, 0] for g in given] == [1, 2]


def test_an_updater_gets_the_sum(store):
    calls = []

    def updater(key, pushed, stored):
        calls.append(key)
        stored[:] = stored + 2 * pushed

    store.init("w", mx.nd.ones((2, 3)))
    store._set_updater(updater)
    store.pushpull("w", on_devices(1, 2), out := on_devices(0, 0))
    assert calls == ["w"]
    assert (out[1].asnumpy() == 7).all()


def test_an_optimizer_runs_inside_and_its_states_are_saved(store, tmp_path):
    def run(one, steps):
        for _ in range(steps):
            one.push("w", on_devices(1, 2))
        out = mx.nd.zeros((2, 3))
        one.pull("w", out)
        return out.asnumpy()

    store.init("w", mx.nd.ones((2, 3)))
    store.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
    np.testing.assert_allclose(run(store, 1), 0.7, rtol=1e-6)
    store.save_optimizer_states(str(tmp_path / "s"))
    other = mx.kv.create(store.type)
    other.init("w", mx.nd.full((2, 3), 0.7))
    other.set_optimizer(mx.optimizer.SGD(learning_rate=0.1, momentum=0.9))
    other.load_optimizer_states(str(tmp_path / "s"))
    np.testing.assert_allclose(run(other, 1), run(store, 1), rtol=1e-6)


def test_facts_about_the_store(store):
    assert store.rank == 0
    assert store.num_workers == 1
    assert store.type in ("local", "device")
    assert store.is_capable("optimizer")
    store.barrier()


@pytest.mark.parametrize(
    ("call", "error", "message"),
    [
        (lambda s: s.pull("x", mx.nd.zeros((1,))), ArgumentError, "unknown key 'x'"),
        (lambda s: s.pull("w"), ArgumentError, "out is missing"),
        (lambda s: s.init("w", mx.nd.zeros((1,))), ArgumentError, "exists already"),
        (lambda s: s.push("w", mx.nd.zeros((9,))), ShapeError, r"shape \(2, 3\), got \(9,\)"),
        (lambda s: s.push(["w"], []), ArgumentError, "1 keys and 0 values"),
        (lambda s: s.push("w", 3), ArgumentError, "expected NDArrays"),
        (lambda s: s.save_optimizer_states("f"), StateError, "set_optimizer"),
    ],
)
def test_misuse(store, call, error, message):
    store.init("w", mx.nd.zeros((2, 3)))
    with pytest.raises(error, match=message):
        call(store)


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("dist_sync", ArgumentError, "not built yet"),
        ("dist_device_async", ArgumentError, "not built yet"),
        ("nonsense", ArgumentError, "expected one of local, "),
        (3, DTypeError, "expected a name"),
        (None, DTypeError, "expected a name"),
    ],
)
def test_unknown_kinds(name, error, message):
    with pytest.raises(error, match=message):
        mx.kv.create(name)


def test_a_store_of_ones_own_trains_a_module():
    @mx.kv.KVStoreBase.register
    class Doubling(mx.kv.KVStoreBase):
        type = "doubling"

        def broadcast(self, key, value, out, priority=0):
            for o in out:
                value.copyto(o) if o is not value else None

        def pushpull(self, key, value, out=None, priority=0):
            for arrays, targets in zip(value, out):
                total = sum(2 * a.asnumpy() for a in arrays)
                for t in targets:
                    t[:] = total

        def set_optimizer(self, optimizer):
            raise AssertionError("not capable of it")

    try:
        steps = []
        for kvstore, lr in (("doubling", 0.1), ("local", 0.2)):
            net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
            mod = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), context=DEVICES[:2])
            mod.bind([("data", (4, 3))], [("softmax_label", (4,))])
            mod.init_params(mx.init.One())
            mod.init_optimizer(kvstore, "sgd", {"learning_rate": lr})
            data = mx.nd.array(np.arange(12).reshape(4, 3) / 10)
            mod.forward_backward(mx.io.DataBatch([data], [mx.nd.array([0, 1, 1, 0])]))
            mod.update()
            steps.append(mod.get_params()[0]["fc_weight"].asnumpy())
        np.testing.assert_allclose(steps[0], steps[1], rtol=1e-5)
    finally:
        del mx.kv.KVStoreBase.kv_registry["doubling"]
