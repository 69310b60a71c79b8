"""Sums, extremes and order that come from torch."""

import math

import torch

from helpers.torch_import import Functions, compare

FUNCTIONS = {
    "sum": lambda x: x.sum(),
    "sum_axis": lambda x: x.sum(1),
    "sum_axes": lambda x: x.sum((1, -1), keepdim=True),
    "mean": lambda x: x.mean((0, 2)),
    "mean_all": lambda x: x.mean(),
    "amax": lambda x: x.amax(-1),
    "amin": lambda x: x.amin((1, 2)),
    "max": lambda x: x.max(),
    "min": lambda x: x.min(),
    "max_axis": lambda x: x.max(1)[0],
    "max_places": lambda x: x.max(1, keepdim=True).indices,
    "min_axis": lambda x: x.min(2).values,
    "max_of_equal": lambda x: x.round().max(1)[0],
    "argmax": lambda x: x.argmax(1),
    "argmin": lambda x: x.argmin(-1, keepdim=True),
    "argmax_all": lambda x: x[:1].argmax() - x[:1].argmax(),
    "prod": lambda x: x.prod(1),
    "var": lambda x: x.var(1),
    "var_biased": lambda x: x.var((1, 2), unbiased=False, keepdim=True),
    "std": lambda x: x.std(-1),
    "var_mean": lambda x: torch.var_mean(x, 1, correction=0)[0] + torch.var_mean(x, 1)[1],
    "norm": lambda x: x.norm(dim=1),
    "norm_one": lambda x: x.norm(p=1, dim=(1, 2)),
    "norm_three": lambda x: torch.linalg.vector_norm(x, 3, dim=-1, keepdim=True),
    "norm_most": lambda x: torch.linalg.vector_norm(x, math.inf, dim=-1),
    "logsumexp": lambda x: x.logsumexp(1),
    "logsumexp_axes": lambda x: torch.logsumexp(x, (1, 2), keepdim=True),
    "cumsum": lambda x: x.cumsum(1),
    "topk": lambda x: x.topk(2, dim=1)[0],
    "topk_places": lambda x: x.topk(2, dim=-1, largest=False).indices,
    "sort": lambda x: x.sort(1, descending=True)[0],
    "argsort": lambda x: x.argsort(-1),
    "count": lambda x: (x > 0).float().mean(),
}


def test_reductions():
    compare(Functions(FUNCTIONS), lambda n: (torch.randn(n, 3, 5),))
