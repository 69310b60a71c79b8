"""Three processes share a store."""

import numpy as np

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.dist_programs import create, data, expect, mlp, params, train

first = create()
rank, size = first.rank, first.num_workers
assert (first.type, size, first.is_capable("optimizer")) == ("dist_sync", 3, True)
first.init(["a", "b"], [mx.nd.full((2, 3), rank + 5), mx.nd.full((4,), rank, dtype="float64")])
a, b = mx.nd.zeros((2, 3)), mx.nd.zeros((4,), dtype="float64")
first.pull(["a", "b"], [a, b])
assert (a.asnumpy() == 5).all()  # that of rank 0
assert (b.asnumpy() == 0).all()
devices = [mx.nd.full((2, 3), rank + 1, ctx=mx.cpu(k)) for k in range(2)]
first.pushpull(["a", "b"], [devices, mx.nd.full((4,), 10.0**rank, dtype="float64")], [a, b])
assert (a.asnumpy() == 12).all()
assert (b.asnumpy() == 111).all()
assert (devices[0].asnumpy() == rank + 1).all()
first.barrier()


def of_rows(*numbers):
    values = np.ones((len(numbers), 2), np.float32)
    return mx.nd.sparse.row_sparse_array((values, list(numbers)), shape=(9, 2))


first.init("r", of_rows(8) if rank == 0 else of_rows(1, 2))
rows = mx.nd.zeros((9, 2), stype="row_sparse")
first.row_sparse_pull("r", rows, row_ids=mx.nd.array([1, 8]))
assert rows.asnumpy()[:, 0].tolist() == [0, 0, 0, 0, 0, 0, 0, 0, 1]
first.push("r", of_rows(*range(rank)))  # none, one, two of them
first.row_sparse_pull("r", rows, row_ids=mx.nd.array([0, 1, 2]))
assert rows.asnumpy()[:, 1].tolist() == [2, 1, 0, 0, 0, 0, 0, 0, 0]

coded, out = create("dist_device_sync"), mx.nd.zeros((5,))
coded.init("w", out)
coded.set_gradient_compression({"type": "2bit", "threshold": 0.5})
for wanted in ([1.5, -1.5, 0, 0, 1.5], [1.5, -1.5, 0, 1.5, 1.5]):
    coded.pushpull("w", mx.nd.array([0.6, -0.7, 0.1, 0.3, 2]), out)
    assert out.asnumpy().tolist() == wanted

calls, own = [], create()
own.init("w", mx.nd.ones((2,)))
own._set_updater(lambda key, pushed, stored: calls.append((key, pushed.asnumpy().tolist())))
own.push("w", mx.nd.full((2,), rank))
assert calls == [("w", [3, 3])]

loose = create("dist_async", average_every=2)
loose.init("w", mx.nd.zeros((2,)))
loose.set_optimizer(mx.optimizer.SGD(learning_rate=1.0))
for wanted in (-rank, -2):  # the mean of 0, -2 and -4
    loose.pushpull("w", mx.nd.full((2,), rank), out := mx.nd.zeros((2,)))
    assert (out.asnumpy() == wanted).all()

keys = ["w", "v"][: 1 + (rank != 1)]
text = "the networks of rank 1 and rank 0 differ: 1 keys instead of 2 keys"
expect(ArgumentError, text, lambda: create().init(keys, [mx.nd.zeros((2,))] * len(keys)))
text = expect(ArgumentError, "rank 2", lambda: create().init("w", mx.nd.zeros((2 + (rank == 2),))))
assert "(3,)" in text

# three uneven parts: each continues until the last is done
x, y = data(rows=48)
limits = [0, 10, 40, 48]
mine = slice(*limits[rank : rank + 2])
for kind, options in (("dist_sync", {}), ("dist_sync", {"accumulate": 2}), ("dist_async", {})):
    module, history = train(mlp(), x[mine], y[mine], 4, create(kind), **options)
    values = first.ranks.gather((params(module)["one_weight"].tolist(), history["train-accuracy"]))
    assert values[0] == values[1] == values[2]
    assert [row["batch"] for row in history] == [(3, 8, 2)[rank]] * 2
