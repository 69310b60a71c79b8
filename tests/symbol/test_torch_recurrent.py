"""Recurrent networks stay whole when torch exports them."""

import numpy as np
import pytest
import torch
from torch import nn

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.torch_import import array


class Tagger(nn.Module):
    """A recurrent network whose outputs are written over in part."""

    def __init__(self, kind):
        super().__init__()
        self.rnn, self.out = kind, nn.Linear(2 * 4, 3)

    def forward(self, x):
        hidden, _ = self.rnn(x)
        hidden = hidden * 1
        hidden[:, 0] = 0
        return self.out(hidden)


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_steps_may_vary(kind):
    net = Tagger(kind(3, 4, 2, bidirectional=True, batch_first=True))
    sizes = {"x": {0: "batch", 1: "time"}}
    symbol, args, _ = mx.sym.from_torch(net, torch.zeros(2, 5, 3), dynamic=sizes)
    assert [n.op.name for n in symbol.graph.nodes if n.op is not None].count("RNN") == 1
    for shape in ((3, 7, 3), (1, 2, 3)):
        x = torch.randn(shape)
        (found,) = symbol.eval(x=array(x), **args)
        np.testing.assert_allclose(found.asnumpy(), net(x).detach().numpy(), 1e-4, 1e-6)


def test_torch_runs_its_own_functions_outside_of_an_export():
    net = nn.LSTM(3, 4)
    mx.sym.from_torch(net, torch.zeros(5, 2, 3))
    out, _ = net(torch.zeros(5, 2, 3))
    out.sum().backward()
    assert net.weight_hh_l0.grad is not None


def test_packed_sequences_are_refused():
    class Packed(nn.Module):
        def __init__(self):
            super().__init__()
            self.rnn = nn.LSTM(3, 4, batch_first=True)

        def forward(self, x, lengths):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths, batch_first=True, enforce_sorted=False)
            return self.rnn(packed)[1][0]

    with pytest.raises(ArgumentError, match="cannot read Packed .*packed sequences have lengths"):
        mx.sym.from_torch(Packed(), torch.zeros(3, 5, 3), torch.tensor([5, 3, 2]))
