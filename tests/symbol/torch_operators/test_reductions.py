"""Sums, extremes and order that come from torch."""

import math

import torch

from helpers.torch_import import compare, expressions

REDUCTIONS = """
x.sum(); x.sum(1); x.sum((1, -1), keepdim=True); x.mean((0, 2)); x.mean(); x.amax(-1); x.amin((1, 2)); x.max()
x.min(); x.max(1)[0]; x.max(1, keepdim=True).indices; x.min(2).values; x.round().max(1)[0]; x.argmax(1)
x.argmin(-1, keepdim=True); x[:1].argmax() - x[:1].argmax(); x.prod(1); x.var(1); x.std(-1)
x.var((1, 2), unbiased=False, keepdim=True); torch.var_mean(x, 1, correction=0)[0] + torch.var_mean(x, 1)[1]
x.norm(dim=1); x.norm(p=1, dim=(1, 2)); torch.linalg.vector_norm(x, 3, dim=-1, keepdim=True)
torch.linalg.vector_norm(x, math.inf, dim=-1); torch.linalg.vector_norm(x, -math.inf, dim=-1)
torch.linalg.vector_norm(x.round(), 0, dim=-1); x.logsumexp(1); x.round().long().logsumexp(1)
torch.logsumexp(x, (1, 2), keepdim=True); x.cumsum(1)
x.topk(2, dim=1)[0]; x.topk(2, dim=-1, largest=False).indices; x.sort(1, descending=True)[0]; x.argsort(-1)
(x > 0).float().mean()
"""


def test_reductions():
    compare(expressions(REDUCTIONS), lambda n: (torch.randn(n, 3, 5),))


ROOTS = """
x.norm(dim=-1); x.norm(3, dim=-1); x.std(-1); x.std((1, 2), unbiased=False); F.cosine_similarity(x, x * 0 + 1, -1)
F.normalize(x + 1e-3, dim=-1)
"""


def test_roots_of_zero_have_the_gradient_0():
    compare(expressions(ROOTS), lambda n: (torch.randn(n, 3, 5) * torch.tensor([[1.0], [0.0], [1.0]]),))


def test_logsumexp_of_infinities():
    rows = torch.tensor(
        [[0.0, 1, -1, 2, 1], [-math.inf, 0, 1, 2, 1], [-math.inf] * 5, [math.inf, 0, -math.inf, 0, 1]]
    )
    compare(expressions("x.detach().logsumexp(2)"), lambda n: (rows.repeat(n, 1, 1),))
