"""The store of parameters: what it keeps, and sharing it with other processes; see also `module/test_store.py`."""

import pickle

import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError, ShapeError, StateError
from dpmodule.params import ParamStore
from helpers.small_fits import TWO


def make():
    store = ParamStore(TWO)
    store.declare("weight", (3, 2), "float32", needs_grad=True)
    store.declare("table", (5,), "float64", needs_grad=False)
    store.declare("half", (3,), "float16", needs_grad=True)
    store.declare("none", (0, 4), "float32", needs_grad=False)
    store.declare_aux("mean", (2,), "float32")
    store.declare_aux("seen", (1,), "int32")
    return store


def arrays_of(store):
    """Return every array of a store by a name of its own."""
    found = {}
    for i in range(len(store.contexts)):
        found |= {f"{name}/{i}": store.array(name, i) for name in store.names()}
        found |= {f"{name}/{i}/grad": store.grad(name, i) for name in store.names()}
        found |= {f"{name}/{i}": store.aux(name, i) for name in store.aux_names()}
    return {key: array for key, array in found.items() if array is not None}


def values(store):
    return {key: array.asnumpy().tolist() for key, array in arrays_of(store).items()}


def fill(store, start):
    for number, array in enumerate(arrays_of(store).values()):
        array[:] = start + number


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
    assert (store.names(), store.aux_names()) == (["weight", "table", "half", "none"], ["mean", "seen"])


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


def test_sharing_keeps_values_places_and_handles():
    store = make()
    fill(store, 1)
    before, handles = values(store), arrays_of(store)
    store.share_memory()
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
    assert all(store.array("late", i).tensor.is_shared() and store.array("late", i).pinned for i in (0, 1))
    assert not store.grad("late", 1).tensor.is_shared()
    with pytest.raises(StateError, match="before share_memory"):
        store.place("late", torch.zeros(4), keep=True)


@pytest.mark.parametrize(
    ("export", "named"),
    [
        (lambda s: s.array("weight", 1).torch(), r"parameter 'weight' on cpu\(1\)"),
        (lambda s: torch.utils.dlpack.from_dlpack(s.aux("mean", 0)), "state 'mean'"),
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


def test_row_sparse_gradients_stay_out_of_shared_memory_and_are_each_thread_s_own():
    store = ParamStore([mx.cpu()])
    store.declare("table", (1000, 4), "float32", needs_grad=True, grad_stype="row_sparse")
    store.grad("table", 0)[:] = mx.nd.ones((1000, 4))
    with pytest.raises(StateError, match="share_memory"):
        store.with_own_gradients()
    store.share_memory()
    other = store.with_own_gradients()
    other.array("table", 0)[:] = 5
    assert (store.array("table", 0).asnumpy() == 5).all()
    for again in (store, pickle.loads(pickle.dumps(store)), other):
        assert again.grad("table", 0).stype == "row_sparse"
        assert again.grad("table", 0).asnumpy().min() == (again is store)
        again.grad("table", 0)[:] = mx.nd.zeros((1000, 4))
