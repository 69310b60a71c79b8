"""Losses inside of torch modules."""

import torch
from torch.nn import functional as F

from helpers.torch_import import Functions, compare


def test_losses_of_numbers():
    functions = {
        "mse": lambda x, y: F.mse_loss(x, y),
        "mse_sum": lambda x, y: F.mse_loss(x, y, reduction="sum"),
        "mse_none": lambda x, y: F.mse_loss(x, y, reduction="none"),
        "l1": lambda x, y: F.l1_loss(x, y),
        "smooth": lambda x, y: F.smooth_l1_loss(x, y, beta=0.5),
        "huber": lambda x, y: F.huber_loss(x, y, delta=0.7),
        "logits": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid()),
        "chances": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid()),
        "kl": lambda x, y: F.kl_div(F.log_softmax(x, 1), F.softmax(y, 1), reduction="batchmean"),
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 4), torch.randn(n, 4)))


def test_losses_of_classes():
    functions = {
        "cross_entropy": lambda x, y: F.cross_entropy(x, y),
        "sum": lambda x, y: F.cross_entropy(x, y, reduction="sum"),
        "ignored": lambda x, y: F.cross_entropy(x, y, ignore_index=1),
        "nll": lambda x, y: F.nll_loss(F.log_softmax(x, 1), y),
        "nll_none": lambda x, y: F.nll_loss(F.log_softmax(x, 1), y, reduction="none"),
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 4), torch.arange(n) % 4))
    weight = torch.tensor([1.0, 2.0, 3.0, 0.5])
    weighted = {
        f"{reduction}_{smoothing}_{ignored}": lambda x, y, r=reduction, s=smoothing, i=ignored, w=w: (
            F.cross_entropy(x, y, w, reduction=r, label_smoothing=s, ignore_index=i)
        )
        for reduction in ("mean", "sum", "none")
        for smoothing, ignored, w in ((0.0, -100, weight), (0.1, 1, weight), (0.2, 1, None))
    }
    weighted["nll"] = lambda x, y: F.nll_loss(F.log_softmax(x, 1), y, weight)
    compare(Functions(weighted), lambda n: (torch.randn(n, 4), torch.arange(n) % 4))
    pixels = {"pixels": lambda x, y: F.cross_entropy(x, y)}
    pixels["smooth"] = lambda x, y: F.cross_entropy(x, y, weight, label_smoothing=0.1)
    compare(Functions(pixels), lambda n: (torch.randn(n, 4, 2, 3), torch.randint(0, 4, (n, 2, 3))))


def test_losses_of_shares_of_classes():
    weight = torch.tensor([1.0, 2.0, 3.0, 0.5])
    functions = {
        "shares": lambda x, y: F.cross_entropy(x, y.softmax(1)),
        "smooth": lambda x, y: F.cross_entropy(x, y.softmax(1), weight, label_smoothing=0.1),
        "none": lambda x, y: F.cross_entropy(x, y.softmax(1), weight, reduction="none"),
        "logits": lambda x, y: F.binary_cross_entropy_with_logits(
            x, y.sigmoid(), weight[:, None], pos_weight=weight[:3]
        ),
        "positive": lambda x, y: F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight=weight[:3]),
        "chances": lambda x, y: F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), weight[:3]),
    }
    compare(Functions(functions), lambda n: (torch.randn(n, 4, 3), torch.randn(n, 4, 3)))
