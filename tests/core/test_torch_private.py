"""torch's private functions against their public stand-ins, and what happens when torch changes."""

import pytest
import torch

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
