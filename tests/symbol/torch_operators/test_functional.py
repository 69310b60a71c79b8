"""Activation functions that come from torch, and what is drawn at random."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpmodule as mx
from helpers.torch_import import Functions, array, compare

NAMES = """
celu elu gelu glu hardshrink hardsigmoid hardswish hardtanh leaky_relu logsigmoid mish relu relu6 rrelu selu silu
softplus softshrink softsign tanhshrink
"""
FUNCTIONS = {name: getattr(F, name) for name in NAMES.split()} | {
    "elu_2": lambda x: F.elu(x, 2.0),
    "gelu_tanh": lambda x: F.gelu(x, approximate="tanh"),
    "softplus_2": lambda x: F.softplus(x, beta=2.0),
    "threshold": lambda x: F.threshold(x, 0.1, 20.0),
    "softmax": lambda x: F.softmax(x, 1),
    "softmin": lambda x: F.softmin(x, -1),
    "log_softmax": lambda x: F.log_softmax(x, dim=2),
    "glu_1": lambda x: F.glu(x, 1),
}


def test_activations():
    compare(Functions(FUNCTIONS), lambda n: (torch.randn(n, 4, 6) * 2,))


@pytest.mark.parametrize("training", [True, False])
def test_dropout_follows_the_mode_of_the_symbol(training):
    net = nn.Sequential(nn.Dropout(0.3), nn.Identity(), nn.Dropout1d(0.5)).train(training)
    symbol, _, _ = mx.sym.from_torch(net, torch.zeros(2, 8, 50))
    executor = symbol.bind(mx.cpu(), {"input": mx.nd.ones((4, 200, 50))})
    assert (executor.forward(is_train=False)[0].asnumpy() == 1).all()
    made = executor.forward(is_train=True)[0].asnumpy()
    values = np.unique(made.round(4))
    np.testing.assert_allclose(values, [0, 1 / 0.35], 1e-3)
    whole = (made == 0).all(2).mean()  # channels that the second one drops
    assert abs(whole - 0.5) < 0.06
    assert abs((made != 0).mean() - 0.35) < 0.05


def test_dropout_that_is_switched_off_alone_stays_off():
    net = nn.Sequential(nn.Linear(3, 3), nn.Dropout(0.5), nn.Dropout(0.5))
    net[1].eval()
    symbol, _, _ = mx.sym.from_torch(net, torch.zeros(2, 3))
    assert [n.op.name for n in symbol.graph.nodes if n.op is not None] == ["FullyConnected", "Dropout"]


@pytest.mark.parametrize("training", [True, False])
def test_alpha_dropout_keeps_mean_and_variance(training):
    symbol, _, _ = mx.sym.from_torch(nn.AlphaDropout(0.3).train(training), torch.zeros(2, 3))
    x = torch.randn(500, 200)
    executor = symbol.bind(mx.cpu(), {"input": array(x)})
    assert (executor.forward(is_train=False)[0].asnumpy() == x.numpy()).all()
    made = executor.forward(is_train=True)[0].asnumpy()
    assert abs(made.mean()) < 0.02
    assert abs(made.std() - 1) < 0.02
    least, count = np.unique(made.round(4), return_counts=True)
    assert abs(count.max() / made.size - 0.3) < 0.01
    lowest = float(F.alpha_dropout(torch.zeros(999), 0.3, True).min())
    assert abs(float(least[count.argmax()]) - lowest) < 1e-3


def test_random_numbers_are_those_of_the_context():
    functions = {
        "normal": torch.randn_like,
        "uniform": torch.rand_like,
        "some": lambda x: torch.rand(x.shape[0], 2),
        "chances": lambda x: torch.bernoulli(torch.full_like(x, 0.3)),
        "gumbel": lambda x: F.gumbel_softmax(x, dim=1),
    }
    symbol, _, _ = mx.sym.from_torch(Functions(functions), torch.zeros(2, 3))
    x = array(torch.zeros(2000, 3))
    mx.random.seed(3)
    first = [o.asnumpy() for o in symbol.eval(x=x)]
    mx.random.seed(3)
    again = [o.asnumpy() for o in symbol.eval(x=x)]
    assert all((a == b).all() for a, b in zip(first, again))
    assert abs(first[0].std() - 1) < 0.05
    assert abs(first[1].mean() - 0.5) < 0.05
    assert first[2].shape == (2000, 2)
    assert abs(first[3].mean() - 0.3) < 0.03
    np.testing.assert_allclose(first[4].sum(1), 1, 1e-5)
    assert first[4].std() > 0.1


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
