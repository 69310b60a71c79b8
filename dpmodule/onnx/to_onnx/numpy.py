"""Builders of the operators of networks exported under ``npx.set_np()``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from ...ops.numpy.index import pad_places
from ...ops.numpy.rules import common
from ...ops.shapes import normal_axes, normal_axis
from ...ops.spec import Env
from .call import OperatorCall, Value
from .common import Builder, computed_in, reshape, result, shape_value, term, working_type
from .random import random_numbers

LAST = 2**63 - 1
"""End of a range beyond every axis."""


def _both(c: OperatorCall, dtype: str) -> tuple[Value, Value]:
    """Return both operands in a type; one may be the attribute ``scalar``."""
    values = [x.cast(dtype) for x in c.inputs]
    if len(values) == 1:
        number = c.const(c.a.scalar if "float" in dtype else int(c.a.scalar), dtype)
        first = c.node.op is not None and c.node.op.onnx is not None and c.node.op.onnx.scalar == "first"
        values = [number, *values] if first else [*values, number]
    return values[0], values[1]


# elementwise


def compare_as_bool(c: OperatorCall) -> Value:
    """Comparison, computed in the common type of the operands."""
    dtype = common(*c.dtypes)
    if len(c.inputs) == 1 and "float" not in dtype and dtype != "bool" and c.a.scalar != int(c.a.scalar):
        dtype = "float64"
    operator = c.type
    if dtype == "bool" and operator != "Equal":
        left, right = (x.cast("int32") for x in _both(c, "bool"))
    else:
        left, right = _both(c, computed_in(operator, c.opset, dtype))
    is_negated = c.node.op is not None and "not_equal" in c.node.op.name
    return ~left.equals(right) if is_negated else left.then(operator, right)


def logic_as_bool(c: OperatorCall) -> Value:
    """And, Or or Xor of elements that are not 0."""
    left = c.inputs[0].cast("bool")
    right = c.const(c.a.scalar != 0, "bool") if len(c.inputs) == 1 else c.inputs[1].cast("bool")
    return left.then(c.type, right)


def is_zero(c: OperatorCall) -> Value:
    """Equal to 0."""
    return term(c, 0, computed_in("Equal", c.opset, c.dtypes[0])).equals(0)


def number_test(c: OperatorCall) -> Value:
    """IsNaN or IsInf; integers are finite."""
    name = c.node.op.name.removeprefix("_npi_") if c.node.op is not None else ""
    x = term(c, 0)
    if name == "isnan":
        return c.emit("IsNaN", x)
    if name == "isfinite":
        return abs(x) < math.inf
    if name == "isposinf":
        return x.equals(math.inf)
    return x.equals(-math.inf) if name == "isneginf" else abs(x).equals(math.inf)


def bitwise(c: OperatorCall) -> Value:
    """Bitwise operator, or a logical one of booleans."""
    if c.dtypes[0] == "bool":
        left, right = _both(c, "bool")
        return left.then(c.type.removeprefix("Bitwise"), right)
    if c.opset < 18:
        c.refuse(f"ONNX has bitwise operators from opset 18 on; the requested opset is {c.opset}")
    left, right = _both(c, c.out_dtypes[0])
    return left.then(c.type, right)


def bitwise_not(c: OperatorCall) -> Value:
    """BitwiseNot, or Not of booleans."""
    if c.dtypes[0] == "bool":
        return ~c.inputs[0]
    if c.opset < 18:
        c.refuse(f"ONNX has bitwise operators from opset 18 on; the requested opset is {c.opset}")
    return c.emit("BitwiseNot", c.inputs[0])


def arctan2(c: OperatorCall) -> Value:
    """Atan of the quotient, moved to the right quadrant."""
    y, x = _both(c, working_type(c.out_dtypes[0]))
    side = (y < 0).choose(c.const(-math.pi, y.dtype), c.const(math.pi, y.dtype))
    quotient = (y / x.equals(0).choose(1, x)).cast("float32").then("Atan").cast(y.dtype)
    outside = (x < 0).choose(quotient + side, quotient)
    on_axis = y.then("Sign") * (math.pi / 2)
    return result(x.equals(0).choose(on_axis, outside))


def copysign(c: OperatorCall) -> Value:
    """Magnitude with another sign, also that of -0."""
    left, right = _both(c, working_type(c.out_dtypes[0]))
    is_negative = (right < 0) | (right.equals(0) & ((1 / right) < 0))
    return result(is_negative.choose(-abs(left), abs(left)))


def ldexp(c: OperatorCall) -> Value:
    """Product with a power of 2."""
    left, right = _both(c, working_type(c.out_dtypes[0]))
    return result(left * (c.const(2, left.dtype) ** right))


def fmod(c: OperatorCall) -> Value:
    """Mod with the sign of the dividend; 0 if the divisor is 0."""
    dtype = c.out_dtypes[0]
    left, right = _both(c, working_type(dtype) if "float" in dtype else computed_in("Where", c.opset, dtype))
    zero = right.equals(0)
    return result(zero.choose(0, left.then("Mod", zero.choose(1, right), fmod=1)))


def floor_divide(c: OperatorCall) -> Value:
    """Quotient, rounded down; integers give 0 if the divisor is 0."""
    dtype = c.out_dtypes[0]
    if "float" in dtype:
        left, right = _both(c, working_type(dtype))
        return result((left / right).then("Floor"))
    left, right = _both(c, "float64")
    zero = right.equals(0)
    return result(zero.choose(0, (left / zero.choose(1, right)).then("Floor")))


def _without_nan(c: OperatorCall, operator: str) -> Value:
    dtype = c.out_dtypes[0]
    if "float" not in dtype:
        left, right = _both(c, computed_in(operator, c.opset, dtype))
        return result(left.then(operator, right))
    left, right = _both(c, working_type(dtype))
    first = c.emit("IsNaN", left).choose(right, left)
    second = c.emit("IsNaN", right).choose(left, right)
    return result(first.then(operator, second))


def logaddexp(c: OperatorCall) -> Value:
    """Maximum plus a logarithm."""
    left, right = _both(c, working_type(c.out_dtypes[0]))
    return result(left.then("Max", right) + (1 + (-abs(left - right)).then("Exp")).then("Log"))


def around(c: OperatorCall) -> Value:
    """Round, of multiples of a power of ten."""
    if "float" not in c.dtypes[0]:
        step = 10 ** max(-c.a.decimals, 0)
        x = term(c, 0, "int64")
        return result(x / step * step) if step > 1 else c.inputs[0]
    x = term(c, 0)
    if c.a.decimals == 0:
        return result(x.then("Round"))
    factor = 10.0 ** abs(c.a.decimals)
    scaled = (x * factor if c.a.decimals > 0 else x / factor).then("Round")
    return result(scaled / factor if c.a.decimals > 0 else scaled * factor)


def nan_to_num(c: OperatorCall) -> Value:
    """Numbers in place of NaN and infinities."""
    if "float" not in c.dtypes[0]:
        return c.inputs[0]
    limit = float(torch.finfo(getattr(torch, c.dtypes[0])).max)
    x = term(c, 0)
    high, low = (
        default if given is None else given for given, default in ((c.a.posinf, limit), (c.a.neginf, -limit))
    )
    found = c.emit("IsNaN", x).choose(c.a.nan, x)
    found = x.equals(math.inf).choose(high, found)
    return result(x.equals(-math.inf).choose(low, found))


# reductions


def _axes(c: OperatorCall) -> tuple[int, ...]:
    rank = len(c.shapes[0])
    return tuple(range(rank)) if c.a.axis is None else normal_axes(c.a.axis, rank)


def _reduced(c: OperatorCall, x: Value, operator: str, keepdims: bool | None = None) -> Value:
    """Reduce the axes; without any the value stays."""
    axes = _axes(c)
    return x.reduce(operator, *axes, keepdims=c.a.keepdims if keepdims is None else keepdims) if axes else x


def np_reduce(c: OperatorCall) -> Value:
    """Reduction in the type of the result."""
    return result(_reduced(c, term(c, 0, computed_in(c.type, c.opset, c.out_dtypes[0])), c.type))


def np_truth(c: OperatorCall) -> Value:
    """Maximum or minimum of truth values."""
    x = c.inputs[0].cast("bool").cast("int32")
    return _reduced(c, x, c.type).cast("bool")


def np_variance(c: OperatorCall) -> Value:
    """Mean of the squares of the distances to the mean."""
    x = term(c, 0)
    apart = x - _reduced(c, x, "ReduceMean", True)
    found = _reduced(c, apart * apart, "ReduceMean")
    if c.a.ddof:
        count = math.prod(c.length(axis) for axis in _axes(c))
        found = found * (count / (count - c.a.ddof))
    is_root = c.node.op is not None and c.node.op.name == "_npi_std"
    return result(found.then("Sqrt") if is_root else found)


def _place(c: OperatorCall, operator: str) -> Value:
    x = term(c, 0, computed_in(operator, c.opset, c.dtypes[0]))
    if c.a.axis is None:
        found = x.reshape(-1).then(operator, axis=0, keepdims=0)
        return found.reshape(*[1] * len(c.shapes[0])) if c.a.keepdims else found
    axis = normal_axis(c.a.axis, len(c.shapes[0]))
    return x.then(operator, axis=axis, keepdims=int(c.a.keepdims))


def np_average(c: OperatorCall) -> Value | list[Value]:
    """Sum of products with weights, by the sum of the weights."""
    axes, x = _axes(c), term(c, 0)
    if len(c.inputs) > 1:
        weights = c.inputs[1].cast(x.dtype)
        if len(c.shapes[1]) < len(c.shapes[0]):
            weights = weights.reshape(*(-1 if i == axes[0] else 1 for i in range(len(c.shapes[0]))))
    else:
        weights = c.const(1, x.dtype)
    weights = c.emit("Expand", weights, shape_value(c, c.shapes[0]))
    total = weights.reduce("ReduceSum", *axes)
    found = result((x * weights).reduce("ReduceSum", *axes) / total)
    return [found, result(total, 1)] if c.a.returned else found


def np_norm(c: OperatorCall) -> Value:
    """Norms of vectors, and those of matrices that need no singular values."""
    axes, x, order = _axes(c), term(c, 0), c.a.ord
    if c.a.flag == 2 or len(axes) == 2 and c.a.flag in (-1, 0):
        if c.a.flag == 2 or abs(order) not in (1, math.inf):
            c.refuse("ONNX has no singular values")
        first, last = (axes[0], axes[1]) if abs(order) == 1 else (axes[1], axes[0])
        sums = abs(x).reduce("ReduceSum", first, keepdims=True)
        kept = sums.reduce("ReduceMax" if order > 0 else "ReduceMin", last, keepdims=True)
        return result(kept if c.a.keepdims else kept.squeeze(*axes))
    if c.a.flag != -1 or order == 2:
        return result(_reduced(c, x, "ReduceL2"))
    if abs(order) == math.inf:
        return result(_reduced(c, abs(x), "ReduceMax" if order > 0 else "ReduceMin"))
    if order == 1:
        return result(_reduced(c, x, "ReduceL1"))
    if order == 0:
        return result(_reduced(c, (~x.equals(0)).cast(x.dtype), "ReduceSum"))
    return result(_reduced(c, abs(x) ** order, "ReduceSum") ** (1 / order))


# shapes


def np_reshape(c: OperatorCall) -> Value | list[Value]:
    """Reshape; every output to its shape."""
    return [_reshaped(c, x, i) for i, x in enumerate(c.inputs)]


def _reshaped(c: OperatorCall, x: Value, i: int) -> Value:
    dims = c.out_shapes[i]
    if 0 in dims:
        return c.emit("Reshape", x, c.ints(*c.numbers(dims)), allowzero=1)
    return reshape(c, x, dims, c.shapes[i])


def np_permute(c: OperatorCall) -> Value:
    """Transpose, with the permutation that the operator makes of distinct lengths."""
    op: Any = c.node.op
    lengths = range(1, 1 + len(c.shapes[0]))
    moved = op.run(c.a, _ENV, torch.empty(*lengths, device="meta"))
    return c.inputs[0].transpose(*(n - 1 for n in moved.shape))


_ENV = Env(torch.device("cpu"), None, False)


def np_squeeze(c: OperatorCall) -> Value:
    """Squeeze."""
    dims = c.shapes[0]
    axes = _axes(c) if c.a.axis is not None else [i for i, dim in enumerate(dims) if dim == 1]
    return c.inputs[0].squeeze(*axes) if axes else c.inputs[0]


def np_concatenate(c: OperatorCall) -> Value:
    """Concat, of flat arrays without an axis."""
    if c.a.axis is None:
        return c.emit("Concat", *(x.reshape(-1) for x in c.inputs), axis=0)
    return c.emit("Concat", *c.inputs, axis=normal_axis(c.a.axis, len(c.shapes[0])))


_LIFTED: dict[str, tuple[Callable[[int], tuple[int, ...]], int]] = {
    "vstack": (lambda rank: (0, 1)[: 2 - rank], 0),
    "hstack": (lambda rank: (0,)[: 1 - rank], 1),
    "column_stack": (lambda rank: (0, 1)[:2] if rank == 0 else (1,) if rank == 1 else (), 1),
    "dstack": (lambda rank: {0: (0, 1, 2), 1: (0, 2), 2: (2,)}.get(rank, ()), 2),
}
"""Axes to insert by rank, and the axis to join along."""


def np_joined(c: OperatorCall) -> Value:
    """Concat of arrays with further axes."""
    name = c.node.op.name.removeprefix("_npi_") if c.node.op is not None else ""
    inserted, axis = _LIFTED[name]
    values = [x.unsqueeze(*inserted(len(dims))) for x, dims in zip(c.inputs, c.shapes)]
    return c.emit("Concat", *values, axis=min(axis, len(c.out_shapes[0]) - 1))


def np_roll(c: OperatorCall) -> Value:
    """Concat of both parts of an axis."""
    if c.a.axis is None:
        length = math.prod(c.numbers(c.shapes[0]))
        x = _rolled(c.inputs[0].reshape(-1), sum(c.a.shift), length, 0)
        return reshape(c, x, c.out_shapes[0])
    shifts = c.a.shift * len(c.a.axis) if len(c.a.shift) == 1 else c.a.shift
    x = c.inputs[0]
    for shift, axis in zip(shifts, c.a.axis):
        axis = normal_axis(axis, len(c.shapes[0]))
        x = _rolled(x, shift, c.length(axis), axis)
    return x


def _rolled(x: Value, shift: int, length: int, axis: int) -> Value:
    shift = shift % length if length else 0
    if not shift:
        return x
    return x.slice(axis, length - shift, LAST).concat([x.slice(axis, 0, length - shift)], axis)


def np_flip(c: OperatorCall) -> Value:
    """Slice with steps of -1."""
    axes = _axes(c)
    if not axes:
        return c.inputs[0]
    ends = [c.ints(*[n] * len(axes)) for n in (-1, -LAST, -1)]
    return c.emit("Slice", c.inputs[0], ends[0], ends[1], c.ints(*axes), ends[2])


def np_broadcast_to(c: OperatorCall) -> Value:
    """Expand."""
    return c.emit("Expand", c.inputs[0], shape_value(c, c.out_shapes[0]))


def np_gather(c: OperatorCall) -> Value:
    """Gather of flat elements; running the operator on their numbers gives the positions."""
    return _gathered(c, c.a)


def _gathered(c: OperatorCall, a: Any, fixed: Sequence[int] = (), extra: float | None = None) -> Value:
    """Gather elements of the flat inputs, 0, or `extra`.

    Args:
        fixed: positions of inputs that the operator reads; their values must be known.
        extra: a further number, for which the operator returns -1.
    """
    op: Any = c.node.op
    tensors, flat, count = [], [], 1
    dtype = c.inputs[0].dtype
    for i, x in enumerate(c.inputs):
        if i in fixed:
            tensors.append(torch.from_numpy(np.array(c.known_value(i))))
            continue
        dims = c.numbers(c.shapes[i])
        size = math.prod(dims)
        tensors.append(torch.arange(count, count + size).reshape(dims))
        flat.append(x.cast(dtype).reshape(-1))
        count += size
    places = op.run(a, _ENV, *tensors).numpy()
    values = [c.const([0], dtype), *flat, c.const([0 if extra is None else extra], dtype)]
    return c.emit("Concat", *values, axis=0).gather(np.where(places < 0, count, places), 0)


def np_trace(c: OperatorCall) -> Value:
    """Sum of gathered elements."""
    rank = len(c.shapes[0])
    rows, columns = normal_axis(c.a.axis1, rank), normal_axis(c.a.axis2, rank)
    rest = [i for i in range(rank) if i not in (rows, columns)]
    dims = c.length(rows), c.length(columns)
    mask = np.eye(*dims, k=c.a.offset, dtype=bool)
    x = term(c, 0, computed_in("ReduceSum", c.opset, c.dtypes[0])).transpose(*rest, rows, columns)
    kept = x * c.const(mask, x.dtype)
    return result(kept.reduce("ReduceSum", rank - 2, rank - 1))


def np_triangle(c: OperatorCall) -> Value:
    """Trilu, available from opset 14 on; a vector is repeated first."""
    if c.opset < 14:
        c.refuse(f"ONNX cuts triangles from opset 14 on; the requested opset is {c.opset}")
    x = c.inputs[0]
    if len(c.shapes[0]) == 1:
        x = c.emit("Expand", x, shape_value(c, c.out_shapes[0]))
    upper = c.node.op is not None and c.node.op.name.endswith("triu")
    return c.emit("Trilu", x, c.const(c.a.k, "int64"), upper=int(upper))


def np_split(c: OperatorCall) -> list[Value]:
    """Split at the lengths of the outputs."""
    if len(c.out_shapes) == 1:
        return [c.inputs[0]]
    name, rank = c.node.op.name if c.node.op is not None else "", len(c.shapes[0])
    axis = {"_npi_hsplit": min(1, rank - 1), "_npi_dsplit": 2}.get(name)
    axis = normal_axis(c.a.axis, rank) if axis is None else axis
    sizes = c.numbers(tuple(dims[axis] for dims in c.out_shapes))
    return list(c.emit("Split", c.inputs[0], c.ints(*sizes), axis=axis, outputs=len(sizes)))


# choosing and filling


def np_where(c: OperatorCall) -> Value:
    """Where, of arrays or numbers."""
    name = c.node.op.name if c.node.op is not None else ""
    condition = c.inputs[0].cast("bool")
    dtype = computed_in("Where", c.opset, c.out_dtypes[0])
    if name == "_npi_where_scalar2":
        return result(condition.choose(c.const(c.a.x, dtype), c.const(c.a.y, dtype)))
    values = [x.cast(dtype) for x in c.inputs[1:]]
    if len(values) == 1:
        number = c.const(c.a.scalar, dtype)
        values = [number, *values] if name == "_npi_where_lscalar" else [*values, number]
    return result(condition.choose(values[0], values[1]))


def np_pad(c: OperatorCall) -> Value:
    """Pad, or Gather of the copied elements."""
    pairs, mode, x = c.a.pad_width, c.a.mode, c.inputs[0]
    if mode == "constant":
        x = x.cast(computed_in("Pad", c.opset, x.dtype))
        widths = c.ints(*(pair[0] for pair in pairs), *(pair[1] for pair in pairs))
        return result(c.emit("Pad", x, widths, c.const(c.a.constant_value, x.dtype)))
    for axis, (before, after) in enumerate(pairs):
        if not before and not after:
            continue
        if mode in ("maximum", "minimum"):
            operator = "ReduceMax" if mode == "maximum" else "ReduceMin"
            x = x.cast(computed_in(operator, c.opset, x.dtype))
            edge = x.reduce(operator, axis, keepdims=True)
            counts = [[n if i == axis else 1 for i in range(len(pairs))] for n in (before, after)]
            parts = [c.emit("Tile", edge, c.ints(*count)) for count in counts]
            x = parts[0].concat([x, parts[1]], axis)
        else:
            x = x.gather(pad_places(mode, c.length(axis), before, after).numpy(), axis)
    return result(x)


def np_diff(c: OperatorCall) -> Value:
    """Difference of two slices, several times."""
    axis = normal_axis(c.a.axis, len(c.shapes[0]))
    x = term(c, 0, computed_in("Sub", c.opset, c.dtypes[0]))
    for _ in range(c.a.n):
        x = x.slice(axis, 1, LAST) - x.slice(axis, 0, -1)
    return result(x)


def np_ediff1d(c: OperatorCall) -> Value:
    """Difference of two slices between further elements."""
    flat, *rest = (x.cast(computed_in("Sub", c.opset, c.dtypes[0])).reshape(-1) for x in c.inputs)
    parts = [flat.slice(0, 1, LAST) - flat.slice(0, 0, -1)]
    if c.a.to_begin_arr_given or c.a.to_begin_scalar is not None:
        number = c.const([c.a.to_begin_scalar or 0], flat.dtype)
        parts.insert(0, rest.pop(0) if c.a.to_begin_arr_given else number)
    if c.a.to_end_arr_given or c.a.to_end_scalar is not None:
        number = c.const([c.a.to_end_scalar or 0], flat.dtype)
        parts.append(rest.pop(0) if c.a.to_end_arr_given else number)
    return result(parts[0].concat(parts[1:], 0))


def np_delete(c: OperatorCall) -> Value:
    """Gather of the elements that stay."""
    return _gathered(c, c.a, fixed=(1,))


def np_insert(c: OperatorCall) -> Value:
    """Gather of elements of both arrays."""
    is_tensor = c.node.op is not None and c.node.op.name.endswith("tensor")
    a = c.a if c.a.val is None else c.a._replace(val=-1.0)
    return _gathered(c, a, (len(c.inputs) - 1,) if is_tensor else (), c.a.val)


def np_mask_assign(c: OperatorCall) -> Value:
    """Where, with a mask of some axes."""
    rank, more = len(c.shapes[1]), len(c.shapes[0]) - c.a.start_axis - len(c.shapes[1])
    mask = c.inputs[1].cast("bool").unsqueeze(*range(rank, rank + more))
    x = term(c, 0, computed_in("Where", c.opset, c.dtypes[0]))
    return result(mask.choose(c.a.value, x))


def np_advanced_indexing(c: OperatorCall) -> Value:
    """Gather by integers."""
    if c.dtypes[1] == "bool":
        c.refuse("the shape of the result depends on the mask")
    return c.emit("Gather", c.inputs[0], c.inputs[1].cast("int64"), axis=0)


def np_full_like(c: OperatorCall) -> Value:
    """Expand of a number."""
    dtype = c.out_dtypes[0]
    value = c.a.fill_value if "float" in dtype else int(c.a.fill_value)
    return c.emit("Expand", c.const(value, dtype), shape_value(c, c.out_shapes[0]))


# products


def np_dot(c: OperatorCall) -> Value:
    """MatMul, Mul by a scalar, or Einsum."""
    ranks = len(c.shapes[0]), len(c.shapes[1])
    if 0 in ranks:
        left, right = _both(c, computed_in("Mul", c.opset, c.out_dtypes[0]))
        return result(left * right)
    if ranks[1] <= 2:
        left, right = _both(c, computed_in("MatMul", c.opset, c.out_dtypes[0]))
        return result(left.then("MatMul", right))
    return _summed(c, [ranks[0] - 1], [ranks[1] - 2])


def np_tensordot(c: OperatorCall) -> Value:
    """Einsum with letters for the axes."""
    ranks = len(c.shapes[0]), len(c.shapes[1])
    if hasattr(c.a, "axes"):
        return _summed(c, list(range(ranks[0] - c.a.axes, ranks[0])), list(range(c.a.axes)))
    return _summed(c, [i % ranks[0] for i in c.a.a_axes_summed], [i % ranks[1] for i in c.a.b_axes_summed])


def _summed(c: OperatorCall, first: Sequence[int], second: Sequence[int]) -> Value:
    """Sum products along pairs of axes."""
    ranks = len(c.shapes[0]), len(c.shapes[1])
    left = [chr(97 + i) for i in range(ranks[0])]
    right = [chr(97 + ranks[0] + i) for i in range(ranks[1])]
    for one, other in zip(first, second):
        right[other] = left[one]
    kept = [x for i, x in enumerate(left) if i not in first] + [
        x for i, x in enumerate(right) if i not in second
    ]
    return _einsum(c, f"{''.join(left)},{''.join(right)}->{''.join(kept)}")


def _einsum(c: OperatorCall, equation: str) -> Value:
    dtype = computed_in("Einsum", c.opset, c.out_dtypes[0])
    return result(c.emit("Einsum", *(x.cast(dtype) for x in c.inputs), equation=equation))


def np_einsum(c: OperatorCall) -> Value:
    """Einsum."""
    equation = _without_dots(c.a.subscripts.replace(" ", ""), [len(dims) for dims in c.shapes])
    if c.out_dtypes[0] == "bool":
        found = c.emit("Einsum", *(x.cast("int32") for x in c.inputs), equation=equation)
        return found.cast("bool")
    return _einsum(c, equation)


def _without_dots(equation: str, ranks: Sequence[int]) -> str:
    """Return an equation with letters instead of "...", since ONNX Runtime does not align different numbers of axes."""
    if "..." not in equation:
        return equation
    terms, arrow, output = equation.partition("->")
    given = terms.split(",")
    if not arrow:
        letters = "".join(given).replace(".", "")
        output = "..." + "".join(sorted(x for x in set(letters) if letters.count(x) == 1))
    free = [x for x in map(chr, (*range(65, 91), *range(97, 123))) if x not in equation]
    counts = [rank - len(one) + 3 if "..." in one else 0 for rank, one in zip(ranks, given)]
    names = "".join(free[: max(counts)])
    written = [one.replace("...", names[len(names) - count :]) for one, count in zip(given, counts)]
    return f"{','.join(written)}->{output.replace('...', names)}"


def np_kron(c: OperatorCall) -> Value:
    """Products of arrays with alternating axes."""
    rank = len(c.out_shapes[0])
    left, right = _both(c, computed_in("Mul", c.opset, c.out_dtypes[0]))
    shapes = [(1,) * (rank - len(dims)) + c.numbers(dims) for dims in c.shapes]
    left = left.reshape(*(n for dim in shapes[0] for n in (dim, 1)))
    right = right.reshape(*(n for dim in shapes[1] for n in (1, dim)))
    return result(reshape(c, left * right, c.out_shapes[0]))


def np_slogdet(c: OperatorCall) -> list[Value]:
    """Sign of Det, and the logarithm of its magnitude."""
    found = term(c, 0, "float32").then("Det")
    return [result(found.then("Sign")), result(abs(found).then("Log"), 1)]


def np_polyval(c: OperatorCall) -> Value:
    """Horner's rule."""
    p, x = _both(c, computed_in("Mul", c.opset, c.out_dtypes[0]))
    total = x * 0
    for i in range(c.length(0)):
        total = total * x + p.gather(i, 0)
    return result(total)


_DRAWS: dict[str, Callable[..., Value]] = {
    "uniform": lambda u, low, high: u * (high - low) + low,
    "uniform_n": lambda u, low, high: u * (high - low) + low,
    "normal": lambda n, loc, scale: n * scale + loc,
    "normal_n": lambda n, loc, scale: n * scale + loc,
    "gumbel": lambda u, loc, scale: loc - scale * (-((1 - u).then("Log"))).then("Log"),
    "logistic": lambda u, loc, scale: loc - scale * (1 / (1 - u) - 1).then("Log"),
    "laplace": lambda u, loc, scale: (
        loc - scale * (u - 0.5).then("Sign") * (1 - 2 * abs(u - 0.5)).then("Log")
    ),
    "exponential": lambda u, scale: -((1 - u).then("Log")) * scale,
    "rayleigh": lambda u, scale: (-2 * (1 - u).then("Log")).then("Sqrt") * scale,
    "weibull": lambda u, a: (-((1 - u).then("Log"))) ** (1 / a),
    "pareto": lambda u, a: (1 - u) ** (-1 / a) - 1,
    "powerd": lambda u, a: (1 - u) ** (1 / a),
}
"""Formulas of uniform numbers in [0, 1), or of normal ones, and the parameters."""


def np_random(c: OperatorCall) -> Value:
    """Formula of RandomUniform or RandomNormal in double precision."""
    op: Any = c.node.op
    word = op.name.removeprefix("_npi_")
    rest = (x.cast("float64") for x in c.inputs)
    keys = [key for key in op.attrs if key not in ("size", "ctx", "dtype")]
    given = [
        next(rest) if getattr(c.a, key) is None else c.const(getattr(c.a, key), "float64") for key in keys
    ]
    return result(_DRAWS[word](random_numbers(c, c.type, c.out_shapes[0]), *given))


def np_bernoulli(c: OperatorCall) -> Value:
    """Compare uniform numbers with the probability."""
    number = c.a.logit if c.a.is_logit else c.a.prob
    part = c.inputs[0].cast("float64") if c.inputs else c.const(number, "float64")
    if c.a.is_logit:
        part = part.then("Sigmoid")
    return result(random_numbers(c, "RandomUniform", c.out_shapes[0]) < part)


TABLE: dict[str, Builder] = {
    "fmax": lambda c: _without_nan(c, "Max"),
    "fmin": lambda c: _without_nan(c, "Min"),
    "np_argmax": lambda c: _place(c, "ArgMax"),
    "np_argmin": lambda c: _place(c, "ArgMin"),
}


# the extension


def npx_constraint_check(c: OperatorCall) -> Value:
    """ReduceMin of 0 and 1."""
    return result(c.inputs[0].cast("int32").reshape(-1).then("ReduceMin", keepdims=0)).cast("bool")


def npx_masked_softmax(c: OperatorCall) -> Value:
    """Softmax or LogSoftmax of the kept elements."""
    dtype = working_type(c.dtypes[0])
    x, mask = c.inputs[0].cast(dtype), c.inputs[1].cast("bool")
    if c.a.temperature is not None:
        x = x / c.a.temperature
    lowest = float(np.finfo("float32").min)  # a row without kept elements has no NaN
    output = c.emit(c.type, mask.choose(x, c.const(lowest, dtype)), axis=c.a.axis)
    return result(mask.choose(output, c.const(0.0 if c.type == "Softmax" else -np.inf, dtype)))


def npx_index_put(c: OperatorCall) -> Value:
    """ScatterND of the broadcast values; it adds from opset 16 on."""
    name = c.node.op.name if c.node.op is not None else ""
    adds = name != "_npx_index_update"
    if adds and c.opset < 16:
        c.refuse(f"ONNX adds at indices from opset 16 on; the requested opset is {c.opset}")
    whole, indices, value = c.inputs
    rows, dims = c.shapes[1], c.shapes[0]
    value = c.emit(
        "Expand", value.cast(whole.dtype), shape_value(c, (rows[1], *dims[c.numbers(rows[:1])[0] :]))
    )
    places = indices.cast("int64").transpose(1, 0)
    attrs: dict[str, Any] = {"reduction": "add"} if adds else {}
    return result(c.emit("ScatterND", whole, places, value, **attrs))


def npx_log_sigmoid(c: OperatorCall) -> Value:
    """Softplus."""
    return -c.emit("Softplus", -c.inputs[0])


def npx_mish(c: OperatorCall) -> Value:
    """Softplus and Tanh."""
    return c.inputs[0] * c.emit("Tanh", c.emit("Softplus", c.inputs[0]))


def npx_gelu_tanh(c: OperatorCall) -> Value:
    """Powers and Tanh."""
    x = c.inputs[0]
    return x * (c.emit("Tanh", (x + x * x * x * 0.044715) * (2 / np.pi) ** 0.5) + 1.0) * 0.5
