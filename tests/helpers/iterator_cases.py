"""What iterators give, for MXNet, which recorded it (data/record_mxnet.py), and for this package.

Data are ``x[i] = (2 i, 2 i + 1)`` and labels ``y[i] = i``; a batch is [first column, labels, pad].
"""

from itertools import product

import numpy as np


def arrays(n):
    return np.arange(2 * n, dtype="f4").reshape(n, 2), np.arange(n, dtype="f4")


def of_kind(mx, kind, n):
    """Return data, labels and layout of one of the kinds dense, csr, ragged and TN."""
    data, labels = arrays(n)
    if kind == "csr":
        data = mx.nd.sparse.csr_matrix(data)
    if kind == "ragged":
        data = {"data": [[float(i)] * (i % 3 + 1) for i in range(n)]}
    return (data.T.copy(), labels[None], "TN") if kind == "TN" else (data, labels, "NCHW")


def batch(b):
    return [b.data[0].asnumpy()[:, 0].tolist(), b.label[0].asnumpy().tolist(), b.pad]


def epochs(it, count, reset_first=False):
    found = []
    for _ in range(count):
        if reset_first:
            it.reset()
        found.append([batch(b) for b in it])
        if not reset_first:
            it.reset()
    return found


def described(it):
    descs = (it.provide_data, it.provide_label)
    return [[[d.name, list(d.shape), np.dtype(d.dtype).name, d.layout] for d in each] for each in descs]


def told(mx):
    """Return what is compared, by name."""

    def make(n, size, **options):
        return mx.io.NDArrayIter(*arrays(n), batch_size=size, **options)

    (x, y), handles, found = arrays(11), ("pad", "discard", "roll_over"), {}
    for handle, n, first in product(handles, (11, 12, 2), (True, False)):
        it = make(n, 4, last_batch_handle=handle)
        found[f"{handle} {n} {first}"] = epochs(it, 3, first)
    for handle in handles:
        np.random.seed(5)
        it = make(7, 3, shuffle=True, last_batch_handle=handle)
        found[f"shuffled {handle}"] = [epochs(it, 4), it.idx.tolist()]
    named = mx.io.NDArrayIter({"b": x, "a": x * 2}, {"l2": y, "l1": y + 1}, batch_size=5)
    found["dict"] = [*described(named), next(named).data[0].asnumpy()[1].tolist()]
    found["list"] = described(mx.io.NDArrayIter([x, x * 3], y, batch_size=5))
    for n in (1, 2, 3):
        it = mx.io.NDArrayIter(arrays(n)[0], batch_size=7)
        found[f"wrapped {n}"] = [b.data[0].asnumpy()[:, 0].tolist() for b in it]
    found["resized"] = epochs(mx.io.ResizeIter(make(11, 4, last_batch_handle="discard"), 5), 2)
    found["resized without reset"] = epochs(mx.io.ResizeIter(make(11, 4), 2, reset_internal=False), 3)
    twice = mx.io.NDArrayIter(x * 2, y * 2, batch_size=4)
    names = [{"data": "d1"}, {"data": "d2"}], [{"softmax_label": "l1"}, {"softmax_label": "l2"}]
    joined = mx.io.PrefetchingIter([make(11, 4), twice], *names)
    found["joined"] = described(joined)
    for b in joined:
        found["joined"].append([[a.asnumpy().tolist() for a in (*b.data, *b.label)], b.pad])
    getattr(joined, "close", int)()
    return found
