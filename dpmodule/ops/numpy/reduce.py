"""Reductions along axes, which give scalars if no axis is left."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from ...base import OpError
from ..attrs import integer, optional
from ..dtypes import torch_dtype
from ..math.pointwise import in_type_of
from ..math.reduce import extreme
from ..registry import bound
from ..shapes import from_data, normal_axes, normal_axis
from ..spec import Attr, InferType, Onnx, arg
from .rules import AXIS, INITIAL, KEEP, RESULT_TYPE, types_by

Reduction = Callable[[torch.Tensor, tuple[int, ...], bool], torch.Tensor]


@lru_cache(maxsize=1024)
def _axes(axis: tuple[int, ...] | None, ndim: int) -> tuple[int, ...]:
    """Return the axes to reduce, ascending; None means all."""
    return tuple(range(ndim)) if axis is None else normal_axes(axis, ndim)


def reduced_shape(a: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    """Return the shape after a reduction."""
    axes = _axes(a.axis, len(shape))
    if a.keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def _sum(x: torch.Tensor, dims: tuple[int, ...], keep: bool) -> torch.Tensor:
    return torch.sum(x, dims, keep, dtype=x.dtype)


def _prod(x: torch.Tensor, dims: tuple[int, ...], keep: bool) -> torch.Tensor:
    for dim in reversed(dims):
        x = torch.prod(x, dim, keep, dtype=x.dtype)
    return x


def _largest(x: torch.Tensor, dims: tuple[int, ...], keep: bool) -> torch.Tensor:
    return extreme(x, dims, keep, True)


def _smallest(x: torch.Tensor, dims: tuple[int, ...], keep: bool) -> torch.Tensor:
    return extreme(x, dims, keep, False)


def _counted(a: Any, data: str) -> str:
    """Return the type of sums: `dtype`, or that of the data, int64 for booleans."""
    return a.dtype or ("int64" if data == "bool" else data)


def _averaged(a: Any, data: str) -> str:
    """Return the type of averages: `dtype`, or that of the data, float32 for integers."""
    return a.dtype or (data if "float" in data else "float32")


def _doc(name: str, sentence: str, dtype: str) -> str:
    return f"""{sentence}.

Shape:
    a: any shape.
    returns: `a` without the reduced axes, or with size 1 there if `keepdims`; a scalar if none is left. {dtype}

Source: MXNet 1.9.1 `{name}`.
"""


def _declare(
    name: str,
    function: Reduction,
    sentence: str,
    onnx: Onnx,
    rule: Callable[..., str | None],
    dtype: str,
    attrs: dict[str, Attr],
    aliases: tuple[str, ...] = (),
) -> None:
    def bind(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        if getattr(a, "initial", None) is not None:
            raise OpError(f"{name}: initial is {a.initial}, expected None, as in MXNet 1.9.1")

        def run(x: torch.Tensor) -> torch.Tensor:
            target = torch_dtype(rule(a, str(x.dtype).removeprefix("torch.")) or "")
            axes = _axes(a.axis, x.dim())
            x = x if x.dtype == target else x.to(target)
            return function(x, axes, a.keepdims) if axes else x.clone()

        run.__name__ = name.strip("_")
        return run

    bind.__doc__ = _doc(name, sentence, dtype)
    bound(
        name,
        [arg("a")],
        attrs,
        aliases=aliases,
        infer=from_data(reduced_shape),
        infer_type=types_by(rule),
        onnx=onnx,
    )(bind)


_SUM_ATTRS = {"axis": AXIS, "dtype": RESULT_TYPE, "keepdims": KEEP, "initial": INITIAL}
_MAX_ATTRS = {"axis": AXIS, "keepdims": KEEP, "initial": INITIAL}
_SUM_TYPE = "The dtype is `dtype`, by default that of `a`, int64 for booleans."
_MEAN_TYPE = "The dtype is `dtype`, by default that of `a`, float32 for integers."


def _same(a: Any, data: str) -> str:
    return data


def _mean(x: torch.Tensor, dims: tuple[int, ...], keep: bool) -> torch.Tensor:
    if x.is_floating_point():
        return torch.mean(x, dims, keep)
    return in_type_of(x, torch.mean(x, dims, keep, dtype=torch.float64))


_declare(
    "_np_sum",
    _sum,
    "Sum the elements along axes",
    Onnx("ReduceSum", builder="np_sum"),
    _counted,
    _SUM_TYPE,
    _SUM_ATTRS,
    ("_npi_sum",),
)
_declare(
    "_np_prod",
    _prod,
    "Multiply the elements along axes",
    Onnx("ReduceProd", builder="np_reduce"),
    _counted,
    _SUM_TYPE,
    _SUM_ATTRS,
    ("_np_product", "_npi_prod"),
)
_declare(
    "_npi_mean",
    _mean,
    "Average the elements along axes",
    Onnx("ReduceMean", builder="np_reduce"),
    _averaged,
    _MEAN_TYPE,
    _SUM_ATTRS,
)
_declare(
    "_np_max",
    _largest,
    "Return the maximum along axes (all elements equal to it get the gradient)",
    Onnx("ReduceMax", builder="np_reduce"),
    _same,
    "The dtype is that of `a`.",
    _MAX_ATTRS,
    ("_np_amax", "_npi_max", "_npi_amax"),
)
_declare(
    "_np_min",
    _smallest,
    "Return the minimum along axes (all elements equal to it get the gradient)",
    Onnx("ReduceMin", builder="np_reduce"),
    _same,
    "The dtype is that of `a`.",
    _MAX_ATTRS,
    ("_np_amin", "_npi_min", "_npi_amin"),
)
