"""Record what MXNet 1.9.1's iterators yield: ``python make_iterators.py`` in an environment with that MXNet.

Data are ``x[i] = (2 i, 2 i + 1)`` and labels ``y[i] = i``; a batch is written as [first column, labels, pad].
"""

import json
import os

import mxnet as mx
import numpy as np

HANDLES = ("pad", "discard", "roll_over")


def arrays(n):
    return np.arange(2 * n, dtype="f4").reshape(n, 2), np.arange(n, dtype="f4")


def batch(b):
    return [b.data[0].asnumpy()[:, 0].tolist(), b.label[0].asnumpy().tolist(), b.pad]


def lists(arrays):
    return [a.asnumpy().tolist() for a in arrays]


def epochs(it, reset_first, count=3):
    found = []
    for _ in range(count):
        if reset_first:
            it.reset()
        found.append([batch(b) for b in it])
        if not reset_first:
            it.reset()
    return found


def descriptions(descs):
    return [[d.name, list(d.shape), np.dtype(d.dtype).name, d.layout] for d in descs]


def sequences():
    cases = []
    for handle in HANDLES:
        for n in (11, 12, 2):
            for reset_first in (True, False):
                it = mx.io.NDArrayIter(*arrays(n), batch_size=4, last_batch_handle=handle)
                found = epochs(it, reset_first)
                cases.append({"n": n, "handle": handle, "reset_first": reset_first, "epochs": found})
    return cases


def shuffled():
    cases = []
    for handle in HANDLES:
        np.random.seed(5)
        it = mx.io.NDArrayIter(*arrays(7), batch_size=3, shuffle=True, last_batch_handle=handle)
        found = epochs(it, False, 4)
        cases.append({"n": 7, "handle": handle, "seed": 5, "epochs": found, "idx": it.idx.tolist()})
    return cases


def main():
    x, y = arrays(11)
    named = mx.io.NDArrayIter({"b": x, "a": x * 2}, {"l2": y, "l1": y + 1}, batch_size=5)
    several = mx.io.NDArrayIter([x, x * 3], y, batch_size=5)
    resized = mx.io.ResizeIter(mx.io.NDArrayIter(x, y, batch_size=4, last_batch_handle="discard"), 5)
    kept = mx.io.ResizeIter(mx.io.NDArrayIter(x, y, batch_size=4), 2, reset_internal=False)
    joined = mx.io.PrefetchingIter(
        [mx.io.NDArrayIter(x, y, batch_size=4), mx.io.NDArrayIter(x * 2, y * 2, batch_size=4)],
        rename_data=[{"data": "d1"}, {"data": "d2"}],
        rename_label=[{"softmax_label": "l1"}, {"softmax_label": "l2"}],
    )
    found = {
        "sequences": sequences(),
        "shuffled": shuffled(),
        "dict": [descriptions(named.provide_data), descriptions(named.provide_label)],
        "list": [descriptions(several.provide_data), descriptions(several.provide_label)],
        "wrapped": [
            [n, [b.data[0].asnumpy()[:, 0].tolist() for b in mx.io.NDArrayIter(arrays(n)[0], batch_size=7)]]
            for n in (1, 2, 3)
        ],
        "resized": epochs(resized, False, 2),
        "resized_without_reset": epochs(kept, False, 3),
        "joined": [
            descriptions(joined.provide_data),
            descriptions(joined.provide_label),
            [[lists(b.data), lists(b.label), b.pad] for b in joined],
        ],
    }
    with open(os.path.join(os.path.dirname(os.path.abspath(__file__)), "iterators.json"), "w") as file:
        json.dump(found, file, separators=(",", ":"))
        file.write("\n")


if __name__ == "__main__":
    main()
