"""Shapes, axes and types that come from torch."""

import torch

import dpmodule as mx
from helpers.torch_import import Functions, compare


def boxes(n):
    return (torch.randn(n, 4, 6),)


VIEWS = {
    "flatten": lambda x: x.flatten(1),
    "all": lambda x: x.reshape(-1),
    "merge": lambda x: x.view(-1, 6),
    "split": lambda x: x.view(x.shape[0], 4, 2, 3),
    "other": lambda x: x.reshape(x.size(0), 3, 8),
    "unflatten": lambda x: x.unflatten(2, (2, 3)),
    "unsqueeze": lambda x: x.unsqueeze(-1).unsqueeze(0),
    "squeeze": lambda x: x[:, :1].squeeze(1),
    "to_one": lambda x: x.sum().reshape(1),
    "heads": lambda x: x.view(x.shape[0], 4, 3, 2).transpose(1, 2).reshape(x.shape[0] * 3, 4, 2),
    "back": lambda x: x.reshape(x.shape[0] * 4, 6).view(x.shape[0], 4, 6),
    "permute": lambda x: x.permute(2, 0, 1),
    "transpose": lambda x: x.transpose(0, -1),
    "turned": lambda x: x.mT,
    "movedim": lambda x: x.movedim(0, 2),
    "contiguous": lambda x: x.transpose(1, 2).contiguous().view(x.shape[0], -1),
    "expand": lambda x: x[:, :1].expand(-1, 5, -1),
    "expand_new": lambda x: x.sum(0).expand(x.shape[0], 4, 6),
    "expand_as": lambda x: x.mean(1, keepdim=True).expand_as(x),
    "repeat": lambda x: x.repeat(1, 2, 1),
    "repeat_batch": lambda x: torch.ones(1, 2).repeat(x.shape[0], 1),
    "repeat_rows": lambda x: torch.arange(2.0).repeat(x.shape[0]),
    "tile": lambda x: torch.tile(x, (2,)),
    "interleave": lambda x: x.repeat_interleave(2, dim=1),
    "detach": lambda x: x.detach() * x,
    "half": lambda x: x.double().float().to(torch.float64),
    "type_as": lambda x: x.type_as(torch.ones(1, dtype=torch.float64)),
}


def test_views():
    compare(Functions(VIEWS), boxes)


PARTS = {
    "cat": lambda x: torch.cat([x, x * 2, x[:, :1]], 1),
    "stack": lambda x: torch.stack([x, -x], -1),
    "stack_numbers": lambda x: torch.stack([x.sum(), x.mean()]),
    "split": lambda x: torch.split(x, 4, dim=2)[1],
    "sizes": lambda x: torch.split(x, [1, 3], dim=1)[1],
    "chunk": lambda x: sum(c.sum(2) for c in x.chunk(3, 2)),
    "unbind": lambda x: x.unbind(1)[2],
    "step": lambda x: x[:, ::2, 1:5:3],
    "last": lambda x: x[:, -1],
    "but_last": lambda x: x[..., :-1],
    "tail": lambda x: x[:, -3:-1],
    "tail_of_batch": lambda x: x[1:],
    "last_of_batch": lambda x: x[-1],
    "new_axis": lambda x: x[:, None, 0],
    "pick": lambda x: x[:, [0, 2, 2]],
    "pick_pairs": lambda x: x[:, [0, 2], [1, 5]],
    "pick_far": lambda x: x[:, [0, -1]],
    "pick_apart": lambda x: x.unsqueeze(1)[:, [0, 0], :, [1, 5]],
    "index_select": lambda x: x.index_select(2, torch.tensor([5, 0])),
    "gather": lambda x: x.gather(2, torch.tensor([[[1, 0, 5]]]).expand(x.shape[0], 4, 3)),
    "gather_one": lambda x: x.gather(1, x.argmax(1, keepdim=True)),
    "flip": lambda x: x.flip(1, 2),
    "roll": lambda x: x.roll((1, -2), (0, 2)),
    "tril": lambda x: x.tril(-1),
    "triu": lambda x: torch.triu(x, diagonal=1),
    "masked": lambda x: torch.where(torch.triu(torch.ones(4, 6)) == 1, x, torch.zeros(())),
}


def test_parts():
    compare(Functions(PARTS), boxes)


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


def test_writing_in_place():
    functions = {"parts": written, "whole": relu_in_place, "view": changed_view}
    compare(Functions(functions), boxes)


MADE = {
    "zeros": lambda x: torch.zeros(x.shape[0], 2) + x.sum((1, 2)).unsqueeze(1),
    "ones_like": lambda x: torch.ones_like(x) * x,
    "full": lambda x: torch.full((x.shape[0], 3), 2.5),
    "new": lambda x: x.new_full((2, x.size(0)), 1.5),
    "arange": lambda x: torch.arange(x.shape[0]) * 2,
    "arange_from": lambda x: torch.arange(1, x.shape[0] + 1, dtype=torch.float32),
    "arange_odd": lambda x: torch.arange(2 * x.shape[0] + 1),
    "one_hot": lambda x: torch.nn.functional.one_hot(torch.arange(x.shape[0]) % 2, 2),
    "constant": lambda x: torch.eye(4) @ x,
    "linspace": lambda x: x * torch.linspace(0, 1, 6),
}


def test_arrays_from_nothing():
    compare(Functions(MADE), boxes)


def test_two_axes_of_sizes_that_vary():
    functions = {
        "heads": lambda x: x.view(x.shape[0], x.shape[1], 2, 3).transpose(1, 2),
        "merged": lambda x: x.view(-1, 6),
        "apart": lambda x: (x.reshape(-1, 6) * 2).view(x.shape[0], x.shape[1], 6),
        "places": lambda x: x + torch.arange(x.shape[1]).unsqueeze(1),
        "first": lambda x: torch.ones(9, 6)[: x.shape[1]] + x,
        "causal": lambda x: torch.ones(x.shape[1], x.shape[1]).tril(),
        "mean": lambda x: x.sum(1) / x.shape[1],
        "swapped": lambda x: x.transpose(0, 1).reshape(x.shape[1], -1),
    }
    net = Functions(functions)
    sizes = {"x": {0: "batch", 1: "time"}}
    symbol, args, _ = mx.sym.from_torch(net, torch.randn(2, 4, 6), dynamic=sizes)
    for shape in ((3, 5, 6), (1, 1, 6), (4, 2, 6)):
        x = torch.randn(shape)
        given = {"x": mx.nd.array(x.numpy()), **args}
        for name, one, want in zip(symbol.list_outputs(), symbol.eval(**given), net(x).values()):
            assert one.shape == want.shape, name
            assert abs(one.asnumpy() - want.numpy()).max() < 1e-5, name
