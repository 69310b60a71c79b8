"""Softmax and loss functions."""

from __future__ import annotations

from collections.abc import Sequence

from ..arguments import TOO_LARGE, as_index, as_integer, number, number_from, one_or_several
from ..errors import BoundsError, NegativeIndexError, ShapeError, user_line
from ..expression import Expression, apply, apply_to_padded, node_of, non_empty_list, plain, with_c_version
from ..ops import losses
from ..session import state


def checked_label(name: str, x: Expression, label: int, axis: int = 0) -> int:
    """Convert a label to an integer and check its range.

    Args:
        x: the expression that the label indexes.
        axis: the indexed dimension.
    """
    index = label if type(label) is int else as_integer(label, name)
    graph = state.graph
    try:
        node = x.node if x.version == graph.version else x.enter()
    except AttributeError:
        node = node_of(x)
    d = graph.dim(node).d
    has_axis = 0 <= axis < len(d)
    if has_axis and 0 <= index < d[axis]:
        return index
    if index < 0:
        raise NegativeIndexError(
            f"{name}: can't convert negative value {index} to unsigned int (at {user_line()})"
        )
    if has_axis:
        raise BoundsError(
            f"Index error in {name}: Index {index} out of bounds for a dimension of {d[axis]} (at {user_line()})"
        )
    return min(index, TOO_LARGE - 1)  # the engine refuses the dimension


def _labels(name: str, x: Expression, vs: Sequence[int]) -> list[int]:
    return [checked_label(name, x, v) for v in non_empty_list(name, vs)]


def _margin(m: float) -> float:
    return number_from(m, 0.0, "m")


@with_c_version
def softmax(x: Expression, d: int = 0) -> Expression:
    """Compute the softmax exp(x) / sum(exp(x)).

    Args:
        x: a vector or matrix.
        d: dimension along which the sum is one.

    Raises:
        ShapeError: the dimension does not exist.
    """
    return apply(losses.SOFTMAX, (x,), (as_integer(d, "softmax: d"),))


@with_c_version
def log_softmax(x: Expression, restrict: Sequence[int] | None = None) -> Expression:
    """Compute the logarithm of `softmax` along the first dimension.

    Args:
        x: a vector or matrix.
        restrict: indices of the elements to use, where duplicates have double weight; all others become -inf.
    """
    if restrict is None:
        return apply(losses.LOG_SOFTMAX, (x,))
    return apply(losses.RESTRICTED, (x,), (tuple(_labels("log_softmax", x, restrict)),))


@with_c_version
def pickneglogsoftmax(x: Expression, v: int | Sequence[int]) -> Expression:
    """Compute -log_softmax(x)[v], the loss of a classifier.

    Args:
        v: the label; for a minibatch, a list with one label per element, or one label for all.

    Raises:
        BoundsError: the label is out of range.
        ShapeError: the number of labels does not match the minibatch.
    """
    if type(v) is not int and not isinstance(v := one_or_several(v, "PickNegLogSoftmax"), int):
        return pickneglogsoftmax_batch(x, v)
    return apply(losses.PICKNEGLOGSOFTMAX, (x,), (), checked_label("PickNegLogSoftmax", x, v))


@with_c_version
def pickneglogsoftmax_batch(x: Expression, vs: Sequence[int]) -> Expression:
    """Compute `pickneglogsoftmax` of every element of a minibatch.

    Args:
        x: vectors of scores; without a minibatch, the vector is used for every label.
        vs: one label per element.

    Raises:
        BoundsError: a label is out of range.
        EmptySequenceError: the list is empty.
        ShapeError: the number of labels does not match the minibatch.
    """
    labels = _labels("PickNegLogSoftmax", x, vs)
    return apply(losses.PICKNEGLOGSOFTMAX_BATCH, (x,), (len(labels),), labels)


@with_c_version
def hinge(x: Expression, v: int | Sequence[int], m: float = 1.0) -> Expression:
    """Compute the sum of max(0, x[i] - x[v] + m) over all i but `v`.

    Args:
        v: the label; for a minibatch, a list with one label per element, or one label for all.

    Raises:
        ArgumentError: the margin is negative.
        BoundsError: the label is out of range.
        ShapeError: the number of labels does not match the minibatch.
    """
    if type(v) is not int and not isinstance(v := one_or_several(v, "Hinge"), int):
        return hinge_batch(x, v, m)
    return apply(losses.HINGE, (x,), (_margin(m),), checked_label("Hinge", x, v))


def hinge_batch(x: Expression, vs: Sequence[int], m: float = 1.0) -> Expression:
    """Compute `hinge` of every element of a minibatch, with one label each."""
    labels = _labels("Hinge", x, vs)
    return apply(losses.HINGE_BATCH, (x,), (_margin(m), len(labels)), labels)


def hinge_dim(x: Expression, v: Sequence[int], d: int = 0, m: float = 1.0) -> Expression:
    """Compute `hinge` along one dimension of a matrix.

    Args:
        v: one label per column (`d` = 0) or row (`d` = 1).
        d: the dimension of the scores.

    Raises:
        BoundsError: a label is out of range.
        ShapeError: the number of labels does not match the columns or rows.
    """
    axis = as_integer(d, "hinge_dim: d")
    labels = [checked_label("HingeDim", x, each, axis) for each in non_empty_list("HingeDim", v)]
    sizes, batch = state.graph.dim(node_of(x))
    if len(sizes) == 2 and axis in (0, 1) and len(labels) not in (sizes[1 - axis], sizes[1 - axis] * batch):
        raise ShapeError(
            f"hinge_dim: {len(labels)} labels for a matrix {sizes}, expected {sizes[1 - axis]} (at {user_line()})"
        )
    return apply(losses.HINGE_DIM, (x,), (axis, _margin(m)), labels)


def sparsemax(x: Expression) -> Expression:
    """Project a vector onto the probability simplex; most elements become 0.

    Args:
        x: a vector.
    Source: Martins and Astudillo, "From softmax to sparsemax", 2016.
    """
    return apply(losses.SPARSEMAX, (x,))


def constrained_softmax(x: Expression, y: Expression) -> Expression:
    """Compute a softmax whose elements have upper bounds.

    Args:
        y: upper bounds.
    Source: Martins and Kreutzer, "Learning what's easy", 2017.
    """
    return apply(losses.CONSTRAINED_SOFTMAX, (x, y))


def squared_distance(x: Expression, y: Expression) -> Expression:
    """Compute the sum of squared differences of expressions of equal dimensions."""
    try:
        return plain(losses.SQUARED_DISTANCE, x, y)
    except ShapeError as error:
        return apply_to_padded(error, losses.SQUARED_DISTANCE, (x, y))


def l1_distance(x: Expression, y: Expression) -> Expression:
    """Compute the sum of absolute differences of expressions of equal dimensions."""
    try:
        return plain(losses.L1, x, y)
    except ShapeError as error:
        return apply_to_padded(error, losses.L1, (x, y))


def huber_distance(x: Expression, y: Expression, c: float = 1.345) -> Expression:
    """Compute the sum of d² / 2 for differences d up to `c`, and c * (|d| - c / 2) beyond.

    Args:
        y: the other operand, with the same dimensions.
        c: threshold beyond which the loss is linear.
    """
    attrs = (c if type(c) is float else number(c, "huber_distance: c"),)
    try:
        return apply(losses.HUBER, (x, y), attrs)
    except ShapeError as error:
        return apply_to_padded(error, losses.HUBER, (x, y), attrs)


def binary_log_loss(x: Expression, y: Expression) -> Expression:
    """Compute the sum of -y * log(x) - (1 - y) * log(1 - x); `y` is the target."""
    return apply(losses.BINARY_LOG, (x, y))


def pairwise_rank_loss(x: Expression, y: Expression, m: float = 1.0) -> Expression:
    """Compute max(0, m - x + y).

    Args:
        x: scores that should be greater, a row or a scalar.
    """
    return apply(losses.RANK, (x, y), (number(m, "m"),))


@with_c_version
def poisson_loss(log_lambda: Expression, x: int) -> Expression:
    """Compute the negative log-probability of a count under a Poisson distribution.

    Args:
        log_lambda: logarithm of the rate, a scalar.

    Raises:
        BoundsError: the count is negative or does not fit 32 bits.
    """
    return apply(losses.POISSON, (log_lambda,), (), as_index(x, TOO_LARGE, "poisson_loss: x"))
