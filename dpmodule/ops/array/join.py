"""Joining arrays, and splitting them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import torch

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, integer, shape
from ..registry import bound, pure
from ..shapes import normal_axis, output_shape, same, unify
from ..spec import ROWS, Attr, Onnx, Shapes, Variadic, arg, numbered

Many = Callable[..., torch.Tensor]
Split = Callable[[torch.Tensor], Any]

_COUNT = Attr(integer(low=0), "number of inputs; set by the call", 0)


def _with_size(dims: tuple[int, ...], axis: int, size: int = 0) -> tuple[int, ...]:
    """Return a shape with another size at one axis."""
    return (*dims[:axis], size, *dims[axis + 1 :])


def _infer_concat(a: Any, ins: list[Shape], outs: list[Shape], are_alike: bool = False) -> Shapes:
    """Infer the shapes of `Concat`; if `are_alike`, unknown sizes share the rest evenly, as in MXNet's RNNs."""
    example = next((s for s in (*ins, *outs) if s is not None), None)
    if example is None:
        return ins, outs
    axis = normal_axis(a.dim, len(example), "dim")
    common: Shape = None
    for dims in (*ins, *outs):
        if dims is not None:
            if axis >= len(dims):
                raise ShapeError(f"Concat: inputs {ins} differ in their number of dimensions")
            common = unify(common, _with_size(dims, axis), "inputs of Concat")
    sizes = [s[axis] if s is not None else 0 for s in ins]
    total = outs[0][axis] if outs[0] is not None else 0
    if 0 not in sizes:
        total = (unify((total,), (sum(sizes),), "size of Concat's result") or (0,))[0]
    elif total and (sizes.count(0) == 1 or are_alike):
        missing, rest = divmod(total - sum(sizes), sizes.count(0))
        if missing <= 0 or rest:
            raise ShapeError(
                f"Concat: inputs {ins} leave no equal sizes for the unknown ones of {total} along axis {axis}"
            )
        sizes = [size or missing for size in sizes]
    dims = common or ()
    return [_with_size(dims, axis, size) for size in sizes], [_with_size(dims, axis, total)]


@bound(
    "Concat",
    attrs={"num_args": _COUNT, "dim": Attr(integer(), "axis along which to join", 1)},
    variadic=Variadic(),
    aliases=("concat", "_sparse_concat"),
    infer=_infer_concat,
    onnx=Onnx("Concat", {"dim": "axis"}, drop=("num_args",)),
)
def concat(a: Any) -> Many:
    """Join arrays along an axis.

    Shape:
        args: shapes that differ at most at axis `dim`.
        returns: the same shape with the sum of their sizes at `dim`.

    Source: MXNet 1.9.1 `Concat`.
    """
    dim = a.dim

    def concat(*args: torch.Tensor) -> torch.Tensor:
        return torch.cat(args, dim)

    return concat


@bound(
    "_rnn_param_concat",
    attrs={"num_args": _COUNT, "dim": Attr(integer(), "axis along which to join", 1)},
    variadic=Variadic(),
    infer=partial(_infer_concat, are_alike=True),
    onnx=Onnx("Concat", {"dim": "axis"}, drop=("num_args",)),
)
def rnn_param_concat(a: Any) -> Many:
    """Join the parameters of recurrent layers along an axis.

    Shape:
        args: shapes that differ at most at axis `dim`; unknown sizes share the rest of the result's.
        returns: the same shape with the sum of their sizes at `dim`.

    Source: MXNet 1.9.1 `_rnn_param_concat`.
    """
    return concat(a)


def _infer_stack(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    common: Shape = None
    for dims in ins:
        common = unify(common, dims, "inputs of stack")
    rank = len(common) + 1 if common is not None else len(outs[0] or ())
    if not rank:
        return ins, outs
    axis = normal_axis(a.axis, rank)
    if outs[0] is not None:
        common = unify(common, outs[0][:axis] + outs[0][axis + 1 :], "inputs of stack")
    dims = common or ()
    return [dims] * len(ins), [output_shape(outs[0], (*dims[:axis], len(ins), *dims[axis:]))]


@pure(
    "stack",
    attrs={"axis": Attr(integer(), "position of the new axis in the result", 0), "num_args": _COUNT},
    variadic=Variadic(),
    infer=_infer_stack,
)
def stack(a: Any, *args: torch.Tensor) -> torch.Tensor:
    """Join arrays along a new axis.

    Shape:
        args: one shape.
        returns: one more dimension, of size the number of arrays.

    Source: MXNet 1.9.1 `stack`.
    """
    return torch.stack(args, a.axis)


@pure(
    "add_n",
    attrs={"num_args": _COUNT},
    variadic=Variadic(batch=ROWS),
    aliases=("ElementWiseSum", "_sparse_add_n", "_sparse_ElementWiseSum"),
    infer=same,
    onnx=Onnx("Sum", builder="add_n"),
)
def add_n(a: Any, first: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
    """Add any number of arrays.

    Shape:
        args: one shape.
        returns: the same shape and dtype.

    Source: MXNet 1.9.1 `add_n`.
    """
    if not rest:
        return first.clone()
    for other in rest:
        first = first + other
    return first


def _infer_pieces(
    data: Shape, outs: list[Shape], axis_given: int, sizes: Callable[[int], list[int]], squeeze: bool
) -> Shapes:
    """Infer the shapes of a split into pieces of `sizes(length of the axis)` elements."""
    if data is None:
        return [data], outs
    axis = normal_axis(axis_given, len(data))
    lengths, shapes = sizes(data[axis]), list[Shape]()
    if squeeze:
        _check_squeezed(lengths, axis, data)
    for size, out in zip(lengths, outs, strict=True):
        piece = data[:axis] + data[axis + 1 :] or (1,) if squeeze else _with_size(data, axis, size)
        shapes.append(output_shape(out, piece))
    return [data], shapes


def _check_squeezed(sizes: list[int], axis: int, data: tuple[int, ...]) -> None:
    """Raise an error if a piece has several elements along an axis that is to be removed."""
    for size in sizes:
        if size > 1:
            raise OpError(
                f"squeeze_axis: a piece has {size} elements along axis {axis}, expected 1; data is {data}"
            )


def _data_from_pieces(data: Shape, outs: list[Shape], axis_given: int, squeeze: bool) -> Shape:
    """Infer the other dimensions of a split's data from the pieces."""
    for out in outs:
        if out is not None:
            axis = normal_axis(axis_given, len(out) + squeeze)
            whole = (*out[:axis], 0, *out[axis:]) if squeeze else _with_size(out, axis)
            data = unify(data, whole, "data of a split")
    return data


def _equal_sizes(name: str, length: int, count: int) -> list[int]:
    if length % count:
        raise OpError(
            f"{name}: the axis has {length} elements, which cannot be split into {count} equal pieces"
        )
    return [length // count] * count


def _infer_split(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = _data_from_pieces(ins[0], outs, a.axis, a.squeeze_axis)
    if data is not None:
        axis = normal_axis(a.axis, len(data))
        piece = 1 if a.squeeze_axis else next((out[axis] for out in outs if out is not None), 0)
        if piece and not data[axis]:
            data = unify(data, _with_size(data, axis, piece * a.num_outputs), "data of SliceChannel")
    return _infer_pieces(
        data, outs, a.axis, lambda n: _equal_sizes("SliceChannel", n, a.num_outputs), a.squeeze_axis
    )


@pure(
    "SliceChannel",
    [arg("data")],
    {
        "num_outputs": Attr(integer(1, 65536), "number of pieces"),
        "axis": Attr(integer(), "axis to split", 1),
        "squeeze_axis": Attr(boolean, "remove the axis, which must have size 1 in each piece", False),
    },
    aliases=("split",),
    outputs=lambda a: tuple(f"output{i}" for i in range(a.num_outputs)),
    infer=_infer_split,
    view=True,
    onnx=Onnx(builder="split"),
)
def slice_channel(a: Any, x: torch.Tensor) -> Any:
    """Split an array into equal pieces along an axis.

    Shape:
        data: any shape; its size at `axis` is a multiple of `num_outputs`.
        returns: `num_outputs` arrays.

    Raises:
        OpError: the axis cannot be split evenly.

    Source: MXNet 1.9.1 `SliceChannel`.
    """
    axis = normal_axis(a.axis, x.dim())
    sizes = _equal_sizes("SliceChannel", x.shape[axis], a.num_outputs)
    if a.squeeze_axis:
        _check_squeezed(sizes, axis, tuple(x.shape))
    pieces = x.unbind(axis) if a.squeeze_axis and x.dim() > 1 else torch.split(x, sizes[0], axis)
    return pieces[0] if a.num_outputs == 1 else pieces


def _piece_sizes(a: Any, length: int) -> list[int]:
    """Return the sizes of the pieces of `_split_v2`; 0 for the last piece if the length is unknown."""
    if a.sections:
        return _equal_sizes("_split_v2", length, a.sections)
    bounds = [*a.indices, length]
    sizes = [end - begin for begin, end in zip(bounds, bounds[1:], strict=False)]
    if length and min(sizes, default=0) < 0 or not length and min(sizes[:-1], default=0) < 0:
        raise OpError(f"_split_v2: indices {a.indices} do not ascend within an axis of {length} elements")
    return sizes if length else [*sizes[:-1], 0]


def _infer_split_v2(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    return _infer_pieces(ins[0], outs, a.axis, lambda n: _piece_sizes(a, n), a.squeeze_axis)


@pure(
    "_split_v2",
    [arg("data")],
    {
        "indices": Attr(shape, "start of each piece; the first is 0"),
        "axis": Attr(integer(), "axis to split", 1),
        "squeeze_axis": Attr(boolean, "remove the axis, which must have size 1 in each piece", False),
        "sections": Attr(integer(0, 65536), "number of equal pieces; 0 means to use `indices`", 0),
    },
    outputs=lambda a: numbered(a.sections or len(a.indices)),
    infer=_infer_split_v2,
    view=True,
    onnx=Onnx(builder="split"),
)
def split_v2(a: Any, x: torch.Tensor) -> Any:
    """Split an array along an axis, evenly or at given positions.

    Shape:
        data: any shape.
        returns: `sections` arrays, or one for each of `indices`.

    Raises:
        OpError: the axis cannot be split this way.

    Source: MXNet 1.9.1 `_split_v2`.
    """
    axis = normal_axis(a.axis, x.dim())
    sizes = _piece_sizes(a, x.shape[axis])
    if a.squeeze_axis:
        _check_squeezed(sizes, axis, tuple(x.shape))
    pieces = torch.split(x, sizes, axis)
    if a.squeeze_axis and x.dim() > 1:
        pieces = tuple(p.squeeze(axis) for p in pieces)
    return pieces[0] if len(pieces) == 1 else pieces
