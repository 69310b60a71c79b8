"""Arrays made from attributes alone."""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import torch

from ..._core.mode import is_np_shape
from ...base import OpError, Shape
from ..attrs import boolean, dtype, integer, optional, real, shape, string
from ..dtypes import torch_dtype
from ..registry import op
from ..shapes import typed, unify
from ..spec import NEVER, Attr, Env, Onnx, Shapes

OUTPUT_ATTRS = {
    "ctx": Attr(string, "device of the result, such as 'cpu(0)'; only for calls on arrays", ""),
    "dtype": Attr(dtype, "dtype of the result", "float32"),
}
_SHAPE = Attr(shape, "shape of the result; 0 is a dimension that is inferred", ())


def _infer_filled(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    dims = a.shape or None
    if dims is not None and not is_np_shape():
        dims = tuple(max(d, 0) for d in dims)  # -1 is an unknown dimension in MXNet, too
    return [], [unify(outs[0], dims, "given and required shape")]


def _full(a: Any, env: Env, value: float) -> torch.Tensor:
    size = env.out_shapes[0] if env.out_shapes else a.shape
    if value == 0:  # the faster call
        return torch.zeros(size, dtype=torch_dtype(a.dtype), device=env.device)
    return torch.full(size, value, dtype=torch_dtype(a.dtype), device=env.device)


_TYPE = typed(lambda a: a.dtype)
_filled = partial(
    op, infer=_infer_filled, infer_type=_TYPE, needs_shapes=True, batch=NEVER, onnx=Onnx(builder="filled")
)


@_filled("_zeros", (), {"shape": _SHAPE, **OUTPUT_ATTRS})
def zeros(a: Any, env: Env) -> torch.Tensor:
    """Return an array of zeros.

    Shape:
        returns: `shape`, with zeros replaced by inferred sizes.

    Source: MXNet 1.9.1 `_zeros`.
    """
    return _full(a, env, 0)


@_filled("_ones", (), {"shape": _SHAPE, **OUTPUT_ATTRS})
def ones(a: Any, env: Env) -> torch.Tensor:
    """Return an array of ones.

    Shape:
        returns: `shape`, with zeros replaced by inferred sizes.

    Source: MXNet 1.9.1 `_ones`.
    """
    return _full(a, env, 1)


@_filled(
    "_full",
    (),
    {
        "shape": Attr(optional(shape), "shape of the result; 0 or None: inferred", None),
        **OUTPUT_ATTRS,
        "value": Attr(real, "value of every element"),
    },
)
def full(a: Any, env: Env) -> torch.Tensor:
    """Return an array filled with one number.

    Shape:
        returns: `shape`, with zeros replaced by inferred sizes.

    Source: MXNet 1.9.1 `_full`.
    """
    floating = torch_dtype(a.dtype).is_floating_point
    return _full(a, env, a.value if floating or a.dtype == "bool" else int(a.value))


def _arange_limits(a: Any) -> tuple[float, float]:
    """Return start and stop; a single number is the stop value."""
    return (0.0, a.start) if a.stop is None else (a.start, a.stop)


def _arange_length(a: Any) -> int:
    start, stop = _arange_limits(a)
    if not 0 < (stop - start) * a.step < math.inf:
        raise OpError(
            f"_arange: start {start}, stop {stop} and step {a.step} give an empty or infinite array; "
            "expected at least one element"
        )
    count: int = math.ceil((stop - start) / a.step) * a.repeat
    return count


def _infer_arange(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    if a.infer_range:
        return [], [unify(outs[0], (0,), "an arange and the required shape")]
    return [], [unify(outs[0], (_arange_length(a),), "an arange and the required shape")]


@op(
    "_arange",
    (),
    {
        "start": Attr(real, "first value, or the end if `stop` is None"),
        "stop": Attr(optional(real), "end, exclusive", None),
        "step": Attr(real, "distance between values", 1.0),
        "repeat": Attr(integer(low=1), "number of times each value is repeated", 1),
        "infer_range": Attr(
            boolean, "start at `start` and infer the length from the use of the array", False
        ),
        **OUTPUT_ATTRS,
    },
    infer=_infer_arange,
    infer_type=_TYPE,
    needs_shapes=True,
    onnx=Onnx(builder="constant"),
)
def arange(a: Any, env: Env) -> torch.Tensor:
    """Return evenly spaced numbers with a given step.

    Shape:
        returns: (ceil((stop - start) / step) * repeat,).

    Raises:
        OpError: the range from start to stop is empty.

    Source: MXNet 1.9.1 `_arange`.
    """
    if a.infer_range:
        start, length = a.start, env.out_shapes[0][0] if env.out_shapes else 0
        if not length:
            raise OpError(
                "_arange: infer_range is True, but no use of the array determines its length; pass stop"
            )
    else:
        start, length = _arange_limits(a)[0], _arange_length(a)
    # start + i * step in float64: rounding errors do not accumulate
    step, target = a.step, torch_dtype(a.dtype)
    if not target.is_floating_point:  # MXNet truncates start and step, not the values
        start, step = int(start), int(step)
    steps = torch.arange(-(-length // a.repeat), dtype=torch.float64, device=env.device)
    values: torch.Tensor = (steps * step + start).to(target)
    return values if a.repeat == 1 else values.repeat_interleave(a.repeat)[:length]


@op(
    "_linspace",
    (),
    {
        "start": Attr(real, "first value"),
        "stop": Attr(real, "last value"),
        "num": Attr(integer(low=1), "number of values"),
        "endpoint": Attr(boolean, "include `stop` as the last value", True),
        **OUTPUT_ATTRS,
    },
    infer=lambda a, ins, outs: ([], [unify(outs[0], (a.num,), "a linspace and the required shape")]),
    infer_type=_TYPE,
    onnx=Onnx(builder="constant"),
)
def linspace(a: Any, env: Env) -> torch.Tensor:
    """Return a given number of evenly spaced numbers.

    Shape:
        returns: (num,).

    Source: MXNet 1.9.1 `_linspace`.
    """
    intervals = a.num - 1 if a.endpoint else a.num
    step = (a.stop - a.start) / intervals if intervals else 0.0
    positions = torch.arange(a.num, dtype=torch.float64, device=env.device)
    return (positions * float(step) + float(a.start)).to(torch_dtype(a.dtype))


@op(
    "_eye",
    (),
    {
        "N": Attr(integer(low=1), "number of rows"),
        "M": Attr(integer(low=0), "number of columns; 0 means N", 0),
        "k": Attr(integer(), "index of the diagonal, positive above the main one", 0),
        **OUTPUT_ATTRS,
    },
    infer=lambda a, ins, outs: ([], [unify(outs[0], (a.N, a.M or a.N), "an eye and the required shape")]),
    infer_type=_TYPE,
    onnx=Onnx(builder="constant"),
)
def eye(a: Any, env: Env) -> torch.Tensor:
    """Return a matrix with ones on a diagonal and zeros elsewhere.

    Shape:
        returns: (N, M).

    Source: MXNet 1.9.1 `_eye`.
    """
    rows = torch.arange(a.N, device=env.device).unsqueeze(1)
    columns = torch.arange(a.M or a.N, device=env.device)
    return torch.eq(columns - rows, int(a.k)).to(torch_dtype(a.dtype))
