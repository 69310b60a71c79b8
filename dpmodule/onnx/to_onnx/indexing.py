"""Elements picked by position, and written by position."""

from __future__ import annotations

from math import prod

import numpy as np

from ...ops.shapes import normal_axis
from .call import OperatorCall
from .common import Term, computed_in, elements, matrices, reshape, result, shape_value, term, unsqueeze


def _whole(c: OperatorCall, i: int) -> Term:
    """Return positions as whole numbers."""
    return term(c, i, "int64")


def _limited(c: OperatorCall, axis: int, mode: str) -> Term:
    """Return positions of the second input within an axis of the first."""
    index = _whole(c, 1)
    if mode == "raise":
        return index
    length = Term(c, c.length_value(c.shapes[0][axis]), "int64")
    if mode == "wrap":
        return index.then("Mod", length)
    return index.then("Max", 0).then("Min", length - 1)


def take(c: OperatorCall) -> str:
    """Gather."""
    axis = normal_axis(c.a.axis, len(c.shapes[0]))
    return c.emit("Gather", c.inputs[0], _limited(c, axis, c.a.mode).value, axis=axis)


def pick(c: OperatorCall) -> str:
    """GatherElements of one position for every place of the other axes."""
    rank = len(c.shapes[0])
    axis = normal_axis(getattr(c.a, "axis", 1), rank)
    index = _limited(c, axis, getattr(c.a, "mode", "clip"))
    if len(c.shapes[1]) < rank:
        index = index.unsqueeze(axis)
    found = Term(c, c.emit("GatherElements", c.inputs[0], index.value, axis=axis), c.dtypes[0])
    return found.value if getattr(c.a, "keepdims", False) or rank == 1 else found.squeeze(axis).value


def _hits(index: Term, count: int | str) -> Term:
    """Return truth values on a new last axis: where its position is the index."""
    c = index.c
    if isinstance(count, int):
        return index.unsqueeze(-1).equals(np.arange(count))
    end = c.emit("Squeeze", c.length_value(count))
    numbers = Term(c, c.emit("Range", c.const(0, "int64"), end, c.const(1, "int64")), "int64")
    return index.unsqueeze(-1).equals(numbers)


def one_hot(c: OperatorCall) -> str:
    """Where the numbers of classes equal the positions; those outside of them hit none."""
    kind = computed_in("Where", c.opset, c.out_dtypes[0])
    on, off = (Term(c, c.const(number, kind), kind) for number in (c.a.on_value, c.a.off_value))
    return result(_hits(_whole(c, 0), c.a.depth).choose(on, off))


def onehot_like(c: OperatorCall) -> str:
    """Where the numbers of columns equal the positions."""
    return result(_hits(_whole(c, 0), c.shapes[1][1]))


def scatter_elements(c: OperatorCall) -> str:
    """ScatterElements of one element of each row."""
    places, values = _whole(c, 2).unsqueeze(1), term(c, 1, c.dtypes[0]).unsqueeze(1)
    return c.emit("ScatterElements", c.inputs[0], places.value, values.value, axis=1)


def where(c: OperatorCall) -> str:
    """Where; a condition of one axis chooses rows."""
    condition = term(c, 0, "bool")
    more = len(c.shapes[1]) - len(c.shapes[0])
    condition = condition.unsqueeze(*range(1, 1 + more))
    kind = computed_in("Where", c.opset, c.dtypes[1])
    return result(condition.choose(term(c, 1, kind), term(c, 2, kind)))


def _rows(c: OperatorCall, i: int) -> Term:
    """Return positions with one number for each axis on the last axis."""
    return _whole(c, i).transpose(*range(1, len(c.shapes[i])), 0)


def gather_nd(c: OperatorCall) -> str:
    """GatherND."""
    found: str = c.emit("GatherND", c.inputs[0], _rows(c, 1).value)
    single = len(c.shapes[1]) == 1 and c.shapes[1][0] == len(c.shapes[0])
    return unsqueeze(c, found, 0) if single else found


def scatter_nd(c: OperatorCall) -> str:
    """ScatterND into zeros, or into an array."""
    whole, part = (c.inputs[0], c.inputs[1]) if len(c.inputs) == 3 else (_zeros(c), c.inputs[0])
    return c.emit("ScatterND", whole, _rows(c, len(c.inputs) - 1).value, part)


def _zeros(c: OperatorCall) -> str:
    return c.emit("Expand", c.const(0), shape_value(c, c.out_shapes[0]))


def scatter_add_nd(c: OperatorCall) -> str:
    """ScatterND that adds up, into zeros or an array; before version 16 a product with rows of zeros and ones."""
    part, index = len(c.inputs) - 2, len(c.inputs) - 1
    if c.opset >= 16:
        kind = (
            "float32" if c.dtypes[0] in ("float16", "bfloat16") else c.dtypes[0]
        )  # the runtime adds no halves
        whole = Term(c, c.inputs[0] if part else _zeros(c), c.dtypes[0]).cast(kind)
        return result(whole.then("ScatterND", _rows(c, index), term(c, part, kind), reduction="add"))
    shape = c.numbers(c.out_shapes[0])
    axes = c.length(0, index)
    steps = [prod(shape[i + 1 : axes]) for i in range(axes)]
    places = (_rows(c, index) * np.array(steps)).reduce("ReduceSum", -1)
    flat = Term(c, c.emit("Reshape", places.value, c.ints(-1)), "int64")
    kind = computed_in("MatMul", c.opset, c.dtypes[0])
    rest = prod(shape[axes:])
    data = Term(c, c.emit("Reshape", c.inputs[part], c.ints(-1, rest)), c.dtypes[part]).cast(kind)
    total = _hits(flat, prod(shape[:axes])).cast(kind).transpose(1, 0).then("MatMul", data)
    added = reshape(c, result(total), shape)
    return c.emit("Add", c.inputs[0], added) if part else added


def diag(c: OperatorCall) -> str:
    """A diagonal, or the matrix that has a vector on it."""
    dims, k = c.shapes[0], c.a.k
    if len(dims) == 1:
        return matrices(c, np.diag(np.arange(1, c.length(0) + 1), k))
    rank = len(dims)
    rows, columns = normal_axis(c.a.axis1, rank), normal_axis(c.a.axis2, rank)
    rest = [i for i in range(rank) if i not in (rows, columns)]
    x = Term(c, c.inputs[0], c.dtypes[0]).transpose(*rest, rows, columns)
    numbers = np.arange(c.length(rows) * c.length(columns)).reshape(c.length(rows), c.length(columns))
    return elements(x, (*(dims[i] for i in rest), *numbers.shape), np.diagonal(numbers, k))


def ravel_multi_index(c: OperatorCall) -> str:
    """Positions along several axes as one number each."""
    shape = c.a.shape
    steps = np.array([prod(shape[i + 1 :]) for i in range(len(shape))])[:, None]
    return result((_whole(c, 0) * steps).reduce("ReduceSum", 0))


def unravel_index(c: OperatorCall) -> str:
    """One number each as positions along several axes."""
    rest, found = _whole(c, 0), []
    for side in reversed(c.a.shape[1:]):
        found.append(rest.then("Mod", side, fmod=1).unsqueeze(0))
        rest = rest / side
    return result(rest.unsqueeze(0).concat(found[::-1], 0))


def retain(c: OperatorCall) -> str:
    """Rows named by number, the others times 0."""
    rank = len(c.shapes[0])
    index = c.emit("Reshape", _whole(c, 1).value, c.ints(-1))
    kind = computed_in("Mul", c.opset, c.dtypes[0])
    ones = c.emit("Expand", c.const(1, kind), c.emit("Shape", index))
    zeros = c.emit("Expand", c.const(0, kind), c.length_value(c.shapes[0][0]))
    kept = Term(c, c.emit("ScatterElements", zeros, index, ones, axis=0), kind)
    return result(term(c, 0, kind) * kept.unsqueeze(*range(1, rank)))


def histogram(c: OperatorCall) -> tuple[str, str]:
    """Counts of values between edges: how many reach one less how many reach the next."""
    kind = computed_in("Less", c.opset, c.dtypes[0])
    count = c.a.bin_cnt
    if count is None:
        edges = term(c, 1, c.dtypes[0])
        count = c.length(0, 1) - 1
    else:
        low, high = c.a.range
        steps = np.arange(count + 1)
        even = (steps * high + (count - steps) * low) / count
        edges = Term(c, c.const(even), c.dtypes[0])
    values = Term(c, c.emit("Reshape", c.inputs[0], c.ints(-1, 1)), c.dtypes[0]).cast(kind)
    found = edges.cast(kind)
    reached = values.test("GreaterOrEqual", found.slice(0, 0, count))
    beyond = values.test("Greater", found.slice(0, count, count + 1))
    above = reached.concat([beyond], 1).cast("int64").reduce("ReduceSum", 0)
    return (above.slice(0, 0, count) - above.slice(0, 1, count + 1)).value, edges.value
