"""Row-sparse values in stores: sequences of calls against a NumPy model, and what MXNet 1.9.1 refuses."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import ArgumentError

nd, sparse = mx.nd, mx.nd.sparse
SHAPE = (4, 2)


def rows(values, ids, ctx=None):
    return sparse.row_sparse_array((np.array(values, "f4"), ids), shape=SHAPE, ctx=ctx)


def empty(ctx=None):
    return sparse.zeros("row_sparse", SHAPE, ctx=ctx)


class Model:
    """What a store should hold: dense values, and which rows are stored (None: a dense array)."""

    def __init__(self, kind):
        self.values = np.zeros(SHAPE, "f4")
        self.rows = set() if kind == "row_sparse" else None

    def push(self, values, kinds, updates):
        total, stored = np.sum(values, 0), {int(i) for v in values for i in np.flatnonzero(v.any(1))}
        if updates:
            self.values = self.values + total
            if self.rows is not None:
                # a sum with a dense array stores what is not zero, one of row-sparse arrays what either stores
                dense = set(np.flatnonzero(self.values.any(1)))
                self.rows = self.rows | stored if kinds == {"row_sparse"} else dense
        else:
            self.values = total
            self.rows = stored if kinds == {"row_sparse"} else None


calls = st.lists(
    st.tuples(
        st.sampled_from(["push", "push", "pull", "pull_sparse", "rows", "pushpull"]),
        st.integers(0, 2**20),
        st.lists(st.sampled_from(["default", "row_sparse", "row_sparse"]), min_size=1, max_size=3),
        st.lists(st.integers(0, 3), max_size=5),
    ),
    max_size=6,
)


def add(key, pushed, stored):
    stored += pushed


@settings(max_examples=200, derandomize=True, deadline=None, database=None)
@given(st.sampled_from(["local", "device"]), st.sampled_from(["default", "row_sparse"]), st.booleans(), calls)
def test_any_sequence_of_calls_does_what_the_model_does(kind, stype, updates, sequence):
    store, model = mx.kv.create(kind), Model(stype)
    store.init("k", nd.zeros(SHAPE, stype=stype))
    if updates:
        store._set_updater(add)
    for call, seed, kinds, ids in sequence:
        rng = np.random.RandomState(seed)
        if call in ("push", "pushpull"):
            values = [rng.randint(-2, 3, SHAPE) * (rng.rand(4, 1) < 0.5) for _ in kinds]
            given = [nd.array(v, ctx=mx.cpu(i)).tostype(s) for i, (v, s) in enumerate(zip(values, kinds))]
            model.push(values, set(kinds), updates)
            if call == "push":
                store.push("k", given)
            else:
                store.pushpull("k", given, out := nd.ones(SHAPE))
                np.testing.assert_array_equal(out.asnumpy(), model.values)
            for array, value in zip(given, values):
                np.testing.assert_array_equal(array.asnumpy(), value)
        elif call == "rows" and model.rows is None:
            with pytest.raises(ArgumentError, match="stored as default"):
                store.row_sparse_pull("k", empty(), row_ids=nd.array(ids))
        elif call == "rows":
            store.row_sparse_pull("k", out := empty(), row_ids=nd.array(ids))
            want = np.zeros(SHAPE)
            want[ids] = model.values[ids]
            np.testing.assert_array_equal(out.asnumpy(), want)
            assert out.indices.asnumpy().tolist() == (sorted(set(ids)) if model.rows else [])
        else:
            outs = [nd.ones(SHAPE, ctx=mx.cpu(i)).tostype(s) for i, s in enumerate(kinds)]
            store.pull("k", outs, ignore_sparse=call == "pull")
            for out, s in zip(outs, kinds):
                skipped = s == "row_sparse" and call == "pull"
                np.testing.assert_array_equal(out.asnumpy(), np.ones(SHAPE) if skipped else model.values)


def test_rows_of_lists():
    store = mx.kv.create()
    store.init(["a", "b"], [nd.ones(SHAPE).tostype("row_sparse"), rows([[5, 6]], [3])])
    outs = [empty(mx.cpu(i)) for i in range(2)]
    store.row_sparse_pull("a", outs, row_ids=nd.array([2]))  # the same rows for both
    assert [o.indices.asnumpy().tolist() for o in outs] == [[2], [2]]
    store.row_sparse_pull("a", outs, row_ids=[nd.array([[1, 0], [0, 1]]), nd.array([3], dtype="int64")])
    assert [o.indices.asnumpy().tolist() for o in outs] == [[0, 1], [3]]
    store.row_sparse_pull(["a", "b"], outs, row_ids=[nd.array([0]), nd.array([3])])
    assert [o.asnumpy().sum() for o in outs] == [2, 11]
    nested = [[empty(), empty()], [empty()]]
    store.row_sparse_pull(["a", "b"], nested, row_ids=[[nd.array([0]), nd.array([1])], [nd.array([3, 2])]])
    assert [o.indices.asnumpy().tolist() for group in nested for o in group] == [[0], [1], [2, 3]]


def test_pushpull_brings_the_sum_to_row_sparse_arrays_too():
    """Where the optimizer runs outside of the store, each device's gradient has to become the sum of all."""
    store = mx.kv.create("local")
    store.init("w", nd.zeros(SHAPE))
    for _ in range(2):
        given = [rows([[1, 1], [1, 1]], [0, 1], mx.cpu(0)), rows([[2, 2], [2, 2]], [1, 3], mx.cpu(1))]
        store.pushpull(["w"], [given], [given])
        for grad in given:
            assert grad.stype == "row_sparse"
            assert grad.tostype("default").asnumpy()[:, 0].tolist() == [1, 3, 0, 2]
