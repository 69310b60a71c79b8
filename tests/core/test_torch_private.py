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


@pytest.mark.parametrize("momentum", [0.0, 0.9])
@pytest.mark.parametrize("decay", [0.0, 0.1, -1.0])
@pytest.mark.parametrize("lr", [-1.0, 0.0, 0.3])
def test_sgd(momentum, decay, lr):
    results = []
    for public in (False, True):
        torch_private.select(public)
        p, g, m = (tensors(i, *SHAPES) for i in range(3))
        torch_private.fused_sgd(
            p, g, m if momentum else [], weight_decay=decay, momentum=momentum, lr=lr, dampening=1.1, nesterov=False,
            maximize=False, is_first_step=False,
        )  # fmt: skip
        results.append(p + m + g)
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-6, atol=1e-6)


@pytest.mark.parametrize("decay", [0.0, 0.1])
@pytest.mark.parametrize("count", [1.0, 7.0])
def test_adam(decay, count):
    results = []
    for public in (False, True):
        torch_private.select(public)
        p, g, m, v = (tensors(i, *SHAPES) for i in range(4))
        v = [one.abs() for one in v]
        torch_private.fused_adam(
            p, g, m, v, [], [torch.tensor(count)] * 3, lr=0.1, beta1=0.8, beta2=0.99, weight_decay=decay, eps=1e-3,
            amsgrad=False, maximize=False,
        )  # fmt: skip
        results.append(p + g + m + v)
    for a, b in zip(*results):
        torch.testing.assert_close(a, b, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["foreach_copy", "foreach_add"])
def test_pairs(name):
    results = []
    for public in (False, True):
        torch_private.select(public)
        targets = tensors(0, *SHAPES)
        getattr(torch_private, name)(targets, tensors(1, *SHAPES))
        results.append(targets)
    for a, b in zip(*results):
        assert torch.equal(a, b)


def test_run_backward():
    results = []
    for public in (False, True):
        torch_private.select(public)
        with torch.enable_grad():
            x, y, z = (t.requires_grad_() for t in tensors(0, (3,), (3,), (3,)))
            roots = [x * y, (x + 1).sum()]
        results.append(
            torch_private.run_backward(tuple(roots), (torch.ones(3), torch.tensor(2.0)), inputs=(x, y, z))
        )
    for found in results:
        assert found[2] is None
        torch.testing.assert_close(found[0], tensors(0, (3,), (3,))[1] + 2.0)
    for a, b in zip(results[0][:2], results[1][:2]):
        assert torch.equal(a, b)


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


def test_private_functions_exist_in_this_torch():
    """Fails when a new torch drops one: then the stand-in carries the load, and somebody should know."""
    torch_private.select()
    assert torch_private.fused_sgd is torch._fused_sgd_
    assert torch_private.fused_adam is torch._fused_adam_


@pytest.mark.parametrize("dtype", [torch.float32, torch.float16, torch.bfloat16])
def test_norms(dtype):
    wide = None if dtype == torch.float32 else torch.float32
    given = [one.to(dtype) for one in tensors(0, *SHAPES, (0, 2))]
    for public in (False, True):
        torch_private.select(public)
        found = torch_private.foreach_norm(given, 2, dtype=wide)
        for norm, one in zip(found, given, strict=True):
            assert norm.dtype == torch.float32
            assert float(norm) == pytest.approx(float((one.double() ** 2).sum()) ** 0.5, rel=1e-6)


def test_functions_are_looked_up_when_they_are_first_read():
    torch_private.select()
    assert "fused_sgd" not in vars(torch_private)
    first = torch_private.fused_sgd
    assert vars(torch_private)["fused_sgd"] is first
    with pytest.raises(AttributeError, match="no_such_call"):
        _ = torch_private.no_such_call


def test_a_running_profiler_is_seen(monkeypatch):
    assert not torch_private.profiler_is_on()
    with torch.profiler.profile(activities=[torch.profiler.ProfilerActivity.CPU]):
        assert torch_private.profiler_is_on()
    assert not torch_private.profiler_is_on()
    monkeypatch.delattr(torch.autograd, "_profiler_enabled")
    assert not torch_private.profiler_is_on()
