"""Torch modules that `mx.sym.from_torch` cannot translate."""

import torch
from torch import nn

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.torch_import import Functions, expressions

TWO, LINEAR = torch.ones(2, 3), nn.Linear(3, 2)
FIXED = expressions("x.reshape(2, 3) * 1")


class Counter(nn.Module):
    def __init__(self):
        super().__init__()
        self.register_buffer("total", torch.zeros(3))

    def forward(self, x):
        self.total += x.sum(0)
        return x - self.total


class Packed(nn.LSTM):
    def forward(self, x, lengths):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
        return super().forward(packed)[1][0]


def read(net, *inputs, **options):
    """Translate a module, or an expression."""
    return mx.sym.from_torch(
        expressions(net) if isinstance(net, str) else net, *(inputs or (TWO,)), **options
    )


def constant(value):
    return read(Functions({"out": lambda x: x * 2, "constant": lambda x: value}))


PACKED = Packed(3, 4, batch_first=True), torch.zeros(3, 5, 3), torch.tensor([5, 3, 2])
SOLVE = "torch.linalg.solve_triangular(x, x, upper=True, unitriangular=True)"
MIXED = {"x": {0: "n"}, "input": {5: "m"}}
LENGTH = {"x": {2: "length"}}
PATTERNS = [
    (lambda: read("x * 2 if x.sum() > 0 else x"), "known only at run time.*sym.torch_module"),
    (lambda: read(LINEAR, dynamic=MIXED), "'x' is not an input; .* 'input' has no axis 5, but 2 axes"),
    (lambda: read(LINEAR, dynamic={"input": ["n"]}), "expected a dict such as"),
    (lambda: read(FIXED, dynamic={"x": {0: "batch"}}), r"Functions fixes axis 0 \(batch\) of x at 2"),
    (lambda: read(lambda x: x), "module is of type function"),
    (lambda: mx.sym.from_torch(LINEAR), "forward of Linear does not accept these examples: missing"),
    (lambda: read(LINEAR, torch.ones(2, 4)), "torch.export cannot read Linear: .*reduction dim"),
    (lambda: constant(torch.zeros(0)), "an array without elements"),
    (lambda: constant(torch.tensor([2**30, 1])), "integers beyond 16777216"),
    (lambda: read(Counter()), "a buffer that forward changes, while a symbol only reads it: total\n"),
    (lambda: read(Functions({"f": lambda x: None})), "forward of Functions returns no tensor"),
    (lambda: read(*PACKED), "cannot read Packed .*packed sequences have lengths"),
    (lambda: read("torch.index_put(x, (x > 0,), x[0], True)"), "or adds, where a mask is true"),
    (lambda: read('x.scatter_reduce(1, x.long() * 0, x, "prod")'), "scatters with reduce='prod'"),
    (
        lambda: read("F.adaptive_max_pool1d(x, 3)", torch.ones(2, 3, 8), dynamic=LENGTH),
        "pools to a size that is not fixed, or data whose size is not",
    ),
    (
        lambda: read("F.grid_sample(x, torch.zeros(2, 2, 2, 2, 3))", torch.ones(2, 2, 1, 3, 3), dynamic={}),
        "samples volumes, expected images",
    ),
    (lambda: read("torch.linalg.eigh(x @ x.mT)[0]"), "_linalg_eigh.default, which has no translation"),
    (lambda: read(SOLVE, torch.ones(2, 3, 3)), "uses unit triangular matrices"),
]
ROWS = [(call, ArgumentError, pattern) for call, pattern in PATTERNS]
