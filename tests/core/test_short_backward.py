"""`ShortBackward` against autograd's engine."""

import pytest
import torch

import dpmodule as mx
from dpmodule._core import torch_private
from dpmodule._core.short_backward import ShortBackward


def run_both(short, make, *leaves):
    """Return the gradients of a `ShortBackward` and of the engine."""
    out = make(*leaves)
    seed = torch.randn(out.shape, dtype=out.dtype)
    with torch.no_grad():
        found = short.gradients(out, seed, leaves)
        return found, torch_private.run_backward((out,), (seed,), inputs=leaves)


def check(short, make, *leaves):
    for found, expected in zip(*run_both(short, make, *leaves), strict=True):
        assert (found is None) is (expected is None)
        if found is not None:
            assert found.dtype is expected.dtype
            assert torch.equal(found, expected)


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
        (lambda x: x * x, [leaf(512, 512)]),  # two products that are not added up
        (lambda x: (x * x).sum(0), [leaf(512, 512)]),
        (lambda x: x * x, [leaf(3, 4, dtype=torch.complex64)]),  # the gradient is conjugate
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
def test_gradients_equal_the_engines(make, leaves):
    short = ShortBackward()
    for _ in range(3):
        check(short, make, *leaves)


def test_recordings_may_change():
    short, x, y = ShortBackward(), leaf(3, 4), leaf(3, 4)
    check(short, torch.sub, x, y)
    check(short, lambda x, y: y - x, x, y)
    check(short, torch.sub, y, x)
    check(short, lambda x, y: x - 2 * y, x, y)
    check(short, torch.sub, x, leaf(4))
    check(short, lambda x, y: torch.exp(x - y), x, y)
    check(short, lambda x, y: x * 2, x, y)


@pytest.mark.parametrize(
    ("make", "size"),
    [
        (lambda x: x.exp().exp().exp().exp(), (3, 4)),
        (lambda x: Halves.apply(x)[1], (3, 4)),
        (lambda x: x.exp() + x, (512, 512)),
    ],
    ids=["long", "two results in Python", "a large sum"],
)
def test_the_engine_runs_all_others(make, size):
    short = ShortBackward()
    for _ in range(2):
        found, (engine,) = run_both(short, make, leaf(*size))
        assert found is None
        assert engine.shape == size


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_the_engine_records_gradients_and_detects_anomalies():
    x = leaf(3)
    short = ShortBackward()
    assert short.gradients(x.exp(), torch.ones(3), [x]) is None
    with torch.no_grad():
        assert short.gradients(x.exp(), torch.ones(3), [x]) is None  # nothing was recorded
    executor = mx.sym.sqrt(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(1,))
    with torch.autograd.set_detect_anomaly(True):
        executor.forward(is_train=True, x=mx.nd.array([-1]))
        with pytest.raises(mx.base.NodeError, match="nan"):
            executor.backward(mx.nd.array([1]))
