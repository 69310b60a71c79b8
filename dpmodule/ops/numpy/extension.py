"""Operators of ``mx.npx`` that have no classic counterpart: names with ``_npx_``."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from ..._core import torch_private
from ...base import OpError, Shape
from ..array.reshape import infers_reshape
from ..array.reshape_codes import resolve_numpy
from ..attrs import boolean, choice, integer, optional, real, shape, string
from ..registry import pure
from ..shapes import same, unify
from ..spec import ROWS, Attr, Onnx, Shapes, arg
from ..tracing import is_tracing
from .rules import first_type, truths


def _codes_shape(a: Any, dims: tuple[int, ...]) -> tuple[int, ...]:
    return resolve_numpy(dims, a.newshape, a.reverse)


@pure(
    "_npx_reshape",
    [arg("a")],
    {
        "newshape": Attr(
            shape,
            "new sizes; -1 is inferred, -2 copies one, -3 leaves one of size 1 out, -4 copies the rest, -5 merges two, "
            "-6 splits one",
        ),
        "reverse": Attr(boolean, "match codes and dimensions from the right", False),
        "order": Attr(choice("C"), "order of the elements", "C"),
    },
    infer=infers_reshape(_codes_shape),
    view=True,
    onnx=Onnx("Reshape", builder="np_reshape"),
)
def reshape(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the elements in another shape.

    Shape:
        a: any shape.
        returns: `newshape` with its codes resolved; the number of elements is the same.

    Raises:
        ShapeError: the codes do not fit.

    Source: MXNet 1.9.1 `_npx_reshape`.
    """
    return x.reshape(_codes_shape(a, x.shape))


def _truth(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    return ins, [()]


@pure(
    "_npx_constraint_check",
    [arg("input")],
    {"msg": Attr(string, "text of the error", "Constraint violated.")},
    infer=_truth,
    infer_type=truths,
    differentiable=False,
    onnx=Onnx("ReduceMin", builder="npx_constraint_check"),
)
def constraint_check(a: Any, condition: torch.Tensor) -> torch.Tensor:
    """Return True, or raise an error if some element is False; a torch or ONNX model returns False instead.

    Shape:
        input: any shape.
        returns: a scalar.

    Raises:
        OpError: an element is False; the message is `msg`.

    Source: MXNet 1.9.1 `_npx_constraint_check`.
    """
    holds = condition.all()
    if not (is_tracing() or holds.is_meta or torch_private.is_transformed(holds) or holds):
        raise OpError(f"_npx_constraint_check: {a.msg}")
    return holds


_MASKED = {
    "axis": Attr(integer(), "axis along which the outputs sum to one", -1),
    "temperature": Attr(optional(real), "divisor of the data; None for 1", None),
    "normalize": Attr(
        optional(boolean), "accepted and ignored: the largest value is always subtracted", True
    ),
}


def _infer_masked(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = unify(ins[0], outs[0], "data and output")
    return [data, ins[1]], [data]


def _masked(
    a: Any, data: torch.Tensor, mask: torch.Tensor, function: Callable[..., torch.Tensor], outside: float
) -> torch.Tensor:
    mask = mask.bool().expand(data.shape)
    data = data if a.temperature is None else data / a.temperature
    left_out = ~mask & mask.any(
        a.axis, keepdim=True
    )  # a row without kept elements has a gradient, which is 0
    return function(data.masked_fill(left_out, -torch.inf), a.axis).masked_fill(~mask, outside)


@pure(
    "_npx_masked_softmax",
    [arg("data", ROWS), arg("mask", ROWS)],
    _MASKED,
    infer=_infer_masked,
    infer_type=first_type,
    onnx=Onnx("Softmax", builder="npx_masked_softmax"),
)
def masked_softmax(a: Any, data: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Apply softmax along an axis to the elements where the mask is True; the others are 0.

    Shape:
        data, returns: any shape.
        mask: booleans of a shape that broadcasts to it.

    Source: MXNet 2.0 `masked_softmax`.
    """
    return _masked(a, data, mask, torch.softmax, 0.0)


@pure(
    "_npx_masked_log_softmax",
    [arg("data", ROWS), arg("mask", ROWS)],
    _MASKED,
    infer=_infer_masked,
    infer_type=first_type,
    onnx=Onnx("LogSoftmax", builder="npx_masked_softmax"),
)
def masked_log_softmax(a: Any, data: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of `_npx_masked_softmax`; it is -inf where the mask is False.

    Shape:
        data, returns: any shape.
        mask: booleans of a shape that broadcasts to it.

    Source: MXNet 2.0 `masked_log_softmax`.
    """
    return _masked(a, data, mask, torch.log_softmax, -torch.inf)


def _infer_indexed(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    whole = unify(ins[0], outs[0], "a and output")
    return [whole, *ins[1:]], [whole]


def _put(whole: torch.Tensor, indices: torch.Tensor, value: torch.Tensor, add: bool) -> torch.Tensor:
    rows = indices.long().unbind(0)
    return whole.index_put(tuple(rows), value.to(whole.dtype), accumulate=add)


@pure(
    "_npx_index_add",
    [arg("a"), arg("ind"), arg("val")],
    infer=_infer_indexed,
    infer_type=first_type,
    onnx=Onnx("ScatterND", builder="npx_index_put"),
)
def index_add(a: Any, whole: torch.Tensor, indices: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Add values to elements or slices of an array; those of an index that occurs twice are both added.

    Shape:
        a, returns: (d0, d1, ...).
        ind: integers (K, N), the indices along the first K axes.
        val: a shape that broadcasts to (N, dK, ...).

    Source: MXNet 2.0 `_npx_index_add`.
    """
    return _put(whole, indices, value, True)


@pure(
    "_npx_index_update",
    [arg("a"), arg("ind"), arg("val")],
    infer=_infer_indexed,
    infer_type=first_type,
    onnx=Onnx("ScatterND", builder="npx_index_put"),
)
def index_update(a: Any, whole: torch.Tensor, indices: torch.Tensor, value: torch.Tensor) -> torch.Tensor:
    """Replace elements or slices of an array.

    Shape:
        a, returns: (d0, d1, ...).
        ind: integers (K, N), the indices along the first K axes.
        val: a shape that broadcasts to (N, dK, ...).

    Source: MXNet 2.0 `_npx_index_update`.
    """
    return _put(whole, indices, value, False)


@pure("_npx_log_sigmoid", [arg("data", ROWS)], infer=same, onnx=Onnx("Softplus", builder="npx_log_sigmoid"))
def log_sigmoid(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return log(1 / (1 + exp(-x))).

    Shape:
        data, returns: any shape.

    Source: MXNet 2.0 `log_sigmoid`.
    """
    return F.logsigmoid(x)


@pure("_npx_mish", [arg("data", ROWS)], infer=same, onnx=Onnx("Softplus", builder="npx_mish"))
def mish(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return x tanh(log(1 + exp(x))).

    Shape:
        data, returns: any shape.

    Source: MXNet 2.0 `mish`.
    """
    return F.mish(x)


@pure("_npx_gelu_tanh", [arg("data", ROWS)], infer=same, onnx=Onnx("Tanh", builder="npx_gelu_tanh"))
def gelu_tanh(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return x / 2 (1 + tanh(sqrt(2 / pi) (x + 0.044715 x**3))), which is close to gelu.

    Shape:
        data, returns: any shape.

    Source: MXNet 2.0 `LeakyReLU` with ``act_type="gelu_tanh"``.
    """
    return F.gelu(x, approximate="tanh")
