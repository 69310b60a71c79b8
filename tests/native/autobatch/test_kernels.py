"""Kernels of the native engine: accuracy, odd numbers and sizes, against float64; other instruction sets."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import torch

import dpmodule.autobatch as dy
from dpmodule import native
from helpers.programs import run_program
from helpers.walk import walks

pytestmark = pytest.mark.skipif(native.core is None, reason="no native extension")
INF, NAN = np.inf, np.nan


@pytest.fixture(autouse=True)
def _autobatch():
    dy.configure(engine="native", autobatch=True)
    yield
    dy.configure(engine="auto", autobatch=False)


@pytest.mark.parametrize(
    ("ours", "theirs"), [(dy.tanh, np.tanh), (dy.logistic, lambda x: 1 / (1 + np.exp(-x))), (dy.exp, np.exp)]
)
def test_accuracy(ours, theirs):
    x = np.concatenate([np.linspace(-30, 30, 20001), np.linspace(-1, 1, 20001), [1e-30, -1e-30, 0.0]]).astype(
        "f4"
    )
    found, wanted = ours(dy.inputTensor(x)).npvalue(), theirs(x.astype("f8"))
    assert np.max(np.abs(found - wanted) / np.maximum(np.abs(wanted), 1e-35)) < 5e-7


def test_limits():
    x = dy.inputTensor([INF, -INF, NAN, 100.0, -200.0, 88.0])
    np.testing.assert_allclose(dy.tanh(x).npvalue(), [1, -1, NAN, 1, -1, 1])
    np.testing.assert_allclose(dy.logistic(x).npvalue(), [1, 0, NAN, 1, 0, 1], atol=1e-37)
    np.testing.assert_allclose(dy.exp(x).npvalue(), [INF, 0, NAN, INF, 0, np.exp(88.0)], rtol=1e-6)
    assert np.isnan(dy.rectify(x).npvalue()[2])


OF_ONE = [
    *[(getattr(dy, name), getattr(torch, name)) for name in ("tanh", "exp", "sqrt", "log", "square", "abs")],
    *((dy.logistic, torch.sigmoid), (dy.rectify, torch.relu), (dy.cube, lambda x: x**3)),
    (lambda x: dy.elu(x - 1.5, 0.7), lambda x: torch.where(x > 1.5, x - 1.5, 0.7 * torch.expm1(x - 1.5))),
    (dy.softsign, lambda x: x / (1 + x.abs())),
    *[(f, f) for f in (lambda x: 0.7 / x, lambda x: x * 0.7, lambda x: 0.7 - x)],
]
OF_TWO = [
    *[(f, f) for f in (lambda x, y: x + y, lambda x, y: x - y)],
    *((dy.cmult, torch.mul), (dy.cdiv, torch.div), (dy.bmax, torch.maximum), (dy.bmin, torch.minimum)),
]


@walks(product([1, 7, 16, 33], [(1, *each) for each in OF_ONE] + [(2, *each) for each in OF_TWO]))
def test_elements_of_vectors_of_every_width(width, case):
    count, ours, theirs = case
    arrays = np.random.RandomState(width).uniform(0.5, 2, (5, count, width)).astype("f4")
    xs = [[dy.inputTensor(array) for array in row] for row in arrays]
    ys = [ours(*row) for row in xs]
    dy.esum([dy.dot_product(y, dy.square(row[0])) for y, row in zip(ys, xs)]).backward(full=True)
    for y, row, given in zip(ys, xs, arrays):
        tensors = [torch.tensor(each, dtype=torch.float64, requires_grad=True) for each in given]
        wanted = theirs(*tensors)
        (wanted * tensors[0].square()).sum().backward()
        np.testing.assert_allclose(y.npvalue(), wanted.detach(), rtol=1e-6, atol=1e-6)
        for x, tensor in zip(row, tensors):
            np.testing.assert_allclose(x.gradient(), tensor.grad, rtol=2e-5, atol=1e-5)


SIZES = [(1, 1), (3, 5), (50, 200), (400, 9)]


@walks(product([1, 2, 5, 13, 64, 700], SIZES))
def test_products(rows, sizes):
    """Of a matrix with so many vectors; the vectors are words of a table, some of them the same."""
    (inner, outer), draw, m = sizes, np.random.RandomState(rows), dy.ParameterCollection()
    arrays = [
        (draw.normal(size=shape) / shape[-1] ** 0.5).astype("f4")
        for shape in ((outer, inner), (outer,), (max(1, rows * 2 // 3), inner))
    ]
    w, b = (m.parameters_from_numpy(array) for array in arrays[:2])
    table, places = m.lookup_parameters_from_numpy(arrays[2]), [k % len(arrays[2]) for k in range(rows)]
    found = [dy.affine_transform([b, w, table[place]]) for place in places]
    dy.esum([dy.squared_norm(dy.tanh(each)) for each in found]).backward()
    tw, tb, tt = (torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in arrays)
    wanted = tt[places] @ tw.T + tb
    torch.tanh(wanted).square().sum().backward()
    for one, other in (
        (np.stack(dy.npvalues(found)), wanted.detach()),
        *((p.grad_as_array(), t.grad) for p, t in zip((w, b, table), (tw, tb, tt))),
    ):
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * max(1, float(other.abs().max())))


@pytest.mark.parametrize("isa", ["avx512", "avx2", "plain"])
def test_instruction_sets(isa):
    """Random graphs with other kernels, where this CPU has them; the choice is made once a process."""
    code = "from autobatch import test_random_graphs as t; t.on_each_engine(range(12), size=17)"
    done = run_program(code, DPMODULE_ISA=isa)
    assert done.returncode == 0, done.stderr[-2000:]
