"""Gradients that a torch module defines itself: kept, or refused with a reason."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils import prune
from torch.utils.checkpoint import checkpoint

import dpmodule as mx
from dpmodule.base import ArgumentError, MXNetError
from helpers.torch_import import Functions, array, bind_like, compare


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


class Doubled(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        ctx.mark_dirty(x)
        return x.mul_(2)

    @staticmethod
    def backward(ctx, grad):
        return 2 * grad


class Called(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, function):
        return function(x)

    @staticmethod
    def backward(ctx, grad):
        return grad, None


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
    "twice": lambda net, x, h: Reversed.apply(torch.tanh(Reversed.apply(h, 0.5)), 2),
    "signs": signs,
    "scalars": scalars,
    "product": lambda net, x, h: sum(Product.apply(h, {"weight": net.first.weight.detach()}, x > 0)),
    "parameters": lambda net, x, h: Linear.apply(h, net.first.weight),
    "without_gradient": without_gradient,
    "data": lambda net, x, h: h + net.first(x).data,
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
    assert bool(called) == (
        name in ("reversal", "twice", "signs", "scalars", "product", "parameters", "without_gradient")
    )


def parametrized():
    net = nn.Sequential(nn.Linear(4, 4), nn.Tanh(), nn.Linear(4, 4), nn.Linear(4, 4), nn.Linear(4, 4))
    nn.utils.parametrizations.weight_norm(net[0])
    prune.l1_unstructured(net[2], "weight", 0.5)
    net[4].weight = net[3].weight
    net[3].bias.requires_grad_(False)
    net[2].register_forward_hook(lambda module, args, out: out * 2)
    net[3].register_forward_pre_hook(lambda module, args: (args[0] + 1,))
    return net


def test_parametrized_pruned_tied_and_frozen_layers():
    compare(parametrized(), lambda n: (torch.randn(n, 4),))


def test_writing_in_place():
    def between(x):
        y = x * 1
        y.mul_(2)
        y[:, 0] += 1
        return y.tanh_() + 1

    compare(Functions({"written": between}), lambda n: (torch.randn(n, 4),))


def hooked(net, x, h):
    if h.requires_grad:
        h.register_hook(lambda grad: -grad)
    return h


def with_hook(kind):
    net = Net(lambda net, x, h: h)
    if kind == "parameter":
        net.first.weight.register_hook(lambda grad: -grad)
    else:
        net.last.register_full_backward_hook(lambda module, before, after: None)
    return net


REFUSED = {
    "forward calls register_hook, which a symbol cannot run": Net(hooked),
    r"has hooks on gradients \(first.weight\)": with_hook("parameter"),
    r"has hooks on gradients \(last\)": with_hook("module"),
    "Doubled writes into its arguments": Net(lambda net, x, h: Doubled.apply(h * 1)),
    "Called gets an argument of type builtin": Net(lambda net, x, h: Called.apply(h, torch.tanh)),
    "Called gets an argument of type Linear": Net(lambda net, x, h: Called.apply(h, net.first)),
    "Reversed gets a dynamic size": Net(lambda net, x, h: Reversed.apply(h, x.shape[0])),
}


@pytest.mark.parametrize("message", REFUSED)
def test_what_a_symbol_cannot_keep_is_refused(message):
    with pytest.raises(ArgumentError, match=message):
        mx.sym.from_torch(REFUSED[message], torch.randn(3, 4))


def test_a_fixed_size_may_be_given():
    net = Net(lambda net, x, h: Reversed.apply(h, x.shape[0]))
    symbol, args, states = mx.sym.from_torch(net, torch.randn(3, 4), dynamic={})
    executor = bind_like(net, (symbol, args, states), (torch.ones(3, 4),))
    executor.forward(is_train=True)
    executor.backward([mx.nd.ones((3, 2))])
    net(torch.ones(3, 4)).sum().backward()
    torch.testing.assert_close(executor.grad_dict["first.weight"].torch(), net.first.weight.grad)


def test_a_reversed_gradient_trains_away_from_the_loss():
    net = Net(KEPT["reversal"])
    x, y = torch.randn(16, 4), torch.arange(16) % 2
    mod = mx.mod.Module.from_torch(net, x, head=lambda out: mx.sym.SoftmaxOutput(out, name="softmax"))
    data = mx.io.NDArrayIter({"x": x.numpy()}, {"softmax_label": y.numpy()}, 16)
    mod.fit(data, num_epoch=3, optimizer_params={"learning_rate": 0.5, "rescale_grad": 1 / 16})
    optimizer = torch.optim.SGD(net.parameters(), 0.5)
    for _ in range(3):
        optimizer.zero_grad()
        F.cross_entropy(net(x), y).backward()
        optimizer.step()
    args, _ = mod.get_params()
    for name, parameter in net.named_parameters():
        if name in args:
            torch.testing.assert_close(args[name].torch().view_as(parameter), parameter.detach())
    torch.testing.assert_close(mod.predict(array(x)).torch(), net(x).softmax(1).detach())
    with pytest.raises(MXNetError, match="torch module"):
        mod.symbol.tojson()


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
