"""Row-sparse values that are spread over processes: equal to one process, looked up at any time, errors everywhere."""

import time

import numpy as np

import dpmodule as mx
from dpmodule.base import BoundsError, StateError
from helpers.dist_programs import create, expect

ROWS, WIDTH = 23, 3
OPTIMIZERS = {
    "sgd": {"learning_rate": 0.5, "wd": 0.01},
    "momentum": {"learning_rate": 0.5, "momentum": 0.9},
    "adagrad": {"learning_rate": 0.5},
    "adam": {"learning_rate": 0.1},
    "ftrl": {"learning_rate": 0.5, "lamda1": 0.001},
}


def rows_of(numbers, values):
    return mx.nd.sparse.row_sparse_array((values, numbers), shape=(ROWS, WIDTH))


def make(name):
    options = dict(OPTIMIZERS[name])
    return mx.optimizer.create("sgd" if name == "momentum" else name, **options)


def gradients(rng, ranks):
    """Return a step's gradients of all ranks: some have no rows, and some rows are those of several ranks."""
    found = []
    for rank in range(ranks):
        numbers = np.sort(rng.choice(ROWS, rng.integers(0, 9) if rank else 0, replace=False))
        found.append((numbers, rng.standard_normal((len(numbers), WIDTH)).astype("f4")))
    return found


first = create()
rank, size = first.rank, first.num_workers
start = np.random.default_rng(1).standard_normal((ROWS, WIDTH)).astype("f4")
whole = mx.nd.array(start).tostype("row_sparse")
for name in OPTIMIZERS:
    store, alone = create(), mx.kv.create("local")
    own_value = whole if rank == 0 else rows_of(np.zeros(0, int), np.zeros((0, WIDTH), "f4"))
    store.init(["table", "dense"], [own_value, mx.nd.zeros((4,))])
    alone.init("table", whole)
    for each in (store, alone):
        each.set_optimizer(make(name))
    rng = np.random.default_rng(7)
    for step in range(6):
        grads = gradients(rng, size)
        store.push(["dense", "table"], [mx.nd.ones((4,)), rows_of(*grads[rank])])
        parts = [rows_of(*each) for each in grads]
        alone.push("table", parts)
        # a rank looks up rows as often as it likes
        for _ in range(rank if step % 2 else size - rank):
            numbers = rng.integers(0, ROWS, (2, 4)) if rank == 0 else np.arange(rank, ROWS, 2)
            out = mx.nd.zeros((ROWS, WIDTH), stype="row_sparse")
            store.row_sparse_pull("table", out, row_ids=mx.nd.array(numbers))
            wanted = mx.nd.zeros((ROWS, WIDTH), stype="row_sparse")
            alone.row_sparse_pull("table", wanted, row_ids=mx.nd.array(numbers))
            np.testing.assert_allclose(out.asnumpy(), wanted.asnumpy(), atol=1e-6)
            assert out.indices.asnumpy().tolist() == sorted(set(numbers.ravel().tolist()))
        rng = np.random.default_rng(100 * step)
    out, wanted = mx.nd.zeros((ROWS, WIDTH)), mx.nd.zeros((ROWS, WIDTH))
    store.pull("table", out)
    alone.pull("table", wanted)
    np.testing.assert_allclose(out.asnumpy(), wanted.asnumpy(), atol=1e-6, err_msg=name)
    assert sum(value.shape[0] for value in store._stored.values() if value.stype != "default") < ROWS

store = create()
store.init("t", mx.nd.ones((ROWS, WIDTH)).tostype("row_sparse"))
store.push("t", rows_of([rank], np.full((1, WIDTH), 2, "f4")))  # without an optimizer, it replaces the value
store.pull("t", out)
assert out.asnumpy()[:, 0].tolist() == [2.0] * size + [0.0] * (ROWS - size)
store.replace("t", whole)
store.pull("t", out)
np.testing.assert_array_equal(out.asnumpy(), start)
# the others are at the barrier
begin = time.monotonic()
if rank == 1:
    expect(
        StateError,
        f"t is spread over {size} processes: rank 1 asked for all of it, but not rank 0",
        lambda: store.pull("t", out),
    )
store.barrier()
assert time.monotonic() - begin < 10
expect(StateError, "cannot save optimizer states", lambda: store.save_optimizer_states("x"))

# a row outside is an error everywhere
wrong = mx.nd.array([rank, ROWS if rank == size - 1 else 0])
expect(
    BoundsError,
    f"t: rank {size - 1} looks up row {ROWS} of a table with {ROWS} rows",
    lambda: store.row_sparse_pull("t", mx.nd.zeros((ROWS, WIDTH), stype="row_sparse"), row_ids=wrong),
)
store.barrier()
