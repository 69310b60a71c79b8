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
    pixels = {"pixels": lambda x, y: F.cross_entropy(x, y)}
    compare(Functions(pixels), lambda n: (torch.randn(n, 4, 2, 3), torch.randint(0, 4, (n, 2, 3))))
