"""Recurrent networks that come from torch."""

import torch
from torch import nn
from torch.nn import functional as F

from helpers.torch_import import Functions, compare


class Recurrent(nn.Module):
    def __init__(self):
        super().__init__()
        self.rnn = nn.RNN(3, 4, batch_first=True)
        self.gru = nn.GRU(3, 4, 2, bidirectional=True)
        self.lstm = nn.LSTM(3, 4, bias=False, batch_first=True)
        self.cells = nn.ModuleList([nn.RNNCell(3, 4), nn.GRUCell(3, 4), nn.LSTMCell(3, 4, bias=False)])

    def forward(self, x, state):
        steps = x.transpose(0, 1)
        out, last = self.rnn(x, state.unsqueeze(0))
        both, _ = self.gru(steps)
        deep, (hidden, cell) = self.lstm(x)
        first = [c(x[:, 0], state) for c in self.cells[:2]]
        first += self.cells[2](x[:, 0], (state, state * 2))
        return out, last[0], both.transpose(0, 1), {"out": deep, "states": (hidden, cell)}, first


def test_recurrent_networks_and_cells():
    symbol, args, _ = compare(Recurrent(), lambda n: (torch.randn(n, 3, 3), torch.randn(n, 4)))
    assert [n.op.name for n in symbol.graph.nodes if n.op is not None].count("RNN") == 6
    assert "gru.weight_hh_l1_reverse" in args
    assert symbol.list_outputs()[3] == "output3_out_output"


def test_scaled_dot_product_attention():
    keep, bias = torch.rand(4, 6) > 0.3, torch.randn(2, 4, 6)
    keep[:, 0] = True

    def attention(query="x", key="y", **options):
        def call(x, y):
            q, k = ((x if e == "x" else y).view(x.shape[0], -1, 2, 4).transpose(1, 2) for e in (query, key))
            k = k[:, :1] if "enable_gqa" in options else k
            return F.scaled_dot_product_attention(q, k, k, **options)

        return call

    functions = {
        **{"plain": attention(), "scale": attention(scale=0.1), "causal": attention("y", is_causal=True)},
        **{"apart": attention(is_causal=True), "mask": attention(attn_mask=keep)},
        **{"bias": attention(attn_mask=bias), "flat": lambda x, y: F.scaled_dot_product_attention(x, y, y)},
        "shared": attention(enable_gqa=True),
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 4, 8), torch.randn(n, 6, 8)))
