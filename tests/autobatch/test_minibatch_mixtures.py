"""Every operation on examples with and without minibatches, of several sizes, in one graph.

What is drawn: the size of every example's minibatch, and whether each operand has it, is the example's own, a parameter
or a row of a table. Both engines, batched and one by one, are held to the Python engine in float64, one by one.
"""

from __future__ import annotations

import numpy as np
import pytest

import dpmodule.autobatch as dy
from helpers.autobatch_cases import BATCHED, CASES, total, values
from helpers.both_engines import distances
from helpers.walk import walks

ALL = {**CASES, **BATCHED}
EXAMPLES, ROWS = 5, 4
SIZES = [1, 2, 3, 8]
AFTER = [lambda y: y, dy.tanh, lambda y: y * 0.5, dy.logistic]
MANNERS = [("float32", "python", True), ("float32", "auto", False), ("float32", "auto", True)]


@pytest.fixture(autouse=True)
def _back():
    yield
    dy.configure(autobatch=False, dtype="float32", engine="auto")


def rounded(arrays):
    return {name: array.astype(np.float32).astype(np.float64) for name, array in arrays.items()}


class Operands:
    """Draws where the operands of an operation come from; the same ones from the same seed."""

    def __init__(self, names, seed):
        self.draw = np.random.RandomState(seed)
        shared, rows = rounded(values(0, seed + 1)), rounded(values(ROWS, seed + 2))
        self.collection = dy.ParameterCollection()
        self.parameters = {name: self.collection.parameters_from_numpy(shared[name]) for name in names}
        self.tables = {
            name: self.collection.lookup_parameters_from_numpy(np.moveaxis(rows[name], -1, 0))
            for name in names
        }
        self.inputs = []

    def one(self, name, size):
        """Return an operand, with a minibatch of `size` or without."""
        kind = self.draw.randint(5)
        if kind == 0:
            return self.parameters[name] + 0.0 if self.draw.randint(2) else self.parameters[name]
        if kind == 1:
            return self.tables[name][int(self.draw.randint(ROWS))]
        if kind == 2:
            return dy.lookup_batch(self.tables[name], self.draw.randint(0, ROWS, size).tolist())
        batch = size if kind == 3 else 0
        array = rounded(values(batch, int(self.draw.randint(1000))))[name]
        self.inputs.append(dy.inputTensor(array, batched=batch > 0))
        return self.inputs[-1]


def run(name, seed, manner):
    """Return the values, and gradients of all that has one; texts of errors where operands do not go together."""
    dtype, engine, autobatch = manner
    dy.configure(dtype=dtype, autobatch=autobatch, engine=engine)
    dy.renew_cg()
    names, function = ALL[name]
    operands = Operands(names, seed)
    found, losses = [], []
    for number in range(EXAMPLES):
        size = 3 if name in BATCHED else int(operands.draw.choice(SIZES))
        xs = [operands.one(each, size) for each in names]
        after = AFTER[operands.draw.randint(len(AFTER))]
        try:
            y = function(dy, *xs)
        except (dy.ShapeError, dy.BoundsError):
            found.append(np.zeros(0))
            continue
        found.append(y)
        losses.append(total(dy, after(y), np.roll(np.linspace(-1, 1, 11), 3 * number)))
    if losses:
        dy.esum(losses).backward(full=True)
    found = [y if isinstance(y, np.ndarray) else y.npvalue() for y in found]
    found += [x.gradient() for x in operands.inputs if losses]
    for each in (*operands.parameters.values(), *operands.tables.values()):
        found.append(each.grad_as_array())
    return found


def compare(name, seed):
    wanted = run(name, seed, ("float64", "python", False))
    rounding = distances(run(name, seed, ("float32", "python", False)), wanted)
    assert rounding.max() < 1e-3
    assert distances(run(name, seed, ("float64", "python", True)), wanted).max() < 1e-12
    for manner in MANNERS:
        far = distances(run(name, seed, manner), wanted)
        assert (far <= 1e-5 + 4 * rounding).all(), f"{name}, seed {seed}, {manner}: {far}, {rounding}"


@walks(ALL, family=lambda name: f"{len(ALL[name][0])} operands")
def test_every_operation(name):
    for seed in range(2):
        compare(name, 1000 * seed)


@pytest.mark.slow
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("name", ALL)
def test_every_operation_often(name):
    for seed in range(60):
        compare(name, 7000 + seed)
