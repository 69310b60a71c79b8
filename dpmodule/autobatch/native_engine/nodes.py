"""How the native engine gets nodes: sources, and operations that it has no kernel for."""

from __future__ import annotations

from typing import Any

import numpy as np

from ..ops.native_numbers import DRAW, OP
from ..ops.spec import Dim, Operation
from .parameters import NativeParameters
from .torch_calls import Caller, CallKind


def as_buffer(array: Any) -> Any:
    """Return an array that the engine can read: of floats or doubles, side by side.

    Shape:
        array, returns: equal.
    """
    is_plain = array.dtype.char in "fd" and array.flags.c_contiguous
    return array if is_plain else np.ascontiguousarray(array, np.float32)


class NativeNodes:
    """Adds nodes to an engine, and knows the shapes of those that there are.

    Args:
        caller: runs operations without a kernel.
    """

    def __init__(self, machine: Any, caller: Caller, parameters: NativeParameters) -> None:
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
            self._input_signature(attrs[0])  # refuses what is too large
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
        """Add a node that is run in torch.

        Args:
            many: it takes many operands of one shape.
        """
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
        """Check shapes; return the signature of a call, and those of its further results with their offsets."""
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
        for place in range(1, len(outs)):
            view: int = machine.view_signature(numbers[place], sizes[0])
            extras.append((view, sum(sizes[:place])))
        return signature, tuple(extras)
