"""Matrices in torch modules: factors, linear systems, determinants and distances."""

import pytest
import torch

from helpers.torch_import import compare, expressions

E, P = "3 * torch.eye(3)", "(x @ x.mT + 3 * torch.eye(3))"
SYSTEMS = f"""
torch.linalg.solve({P}, y); torch.linalg.solve({P}, y[:, :, 0]); torch.linalg.solve({E} + 1, y)
torch.linalg.solve({P}, y.mT, left=False); torch.linalg.solve_triangular({P}, y, upper=True)
torch.linalg.solve_triangular({P}, y.mT, upper=False, left=False)
torch.cholesky_solve(y, torch.linalg.cholesky({P}))
torch.cholesky_solve(y, torch.linalg.cholesky({P}, upper=True), upper=True)
"""
FACTORS = f"""
torch.linalg.cholesky({P}); torch.linalg.cholesky({P}, upper=True); torch.logdet({P})
torch.linalg.inv({P}) + torch.inverse({P} + {E}); torch.linalg.det({P}) / 100; torch.linalg.slogdet(-{P})
"""
DISTANCES = """
torch.cdist(x, y, p=1.0); torch.cdist(x, y, p=1.5); torch.cdist(x, y, p=2.0); torch.cdist(x, y, p=3.0)
torch.cdist(x, y, p=math.inf)
"""


SHAPED = [(SYSTEMS, [(3, 3), (3, 2)]), (FACTORS, [(3, 3)]), (DISTANCES, [(5, 3), (4, 3)])]
SHAPED += [(f"torch.linalg.solve({P.replace('x', 'x[:, :3].T')}, x[0, :3])", [(4,)])]
SHAPED += [
    ("torch.cdist(x, x); torch.cdist(x[:, 0], x[:3, 1])", [(5, 3)])
]  # equal points have a gradient of 0


@pytest.mark.parametrize(("text", "shapes"), SHAPED)
def test_matrices(text, shapes):
    net = expressions(text, "x, y" if len(shapes) > 1 else "x")
    compare(net, lambda n: tuple(torch.randn(n, *shape) for shape in shapes), tolerance=1e-4)
