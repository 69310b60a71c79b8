"""Arrays made from attributes alone."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch

from ...base import Shape
from ..array.create import OUTPUT_ATTRS
from ..attrs import boolean, dtype, integer, optional, real, shape
from ..dtypes import torch_dtype
from ..registry import op, pure
from ..shapes import same, typed, unify
from ..spec import NEVER, ROWS, Attr, Env, Onnx, Shapes, arg
from .rules import types_by

_TYPE = typed(lambda a: a.dtype)
_CONSTANT = Onnx(builder="constant")


def _fixed(rule: Callable[[Any], tuple[int, ...]]) -> Callable[..., Shapes]:
    """Return a shape rule for an output whose shape the attributes give; 0 is an axis without elements."""

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        return [], [unify(out, rule(a), "given and required shape") for out in outs]

    return infer


def _declare_filled(name: str, word: str, value: float) -> None:
    def run(a: Any, env: Env) -> torch.Tensor:
        return torch.full(a.shape, value, dtype=torch_dtype(a.dtype), device=env.device)

    run.__doc__ = f"""Return an array of {word}.

    Shape:
        returns: `shape`; () is a scalar.

    Source: MXNet 1.9.1 `{name}`.
    """
    op(
        name,
        (),
        {"shape": Attr(shape, "shape of the result", ()), **OUTPUT_ATTRS},
        infer=_fixed(lambda a: a.shape),
        infer_type=_TYPE,
        onnx=_CONSTANT,
    )(run)


_declare_filled("_npi_zeros", "zeros", 0)
_declare_filled("_npi_ones", "ones", 1)


@pure(
    "_npi_full_like",
    [arg("a", ROWS)],
    {
        "fill_value": Attr(real, "value of all elements"),
        "ctx": OUTPUT_ATTRS["ctx"],
        "dtype": Attr(optional(dtype), "dtype of the result; None means that of `a`", None),
    },
    infer=same,
    infer_type=types_by(lambda a, data: a.dtype or data),
    onnx=Onnx(builder="np_full_like"),
)
def full_like(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return an array of one value of the shape of another.

    Shape:
        a: any shape.
        returns: the same shape.

    Source: MXNet 1.9.1 `_npi_full_like`.
    """
    target = torch_dtype(a.dtype) if a.dtype else x.dtype
    value = a.fill_value if target.is_floating_point else int(a.fill_value)
    return torch.full_like(x.detach(), value, dtype=target)


def _arange_limits(a: Any) -> tuple[float, float]:
    return (0.0, a.start) if a.stop is None else (a.start, a.stop)


def _arange_shape(a: Any) -> tuple[int, ...]:
    start, stop = _arange_limits(a)
    return (max(math.ceil((stop - start) / a.step), 0) * a.repeat,)


@op(
    "_npi_arange",
    (),
    {
        "start": Attr(real, "first value"),
        "stop": Attr(optional(real), "end, which is excluded; None means that `start` is the end", None),
        "step": Attr(real, "difference of two values", 1.0),
        "repeat": Attr(integer(low=1), "copies of each value", 1),
        "infer_range": Attr(boolean, "accepted and ignored", False),
        **OUTPUT_ATTRS,
    },
    infer=_fixed(_arange_shape),
    infer_type=_TYPE,
    onnx=_CONSTANT,
)
def arange(a: Any, env: Env) -> torch.Tensor:
    """Return evenly spaced numbers.

    Shape:
        returns: (number of values times `repeat`,); (0,) if there is none.

    Source: MXNet 1.9.1 `_npi_arange`.
    """
    start, _ = _arange_limits(a)
    steps = torch.arange(_arange_shape(a)[0] // a.repeat, dtype=torch.float64, device=env.device)
    values = (steps * a.step + start).to(torch_dtype(a.dtype))
    found: torch.Tensor = values if a.repeat == 1 else values.repeat_interleave(a.repeat)
    return found


@op(
    "_npi_logspace",
    (),
    {
        "start": Attr(real, "exponent of the first value"),
        "stop": Attr(real, "exponent of the last value"),
        "num": Attr(integer(low=0), "number of values"),
        "endpoint": Attr(boolean, "include `stop`", True),
        "base": Attr(real, "base of the powers", 10.0),
        **OUTPUT_ATTRS,
    },
    infer=_fixed(lambda a: (a.num,)),
    infer_type=_TYPE,
    onnx=_CONSTANT,
)
def logspace(a: Any, env: Env) -> torch.Tensor:
    """Return powers with evenly spaced exponents.

    Shape:
        returns: (num,).

    Source: MXNet 1.9.1 `_npi_logspace`.
    """
    intervals = a.num - 1 if a.endpoint else a.num
    step = (a.stop - a.start) / intervals if intervals > 0 else 0.0
    exponents = torch.arange(a.num, dtype=torch.float64, device=env.device) * step + a.start
    return torch.pow(a.base, exponents).to(torch_dtype(a.dtype))


def _eye(rows: int, columns: int, k: int, a: Any, env: Env) -> torch.Tensor:
    first = torch.arange(rows, device=env.device).unsqueeze(1)
    return torch.eq(torch.arange(columns, device=env.device) - first, k).to(torch_dtype(a.dtype))


@op(
    "_npi_eye",
    (),
    {
        "N": Attr(integer(low=0), "number of rows"),
        "M": Attr(optional(integer(low=0)), "number of columns; None means N", None),
        "k": Attr(integer(), "index of the diagonal, positive above the main one", 0),
        **OUTPUT_ATTRS,
    },
    infer=_fixed(lambda a: (a.N, a.N if a.M is None else a.M)),
    infer_type=_TYPE,
    onnx=_CONSTANT,
)
def eye(a: Any, env: Env) -> torch.Tensor:
    """Return a matrix with ones on a diagonal and zeros elsewhere.

    Shape:
        returns: (N, M).

    Source: MXNet 1.9.1 `_npi_eye`.
    """
    return _eye(a.N, a.N if a.M is None else a.M, a.k, a, env)


@op(
    "_npi_identity",
    (),
    {"shape": Attr(shape, "(N, N)", ()), **OUTPUT_ATTRS},
    infer=_fixed(lambda a: a.shape),
    infer_type=_TYPE,
    onnx=_CONSTANT,
)
def identity(a: Any, env: Env) -> torch.Tensor:
    """Return the identity matrix.

    Shape:
        returns: `shape`, (N, N).

    Source: MXNet 1.9.1 `_npi_identity`.
    """
    return _eye(a.shape[0], a.shape[1], 0, a, env)


@op(
    "_npi_tri",
    (),
    {
        "N": Attr(integer(low=0), "number of rows"),
        "M": Attr(optional(integer(low=0)), "number of columns; None means N", None),
        "k": Attr(integer(), "index of the last diagonal with ones", 0),
        **OUTPUT_ATTRS,
    },
    infer=_fixed(lambda a: (a.N, a.N if a.M is None else a.M)),
    infer_type=_TYPE,
    onnx=_CONSTANT,
)
def tri(a: Any, env: Env) -> torch.Tensor:
    """Return a matrix with ones on and below a diagonal, and zeros above.

    Shape:
        returns: (N, M).

    Source: MXNet 2.0 `_npi_tri`.
    """
    columns = a.N if a.M is None else a.M
    return torch.tril(torch.ones(a.N, columns, device=env.device), a.k).to(torch_dtype(a.dtype))


@op(
    "_npi_indices",
    (),
    {
        "dimensions": Attr(shape, "lengths of the grid"),
        "dtype": Attr(dtype, "dtype of the result", "int32"),
        "ctx": OUTPUT_ATTRS["ctx"],
    },
    infer=_fixed(lambda a: (len(a.dimensions), *a.dimensions)),
    infer_type=_TYPE,
    onnx=_CONSTANT,
)
def indices(a: Any, env: Env) -> torch.Tensor:
    """Return the indices of a grid.

    Shape:
        returns: (number of dimensions, *dimensions).

    Source: MXNet 1.9.1 `_npi_indices`.
    """
    grids = torch.meshgrid(*(torch.arange(n, device=env.device) for n in a.dimensions), indexing="ij")
    return torch.stack(grids).to(torch_dtype(a.dtype))


def _declare_window(word: str, coefficients: tuple[float, ...]) -> None:
    def run(a: Any, env: Env) -> torch.Tensor:
        size = int(a.M or 0)
        if size == 1:
            return torch.ones(1, dtype=torch_dtype(a.dtype), device=env.device)
        phase = torch.arange(size, dtype=torch.float64, device=env.device) * (2 * math.pi / max(size - 1, 1))
        total = sum(c * torch.cos(k * phase) for k, c in enumerate(coefficients))
        return torch.as_tensor(total).to(torch_dtype(a.dtype))

    run.__doc__ = f"""Return the {word.title()} window.

    Shape:
        returns: (M,).

    Source: MXNet 1.9.1 `_npi_{word}`.
    """
    op(
        f"_npi_{word}",
        (),
        {"M": Attr(optional(integer()), "number of values; less than 1 gives none", None), **OUTPUT_ATTRS},
        infer=_fixed(lambda a: (max(a.M or 0, 0),)),
        infer_type=_TYPE,
        onnx=_CONSTANT,
    )(run)


_declare_window("hanning", (0.5, -0.5))
_declare_window("hamming", (0.54, -0.46))
_declare_window("blackman", (0.42, -0.5, 0.08))


@op(
    "_npi_tril_indices",
    (),
    {
        "n": Attr(integer(low=0), "number of rows"),
        "k": Attr(integer(), "index of the diagonal, positive above the main one", 0),
        "m": Attr(integer(low=0), "number of columns; 0 means n", 0),
    },
    outputs=("output0", "output1"),
    infer_type=lambda a, ins, outs: ([], [t or "int64" for t in outs]),
    onnx=_CONSTANT,
)
def tril_indices(a: Any, env: Env) -> tuple[torch.Tensor, torch.Tensor]:
    """Return rows and columns of the elements on and below a diagonal.

    Shape:
        returns: two arrays (K,), int64.

    Source: MXNet 2.0 `_npi_tril_indices`.
    """
    found = torch.tril_indices(a.n, a.m or a.n, a.k, device=env.device)
    return found[0], found[1]


@pure(
    "_npi_diag_indices_from",
    [arg("data")],
    infer_type=types_by(lambda a, data: "int64"),
    batch=NEVER,
    onnx=Onnx(missing="ONNX has no such indices"),
)
def diag_indices_from(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the indices of the main diagonal of an array of equal lengths.

    Shape:
        data: (N, N, ...).
        returns: (number of dimensions, N), int64.

    Source: MXNet 1.9.1 `_npi_diag_indices_from`.
    """
    return torch.arange(x.shape[0], device=x.device).expand(x.dim(), -1).clone()
