"""Elementwise operators that come from torch."""

import math

import pytest
import torch

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.torch_import import Functions, compare


def positive(n):
    return (torch.rand(n, 4) + 0.2,)


def pairs(n):
    return torch.randn(n, 3, 4), torch.rand(3, 1) + 0.5, torch.randn(n, 1, 4)


NAMES = """
abs asinh atan ceil cos cosh deg2rad erf erfc exp exp2 expm1 floor lgamma log log10 log1p log2 neg rad2deg reciprocal
relu round rsqrt sigmoid sign sin sinh sqrt square tan tanh trunc
"""
UNARY = {name: getattr(torch, name) for name in NAMES.split()} | {
    "acos": lambda x: torch.acos(x / 2),
    "asin": lambda x: torch.asin(x / 2),
    "atanh": lambda x: torch.atanh(x / 2),
    "acosh": lambda x: torch.acosh(x + 1),
    "erfinv": lambda x: torch.erfinv(x / 2),
    "nan": lambda x: torch.isnan(x).float(),
}


def test_functions_of_one_operand():
    compare(Functions(UNARY), positive)


NUMBERS = {
    "plus": lambda x: x + 2,
    "plus_alpha": lambda x: torch.add(x, 2, alpha=3),
    "minus": lambda x: x - 2.5,
    "from": lambda x: 2 - x,
    "rsub": lambda x: torch.rsub(x, 2, alpha=2),
    "times": lambda x: 3 * x,
    "over": lambda x: x / 4,
    "under": lambda x: 1 / x,
    "floor_over": lambda x: torch.div(x, 0.3, rounding_mode="floor"),
    "trunc_over": lambda x: torch.div(-x, 0.3, rounding_mode="trunc"),
    "floordiv": lambda x: x.detach() // 0.4,
    "mod": lambda x: (-x) % 0.7,
    "fmod": lambda x: torch.fmod(-x, 0.7),
    "square": lambda x: x**2,
    "root": lambda x: x**0.5,
    "cube": lambda x: x**3,
    "power": lambda x: 2.0**x,
    "maximum": lambda x: x.clamp(min=0.5),
    "minimum": lambda x: x.clamp_max(0.9),
    "clip": lambda x: x.clamp(0.4, 0.8),
    "constant": lambda x: x * torch.tensor([1.0, 2.0, 3.0, 4.0]),
    "scalar_tensor": lambda x: x + torch.tensor(3.0),
    "double": lambda x: x.double() * math.pi,
    "choice": lambda x: torch.where(x > 0.7, x, 0.0),
    "filled": lambda x: x.masked_fill(x > 0.7, -1.0),
    "infinite": lambda x: x.masked_fill(x > 0.7, float("-inf")).exp(),
}


def test_numbers():
    compare(Functions(NUMBERS), positive)


TWO = {
    "add": lambda x, y, z: x + z,
    "add_alpha": lambda x, y, z: torch.add(x, z, alpha=0.5),
    "sub": lambda x, y, z: z - x,
    "mul": lambda x, y, z: x * y * z,
    "div": lambda x, y, z: x / y,
    "same": lambda x, y, z: x * x,
    "pow": lambda x, y, z: x.abs() ** y,
    "mod": lambda x, y, z: torch.remainder(x, y),
    "maximum": lambda x, y, z: torch.maximum(x, z),
    "minimum": lambda x, y, z: torch.min(x, z),
    "hypot": lambda x, y, z: torch.hypot(x, z),
    "addcmul": lambda x, y, z: torch.addcmul(x, y, z, value=0.5),
    "addcdiv": lambda x, y, z: torch.addcdiv(x, z, y, value=2),
    "lerp": lambda x, y, z: torch.lerp(x, z, 0.3),
    "where": lambda x, y, z: torch.where(x > z, x, y),
    "clamp": lambda x, y, z: torch.clamp(x, z, z + 1),
    "size": lambda x, y, z: x / x.shape[0] + 2 * z.size(0),
}


def test_two_operands_with_broadcasting():
    compare(Functions(TWO), pairs)


COMPARED = {
    "eq": lambda x, y, z: x == z,
    "ne": lambda x, y, z: x != 0.0,
    "gt": lambda x, y, z: (x > z) & (x > 0),
    "ge": lambda x, y, z: (x >= 0) | (z < 0),
    "lt": lambda x, y, z: ~(x < z),
    "le": lambda x, y, z: torch.logical_xor(x <= z, x <= 1),
    "any": lambda x, y, z: (x > 1).any(1),
    "all": lambda x, y, z: (x > -1).all(-1, keepdim=True),
    "used": lambda x, y, z: x * (x > 0) + (z > 0).float(),
    "count": lambda x, y, z: (x > 0).sum(),
    "whole": lambda x, y, z: (x > 0).long() * 3 // 2 + 1,
    "into_bool": lambda x, y, z: (x.round()).bool(),
}


def test_comparison_and_logic():
    compare(Functions(COMPARED), pairs)


WHOLE_QUOTIENTS = torch.__version__.startswith("2.6.")
"""Whether torch takes the quotient of whole numbers for whole, where sizes may vary."""


@pytest.mark.skipif(not WHOLE_QUOTIENTS, reason="this torch knows the type of a quotient")
def test_a_quotient_that_torch_takes_for_whole_is_refused():
    with pytest.raises(ArgumentError, match="divides integers.*divide x.float"):
        mx.sym.from_torch(Functions({"half": lambda x: x / 2}), torch.ones(2, 4, dtype=torch.int64))
    compare(Functions({"half": lambda x: x.float() / 2}), lambda n: (torch.randint(0, 20, (n, 4)),))


@pytest.mark.skipif(WHOLE_QUOTIENTS, reason="this torch takes a quotient of whole numbers for whole")
def test_whole_numbers_keep_their_type():
    functions = {
        "sum": lambda x: x + 1,
        "half": lambda x: x / 2,
        "floor": lambda x: x // 3,
        "mod": lambda x: x % 4,
        "as_float": lambda x: x.float() * 0.5,
        "many": lambda x: x.sum(-1),
        "negative": lambda x: torch.clamp(x - 5, min=0),
    }
    symbol, _, _ = compare(Functions(functions), lambda n: (torch.randint(0, 20, (n, 4)),))
    types = dict(zip(symbol.list_outputs(), symbol.infer_type()[1]))
    assert types["sum_output"].__name__ == "int64"
    assert types["half_output"].__name__ == "float32"
