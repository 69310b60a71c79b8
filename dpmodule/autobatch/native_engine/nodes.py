"""Nodes of the native engine: parameters, tables, other sources, and operations without a kernel.

The engine checks the addresses of parameters before every forward and backward pass, because a tensor may have been
replaced.
"""

from __future__ import annotations

import weakref
from typing import Any

import numpy as np
import torch

from ..ops.native_kernels import DRAW, OP
from ..ops.spec import Dim, Operation
from ..storage import LookupStorage, ParameterStorage, memory_version
from .torch_calls import CallKind, TorchCaller

Tensor = torch.Tensor


def _tensor(numbers: bytearray, storage: ParameterStorage) -> Tensor:
    """Return the engine's copy of a gradient."""
    return torch.frombuffer(numbers, dtype=torch.float32).view(storage.tensor.shape)


class NativeParameters:
    """Numbers of parameters in an engine, and backups of their gradients."""

    def __init__(self, machine: Any) -> None:
        self._machine = machine
        self._numbers: dict[Any, int] = {}
        self._params: list[tuple[weakref.ref[ParameterStorage], bool]] = []
        self._tables: list[tuple[weakref.ref[LookupStorage], bool]] = []
        self._rows_before: dict[int, tuple[Tensor, Tensor]] = {}
        self._written: list[int] = []  # tables changed by the last backward pass

    def renew(self) -> None:
        """Release data of the last graph."""
        self._rows_before.clear()

    @property
    def count(self) -> int:
        """Number of parameters and tables."""
        return len(self._params) + len(self._tables)

    def gone(self) -> int:
        """Return the number of parameters that no longer exist."""
        params = sum(reference() is None for reference, _ in self._params)
        return params + sum(reference() is None for reference, _ in self._tables)

    def number(self, reference: weakref.ref[ParameterStorage], is_updated: bool) -> int:
        """Return the engine's number for a parameter."""
        key = (reference, is_updated)
        number = self._numbers.get(key)
        if number is None:
            storage = reference()
            shape = tuple(storage.tensor.shape) if storage else ()
            number = self._numbers[key] = self._machine.add_parameter(shape, reference, is_updated)
            self._params.append((reference, is_updated))
        return number

    def dim(self, number: int) -> Dim:
        """Return the shape of a parameter."""
        storage = self._params[number][0]()
        return Dim(tuple(storage.tensor.shape) if storage else ())

    def table_number(self, reference: weakref.ref[LookupStorage], is_updated: bool) -> int:
        """Return the engine's number for a table."""
        key = (reference, is_updated, "rows")
        number = self._numbers.get(key)
        if number is None:
            storage = reference()
            shape = tuple(storage.shape) if storage else (0,)
            number = self._numbers[key] = self._machine.add_table(shape, reference)
            self._tables.append((reference, is_updated))
        return number

    def begin_pass(self) -> None:
        """Prepare a backward pass."""
        self._rows_before.clear()
        self._written.clear()
        self._machine.begin_pass()
        for number in self._machine.used_tables():
            self._begin_table(number)

    def _begin_table(self, number: int) -> None:
        reference, is_updated = self._tables[number]
        storage: Any = reference()  # the graph holds it
        gradient = 0
        if is_updated and storage.updated:
            self._written.append(number)
            if storage.touched and storage.gradient is not None:
                rows = storage.rows()
                self._rows_before[number] = rows, storage.gradient.index_select(0, rows)
            gradient = storage.ready().data_ptr()
        self._machine.set_table_gradient(number, gradient)

    def take_back(self) -> None:
        """Restore the gradients of parameters after a failed pass."""
        for number in self._machine.used_parameters():
            passed = self._machine.passed(number)
            if passed is not None:
                storage: Any = self._params[number][0]()
                storage.clear_gradient()
                if passed[0] is not None:
                    storage.set_gradient(_tensor(passed[0], storage))
        self.take_rows()
        for number in self._written:
            table: Any = self._tables[number][0]()
            table.clear_gradient()
            if number in self._rows_before:
                table.add_rows(*self._rows_before[number])

    def take_rows(self) -> None:
        """Record the rows of tables changed by the pass."""
        for number in self._machine.used_tables():
            rows = self._machine.touched(number)
            storage = self._tables[number][0]()
            if rows and storage is not None:
                storage.touch(torch.frombuffer(rows, dtype=torch.int64))
                if len(storage.touched) > 16:  # many passes before an update
                    storage.rows()

    def gradient(self, number: int) -> Tensor | None:
        """Return the gradient of a parameter in the last pass, None if it is no longer available.

        Shape:
            returns: the parameter's shape.
        """
        reference, is_updated = self._params[number]
        storage: Any = reference()  # the graph holds it
        if not is_updated:
            return torch.zeros_like(storage.tensor)
        total: Tensor | None = storage.gradient
        before, left = self._machine.passed(number) or (None, None)
        if total is None or memory_version(total) != left:
            return None  # updated, scaled or cleared since
        return total.clone() if before is None else total - _tensor(before, storage)

    def collect(self, number: int) -> Tensor:
        """Return separate memory to which the next backward pass adds the gradient.

        Shape:
            returns: the parameter's shape.
        """
        storage: Any = self._params[number][0]()
        found = torch.zeros(storage.tensor.shape, dtype=torch.float32)
        self._machine.set_gradient(number, found.data_ptr())
        return found


def as_buffer(array: Any) -> Any:
    """Convert to a contiguous array of float32 or float64, which the engine can read.

    Shape:
        array, returns: equal.
    """
    is_plain = array.dtype.char in "fd" and array.flags.c_contiguous
    return array if is_plain else np.ascontiguousarray(array, np.float32)


class NativeNodes:
    """Adds nodes to an engine and caches their shapes.

    Args:
        caller: runs operations without a kernel.
    """

    def __init__(self, machine: Any, caller: TorchCaller, parameters: NativeParameters) -> None:
        self._machine, self._caller, self._parameters = machine, caller, parameters
        self._calls: dict[Any, tuple[int, tuple[tuple[int, int], ...]]] = {}
        self._inputs: dict[Dim, int] = {}
        self._dims: dict[int, Dim] = {}

    def dim(self, node: int) -> Dim:
        """Return the shape of a node."""
        machine = self._machine
        number = machine.shape_of(node)
        found = self._dims.get(number)
        if found is None:
            found = self._dims[number] = Dim(*machine.dim(node))
        return found

    def source(self, op: Operation, attrs: tuple[Any, ...], aux: Any) -> int:
        """Add a node without operands: an input, a parameter, a row of a table, random numbers."""
        machine, name = self._machine, op.name
        node: int
        if name == "input":
            return self._input(attrs[0], aux)
        if name == "constant":
            self._input_signature(attrs[0])  # raises an error if it is too large
            return self._input(attrs[0], np.full((attrs[0].batch, *attrs[0].d), aux, np.float32))
        if name == "one_hot":
            self._input_signature(attrs[0])
            ones = np.zeros((attrs[0].batch, *attrs[0].d), np.float32)
            ones[np.arange(len(aux)), aux] = 1.0
            return self._input(attrs[0], ones)
        if name == "parameter":
            node = machine.parameter(self._parameters.number(attrs[1], bool(attrs[2])))
        elif name in ("lookup", "const_lookup"):
            node = machine.lookup(self._parameters.table_number(attrs[1], name == "lookup"), aux)
        elif "lookup" in name:
            table = self._parameters.table_number(attrs[1], name == "lookup_batch")
            node = machine.kernel(OP["concat"], -2, [machine.lookup(table, row) for row in aux])
        elif name == "random":
            dim, kind, first, second = attrs
            node = machine.random(DRAW[kind], machine.shape(dim.d, dim.batch), first, second)
        else:
            return self.call(op, attrs, (), aux, False)
        return node

    def _input_signature(self, dim: Dim) -> int:
        signature = self._inputs.get(dim)
        if signature is None:
            signature = self._inputs[dim] = self._machine.input_signature(
                self._machine.shape(dim.d, dim.batch)
            )
        return signature

    def _input(self, dim: Dim, array: Any) -> int:
        node: int = self._machine.input(self._input_signature(dim), as_buffer(array))
        return node

    def call(self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any, many: bool) -> int:
        """Add a node that runs in torch; `many` marks operations on many operands of one shape."""
        machine = self._machine
        shapes = tuple([machine.shape_of(arg) for arg in args])
        apart = tuple([machine.parameter_of(arg) for arg in args]) if not many else ()
        key = (
            (op, attrs, frozenset(shapes), many and not op.ragged and len(args))
            if many
            else (op, attrs, shapes, apart)
        )
        found = self._calls.get(key)
        if found is None:
            found = self._calls[key] = self._describe(op, attrs, args, apart, many)
        signature, extras = found
        node: int = machine.append(
            signature, args, self._caller.keep_argument(aux) if op.aux or op.random else 0
        )
        for view, offset in extras:
            machine.append(view, (node,), offset)
        return node

    def _describe(
        self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...], apart: tuple[int, ...], many: bool
    ) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Check shapes; return the signature of a call, and the signatures and offsets of its further results."""
        machine = self._machine
        dims = tuple([self.dim(arg) for arg in args[: 1 if many else None]])
        shaped = op.shape(attrs, dims)
        outs: tuple[Dim, ...] = (shaped,) if isinstance(shaped, Dim) else shaped
        self._caller.kinds.append(CallKind(op, attrs, dims, outs))
        sizes = [dim.size * dim.batch for dim in outs]
        numbers = [machine.shape(dim.d, dim.batch) for dim in outs]
        widths = [dim.size * dim.batch for dim in dims]
        keeps = apart if not many else ((-1,) if op.ragged else (len(args),))
        signature: int = machine.call_signature(
            len(self._caller.kinds) - 1,
            numbers[0],
            widths,
            sum(sizes[1:]),
            -1 if many else len(args),
            keeps,
            op.constant,
        )
        extras = []
        for index in range(1, len(outs)):
            view: int = machine.view_signature(numbers[index], sizes[0])
            extras.append((view, sum(sizes[:index])))
        return signature, tuple(extras)
