"""Activation functions."""

from __future__ import annotations

import math
from typing import Any

import torch

from ..symbol import Symbol
from .builder import SymbolBuilder
from .table import TABLE, translates
from .value import TorchValue


def _times(b: SymbolBuilder, value: TorchValue, factor: Symbol) -> Symbol:
    return b.op("elemwise_mul", value, factor)


@translates("softplus")
def _softplus(b: SymbolBuilder, value: TorchValue, beta: float = 1, threshold: float = 20) -> Symbol:
    if beta == 1:
        return b.op("Activation", value, act_type="softrelu")
    grown = b.op("Activation", b.with_number("mul", value, beta), act_type="softrelu")
    return b.op("_div_scalar", grown, scalar=float(beta))


@translates("log_sigmoid")
def _log_sigmoid(b: SymbolBuilder, value: TorchValue) -> Symbol:
    return b.op("negative", b.op("Activation", b.op("negative", value), act_type="softrelu"))


@translates("gelu")
def _gelu(b: SymbolBuilder, value: TorchValue, approximate: str = "none") -> Symbol:
    if approximate != "tanh":
        return b.op("LeakyReLU", value, act_type="gelu")
    cube = b.op("elemwise_mul", b.op("square", value), value)
    inner = b.op("elemwise_add", value, b.op("_mul_scalar", cube, scalar=0.044715))
    curve = b.op("tanh", b.op("_mul_scalar", inner, scalar=math.sqrt(2.0 / math.pi)))
    return _times(b, value, b.op("_mul_scalar", b.op("_plus_scalar", curve, scalar=1.0), scalar=0.5))


@translates("silu")
def _silu(b: SymbolBuilder, value: TorchValue) -> Symbol:
    return _times(b, value, b.op("sigmoid", value))


@translates("mish")
def _mish(b: SymbolBuilder, value: TorchValue) -> Symbol:
    return _times(b, value, b.op("tanh", b.op("Activation", value, act_type="softrelu")))


@translates("hardsigmoid")
def _hardsigmoid(b: SymbolBuilder, value: TorchValue) -> Symbol:
    return b.op("hard_sigmoid", value, alpha=1.0 / 6.0, beta=0.5)


@translates("hardswish")
def _hardswish(b: SymbolBuilder, value: TorchValue) -> Symbol:
    return _times(b, value, _hardsigmoid(b, value))


@translates("hardtanh")
def _hardtanh(b: SymbolBuilder, value: TorchValue, least: float = -1, most: float = 1) -> Symbol:
    return b.op("clip", value, a_min=float(least), a_max=float(most))


@translates("relu6")
def _relu6(b: SymbolBuilder, value: TorchValue) -> Symbol:
    return _hardtanh(b, value, 0, 6)


@translates("leaky_relu")
def _leaky_relu(b: SymbolBuilder, value: TorchValue, slope: float = 0.01) -> Symbol:
    return b.op("LeakyReLU", value, act_type="leaky", slope=float(slope))


@translates("elu")
def _elu(
    b: SymbolBuilder, value: TorchValue, alpha: float = 1, scale: float = 1, input_scale: float = 1
) -> Symbol:
    data = b.sym(value) if input_scale == 1 else b.with_number("mul", value, input_scale)
    made = b.op("LeakyReLU", data, act_type="elu", slope=float(alpha))
    return made if scale == 1 else b.op("_mul_scalar", made, scalar=float(scale))


@translates("selu")
def _selu(b: SymbolBuilder, value: TorchValue) -> Symbol:
    return _elu(b, value, 1.6732632423543772, 1.0507009873554805)


@translates("celu")
def _celu(b: SymbolBuilder, value: TorchValue, alpha: float = 1.0) -> Symbol:
    return _elu(b, value, alpha, 1, 1.0 / alpha)


@translates("prelu", "_prelu_kernel")
def _prelu(b: SymbolBuilder, value: TorchValue, weight: TorchValue) -> Symbol:
    if weight.rank > 1:
        size = weight.dims[1] if value.rank > 1 else 1
        weight = b.reshape(weight, (size,))
    return b.op("LeakyReLU", value, weight, act_type="prelu")


@translates("rrelu")
def _rrelu(
    b: SymbolBuilder,
    value: TorchValue,
    lower: float = 1 / 8,
    upper: float = 1 / 3,
    training: bool = False,
    *rest: Any,
) -> Symbol:
    if b.training and not training:
        return _leaky_relu(b, value, (lower + upper) / 2)
    both = b.op("LeakyReLU", value, act_type="rrelu", lower_bound=lower, upper_bound=upper)
    return both[0]


@translates("threshold")
def _threshold(b: SymbolBuilder, value: TorchValue, threshold: float, number: float) -> Symbol:
    above = b.op("_greater_scalar", value, scalar=float(threshold))
    other = b.op("_plus_scalar", b.op("zeros_like", value), scalar=float(number))
    return b.op("where", above, value, other)


@translates("hardshrink")
def _hardshrink(b: SymbolBuilder, value: TorchValue, size: float = 0.5) -> Symbol:
    far = b.op("_greater_scalar", b.op("abs", value), scalar=float(size))
    return b.op("where", far, value, b.op("zeros_like", value))


@translates("softshrink")
def _softshrink(b: SymbolBuilder, value: TorchValue, size: float = 0.5) -> Symbol:
    return b.op("elemwise_sub", value, b.op("clip", value, a_min=-float(size), a_max=float(size)))


@translates("glu")
def _glu(b: SymbolBuilder, value: TorchValue, dim: int = -1) -> Symbol:
    halves = b.op("SliceChannel", value, num_outputs=2, axis=value.axis(dim))
    return b.op("elemwise_mul", halves[0], b.op("sigmoid", halves[1]))


def _softmax(name: str) -> Any:
    def translate(b: SymbolBuilder, value: TorchValue, dim: int, *rest: Any, **named: Any) -> Symbol:
        value = b.cast(value, b.result.dtype)
        return b.op(name, value, axis=value.axis(dim))

    return translate


for _name in ("softmax", "log_softmax"):
    TABLE[_name] = TABLE[f"_{_name}"] = TABLE[f"special_{_name}"] = _softmax(_name)


# what is drawn at random


@translates("dropout", "native_dropout")
def _dropout(b: SymbolBuilder, value: TorchValue, p: float, train: bool | None = None) -> Any:
    made = _dropped(b, value, p, train, ())
    return made if isinstance(b.result, torch.Tensor) else [made, None]


@translates("feature_dropout")
def _feature_dropout(b: SymbolBuilder, value: TorchValue, p: float, train: bool) -> Any:
    return _dropped(b, value, p, train, tuple(range(2, value.rank)))


_LEAST = -1.7580993408473766  # what selu tends to on the left


@translates("alpha_dropout")
def _alpha_dropout(b: SymbolBuilder, value: TorchValue, p: float, train: bool) -> Any:
    """Set elements to the least value of selu in training, and keep mean and variance."""
    if not p or p == 1 or (b.training and not train):
        return value
    kept = b.op("Dropout", b.op("ones_like", value), p=float(p))  # 0 or 1 / (1 - p) in training, else 1
    factor = ((_LEAST**2 * p + 1) * (1 - p)) ** -0.5
    least = b.op("_plus_scalar", b.op("zeros_like", value), scalar=_LEAST)
    chosen = b.op("where", kept, value, least)
    moved = b.op("_plus_scalar", b.op("_mul_scalar", chosen, scalar=factor), scalar=-factor * _LEAST * p)
    return b.op("where", b.op("_equal_scalar", kept, scalar=1.0), value, moved)


def _dropped(b: SymbolBuilder, value: TorchValue, p: float, train: bool | None, axes: tuple[int, ...]) -> Any:
    """Drop in training; where the module is in training and this part of it is not, never."""
    if not p or (b.training and not train):
        return value
    return b.op("Dropout", value, p=float(p), **({"axes": axes} if axes else {}))
