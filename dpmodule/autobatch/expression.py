"""Expressions: handles of nodes with operators, the functions that add nodes, and values that stay on the device.

Handles, and functions made by `fast`, are in C where the native extension is installed. A fast function adds its node
at once where the native engine has a kernel for the operands. In all other cases (minibatches, matrices, keyword
arguments, wrong shapes, another engine) it calls the function in Python with the same arguments.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial, wraps
from numbers import Real
from threading import get_ident
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
from .ops.spec import Dim, Operation, shown
from .ops.unary import EXPONENT, RAISE, RECIPROCAL, SCALE, SHIFT, UNARY
from .python_engine.graph import END
from .session import state

Array = NDArray[Any]
F = TypeVar("F", bound=Callable[..., Any])
_Pair = Callable[[Any, Any], "Expression"]


def uses_native() -> bool:
    """Say whether the native extension is installed."""
    return native.core is not None


def c_version(name: str, slow: F) -> F:
    """Return the form in C of a function in Python, or the function itself without the native extension."""
    core = native.core
    if core is None:
        return slow
    found = core.AutobatchFunction(name, slow)
    for each in ("__name__", "__qualname__", "__doc__", "__module__"):
        setattr(found, each, getattr(slow, each))
    return found  # type: ignore[no-any-return]


def with_c_version(slow: F) -> F:
    """Return the fast form of a function that the extension knows by its name; see `fast`."""
    return c_version(slow.__name__, slow)


class _PlainNode:
    """The numbers of a node, without the native extension.

    The caller sets them: without `__init__` that takes half the time.
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
        values: what an expression was computed to be.
    Source: DyNet's `Tensor`.
    """

    __slots__ = ("values",)

    def __init__(self, values: torch.Tensor) -> None:
        self.values = values

    def _axis(self, dim: int) -> int:
        return as_index(dim, self.values.dim() - 1, "dim") + 1

    def as_numpy(self) -> NDArray[Any]:
        """Return an array.

        Shape:
            returns: (*d), or (*d, batch) of a minibatch of several elements.
        """
        return as_array(self.values)

    def argmax(self, dim: int = 0, num: int = 1) -> Tensor:
        """Return the places of the `num` greatest elements along a dimension.

        Shape:
            returns: as `values`, with `num` in place of the dimension.

        Args:
            dim: the dimension.
            num: how many.

        Raises:
            BoundsError: there is no such dimension, or it has fewer elements.
            ForeignValueError: an argument is not an integer.
        """
        return self.topk(dim, num)[1]

    def topk(self, dim: int = 0, num: int = 1) -> tuple[Tensor, Tensor]:
        """Return the `num` greatest elements along a dimension, and their places.

        Shape:
            returns: both as `values`, with `num` in place of the dimension.

        Args:
            dim: the dimension.
            num: how many.

        Raises:
            BoundsError: there is no such dimension, or it has fewer elements.
            ForeignValueError: an argument is not an integer.
        """
        axis = self._axis(dim)
        found, places = self.values.topk(as_index(num, self.values.shape[axis] + 1, "num"), axis)
        return Tensor(found), Tensor(places)

    def categorical_sample_log_prob(self, dim: int = 0, num: int = 1) -> Tensor:
        """Draw places along a dimension that holds logarithms of probabilities.

        Shape:
            returns: as `values`, with `num` in place of the dimension.

        Args:
            dim: the dimension.
            num: how many draws.

        Raises:
            ArgumentError: `num` is below 1.
            BoundsError: there is no such dimension.
            ForeignValueError: an argument is no integer.
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
    """Say whether the other operand of an operator is a number; arrays without dimensions are."""
    shape = () if isinstance(value, Real) else getattr(value, "shape", None)
    if shape:
        raise ForeignValueError(
            f"{type(value).__name__} of shape {tuple(shape)} beside an expression is no Expression; make one with"
            f" inputTensor (at {user_line()})"
        )
    return shape is not None


class Operators(NodeBase):
    """One node of the graph under construction.

    Making one computes nothing. `value` and its relatives compute every node up to this one that has not been computed
    yet, so ask the last expression first. Arithmetic works between expressions, and between an expression and a number:
    ``a + b``, ``a - b``, ``W * x`` (the product of matrices; `cmult` is the one by elements), ``x / 3``, ``x / e`` for
    an `e` of one number, ``x ** 2``, ``-x``, ``x[2]``, ``x[1:5:2]``. Arrays become expressions by `inputTensor` only.

    Shape:
        value: (*d), or (*d, batch) of a minibatch of several elements; see `dim`.

    Attributes:
        version: the version of the graph it belongs to.
    Source: DyNet's `Expression`, its operators and its slices.
    """

    __slots__ = ()

    __array_ufunc__ = None
    """Operators between an array or a number of numpy's and an expression are those below."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Array:
        """Refuse to become an array, which would compute at the wrong time and lose the gradient."""
        raise ForeignValueError(
            f"{type(self).__name__} is no array; npvalue() returns its value (at {user_line()})"
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
        """Pick an element of the first dimension, or a slice of each of the first dimensions.

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
        """Stand for a node.

        Args:
            node: its number, -1 for none yet.
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
        """Return the value as a tensor: the graph's own memory, which must not be written to.

        Shape:
            returns: (batch, *d).

        Args:
            recalculate: throw cached values away and compute from the inputs again.
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
            returns: (*d), or (*d, batch) of a minibatch of several elements.
        """
        return state.graph.array(self._asked(recalculate))

    def tensor_value(self, recalculate: bool = False) -> Tensor:
        """Return the value, left on its device; see `value_tensor`.

        Shape:
            returns: (batch, *d).
        """
        return Tensor(self.value_tensor(recalculate))

    def scalar_value(self, recalculate: bool = False) -> float:
        """Return the value of an expression of one number.

        Shape:
            self: one number, in a minibatch of one.
        """
        found = self._numbers(recalculate)
        if len(found) != 1:
            raise NotScalarError(
                f"scalar_value() of an expression of dimension {shown(state.graph.dim(self.enter()))}: Input tensor has"
                " more than one element, cannot convert to scalar; use npvalue()"
            )
        return found[0]

    def vec_value(self, recalculate: bool = False) -> list[float]:
        """Return the value as a list, the first dimension running fastest; see `value_tensor`.

        Shape:
            returns: d1 * ... * dn * batch numbers.
        """
        return self._numbers(recalculate)

    def value(self, recalculate: bool = False) -> Any:
        """Return a float, a list or an array: for one number, one dimension, more dimensions; see `npvalue`.

        Shape:
            returns: of one dimension d1 * batch numbers; else as `npvalue`.
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
        """Compute gradients of this expression, which is one number.

        Shape:
            self: one number, in a minibatch of one.

        Args:
            full: also of expressions that no parameter feeds, such as inputs.
        """
        state.graph.backward(self.enter(), flag(full, "full"))

    def gradient(self) -> Array:
        """Return the gradient of what `backward` was called for with respect to this expression, in float64.

        Shape:
            returns: as `npvalue`.
        """
        return as_array(state.graph.gradient(self.enter()))

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Refuse to be copied or pickled."""
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
    # the operators in C come first, those above take what they do not
    Expression = native.core.autobatch_expressions(Operators, f"{__name__}.Expression", Operators.__doc__)
    Expression.__name__ = "Expression"  # Python's errors show a class made in C with its module otherwise

_new = Expression.__new__


def handle_of(node: int, version: int) -> Expression:
    """Return a new expression of a node.

    Shape:
        returns: the node's.
    """
    found = Expression()
    found.node, found.version = node, version
    return found


def node_of(value: Any) -> int:
    """Return the node of an operand."""
    if isinstance(value, Expression):
        return value.enter()
    raise wrong_type("", value, "is no Expression; make one with scalarInput, inputTensor or parameter")


def append(op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any = None) -> Expression:
    """Add a node to the graph and return its expression; see `EngineGraph.append`.

    Shape:
        returns: as `op.shape` says.
    """
    graph = state.graph
    return handle_of(graph.append(op, attrs, args, aux), graph.version)


def apply(op: Operation, operands: Sequence[Any], attrs: tuple[Any, ...] = (), aux: Any = None) -> Expression:
    """Add an operation on expressions to the graph.

    Shape:
        operands: as `op.shape` wants them.
        returns: as `op.shape` says.
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
    """Do what `apply` does for two or three operands and no attributes, in less time.

    Shape:
        x, y, z: as `op.shape` wants them.
        returns: as `op.shape` says.

    Args:
        y: the second one.
        z: the third one; an ellipsis for none, since None may be a user's mistake.
    """
    return apply(op, (x, y) if z is ... else (x, y, z))


def unary_operation(op: Operation) -> Callable[..., Expression]:
    """Return the function of an operation that takes one operand and nothing else.

    Shape:
        returns: a function whose operand and result have the shapes that `op.shape` says.
    """

    def made(x: Any) -> Expression:
        return apply(op, (x,))

    def without_native(x: Any) -> Expression:
        graph: Any = state.graph
        if get_ident() != graph.owner.ident:
            graph.change_thread()
        version, numbers = graph.version, graph.numbers
        try:
            node = x.node if x.version == version else x.enter()
            number = graph.plain_trie[numbers[node]][op]
        except (KeyError, IndexError, AttributeError):
            return _learned(op, (x,))
        found = Expression()
        found.node, found.version = len(numbers), version
        numbers.append(number)
        graph.flat.append(node)
        return found

    return made if uses_native() else without_native


def _between(op: Operation, other_way: Callable[[Any, Any], Expression]) -> Callable[[Any, Any], Expression]:
    """Return the operator or function of an operation on two expressions."""

    def without_native(x: Any, y: Any) -> Expression:
        graph: Any = state.graph
        version = graph.version
        try:
            if x.version != version or y.version != version or get_ident() != graph.owner.ident:
                return other_way(x, y)
            numbers, first, second = graph.numbers, x.node, y.node
            number = graph.plain_trie[numbers[first]][op][numbers[second]]
        except (KeyError, IndexError, AttributeError):
            return other_way(x, y)
        found = Expression()
        found.node, found.version = len(numbers), version
        numbers.append(number)
        flat = graph.flat
        flat.append(first)
        flat.append(second)
        return found

    return wraps(other_way)(without_native)


def binary_operation(op: Operation) -> Callable[[_Pair], _Pair]:
    """Return what makes functions of two operands and nothing else faster where there is no native extension."""
    return (lambda made: made) if uses_native() else partial(_between, op)


def _plain(op: Operation, x: Any, y: Any, z: Any = ...) -> Expression:
    graph: Any = state.graph
    if get_ident() != graph.owner.ident:
        graph.change_thread()
    version, numbers = graph.version, graph.numbers
    try:
        first = x.node if x.version == version else x.enter()
        second = y.node if y.version == version else y.enter()
        number = graph.plain_trie[numbers[first]][op][numbers[second]]
        flat = graph.flat
        if z is not ...:
            third = z.node if z.version == version else z.enter()
            number = number[numbers[third]]
            flat.append(first)
            flat.append(second)
            flat.append(third)
        else:
            flat.append(first)
            flat.append(second)
    except (KeyError, IndexError, AttributeError):
        return _learned(op, (x, y) if z is ... else (x, y, z))
    found = Expression()
    found.node, found.version = len(numbers), version
    numbers.append(number)
    return found


def _apply(
    op: Operation, operands: Sequence[Any], attrs: tuple[Any, ...] = (), aux: Any = None
) -> Expression:
    graph: Any = state.graph
    if get_ident() != graph.owner.ident:
        graph.change_thread()
    version, numbers, args = graph.version, graph.numbers, []
    try:
        known = graph.trie[op][attrs]
        for x in operands:
            node = x.node if x.version == version else x.enter()
            known = known[numbers[node]]
            args.append(node)
        number = known[END]
    except (KeyError, IndexError, AttributeError):
        return _applied(op, operands, attrs, aux)
    found = Expression()
    found.version = version
    if number < 0:
        found.node = graph.add(number, args, aux)
        return found
    found.node = node = len(numbers)
    numbers.append(number)
    flat = graph.flat
    flat += args
    if aux is not None:
        graph.aux[node] = aux
    return found


def _learned(op: Operation, operands: Sequence[Any]) -> Expression:
    """Add a node, and let the graph remember what it has become: those like it are made in one step."""
    found = apply(op, operands)
    graph: Any = state.graph
    graph.learn(op, found.node)
    return found


_applied = apply
if not uses_native():  # this is where programs spend their time without native code
    plain, apply = _plain, _apply
    for _op, _name in ((SUM, "__add__"), (MINUS, "__sub__"), (MATMUL, "__mul__"), (CDIV, "__truediv__")):
        setattr(Operators, _name, _between(_op, getattr(Operators, _name)))


def append_many(op: Operation, operands: Sequence[Any], attrs: tuple[Any, ...] = ()) -> Expression:
    """Add an operation on many expressions of one shape.

    Shape:
        operands: all (*d), with minibatches of one size.
        returns: as `op.shape` says.
    """
    graph = state.graph
    version = graph.version
    try:
        args = tuple([x.node if x.version == version else x.enter() for x in operands])
    except AttributeError:
        args = tuple([node_of(x) for x in operands])
    return handle_of(graph.append_many(op, attrs, args), version)


# these remember what operations add to the graph, by the kinds of their operands
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
    """Do what `apply` has refused to do because some operands lack a 1 at the end of their dimensions.

    Shape:
        operands: (*d), some of them with further dimensions of 1.
        returns: (*d), with them or without, as `chosen` says.

    Args:
        error: what it has raised, which goes on if that is not the reason.
        op: the operation, whose operands have equal dimensions.
        chosen: `max` if the result has the longest of their dimensions, `min` if it has the shortest.
    """
    dims = [state.graph.dim(node_of(x)).d for x in operands]
    longest = max(dims, key=len)
    padded = {(*d, *[1] * (len(longest) - len(d))) for d in dims}
    if len(padded) > 1 or len(set(dims)) == 1:
        raise error
    shape = Dim(chosen(dims, key=len))
    return apply(op, [apply(RESHAPE, (x,), (shape,)) for x in operands], attrs)


def as_list(name: str, xs: Iterable[Any]) -> list[Any]:
    """Return a list."""
    try:
        if not isinstance(xs, Operators):  # which has elements, but is one operand
            return list(xs)
    except TypeError:
        if isinstance(xs, Iterator):  # the error is its own
            raise
    raise wrong_type(name, xs, "is no list")


def non_empty_list(name: str, xs: Iterable[Any]) -> list[Any]:
    """Return a list of operands."""
    found = as_list(name, xs)
    if not found:
        raise EmptySequenceError(f"List is empty, nothing to {name}. (at {user_line()})")
    return found


def forward(exps: Iterable[Expression], recalculate: bool = False) -> None:
    """Compute several expressions in one go, whichever of them is the latest.

    Shape:
        exps: any.

    Args:
        exps: what to compute, all of one graph.

    Raises:
        ForeignValueError: `exps` is no list of expressions.
        StaleExpressionError: one belongs to an earlier graph.
        Exception: whatever an operation raises that one depends on.
    """
    found = as_list("forward", exps)
    if found:
        max(found, key=node_of).forward(recalculate)
    if state.graph.has_failed:
        for each in found:
            each.forward()


def values(exps: Iterable[Expression], recalculate: bool = False) -> list[Any]:
    """Compute several expressions in one go and return the `value` of each; see `forward`.

    Args:
        exps: what to compute, all of one graph.

    Shape:
        returns: for each what `Operators.value` returns.

    Raises:
        ForeignValueError: `exps` is no list of expressions; for others see `forward`.
    """
    found = as_list("values", exps)
    forward(found, recalculate)
    return [e.value() for e in found]


def npvalues(exps: Iterable[Expression], recalculate: bool = False) -> list[Array]:
    """Compute several expressions in one go and return the array of each; see `forward`.

    Args:
        exps: what to compute, all of one graph.

    Shape:
        returns: for each (*d), or (*d, batch) of a minibatch of several elements.

    Raises:
        ForeignValueError: `exps` is no list of expressions; for others see `forward`.
    """
    found = as_list("npvalues", exps)
    forward(found, recalculate)
    return [e.npvalue() for e in found]
