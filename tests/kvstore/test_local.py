"""The store of one process: values, updaters, optimizers, misuse."""

import numpy as np
import pytest

import dpmodule as mx

DEVICES = [mx.cpu(0), mx.cpu(1), mx.cpu(2)]


def on_devices(*values, shape=(2, 3)):
    return [mx.nd.full(shape, v, ctx=c) for v, c in zip(values, DEVICES)]


@pytest.fixture(params=["local", "device"])
def kind(request):
    return request.param


@pytest.fixture
def store(kind):
    return mx.kv.create(kind)


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


def test_facts_about_the_store(store, monkeypatch):
    assert (store.rank, store.num_workers, store.is_capable("optimizer")) == (0, 1, True)
    assert store.type in ("local", "device")
    store.barrier()
    store._barrier()
    monkeypatch.setattr("dpmodule.kvstore.num_gpus", lambda: 1)
    assert mx.kv.create("nccl").type == "nccl"


def test_values_of_a_key_given_twice_are_added(store):
    store.init(3, mx.nd.zeros((2, 3)))
    store.push([3, 3], [mx.nd.ones((2, 3)), on_devices(1, 2)])
    store.pull([3, 3], [first := mx.nd.zeros((2, 3)), second := mx.nd.zeros((2, 3))])
    assert (first.asnumpy() == 4).all()
    assert (second.asnumpy() == 4).all()


def test_stored_values_are_apart_from_what_came_and_went(store):
    store.init("w", given := mx.nd.ones((2, 3)))
    given[:] = 5
    store.pull("w", out := mx.nd.zeros((2, 3)))
    out[:] = 7
    store.push("w", pushed := mx.nd.full((2, 3), 2))
    pushed[:] = 9
    store.pull("w", out)
    assert (out.asnumpy() == 2).all()


@pytest.mark.gpu
@pytest.mark.parametrize("kind", ["local", "device", "nccl"])
def test_values_on_a_gpu(kind):
    one, there = mx.kv.create(kind), mx.gpu(0)
    one.init(["w", "r"], [mx.nd.ones((3, 2)), mx.nd.zeros((3, 2), stype="row_sparse")])
    one.set_optimizer(mx.optimizer.Test())
    one.push("w", [mx.nd.ones((3, 2), ctx=there), mx.nd.ones((3, 2), ctx=there)])
    one.pull("w", [first := mx.nd.zeros((3, 2), ctx=there), second := mx.nd.zeros((3, 2))])
    assert (first.asnumpy() == 3).all()
    assert (second.asnumpy() == 3).all()
    one.push("r", mx.nd.ones((3, 2), ctx=there).tostype("row_sparse"))
    out = mx.nd.zeros((3, 2), ctx=there, stype="row_sparse")
    one.row_sparse_pull("r", out, row_ids=mx.nd.array([1]))
    assert (out.context, out.asnumpy().tolist()) == (there, [[0, 0], [1, 1], [0, 0]])
