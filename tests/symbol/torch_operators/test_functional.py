"""Activation functions that come from torch, losses, and what is drawn at random."""

import inspect

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F

import dpmodule as mx
from helpers.torch_import import Functions, array, compare, expressions

ACTIVATIONS = """
F.celu(x); F.elu(x); F.gelu(x); F.glu(x); F.hardshrink(x); F.hardsigmoid(x); F.hardswish(x); F.hardtanh(x)
F.leaky_relu(x); F.logsigmoid(x); F.mish(x); F.relu(x); F.relu6(x); F.rrelu(x); F.selu(x); F.silu(x); F.softplus(x)
F.softshrink(x); F.softsign(x); F.tanhshrink(x); F.elu(x, 2.0); F.gelu(x, approximate="tanh")
F.softplus(x, beta=2.0); F.softplus(x, 2, 0.5); F.celu(x, 0.7); torch.ops.aten.elu(x, 0.7, 1.5, 0.3)
F.threshold(x, 0.1, 20.0); F.softmax(x, 1); F.softmin(x, -1); F.log_softmax(x, dim=2)
F.glu(x, 1)
"""
WEIGHT = "torch.tensor([1.0, 2.0, 3.0, 0.5])"
LOSSES = {
    "classes": f"""
        F.cross_entropy(x, y); F.cross_entropy(x, y, reduction="sum"); F.cross_entropy(x, y, ignore_index=1)
        F.nll_loss(F.log_softmax(x, 1), y); F.nll_loss(F.log_softmax(x, 1), y, reduction="none")
        F.nll_loss(F.log_softmax(x, 1), y, {WEIGHT})
    """
    + "\n".join(
        f"F.cross_entropy(x, y, {weight}, reduction='{reduction}', label_smoothing={smooth}, ignore_index={ignored})"
        for reduction in ("mean", "sum", "none")
        for smooth, ignored, weight in ((0.0, -100, WEIGHT), (0.1, 1, WEIGHT), (0.2, 1, None))
    ),
    "pixels": f"F.cross_entropy(x, y); F.cross_entropy(x, y, {WEIGHT}, label_smoothing=0.1)",
    "shares": f"""
        F.cross_entropy(x, y.softmax(1)); F.cross_entropy(x, y.softmax(1), {WEIGHT}, label_smoothing=0.1)
        F.cross_entropy(x, y.softmax(1), {WEIGHT}, reduction="none")
        F.binary_cross_entropy_with_logits(x, y.sigmoid(), {WEIGHT}[:, None], pos_weight={WEIGHT}[:3])
        F.binary_cross_entropy_with_logits(x, y.sigmoid(), pos_weight={WEIGHT}[:3])
        F.binary_cross_entropy(x.sigmoid(), y.sigmoid(), {WEIGHT}[:3])
    """,
}
BATCHES = {
    "classes": lambda n: (torch.randn(n, 4), torch.arange(n) % 4),
    "pixels": lambda n: (torch.randn(n, 4, 2, 3), torch.randint(0, 4, (n, 2, 3))),
    "shares": lambda n: (torch.randn(n, 4, 3), torch.randn(n, 4, 3)),
}


def test_activations():
    compare(expressions(ACTIVATIONS), lambda n: (torch.randn(n, 4, 6) * 2,))


@pytest.mark.parametrize("training", [True, False])
def test_dropout_follows_the_mode_of_the_symbol(training):
    net = nn.Sequential(nn.Dropout(0.3), nn.Identity(), nn.Dropout1d(0.5)).train(training)
    symbol, _, _ = mx.sym.from_torch(net, torch.zeros(2, 8, 50))
    executor = symbol.bind(mx.cpu(), {"input": mx.nd.ones((4, 200, 50))})
    assert (executor.forward(is_train=False)[0].asnumpy() == 1).all()
    made = executor.forward(is_train=True)[0].asnumpy()
    np.testing.assert_allclose(np.unique(made.round(4)), [0, 1 / 0.35], 1e-3)
    whole = (made == 0).all(2).mean()  # channels that the second one drops
    assert abs(whole - 0.5) < 0.06
    assert abs((made != 0).mean() - 0.35) < 0.05
    net[0].train(not training)  # switched off alone
    symbol, _, _ = mx.sym.from_torch(net.train()[:2].append(nn.Dropout(0.5).eval()), torch.zeros(2, 3))
    assert [n.op.name for n in symbol.graph.nodes if n.op is not None] == ["Dropout"]


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
    net = expressions("""
        torch.randn_like(x); torch.rand_like(x); torch.rand(x.shape[0], 2); torch.bernoulli(torch.full_like(x, 0.3))
        F.gumbel_softmax(x, dim=1)
    """)
    symbol, _, _ = mx.sym.from_torch(net, torch.zeros(2, 3))
    x, found = array(torch.zeros(2000, 3)), []
    for _ in range(2):
        mx.random.seed(3)
        found.append([o.asnumpy() for o in symbol.eval(x=x)])
    assert all((a == b).all() for a, b in zip(*found))
    normal, uniform, some, chances, gumbel = found[0]
    assert abs(normal.std() - 1) < 0.05
    assert abs(uniform.mean() - 0.5) < 0.05
    assert some.shape == (2000, 2)
    assert abs(chances.mean() - 0.3) < 0.03
    np.testing.assert_allclose(gumbel.sum(1), 1, 1e-5)
    assert gumbel.std() > 0.1


@pytest.mark.parametrize("kind", LOSSES)
def test_losses(kind):
    compare(expressions(LOSSES[kind], "x, y"), BATCHES[kind])


VALUES = {
    **{"reduction": ["sum", "none"], "weight": [torch.tensor([1.0, 2.0, 3.0, 0.5])]},
    **{"pos_weight": [torch.tensor([1.0, 2.0, 3.0, 0.5])], "full": [True], "ignore_index": [1]},
    **{"label_smoothing": [0.1], "log_input": [False], "log_target": [True], "margin": [0.3], "p": [1]},
    **{"swap": [True], "beta": [0.5], "delta": [0.7], "eps": [0.1]},
}
TARGETS = {
    "CrossEntropyLoss NLLLoss MultiMarginLoss": lambda n: (torch.arange(n) % 4,),
    "SoftMarginLoss": lambda n: (torch.randint(0, 2, (n, 4)) * 2 - 1,),
    "MarginRankingLoss TripletMarginLoss": lambda n: (torch.randn(n, 4), torch.randn(n, 4)),
}
OTHERS = (
    "BCELoss BCEWithLogitsLoss HuberLoss L1Loss MSELoss MultiLabelSoftMarginLoss PoissonNLLLoss SmoothL1Loss"
)
TARGETS[OTHERS] = lambda n: (torch.rand(n, 4),)


@pytest.mark.parametrize(
    ("name", "targets"), [(name, made) for key, made in TARGETS.items() for name in key.split()]
)
def test_every_option_of_a_loss(name, targets):
    kind = getattr(nn, name)
    options = [(key, value) for key in inspect.signature(kind).parameters for value in VALUES.get(key, ())]
    losses = {f"{key}={value}": kind(**{key: value}) for key, value in options}
    compare(Functions({"default": kind(), **losses}), lambda n: (torch.rand(n, 4), *targets(n)))
