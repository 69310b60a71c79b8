"""Products by oneDNN and by MKL: the same values and gradients, chosen by processor and size."""

import platform

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import dpmodule as mx
from dpmodule._core import torch_private
from dpmodule.ops.nn import linear as module


@pytest.fixture(autouse=True)
def chosen_again(monkeypatch):
    module.onednn_is_faster.cache_clear()
    monkeypatch.setenv("DPMODULE_ONEDNN", "1")
    yield
    module.onednn_is_faster.cache_clear()
    torch_private.select()


@pytest.fixture
def counted(monkeypatch):
    """Count the calls of oneDNN."""
    calls = []
    real = torch_private.onednn_linear

    def call(*args):
        calls.append(args[0].shape)
        return real(*args)

    monkeypatch.setattr(torch_private, "onednn_linear", call)
    return calls


def tensors(rows=64, columns=512, units=512):
    random = np.random.RandomState(0)
    shapes = (rows, columns), (units, columns), (units,)
    return [torch.from_numpy(random.uniform(-1, 1, s).astype("f")) for s in shapes]


@pytest.mark.skipif(
    torch_private.onednn_linear is torch_private.plain_linear, reason="this torch has no oneDNN linear"
)
@pytest.mark.parametrize("with_bias", [True, False])
def test_values_and_gradients_agree(with_bias, counted):
    results = []
    for function in (module.linear, F.linear):
        data, weight, bias = (t.clone().requires_grad_() for t in tensors())
        out = function(data, weight, bias if with_bias else None)
        out.square().sum().backward()
        results.append([out.detach(), data.grad, weight.grad, bias.grad])
    for ours, plain in zip(*results):
        if plain is not None:
            torch.testing.assert_close(ours, plain, rtol=1e-4, atol=1e-3)
    assert len(counted) == 3


@pytest.mark.skipif(
    torch_private.onednn_linear is torch_private.plain_linear, reason="this torch has no oneDNN linear"
)
def test_a_step_of_a_sequence_reaches_onednn_with_its_columns_together(monkeypatch):
    """OneDNN takes a thousand times as long where they lie apart."""
    strides = []
    real = torch_private.onednn_linear

    def call(left, right, *rest):
        strides.append(right.stride(1) if right.stride(0) == 1 else right.stride(0))
        return real(left, right, *rest)

    monkeypatch.setattr(torch_private, "onednn_linear", call)
    random = torch.Generator().manual_seed(0)
    sequence = torch.randn(64, 5, 400, generator=random, requires_grad=True)
    weight = torch.randn(400, 400, generator=random, requires_grad=True)
    heads = torch.randn(64, 400, generator=random)
    step = sequence[:, 2]
    found = torch.autograd.grad(module.linear(step, weight), (sequence, weight), heads)
    assert strides == [400, 400, 400]
    expected = torch.zeros(64, 5, 400, dtype=torch.float64)
    expected[:, 2] = heads.double() @ weight.detach().double()
    torch.testing.assert_close(found[0], expected.float(), rtol=1e-4, atol=1e-4)
    expected = heads.double().t() @ step.detach().double()
    torch.testing.assert_close(found[1], expected.float(), rtol=1e-4, atol=1e-4)


@pytest.mark.skipif(
    torch_private.onednn_linear is torch_private.plain_linear, reason="this torch has no oneDNN linear"
)
def test_second_derivatives():
    data, weight, _ = (t.requires_grad_() for t in tensors())
    (first,) = torch.autograd.grad(module.linear(data, weight).pow(3).sum(), data, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), weight)
    (first,) = torch.autograd.grad(F.linear(data, weight).pow(3).sum(), data, create_graph=True)
    (expected,) = torch.autograd.grad(first.sum(), weight)
    torch.testing.assert_close(second, expected, rtol=1e-3, atol=1e-3 * float(expected.abs().max()))


@pytest.mark.parametrize(
    "change",
    [
        lambda d, w: (d[:, :8], w[:, :8]),
        lambda d, w: (d.double(), w.double()),
        lambda d, w: (d.reshape(2, 32, 512), w),
    ],
)
def test_others_stay_with_torch(change, counted):
    data, weight, _ = tensors()
    data, weight = change(data, weight)
    torch.testing.assert_close(module.linear(data, weight), F.linear(data, weight))
    assert counted == []


def test_few_rows_have_gradients_by_torch(counted):
    data, weight, bias = (t.clone().requires_grad_() for t in tensors(6, 1024, 2048))
    module.linear(data, weight, bias).square().sum().backward()
    found = data.grad
    data.grad = None
    F.linear(data, weight, bias).square().sum().backward()
    torch.testing.assert_close(found, data.grad, rtol=1e-4, atol=1e-3)
    assert len(counted) == (torch_private.onednn_linear is not torch_private.plain_linear)


def test_small_products_stay_with_torch(counted):
    module.linear(*tensors(rows=2))
    assert counted == []


def test_slices_of_a_batch_give_the_same_rows():
    data, weight, bias = tensors()
    halves = [module.linear(part, weight, bias) for part in data.split(32)]
    assert torch.equal(torch.cat(halves), module.linear(data, weight, bias))


def test_vmap_stays_with_torch(counted):
    data, weight, bias = tensors()
    found = torch.vmap(module.linear, in_dims=(0, None, None))(data.reshape(1, 64, 512), weight, bias)
    torch.testing.assert_close(found[0], F.linear(data, weight, bias))
    assert counted == []


def test_the_variable_decides(monkeypatch, counted):
    monkeypatch.setenv("DPMODULE_ONEDNN", "0")
    module.onednn_is_faster.cache_clear()
    module.linear(*tensors())
    assert counted == []
    assert not module.onednn_is_faster()


@pytest.mark.parametrize(
    ("vendor", "wins"),
    [
        ("vendor_id\t: AuthenticAMD\n", True),
        ("vendor_id\t: HygonGenuine\n", True),
        ("AMD64 Family 25 Model 33 Stepping 0, AuthenticAMD", True),
        ("vendor_id\t: GenuineIntel\n", False),
        ("", False),
    ],
)
def test_the_processor_decides_where_nothing_is_said(vendor, wins, monkeypatch):
    monkeypatch.delenv("DPMODULE_ONEDNN")
    monkeypatch.setattr(module, "_vendor", lambda: vendor)
    there = (
        torch_private.onednn_linear is not torch_private.plain_linear and torch.backends.mkl.is_available()
    )
    assert module.onednn_is_faster() == (wins and there)


def test_the_vendor_is_told_by_the_system(monkeypatch, tmp_path):
    assert module._vendor() == module._vendor()
    monkeypatch.setattr("builtins.open", lambda *args: (_ for _ in ()).throw(FileNotFoundError()))
    assert module._vendor() == platform.processor()


def test_without_the_private_function_everything_works():
    torch_private.select(public=True)
    assert not module.onednn_is_faster()
    data, weight, bias = tensors()
    torch.testing.assert_close(module.linear(data, weight, bias), F.linear(data, weight, bias))


def test_layers_use_it(counted):
    data, weight, bias = tensors()
    arrays = [mx.nd.array(t.numpy()) for t in (data, weight, bias)]
    found = mx.nd.FullyConnected(*arrays, num_hidden=512).asnumpy()
    np.testing.assert_allclose(found, F.linear(data, weight, bias).numpy(), rtol=1e-4, atol=1e-4)
    assert bool(counted) == (torch_private.onednn_linear is not torch_private.plain_linear)
