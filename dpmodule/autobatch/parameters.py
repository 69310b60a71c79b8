"""Parameters and lookup parameters, which are also expressions."""

from __future__ import annotations

import weakref
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from . import text_format
from .arguments import as_integer, flag, number, numbers, text
from .errors import BoundsError, NegativeIndexError, ShapeError, StateError, user_line, wrong_type
from .expression import Expression, as_list, c_version, handle_of, non_empty_list, uses_native
from .graph import node_holders
from .ops.join import TRANSPOSE
from .ops.source import CONST_LOOKUP, CONST_LOOKUP_BATCH, LOOKUP, LOOKUP_BATCH, PARAMETER
from .ops.spec import Dim
from .session import state
from .storage import LookupStorage, ParameterStorage

Array = NDArray[Any]
_new = Expression.__new__


class _GraphParameter(Expression):
    """Base of parameters and tables: a storage, and one node in each graph that uses it.

    Shape:
        value, gradient: (*d), or (rows, *d) for a table.
    """

    __slots__ = ("_constant", "_constant_version", "_storage")

    def __init__(self, storage: ParameterStorage) -> None:
        self.become(-1, -1)
        if not isinstance(storage, ParameterStorage):
            raise wrong_type(
                type(self).__name__,
                storage,
                "is not the storage of a parameter; create parameters with ParameterCollection.add_parameters",
            )
        self._storage = storage
        self._constant, self._constant_version = -1, -1

    @property
    def storage(self) -> ParameterStorage:
        """The storage, which never changes, since graphs and trainers refer to it."""
        return self._storage

    @storage.setter
    def storage(self, value: Any) -> None:
        raise StateError(
            f"{self!r}: its storage cannot be replaced, since graphs and trainers use it; set_value() copies values"
            f" into it (at {user_line()})"
        )

    def replace_storage(self, storage: ParameterStorage) -> None:
        """Replace the storage before the parameter is used."""
        self._storage = storage

    def enter(self) -> int:
        graph = state.graph
        graph.check_thread()
        if self.version != graph.version:
            node = graph.enter(self)
            if node < 0:
                self._check()
                node = self._add(True)
            self.node, self.version = node, graph.version
            node_holders.add(self, graph.version)
        return self.node

    def _check(self) -> None:
        self.storage.check_fits(state.options.device, state.options.dtype)

    def _add(self, is_updated: bool) -> int:
        storage = self.storage
        attrs = (Dim(tuple(storage.tensor.shape)), weakref.ref(storage), is_updated)
        return state.graph.append(PARAMETER, attrs, (), storage)

    def forget_nodes(self, size: int) -> None:
        """Forget nodes from number `size` on, which are no longer in the graph."""
        if self.node >= size:
            self.become(-1, -1)
        if self._constant >= size:
            self._constant = self._constant_version = -1

    def expr(self, update: bool = True) -> Expression:
        """Return the expression of the parameter in the graph under construction.

        Shape:
            returns: (*d), or (*d, rows) for a table.

        Args:
            update: False for a constant, into which no gradient flows.
        """
        graph = state.graph
        if flag(update, "update"):
            return handle_of(self.enter(), graph.version)
        graph.check_thread()
        if self._constant_version != graph.version:
            self._check()
            self._constant, self._constant_version = self._add(False), graph.version
            node_holders.add(self, graph.version)
        return handle_of(self._constant, graph.version)

    def name(self) -> str:
        """Return the full name, such as "/encoder/W"."""
        return self.storage.name

    @property
    def tensor(self) -> torch.Tensor:
        """The value; changes to it affect the next graph.

        Shape:
            returns: (*d), or (rows, *d) for a table.
        """
        return self.storage.whole()

    @property
    def grad(self) -> torch.Tensor:
        """The gradient accumulated since the last update.

        Shape:
            returns: (*d), or (rows, *d) for a table.
        """
        return self.storage.dense_gradient()

    def shape(self) -> tuple[int, ...]:
        """Return the shape."""
        return tuple(self.storage.shape)

    def as_array(self) -> Array:
        """Return a float64 copy of the value.

        Shape:
            returns: (*d), or (rows, *d) for a table.
        """
        return _copy(self.storage.whole())

    def grad_as_array(self) -> Array:
        """Return a float64 copy of the gradient accumulated since the last update.

        Shape:
            returns: (*d), or (rows, *d) for a table.
        """
        return _copy(self.storage.dense_gradient())

    def is_updated(self) -> bool:
        """Return True if trainers update the parameter."""
        return self.storage.updated

    def set_updated(self, b: bool) -> None:
        """Choose whether trainers update the parameter, and `backward` accumulates its gradient."""
        self.storage.updated = flag(b, "set_updated")
        self.serial = 0  # makes the engine check again

    def zero(self) -> None:
        """Set all values to zero."""
        self._writable().zero_()

    def scale(self, s: float) -> None:
        """Multiply all values."""
        self._writable().mul_(number(s, "scale: s"))

    def scale_gradient(self, s: float) -> None:
        """Multiply the gradient."""
        self.storage.scale_gradient(number(s, "scale_gradient: s"))

    def clip_inplace(self, left: float, right: float) -> None:
        """Clip values to the range from `left` to `right`."""
        left, right = number(left, "clip_inplace: left"), number(right, "clip_inplace: right")
        self._writable().clamp_(left, right)

    def set_value(self, arr: ArrayLike) -> None:
        """Copy an array into the value.

        Shape:
            arr: (*d), or (rows, *d) for a table.
        """
        array = numbers(arr, "set_value: arr")
        target = self._writable()
        if array.shape != target.shape:
            raise ShapeError(f"{self.name()}: set_value of {array.shape}, expected {self.shape()}")
        if array.dtype.char not in "fd":
            array = array.astype(np.float64)
        target.copy_(torch.from_numpy(array))

    def _writable(self) -> torch.Tensor:
        """Return the value for writing, after preserving values that the graph has computed from it."""
        state.graph.settle()
        return self.storage.whole()

    def save(self, fname: str, key: str = "", append: bool = False) -> None:
        """Write the value to a text file that DyNet can read.

        Args:
            key: name in the file; by default the parameter's name.
            append: append to the file; by default it is replaced atomically.
        """
        text_format.save_one(self.storage, fname, key, append, isinstance(self, LookupParameters))

    def populate(self, fname: str, key: str = "") -> None:
        """Read the value from a file.

        Args:
            key: name in the file; by default the parameter's name.
        """
        state.graph.settle()
        text_format.populate_one(
            self.storage, fname, text(key, "key") or self.storage.name, isinstance(self, LookupParameters)
        )

    write_to_textfile = save
    populate_from_textfile = populate


class Parameters(_GraphParameter):
    """A parameter of a collection, created by `ParameterCollection.add_parameters`.

    Args:
        storage: values, gradients and name; created by `ParameterCollection`.

    Shape:
        value: (*d), the `dim` given to `add_parameters`.

    Example:
        >>> import dpmodule.autobatch as dy
        >>> m = dy.ParameterCollection()
        >>> W = m.add_parameters((3, 2), init=1.0)
        >>> (W * dy.inputTensor([1.0, 2.0])).npvalue()
        array([3., 3., 3.])

    Source: DyNet's `Parameters`.
    """

    __slots__ = ()

    def _add(self, is_updated: bool) -> int:
        node = super()._add(is_updated)
        if is_updated:
            state.graph.remember(self, node)
        return node

    def zero(self) -> None:
        """Set all values and the gradient to zero; a lookup table keeps its gradient, as in DyNet."""
        super().zero()
        self.storage.clear_gradient()

    def __repr__(self) -> str:
        return f"Parameter {self.storage.name}"


class LookupParameters(_GraphParameter):
    """A lookup table of vectors or larger parameters, created by `ParameterCollection.add_lookup_parameters`.

    Args:
        storage: values, gradients and name; created by `ParameterCollection`.

    Shape:
        value: (rows, *d).
        as an expression: (*d, rows), as in DyNet.

    Source: DyNet's `LookupParameters`.
    """

    __slots__ = ("_adopted_version", "_attrs", "_size")

    _storage: LookupStorage

    def __init__(self, storage: LookupStorage) -> None:
        super().__init__(storage)
        self._attrs = _attributes(storage)
        self._size = storage.shape[0]
        self._adopted_version = -1  # version of the graph that has adopted the table
        self.table = 0  # the native engine's number, see `NativeGraph.adopt`

    def replace_storage(self, storage: ParameterStorage) -> None:
        super().replace_storage(storage)
        self._attrs, self._adopted_version, self.serial = _attributes(self._storage), -1, 0

    def __repr__(self) -> str:
        return f"LookupParameter {self.storage.name}"

    def __len__(self) -> int:
        return self._size

    if TYPE_CHECKING or not uses_native():

        def __getitem__(self, index: Any) -> Expression:
            """Return row `index` as an expression.

            Shape:
                returns: (*d).
            """
            return self.row(index)

    def row(self, index: int, update: bool = True) -> Expression:
        """Return a row as an expression.

        Shape:
            returns: (*d).

        Args:
            index: row number.
            update: False for a constant, into which no gradient flows.

        Raises:
            BoundsError: the row does not exist.
            NegativeIndexError: `index` is negative.
            ForeignValueError: it is not an integer, or `update` is not a bool.
        """
        if type(index) is not int or not 0 <= index < self._size:
            (index,) = checked_rows(self, [index])
        graph = state.graph
        version, is_updated = graph.version, update is True or flag(update, "update")
        if self._adopted_version != version:
            graph.adopt(self, is_updated)
            self._adopted_version = version if is_updated else -1
        found = _new(Expression)
        place = self._storage.place(index, version)
        found.node = graph.append(LOOKUP if is_updated else CONST_LOOKUP, self._attrs, (), place)
        found.version = version
        return found

    def batch(self, i: Sequence[int], update: bool = True) -> Expression:
        """Return rows as one expression with a minibatch of ``len(i)``.

        Shape:
            returns: (*d), with a minibatch of ``len(i)``.

        Args:
            update: see `row`.

        Raises:
            BoundsError: the row does not exist.
            EmptySequenceError: `i` is empty.
            NegativeIndexError: a row number is negative.
            ForeignValueError: `i` is not a list of integers.
        """
        return _updated_rows(self, i) if update is True else _rows(self, i, update)

    def _add(self, is_updated: bool) -> int:
        """Add the whole table as one expression, whose last dimension counts the rows, as in DyNet."""
        storage = self.storage
        whole = Dim(tuple(storage.whole().shape))
        order = (*range(1, len(whole.d)), 0)
        node = state.graph.append(PARAMETER, (whole, weakref.ref(storage), is_updated), (), storage)
        return state.graph.append(TRANSPOSE, (order,), (node,))

    def init_row(self, i: int, row: ArrayLike) -> None:
        """Copy an array into a row.

        Shape:
            row: (*d), or flat.

        Args:
            row: the row's shape; or flat, in column-major order.

        Raises:
            BoundsError: the row does not exist.
            ForeignValueError: `row` contains anything but numbers.
            ShapeError: `row` has the wrong size.
            NegativeIndexError: `i` is negative.
        """
        checked_rows(self, [i])
        values = torch.from_numpy(np.ascontiguousarray(numbers(row, "init_row: row"), np.float64))
        target = self._writable()[i]
        if values.numel() != target.numel():
            raise ShapeError(
                f"{self.name()}: init_row of {tuple(values.shape)}, expected {tuple(target.shape)}"
            )
        if values.dim() == 1:
            values = values.reshape(tuple(reversed(target.shape))).permute(*reversed(range(target.dim())))
        target.copy_(values.reshape(target.shape))

    def init_from_array(self, arr: ArrayLike) -> None:
        """Copy an array into the first rows.

        Shape:
            arr: (at most as many rows, *d).

        Raises:
            ForeignValueError: `arr` contains anything but numbers.
            ShapeError: `arr` has too many rows, or rows of the wrong shape.
        """
        array = numbers(arr, "init_from_array: arr")
        shape = self.shape()
        if array.ndim == 0 or len(array) > shape[0] or array.shape[1:] != shape[1:]:
            raise ShapeError(f"{self.name()}: init_from_array of {array.shape}, expected at most {shape}")
        self._writable()[: len(array)].copy_(torch.from_numpy(np.ascontiguousarray(array, np.float64)))

    def row_as_array(self, row: int) -> Array:
        """Return a float64 copy of one row.

        Args:
            row: row number, from 0.

        Shape:
            returns: (*d).

        Raises:
            BoundsError: the row does not exist.
            NegativeIndexError: `row` is negative.
        """
        answer: Array = self.rows_as_array([row])[0]
        return answer

    def rows_as_array(self, rows: Sequence[int]) -> Array:
        """Return a float64 copy of several rows.

        Args:
            rows: row numbers, in any order.

        Shape:
            returns: (len(rows), *d).

        Raises:
            BoundsError: the row does not exist.
            NegativeIndexError: a row number is negative.
        """
        return _copy(self.storage.whole()[checked_rows(self, rows)])

    def row_grad_as_array(self, row: int) -> Array:
        """Return a copy of the accumulated gradient of one row; see `row_as_array`.

        Args:
            row: row number, from 0.

        Shape:
            returns: (*d).

        Raises:
            BoundsError: the row does not exist.
            NegativeIndexError: `row` is negative.
        """
        answer: Array = self.rows_grad_as_array([row])[0]
        return answer

    def rows_grad_as_array(self, rows: Sequence[int]) -> Array:
        """Return a copy of the gradient of several rows; see `row_grad_as_array`.

        Args:
            rows: row numbers, in any order.

        Shape:
            returns: (len(rows), *d).

        Raises:
            BoundsError: the row does not exist.
            NegativeIndexError: a row number is negative.
        """
        return _copy(self.storage.dense_gradient()[checked_rows(self, rows)])


def _attributes(storage: LookupStorage) -> tuple[Dim, weakref.ref[LookupStorage]]:
    """Return the attributes of the nodes that look up rows."""
    return Dim(tuple(storage.shape[1:]) or (1,)), weakref.ref(storage)


def _copy(tensor: torch.Tensor) -> Array:
    found: Array = tensor.numpy(force=True).astype(np.float64)
    return found


def _rows(table: LookupParameters, i: Sequence[int], update: bool = True) -> Expression:
    rows = non_empty_list("look up", checked_rows(table, i))
    dim, reference = table._attrs
    graph, storage = state.graph, table._storage
    rows = [storage.place(row, graph.version) for row in rows]
    op = LOOKUP_BATCH if flag(update, "update") else CONST_LOOKUP_BATCH
    graph.adopt(table, op is LOOKUP_BATCH)
    return handle_of(graph.append(op, (Dim(dim.d, len(rows)), reference), (), rows), graph.version)


_updated_rows = c_version("lookup_batch", _rows)


def checked_rows(table: LookupParameters, rows: Sequence[int]) -> list[int]:
    """Convert row numbers to integers and check their range."""
    indices = [as_integer(row, table.name()) for row in as_list("look up", rows)]
    size = len(table)
    for row in indices:
        if not 0 <= row < size:
            table._storage.refuse(row)
        if row < 0:
            raise NegativeIndexError(f"{table.name()}: can't convert negative index {row} (at {user_line()})")
        if row >= size:
            raise BoundsError(
                f"Out-of-bounds attempt to access index {row} for LookupParameter {table.name()} of size {size}"
                f" (at {user_line()})"
            )
    return indices
