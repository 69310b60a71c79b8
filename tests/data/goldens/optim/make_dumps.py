"""Record updaters of MXNet 1.9.1 dumped with their optimizer, and how their training goes on.

usage: python make_dumps.py        (in an environment with mxnet 1.9.1; rewrites the file beside it)

`dumps.npz` holds for each case of `CASES`, `<case>` being its name: the dump after three updates as bytes
(`<case>/dump`), the two parameters then (`<case>/before<i>`), the gradients of two further updates
(`<case>/grad<i>_<t>`) and the parameters after them (`<case>/after<i>`).
"""

import os

import mxnet as mx
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
NAMES = {0: "fc_weight", 1: "fc_bias"}
SHAPES = [(3, 2), (3,)]
HALF = {"multi_precision": True}
CASES = {
    "sgd": ("sgd", {"momentum": 0.9, "wd": 0.1}, "float32"),
    "nag": ("nag", {"momentum": 0.9}, "float32"),
    "adam": ("adam", {}, "float32"),
    "adagrad": ("adagrad", {}, "float32"),
    "rmsprop": ("rmsprop", {"centered": True}, "float32"),
    "adadelta": ("adadelta", {"wd": 0.1}, "float32"),
    "adamax": ("adamax", {}, "float32"),
    "nadam": ("nadam", {}, "float32"),
    "ftrl": ("ftrl", {}, "float32"),
    "ftml": ("ftml", {}, "float32"),
    "signum": ("signum", {"wd_lh": 0.1}, "float32"),
    "sgld": ("sgld", {}, "float32"),
    "dcasgd": ("dcasgd", {}, "float32"),
    "lars": ("lars", {"momentum": 0.9, "eta": 0.1, "wd": 0.1}, "float32"),
    "lamb": ("lamb", {"wd": 0.1}, "float32"),
    "lbsgd": ("lbsgd", {"momentum": 0.9, "batch_scale": 2, "warmup_epochs": 1}, "float32"),
    "ccsgd": ("ccsgd", {"momentum": 0.9}, "float32"),
    "test": ("test", {}, "float32"),
    "groupadagrad": ("groupadagrad", {}, "float32"),
    "lamb_half": ("lamb", HALF, "float16"),
    "lars_half": ("lars", dict(HALF, momentum=0.9, eta=0.1), "float16"),
    "ftml_half": ("ftml", HALF, "float16"),
    "adam_schedule": ("adam", {"schedule": {"step": 2, "factor": 0.5, "base_lr": 0.2}}, "float32"),
}


def run(name, kind, kwargs, dtype, out):
    kwargs = dict(kwargs)
    if "schedule" in kwargs:
        kwargs["lr_scheduler"] = mx.lr_scheduler.FactorScheduler(**kwargs.pop("schedule"))
    else:
        kwargs["learning_rate"] = 0.1
    optimizer = mx.optimizer.create(kind, param_idx2name=dict(NAMES), **kwargs)
    update = mx.optimizer.get_updater(optimizer)
    shapes = [(3, 2), (4, 1)] if kind == "groupadagrad" else SHAPES
    rng = np.random.RandomState(0)
    weights = [mx.nd.array(rng.randn(*shape), dtype=dtype) for shape in shapes]

    def step(t):
        for i, weight in enumerate(weights):
            grad = mx.nd.array(rng.randn(*weight.shape), dtype=dtype)
            out["%s/grad%d_%d" % (name, i, t)] = grad.asnumpy()
            update(i, grad, weight)

    for t in range(3):
        step(t)
    out[name + "/dump"] = np.frombuffer(update.get_states(dump_optimizer=True), np.uint8)
    for i, weight in enumerate(weights):
        out["%s/before%d" % (name, i)] = weight.asnumpy()
    for t in range(2):
        step(t)
    for i, weight in enumerate(weights):
        out["%s/after%d" % (name, i)] = weight.asnumpy()


def main():
    out = {}
    for name, case in CASES.items():
        run(name, *case, out)
    np.savez_compressed(os.path.join(HERE, "dumps.npz"), **out)


if __name__ == "__main__":
    main()
