"""Record what optimizers of MXNet 1.9.1 make of row-sparse gradients.

usage: python make_sparse.py        (in an environment with mxnet 1.9.1; rewrites the file beside it)

`sparse.npz` holds the first parameter (`weight`), the rows and values of four gradients (`rows<t>`, `values<t>`), and by
case of `CASES` and storage type of the parameter (`<case>/<stype>/w`) the parameter after each step, stacked, and
the last state, flattened (`<case>/<stype>/state/<position>`).
"""

import os

import mxnet as mx
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
ROWS = [[0, 2, 5], [1], [0, 1, 2, 3, 4, 5], [4, 5]]
CASES = {
    "sgd": ("sgd", {"wd": 0.1}),
    "sgd_momentum": ("sgd", {"wd": 0.1, "momentum": 0.9, "clip_gradient": 0.5, "rescale_grad": 0.5}),
    "sgd_std": ("sgd", {"wd": 0.1, "momentum": 0.9, "lazy_update": False}),
    "adam": ("adam", {"wd": 0.1, "clip_gradient": 0.5}),
    "adam_std": ("adam", {"wd": 0.1, "lazy_update": False}),
    "ftrl": ("ftrl", {"wd": 0.1}),
    "groupadagrad": ("groupadagrad", {}),
    "rmsprop": ("rmsprop", {"wd": 0.1}),
    "signum": ("signum", {"wd": 0.1}),
    "lamb": ("lamb", {"wd": 0.1}),
}


def flat(state):
    if state is None:
        return []
    return [state] if isinstance(state, mx.nd.NDArray) else [a for part in state for a in flat(part)]


def main():
    rng = np.random.RandomState(0)
    out = {"weight": rng.randn(6, 3).astype("float32")}
    for t, rows in enumerate(ROWS):
        out["rows%d" % t] = np.array(rows)
        out["values%d" % t] = rng.randn(len(rows), 3).astype("float32")
    for case, (name, kwargs) in CASES.items():
        for stype in ("default", "row_sparse"):
            optimizer = mx.optimizer.create(name, param_idx2name={0: "w_weight"}, learning_rate=0.1, **kwargs)
            update = mx.optimizer.get_updater(optimizer)
            weight, steps = mx.nd.array(out["weight"]).tostype(stype), []
            for t, rows in enumerate(ROWS):
                grad = mx.nd.sparse.row_sparse_array((out["values%d" % t], rows), shape=(6, 3))
                update(0, grad, weight)
                steps.append(weight.asnumpy())
            out["%s/%s/w" % (case, stype)] = np.stack(steps)
            for i, array in enumerate(flat(update.states[0])):
                out["%s/%s/state/%d" % (case, stype, i)] = array.asnumpy()
    np.savez_compressed(os.path.join(HERE, "sparse.npz"), **out)


if __name__ == "__main__":
    main()
