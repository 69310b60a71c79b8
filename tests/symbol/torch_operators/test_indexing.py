"""Writing and adding at positions that come with the data."""

import torch

from helpers.torch_import import compare, expressions


def put(x, y, z):
    copy = x[:, :, None] * 1
    copy[:, z, 0, z % 2] = y[:, :, 0]
    copy[z[:2] % 2, :, :, z[:2] % 3 - 3] = y.sum()
    return copy


def distinct(n, count, of):
    return torch.stack([torch.randperm(of)[:count] for _ in range(n)])


def written(x, y, z):
    copy = x.clone()
    copy[torch.arange(x.shape[0]), z[:, 0]] = y[:, 0]
    copy[:, z[0, :2]] += 1.0
    return copy


def test_scattered_elements():
    net = expressions(
        """
        x.scatter(1, z, y); x.scatter(-1, z, 7.0); x.scatter(1, z[:, :2], y.detach()); x.scatter_add(1, z // 2, y)
        x.scatter_reduce(1, z // 2, y, "sum"); torch.zeros(6, 3).scatter_add(0, z, y)
        torch.zeros(x.shape[0], 6).scatter_(1, z[:, :1], 1.0)
        """,
        "x, y, z",
    )
    net.functions["written"] = written
    compare(net, lambda n: (torch.randn(n, 6), torch.randn(n, 3), distinct(n, 3, 6)))


def test_indexed_slices():
    net = expressions(
        """
        x.index_add(1, z, y); x.index_add(1, z // 2, y, alpha=2); x.index_copy(1, z, y); x.index_fill(1, z, 3.0)
        torch.index_put(x, (z // 2,), y[:1, :1], accumulate=True)
        """,
        "x, y, z",
    )
    net.functions["put"] = put
    compare(net, lambda n: (torch.randn(n, 5, 3), torch.randn(n, 3, 3), torch.randperm(5)[:3]))


def test_windows_of_an_axis():
    text = "x.unfold(1, 3, 2);x.unfold(-1, 2, 1);x.unfold(1, 4, 4).unfold(2, 2, 2);x.unfold(0, 2, 1).sum(0)"
    text += "; x.narrow(1, 2, 3); x.narrow(1, -2, 2); x[:, 1:4].narrow(1, 1, 2)"
    compare(expressions(text), lambda n: (torch.randn(n, 9, 4),))
