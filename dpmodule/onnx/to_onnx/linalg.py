"""Builders of matrix products, and of factorizations and solutions of small matrices, written out step by step."""

from __future__ import annotations

import math

import numpy as np

from .call import OperatorCall, Value
from .common import Builder, computed_in, elements, matrices, reshape, result, term

_MAX_SIZE = 8
"""Maximal size of matrices whose elimination is written out."""


def _flipped(x: Value, rank: int) -> Value:
    """Transpose matrices."""
    return x.transpose(*range(rank - 2), rank - 1, rank - 2)


def _matrices(c: OperatorCall) -> list[Value]:
    """Return the inputs in a type that matrix products support."""
    dtype = computed_in("MatMul", c.opset, c.dtypes[0])
    return [term(c, i, dtype) for i in range(len(c.inputs))]


def batch_dot(c: OperatorCall) -> Value:
    """MatMul."""
    rank = len(c.shapes[0])
    left, right = _matrices(c)
    left = _flipped(left, rank) if c.a.transpose_a else left
    right = _flipped(right, rank) if c.a.transpose_b else right
    return result(left.then("MatMul", right))


def dot(c: OperatorCall) -> Value:
    """MatMul with the other axes flattened and the contracted axis last or first."""
    left, right = _matrices(c)
    one, other = len(c.shapes[0]), len(c.shapes[1])
    left = left.transpose(*range(1, one), 0) if c.a.transpose_a else left
    right = right.transpose(other - 1, *range(other - 1)) if c.a.transpose_b else right
    if one == other == 2:
        return result(left.then("MatMul", right))
    length = c.shapes[0][0 if c.a.transpose_a else -1]
    if isinstance(length, int):
        sides = (-1, length), (length, -1)
    else:  # requires the other lengths to be known
        rest = c.numbers(c.out_shapes[0])
        sides = (math.prod(rest[: one - 1]), -1), (-1, math.prod(rest[one - 1 :]) if other > 1 else 1)
    left = left.reshape(*sides[0])
    right = right.reshape(*sides[1])
    return reshape(c, result(left.then("MatMul", right)), c.out_shapes[0])


def khatri_rao(c: OperatorCall) -> Value:
    """Product of each row with each row of the next matrix."""
    dtype = computed_in("Mul", c.opset, c.dtypes[0])
    total, *rest = (term(c, i, dtype) for i in range(len(c.inputs)))
    width = c.length(1)
    for each in rest:
        product = total.unsqueeze(1) * each.unsqueeze(0)
        total = product.reshape(-1, width)
    return result(total)


# products of BLAS


def _rows_before_last(c: OperatorCall, x: Value) -> Value:
    """Move the axis of rows before the last one."""
    rank = len(c.shapes[0])
    at = c.a.axis % rank
    return x.transpose(*(i for i in range(rank - 1) if i != at), at, rank - 1)


def _product(c: OperatorCall) -> Value:
    rank = len(c.shapes[0])
    left, right = (_rows_before_last(c, x) for x in _matrices(c)[:2])
    left = _flipped(left, rank) if c.a.transpose_a else left
    right = _flipped(right, rank) if c.a.transpose_b else right
    output: Value = left.then("MatMul", right) * c.a.alpha
    at = c.a.axis % rank
    order = list(range(rank - 2))
    order.insert(at, rank - 2)
    return output.transpose(*order, rank - 1)


def linalg_syrk(c: OperatorCall) -> Value:
    """Product of a matrix and its transpose."""
    (x,) = _matrices(c)
    y = _flipped(x, len(c.shapes[0]))
    return result((y.then("MatMul", x) if c.a.transpose else x.then("MatMul", y)) * c.a.alpha)


def _triangle(x: Value, size: int, lower: bool) -> Value:
    """Return one triangle of matrices, with zeros elsewhere."""
    kept = (np.tril if lower else np.triu)(np.ones((size, size), bool))
    return x.c.const(kept, "bool").choose(x, 0)


def linalg_trmm(c: OperatorCall) -> Value:
    """MatMul with a triangle."""
    one, other = _matrices(c)
    one = _triangle(one, c.length(-1), c.a.lower)
    one = _flipped(one, len(c.shapes[0])) if c.a.transpose else one
    return result((other.then("MatMul", one) if c.a.rightside else one.then("MatMul", other)) * c.a.alpha)


# diagonals and triangles


def _numbers(c: OperatorCall) -> np.ndarray:
    size = c.length(-1)
    return np.arange(size * size).reshape(size, size)


def linalg_extractdiag(c: OperatorCall) -> Value:
    """Extract a diagonal of matrices."""
    indices = np.diagonal(_numbers(c), c.a.offset)
    return elements(c.inputs[0], c.shapes[0], indices)


def _triangle_indices(c: OperatorCall, size: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the rows and columns of a triangle's elements: a lower one by rows, an upper one by columns."""
    offset = c.a.offset
    rows, columns = np.tril_indices(size, -abs(offset))
    lower = offset < 0 or (offset == 0 and c.a.lower)
    return (rows, columns) if lower else (columns, rows)


def linalg_extracttrian(c: OperatorCall) -> Value:
    """Extract the elements of a triangle."""
    rows, columns = _triangle_indices(c, c.length(-1))
    return elements(c.inputs[0], c.shapes[0], _numbers(c)[rows, columns])


def linalg_maketrian(c: OperatorCall) -> Value:
    """Build matrices from the elements of a triangle."""
    size = c.numbers(c.out_shapes[0][-1:])[0]
    indices = np.zeros((size, size), int)
    rows, columns = _triangle_indices(c, size)
    indices[rows, columns] = np.arange(1, len(rows) + 1)
    return matrices(c, indices)


def linalg_sumlogdiag(c: OperatorCall) -> Value:
    """Sum of the logarithms of the diagonal."""
    diagonal = elements(term(c, 0), c.shapes[0], np.diagonal(_numbers(c)))
    output = diagonal.then("Log").reduce("ReduceSum", -1)
    return result(output.unsqueeze(0) if len(c.shapes[0]) == 2 else output)


# determinants


def _determinant(c: OperatorCall) -> Value:
    output = term(c, 0, "float32").then("Det")
    return output.unsqueeze(0) if len(c.shapes[0]) == 2 else output


def linalg_slogdet(c: OperatorCall) -> tuple[Value, Value]:
    """Sign of Det, and logarithm of its magnitude."""
    output = _determinant(c)
    return result(output.then("Sign")), result(abs(output).then("Log"), 1)


# elimination


def _elimination_size(c: OperatorCall, axis: int = -1, i: int = 0) -> int:
    """Return the size of matrices whose elimination is written out, which must be small."""
    size = c.length(axis, i)
    if size > _MAX_SIZE:
        c.refuse(
            f"the matrices have {size} rows; ONNX has no operator, and at most {_MAX_SIZE} rows can be written out"
        )
    return size


def _substitute(triangle: Value, right: Value, size: int, lower: bool) -> Value:
    """Solve ``triangle @ X = right`` by substitution, row by row."""
    outputs: list[Value] = []
    for i in range(size) if lower else reversed(range(size)):
        row, rest = triangle.slice(-2, i, i + 1), right.slice(-2, i, i + 1)
        if outputs:
            known = row.slice(-1, 0, i) if lower else row.slice(-1, i + 1, size)
            rest = rest - known.then("MatMul", outputs[0].concat(outputs[1:], -2))
        step = rest / row.slice(-1, i, i + 1)
        outputs = [*outputs, step] if lower else [step, *outputs]
    return outputs[0].concat(outputs[1:], -2)


def linalg_trsm(c: OperatorCall) -> Value:
    """Solve triangular equations by substitution."""
    rank, size = len(c.shapes[0]), _elimination_size(c)
    triangle, right = term(c, 0, "float64"), term(c, 1, "float64") * c.a.alpha
    # X A = B is solved as A^T X^T = B^T
    if c.a.transpose != c.a.rightside:
        triangle = _flipped(triangle, rank)
    right = _flipped(right, rank) if c.a.rightside else right
    output = _substitute(triangle, right, size, c.a.lower != (c.a.transpose != c.a.rightside))
    return result(_flipped(output, rank) if c.a.rightside else output)


def linalg_potrf(c: OperatorCall) -> Value:
    """Cholesky factor, column by column; NaN if a matrix is not positive definite."""
    rank, size = len(c.shapes[0]), _elimination_size(c)
    x = term(c, 0, "float64")
    x = x if c.a.lower else _flipped(x, rank)
    columns: list[Value] = []
    for i in range(size):
        column = x.slice(-1, i, i + 1)
        below = (np.arange(size) >= i)[:, None]
        root = column.slice(-2, i, i + 1).then("Sqrt")
        column = c.const(below, "bool").choose(column / root, 0)
        columns.append(column)
        x = x - column.then("MatMul", _flipped(column, rank))
    output = columns[0].concat(columns[1:], -1)
    return result(output if c.a.lower else _flipped(output, rank))


def linalg_potri(c: OperatorCall) -> Value:
    """Inverse of a matrix from its Cholesky factor."""
    rank, size = len(c.shapes[0]), _elimination_size(c)
    x = term(c, 0, "float64")
    x = x if c.a.lower else _flipped(x, rank)
    inverse = _substitute(x, c.const(np.eye(size), "float64"), size, True)
    return result(_flipped(inverse, rank).then("MatMul", inverse))


def _reflections(x: Value, rank: int, steps: int, length: int) -> tuple[Value, Value]:
    """Reduce matrices to upper triangles by reflections; return the triangles and the transposed transformation."""
    c = x.c
    turn = c.const(np.eye(length), "float64")
    for i in range(steps):
        column = x.slice(-1, i, i + 1)
        rest = column * (np.arange(length) >= i)[:, None]
        below = column * (np.arange(length) > i)[:, None]
        head = column.slice(-2, i, i + 1)
        size = (rest * rest).reduce("ReduceSum", -2, keepdims=True).then("Sqrt")
        normal = rest + (head >= 0).choose(size, -size) * (np.arange(length) == i)[:, None]
        squares = (normal * normal).reduce("ReduceSum", -2, keepdims=True)
        turned = (below * below).reduce("ReduceSum", -2, keepdims=True)
        normal_scaled = turned.equals(0).choose(0, 2 / squares) * normal
        across = _flipped(normal, rank)
        x = x - normal_scaled.then("MatMul", across.then("MatMul", x))
        turn = turn - normal_scaled.then("MatMul", across.then("MatMul", turn))
    return x, turn


def linalg_inverse(c: OperatorCall) -> Value:
    """Inverse, by reflections and substitution."""
    size = _elimination_size(c)
    upper, turn = _reflections(term(c, 0, "float64"), len(c.shapes[0]), size, size)
    return result(_substitute(upper, turn, size, False))


def linalg_gelqf(c: OperatorCall) -> tuple[Value, Value]:
    """Factors L and Q, by reflections."""
    rank, size, length = len(c.shapes[0]), _elimination_size(c, -2), c.length(-1)
    upper, turn = _reflections(_flipped(term(c, 0, "float64"), rank), rank, size, length)
    output = _flipped(_triangle(upper.slice(-2, 0, size), size, False), rank)
    return result(turn.slice(-2, 0, size)), result(output, 1)


TABLE: dict[str, Builder] = {
    "linalg_gemm2": lambda c: result(_product(c)),
    # MatMul times a number, plus a multiple of a third matrix
    "linalg_gemm": lambda c: result(_product(c) + _matrices(c)[2] * c.a.beta),
    "linalg_makediag": lambda c: matrices(c, np.diag(np.arange(1, c.length(-1) + 1), c.a.offset)),
    "linalg_det": lambda c: result(_determinant(c)),
}
