"""torch's private functions against their public stand-ins, and what happens when torch changes."""

import pytest
import torch

import dpmodule as mx
from dpmodule._core import torch_private


@pytest.fixture(autouse=True)
def restore():
    yield
    torch_private.select()


def tensors(seed, *shapes):
    gen = torch.Generator().manual_seed(seed)
    return [torch.randn(shape, generator=gen) for shape in shapes]


SHAPES = ((7, 3), (5,), (2, 3, 4))


def both(call, count, *, rtol=1e-6):
    """Compare lists of tensors after a call of torch's private function, and of its public stand-in."""
    results = []
    for public in (False, True):
        torch_private.select(public)
        lists = [tensors(i, *SHAPES) for i in range(count)]
        call(*lists)
        results.append(sum(lists, []))
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=rtol, atol=1e-6)


OFF = {"maximize": False, "is_first_step": False, "nesterov": False}


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.1, -1.0])
@pytest.mark.parametrize("lr", [-1.0, 0.0, 0.3])
def test_sgd(momentum, decay, lr):
    options = {"weight_decay": decay, "momentum": momentum, "lr": lr, "dampening": 1.1, **OFF}
    both(lambda p, g, m: torch_private.fused_sgd(p, g, m if momentum else [], **options), 3)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("count", [1.0, 7.0])
def test_adam(decay, count):
    options = {"lr": 0.1, "beta1": 0.8, "beta2": 0.99, "weight_decay": decay, "eps": 1e-3, "amsgrad": False}

    def call(p, g, m, v):
        for one in v:
            one.abs_()
        torch_private.fused_adam(p, g, m, v, [], [torch.tensor(count)] * 3, maximize=False, **options)

    both(call, 4, rtol=1e-5)


@pytest.mark.parametrize("name", ["foreach_copy", "foreach_add"])
def test_pairs(name):
    both(lambda a, b: getattr(torch_private, name)(a, b), 2)


def test_missing_and_changed_functions_are_replaced(monkeypatch):
    def refuses(*args, **kwargs):
        raise TypeError("other arguments")

    monkeypatch.setattr(torch, "_fused_sgd_", refuses)
    monkeypatch.delattr(torch, "_foreach_copy_")
    torch_private.select()
    assert torch_private.fused_sgd is torch_private.plain_sgd
    assert torch_private.fused_adam is torch._fused_adam_
    target = [torch.zeros(2)]
    torch_private.foreach_copy(target, [torch.ones(2)])
    assert torch.equal(target[0], torch.ones(2))


def test_a_changed_engine_is_replaced(monkeypatch):
    engine = torch.autograd.Variable._execution_engine

    class Engine:
        def run_backward(self, *arguments, keep_graph=None, **rest):
            if keep_graph is not None:
                raise TypeError("unexpected keyword argument 'keep_graph'")
            return engine.run_backward(*arguments, **rest)

    monkeypatch.setattr(torch.autograd.Variable, "_execution_engine", Engine())
    torch_private.select()
    x = torch.ones(2, requires_grad=True)
    (found,) = torch_private.run_backward((x * 3,), (torch.ones(2),), inputs=(x,))
    assert torch.equal(found, torch.full((2,), 3.0))


def test_a_running_profiler_is_seen(monkeypatch):
    assert not torch_private.profiler_is_on()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert torch_private.profiler_is_on()
    assert not torch_private.profiler_is_on()
    monkeypatch.delattr(torch.autograd, "_profiler_enabled")
    assert not torch_private.profiler_is_on()


def short_and_engine(make, *leaves):
    """Return the gradients of `short_backward` and of the engine."""
    out = make(*leaves)
    seed = torch.randn(out.shape, dtype=out.dtype)
    with torch.no_grad():
        short = torch_private.short_backward(out, seed, leaves)
        return short, torch_private.run_backward((out,), (seed,), inputs=leaves)


def leaf(*shape, dtype=torch.float32):
    return torch.randn(shape, dtype=dtype, requires_grad=True)


class Twice(torch.autograd.Function):
    @staticmethod
    def forward(ctx, scale, x, y):
        return x * 2 + y

    @staticmethod
    def backward(ctx, grad):
        return None, grad * 2, grad if ctx.needs_input_grad[2] else None


class Halves(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x):
        return x[:1] * 2, x[1:] * 3

    @staticmethod
    def backward(ctx, first, second):
        return torch.cat([first * 2, second * 3])


@pytest.mark.parametrize(
    ("make", "leaves"),
    [
        (torch.relu, [leaf(3, 4)]),
        (lambda x: torch.tanh(torch.exp(x)), [leaf(3, 4)]),
        (torch.add, [leaf(3, 4), leaf(4)]),  # the engine adds up broadcast axes
        (lambda x, y: x * y.view(1, 2, 1), [leaf(3, 2, 4), leaf(2)]),
        (torch.mul, [leaf(3), leaf(3, dtype=torch.float64)]),  # the engine converts the first gradient
        (torch.nn.functional.linear, [leaf(2, 4), leaf(5, 4), leaf(5)]),
        (torch.nn.functional.conv2d, [leaf(1, 2, 5, 5), leaf(3, 2, 3, 3), leaf(3)]),
        (lambda x, w: torch.layer_norm(x, (4,), w), [leaf(3, 4), leaf(4)]),
        (lambda *xs: torch.cat(xs), [leaf(1, 4), leaf(2, 4)]),
        (lambda x, unused: x.sum(0), [leaf(3, 4), leaf(2)]),
        (lambda x: x.max(1).values, [leaf(3, 4)]),
        (lambda x: x * x, [leaf(3, 4)]),  # read twice
        (lambda x: x.exp() + x, [leaf(3, 4)]),
        (lambda x: (x + x.exp()).sum(0), [leaf(3, 4)]),
        (lambda x: (y := x.exp()) * y, [leaf(3, 4)]),
        (lambda x: torch.var_mean(x, 0)[1], [leaf(3, 4)]),  # the second of two results
        (lambda x: x.split(2)[1], [leaf(5, 4)]),
        (torch.linalg.svdvals, [leaf(3, 4)]),
        (lambda x, w: torch.group_norm(x, 2, w), [leaf(2, 4, 3), leaf(4)]),  # takes three gradients
        (lambda x, y: Twice.apply(2, x, y), [leaf(3, 4), leaf(3, 4)]),
        (lambda y: Twice.apply(2, torch.ones(3), y.exp()), [leaf(3)]),
    ],
)
def test_short_backward_equals_the_engine(make, leaves):
    short, engine = short_and_engine(make, *leaves)
    for found, expected in zip(short, engine, strict=True):
        assert (found is None) is (expected is None)
        if found is not None:
            assert found.dtype is expected.dtype
            assert torch.equal(found, expected)


@pytest.mark.parametrize(
    "make",
    [
        lambda x: x.exp().exp().exp().exp(),
        lambda x: Halves.apply(x)[1],
    ],
    ids=["long", "two results in Python"],
)
def test_the_engine_runs_what_short_backward_does_not(make):
    short, (engine,) = short_and_engine(make, leaf(3, 4))
    assert short is None
    assert engine.shape == (3, 4)


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_engine_records_gradients_and_detects_anomalies():
    x = leaf(3)
    assert torch_private.short_backward(x.exp(), torch.ones(3), [x]) is None
    with torch.no_grad():
        assert torch_private.short_backward(x.exp(), torch.ones(3), [x]) is None  # nothing was recorded
    executor = mx.sym.sqrt(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(1,))
    with torch.autograd.set_detect_anomaly(True):
        executor.forward(is_train=True, x=mx.nd.array([-1]))
        with pytest.raises(mx.base.NodeError, match="nan"):
            executor.backward(mx.nd.array([1]))
