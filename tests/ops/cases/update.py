"""Cases of the update operators: recorded steps of MXNet 1.9.1 (data/goldens/update), and formulas of the others."""

import json

import numpy as np

from helpers.arrays import f4
from helpers.op_case import OpCase
from helpers.op_tables import GOLDENS

rng = np.random.RandomState(5)
STEP = "an optimizer's step has no gradient in MXNet"
CLIPPED = {"rescale_grad": 2.0, "clip_gradient": 0.5}
ADA = {"lr": 0.5, "epsilon": 0.25, **CLIPPED}
LAMB = {"t": 3, "beta1": 0.5, "beta2": 0.75, "epsilon": 0.25, "wd": 0.125, **CLIPPED}
W, G = rng.uniform(-1, 1, (2, 2, 3))
HISTORY, ROWS = rng.rand(2, 3), rng.rand(2, 1)
HALVES = W.astype("f2"), G.astype("f2"), f4(HISTORY), f4(HISTORY[::-1]), W.astype("f2").astype("f4")


def adagrad(mean):
    def expect(w, g, history):
        g = np.clip(2.0 * g, -0.5, 0.5)
        squares = (g**2).mean(1, keepdims=True) if mean else g**2
        return w - 0.5 * g / np.sqrt(history + squares + 0.25)

    return expect


def lamb(w, g, mean, var, copy):
    g = np.clip(2.0 * g.astype("f8"), -0.5, 0.5)
    mean, var = (0.5 * mean + 0.5 * g) / (1 - 0.5**3), (0.75 * var + 0.25 * g**2) / (1 - 0.75**3)
    return (mean / (np.sqrt(var) + 0.25) + 0.125 * copy).astype("f4")


def squares(*arrays):
    return f4([(x**2).sum() for x in arrays])


def recorded():
    """Yield two steps of each operator; halves are compared in update/test_goldens.py alone."""
    folder = GOLDENS.parent / "update"
    calls, arrays = json.loads((folder / "update.json").read_text()), dict(np.load(folder / "update.npz"))
    numbers = {call["op"]: number for number, call in enumerate(calls)}
    first = {call["op"]: number for number, call in reversed([*enumerate(calls)])}
    for number in sorted({*numbers.values(), *first.values()}):
        call = calls[number]
        inputs = tuple(arrays[f"c{number}/in{i}"] for i in range(call["inputs"]))
        outs = [call["out"]] if isinstance(call["out"], int) else call["out"]
        wanted = tuple(arrays.get(f"c{number}/after{i}", inputs[i]) for i in outs)
        exact = all(each.dtype == np.float32 for each in wanted)
        attrs = {k: v for k, v in call["attrs"].items() if "num_" not in k}
        attrs = {k: tuple(v) if isinstance(v, list) else v for k, v in attrs.items()}
        yield OpCase(call["op"], inputs, attrs, (lambda *_, w=wanted: w) if exact else None, no_grad=STEP)


CASES = [
    *recorded(),
    OpCase("_sparse_adagrad_update", (W, G, HISTORY), ADA, adagrad(False), no_grad=STEP),
    OpCase("_contrib_group_adagrad_update", (W, G, ROWS), ADA, adagrad(True), no_grad=STEP),
    OpCase("mp_lamb_update_phase1", HALVES, LAMB, lamb, no_grad=STEP),
    OpCase("multi_sum_sq", (W, G[0], ROWS), {}, squares, no_grad=STEP),
    OpCase("reset_arrays", (W, G[0]), {}, lambda *arrays: (), no_grad=STEP),
]
