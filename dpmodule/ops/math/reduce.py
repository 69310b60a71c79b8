"""Reductions along axes."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch

from ..._core import torch_private
from ..attrs import boolean, choice, integer, ints, optional
from ..dtypes import torch_dtype
from ..registry import bound
from ..shapes import from_data, normal_axes, normal_axis, typed
from ..spec import Attr, Onnx, arg
from ..tracing import is_jit_tracing
from .pointwise import in_type_of

Reduction = Callable[[torch.Tensor, tuple[int, ...], bool], torch.Tensor]


class _Extreme(torch.autograd.Function):
    """Maximum or minimum; every element equal to it gets the full gradient, as in MXNet."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, dims: tuple[int, ...], keep: bool, largest: bool) -> torch.Tensor:
        return (torch.amax if largest else torch.amin)(x, dims, keep)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.dims, ctx.keep = inputs[1], inputs[2]
        ctx.save_for_backward(inputs[0], output)

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        x, extreme = ctx.saved_tensors
        grad = grads[0]
        if not ctx.keep:
            for dim in ctx.dims:
                grad, extreme = grad.unsqueeze(dim), extreme.unsqueeze(dim)
        return grad * (x == extreme), None, None, None


_apply: Callable[..., torch.Tensor] = torch_private.autograd_apply(_Extreme)


def extreme(x: torch.Tensor, dims: tuple[int, ...], keep: bool, largest: bool) -> torch.Tensor:
    """Return the maximum or minimum along axes; every element equal to it gets the full gradient."""
    plain = is_jit_tracing() or not torch.is_grad_enabled()
    return (_Extreme.forward if plain else _apply)(x, dims, keep, largest)


def _sum(x: torch.Tensor, dims: tuple[int, ...], keep: bool) -> torch.Tensor:
    return torch.sum(x, dims, keep, dtype=x.dtype)


def _mean(x: torch.Tensor, dims: tuple[int, ...], keep: bool) -> torch.Tensor:
    if x.is_floating_point():
        return torch.mean(x, dims, keep)
    return in_type_of(x, torch.mean(x, dims, keep, dtype=torch.float64))


def _prod(x: torch.Tensor, dims: tuple[int, ...], keep: bool) -> torch.Tensor:
    for dim in reversed(dims):
        x = torch.prod(x, dim, keep, dtype=x.dtype)
    return x


def _nansum(x: torch.Tensor, dims: tuple[int, ...], keep: bool) -> torch.Tensor:
    return torch.nansum(x, dims, keep, dtype=x.dtype)


def _nanprod(x: torch.Tensor, dims: tuple[int, ...], keep: bool) -> torch.Tensor:
    return _prod(torch.where(torch.isnan(x), 1, x), dims, keep)


def _max(x: torch.Tensor, dims: tuple[int, ...], keep: bool) -> torch.Tensor:
    return extreme(x, dims, keep, True)


_AXIS = Attr(optional(ints), "axes to reduce; None or () means all", None)
_KEEP = Attr(boolean, "keep reduced axes with size 1", False)
_EXCLUDE = Attr(boolean, "reduce all axes except the given ones", False)

_REDUCTIONS: dict[str, tuple[Reduction, str, tuple[str, ...], Onnx]] = {
    "sum": (_sum, "Sum the elements along axes", ("sum_axis", "_sparse_sum"), Onnx(builder="reduce_sum")),
    "mean": (_mean, "Average the elements along axes", ("_sparse_mean",), Onnx(builder="reduce_mean")),
    "prod": (_prod, "Multiply the elements along axes", (), Onnx(builder="reduce_prod")),
    "nansum": (_nansum, "Sum the elements along axes, treating NaN as 0", (), Onnx(builder="nansum")),
    "nanprod": (_nanprod, "Multiply the elements along axes, treating NaN as 1", (), Onnx(builder="nanprod")),
    "max": (
        _max,
        "Return the maximum along axes (all elements equal to it get the gradient)",
        ("max_axis",),
        Onnx(builder="reduce_max"),
    ),
    "min": (
        lambda x, dims, keep: extreme(x, dims, keep, False),
        "Return the minimum along axes (all elements equal to it get the gradient)",
        ("min_axis",),
        Onnx(builder="reduce_min"),
    ),
}
"""Name: function, first sentence, aliases, ONNX builder."""


@lru_cache(maxsize=1024)
def _axes(axis: tuple[int, ...] | None, exclude: bool, ndim: int) -> tuple[int, ...]:
    """Return the axes to reduce, ascending."""
    if not axis:
        return tuple(range(ndim))
    normalized = normal_axes(axis, ndim)
    return tuple(i for i in range(ndim) if i not in normalized) if exclude else normalized


def _reduced_shape(shape: tuple[int, ...], axes: tuple[int, ...], keep: bool) -> tuple[int, ...]:
    """Return the shape after a reduction; (1,) if no dimensions are left."""
    if keep:
        return tuple(1 if i in axes else d for i, d in enumerate(shape))
    return tuple(d for i, d in enumerate(shape) if i not in axes) or (1,)


def _over_axes_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    return _reduced_shape(data, _axes(a.axis, getattr(a, "exclude", False), len(data)), a.keepdims)


_infer = from_data(_over_axes_shape)


def _over_axes(a: Any, function: Reduction) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return a reduction over the axes given by `a`."""
    axis, keep, exclude = a.axis, a.keepdims, getattr(a, "exclude", False)

    def run(x: torch.Tensor) -> torch.Tensor:
        axes = _axes(axis, exclude, x.dim())
        if not axes:
            return x.clone()
        reduced = function(x, axes, keep)
        return reduced if reduced.dim() else reduced.reshape(1)

    return run


def _declare(name: str, function: Reduction, sentence: str, aliases: tuple[str, ...], onnx: Onnx) -> None:
    def bind(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        run = _over_axes(a, function)
        run.__name__ = name
        return run

    bind.__doc__ = f"""{sentence}.

Shape:
    data: any shape.
    returns: `data` without the reduced axes, or with size 1 there if `keepdims`; (1,) if none is left.
        The dtype is that of `data`.

Source: MXNet 1.9.1 `{name}`.
"""
    attrs = {"axis": _AXIS, "keepdims": _KEEP, "exclude": _EXCLUDE}
    bound(name, [arg("data")], attrs, aliases=aliases, infer=_infer, onnx=onnx)(bind)


for _name, (_function, _sentence, _aliases, _onnx) in _REDUCTIONS.items():
    _declare(_name, _function, _sentence, _aliases, _onnx)


@bound(
    "norm",
    [arg("data")],
    {
        "ord": Attr(integer(1, 2), "1 sums magnitudes, 2 is the Euclidean norm", 2),
        "axis": _AXIS,
        "out_dtype": Attr(
            optional(choice("float16", "float32", "float64", "int32", "int64", "int8")),
            "dtype of the result; None means the dtype of `data`",
            None,
        ),
        "keepdims": _KEEP,
    },
    aliases=("_sparse_norm",),
    infer=_infer,
    infer_type=typed(lambda a: a.out_dtype),
)
def norm(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the norm along axes; its gradient at 0 is 0.

    Shape:
        data: any shape.
        returns: `data` without the reduced axes, or with size 1 there if `keepdims`; (1,) if none is left.

    Source: MXNet 1.9.1 `norm`, whose gradient at 0 is NaN.
    """
    target = torch_dtype(a.out_dtype) if a.out_dtype is not None else None

    def reduce(x: torch.Tensor, dims: tuple[int, ...], keep: bool) -> torch.Tensor:
        values = x if x.is_floating_point() else x.double()
        norms = torch.linalg.vector_norm(values, a.ord, dims, keep)
        return norms.to(target) if target is not None else in_type_of(x, norms)

    run = _over_axes(a, reduce)
    run.__name__ = "norm"
    return run


def _arg_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    ndim = len(data)
    axes = tuple(range(ndim)) if a.axis is None else (normal_axis(a.axis, ndim),)
    return _reduced_shape(data, axes, a.keepdims)


def _declare_arg(name: str, function: Callable[..., torch.Tensor], word: str) -> None:
    def bind(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
        axis, keep = a.axis, a.keepdims

        def run(x: torch.Tensor) -> torch.Tensor:
            indices = function(x, axis, keep).to(x.dtype)
            return indices if indices.dim() else indices.reshape(1)

        run.__name__ = name
        return run

    bind.__doc__ = f"""Return the index of the {word} element along an axis, the first of equal ones.

Shape:
    data: any shape.
    returns: `data` without the axis, or with size 1 there if `keepdims`; (1,) for the index in the
        flattened array if `axis` is None. The dtype is that of `data`.

Source: MXNet 1.9.1 `{name}`.
"""
    attrs = {
        "axis": Attr(optional(integer()), "axis to search; None means the flattened array", None),
        "keepdims": _KEEP,
    }
    bound(name, [arg("data")], attrs, infer=from_data(_arg_shape), onnx=Onnx(builder=name))(bind)


_declare_arg("argmax", torch.argmax, "largest")
_declare_arg("argmin", torch.argmin, "smallest")


def _channel_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    normal_axis(1, len(data))
    return data[:1] + data[2:]


@bound("argmax_channel", [arg("data")], infer=from_data(_channel_shape))
def argmax_channel(a: Any) -> Callable[[torch.Tensor], torch.Tensor]:
    """Return the index of the largest element along axis 1.

    Shape:
        data: (N, C, ...).
        returns: (N, ...) with the dtype of `data`.

    Source: MXNet 1.9.1 `argmax_channel`.
    """
    return lambda x: torch.argmax(x, 1).to(x.dtype)


@bound(
    "moments",
    [arg("data")],
    {"axes": Attr(optional(ints), "axes to reduce; None means all", None), "keepdims": _KEEP},
    outputs=("output0", "output1"),
    infer=from_data(lambda a, data: [_reduced_shape(data, _axes(a.axes, False, len(data)), a.keepdims)] * 2),
)
def moments(a: Any) -> Callable[[torch.Tensor], tuple[torch.Tensor, torch.Tensor]]:
    """Return mean and population variance along axes.

    Shape:
        data: any shape.
        returns: two arrays of the shape of `data` without the reduced axes, or with size 1 there if `keepdims`.

    Source: MXNet 1.9.1 `moments`.
    """

    def run(x: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        axes = _axes(a.axes, False, x.dim())
        shape = _reduced_shape(tuple(x.shape), axes, a.keepdims)
        numbers = x if x.is_floating_point() else x.double()
        variance, mean = torch.var_mean(numbers, axes, correction=0, keepdim=a.keepdims)
        return in_type_of(x, mean.reshape(shape)), in_type_of(x, variance.reshape(shape))

    run.__name__ = "moments"
    return run
