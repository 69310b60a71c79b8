"""Expressions (handles of nodes, with operators), functions that add nodes, and values on the device.

With the native extension, handles and the functions from `c_version` are implemented in C. Such a function adds its
node directly if the native engine has a kernel for the operands. In all other cases (minibatches, matrices, keyword
arguments, wrong shapes, another engine) it calls the Python function with the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from numbers import Real
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from numpy.typing import NDArray

from .. import native
from .arguments import as_index, as_integer, flag
from .errors import (
    ArgumentError,
    EmptySequenceError,
    ForeignValueError,
    NotScalarError,
    ShapeError,
    StaleExpressionError,
    user_line,
    wrong_type,
)
from .graph import as_array
from .ops.binary import CDIV, MINUS, POW, SUM
from .ops.join import RESHAPE
from .ops.linear import MATMUL
from .ops.pick import picked
from .ops.spec import Dim, Operation, format_dim
from .ops.unary import EXPONENT, RAISE, RECIPROCAL, SCALE, SHIFT, UNARY
from .session import state

Array = NDArray[Any]
F = TypeVar("F", bound=Callable[..., Any])


def uses_native() -> bool:
    """Return True if the native extension is installed."""
    return native.core is not None


def c_version(name: str, slow: F) -> F:
    """Return the C version of a Python function, or the function itself without the native extension."""
    core = native.core
    if core is None:
        return slow
    found = core.AutobatchFunction(name, slow)
    for each in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(found, each, getattr(slow, each))
    return found  # type: ignore[no-any-return]


def with_c_version(slow: F) -> F:
    """Decorator for `c_version` with the function's own name."""
    return c_version(slow.__name__, slow)


class _PlainNode:
    """Base of expressions without the native extension.

    The caller sets the fields: an `__init__` would double the time.
    """

    __slots__ = ("node", "serial", "table", "version")

    node: int
    version: int
    serial: int
    table: int


if TYPE_CHECKING or native.core is None:  # noqa: SIM108 (mypy follows this form only)
    NodeBase = _PlainNode
else:
    NodeBase = native.core.AutobatchNode


class Tensor:
    """A value on the device of the graph.

    Shape:
        values: (batch, *d).

    Args:
        values: the value of an expression.
    Source: DyNet's `Tensor`.
    """

    __slots__ = ("values",)

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def _axis(self, dim: int) -> int:
        return as_index(dim, self.values.dim() - 1, "dim") + 1

    def as_numpy(self) -> NDArray[Any]:
        """Return the value as an array.

        Shape:
            returns: (*d), or (*d, batch) for a minibatch of several elements.
        """
        return as_array(self.values)

    def argmax(self, dim: int = 0, num: int = 1) -> Tensor:
        """Return the indices of the `num` greatest elements along a dimension.

        Shape:
            returns: as `values`, with `num` in place of the dimension.

        Args:
            dim: the dimension.
            num: number of elements.

        Raises:
            BoundsError: the dimension does not exist or has fewer elements.
            ForeignValueError: an argument is not an integer.
        """
        return self.topk(dim, num)[1]

    def topk(self, dim: int = 0, num: int = 1) -> tuple[Tensor, Tensor]:
        """Return the `num` greatest elements along a dimension, and their indices.

        Shape:
            returns: both as `values`, with `num` in place of the dimension.

        Args:
            dim: the dimension.
            num: number of elements.

        Raises:
            BoundsError: the dimension does not exist or has fewer elements.
            ForeignValueError: an argument is not an integer.
        """
        axis = self._axis(dim)
        found, places = self.values.topk(as_index(num, self.values.shape[axis] + 1, "num"), axis)
        return Tensor(found), Tensor(places)

    def categorical_sample_log_prob(self, dim: int = 0, num: int = 1) -> Tensor:
        """Draw indices along a dimension of log-probabilities.

        Shape:
            returns: as `values`, with `num` in place of the dimension.

        Args:
            dim: the dimension.
            num: number of draws.

        Raises:
            ArgumentError: `num` is below 1.
            BoundsError: the dimension does not exist.
            ForeignValueError: an argument is not an integer.
        """
        axis, num = self._axis(dim), as_integer(num, "num")
        if num < 1:
            raise ArgumentError(f"num is {num}, expected 1 or more (at {user_line()})")
        weights = self.values.exp().movedim(axis, -1)
        drawn = torch.multinomial(
            weights.reshape(-1, weights.shape[-1]), num, True, generator=state.options.generator
        )
        return Tensor(drawn.reshape(*weights.shape[:-1], num).movedim(-1, axis))


def _is_number(value: Any) -> bool:
    """Return True if the other operand of an operator is a number or a 0-d array."""
    shape = () if isinstance(value, Real) else getattr(value, "shape", None)
    if shape:
        raise ForeignValueError(
            f"an operand is a {type(value).__name__} of shape {tuple(shape)}, expected an Expression; create one with"
            f" inputTensor (at {user_line()})"
        )
    return shape is not None


class Operators(NodeBase):
    """One node of the graph under construction.

    Creating an expression computes nothing. `value` and similar methods compute all missing nodes up to this one, so
    ask for the last expression first. Arithmetic works between expressions, and between an expression and a number: ``a
    + b``, ``a - b``, ``W * x`` (the matrix product; `cmult` multiplies by element), ``x / 3``, ``x / e`` for a scalar
    `e`, ``x ** 2``, ``-x``, ``x[2]``, ``x[1:5:2]``. Arrays need `inputTensor`.

    Shape:
        value: (*d), or (*d, batch) for a minibatch of several elements; see `dim`.

    Attributes:
        version: version of its graph.
    Source: DyNet's `Expression`, its operators and its slices.
    """

    __slots__ = ()

    __array_ufunc__ = None
    """Makes NumPy defer to the operators below."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        """Raise an error: an implicit conversion would compute too early and lose the gradient."""
        raise ForeignValueError(
            f"{type(self).__name__} is not an array; npvalue() returns its value (at {user_line()})"
        )

    def __add__(self, other: Any) -> Expression:
        if isinstance(other, Operators):
            return plain(SUM, self, other)
        return apply(SHIFT, (self,), (), float(other)) if _is_number(other) else NotImplemented

    __radd__ = __add__

    def __sub__(self, other: Any) -> Expression:
        if isinstance(other, Operators):
            return plain(MINUS, self, other)
        return apply(SHIFT, (self,), (), -float(other)) if _is_number(other) else NotImplemented

    def __rsub__(self, other: Any) -> Expression:
        if not _is_number(other):
            return NotImplemented
        return apply(SHIFT, (apply(UNARY["negate"], (self,)),), (), float(other))

    def __mul__(self, other: Any) -> Expression:
        if isinstance(other, Operators):
            return plain(MATMUL, self, other)
        return apply(SCALE, (self,), (), float(other)) if _is_number(other) else NotImplemented

    def __rmul__(self, other: Any) -> Expression:
        return apply(SCALE, (self,), (), float(other)) if _is_number(other) else NotImplemented

    def __truediv__(self, other: Any) -> Expression:
        if isinstance(other, Operators):
            return plain(CDIV, self, other)
        return apply(SCALE, (self,), (), 1.0 / float(other)) if _is_number(other) else NotImplemented

    def __rtruediv__(self, other: Any) -> Expression:
        return apply(RECIPROCAL, (self,), (), float(other)) if _is_number(other) else NotImplemented

    def __pow__(self, other: Any) -> Expression:
        if isinstance(other, Operators):
            return plain(POW, self, other)
        return apply(RAISE, (self,), (), float(other)) if _is_number(other) else NotImplemented

    def __rpow__(self, other: Any) -> Expression:
        return apply(EXPONENT, (self,), (), float(other)) if _is_number(other) else NotImplemented

    def __neg__(self) -> Expression:
        return apply(UNARY["negate"], (self,))

    def __getitem__(self, index: Any) -> Expression:
        """Return an element of the first dimension, or slices of the first dimensions.

        Shape:
            self: (d1, *rest).
            returns: (*rest) for an integer, (d1 picked, *rest) for a slice.
        """
        op, attrs, aux = picked(state.graph.dim(self.enter()), index)
        return apply(op, (self,), attrs, aux)

    def __len__(self) -> int:
        """Return the size of the first dimension."""
        return state.graph.dim(self.enter()).d[0]

    def become(self, node: int, version: int) -> None:
        """Set the node.

        Args:
            node: number of the node, -1 for none.
        """
        self.node, self.version = node, version

    def enter(self) -> int:
        """Return the number of the node in the graph under construction."""
        graph = state.graph
        graph.check_thread()
        node = self.node
        if self.version != graph.version or node < 0:
            raise StaleExpressionError(
                "Stale Expression (created before renewing the Computation Graph): this expression is node"
                f" {self.node} of graph {self.version}, the graph under construction is {graph.version}; build"
                f" expressions again after renew_cg() (at {user_line()})"
            )
        if node >= graph.size:
            graph.check_nodes((node,))
        return node

    def dim(self) -> tuple[tuple[int, ...], int]:
        """Return the dimensions (d1, ..., dn) and the size of the minibatch.

        Example:
            >>> import numpy, dpmodule.autobatch as dy
            >>> dy.inputTensor(numpy.zeros((3, 4))).dim()
            ((3, 4), 1)
        """
        found = state.graph.dim(self.enter())
        return found.d, found.batch

    def value_tensor(self, recalculate: bool = False) -> torch.Tensor:
        """Return the value as a read-only tensor in the graph's memory.

        Shape:
            returns: (batch, *d).

        Args:
            recalculate: discard cached values and recompute from the inputs.
        """
        return state.graph.value(self._asked(recalculate))

    def _asked(self, recalculate: bool) -> int:
        node = self.enter()
        if recalculate is not False and flag(recalculate, "recalculate"):
            state.graph.recalculate()
        return node

    def npvalue(self, recalculate: bool = False) -> Array:
        """Return the value as a float64 array; see `value_tensor`.

        Shape:
            returns: (*d), or (*d, batch) for a minibatch of several elements.
        """
        return state.graph.array(self._asked(recalculate))

    def tensor_value(self, recalculate: bool = False) -> Tensor:
        """Return the value as a `Tensor` on its device; see `value_tensor`.

        Shape:
            returns: (batch, *d).
        """
        return Tensor(self.value_tensor(recalculate))

    def scalar_value(self, recalculate: bool = False) -> float:
        """Return the value of a scalar expression.

        Shape:
            self: one number, in a minibatch of one.
        """
        numbers = self._numbers(recalculate)
        if len(numbers) != 1:
            raise NotScalarError(
                f"scalar_value() of an expression of dimension {format_dim(state.graph.dim(self.enter()))}: Input"
                " tensor has more than one element, cannot convert to scalar; use npvalue()"
            )
        return numbers[0]

    def vec_value(self, recalculate: bool = False) -> list[float]:
        """Return the value as a list in column-major order; see `value_tensor`.

        Shape:
            returns: d1 * ... * dn * batch numbers.
        """
        return self._numbers(recalculate)

    def value(self, recalculate: bool = False) -> Any:
        """Return the value as a float, list or array, depending on the number of dimensions; see `npvalue`.

        Shape:
            returns: d1 * batch numbers for one dimension; else as `npvalue`.
        """
        found = self._numbers(recalculate)
        if len(found) == 1:
            return found[0]
        return found if len(state.graph.dim(self.node).d) == 1 else self.npvalue()

    def _numbers(self, recalculate: bool) -> list[float]:
        node, graph = self._asked(recalculate), state.graph
        found: list[float] | None = graph.as_list(node)
        return graph.array(node).reshape(-1, order="F").tolist() if found is None else found

    def forward(self, recalculate: bool = False) -> None:
        """Compute everything up to this expression; see `value_tensor`."""
        self.value_tensor(recalculate)

    def backward(self, full: bool = False) -> None:
        """Compute the gradients of this scalar expression.

        Shape:
            self: one number, in a minibatch of one.

        Args:
            full: also compute gradients of expressions that no parameter feeds, such as inputs.
        """
        state.graph.backward(self.enter(), flag(full, "full"))

    def gradient(self) -> Array:
        """Return the gradient of this expression, computed by `backward`, in float64.

        Shape:
            returns: as `npvalue`.
        """
        return as_array(state.graph.gradient(self.enter()))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Raise an error, since expressions cannot be copied or pickled."""
        raise ForeignValueError(
            f"{type(self).__name__} belongs to the graph or to its collection and cannot be copied or pickled; save"
            f" npvalue(), or the parameters with ParameterCollection.save (at {user_line()})"
        )

    def __repr__(self) -> str:
        return f"expression {self.node}/{self.version}"


if TYPE_CHECKING or native.core is None:

    class Expression(Operators):
        """One node of the graph under construction; see `Operators`."""

        __slots__ = ()

else:
    # operators in C come first and fall back on those above
    Expression = native.core.autobatch_expressions(Operators, f"{__name__}.Expression", Operators.__doc__)
    Expression.__name__ = "Expression"  # else Python's errors show the class with its module

_new = Expression.__new__


def handle_of(node: int, version: int) -> Expression:
    """Return a new expression for a node.

    Shape:
        returns: the shape of the node.
    """
    found = Expression()
    found.node, found.version = node, version
    return found


def node_of(value: Any) -> int:
    """Return the node number of an operand."""
    if isinstance(value, Expression):
        return value.enter()
    raise wrong_type("", value, "is not an Expression; create one with scalarInput, inputTensor or parameter")


def append(op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any = None) -> Expression:
    """Add a node to the graph and return its expression; see `EngineGraph.append`.

    Shape:
        returns: given by `op.shape`.
    """
    graph = state.graph
    return handle_of(graph.append(op, attrs, args, aux), graph.version)


def apply(op: Operation, operands: Sequence[Any], attrs: tuple[Any, ...] = (), aux: Any = None) -> Expression:
    """Add an operation on expressions to the graph.

    Shape:
        operands: as `op.shape` requires.
        returns: given by `op.shape`.
    """
    graph = state.graph
    version = graph.version
    args = []
    try:
        for x in operands:
            args.append(x.node if x.version == version else x.enter())  # noqa: PERF401 (a comprehension is a call)
    except AttributeError:
        args = [node_of(x) for x in operands]
    found = _new(Expression)
    found.node, found.version = graph.append(op, attrs, tuple(args), aux), version
    return found


def plain(op: Operation, x: Any, y: Any, z: Any = ...) -> Expression:
    """A faster `apply` for two or three operands without attributes.

    Shape:
        x, y, z: as `op.shape` requires.
        returns: given by `op.shape`.

    Args:
        y: the second operand.
        z: the third operand; an ellipsis for none, since None may be a user's mistake.
    """
    return apply(op, (x, y) if z is ... else (x, y, z))


def append_many(op: Operation, operands: Sequence[Any], attrs: tuple[Any, ...] = ()) -> Expression:
    """Add an operation on many expressions of the same shape.

    Shape:
        operands: all (*d), with minibatches of one size.
        returns: given by `op.shape`.
    """
    graph = state.graph
    version = graph.version
    try:
        args = tuple([x.node if x.version == version else x.enter() for x in operands])
    except AttributeError:
        args = tuple([node_of(x) for x in operands])
    return handle_of(graph.append_many(op, attrs, args), version)


# these cache what operations add to the graph, by the kinds of their operands
apply = c_version("apply", apply)
plain = c_version("plain", plain)
append_many = c_version("append_many", append_many)

node_of = c_version("node_of", node_of)


def apply_to_padded(
    error: ShapeError,
    op: Operation,
    operands: Sequence[Any],
    attrs: tuple[Any, ...] = (),
    chosen: Callable[..., tuple[int, ...]] = max,
) -> Expression:
    """Retry a failed `apply` with operands padded to the same number of dimensions.

    Shape:
        operands: (*d), some with trailing dimensions of 1.
        returns: (*d), with or without them, depending on `chosen`.

    Args:
        error: the error of `apply`, raised again if padding does not help.
        op: an operation on operands of equal dimensions.
        chosen: `max` if the result has the longest dimensions, `min` for the shortest.
    """
    dims = [state.graph.dim(node_of(x)).d for x in operands]
    longest = max(dims, key=len)
    padded = {(*d, *[1] * (len(longest) - len(d))) for d in dims}
    if len(padded) > 1 or len(set(dims)) == 1:
        raise error
    shape = Dim(chosen(dims, key=len))
    return apply(op, [apply(RESHAPE, (x,), (shape,)) for x in operands], attrs)


def as_list(name: str, xs: Iterable[Any]) -> list[Any]:
    """Convert an argument to a list."""
    try:
        if not isinstance(xs, Operators):  # an expression has elements, but is one operand
            return list(xs)
    except TypeError:
        if isinstance(xs, Iterator):  # the iterator's own error
            raise
    raise wrong_type(name, xs, "is not a list")


def non_empty_list(name: str, xs: Iterable[Any]) -> list[Any]:
    """Convert an argument to a non-empty list."""
    found = as_list(name, xs)
    if not found:
        raise EmptySequenceError(f"List is empty, nothing to {name}. (at {user_line()})")
    return found


def forward(exps: Iterable[Expression], recalculate: bool = False) -> None:
    """Compute several expressions together.

    Shape:
        exps: any.

    Args:
        exps: expressions of one graph.

    Raises:
        ForeignValueError: `exps` is not a list of expressions.
        StaleExpressionError: an expression belongs to an earlier graph.
        Exception: any error of an operation that the expressions depend on.
    """
    found = as_list("forward", exps)
    if found:
        max(found, key=node_of).forward(recalculate)
    if state.graph.has_failed:
        for each in found:
            each.forward()


def values(exps: Iterable[Expression], recalculate: bool = False) -> list[Any]:
    """Compute several expressions together and return the `value` of each; see `forward`.

    Args:
        exps: expressions of one graph.

    Shape:
        returns: see `Operators.value`.

    Raises:
        ForeignValueError: `exps` is not a list of expressions; see `forward` for other errors.
    """
    found = as_list("values", exps)
    forward(found, recalculate)
    return [e.value() for e in found]


def npvalues(exps: Iterable[Expression], recalculate: bool = False) -> list[Array]:
    """Compute several expressions together and return their arrays; see `forward`.

    Args:
        exps: expressions of one graph.

    Shape:
        returns: each (*d), or (*d, batch) for a minibatch of several elements.

    Raises:
        ForeignValueError: `exps` is not a list of expressions; see `forward` for other errors.
    """
    found = as_list("npvalues", exps)
    forward(found, recalculate)
    return [e.npvalue() for e in found]
