"""The store of one process: values, updaters, optimizers, misuse."""

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, DeviceError, DTypeError, MXNetError, ShapeError, StateError
from helpers.walk import walks

DEVICES = [mx.cpu(0), mx.cpu(1), mx.cpu(2)]


def on_devices(*values, shape=(2, 3)):
    return [mx.nd.full(shape, v, ctx=c) for v, c in zip(values, DEVICES)]


@pytest.fixture(params=["local", "device"])
def kind(request):
    return request.param


@pytest.fixture
def store(kind):
    return mx.kv.create(kind)


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
    with pytest.raises(ValueError, match="unknown capability 'flying'"):
        store.is_capable("flying")
    store.barrier()
    store._barrier()


@pytest.mark.parametrize(
    "kind", ["local", "local_update_cpu", "local_allreduce_cpu", "local_allreduce_device", "Device"]
)
def test_kinds(kind):
    one = mx.kv.create(kind)
    assert one.type == kind.lower()
    one.init("w", mx.nd.zeros((2,)))
    one.push("w", on_devices(1, 2, shape=(2,)))
    one.pull("w", out := mx.nd.zeros((2,)))
    assert out.asnumpy().tolist() == [3, 3]


def test_nccl_needs_a_gpu(monkeypatch):
    monkeypatch.setattr("dpmodule.kvstore.num_gpus", lambda: 0)
    with pytest.raises(DeviceError, match="needs a GPU"):
        mx.kv.create("nccl")
    monkeypatch.setattr("dpmodule.kvstore.num_gpus", lambda: 1)
    assert mx.kv.create("nccl").type == "nccl"


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
    one.row_sparse_pull(
        "r", out := mx.nd.zeros((3, 2), ctx=there, stype="row_sparse"), row_ids=mx.nd.array([1])
    )
    assert out.context == there
    assert out.asnumpy().tolist() == [[0, 0], [1, 1], [0, 0]]


@walks(
    [
        (lambda s: s.pull("x", mx.nd.zeros((1,))), ArgumentError, "unknown key 'x'"),
        (lambda s: s.pull("w"), AssertionError, "out is missing"),
        (lambda s: s.init("w", mx.nd.zeros((1,))), ArgumentError, "exists already"),
        (lambda s: s.init(["x", "x"], [mx.nd.zeros((1,))] * 2), ArgumentError, "exists already"),
        (lambda s: s.init("x", [mx.nd.zeros((1,))] * 2), ArgumentError, "several values"),
        (lambda s: s.broadcast("w", mx.nd.zeros((1,)), mx.nd.zeros((1,))), ArgumentError, "exists already"),
        (lambda s: s.push("w", mx.nd.zeros((9,))), ShapeError, r"shape \(2, 3\), got \(9,\)"),
        (lambda s: s.pull("w", mx.nd.zeros((1, 3))), ShapeError, r"shape \(2, 3\), out has \(1, 3\)"),
        (lambda s: s.push(["w"], []), AssertionError, "1 keys and 0 values"),
        (lambda s: s.push(["w"], mx.nd.zeros((2, 3))), AssertionError, "1 keys and a NDArray"),
        (lambda s: s.push("w", 3), ArgumentError, "is a int, expected NDArrays"),
        (lambda s: s.push("w", []), ArgumentError, "empty list"),
        (
            lambda s: s.push(2.5, mx.nd.zeros((2, 3))),
            AssertionError,
            "float, expected a string or an integer",
        ),
        (lambda s: s.init(["v", 3], [mx.nd.zeros((1,))] * 2), AssertionError, "use one type"),
        (lambda s: s.init(3, mx.nd.zeros((1,))), ArgumentError, "others are like 'w'"),
        (lambda s: s.push(3, mx.nd.zeros((1,))), ArgumentError, "others are like 'w'"),
        (lambda s: s.pull(3, mx.nd.zeros((1,))), ArgumentError, "others are like 'w'"),
        (lambda s: s.push("w", mx.nd.zeros((2, 3)).tostype("csr")), ArgumentError, "cannot sum csr"),
        (lambda s: s.save_optimizer_states("f"), StateError, "set_optimizer"),
        (lambda s: s.load_optimizer_states("f"), StateError, "set_optimizer"),
    ]
)
def test_misuse(call, error, message, kind):
    store = mx.kv.create(kind)
    store.init("w", mx.nd.zeros((2, 3)))
    with pytest.raises(MXNetError, match=message) as caught:
        call(store)
    assert isinstance(caught.value, error)
    store.pull("w", out := mx.nd.ones((2, 3)))
    assert not out.asnumpy().any()


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


@pytest.mark.parametrize(
    ("name", "error", "message"),
    [
        ("dist_device_async", ArgumentError, "expected one of local, .*dist_async"),
        ("nonsense", ArgumentError, "expected one of local, "),
        (3, DTypeError, "expected a name"),
        (None, DTypeError, "expected a name"),
    ],
)
def test_unknown_kinds(name, error, message):
    with pytest.raises(error, match=message):
        mx.kv.create(name)
