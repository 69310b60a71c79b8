"""Writing and adding at positions that come with the data."""

import pytest
import torch
from torch import nn

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.torch_import import Functions, compare


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
    functions = {
        "scatter": lambda x, y, z: x.scatter(1, z, y),
        "number": lambda x, y, z: x.scatter(-1, z, 7.0),
        "fewer": lambda x, y, z: x.scatter(1, z[:, :2], y.detach()),
        "added": lambda x, y, z: x.scatter_add(1, z // 2, y),
        "reduced": lambda x, y, z: x.scatter_reduce(1, z // 2, y, "sum"),
        "by_rows": lambda x, y, z: torch.zeros(6, 3).scatter_add(0, z, y),
        "one_hot": lambda x, y, z: torch.zeros(x.shape[0], 6).scatter_(1, z[:, :1], 1.0),
        "written": written,
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 6), torch.randn(n, 3), distinct(n, 3, 6)))


def test_indexed_slices():
    functions = {
        "added": lambda x, y, z: x.index_add(1, z, y),
        "added_twice": lambda x, y, z: x.index_add(1, z // 2, y, alpha=2),
        "copied": lambda x, y, z: x.index_copy(1, z, y),
        "filled": lambda x, y, z: x.index_fill(1, z, 3.0),
        "put": put,
        "put_and_added": lambda x, y, z: torch.index_put(x, (z // 2,), y[:1, :1], accumulate=True),
    }
    compare(
        Functions(functions), lambda n: (torch.randn(n, 5, 3), torch.randn(n, 3, 3), torch.randperm(5)[:3])
    )


class Graph(nn.Module):
    """A graph network: as many nodes and edges as come, messages added up by target."""

    def __init__(self):
        super().__init__()
        self.send, self.out = nn.Linear(3, 4), nn.Linear(4, 2)

    def forward(self, x, edges):
        source, target = edges
        sent = torch.relu(self.send(x))
        received = torch.zeros(x.shape[0], 4).index_add_(0, target, sent[source])
        degree = torch.zeros(x.shape[0]).scatter_add(0, target, torch.ones_like(target, dtype=torch.float))
        return self.out(received / (1 + degree[:, None]).sqrt())


def test_messages_of_a_graph():
    compare(Graph(), lambda n: (torch.randn(n, 3), torch.randint(0, n, (2, 7))))


def test_windows_of_an_axis():
    functions = {
        "apart": lambda x: x.unfold(1, 3, 2),
        "overlapping": lambda x: x.unfold(-1, 2, 1),
        "twice": lambda x: x.unfold(1, 4, 4).unfold(2, 2, 2),
        "over_the_batch": lambda x: x.unfold(0, 2, 1).sum(0),
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 9, 4),))


def test_what_cannot_be_written_is_named():
    reasons = {
        "writes several values, or adds, where a mask is true": lambda x: torch.index_put(
            x, (x > 0,), x[0], True
        ),
        "scatters with reduce='prod'": lambda x: x.scatter_reduce(1, x.long() * 0, x, "prod"),
    }
    for reason, function in reasons.items():
        with pytest.raises(ArgumentError, match=reason):
            mx.sym.from_torch(Functions({"out": function}), torch.randn(2, 3))


def test_narrow_takes_a_length():
    functions = {
        "begin": lambda x: x.narrow(1, 2, 3),
        "from_the_end": lambda x: x.narrow(1, -2, 2),
        "of_a_slice": lambda x: x[:, 1:4].narrow(1, 1, 2),
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 6, 4),))
