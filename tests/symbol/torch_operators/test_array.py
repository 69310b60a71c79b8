"""Shapes, axes and types that come from torch."""

import pytest
import torch

import dpmodule as mx
from helpers.torch_import import Functions, array, compare, expressions

VIEWS = """
x.flatten(1); x.reshape(-1); x.view(-1, 6); x.view(x.shape[0], 4, 2, 3); x.reshape(x.size(0), 3, 8)
x.unflatten(2, (2, 3)); x.unsqueeze(-1).unsqueeze(0); x[:, :1].squeeze(1); x.sum().reshape(1)
x.view(x.shape[0], 4, 3, 2).transpose(1, 2).reshape(x.shape[0] * 3, 4, 2)
x.reshape(x.shape[0] * 4, 6).view(x.shape[0], 4, 6)
x.permute(2, 0, 1); x.transpose(0, -1); x.mT; x.movedim(0, 2); x.transpose(1, 2).contiguous().view(x.shape[0], -1)
x[:, :1].expand(-1, 5, -1); x.sum(0).expand(x.shape[0], 4, 6); x.mean(1, keepdim=True).expand_as(x)
x.repeat(1, 2, 1); torch.ones(1, 2).repeat(x.shape[0], 1); torch.arange(2.0).repeat(x.shape[0]); torch.tile(x, (2,))
x.repeat_interleave(2, dim=1); x.detach() * x; x.double().float().to(torch.float64)
x.type_as(torch.ones(1, dtype=torch.float64))
"""


PARTS = """
torch.cat([x, x * 2, x[:, :1]], 1); torch.cat([x, x[:0]]); torch.cat([x[:, :0], x], 1)
torch.stack([x, -x], -1); torch.stack([x.sum(), x.mean()])
torch.split(x, 4, dim=2)[1]; torch.split(x, [1, 3], dim=1)[1]; sum(c.sum(2) for c in x.chunk(3, 2)); x.unbind(1)[2]
x[:, ::2, 1:5:3]; x[:, -1]; x[..., :-1]; x[:, -3:-1]; x[1:]; x[-1]; x[:, None, 0]
x[:, [0, 2, 2]]; x[:, [0, 2], [1, 5]]; x[:, [0, -1]]; x.unsqueeze(1)[:, [0, 0], :, [1, 5]]
x.index_select(2, torch.tensor([5, 0])); x.gather(2, torch.tensor([[[1, 0, 5]]]).expand(x.shape[0], 4, 3))
x.gather(1, x.argmax(1, keepdim=True)); x.flip(1, 2); x.roll((1, -2), (0, 2)); x.tril(-1); torch.triu(x, diagonal=1)
torch.where(torch.triu(torch.ones(4, 6)) == 1, x, torch.zeros(()))
"""


def written(x):
    y = torch.zeros_like(x)
    y[:, 1] = x[:, 0]
    y[:, :, 2:4] += 1
    y[x > 1] = -1.0
    return y


def relu_in_place(x):
    y = x + 1
    torch.relu_(y)
    return y * 2


def changed_view(x):
    y = x * 1
    y[:, 0].mul_(3)
    return y


MADE = """
torch.zeros(x.shape[0], 2) + x.sum((1, 2)).unsqueeze(1); torch.ones_like(x) * x; torch.full((x.shape[0], 3), 2.5)
x.new_full((2, x.size(0)), 1.5); torch.arange(x.shape[0]) * 2; torch.arange(1, x.shape[0] + 1, dtype=torch.float32)
torch.arange(2 * x.shape[0] + 1); F.one_hot(torch.arange(x.shape[0]) % 2, 2); torch.eye(4) @ x
x * torch.linspace(0, 1, 6)
"""


WRITTEN = Functions({"parts": written, "whole": relu_in_place, "view": changed_view})


@pytest.mark.parametrize("functions", [*map(expressions, (VIEWS, PARTS, MADE)), WRITTEN])
def test_arrays_of_boxes(functions):
    compare(functions, lambda n: (torch.randn(n, 4, 6),))


def test_two_axes_of_sizes_that_vary():
    net = expressions("""
        x.view(x.shape[0], x.shape[1], 2, 3).transpose(1, 2); x.view(-1, 6); torch.ones(9, 6)[: x.shape[1]] + x
        (x.reshape(-1, 6) * 2).view(x.shape[0], x.shape[1], 6); x + torch.arange(x.shape[1]).unsqueeze(1)
        torch.ones(x.shape[1], x.shape[1]).tril(); x.sum(1) / x.shape[1]; x.transpose(0, 1).reshape(x.shape[1], -1)
    """)
    symbol, args, _ = mx.sym.from_torch(net, torch.randn(2, 4, 6), dynamic={"x": {0: "batch", 1: "time"}})
    for shape in ((3, 5, 6), (1, 1, 6), (4, 2, 6)):
        x = torch.randn(shape)
        for name, one, want in zip(symbol.list_outputs(), symbol.eval(x=array(x), **args), net(x).values()):
            assert one.shape == want.shape, name
            assert abs(one.asnumpy() - want.numpy()).max() < 1e-5, name
