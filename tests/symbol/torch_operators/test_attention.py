"""Attention that comes from torch."""

import torch
from torch.nn import functional as F

from helpers.torch_import import Functions, compare


def test_scaled_dot_product_attention():
    keep = torch.rand(4, 6) > 0.3
    keep[:, 0] = True
    bias = torch.randn(2, 4, 6)

    def heads(x):
        return x.view(x.shape[0], -1, 2, 4).transpose(1, 2)

    functions = {
        "plain": lambda x, y: F.scaled_dot_product_attention(heads(x), heads(y), heads(y)),
        "scale": lambda x, y: F.scaled_dot_product_attention(heads(x), heads(y), heads(y), scale=0.1),
        "causal": lambda x, y: F.scaled_dot_product_attention(heads(y), heads(y), heads(y), is_causal=True),
        "apart": lambda x, y: F.scaled_dot_product_attention(heads(x), heads(y), heads(y), is_causal=True),
        "mask": lambda x, y: F.scaled_dot_product_attention(heads(x), heads(y), heads(y), attn_mask=keep),
        "bias": lambda x, y: F.scaled_dot_product_attention(heads(x), heads(y), heads(y), attn_mask=bias),
        "flat": lambda x, y: F.scaled_dot_product_attention(x, y, y),
        "shared": lambda x, y: F.scaled_dot_product_attention(
            heads(x), heads(y)[:, :1], heads(y)[:, :1], enable_gqa=True
        ),
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 4, 8), torch.randn(n, 6, 8)))
