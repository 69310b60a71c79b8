"""Gradients that a torch module defines itself: kept, or refused with a reason."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.torch_import import array, compare


class Reversed(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, factor):
        ctx.factor = factor
        return x.view_as(x)

    @staticmethod
    def backward(ctx, grad):
        return -ctx.factor * grad, None


class Signs(torch.autograd.Function):
    """A straight-through estimator, in torch's newer form; it also returns truth values and counts."""

    @staticmethod
    def forward(x, scale=1.0):
        return torch.sign(x) * scale, x > 0, (x > 0).sum(1)

    @staticmethod
    def setup_context(ctx, inputs, output):
        ctx.save_for_backward(inputs[0])
        ctx.mark_non_differentiable(*output[1:])

    @staticmethod
    def backward(ctx, grad, *rest):
        (x,) = ctx.saved_tensors
        return grad * (x.abs() <= 1) * 3, None


class Product(torch.autograd.Function):
    """A product with gradients that are not its own, one of them of a parameter, and a mask of truth values."""

    @staticmethod
    def forward(ctx, x, options, mask):
        ctx.save_for_backward(x, options["weight"], mask)
        return x @ options["weight"].t() * mask, options["weight"].sum()

    @staticmethod
    def backward(ctx, grad, grad_of_sum):
        x, weight, mask = ctx.saved_tensors
        return -(grad * mask) @ weight, None, None


class Linear(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, weight, bias=None):
        ctx.save_for_backward(x, weight)
        return F.linear(x, weight, bias)

    @staticmethod
    def backward(ctx, grad):
        x, weight = ctx.saved_tensors
        return -grad @ weight, 5 * grad.t() @ x, None


def function(name, forward, backward):
    kinds = {"forward": staticmethod(forward), "backward": staticmethod(backward)}
    return type(name, (torch.autograd.Function,), kinds)


Doubled = function("Doubled", lambda ctx, x: ctx.mark_dirty(x) or x.mul_(2), lambda ctx, grad: 2 * grad)
Called = function("Called", lambda ctx, x, call: call(x), lambda ctx, grad: (grad, None))


class Net(nn.Module):
    """Two dense layers, and what happens between them."""

    def __init__(self, between):
        super().__init__()
        self.first, self.last, self.between = nn.Linear(4, 4), nn.Linear(4, 2), between
        self.gate = nn.Parameter(torch.tensor(0.5))

    def forward(self, x):
        return self.last(self.between(self, x, self.first(x)))


def signs(net, x, h):
    sign, positive, count = Signs.apply(h)
    return torch.where(positive, sign, h) + count[:, None]


def scalars(net, x, h):
    return h * Reversed.apply(net.gate, 2) + Reversed.apply(h.double(), 2.0).float()


def without_gradient(net, x, h):
    with torch.no_grad():
        kept = Reversed.apply(net.first(x), 3.0)
    with torch.inference_mode():
        more = net.first(x * 2)
        with torch.inference_mode(False):
            again = net.last.weight.sum()
    return h + kept + more.clone() + again


KEPT = {
    "reversal": lambda net, x, h: Reversed.apply(h, 0.5),
    **{"twice": lambda net, x, h: Reversed.apply(torch.tanh(Reversed.apply(h, 0.5)), 2), "signs": signs},
    "scalars": scalars,
    "product": lambda net, x, h: sum(Product.apply(h, {"weight": net.first.weight.detach()}, x > 0)),
    "parameters": lambda net, x, h: Linear.apply(h, net.first.weight),
    **{"without_gradient": without_gradient, "data": lambda net, x, h: h + net.first(x).data},
    "checkpoint": lambda net, x, h: checkpoint(lambda v: torch.tanh(net.first(v)), h, use_reentrant=False),
    "reentrant": lambda net, x, h: checkpoint(lambda v: torch.tanh(net.first(v)), h, use_reentrant=True),
    "straight_through": lambda net, x, h: h + (torch.round(h) - h).detach(),
    "where": lambda net, x, h: torch.where(h > 0, torch.where(h > 0, h, torch.ones_like(h)).sqrt(), h.exp()),
}


@pytest.mark.filterwarnings("ignore:None of the inputs have requires_grad")  # torch, under no_grad
@pytest.mark.parametrize("name", KEPT)
def test_gradients_are_torchs(name):
    apply, enter = torch.autograd.Function.apply, torch.inference_mode.__enter__
    symbol, _, _ = compare(Net(KEPT[name]), lambda n: (torch.randn(n, 4),))
    assert (torch.autograd.Function.apply, torch.inference_mode.__enter__) == (apply, enter)
    called = [node for node in symbol.graph.nodes if node.op and node.op.name.startswith("torch.")]
    own = ["reversal", "twice", "signs", "scalars", "product", "parameters", "without_gradient"]
    assert bool(called) == (name in own)


def test_parametrized_pruned_tied_and_frozen_layers():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    nn.utils.parametrizations.weight_norm(net[0])
    prune.l1_unstructured(net[2], "weight", 0.5)
    net[4].weight = net[3].weight
    net[3].bias.requires_grad_(False)
    net[2].register_forward_hook(lambda module, args, out: out * 2)
    net[3].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    compare(net, lambda n: (torch.randn(n, 4),))


HOOKED = "has hooks on gradients "
REFUSED = {
    "forward calls register_hook, which": lambda net, x, h: h.register_hook(lambda g: -g) and h,
    HOOKED + r"\(first.weight\)": lambda net: net.first.weight.register_hook(lambda grad: -grad),
    HOOKED + r"\(last\)": lambda net: net.last.register_full_backward_hook(lambda *_: None),
    "Doubled writes into its arguments": lambda net, x, h: Doubled.apply(h * 1),
    "Called gets an argument of type builtin": lambda net, x, h: Called.apply(h, torch.tanh),
    "Called gets an argument of type Linear": lambda net, x, h: Called.apply(h, net.first),
    "Reversed gets a dynamic size": lambda net, x, h: Reversed.apply(h, x.shape[0]),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_a_symbol_cannot_keep_is_refused(message):
    change, net = REFUSED[message], Net(lambda net, x, h: h)
    if "hooks" in message:
        change(net)
    else:
        net.between = change
    with pytest.raises(ArgumentError, match=message):
        mx.sym.from_torch(net, torch.randn(3, 4))
    if "size" in message:  # which may be fixed
        assert mx.sym.from_torch(net, torch.randn(3, 4), dynamic={})[0].infer_shape(x=(3, 4))[1] == [(3, 2)]


@pytest.mark.parametrize("kind", [nn.LSTM, nn.GRU, nn.RNN])
def test_steps_may_vary(kind):
    class Tagger(kind):
        """A recurrent network whose outputs are partly overwritten."""

        def forward(self, x):
            hidden = super().forward(x)[0] * 1
            hidden[:, 0] = 0
            return hidden

    net = Tagger(3, 4, 2, bidirectional=True, batch_first=True)
    symbol, args, _ = mx.sym.from_torch(net, torch.zeros(2, 5, 3), dynamic={"x": {0: "batch", 1: "time"}})
    assert [n.op.name for n in symbol.graph.nodes if n.op is not None].count("RNN") == 1
    for shape in ((3, 7, 3), (1, 2, 3)):
        x = torch.randn(shape)
        (found,) = symbol.eval(x=array(x), **args)
        np.testing.assert_allclose(found.asnumpy(), net(x).detach().numpy(), 1e-4, 1e-6)
