"""Selecting elements."""

from __future__ import annotations

from typing import Any

import torch

from ..._devices.device_transfer import on_device, tensor_like
from ...base import BoundsError, OpError, Shape, ShapeError
from ..attrs import AttrType, boolean, choice, integer, literal, optional, real, reals, shape
from ..math.pointwise import to_integer
from ..registry import pure
from ..shapes import broadcasting, normal_axis, output_shape, prod, same, unify
from ..spec import NEVER, Attr, Input, Onnx, Shapes, Types, arg, numbered
from .rules import common, first_type, to_common


def _where_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer the common type of both values; the condition may have any."""
    known = next((t for t in (*ins[1:], *outs) if t is not None), None)
    if known is None:
        return ins, outs
    values = [t or known for t in ins[1:]]
    return [ins[0], *values], [common(*values) if values else outs[0]]


@pure(
    "_npi_where",
    [arg("condition"), arg("x"), arg("y")],
    infer=broadcasting,
    infer_type=_where_types,
    onnx=Onnx("Where", builder="np_where"),
)
def where(a: Any, condition: torch.Tensor, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Choose elements of `x` where the condition is not 0, else of `y`, with broadcasting.

    Shape:
        condition, x, y: shapes whose dimensions are equal or 1, aligned at the end.
        returns: the largest of each three dimensions; the common dtype of `x` and `y`.

    Source: MXNet 1.9.1 `_npi_where`.
    """
    x, y = to_common(x, y)
    return torch.where(condition if condition.dtype == torch.bool else condition != 0, x, y)


def _number_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer the type of the array that is not the condition."""
    known = ins[1] or outs[0]
    return [ins[0], known], [outs[0] or known]


def _declare_where_scalar(name: str, which: str) -> None:
    holds = "is true" if which == "y" else "is not true"

    def run(a: Any, condition: torch.Tensor, x: torch.Tensor) -> torch.Tensor:
        number = tensor_like(x, a.scalar if x.is_floating_point() else to_integer(a.scalar))
        yes, no = (number, x) if which == "x" else (x, number)
        return torch.where(condition != 0, yes, no)

    run.__doc__ = f"""Choose elements of `{which}` where the condition {holds}, else a number.

    Shape:
        condition, {which}: shapes whose dimensions are equal or 1, aligned at the end.
        returns: the larger of each two dimensions; the dtype of `{which}`.

    Source: MXNet 1.9.1 `{name}`.
    """
    pure(
        name,
        [arg("condition"), arg(which)],
        {"scalar": Attr(real, "the number", 0.0)},
        infer=broadcasting,
        infer_type=_number_types,
        onnx=Onnx("Where", builder="np_where"),
    )(run)


_declare_where_scalar("_npi_where_lscalar", "x")
_declare_where_scalar("_npi_where_rscalar", "y")


@pure(
    "_npi_where_scalar2",
    [arg("condition")],
    {"x": Attr(real, "number where the condition is true", 0.0), "y": Attr(real, "number elsewhere", 0.0)},
    infer=same,
    infer_type=lambda a, ins, outs: (ins, [outs[0] or "float32"]),
    onnx=Onnx("Where", builder="np_where"),
)
def where_scalar2(a: Any, condition: torch.Tensor) -> torch.Tensor:
    """Choose between two numbers.

    Shape:
        condition: any shape.
        returns: the same shape, float32.

    Source: MXNet 1.9.1 `_npi_where_scalar2`.
    """
    return torch.where(condition != 0, a.x, a.y).to(torch.float32)


def _widths(value: Any) -> tuple[tuple[int, int], ...]:
    pairs = tuple(tuple(shape.parse(pair)) for pair in _pairs.parse(value))
    if any(len(pair) != 2 or min(pair) < 0 for pair in pairs):
        raise ValueError(value)
    return pairs


_pairs = AttrType(lambda value: literal(value) if isinstance(value, str) else tuple(value), "pairs", "Any")
_PAD_MODES = ("constant", "edge", "reflect", "symmetric", "maximum", "minimum")


def pad_places(mode: str, length: int, before: int, after: int) -> torch.Tensor:
    """Return the position that each element of a padded axis copies."""
    places = torch.arange(-before, length + after)
    if mode == "edge":
        return places.clamp(0, length - 1)
    if mode == "reflect":
        period = max(2 * (length - 1), 1)
        places = places % period
        return torch.where(places < length, places, period - places)
    places = places % (2 * length)
    return torch.where(places < length, places, 2 * length - 1 - places)


@pure(
    "_npi_pad",
    [arg("data")],
    {
        "pad_width": Attr(
            AttrType(_widths, "a pair of numbers for each axis", "tuple[tuple[int, int], ...]"),
            "elements to add before and after each axis",
        ),
        "mode": Attr(choice(*_PAD_MODES), "values of the new elements", "constant"),
        "constant_value": Attr(real, "value in the mode constant", 0.0),
        "reflect_type": Attr(choice("even"), "kind of reflection", "even"),
    },
    onnx=Onnx("Pad", builder="np_pad"),
)
def pad(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Add elements before and after axes.

    Shape:
        data: any shape.
        returns: each length plus both numbers of `pad_width`.

    Source: MXNet 1.9.1 `_npi_pad`.
    """
    if len(a.pad_width) != x.dim():
        raise OpError(
            f"_npi_pad: pad_width is {a.pad_width}, expected {x.dim()} pairs, one for each axis of data"
        )
    if a.mode == "constant":
        flat = [n for pair in reversed(a.pad_width) for n in pair]
        value = a.constant_value if x.is_floating_point() else to_integer(a.constant_value)
        return torch.nn.functional.pad(x, flat, value=value)
    for axis, (before, after) in enumerate(a.pad_width):
        if before == after == 0:
            continue
        if a.mode in ("maximum", "minimum"):
            edge = (torch.amax if a.mode == "maximum" else torch.amin)(x, axis, keepdim=True)
            sizes = [-1] * x.dim()
            parts = [edge.expand([*sizes[:axis], n, *sizes[axis + 1 :]]) for n in (before, after)]
            x = torch.cat([parts[0], x, parts[1]], axis)
        else:
            places = pad_places(a.mode, x.shape[axis], before, after)
            x = x.index_select(axis, on_device(places, x.device))
    return x


@pure(
    "_npi_diff",
    [arg("a")],
    {
        "n": Attr(integer(low=0), "number of times to take differences", 1),
        "axis": Attr(integer(), "axis", -1),
    },
    onnx=Onnx("Sub", builder="np_diff"),
)
def diff(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the differences of successive elements along an axis.

    Shape:
        a: any shape.
        returns: the shape with `n` elements less at `axis`.

    Source: MXNet 1.9.1 `_npi_diff`.
    """
    return torch.diff(x, a.n, a.axis)


def _ends(a: Any) -> tuple[Input, ...]:
    first = (arg("input2"),) if a.to_begin_arr_given else ()
    last = (arg("input3"),) if a.to_end_arr_given else ()
    return (arg("input1"), *first, *last)


@pure(
    "_npi_ediff1d",
    _ends,
    {
        "to_begin_arr_given": Attr(boolean, "there is an array of elements before the differences", False),
        "to_end_arr_given": Attr(boolean, "there is an array of elements after the differences", False),
        "to_begin_scalar": Attr(optional(real), "one element before the differences", None),
        "to_end_scalar": Attr(optional(real), "one element after the differences", None),
    },
    onnx=Onnx("Sub", builder="np_ediff1d"),
)
def ediff1d(a: Any, x: torch.Tensor, *ends: torch.Tensor) -> torch.Tensor:
    """Return the differences of successive elements of the flattened array, between further elements.

    Shape:
        input1: any shape of N elements.
        input2, input3: any shapes.
        returns: (N - 1 + number of further elements,).

    Source: MXNet 1.9.1 `_npi_ediff1d`.
    """
    flat = x.reshape(-1)
    rest = list(ends)
    parts = [flat[1:] - flat[:-1]]
    if a.to_begin_arr_given:
        parts.insert(0, rest.pop(0).reshape(-1))
    elif a.to_begin_scalar is not None:
        parts.insert(0, tensor_like(x, [a.to_begin_scalar]))
    if a.to_end_arr_given:
        parts.append(rest.pop(0).reshape(-1))
    elif a.to_end_scalar is not None:
        parts.append(tensor_like(x, [a.to_end_scalar]))
    return torch.cat(parts)


_PLACE = {
    "start": Attr(optional(integer()), "first position of a range", None),
    "stop": Attr(optional(integer()), "end of the range", None),
    "step": Attr(optional(integer()), "step of the range", None),
    "int_ind": Attr(optional(integer()), "a single position", None),
    "axis": Attr(optional(integer()), "axis; None means the flattened array", None),
}


def _flat(a: Any, x: torch.Tensor) -> tuple[torch.Tensor, int]:
    """Return the array and the axis, or the flattened array and axis 0."""
    return (x.reshape(-1), 0) if a.axis is None else (x, normal_axis(a.axis, x.dim()))


def _places(a: Any, length: int, obj: torch.Tensor | None) -> list[int]:
    """Return the positions that the attributes or a tensor name."""
    if obj is not None:
        found = [int(i) for i in obj.reshape(-1).tolist()]
    elif a.int_ind is not None:
        found = [a.int_ind]
    else:
        return list(range(*slice(a.start, a.stop, a.step).indices(length)))
    wrong = [i for i in found if not -length <= i <= length]
    if wrong:
        raise BoundsError(f"position {wrong[0]} is outside the axis of {length} elements")
    return [i + length if i < 0 else i for i in found]


def _is_obj(a: Any) -> bool:
    return a.int_ind is None and a.start is None and a.stop is None and a.step is None


def _static(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer the shape of `delete` for positions that are attributes."""
    data = ins[0]
    if data is None or 0 in data or _is_obj(a):
        return ins, outs
    dims, axis = ((prod(data),), 0) if a.axis is None else (data, normal_axis(a.axis, len(data)))
    left = dims[axis] - len({*_places(a, dims[axis], None)})
    return ins, [output_shape(outs[0], (*dims[:axis], left, *dims[axis + 1 :]))]


@pure(
    "_npi_delete",
    lambda a: (arg("arr"), arg("obj")) if _is_obj(a) else (arg("arr"),),
    _PLACE,
    infer=_static,
    infer_type=first_type,
    batch=NEVER,
    onnx=Onnx("Gather", builder="np_delete"),
)
def delete(a: Any, x: torch.Tensor, obj: torch.Tensor | None = None) -> torch.Tensor:
    """Remove positions along an axis.

    With positions in an array, the shape of the result is known only after the operator has run.

    Shape:
        arr: any shape.
        obj: positions, of integers.
        returns: the shape of `arr` without these positions at `axis`.

    Source: MXNet 1.9.1 `_npi_delete`.
    """
    x, axis = _flat(a, x)
    away = set(_places(a, x.shape[axis], obj))
    kept = [i for i in range(x.shape[axis]) if i not in away]
    return x.index_select(axis, tensor_like(x, kept, torch.int64))


def _inserted(a: Any, x: torch.Tensor, values: torch.Tensor | None, obj: torch.Tensor | None) -> torch.Tensor:
    x, axis = _flat(a, x)
    if values is None:
        values = tensor_like(x, a.val)
    single = a.int_ind is not None or obj is not None and obj.numel() == 1
    if values.dim() < x.dim():
        values = values.reshape((1,) * (x.dim() - values.dim()) + tuple(values.shape))
    is_meta = obj is not None and x.device.type == "meta"  # only the number of positions is known
    places = [0] * obj.numel() if is_meta and obj is not None else _places(a, x.shape[axis], obj)
    if single and obj is None or obj is not None and obj.dim() == 0:
        values = values.movedim(0, axis)
        places = places * values.shape[axis]
    dims = list(x.shape)
    dims[axis] = len(places)
    values = values.to(x.dtype).expand(dims)
    # the position of each inserted element in the result, as NumPy counts
    order = sorted(range(len(places)), key=lambda i: (places[i], i))
    target = {places[i] + n: i for n, i in enumerate(order)}
    rest = iter(range(x.shape[axis]))
    pick = [
        x.shape[axis] + target[n] if n in target else next(rest) for n in range(x.shape[axis] + len(places))
    ]
    joined = torch.cat([x, values], axis)
    return joined.index_select(axis, tensor_like(x, pick, torch.int64))


def _declare_insert(kind: str, what: str) -> None:
    name = f"_npi_insert_{kind}"

    def inputs(a: Any) -> tuple[Input, ...]:
        values = () if a.val is not None else (arg("values"),)
        return (arg("arr"), *values, *((arg("obj"),) if kind == "tensor" else ()))

    def run(a: Any, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        values = rest[0] if a.val is None else None
        return _inserted(a, x, values, rest[-1] if kind == "tensor" else None)

    run.__doc__ = f"""Insert values along an axis before {what}.

    Shape:
        arr: any shape.
        values: broadcasts to the inserted part.
        obj: positions, of integers.
        returns: the shape of `arr` with the inserted positions at `axis`.

    Source: MXNet 1.9.1 `{name}`.
    """
    pure(
        name,
        inputs,
        {"val": Attr(optional(real), "a single value, without the input `values`", None), **_PLACE},
        infer_type=first_type,
        batch=NEVER if kind == "tensor" else "",
        onnx=Onnx("Gather", builder="np_insert"),
    )(run)


_declare_insert("scalar", "a position")
_declare_insert("slice", "the positions of a range")
_declare_insert("tensor", "the positions of an array")


def _unknown(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Leave the shape of the result unknown until the operator has run."""
    return ins, outs


def _unique_outputs(a: Any) -> tuple[str, ...]:
    return numbered(1 + a.return_index + a.return_inverse + a.return_counts)


@pure(
    "_npi_unique",
    [arg("data")],
    {
        "return_index": Attr(boolean, "also return the position of the first of each element", False),
        "return_inverse": Attr(boolean, "also return the number of each element in the result", False),
        "return_counts": Attr(boolean, "also return the number of times of each element", False),
        "axis": Attr(
            optional(integer()), "axis whose slices are compared; None means the flattened array", None
        ),
    },
    outputs=_unique_outputs,
    infer=_unknown,
    infer_type=lambda a, ins, outs: (ins, [outs[0] or ins[0], *(t or "int64" for t in outs[1:])]),
    batch=NEVER,
    onnx=Onnx(missing="the shape of the result depends on the values"),
)
def unique(a: Any, x: torch.Tensor) -> Any:
    """Return the different elements, ascending, without a gradient.

    Their number is known only after the operator has run.

    Shape:
        data: any shape.
        returns: (number of different elements,), and up to three arrays of int64.

    Source: MXNet 1.9.1 `_npi_unique`.
    """
    values, inverse, counts = torch.unique(x.detach(), return_inverse=True, return_counts=True, dim=a.axis)
    flat = inverse.reshape(-1)
    outputs = [values]
    if a.return_index:
        places = torch.arange(flat.numel(), device=x.device)
        first = torch.full((counts.numel(),), flat.numel(), dtype=torch.int64, device=x.device)
        outputs.append(first.scatter_reduce(0, flat, places, "amin"))
    if a.return_inverse:
        outputs.append(flat)
    if a.return_counts:
        outputs.append(counts)
    return outputs[0] if len(outputs) == 1 else tuple(outputs)


@pure(
    "_npi_share_memory",
    [arg("a"), arg("b")],
    infer=lambda a, ins, outs: (ins, [()]),
    infer_type=lambda a, ins, outs: (ins, ["bool"]),
    batch=NEVER,
    onnx=Onnx(missing="values of an ONNX model have no memory"),
)
def share_memory(a: Any, x: torch.Tensor, y: torch.Tensor) -> torch.Tensor:
    """Return True if two arrays may share memory.

    Shape:
        a, b: any shapes.
        returns: (), bool.

    Source: MXNet 1.9.1 `_npi_share_memory`.
    """
    shared = x.numel() > 0 and x.untyped_storage().data_ptr() == y.untyped_storage().data_ptr()
    return torch.full((), shared, device=x.device)


def _expanded_mask(data: torch.Tensor, mask: torch.Tensor, start: int) -> torch.Tensor:
    """Return a mask of some axes that broadcasts to the data."""
    ends = data.dim() - start - mask.dim()
    if ends < 0:
        raise ShapeError(
            f"mask has {mask.dim()} dimensions, expected at most {data.dim() - start}, those of data"
        )
    return (mask != 0).reshape(*mask.shape, *[1] * ends)


_START = {"start_axis": Attr(integer(low=0), "first axis of the mask", 0)}


@pure(
    "_npi_boolean_mask_assign_scalar",
    [arg("data"), arg("mask")],
    {"value": Attr(real, "value of the chosen elements", 0.0), **_START},
    infer=lambda a, ins, outs: (ins, [unify(outs[0], ins[0])]),
    infer_type=first_type,
    accepts_any=True,
    onnx=Onnx("Where", builder="np_mask_assign"),
)
def boolean_mask_assign_scalar(a: Any, data: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Return an array with a number at the elements that a mask chooses.

    Shape:
        data: any shape.
        mask: lengths of some successive axes of `data`.
        returns: the shape and dtype of `data`.

    Source: MXNet 1.9.1 `_npi_boolean_mask_assign_scalar`.
    """
    value = a.value if data.is_floating_point() else to_integer(a.value)
    return torch.where(_expanded_mask(data, mask, a.start_axis), tensor_like(data, value), data)


@pure(
    "_npi_boolean_mask_assign_tensor",
    [arg("data"), arg("mask"), arg("value")],
    _START,
    infer=lambda a, ins, outs: (ins, [unify(outs[0], ins[0])]),
    infer_type=first_type,
    accepts_any=True,
    batch=NEVER,
    onnx=Onnx(missing="ONNX has no assignment by a mask"),
)
def boolean_mask_assign_tensor(
    a: Any, data: torch.Tensor, mask: torch.Tensor, value: torch.Tensor
) -> torch.Tensor:
    """Return an array with values at the elements that a mask chooses, in order.

    Shape:
        data: any shape.
        mask: lengths of some successive axes of `data`.
        value: one value, or one for each chosen position.
        returns: the shape and dtype of `data`.

    Source: MXNet 1.9.1 `_npi_boolean_mask_assign_tensor`.
    """
    chosen = _expanded_mask(data, mask, a.start_axis)
    if value.numel() == 1:
        return torch.where(chosen, value.to(data.dtype).reshape(()), data)
    before = (slice(None),) * a.start_axis
    out = data.clone()
    out[(*before, mask != 0)] = value.to(data.dtype)
    return out


@pure(
    "_npi_advanced_indexing",
    [arg("data"), arg("indices")],
    infer_type=first_type,
    infer=lambda a, ins, outs: (ins, outs),
    batch=NEVER,
    onnx=Onnx("Gather", builder="np_advanced_indexing"),
)
def advanced_indexing(a: Any, data: torch.Tensor, indices: torch.Tensor) -> torch.Tensor:
    """Select positions of the first axis by integers, or elements by a mask.

    The shape of the result is known only after the operator has run.

    Shape:
        data: (N, ...).
        indices: any shape of integers, or a mask of bool with the lengths of the first axes.
        returns: the shape of the integers, or (number of chosen positions,), then the other axes.

    Source: MXNet 2.0 `_npi_advanced_indexing`.
    """
    return data[indices if indices.dtype == torch.bool else indices.long()]


@pure(
    "_npi_interp",
    lambda a: (arg("xp"), arg("fp")) if a.x_is_scalar else (arg("xp"), arg("fp"), arg("x")),
    {
        "left": Attr(optional(real), "value below the first point; None means that of the first", None),
        "right": Attr(optional(real), "value above the last point; None means that of the last", None),
        "period": Attr(optional(real), "period of the points; None means that there is none", None),
        "x_scalar": Attr(real, "a single position, without the input `x`", 0.0),
        "x_is_scalar": Attr(boolean, "use `x_scalar`", False),
    },
    infer_type=lambda a, ins, outs: (ins, [outs[0] or "float64"]),
    batch=NEVER,
    onnx=Onnx(missing="ONNX has no search in sorted values"),
)
def interp(a: Any, xp: torch.Tensor, fp: torch.Tensor, x: torch.Tensor | None = None) -> torch.Tensor:
    """Interpolate linearly between points.

    Shape:
        xp: (N,), ascending positions.
        fp: (N,), values.
        x: any shape.
        returns: the shape of `x`, float64.

    Source: MXNet 2.0 `_npi_interp`.
    """
    xp, fp = xp.double(), fp.double()
    x = torch.full((), a.x_scalar, dtype=torch.float64, device=xp.device) if x is None else x.double()
    at = x.reshape(-1)
    if a.period is not None:
        at, xp = at % a.period, xp % a.period
        order = torch.argsort(xp)
        xp, fp = xp[order], fp[order]
        xp = torch.cat([xp[-1:] - a.period, xp, xp[:1] + a.period])
        fp = torch.cat([fp[-1:], fp, fp[:1]])
    high = torch.searchsorted(xp, at, right=True).clamp(1, max(len(xp) - 1, 1)).clamp(max=len(xp) - 1)
    low = (high - 1).clamp(min=0)
    width = xp[high] - xp[low]
    part = torch.where(width > 0, (at - xp[low]) / torch.where(width > 0, width, 1), 0)
    found = fp[low] + part * (fp[high] - fp[low])
    found = torch.where(at < xp[0], fp[0] if a.left is None or a.period else a.left, found)
    found = torch.where(at > xp[-1], fp[-1] if a.right is None or a.period else a.right, found)
    return found.reshape(x.shape)


@pure(
    "_npi_fill_diagonal",
    [arg("a")],
    {
        "val": Attr(reals, "values of the diagonal, repeated as needed"),
        "wrap": Attr(
            boolean, "repeat the diagonal below the square part of a tall matrix, after a row", False
        ),
    },
    infer=same,
    onnx=Onnx(missing="ONNX has no assignment to a diagonal"),
)
def fill_diagonal(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return an array with values on its main diagonal.

    Shape:
        a: two dimensions, or more of one length.
        returns: the same shape and dtype.

    Source: MXNet 2.0 `_npi_fill_diagonal`.
    """
    if x.dim() == 2:
        step = x.shape[1] + 1
        end = x.numel() if a.wrap else min(x.numel(), x.shape[1] * x.shape[1])
    else:
        step = 1 + sum(prod(x.shape[i + 1 :]) for i in range(x.dim() - 1))
        end = x.numel()
    places = torch.arange(0, end, step, device=x.device)
    values = tensor_like(x, a.val)
    values = values[torch.arange(places.numel(), device=x.device) % values.numel()]
    return x.reshape(-1).index_copy(0, places, values.to(x.dtype)).reshape(x.shape)
