"""Reductions along axes, which give scalars if no axis is left."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from ..._devices.device_transfer import tensor_like
from ...base import OpError
from ..attrs import boolean, choice, integer, ints, optional, real
from ..dtypes import HALF, name_of, torch_dtype
from ..math.pointwise import in_type_of
from ..math.reduce import extreme
from ..registry import bound, pure
from ..shapes import forward, from_data, normal_axes, normal_axis
from ..spec import NEVER, Attr, Onnx, arg
from .rules import AXIS, INITIAL, KEEP, RESULT_TYPE, truths, types_by

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
            kind = name_of(x.dtype)
            wanted = rule(a, kind)
            axes = _axes(a.axis, x.dim())
            x = x if wanted in (kind, None) else x.to(torch_dtype(wanted))
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
    Onnx("ReduceSum", builder="np_reduce"),
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


def _declare_truth(
    name: str, function: Callable[..., torch.Tensor], sentence: str, aliases: tuple[str, ...], onnx: Onnx
) -> None:
    def bind(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        def run(x: torch.Tensor) -> torch.Tensor:
            axes = _axes(a.axis, x.dim())
            return function(x != 0, axes, a.keepdims) if axes else x != 0

        run.__name__ = name.strip("_")
        return run

    bind.__doc__ = f"""{sentence}.

Shape:
    data: any shape.
    returns: `data` without the reduced axes, or with size 1 there if `keepdims`; bool.

Source: MXNet 1.9.1 `{name}`.
"""
    bound(
        name,
        [arg("data")],
        {"axis": AXIS, "keepdims": KEEP},
        aliases=aliases,
        infer=from_data(reduced_shape),
        infer_type=truths,
        onnx=onnx,
    )(bind)


_declare_truth(
    "_np_any",
    torch.any,
    "Return True if an element is not 0",
    ("_np_sometrue", "_npi_any"),
    Onnx("ReduceMax", builder="np_truth"),
)
_declare_truth(
    "_np_all",
    torch.all,
    "Return True if no element is 0",
    ("_npi_all",),
    Onnx("ReduceMin", builder="np_truth"),
)


def _declare_moment(name: str, sentence: str, root: bool) -> None:
    def bind(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        def run(x: torch.Tensor) -> torch.Tensor:
            target = torch_dtype(a.dtype) if a.dtype else x.dtype
            values = x if x.is_floating_point() else x.double()
            if target.is_floating_point and x.is_floating_point():
                values = x.to(torch.promote_types(x.dtype, target))
            axes = _axes(a.axis, x.dim())
            found = torch.var(values, axes, correction=a.ddof, keepdim=a.keepdims)
            found = found.sqrt() if root else found
            return (
                found
                if found.dtype == target
                else in_type_of(torch.empty(0, dtype=target, device=x.device), found)
            )

        run.__name__ = name.strip("_")
        return run

    bind.__doc__ = _doc(name, sentence, "The dtype is `dtype`, by default that of `a`.")
    bound(
        name,
        [arg("a")],
        {
            "axis": AXIS,
            "dtype": RESULT_TYPE,
            "ddof": Attr(integer(), "the divisor is the number of elements minus this", 0),
            "keepdims": KEEP,
        },
        outputs=(name.removeprefix("_npi_"),),
        hidden=1,
        infer=from_data(reduced_shape),
        infer_type=types_by(lambda a, data: a.dtype or data),
        onnx=Onnx(builder="np_variance"),
    )(bind)


_declare_moment("_npi_var", "Return the variance along axes", False)
_declare_moment("_npi_std", "Return the standard deviation along axes", True)


def _arg_shape(a: Any, shape: tuple[int, ...]) -> tuple[int, ...]:
    axes = tuple(range(len(shape))) if a.axis is None else (normal_axis(a.axis, len(shape)),)
    if a.keepdims:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes)


def _declare_arg(word: str, function: Callable[..., torch.Tensor], which: str) -> None:
    name = f"_npi_{word}"

    def bind(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        def run(x: torch.Tensor) -> torch.Tensor:
            if a.axis is None and a.keepdims:
                return function(x.reshape(-1), 0).reshape((1,) * x.dim())
            return function(x, a.axis, a.keepdims)

        run.__name__ = word
        return run

    bind.__doc__ = f"""Return the index of the {which} element along an axis, the first of equal ones.

Shape:
    data: any shape.
    returns: `data` without the axis, or with size 1 there if `keepdims`; a scalar, the index in the flattened array,
        if `axis` is None. int64.

Source: MXNet 1.9.1 `{name}`.
"""
    bound(
        name,
        [arg("data")],
        {
            "axis": Attr(optional(integer()), "axis to search; None means the flattened array", None),
            "keepdims": KEEP,
        },
        infer=from_data(_arg_shape),
        infer_type=types_by(lambda a, data: "int64"),
        onnx=Onnx(builder=f"np_{word}"),
    )(bind)


_declare_arg("argmax", torch.argmax, "largest")
_declare_arg("argmin", torch.argmin, "smallest")


def _average_shapes(a: Any, data: tuple[int, ...], *weights: tuple[int, ...]) -> list[tuple[int, ...]]:
    axes = _axes(a.axis, len(data))
    out = tuple(d for i, d in enumerate(data) if i not in axes)
    return [out] * (2 if a.returned else 1)


@pure(
    "_npi_average",
    [arg("a"), arg("weights", when=lambda a: a.weighted)],
    {
        "axis": AXIS,
        "returned": Attr(boolean, "also return the sum of the weights", False),
        "weighted": Attr(boolean, "there are weights", True),
    },
    outputs=lambda a: ("output0", "output1") if a.returned else ("output0",),
    hidden=lambda a: 0 if a.returned else 1,
    infer=forward(_average_shapes),
    infer_type=types_by(lambda a, *types: types[0]),
    onnx=Onnx(builder="np_average"),
)
def average(a: Any, x: torch.Tensor, weights: torch.Tensor | None = None) -> Any:
    """Return the average along axes, with weights.

    Shape:
        a: any shape.
        weights: the shape of `a`, or the length of the one axis.
        returns: `a` without the axes; and the sum of the weights of the same shape if `returned`.

    Source: MXNet 1.9.1 `_npi_average`.
    """
    axes = _axes(a.axis, x.dim())
    values = x if x.is_floating_point() else x.double()
    if weights is None:
        weights = torch.ones_like(values)
    elif weights.dim() < x.dim():
        weights = weights.reshape([-1 if i == axes[0] else 1 for i in range(x.dim())])
    weights = weights.to(values.dtype).expand(values.shape)
    total = weights.sum(axes)
    outputs = in_type_of(x, (values * weights).sum(axes) / total), in_type_of(x, total)
    return outputs if a.returned else outputs[0]


@pure(
    "_npi_norm",
    [arg("data")],
    {
        "ord": Attr(real, "order of the norm", 2.0),
        "axis": Attr(optional(ints), "axes of the vectors or matrices; None means all", None),
        "keepdims": KEEP,
        "flag": Attr(
            integer(-2, 5), "kind: -1 and -2 vectors, 0 the Frobenius norm, 1 matrices, 2 singular values", -1
        ),
    },
    outputs=("output0",),
    hidden=3,
    infer=from_data(reduced_shape),
    onnx=Onnx(builder="np_norm"),
)
def norm(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the norm of vectors or matrices; its gradient at 0 is 0.

    Shape:
        data: any shape.
        returns: `data` without the axes, or with size 1 there if `keepdims`.

    Source: MXNet 1.9.1 `_npi_norm`.
    """
    values = x.float() if x.dtype in HALF else x if x.is_floating_point() else x.double()
    axes = tuple(range(x.dim())) if a.axis is None else tuple(each % x.dim() for each in a.axis)
    if a.flag == 2:
        found = torch.linalg.matrix_norm(values, "nuc", axes, a.keepdims)
    elif a.flag in (-1, 0) and len(axes) == 2:
        found = torch.linalg.matrix_norm(values, a.ord, axes, a.keepdims)
    else:
        found = torch.linalg.vector_norm(values, a.ord if a.flag == -1 else 2.0, axes, a.keepdims)
    return in_type_of(x, found)


@pure(
    "_npi_percentile",
    lambda a: (arg("a"),) if a.q_scalar is not None else (arg("a"), arg("q")),
    {
        "axis": AXIS,
        "interpolation": Attr(
            choice("linear", "lower", "higher", "midpoint", "nearest"), "value between two elements", "linear"
        ),
        "keepdims": KEEP,
        "q_scalar": Attr(optional(real), "percentage from 0 to 100, without the input `q`", None),
    },
    infer_type=types_by(lambda a, *types: "float64" if types[0] == "float64" else "float32"),
    batch=NEVER,
    onnx=Onnx(missing="ONNX has no quantiles"),
)
def percentile(a: Any, x: torch.Tensor, q: torch.Tensor | None = None) -> torch.Tensor:
    """Return percentiles along axes.

    Shape:
        a: any shape.
        q: () or (Q,), percentages from 0 to 100.
        returns: the shape of `q`, then `a` without the axes, or with size 1 there if `keepdims`; float32, float64 for
            float64.

    Source: MXNet 1.9.1 `_npi_percentile`.
    """
    values = x if x.dtype == torch.float64 else x.float()
    axes = _axes(a.axis, x.dim())
    rest = [i for i in range(x.dim()) if i not in axes]
    rows = values.permute(*rest, *axes).reshape(*(x.shape[i] for i in rest), -1)
    part = tensor_like(values, a.q_scalar / 100.0) if q is None else (q / 100.0).to(values.dtype)
    found = torch.quantile(rows, part, -1, interpolation=a.interpolation)
    if not a.keepdims:
        return found
    return found.reshape(*part.shape, *(1 if i in axes else d for i, d in enumerate(x.shape)))


@pure(
    "_npi_bincount",
    [arg("data"), arg("weights", when=lambda a: a.has_weights)],
    {
        "minlength": Attr(integer(low=0), "minimal length of the result", 0),
        "has_weights": Attr(boolean, "add the weights instead of counting", False),
    },
    infer=lambda a, ins, outs: (ins, outs),
    infer_type=types_by(lambda a, *types: types[-1]),
    batch=NEVER,
    onnx=Onnx(missing="the length of the result depends on the values"),
)
def bincount(a: Any, data: torch.Tensor, weights: torch.Tensor | None = None) -> torch.Tensor:
    """Count the occurrences of each number, or add their weights.

    The length of the result is known only after the operator has run.

    Shape:
        data: (N,) of integers from 0.
        weights: (N,).
        returns: (largest element of `data` + 1,), at least (minlength,).

    Source: MXNet 1.9.1 `_npi_bincount`.
    """
    if weights is None:
        return torch.bincount(data, minlength=a.minlength).to(data.dtype)
    length = max(int(data.max()) + 1 if data.numel() else 0, a.minlength)
    return weights.new_zeros(length).index_add(0, data.long(), weights)
