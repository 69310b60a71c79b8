"""Products of dense layers: chosen by processor and size, with the same values and gradients."""

import platform
from itertools import product
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch.nn import functional as F

import dpmodule as mx
from dpmodule import native
from dpmodule._core import torch_private
from dpmodule.ops.nn import linear as module
from helpers.arrays import numbers
from helpers.walk import walks

needs_kernels = pytest.mark.skipif(
    getattr(native.core, "vector_width", 0) < 8, reason="there is no kernel for this compiler or processor"
)
HAS_ONEDNN = torch_private.onednn_linear is not torch_private.plain_linear
needs_onednn = pytest.mark.skipif(not HAS_ONEDNN, reason="this torch has no oneDNN linear")


def forget_the_processor():
    module.onednn_is_faster.cache_clear()
    module.kernel_beats_mkl.cache_clear()
    module._is_amd.cache_clear()


@pytest.fixture(autouse=True)
def chosen_again(monkeypatch):
    forget_the_processor()
    monkeypatch.setenv("DPMODULE_ONEDNN", "1")
    yield
    forget_the_processor()
    torch_private.select()


@pytest.fixture
def calls(monkeypatch):
    """Strides of the right matrices of oneDNN's calls."""
    found, real = [], torch_private.onednn_linear

    def call(left, right, *rest):
        found.append(right.stride(1) if right.stride(0) == 1 else right.stride(0))
        return real(left, right, *rest)

    monkeypatch.setattr(torch_private, "onednn_linear", call)
    return found


def tensors(rows=64, columns=512, units=512):
    return [numbers(*shape, seed=i) for i, shape in enumerate([(rows, columns), (units, columns), (units,)])]


def agree(found, wanted, tolerance=1e-3):
    torch.testing.assert_close(found, wanted, rtol=1e-4, atol=tolerance)


@pytest.mark.parametrize(
    ("rows", "with_bias", "times"),
    [(64, True, 3), (64, False, 3), pytest.param(6, True, 2, marks=needs_kernels)],
)
def test_values_and_gradients(rows, with_bias, times, calls):
    results = []
    for function in (module.linear, F.linear):
        leaves = [t.clone().requires_grad_() for t in tensors(rows, 1024 if rows == 6 else 512, 2048)]
        out = function(*leaves[:2], leaves[2] if with_bias else None)
        out.square().sum().backward()
        results.append([out.detach(), *(leaf.grad for leaf in leaves[: 2 + with_bias])])
    for ours, plain in zip(*results):
        agree(ours, plain, 2e-3)
    assert len(calls) == (times if HAS_ONEDNN else 0)


@needs_onednn
def test_a_step_of_a_sequence_reaches_onednn_with_its_columns_together(calls):
    """OneDNN takes a thousand times as long where they lie apart."""
    sequence, weight, heads = numbers(64, 5, 400), numbers(400, 400, seed=1), numbers(64, 400, seed=2)
    leaves = sequence.requires_grad_(), weight.requires_grad_()
    step = sequence[:, 2]
    found = torch.autograd.grad(module.linear(step, weight), leaves, heads)
    assert calls == [400, 400, 400]
    wanted = torch.autograd.grad(F.linear(step.double(), weight.double()), leaves, heads.double())
    for one, other in zip(found, wanted):
        agree(one, other, 1e-4)


@pytest.mark.parametrize(("rows", "columns", "units"), [(100, 70, 60), (256, 33, 384), (64, 64, 100)])
def test_gradients_of_many_samples(rows, columns, units):
    found = []
    for function, dtype in ((module.linear, torch.float32), (F.linear, torch.float64)):
        leaves = [each.to(dtype).requires_grad_() for each in tensors(rows, columns, units)]
        function(*leaves).square().sum().backward()
        found.append([leaf.grad.double() for leaf in leaves])
    for ours, wanted in zip(*found):
        torch.testing.assert_close(ours, wanted, rtol=1e-4, atol=1e-6 * float(wanted.abs().max()))


@pytest.mark.parametrize("sizes", [(), (256, 64, 384), (512, 64, 384)])
def test_second_derivatives(sizes):
    found = []
    for function in (module.linear, F.linear):
        data, weight, _ = (t.requires_grad_() for t in tensors(*sizes))
        (first,) = torch.autograd.grad(function(data, weight).pow(3).sum(), data, create_graph=True)
        found += torch.autograd.grad(first.sum(), weight)
    torch.testing.assert_close(*found, rtol=1e-3, atol=1e-3 * float(found[1].abs().max()))


def test_others_stay_with_torch(calls):
    data, weight, bias = tensors()
    others = [(data[:, :8], weight[:, :8]), (data.double(), weight.double())]
    for d, w in [*others, (data.reshape(2, 32, 512), weight), (data[:2], weight)]:
        agree(module.linear(d, w), F.linear(d, w))
    found = torch.vmap(module.linear, in_dims=(0, None, None))(data.reshape(1, 64, 512), weight, bias)
    agree(found[0], F.linear(data, weight, bias))
    assert calls == []


def test_the_variable_decides(monkeypatch, calls):
    monkeypatch.setenv("DPMODULE_ONEDNN", "0")
    module.onednn_is_faster.cache_clear()
    module.linear(*tensors())
    assert calls == []
    assert not module.onednn_is_faster()


VENDORS = {"vendor_id\t: HygonGenuine\n": True, "AMD64 Family 25, AuthenticAMD": True, "GenuineIntel": False}


@pytest.mark.parametrize("capability", ["AVX512", "AVX2"])
@pytest.mark.parametrize(("vendor", "wins"), VENDORS.items())
def test_the_processor_decides_where_nothing_is_said(vendor, wins, capability, monkeypatch):
    monkeypatch.delenv("DPMODULE_ONEDNN")
    monkeypatch.setattr(module, "_vendor", lambda: vendor)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    wins = wins and capability == "AVX512"
    assert module.onednn_is_faster() == (wins and HAS_ONEDNN and torch.backends.mkl.is_available())


@pytest.mark.parametrize(
    ("vendor", "capability", "width", "family", "wins"),
    [
        ("AuthenticAMD", "AVX512", 16, "26", True),
        ("AuthenticAMD", "AVX512", 16, "25", False),
        ("AuthenticAMD", "AVX512", 16, "", False),
        ("AuthenticAMD", "AVX512", 8, "26", False),
        ("AuthenticAMD", "AVX2", 16, "26", False),
        ("GenuineIntel", "AVX512", 16, "26", False),
    ],
)
def test_the_family_decides_about_wide_vectors(vendor, capability, width, family, wins, monkeypatch):
    monkeypatch.setattr(module, "_native", SimpleNamespace(vector_width=width))
    module._is_amd.cache_clear()
    monkeypatch.setattr(module, "_from_system", {"vendor_id": vendor, "cpu family": family}.get)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: capability)
    assert module.beats_mkl_by_width.__wrapped__() == wins


def test_the_vendor_is_told_by_the_system(monkeypatch):
    assert module._vendor() == module._vendor()
    monkeypatch.setattr("builtins.open", lambda *args: (_ for _ in ()).throw(FileNotFoundError()))
    assert module._vendor() == platform.processor()


def test_without_the_private_function_everything_works():
    torch_private.select(public=True)
    assert not module.onednn_is_faster()
    agree(module.linear(*tensors()), F.linear(*tensors()))


# kernels of the native extension; values: native/test_kernels.py


@needs_kernels
@walks(
    product(
        [(8, 32, 256), (9, 33, 257), (5, 3, 0), (200, 70, 512)], [False, True], [False, True], [False, True]
    )
)
def test_products_of_every_layout(sizes, turned_left, turned_right, with_bias):
    rows, columns, depth = sizes
    left, right = numbers(rows, depth), numbers(columns, depth, seed=1)
    left = left.t().contiguous().t() if turned_left else left
    right = right.t().contiguous().t() if turned_right else right
    bias = numbers(columns, seed=2) if with_bias else None
    found = module.multiply(left, right, bias)
    assert found.is_contiguous()
    agree(found, F.linear(left, right, bias), 1e-4)
    for activation in ("", "relu"):
        packed = module.dense(left.contiguous(), [((columns, depth), module.pack(right), bias, activation)])
        assert torch.equal(packed, found.relu() if activation else found)


@needs_kernels
@pytest.mark.parametrize("activation", ["sigmoid", "tanh", "gelu"])
def test_activations_of_results(activation):
    values = torch.cat([torch.linspace(-12, 12, 4001), torch.tensor([0.0, 1e-30, -1e-30, 3e38, -3e38])])
    of = F.gelu if activation == "gelu" else getattr(torch, activation)
    want, one = of(values.double()).float(), torch.ones(1, 1)
    for data, weight in ((one, values[:, None]), (values[:, None], module.pack(one))):
        found = module.dense(data, [((len(values) // len(data), 1), weight, None, activation)])
        torch.testing.assert_close(found.flatten(), want, rtol=5e-6, atol=3e-7)


@needs_kernels
def test_tensors_of_other_strides():
    left, right, bias = numbers(20, 800)[::5, ::2], numbers(60, 1200)[:, ::3], numbers(120)[::2]
    for weight in (right, right.contiguous()):
        agree(module.multiply(left, weight, bias), F.linear(left, weight, bias), 1e-4)


@needs_kernels
def test_the_sizes_of_every_kernel(monkeypatch):
    monkeypatch.setattr(module, "_vendor", lambda: "GenuineIntel")
    many = {(1, 1000, 2048): True, (4, 128, 512): True, (0, 1000, 2048): False, (5, 1000, 2048): False}
    many |= {(1, 127, 512): False, (1, 20000, 127): False}
    many |= {(64, 128, 784): True, (7, 128, 784): True, (64, 128, 1025): False, (8, 8, 8): False}
    many |= {(64, 4, 784): False, (512, 5, 784): True}
    packed = {(3, 2, 5): "native", (5, 10, 64): "native", (8, 1024, 1024): "native", (600, 8, 64): ""}
    packed |= {(256, 1024, 10): ""}
    packed |= dict.fromkeys([(9000, 64, 64), (2**14, 256, 255)], "onednn" if HAS_ONEDNN else "")
    large = 16, 1024, 1024
    packed |= {large: "onednn" if HAS_ONEDNN else "mkl" if module.has_packed_mkl() else ""}
    assert {sizes: module.use_kernel(*sizes) for sizes in many} == many
    assert {sizes: module.packed_kernel(*sizes) for sizes in packed} == packed
    monkeypatch.setenv("DPMODULE_ONEDNN", "0")
    forget_the_processor()
    sizes = [large, (160, 10000, 200), (64, 768, 256), (2048, 1024, 1024)]
    by_mkl = ["mkl"] * 4 if module.has_packed_mkl() else ["", "", "native", ""]
    assert [module.packed_kernel(*each) for each in sizes] == by_mkl
    assert not module.packed_kernel(64, 128, 4096)
    own = not module.has_packed_mkl()  # else MKL is faster on processors that it favours, except for few rows
    assert [module.use_kernel(64, 128, 784), module.use_kernel(1, 1000, 2048)] == [own, True]
    assert [module.use_kernel(512, 1024, depth) for depth in (1, 2, 8)] == [False, own, own]
    monkeypatch.delenv("DPMODULE_ONEDNN")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    for vendor, is_amd in VENDORS.items():
        forget_the_processor()
        monkeypatch.setattr(module, "_vendor", lambda vendor=vendor: vendor)
        many = "onednn" if HAS_ONEDNN else "mkl"
        by_mkl = ["mkl", "mkl", "mkl", many] if module.has_packed_mkl() else ["", "", "native", ""]
        own = ["native"] * 4
        assert [module.packed_kernel(*each) for each in sizes] == (own if is_amd else by_mkl)
        assert bool(module.packed_kernel(7000, 25, 256)) == is_amd
        own = is_amd or not module.has_packed_mkl()
        assert [module.use_kernel(512, 1024, depth) for depth in (1, 2, 8)] == [False, own, own]
    monkeypatch.setattr(native, "core", None)
    monkeypatch.setattr(module, "_native", None)
    assert not module.use_kernel(64, 128, 784)
    assert not module.packed_kernel(3, 2, 5)


@needs_kernels
def test_halves_of_wide_vectors_multiply_all_but_the_largest(monkeypatch):
    monkeypatch.setattr(module, "_vendor", lambda: "AuthenticAMD")
    monkeypatch.setattr(module, "beats_mkl_by_width", lambda: False)
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX512")
    sizes = [(600, 8, 64), (256, 1024, 10), (64, 128, 4096), (4096, 5, 1024), (64, 4, 512), (4, 4, 512)]
    own = ["native", "native", "native", "native", "", "native"]
    assert [module.packed_kernel(*each) for each in sizes] == own
    assert module.packed_kernel(2048, 1024, 1024) == ("onednn" if HAS_ONEDNN else "")
    assert not module.packed_kernel(2**14, 2, 1024, True)
    assert module.packed_kernel(64, 2, 512, True) == "native"


@needs_kernels
def test_few_columns_are_left_to_torch(calls):
    for rows, columns, depth in ((4096, 4, 512), (4096, 1, 1024)):
        leaves = [numbers(*size).requires_grad_() for size in ((rows, depth), (columns, depth))]
        agree(module.linear(*leaves), F.linear(*leaves))
    assert calls == []


@needs_kernels
@pytest.mark.parametrize(("vendor", "wins"), VENDORS.items())
def test_narrow_products_by_the_kernel_on_amd_without_avx512(vendor, wins, monkeypatch):
    monkeypatch.setattr(module, "has_packed_mkl", lambda: True)
    monkeypatch.setenv("DPMODULE_ONEDNN", "0")
    monkeypatch.setattr(torch.backends.cpu, "get_cpu_capability", lambda: "AVX2")
    monkeypatch.setattr(module, "_vendor", lambda: vendor)
    fast = [(64, 64, 512), (64, 24, 700), (8192, 700, 500), (8192, 64, 2000), (1024, 256, 25)]
    slow = [
        (64, 64, 784, True),
        (1024, 64, 23),
        (1023, 65, 300),
        (63, 64, 784),
        (8192, 128, 513),
        (16, 64, 127),
        (7, 128, 784),
    ]
    assert [module.use_kernel(*each) for each in fast] == [wins] * len(fast)
    assert not any(module.use_kernel(*each) for each in slow)


@needs_kernels
def test_the_tensors_of_every_kernel():
    left, right, few, wide = numbers(64, 64), numbers(64, 64, seed=1), numbers(2, 300), numbers(300, 300)
    assert module.fits_kernel(left, right)
    assert module.fits_kernel(few, wide)
    for other in (left.double(), left.half(), left.view(64, 8, 8), left.to("meta")):
        assert not module.fits_kernel(other, right)
    for pair in ((few.double(), wide.double()), (few[0], wide), (few, wide.to_sparse())):
        assert not module.fits_kernel(*pair)
    seen = []
    torch.vmap(lambda x: seen.append(module.fits_kernel(x, right)) or x)(torch.zeros(2, 64, 64))
    assert seen == [False]


@needs_kernels
@pytest.mark.parametrize("function", [module.linear, module.fastest_product])
def test_products_without_gradients_are_by_the_kernel(function, monkeypatch):
    left, right, seen, real = numbers(64, 64), numbers(32, 64, seed=1), [], module.multiply
    monkeypatch.setattr(module, "multiply", lambda *given: seen.append(given) or real(*given))
    with torch.no_grad():
        agree(function(left, right), F.linear(left, right), 1e-4)
    assert len(seen) == 1


def test_slices_of_a_batch_give_the_same_rows():
    data, weight, bias = tensors()
    halves = [module.linear(part, weight, bias) for part in data.split(32)]
    assert torch.equal(torch.cat(halves), module.linear(data, weight, bias))


class Imaginary(torch.nn.Module):
    def forward(self, x):
        return torch.complex(x, x).conj().imag  # a view of memory with other signs


@pytest.mark.parametrize("is_train", [False, True])
def test_a_view_of_memory_with_other_signs(is_train):
    x, weight = torch.randn(2, 8, 16, 16), torch.randn(16, 8, 3, 3)
    made = mx.sym.torch_module(Imaginary(), mx.sym.Variable("w"))
    symbol = mx.sym.Convolution(mx.sym.Variable("x"), made, kernel=(3, 3), num_filter=16, no_bias=True)
    values = {"x": mx.nd.from_torch(x), "w": mx.nd.from_torch(weight)}
    grads = {name: mx.nd.zeros(value.shape) for name, value in values.items()}
    got = symbol.bind(mx.cpu(), values, grads).forward(is_train)[0].asnumpy()
    np.testing.assert_allclose(got, torch.conv2d(x, -weight), rtol=1e-3, atol=1e-4)
