"""Elementwise operators that come from torch."""

import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.torch_import import Functions, compare, expressions

NAMES = """
abs asinh atan ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor lgamma log log10 log1p log2 neg rad2deg reciprocal
relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc
"""
ONE = """
torch.acos(x / 2); torch.asin(x / 2); torch.atanh(x / 2); torch.acosh(x + 1); torch.erfinv(x / 2)
torch.isnan(x).float()
x + 2; torch.add(x, 2, alpha=3); x - 2.5; 2 - x; torch.rsub(x, 2, alpha=2); 3 * x; x / 4; 1 / x
torch.div(x, 0.3, rounding_mode="floor"); torch.div(-x, 0.3, rounding_mode="trunc"); x.detach() // 0.4; (-x) % 0.7
torch.fmod(-x, 0.7); x**2; x**0.5; x**3; 2.0**x; x.clamp(min=0.5); x.clamp_max(0.9); x.clamp(0.4, 0.8)
x * torch.tensor([1.0, 2.0, 3.0, 4.0]); x + torch.tensor(3.0); x.double() * math.pi; torch.where(x > 0.7, x, 0.0)
x.masked_fill(x > 0.7, -1.0); x.masked_fill(x > 0.7, float("-inf")).exp()
"""
SEVERAL = """
x + z; torch.add(x, z, alpha=0.5); z - x; x * y * z; x / y; x * x; x.abs() ** y; torch.remainder(x, y)
torch.maximum(x, z); torch.min(x, z); torch.hypot(x, z); torch.addcmul(x, y, z, value=0.5)
torch.addcdiv(x, z, y, value=2); torch.lerp(x, z, 0.3); torch.where(x > z, x, y); torch.clamp(x, z, z + 1)
x / x.shape[0] + 2 * z.size(0)
x == z; x != 0.0; (x > z) & (x > 0); (x >= 0) | (z < 0); ~(x < z); torch.logical_xor(x <= z, x <= 1); (x > 1).any(1)
(x > -1).all(-1, keepdim=True); x * (x > 0) + (z > 0).float(); (x > 0).sum(); (x > 0).long() * 3 // 2 + 1
(x.round()).bool()
"""


def test_one_operand():
    for net in (Functions({name: getattr(torch, name) for name in NAMES.split()}), expressions(ONE)):
        compare(net, lambda n: (torch.rand(n, 4) + 0.2,))


def test_several_operands_with_broadcasting():
    compare(
        expressions(SEVERAL, "x, y, z"),
        lambda n: (torch.randn(n, 3, 4), torch.rand(3, 1) + 0.5, torch.randn(n, 1, 4)),
    )


WHOLE_QUOTIENTS = torch.__version__.startswith("2.6.")
"""True if torch takes the quotient of whole numbers for whole, where sizes may vary."""


@pytest.mark.skipif(not WHOLE_QUOTIENTS, reason="this torch knows the type of a quotient")
def test_a_quotient_that_torch_takes_for_whole_is_refused():
    with pytest.raises(ArgumentError, match="divides integers.*divide x.float"):
        mx.sym.from_torch(expressions("x / 2"), torch.ones(2, 4, dtype=torch.int64))
    compare(expressions("x.float() / 2"), lambda n: (torch.randint(0, 20, (n, 4)),))


@pytest.mark.skipif(WHOLE_QUOTIENTS, reason="this torch takes a quotient of whole numbers for whole")
def test_whole_numbers_keep_their_type():
    text = "x + 1; x / 2; x // 3; x % 4; x.float() * 0.5; x.sum(-1); torch.clamp(x - 5, min=0)"
    symbol, _, _ = compare(expressions(text), lambda n: (torch.randint(0, 20, (n, 4)),))
    assert [t.__name__ for t in symbol.infer_type()[1][:2]] == ["int64", "float32"]
