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
    ("ours", "theirs"), [(dy.tanh, torch.tanh), (dy.logistic, torch.sigmoid), (dy.exp, torch.exp)]
)
def test_accuracy(ours, theirs):
    x = np.concatenate([np.linspace(-30, 30, 20001), np.linspace(-1, 1, 20001), [1e-30, -1e-30, 0.0]])
    found = ours(dy.inputTensor(x)).npvalue()
    np.testing.assert_allclose(found, theirs(torch.tensor(x.astype("f4")).double()), rtol=5e-7, atol=0)
    odd = [INF, -INF, NAN, 100.0, -200.0, 88.0]
    np.testing.assert_allclose(
        ours(dy.inputTensor(odd)).npvalue(), theirs(torch.tensor(odd)), rtol=1e-6, atol=1e-37
    )


SIZES = [(1, 1), (3, 5), (50, 200), (400, 9)]


@walks(product([1, 2, 5, 13, 64, 700], SIZES))
def test_products(rows, sizes):
    """Of a matrix with so many vectors; the vectors are words of a table, some of them the same."""
    (inner, outer), draw, m = sizes, np.random.RandomState(rows), dy.ParameterCollection()
    shapes = ((outer, inner), (outer,), (max(1, rows * 2 // 3), inner))
    arrays = [(draw.normal(size=shape) / shape[-1] ** 0.5).astype("f4") for shape in shapes]
    w, b = (m.parameters_from_numpy(array) for array in arrays[:2])
    table, places = m.lookup_parameters_from_numpy(arrays[2]), [k % len(arrays[2]) for k in range(rows)]
    found = [dy.affine_transform([b, w, table[place]]) for place in places]
    dy.esum([dy.squared_norm(dy.tanh(each)) for each in found]).backward()
    tw, tb, tt = (torch.tensor(array, dtype=torch.float64, requires_grad=True) for array in arrays)
    wanted = tt[places] @ tw.T + tb
    torch.tanh(wanted).square().sum().backward()
    pairs = [(p.grad_as_array(), t.grad) for p, t in zip((w, b, table), (tw, tb, tt))]
    for one, other in [*pairs, (dy.npvalues(found), wanted.detach())]:
        np.testing.assert_allclose(one, other, rtol=0, atol=1e-5 * max(1, float(other.abs().max())))


@pytest.mark.parametrize("isa", ["avx2", "plain"])
def test_instruction_sets(isa):
    """Random graphs with other kernels, where this CPU has them; the choice is made once a process."""
    code = "from autobatch import test_random_graphs as t; t.on_each_engine(range(12), size=17)"
    done = run_program(code, DPMODULE_ISA=isa)
    assert done.returncode == 0, done.stderr[-2000:]
