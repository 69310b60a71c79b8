"""Record what optimizers of MXNet 1.9.1 make of given gradients.

usage: python make_optimizers.py        (in an environment with mxnet 1.9.1; rewrites the files beside it)

`optimizers.json` lists the cases; `inputs.npz` holds the parameters and gradients they start from, `optimizers.npz`
the parameters after each step (first axis) and, as `<case>/state<i>`, the flattened states after the last.
`states.npz` holds the arrays of the `.states` files in the folder `module`, by `<file>/<index>/<position>`.
"""

import json
import os

import mxnet as mx
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {0: "fc_weight", 1: "fc_bias", 2: "bn_gamma"}


def flat(state):
    if state is None:
        return []
    return [state] if isinstance(state, mx.nd.NDArray) else [a for part in state for a in flat(part)]


def run(case, inputs, out):
    kwargs = dict(case["kwargs"])
    if "schedule" in case:
        kwargs["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(**case["schedule"])
    optimizer = mx.optimizer.create(case["optimizer"], param_idx2name=dict(NAMES), **kwargs)
    if "lr_mult" in case:
        optimizer.set_lr_mult(case["lr_mult"])
        optimizer.set_wd_mult(case["wd_mult"])
    update = mx.optimizer.get_updater(optimizer)
    weights = [mx.nd.array(inputs["w%d" % i], dtype=case["dtype"]) for i in NAMES]
    steps = [[] for _ in NAMES]
    for t in range(case["steps"]):
        for i in NAMES:
            update(i, mx.nd.array(inputs["g%d_t%d" % (i, t % 5)], dtype=case["dtype"]), weights[i])
            steps[i].append(weights[i].asnumpy())
    for i in NAMES:
        out["%s/w%d" % (case["name"], i)] = np.stack(steps[i])
        for j, array in enumerate(flat(update.states[i])):
            out["%s/state%d/%d" % (case["name"], i, j)] = array.asnumpy()


def states(out):
    for name in ("mlp-0010.states", "lenet_bn-0010.states"):
        update = mx.optimizer.get_updater(mx.optimizer.Test())
        with open(os.path.join(HERE, "..", "module", name), "rb") as file:
            update.set_states(file.read())
        for index, state in update.states.items():
            for j, array in enumerate(flat(state)):
                out["%s/%s/%d" % (name, index, j)] = array.asnumpy()


def main():
    with open(os.path.join(HERE, "optimizers.json")) as file:
        cases = json.load(file)
    inputs = np.load(os.path.join(HERE, "inputs.npz"))
    out = {}
    for case in cases:
        run(case, inputs, out)
    np.savez_compressed(os.path.join(HERE, "optimizers.npz"), **out)
    out = {}
    states(out)
    np.savez_compressed(os.path.join(HERE, "states.npz"), **out)


if __name__ == "__main__":
    main()
