"""Input expressions: numbers, arrays, constants and random numbers."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from ... import native
from ..arguments import (
    TOO_LARGE,
    as_index,
    as_integer,
    flag,
    number,
    numbers,
    one_or_several,
    probability,
    sizes_of,
)
from ..errors import ArgumentError, BoundsError, ForeignValueError, ShapeError, user_line
from ..expression import Expression, append, as_list, non_empty_list, with_c_version
from ..ops.source import CONSTANT, INPUT, ONE_HOT, RANDOM
from ..ops.spec import Dim
from ..session import state

Array = NDArray[Any]

_new = Expression.__new__
_ONE = Dim((1,))


class SettableInput:
    """Mixin that adds `set` to input expressions."""

    __slots__ = ()

    def enter(self) -> int:
        """Return the number of the node; provided by the expression class."""
        raise NotImplementedError(f"{type(self).__name__} does not define enter")

    def set(self, value: ArrayLike) -> None:
        """Replace the value; later values and `backward` use the new one.

        This allows a graph to be built once and run on many examples.

        Shape:
            value: (*d), or (*d, batch) for a minibatch; or as many numbers in column-major order.

        Example:
            >>> import dpmodule.autobatch as dy
            >>> x = dy.scalarInput(3)
            >>> y = x * x
            >>> y.value()
            9.0
            >>> x.set(4)
            >>> y.value()
            16.0
        """
        node = self.enter()
        dim = state.graph.dim(node)
        array = numbers(value, "set").astype(np.float64)
        if array.size != dim.size * dim.batch:
            raise ShapeError(
                f"set: {array.size} values for an input of dimensions {dim.d} and minibatch {dim.batch}"
            )
        if dim.batch == 1:
            array = array.reshape(dim.d, order="F")[None] if array.shape != dim.d else array[None]
        else:
            array = np.moveaxis(array.reshape(*dim.d, dim.batch, order="F"), -1, 0)
        state.graph.set_input(node, array)


if TYPE_CHECKING or native.core is None:

    class InputExpression(Expression, SettableInput):
        """An input whose value can be replaced with `set`."""

        __slots__ = ()

else:
    InputExpression = native.core.autobatch_inputs(
        SettableInput, f"{__name__}.InputExpression", "An input whose value can be replaced with `set`."
    )
    InputExpression.__name__ = "InputExpression"


def _input(array: Array, dim: Dim) -> InputExpression:
    """Return an input expression of an array (batch, *d) that no caller may change."""
    graph = state.graph
    found = _new(InputExpression)
    found.node, found.version = graph.append(INPUT, (dim,), (), array), graph.version
    return found


def dim_of(dim: int | Sequence[int], batch_size: int = 1) -> Dim:
    """Return the `Dim` for a size or a tuple of sizes."""
    if type(dim) is int and 0 < dim < TOO_LARGE and type(batch_size) is int and batch_size == 1:  # fast path
        return Dim((dim,))
    batch = as_integer(batch_size, "batch_size")
    if not 0 < batch < TOO_LARGE:
        raise ShapeError(
            f"batch_size is {batch_size}, expected a positive size below {TOO_LARGE} (at {user_line()})"
        )
    return Dim(sizes_of(dim) or (1,), batch)


@with_c_version
def inputTensor(
    arr: ArrayLike, batched: bool = False, device: str = "", reusable_expr: bool = False
) -> InputExpression:
    """Return an input expression of an array.

    Args:
        arr: the values; a list of arrays becomes a minibatch.
        batched: True if the last axis is the minibatch.
        device: ignored; `configure` chooses the device.
        reusable_expr: ignored; `set` always works.

    Raises:
        ForeignValueError: `arr` is not an array of numbers.

    Example:
        >>> import numpy, dpmodule.autobatch as dy
        >>> dy.inputTensor(numpy.zeros((3, 4, 5)), batched=True).dim()
        ((3, 4), 5)
    """
    if isinstance(arr, (list, tuple)) and arr and isinstance(arr[0], np.ndarray):
        arr, batched = np.moveaxis(numbers(arr, "inputTensor"), 0, -1), True
    array = numbers(arr, "inputTensor")
    if array.ndim == 0:
        array = array.reshape(1)
    if not flag(batched, "inputTensor: batched"):
        return _input(array[None], dim_of(array.shape))
    dim = dim_of(array.shape[:-1] if array.ndim > 1 else (1,), array.shape[-1])
    return _input(np.moveaxis(array, -1, 0).reshape(dim.batch, *dim.d), dim)


def inputTensorTranspose(
    arr: ArrayLike, dim: int | Sequence[int] | None = None, batch_size: int = 1, device: str = ""
) -> InputExpression:
    """Return a tensor from a flat array in DyNet's memory order: column-major, with the minibatch last.

    Args:
        dim: dimensions of an element of the minibatch; a vector by default.
        device: see `inputTensor`.

    Raises:
        ForeignValueError: `arr` is not a flat array of numbers.
        ShapeError: the number of values does not match `dim` and `batch_size`.

    Example:
        >>> import dpmodule.autobatch as dy
        >>> dy.inputTensorTranspose([1, 2, 3, 4], (2, 2)).npvalue()
        array([[1., 3.],
               [2., 4.]])
    """
    array = numbers(arr, "inputTensorTranspose")
    if array.ndim != 1:
        raise ForeignValueError(
            f"inputTensorTranspose: expected a flat array of numbers, got {array.ndim} axes of {array.dtype}; pass"
            f' array.ravel("F") (at {user_line()})'
        )
    found = dim_of(array.size if dim is None else dim, batch_size)
    if array.size != found.size * found.batch:
        raise ShapeError(
            f"inputTensorTranspose: {array.size} values for the dimensions {found.d} and a minibatch of {found.batch}"
            f" (at {user_line()})"
        )
    values = array.astype(np.float64).reshape(*found.d, found.batch, order="F")
    return _input(np.moveaxis(values, -1, 0), found)


@with_c_version
def inputVector(v: ArrayLike, device: str = "") -> InputExpression:
    """Return a vector from a list of numbers.

    Args:
        v: the numbers; an array of several axes is read row by row.
        device: see `inputTensor`.

    Raises:
        ForeignValueError: `v` contains anything else.
    """
    array = numbers(v, "inputVector").reshape(1, -1)
    return _input(array, dim_of(array.size))


@with_c_version
def scalarInput(s: float, device: str = "") -> InputExpression:
    """Return an expression {1} from one number.

    Args:
        device: see `inputTensor`.

    Raises:
        ForeignValueError: `s` is not a number.
        ShapeError: `s` has several elements.
    """
    if type(s) is float:
        return _input(np.array(s, ndmin=2), _ONE)
    array = numbers(s, "scalarInput")
    if array.size != 1:
        raise ShapeError(f"scalarInput: {array.size} numbers, expected one (at {user_line()})")
    return _input(array.reshape(1, 1), _ONE)


@with_c_version
def vecInput(dim: int, device: str = "") -> InputExpression:
    """Return a vector of zeros, to be `set` later.

    Args:
        device: see `inputTensor`.

    Raises:
        ShapeError: `dim` is not positive.
    """
    found = dim_of(dim)
    return _input(np.zeros((1, *found.d)), found)


@with_c_version
def matInput(d1: int, d2: int) -> InputExpression:
    """Return a matrix of zeros, to be `set` later.

    Args:
        d1: number of rows.
        d2: number of columns.

    Raises:
        ShapeError: a size is not positive.
    """
    found = dim_of((d1, d2))
    return _input(np.zeros((1, *found.d)), found)


def inputMatrix(v: ArrayLike, d: Sequence[int]) -> InputExpression:
    """Return a tensor from a flat list in column-major order.

    Args:
        d: the dimensions.

    Raises:
        ForeignValueError: `v` contains anything but numbers.
        ShapeError: the number of values does not match the dimensions.
    """
    found = dim_of(d)
    array = numbers(v, "inputMatrix").astype(np.float64)
    if array.size != found.size:
        raise ShapeError(f"inputMatrix: {array.size} values for the dimensions {found.d} (at {user_line()})")
    return _input(array.reshape(found.d, order="F")[None], found)


def sparse_inputTensor(
    idxs: Sequence[Sequence[int]],
    values: Sequence[float],
    shape: Sequence[int],
    batched: bool = False,
    defval: float = 0.0,
    device: str = "",
) -> InputExpression:
    """Return a tensor from a few values and their indices.

    Args:
        idxs: for every dimension, the indices of all values.
        values: the values at those indices.
        shape: the shape, with the minibatch last if `batched`.
        batched: see `inputTensor`.
        defval: value of all other elements.
        device: see `inputTensor`.

    Raises:
        ForeignValueError: an index is not an integer, or a value is not a number.
        ShapeError: the numbers of lists and dimensions, or of indices and values, differ.
        BoundsError: an index is out of range.
    """
    sizes, stored = sizes_of(shape), numbers(values, "sparse_inputTensor: values").reshape(-1)
    indices = tuple(
        [as_integer(each, "sparse_inputTensor: idxs") for each in as_list("sparse_inputTensor: idxs", some)]
        for some in as_list("sparse_inputTensor: idxs", idxs)
    )
    if len(indices) != len(sizes) or any(len(each) != stored.size for each in indices):
        raise ShapeError(
            f"sparse_inputTensor: {len(indices)} lists of {', '.join(str(len(each)) for each in indices)} indices for"
            f" {len(sizes)} dimensions and {stored.size} values (at {user_line()})"
        )
    array = np.full(sizes, number(defval, "sparse_inputTensor: defval"), np.float64)
    try:
        array[indices] = stored
    except IndexError as failure:
        raise BoundsError(f"sparse_inputTensor: {failure} (at {user_line()})") from None
    return inputTensor(array, batched)


@with_c_version
def constant(dim: int | Sequence[int], val: float, batch_size: int = 1) -> Expression:
    """Return a tensor whose elements are all equal.

    Args:
        dim: a size, or a tuple of them.
        val: the value of all elements.

    Raises:
        ForeignValueError: `val` is not a number, or a size is not an integer.
        ShapeError: a size is not positive.
    """
    return append(CONSTANT, (dim_of(dim, batch_size),), (), number(val, "val"))


@with_c_version
def zeros(dim: int | Sequence[int], batch_size: int = 1) -> Expression:
    """Return a tensor of zeros; see `constant`."""
    return constant(dim, 0.0, batch_size)


@with_c_version
def ones(dim: int | Sequence[int], batch_size: int = 1) -> Expression:
    """Return a tensor of ones; see `constant`."""
    return constant(dim, 1.0, batch_size)


def one_hot(d: int, idx: int | Sequence[int], device: str = "") -> Expression:
    """Return a one-hot vector, or a minibatch of them.

    Args:
        idx: index of the one, or a list of indices.
        device: see `inputTensor`.

    Raises:
        BoundsError: an index is out of range.
    """
    given = one_or_several(idx, "one_hot")
    indices = [given] if isinstance(given, int) else non_empty_list("one_hot", given)
    dim = dim_of(d, len(indices))
    return append(ONE_HOT, (dim,), (), [as_index(each, dim.d[0], "one_hot") for each in indices])


def _random(dim: int | Sequence[int], batch_size: int, kind: str, first: float, second: float) -> Expression:
    first, second = number(first, f"random_{kind}"), number(second, f"random_{kind}")
    is_possible = first <= second if kind == "uniform" else second >= 0.0 or kind == "bernoulli"
    if not (is_possible and math.isfinite(first) and math.isfinite(second)):
        raise ArgumentError(
            f"random_{kind}: cannot draw numbers with the parameters {first} and {second} (at {user_line()})"
        )
    return append(RANDOM, (dim_of(dim, batch_size), kind, first, second), ())


@with_c_version
def random_normal(
    dim: int | Sequence[int], mean: float = 0.0, stddev: float = 1.0, batch_size: int = 1
) -> Expression:
    """Draw from a normal distribution.

    Args:
        dim: a size, or a tuple of them.

    Raises:
        ArgumentError: the parameters are invalid.
        ShapeError: a size is not positive.
    """
    return _random(dim, batch_size, "normal", mean, stddev)


@with_c_version
def random_bernoulli(
    dim: int | Sequence[int], p: float, scale: float = 1.0, batch_size: int = 1
) -> Expression:
    """Draw `scale` with probability `p`, else 0; see `random_normal`.

    Args:
        dim: a size, or a tuple of them.
        scale: value that is drawn.

    Raises:
        ArgumentError: `p` is not a probability.
    """
    return _random(dim, batch_size, "bernoulli", probability(p, "random_bernoulli: p"), scale)


@with_c_version
def random_uniform(dim: int | Sequence[int], left: float, right: float, batch_size: int = 1) -> Expression:
    """Draw from a uniform distribution from `left` to `right`; see `random_normal`.

    Args:
        dim: a size, or a tuple of them.
        right: the upper bound.
    """
    return _random(dim, batch_size, "uniform", left, right)


@with_c_version
def random_gumbel(
    dim: int | Sequence[int], mu: float = 0.0, beta: float = 1.0, batch_size: int = 1
) -> Expression:
    """Draw from a Gumbel distribution with location `mu` and scale `beta`; see `random_normal`.

    Args:
        dim: a size, or a tuple of them.
        mu: the most likely value.
        beta: scale of the distribution; the standard deviation is about 1.28 * `beta`.
    """
    return _random(dim, batch_size, "gumbel", mu, beta)


zeroes = zeros
