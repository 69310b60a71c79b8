"""Arrays compared, copied into by rows, and described by their shapes."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...base import Shape
from ..attrs import boolean, integer, optional, real, shape, string
from ..axes import normal_axis
from ..bound import bound
from ..shapes import forward, output_shape, typed, unify
from ..spec import NEVER, Attr, Onnx, Shapes, Variadic, arg

Tensors = Callable[..., torch.Tensor]


def _infer_allclose(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    both = unify(ins[0], ins[1], "inputs of _contrib_allclose")
    return [both, both], [()]


@bound(
    "_contrib_allclose",
    [arg("a"), arg("b")],
    {
        "rtol": Attr(real, "relative tolerance", 1e-05),
        "atol": Attr(real, "absolute tolerance", 1e-08),
        "equal_nan": Attr(boolean, "count NaN as equal to NaN", True),
    },
    infer=_infer_allclose,
    infer_type=typed(lambda a: "uint8"),
    batch=NEVER,
    onnx=Onnx(builder="allclose"),
)
def allclose(a: Any) -> Tensors:
    """Say whether ``|a - b| <= atol + rtol * |b|`` everywhere: 1 or 0. No gradient.

    Shape:
        a, b: one shape.
        returns: (), uint8.

    Source: MXNet 1.9.1 `_contrib_allclose`; NumPy `allclose`.
    """
    rtol, atol, equal_nan = a.rtol, a.atol, a.equal_nan

    def allclose(one: torch.Tensor, other: torch.Tensor) -> torch.Tensor:
        return torch.isclose(one, other, rtol, atol, equal_nan).all().to(torch.uint8)

    return allclose


def _all_finite(tensors: tuple[torch.Tensor, ...]) -> torch.Tensor:
    flags = [torch.isfinite(t).all() for t in tensors]
    return torch.stack(flags).all().reshape(1).to(torch.float32)


def _infer_one_number(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    return ins, [output_shape(outs[0], (1,))]


_INIT = Attr(boolean, "accepted; the result never depends on what `out` held before", True)


@bound(
    "all_finite",
    [arg("data")],
    {"init_output": _INIT},
    infer=_infer_one_number,
    infer_type=typed(lambda a: "float32"),
    batch=NEVER,
    onnx=Onnx(builder="all_finite"),
)
def all_finite(a: Any) -> Tensors:
    """Say whether no element is NaN or infinite: 1 or 0. No gradient.

    Shape:
        data: any.
        returns: (1,), float32.

    Source: MXNet 1.9.1 `all_finite`.
    """
    return lambda data: _all_finite((data,))


@bound(
    "multi_all_finite",
    attrs={
        "num_arrays": Attr(integer(low=1), "number of inputs; counted by the call", 1),
        "init_output": _INIT,
    },
    variadic=Variadic("array_", "num_arrays"),
    infer=_infer_one_number,
    infer_type=typed(lambda a: "float32"),
    batch=NEVER,
    onnx=Onnx(builder="all_finite"),
)
def multi_all_finite(a: Any) -> Tensors:
    """Say whether no element of any input is NaN or infinite: 1 or 0. No gradient.

    Shape:
        array_0, array_1, ...: any.
        returns: (1,), float32.

    Source: MXNet 1.9.1 `multi_all_finite`.
    """
    return lambda *tensors: _all_finite(tensors)


def _index_array_shape(a: Any, dims: tuple[int, ...]) -> Shape:
    return (*dims, len(dims) if a.axes is None else len(a.axes))


@bound(
    "_contrib_index_array",
    [arg("data")],
    {"axes": Attr(optional(shape), "axes whose positions are wanted; None: all", None)},
    infer=forward(_index_array_shape),
    infer_type=typed(lambda a: "int64"),
    batch=NEVER,
    onnx=Onnx(builder="index_array"),
)
def index_array(a: Any) -> Tensors:
    """Return each element's position along the axes. No gradient.

    Shape:
        data: (d0, d1, ...); only its shape matters.
        returns: (d0, d1, ..., number of axes), int64.

    Source: MXNet 1.9.1 `_contrib_index_array`.
    """
    axes = a.axes

    def index_array(x: torch.Tensor) -> torch.Tensor:
        wanted = range(x.dim()) if axes is None else [normal_axis(i, x.dim(), "axes") for i in axes]
        if not x.dim():
            return torch.empty((0,), dtype=torch.int64, device=x.device)
        lines = [torch.arange(n, device=x.device) for n in x.shape]
        grids = torch.meshgrid(*lines, indexing="ij")
        return torch.stack([grids[i] for i in wanted], -1)

    return index_array


def _arange_like_shape(a: Any, dims: tuple[int, ...]) -> Shape:
    return dims if a.axis is None else (dims[normal_axis(a.axis, len(dims))],)


@bound(
    "_contrib_arange_like",
    [arg("data")],
    {
        "start": Attr(real, "first value", 0.0),
        "step": Attr(real, "distance of neighbours", 1.0),
        "repeat": Attr(integer(low=1), "how often each value comes", 1),
        "ctx": Attr(string, "accepted; the result goes where the data is", ""),
        "axis": Attr(optional(integer()), "axis whose length is taken; None: the whole shape", None),
    },
    infer=forward(_arange_like_shape),
    batch=NEVER,
    onnx=Onnx(builder="arange_like"),
)
def arange_like(a: Any) -> Tensors:
    """Return evenly spaced values, as many as an array has or as one of its axes is long. No gradient.

    Shape:
        data: (d0, d1, ...); only shape and type matter.
        returns: the same shape, or (d_axis,); the type of `data`.

    Example:
        >>> mx.nd.contrib.arange_like(mx.nd.zeros((2, 3)), axis=1, start=1).asnumpy()
        array([1., 2., 3.], dtype=float32)

    Source: MXNet 1.9.1 `_contrib_arange_like`.
    """
    start, step, repeat = a.start, a.step, a.repeat

    def arange_like(x: torch.Tensor) -> torch.Tensor:
        dims = _arange_like_shape(a, tuple(x.shape)) or ()
        order = torch.arange(math.prod(dims), device=x.device).div(repeat, rounding_mode="floor")
        values: torch.Tensor = start + order.double() * step
        return values.to(x.dtype).reshape(dims)

    return arange_like
