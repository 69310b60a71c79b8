"""Matrices in torch modules: factors, linear systems, determinants and distances."""

import pytest
import torch
from torch import nn

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.torch_import import Functions, compare

EYE = 3 * torch.eye(3)


def positive(x):
    return x @ x.mT + EYE


def test_linear_systems():
    functions = {
        "matrix": lambda x, y: torch.linalg.solve(positive(x), y),
        "vector": lambda x, y: torch.linalg.solve(positive(x), y[:, :, 0]),
        "one_matrix": lambda x, y: torch.linalg.solve(EYE + 1, y),
        "from_the_right": lambda x, y: torch.linalg.solve(positive(x), y.mT, left=False),
        "triangular": lambda x, y: torch.linalg.solve_triangular(positive(x), y, upper=True),
        "triangular_right": lambda x, y: torch.linalg.solve_triangular(
            positive(x), y.mT, upper=False, left=False
        ),
        "by_factor": lambda x, y: torch.cholesky_solve(y, torch.linalg.cholesky(positive(x))),
        "by_upper_factor": lambda x, y: torch.cholesky_solve(
            y, torch.linalg.cholesky(positive(x), upper=True), upper=True
        ),
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 3, 3), torch.randn(n, 3, 2)), tolerance=1e-4)


def test_factors_and_determinants():
    functions = {
        "lower": lambda x: torch.linalg.cholesky(positive(x)),
        "upper": lambda x: torch.linalg.cholesky(positive(x), upper=True),
        "inverse": lambda x: torch.linalg.inv(positive(x)) + torch.inverse(positive(x) + EYE),
        "det": lambda x: torch.linalg.det(positive(x)) / 100,
        "slogdet": lambda x: torch.linalg.slogdet(-positive(x)),
        "logdet": lambda x: torch.logdet(positive(x)),
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 3, 3),), tolerance=1e-4)
    single = {"one": lambda x: torch.linalg.solve(positive(x[:, :3].T @ x[:, :3]), x[0, :3])}
    compare(Functions(single), lambda n: (torch.randn(n, 4),), tolerance=1e-4)


def test_distances():
    functions = {
        f"p_{p}": lambda x, y, p=p: torch.cdist(x, y, p=p) for p in (1.0, 1.5, 2.0, 3.0, float("inf"))
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 5, 3), torch.randn(n, 4, 3)), tolerance=1e-4)
    # of equal points the distance has a gradient of 0
    itself = {"itself": lambda x: torch.cdist(x, x), "points": lambda x: torch.cdist(x[:, 0], x[:3, 1])}
    compare(Functions(itself), lambda n: (torch.randn(n, 5, 3),), tolerance=1e-4)


def test_factors_without_a_counterpart_are_named():
    class Net(nn.Module):
        def forward(self, x):
            return torch.linalg.eigh(positive(x))[0], torch.linalg.cholesky(positive(x))

    with pytest.raises(ArgumentError, match="_linalg_eigh.default, which has no translation"):
        mx.sym.from_torch(Net(), torch.randn(2, 3, 3))
    unit = {"unit": lambda x: torch.linalg.solve_triangular(x, x, upper=True, unitriangular=True)}
    with pytest.raises(ArgumentError, match="uses unit triangular matrices"):
        mx.sym.from_torch(Functions(unit), torch.randn(2, 3, 3))
