"""Tensor contractions, and the column-wise Kronecker product."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, choice, integer, optional
from ..registry import pure
from ..shapes import output_shape, unify
from ..spec import Attr, Shapes, Variadic, arg

Binary = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]


def _attrs(axis: str) -> dict[str, Attr]:
    return {
        "transpose_a": Attr(boolean, f"contract {axis} of lhs", False),
        "transpose_b": Attr(boolean, "contract the last axis of rhs", False),
        "forward_stype": Attr(
            optional(choice("csr", "default", "row_sparse")),
            "storage type of the result; None: inferred from the inputs' storage",
            None,
        ),
    }


def _infer_dot(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    left, right = ins
    if left is None or right is None:
        return ins, outs
    inner, rest_left = (left[0], left[1:]) if a.transpose_a else (left[-1], left[:-1])
    other, rest_right = (right[-1], right[:-1]) if a.transpose_b else (right[0], right[1:])
    if inner != other and inner and other:
        raise ShapeError(
            f"dot: lhs {left} and rhs {right}: the contracted axes have {inner} and {other} elements"
        )
    shape = rest_left + rest_right or (1,)
    return ins, [output_shape(outs[0], shape)]


@pure(
    "dot",
    [arg("lhs"), arg("rhs")],
    _attrs("the first axis"),
    aliases=("_sparse_dot",),
    infer=_infer_dot,
)
def dot(a: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Contract the last axis of `lhs` with the first axis of `rhs`.

    Shape:
        lhs: (..., K), or (K, ...) with `transpose_a`.
        rhs: (K, ...), or (..., K) with `transpose_b`.
        returns: the other axes of `lhs`, then those of `rhs`; (1,) for two vectors.

    Example:
        >>> mx.nd.dot(mx.nd.array([[1, 2], [3, 4]]), mx.nd.array([1, 1])).asnumpy()
        array([3., 7.], dtype=float32)

    Source: MXNet 1.9.1 `dot`.
    """
    if left.dim() == 2 and right.dim() == 2:
        return torch.mm(left.t() if a.transpose_a else left, right.t() if a.transpose_b else right)
    axes = [0 if a.transpose_a else left.dim() - 1], [right.dim() - 1 if a.transpose_b else 0]
    contracted: torch.Tensor = torch.tensordot(left, right, dims=axes)
    return contracted if contracted.dim() else contracted.reshape(1)


def _infer_batch_dot(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    left, right = ins
    if left is None or right is None:
        return ins, outs
    if len(left) != len(right) or len(left) < 3:
        raise ShapeError(f"batch_dot: lhs is {left} and rhs {right}, expected equal ranks of at least 3")
    batch = unify(left[:-2], right[:-2], "leading axes of batch_dot's inputs") or ()
    rows, inner = (left[-1], left[-2]) if a.transpose_a else (left[-2], left[-1])
    other, columns = (right[-1], right[-2]) if a.transpose_b else (right[-2], right[-1])
    if inner != other and inner and other:
        raise ShapeError(
            f"batch_dot: lhs {left} and rhs {right}: the contracted axes have {inner} and {other} elements"
        )
    if not inner or not other:
        return [batch + left[-2:], batch + right[-2:]], outs
    shape = output_shape(outs[0], (*batch, rows, columns))
    return [batch + left[-2:], batch + right[-2:]], [shape]


@pure(
    "batch_dot",
    [arg("lhs"), arg("rhs")],
    _attrs("the last axis but one"),
    infer=_infer_batch_dot,
)
def batch_dot(a: Any, left: torch.Tensor, right: torch.Tensor) -> torch.Tensor:
    """Multiply matrices pairwise over the leading axes, which must be equal.

    Shape:
        lhs: (B..., M, K), or (B..., K, M) with `transpose_a`.
        rhs: (B..., K, N), or (B..., N, K) with `transpose_b`.
        returns: (B..., M, N).

    Source: MXNet 1.9.1 `batch_dot`.
    """
    if left.shape[:-2] != right.shape[:-2]:
        raise ShapeError(
            f"batch_dot: lhs {tuple(left.shape)} and rhs {tuple(right.shape)}, expected the same first axes"
        )
    multiply = torch.bmm if left.dim() == 3 else torch.matmul  # which checks more
    return multiply(left.mT if a.transpose_a else left, right.mT if a.transpose_b else right)


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    columns = outs[0][1] if outs[0] is not None and len(outs[0]) == 2 else 0
    for shape in ins:
        if shape is None:
            continue
        if len(shape) != 2 or (columns and shape[1] and shape[1] != columns):
            raise ShapeError(
                f"khatri_rao: inputs have shapes {ins}, expected matrices with equal numbers of columns"
            )
        columns = columns or shape[1]
    filled: list[Shape] = [None if s is None else (s[0], columns) for s in ins]
    rows = 1
    for shape in filled:
        rows *= shape[0] if shape is not None else 0
    return filled, [output_shape(outs[0], (rows, columns))]


@pure(
    "khatri_rao",
    attrs={"num_args": Attr(integer(low=0), "number of inputs; set by the call", 0)},
    variadic=Variadic(),
    infer=_infer,
)
def khatri_rao(a: Any, *matrices: torch.Tensor) -> torch.Tensor:
    """Return the column-wise Kronecker product of the inputs.

    Shape:
        arg0, arg1, ...: (R0, C), (R1, C), ...
        returns: (R0 * R1 * ..., C).

    Example:
        >>> mx.nd.khatri_rao(mx.nd.array([[1, 2]]), mx.nd.array([[3, 4], [5, 6]])).asnumpy()
        array([[ 3.,  8.],
               [ 5., 12.]], dtype=float32)

    Source: MXNet 1.9.1 `khatri_rao`; Khatri and Rao (1968).
    """
    if not matrices:
        raise OpError("khatri_rao: there are no inputs, expected at least one matrix")
    width = matrices[0].shape[-1]
    if any(m.dim() != 2 or m.shape[1] != width for m in matrices):
        shapes = [tuple(m.shape) for m in matrices]
        raise ShapeError(
            f"khatri_rao: inputs have shapes {shapes}, expected matrices with equal numbers of columns"
        )
    product = matrices[0]
    for other in matrices[1:]:
        product = (product.unsqueeze(1) * other).reshape(-1, width)
    return product
