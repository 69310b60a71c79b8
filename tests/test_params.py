"""The store of parameters: what it keeps, and sharing it with other processes."""

import copy
import pickle
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import multiprocessing

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError, ShapeError, StateError
from dpmodule.params import ParamStore
from helpers.programs import run_program
from helpers.spawned import arrays_of, attend, fill, values

TWO = [mx.cpu(0), mx.cpu(1)]
SHARED = Path("/dev/shm")


def make(contexts=TWO):
    store = ParamStore(contexts)
    store.declare("weight", (3, 2), "float32", needs_grad=True)
    store.declare("table", (5,), "float64", needs_grad=False)
    store.declare("half", (3,), "float16", needs_grad=True)
    store.declare("none", (0, 4), "float32", needs_grad=False)
    store.declare_aux("mean", (2,), "float32")
    store.declare_aux("seen", (1,), "bool")
    return store


def shared(found):
    """Leave out the gradients, which are each process's own."""
    return {key: value for key, value in found.items() if not key.endswith("grad")}


# --- in one process


def test_declaring_twice():
    store = make()
    before = store.array("weight", 1)
    store.declare("weight", (3, 2), "float32", needs_grad=True)
    assert store.array("weight", 1) is before
    with pytest.raises(ShapeError, match=r"weight has shape \(3, 2\), this graph needs \(2, 2\)"):
        store.declare("weight", (2, 2), "float32", needs_grad=True)
    with pytest.raises(DTypeError, match="mean is float32, this graph needs float64"):
        store.declare_aux("mean", (2,), "float64")
    assert store.grad("table", 0) is None
    assert store.names() == ["weight", "table", "half", "none"]
    assert store.aux_names() == ["mean", "seen"]


def test_loading_and_averaging():
    store = make()
    store.load({"weight": mx.nd.full((3, 2), 2)}, {"mean": mx.nd.array([1, 2])})
    store.array("weight", 1)[:] = 4
    arg_params, aux_params = store.average()
    assert (arg_params["weight"].asnumpy() == 3).all()
    assert aux_params["mean"].asnumpy().tolist() == [1, 2]
    store.load({"strange": mx.nd.ones((1,))}, {}, allow_extra=True)
    with pytest.raises(ArgumentError, match="'strange' is not a parameter"):
        store.load({"strange": mx.nd.ones((1,))}, {})
    with pytest.raises(ShapeError, match="weight has shape"):
        store.load({"weight": mx.nd.ones((1,))}, {})


def test_copies_of_a_store_that_is_not_shared_have_values_of_their_own():
    store = make()
    fill(store, 1)
    for other in (pickle.loads(pickle.dumps(store)), copy.deepcopy(store)):
        assert values(other) == values(store)
        assert not other.is_shared
        other.array("weight", 0)[:] = 9
        assert store.array("weight", 0).asnumpy()[0, 0] == 1


# --- shared memory


def test_sharing_keeps_values_places_and_handles():
    store = make()
    fill(store, 1)
    before, handles = values(store), arrays_of(store)
    assert not store.is_shared
    store.share_memory()
    assert store.is_shared
    assert values(store) == before
    for key, array in arrays_of(store).items():
        assert array is handles[key]
        assert array.pinned is array.tensor.is_shared() is (not key.endswith("grad"))
        assert array.tensor.is_contiguous()
        assert array.tensor.data_ptr() % 64 == 0 or not array.size
    places = [a.tensor.data_ptr() for a in handles.values()]
    store.share_memory()
    assert [a.tensor.data_ptr() for a in handles.values()] == places
    fill(store, 50)
    assert len({str(v) for v in values(store).values()}) > 10  # no two arrays overlap


def test_what_is_declared_later_is_shared_too():
    store = make()
    store.share_memory()
    store.declare("late", (4,), "float32", needs_grad=True)
    for array in (store.array("late", 0), store.array("late", 1)):
        assert array.tensor.is_shared()
        assert array.pinned
    assert not store.grad("late", 1).tensor.is_shared()
    with pytest.raises(StateError, match="before share_memory"):
        store.place("late", torch.zeros(4), keep=True)


@pytest.mark.parametrize(
    ("export", "named"),
    [
        (lambda s: s.array("weight", 1).torch(), r"parameter 'weight' on cpu\(1\)"),
        (lambda s: np.asarray(s.array("half", 0)), r"parameter 'half' on cpu\(0\)"),
        (lambda s: torch.utils.dlpack.from_dlpack(s.aux("mean", 0)), "state 'mean'"),
        (lambda s: s.array("weight", 0)[0], "parameter 'weight'"),
        (lambda s: s.array("weight", 0).reshape((6,)), "parameter 'weight'"),
        (lambda s: s.place("table", torch.zeros(5, dtype=torch.float64), keep=True), "parameter 'table'"),
    ],
)
def test_memory_that_was_handed_out_does_not_move(export, named):
    store = make()
    kept = export(store)
    with pytest.raises(StateError, match=named):
        store.share_memory()
    assert not store.is_shared
    assert not any(array.tensor.is_shared() for array in arrays_of(store).values())
    del kept


def test_plain_pickles_of_a_shared_store_are_copies():
    store = make()
    fill(store, 1)
    store.share_memory()
    other = pickle.loads(pickle.dumps(store))
    assert shared(values(other)) == shared(values(store))
    other.array("weight", 0)[:] = 9
    assert store.array("weight", 0).asnumpy()[0, 0] == 1
    assert not other.is_shared
    other.declare("more", (2,), "float32", needs_grad=False)
    assert not other.array("more", 0).tensor.is_shared()


def step(module, seed):
    rng = np.random.RandomState(seed)
    data, label = mx.nd.array(rng.rand(4, 3)), mx.nd.array(rng.randint(0, 2, 4))
    module.forward_backward(mx.io.DataBatch([data], [label]))
    module.update()


def make_module(contexts):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=4, name="one")
    net = mx.sym.BatchNorm(net, name="norm")
    net = mx.sym.FullyConnected(mx.sym.Activation(net, act_type="relu"), num_hidden=2, name="two")
    mod = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"), context=contexts)
    mod.bind([("data", (4, 3))], [("softmax_label", (4,))])
    mx.random.seed(3)
    mod.init_params(mx.init.Xavier())
    mod.init_optimizer(None, "sgd", {"learning_rate": 0.1, "momentum": 0.9})
    return mod


@pytest.mark.parametrize("contexts", [TWO[:1], TWO])
@pytest.mark.parametrize("when", [0, 1, 2])
def test_a_module_trains_on_after_its_store_was_shared(contexts, when):
    one, other = make_module(contexts), make_module(contexts)
    for seed in range(4):
        if seed == when:
            one.store.share_memory()
        step(one, seed)
        step(other, seed)
    for mine, its in zip(one.get_params(), other.get_params()):
        assert {k: v.asnumpy().tolist() for k, v in mine.items()} == {
            k: v.asnumpy().tolist() for k, v in its.items()
        }
    assert all(a.tensor.is_shared() for key, a in arrays_of(one.store).items() if not key.endswith("grad"))
    step(one, 9)
    one.forward(mx.io.DataBatch([mx.nd.ones((7, 3))], []), is_train=False)  # another size binds again
    assert one.get_outputs()[0].shape == (7, 2)


# --- two processes


@pytest.mark.timeout(120)
def test_another_process_maps_the_store_and_both_see_every_write():
    before = sorted(SHARED.iterdir()) if SHARED.is_dir() else []
    spawn = multiprocessing.get_context("spawn")
    store = make()
    store.share_memory()
    store.declare("late", (4,), "float32", needs_grad=True)
    fill(store, 1)
    first = values(store)
    pipe, end = spawn.Pipe()
    process = spawn.Process(target=attend, args=(store, end), name="attendant")
    process.start()
    end.close()  # so that reading from a process that died is an error
    try:
        pid, is_shared, found = pipe.recv()
        assert (pid, is_shared, shared(found)) == (process.pid, True, shared(first))
        assert {key: np.any(v) for key, v in found.items() if key.endswith("grad")} == dict.fromkeys(
            (key for key in first if key.endswith("grad")), False
        )
        fill(store, 100)
        second = values(store)
        pipe.send("go on")
        assert shared(pipe.recv()) == shared(second)
        process.join(60)
    finally:
        process.kill()
        process.join(10)
    assert process.exitcode == 0
    fill(expected := make(), 0)
    expected.declare("late", (4,), "float32", needs_grad=True)
    fill(expected, 200)
    gradients = {key: value for key, value in second.items() if key.endswith("grad")}
    assert values(store) == {**shared(values(expected)), **gradients}
    assert (sorted(SHARED.iterdir()) if SHARED.is_dir() else []) == before


KILLED = """
import os, signal, sys
import dpmodule as mx
from dpmodule.params import ParamStore
store = ParamStore([mx.cpu()])
store.declare("weight", (1 << 20,), "float32", needs_grad=True)
store.share_memory()
assert store.array("weight", 0).tensor.is_shared()
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.mark.skipif(not SHARED.is_dir(), reason="shared memory is not a folder here")
def test_a_process_that_is_killed_leaves_no_segment_behind():
    before = sorted(SHARED.iterdir())
    done = run_program(KILLED)
    assert done.returncode == -9
    assert sorted(SHARED.iterdir()) == before


def test_row_sparse_gradients_stay_out_of_shared_memory():
    store = ParamStore([mx.cpu()])
    store.declare("table", (1000, 4), "float32", needs_grad=True, grad_stype="row_sparse")
    store.grad("table", 0)[:] = mx.nd.ones((1000, 4))
    store.share_memory()
    for again in (store, pickle.loads(pickle.dumps(store))):
        assert again.grad("table", 0).stype == "row_sparse"
        assert again.grad("table", 0).asnumpy().min() == (again is store)
        again.grad("table", 0)[:] = mx.nd.zeros((1000, 4))


def test_a_store_for_another_thread_has_gradients_of_its_own():
    store = ParamStore([mx.cpu(0)])
    store.declare("w", (2, 3), "float32", needs_grad=True, grad_stype="row_sparse")
    with pytest.raises(StateError, match="share_memory"):
        store.with_own_gradients()
    store.share_memory()
    other = store.with_own_gradients()
    other.array("w", 0)[:] = 5
    assert (store.array("w", 0).asnumpy() == 5).all()
    assert other.grad("w", 0) is not store.grad("w", 0)
    assert other.grad("w", 0).stype == "row_sparse"
