"""Elementwise functions of one array."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import torch
import torch.nn.functional as F

from ..._core import torch_private
from ..._devices.device_transfer import tensor_like
from ...base import Shape
from ..attrs import boolean, optional, real
from ..registry import bound, declare
from ..shapes import forward, same, typed
from ..spec import NEVER, ROWS, Attr, Onnx, arg
from ..tracing import is_tracing
from .pointwise import Elementwise, keep_type, relu, round_half_away, to_integer, with_gradient

_LARGE = 2**10
"""Elements from which two operations cost less than a slow gradient."""


def _round_half_down(x: torch.Tensor) -> torch.Tensor:
    floor = torch.floor(x)
    return floor + (x - floor > 0.5)


def _cube_root(x: torch.Tensor) -> torch.Tensor:
    return torch.copysign(x.abs().pow(1.0 / 3.0), x)


def _gamma(x: torch.Tensor) -> torch.Tensor:
    # exp(lgamma) is |gamma|; below zero the sign alternates, and integers are poles
    floor = torch.floor(x)
    sign = torch.where(x < 0, 1.0 - 2.0 * torch.remainder(floor, 2.0), 1.0)
    sign = torch.where((x < 0) & (x == floor), math.nan, sign)
    return torch.lgamma(x).exp() * sign.to(x.dtype)


def _logical_not(x: torch.Tensor) -> torch.Tensor:
    return torch.eq(x, 0).to(x.dtype)


ELEMENTWISE: dict[str, tuple[Elementwise, str, Onnx]] = {
    "abs": (torch.abs, "Return the magnitude; its gradient at 0 is 0", Onnx("Abs")),
    "sign": (
        torch.sign,
        "Return -1, 0 or 1, with 0 for 0 and NaN; the gradient is 0",
        Onnx("Sign", builder="sign"),
    ),
    "round": (
        round_half_away,
        "Round to the nearest integer, halves away from 0; the gradient is 0",
        Onnx(builder="round_away"),
    ),
    "rint": (
        _round_half_down,
        "Round to the nearest integer, halves down; the gradient is 0",
        Onnx(builder="rint"),
    ),
    "ceil": (torch.ceil, "Round up; the gradient is 0", Onnx("Ceil", builder="whole")),
    "floor": (torch.floor, "Round down; the gradient is 0", Onnx("Floor", builder="whole")),
    "trunc": (torch.trunc, "Truncate the fraction; the gradient is 0", Onnx(builder="trunc")),
    "fix": (torch.trunc, "Round towards 0; the gradient is 0", Onnx(builder="trunc")),
    "square": (torch.square, "Return the square", Onnx(builder="square")),
    "sqrt": (keep_type(torch.sqrt), "Return the square root", Onnx("Sqrt")),
    "rsqrt": (keep_type(torch.rsqrt), "Return 1 / sqrt(x)", Onnx(builder="rsqrt")),
    "cbrt": (
        keep_type(with_gradient(_cube_root, lambda x, y: 1.0 / (3.0 * y * y))),
        "Return the real cube root",
        Onnx(builder="cbrt"),
    ),
    "rcbrt": (
        keep_type(with_gradient(lambda x: 1.0 / _cube_root(x), lambda x, y: y.pow(4) / -3.0)),
        "Return one over the real cube root",
        Onnx(builder="rcbrt"),
    ),
    "exp": (keep_type(torch.exp), "Return e to the power of each element", Onnx("Exp")),
    "log": (keep_type(torch.log), "Return the natural logarithm", Onnx("Log")),
    "log10": (keep_type(torch.log10), "Return the logarithm to base 10", Onnx(builder="log10")),
    "log2": (keep_type(torch.log2), "Return the logarithm to base 2", Onnx(builder="log2")),
    "log1p": (keep_type(torch.log1p), "Return log(1 + x), exact near 0", Onnx(builder="log1p")),
    "expm1": (keep_type(torch.expm1), "Return exp(x) - 1, exact near 0", Onnx(builder="expm1")),
    "sin": (keep_type(torch.sin), "Return the sine of angles in radians", Onnx("Sin")),
    "cos": (keep_type(torch.cos), "Return the cosine of angles in radians", Onnx("Cos")),
    "tan": (keep_type(torch.tan), "Return the tangent of angles in radians", Onnx("Tan")),
    "arcsin": (keep_type(torch.asin), "Return the inverse sine in radians", Onnx("Asin")),
    "arccos": (keep_type(torch.acos), "Return the inverse cosine in radians", Onnx("Acos")),
    "arctan": (keep_type(torch.atan), "Return the inverse tangent in radians", Onnx("Atan")),
    "sinh": (keep_type(torch.sinh), "Return the hyperbolic sine", Onnx("Sinh")),
    "cosh": (keep_type(torch.cosh), "Return the hyperbolic cosine", Onnx("Cosh")),
    "tanh": (keep_type(torch.tanh), "Return the hyperbolic tangent", Onnx("Tanh")),
    "arcsinh": (keep_type(torch.asinh), "Return the inverse hyperbolic sine", Onnx("Asinh")),
    "arccosh": (keep_type(torch.acosh), "Return the inverse hyperbolic cosine", Onnx("Acosh")),
    "arctanh": (keep_type(torch.atanh), "Return the inverse hyperbolic tangent", Onnx("Atanh")),
    "degrees": (keep_type(torch.rad2deg), "Convert radians to degrees", Onnx(builder="degrees")),
    "radians": (keep_type(torch.deg2rad), "Convert degrees to radians", Onnx(builder="radians")),
    "gamma": (
        keep_type(_gamma),
        "Return the gamma function, NaN at negative integers",
        Onnx(builder="gamma"),
    ),
    "gammaln": (
        keep_type(torch.lgamma),
        "Return the logarithm of the gamma function's magnitude",
        Onnx(builder="gammaln"),
    ),
    "erf": (keep_type(torch.erf), "Return the error function", Onnx("Erf")),
    "erfinv": (
        keep_type(torch.erfinv),
        "Return the inverse error function",
        Onnx(builder="erfinv"),
    ),
    "reciprocal": (keep_type(torch.reciprocal), "Return one over each element", Onnx("Reciprocal")),
    "negative": (torch.neg, "Return the negative", Onnx("Neg")),
    "relu": (relu, "Return max(x, 0); its gradient at 0 is 0, at NaN it is NaN", Onnx("Relu")),
    "sigmoid": (keep_type(torch.sigmoid), "Return 1 / (1 + exp(-x))", Onnx("Sigmoid")),
    "softsign": (keep_type(F.softsign), "Return x / (1 + |x|)", Onnx("Softsign")),
    "logical_not": (_logical_not, "Return 1 if an element is 0, else 0", Onnx(builder="logical_not")),
    "zeros_like": (
        torch.zeros_like,
        "Return zeros of the shape and type of `data`",
        Onnx(builder="filled_like"),
    ),
    "ones_like": (
        torch.ones_like,
        "Return ones of the shape and type of `data`",
        Onnx(builder="filled_like"),
    ),
}
"""Name: torch function, first sentence, ONNX operator."""

_NOT_SPARSE = {"rcbrt", "erf", "erfinv", "reciprocal", "softsign", "logical_not", "ones_like"}


def _describe(name: str, sentence: str) -> str:
    return f"""{sentence}.

Shape:
    data: any shape.
    returns: the shape and dtype of `data`; integer types truncate fractions.

Source: MXNet 1.9.1 `{name}`.
"""


for _name, (_function, _sentence, _onnx) in ELEMENTWISE.items():
    declare(
        _name,
        _function,
        [arg("data", ROWS)],
        doc=_describe(_name, _sentence),
        aliases=() if _name in _NOT_SPARSE else (f"_sparse_{_name}",),
        infer=same,
        onnx=_onnx,
    )


def _identity(x: torch.Tensor) -> torch.Tensor:
    return x


declare(
    "_copy",
    _identity,
    [arg("data", ROWS)],
    doc=_describe("identity", "Return `data` unchanged"),
    aliases=("identity",),
    infer=same,
    view=True,
    onnx=Onnx("Identity"),
)
declare(
    "BlockGrad",
    torch.detach,
    [arg("data", ROWS)],
    doc=_describe(
        "BlockGrad",
        "Return `data` unchanged and block its gradient. A loss below it trains, as in MXNet",
    ),
    aliases=("stop_gradient", "_sparse_stop_gradient"),
    infer=same,
    view=True,
    onnx=Onnx("Identity"),
)
declare(
    "_identity_with_attr_like_rhs",
    lambda lhs, rhs: lhs,
    [arg("lhs", ROWS), arg("rhs", ROWS)],
    doc="""Return `lhs`, which has the shape and dtype of `rhs`.

Shape:
    lhs, rhs: one shape.
    returns: the same shape.

Source: MXNet 1.9.1 `_identity_with_attr_like_rhs`.
""",
    infer=same,
    view=True,
    onnx=Onnx("Identity"),
)


def _fast_slopes(low: float, high: float) -> tuple[float, float] | None:
    """Return limits for which the gradient of `F.hardtanh` is that of clipping to [low, high]; None if there are none.

    It takes a thirtieth of the time of torch.clamp's, but is 0 at both limits, and undefined for NaN.
    """
    largest = float(np.finfo(np.float32).max)
    if not -largest < low <= high < largest:
        return None
    below, above = (
        np.nextafter(np.float32(n), np.float32(end)) for n, end in ((low, -np.inf), (high, np.inf))
    )
    return float(below), float(above)


@bound(
    "clip",
    [arg("data", ROWS)],
    {"a_min": Attr(real, "minimum"), "a_max": Attr(real, "maximum")},
    aliases=("_sparse_clip",),
    infer=same,
)
def clip(a: Any) -> Elementwise:
    """Clip each element to [a_min, a_max]; the gradient is 1 inside and at both ends, else 0.

    Shape:
        data: any shape.
        returns: the shape and dtype of `data`.

    Source: MXNet 1.9.1 `clip`.
    """
    low, high = a.a_min, a.a_max
    slopes = _fast_slopes(low, high)

    def clip(x: torch.Tensor) -> torch.Tensor:
        is_single = x.dtype is torch.float32 and x.is_cpu and x.requires_grad
        if slopes and is_single and x.numel() >= _LARGE and not is_tracing():
            out = F.hardtanh(x, *slopes)
            if not (torch_private.is_transformed(x) or out.detach().sum().isnan()):
                out.detach().clamp_(low, high)
                return out
        if x.is_floating_point():
            largest = torch.finfo(x.dtype).max
            return torch.clamp(
                x, *(n if abs(n) <= largest else math.copysign(math.inf, n) for n in (low, high))
            )
        limits = torch.iinfo(x.dtype)
        return torch.clamp(x, max(to_integer(low), limits.min), min(to_integer(high), limits.max))

    return clip


@bound(
    "smooth_l1",
    [arg("data", ROWS)],
    {
        "scalar": Attr(optional(real), "s; the function is quadratic up to 1 / s^2; None means 1", 1.0),
        "is_int": Attr(boolean, "accepted and ignored", True),
    },
    infer=same,
)
def smooth_l1(a: Any) -> Elementwise:
    """Return (s x)^2 / 2 if |x| < 1 / s^2, else |x| - 1 / (2 s^2).

    Shape:
        data: any shape.
        returns: the shape and dtype of `data`.

    Source: MXNet 1.9.1 `smooth_l1`; the box loss of Fast R-CNN.
    """
    squared = (1.0 if a.scalar is None else a.scalar) ** 2

    def smooth_l1(x: torch.Tensor) -> torch.Tensor:
        if not x.is_floating_point():  # in MXNet s^2 is an integer here, too
            end = 1.0 / int(squared) if int(squared) else math.inf
            size = x.double().abs()
            inside = 0.0 * size if end == math.inf else 0.5 * size * size / end
            return torch.where(size < end, inside, size - 0.5 * end).to(x.dtype)
        return F.smooth_l1_loss(x, torch.zeros_like(x), reduction="none", beta=1.0 / squared)

    return smooth_l1


@bound(
    "hard_sigmoid",
    [arg("data", ROWS)],
    {"alpha": Attr(real, "slope", 0.2), "beta": Attr(real, "value at 0", 0.5)},
    infer=same,
    onnx=Onnx("HardSigmoid", {"alpha": "alpha", "beta": "beta"}),
)
def hard_sigmoid(a: Any) -> Elementwise:
    """Return alpha * x + beta clipped to [0, 1]; the gradient is alpha strictly inside, else 0.

    Shape:
        data: any shape.
        returns: the shape and dtype of `data`.

    Source: MXNet 1.9.1 `hard_sigmoid`.
    """
    alpha, beta = a.alpha, a.beta
    return lambda x: F.hardtanh(alpha * x + beta, 0.0, 1.0)


def _rank(a: Any, shape: Shape) -> Shape:
    return (len(shape or ()),)


declare(
    "shape_array",
    lambda x: tensor_like(x, x.shape, torch.int64),
    [arg("data")],
    doc="""Return the shape of `data` as an array.

Shape:
    data: any shape of r dimensions.
    returns: (r,) int64.

Source: MXNet 1.9.1 `shape_array`.
""",
    infer=forward(_rank),
    infer_type=typed(lambda a: "int64"),
    batch=NEVER,
    onnx=Onnx("Shape"),
)
declare(
    "size_array",
    lambda x: tensor_like(x, [x.numel()], torch.int64),
    [arg("data")],
    doc="""Return the number of elements of `data` as an array.

Shape:
    data: any shape.
    returns: (1,) int64.

Source: MXNet 1.9.1 `size_array`.
""",
    infer=forward(lambda a, shape: (1,)),
    infer_type=typed(lambda a: "int64"),
    batch=NEVER,
    onnx=Onnx("Size", builder="size"),
)
