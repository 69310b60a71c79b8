"""The graph whose node table and engine are native (`dpmodule/native/autobatch`); its interface is that of `Graph`.

Operations with kernels become nodes of the engine; all others are nodes whose batches `native_calls` runs in torch.
Parameters are shared by pointer: looked up again before every forward and backward pass, because a tensor may have been
replaced.
"""

from __future__ import annotations

import time
import weakref
from typing import Any, NamedTuple

import numpy as np
import torch

from .calling import check_free
from .errors import NoGradientError, NonFiniteError, NotScalarError, StateError, user_line
from .native_calls import Caller, CallKind
from .native_kernels import KERNELS, kernel_name
from .ops.source import PARAMETER
from .ops.spec import Dim, Op, shown
from .storage import LookupStorage, ParameterStorage

__all__ = ["Batch", "NativeGraph"]

Tensor = torch.Tensor


class Batch(NamedTuple):
    """What was run together.

    Args:
        operations: names, in order of computation; more than one where they were fused.
        dim: the shape of the result.
        rows: how many nodes of the last operation.
        level: the step of the recurrence, 0 outside of one.
        alone: for a batch of one, why; else empty.
    """

    operations: tuple[str, ...]
    dim: Dim
    rows: int
    level: int
    alone: str


def _as_buffer(array: Any) -> Any:
    """Return an array that the engine can read: of floats or doubles, side by side."""
    is_plain = array.dtype.char in "fd" and array.flags.c_contiguous
    return array if is_plain else np.ascontiguousarray(array, np.float32)


class _Named(NamedTuple):
    """Stands for an operation of which only the name is known."""

    name: str


class _Signature:
    """What a node is, as far as others ask: its `Dim` and its operation, `PARAMETER` or something with a name."""

    __slots__ = ("dim", "kind", "op")

    def __init__(self, dim: Dim, op: Op | _Named) -> None:
        self.dim, self.op = dim, op
        self.kind = self


def _mark(tensor: Tensor) -> tuple[int, int]:
    """Return what tells whether somebody has written to a tensor, or taken another one."""
    return tensor.data_ptr(), tensor._version


class NativeGraph:
    """The node table and engine in C++.

    Args:
        core: the native extension.
        options: what `configure` sets.
        version: that of the first graph.
    """

    LIMIT = 50_000
    """So many signatures are kept from graph to graph."""

    def __init__(self, core: Any, options: Any, version: int = 0) -> None:
        self.options, self.version = options, version
        self.is_immediate = self.is_checking = False
        self._core = core
        self._begin()
        self.machine.activate(version)

    def _begin(self) -> None:
        """Make an engine that knows no signatures and parameters yet."""
        self.machine = self._core.AutobatchEngine()
        self.machine.batched = self.options.autobatch
        self._caller = Caller(self.options)
        self.machine.set_caller(self._caller.forward, self._caller.backward, self._caller.numbers)
        self._calls: dict[Any, tuple[int, tuple[tuple[int, int], ...]]] = {}
        self._params: list[tuple[weakref.ref[ParameterStorage], bool]] = []
        self._tables: list[tuple[weakref.ref[LookupStorage], bool]] = []
        self._numbers: dict[Any, int] = {}
        self._before: dict[int, Tensor] = {}
        self._rows_before: dict[int, tuple[Tensor, Tensor]] = {}
        self._held: list[ParameterStorage | None] = []
        self._inputs: dict[Dim, int] = {}
        self._dims: dict[int, Dim] = {}
        self._marks: list[tuple[int, int]] = []
        self._seen: list[tuple[int, int]] = []
        self._values_at_root: dict[weakref.ref[ParameterStorage], tuple[int, int]] = {}
        self._left: dict[int, tuple[int, int]] = {}  # gradients of parameters, as `backward` has left them
        self._packed: dict[int, Tensor] = {}  # copies of parameters whose elements do not lie side by side
        self._root = -1
        self._built, self._idle_since = 0.0, time.perf_counter()

    def _tidy(self) -> None:
        """Start afresh if there is too much, or if most parameters are gone."""
        count = len(self._params) + len(self._tables)
        is_full = self.machine.signatures > self.LIMIT or len(self._caller.kinds) > self.LIMIT
        if is_full or (count > 256 and 2 * self._gone() > count):
            self._begin()

    def _gone(self) -> int:
        """Count the parameters that nobody holds any more."""
        params = sum(reference() is None for reference, _ in self._params)
        return params + sum(reference() is None for reference, _ in self._tables)

    # ---- making nodes ----

    @property
    def size(self) -> int:
        """The number of nodes."""
        found: int = self.machine.size
        return found

    def append(self, op: Op, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any = None) -> int:
        """Add a node; see `graph`.

        Raises:
            ShapeError: the operands do not fit.
        """
        if args:
            maker = KERNELS.get(op.name)
            node = maker(self.machine, attrs, args, aux) if maker is not None else -1
            if node < 0:
                node = self._append_call(op, attrs, args, aux, False)
        else:
            node = self._append_source(op, attrs, aux)
        if self.is_immediate:
            self._compute_at_once(node, op)
        return node

    def append_many(self, op: Op, attrs: tuple[Any, ...], args: tuple[int, ...]) -> int:
        """Add a node that takes many operands of one shape.

        Raises:
            ShapeError: the operation does not take this shape.
        """
        maker = KERNELS.get(op.name)
        node = maker(self.machine, attrs, args, None) if maker is not None else -1
        if node < 0:
            node = self._append_call(op, attrs, args, None, True)
        if self.is_immediate:
            self._compute_at_once(node, op)
        return node

    def _append_source(self, op: Op, attrs: tuple[Any, ...], aux: Any) -> int:
        machine, name = self.machine, op.name
        node: int
        if name == "input":
            return self._input(attrs[0], aux)
        if name == "constant":
            self._input_signature(attrs[0])  # refuses what is too large
            return self._input(attrs[0], np.full((attrs[0].batch, *attrs[0].d), aux, np.float32))
        if name == "parameter" or "lookup" in name:
            self._held.append(attrs[1]())  # alive as long as the graph
        if name == "parameter":
            node = machine.parameter(self._parameter(attrs[1], bool(attrs[2])))
        elif name in ("lookup", "const_lookup"):
            node = machine.lookup(self.table_number(attrs[1], name == "lookup"), aux)
        else:
            return self._append_call(op, attrs, (), aux, False)
        return node

    def _input_signature(self, dim: Dim) -> int:
        signature = self._inputs.get(dim)
        if signature is None:
            signature = self._inputs[dim] = self.machine.input_signature(self.machine.shape(dim.d, dim.batch))
        return signature

    def _input(self, dim: Dim, array: Any) -> int:
        node: int = self.machine.input(self._input_signature(dim), _as_buffer(array))
        return node

    def set_input(self, node: int, array: Any) -> None:
        """Replace the array of an input, (batch, *d), and forget values if it has been read already."""
        self.machine.set_input(node, _as_buffer(array))
        if node < max(self.machine.computed, self._root):
            self.recalculate()

    def _append_call(
        self, op: Op, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any, many: bool
    ) -> int:
        machine = self.machine
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
        node: int = machine.append(signature, args, self._caller.number(aux) if op.aux or op.random else 0)
        for view, offset in extras:
            machine.append(view, (node,), offset)
        return node

    def _describe(
        self, op: Op, attrs: tuple[Any, ...], args: tuple[int, ...], apart: tuple[int, ...], many: bool
    ) -> tuple[int, tuple[tuple[int, int], ...]]:
        """Check shapes; return the signature of a call, and those of its further results with their offsets."""
        machine = self.machine
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

    def _compute_at_once(self, node: int, op: Op) -> None:
        value = self.value(node)
        if self.is_checking and not bool(torch.isfinite(value).all()):
            raise NonFiniteError(f"the value of node {node} ({op.name}) is not finite")

    # ---- parameters ----

    def _parameter(self, reference: weakref.ref[ParameterStorage], is_updated: bool) -> int:
        key = (reference, is_updated)
        number = self._numbers.get(key)
        if number is None:
            storage = reference()
            number = self._numbers[key] = self.machine.add_parameter(
                tuple(storage.tensor.shape) if storage else ()
            )
            self._params.append((reference, is_updated))
            self._seen.append((0, -1))
        return number

    def table_number(self, reference: weakref.ref[LookupStorage], is_updated: bool) -> int:
        """Return the engine's number of a table of rows."""
        key = (reference, is_updated, "rows")
        number = self._numbers.get(key)
        if number is None:
            storage = reference()
            shape = tuple(storage.tensor.shape) if storage else (0,)
            number = self._numbers[key] = self.machine.add_table(shape[0], shape[1:] or (1,))
            self._tables.append((reference, is_updated))
        return number

    def adopt(self, table: Any, is_updated: bool) -> None:
        """Let the engine itself look up rows of a table from now on."""
        if table.serial != self.machine.serial:
            table.storage.check_fits(self.options.device, self.options.dtype)
        if is_updated and table.serial != self.machine.serial:
            table.table = self.table_number(weakref.ref(table.storage), True)
            table.serial = self.machine.serial

    def _refresh(self, with_gradients: bool) -> None:
        """Tell the engine where parameters lie now, and that their values changed if they did."""
        machine = self.machine
        params, tables = machine.used()
        changed = False
        for number in params:
            reference, is_updated = self._params[number]
            storage = reference()
            if storage is None:
                continue
            tensor = storage.tensor
            now = _mark(tensor)
            has_changed = now != self._seen[number]
            changed |= has_changed
            self._seen[number] = now
            if has_changed:
                self._packed.pop(number, None)
            gradient = 0
            if with_gradients and is_updated and storage.updated:
                if storage.gradient is not None:
                    self._before[number] = storage.gradient.clone()
                gradient = self._gradient_of(storage)
                self._left[number] = _mark(storage.gradient)
            machine.set_parameter(number, self._address(number, tensor), gradient)
        for number in tables:
            reference, is_updated = self._tables[number]
            storage = reference()
            if storage is not None:
                wanted = with_gradients and is_updated and storage.updated
                if wanted and storage.touched and storage.gradient is not None:
                    rows = storage.rows()
                    self._rows_before[number] = rows, storage.gradient.index_select(0, rows)
                machine.set_table(
                    number, storage.tensor.data_ptr(), storage.ready().data_ptr() if wanted else 0
                )
        if changed:
            machine.parameters_changed()

    def _address(self, number: int, tensor: Tensor) -> int:
        if tensor.is_contiguous():
            return tensor.data_ptr()
        if number not in self._packed:
            self._packed[number] = tensor.contiguous()
        return self._packed[number].data_ptr()

    @staticmethod
    def _gradient_of(storage: ParameterStorage) -> int:
        if isinstance(storage, LookupStorage):
            # a table used as one expression: looked-up rows add to the same memory
            buffer = storage.ready()
            storage.touched.append(torch.arange(len(storage.tensor)))
            return buffer.data_ptr()
        if storage.gradient is None:
            storage.gradient = torch.zeros_like(storage.tensor) if storage.spare is None else storage.spare
            storage.spare = None
        elif not storage.gradient.is_contiguous():
            storage.gradient = storage.gradient.contiguous()
        return storage.gradient.data_ptr()

    # ---- values and gradients ----

    def dim(self, node: int) -> Dim:
        """Return the shape of a node."""
        machine = self.machine
        number = machine.shape_of(node)
        found = self._dims.get(number)
        if found is None:
            found = self._dims[number] = Dim(*machine.dim(node))
        return found

    def are_alike(self, nodes: list[int]) -> bool:
        """Say whether all nodes have one shape, and none is a parameter."""
        found: bool = self.machine.are_alike(nodes)
        return found

    def signature(self, node: int) -> _Signature:
        """Return what a node is."""
        machine = self.machine
        if machine.parameter_of(node) >= 0:
            return _Signature(self.dim(node), PARAMETER)
        op, kind, *_ = machine.describe(machine.signature_of(node))
        return _Signature(self.dim(node), _Named(self._name(op, kind)))

    def forward(self, node: int) -> None:
        """Compute what is missing up to a node."""
        machine = self.machine
        if node < machine.computed and not machine.is_fused(node):
            return
        if machine.busy:
            raise StateError("the graph is being computed: an operation on it must not use it itself")
        self._built += time.perf_counter() - self._idle_since
        self._refresh(False)
        self._run(node)
        self._idle_since = time.perf_counter()

    def _run(self, node: int) -> None:
        try:
            self.machine.forward(node)
        except BaseException:
            self._caller.cut(self.machine.computed)
            raise

    def _tensor(self, node: int, data: bytearray) -> Tensor:
        dim = self.dim(node)
        return torch.frombuffer(data, dtype=torch.float32).view(dim.batch, *dim.d)

    def value(self, node: int) -> Tensor:
        """Return the value of a node, (batch, *d)."""
        if node < self.machine.computed and not self.machine.is_fused(node):
            self._refresh(False)  # a parameter is read where it lies now
        else:
            self.forward(node)
        return self._tensor(node, self.machine.value(node))

    def backward(self, node: int, full: bool = False) -> None:
        """Compute gradients from a node of one number.

        Raises:
            NotScalarError: it has more than one.
            StateError: it was the last one `backward` was called for.
        """
        dim = self.dim(node)
        if dim.size * dim.batch != 1:
            raise NotScalarError(
                f"backward() can only be called on scalar nodes, but node {node} has dimension: {shown(dim)};"
                " sum it up first, with sum_elems or sum_batches"
            )
        if self._root == node:
            raise StateError(
                f"backward() was called twice for node {node}: the gradients of the parameters would be counted"
                " twice; call renew_cg() and build the graph again, or add the losses up before backward()"
            )
        self.forward(node)
        self._before.clear()
        self._rows_before.clear()
        self._left.clear()
        self._refresh(True)
        try:
            self.machine.backward(node, full)
        except BaseException:
            self._take_back()
            raise
        self._idle_since = time.perf_counter()
        self._root, self._values_at_root = node, self._marks_of_values()
        self._take_rows()

    def _take_back(self) -> None:
        """Make the gradients of parameters what they were before a pass that has failed."""
        for number in self._left:
            storage: Any = self._params[number][0]()
            storage.clear_gradient()
            if number in self._before:
                storage.set_gradient(self._before[number])
        self._root = -1
        self._take_rows()
        for number in self.machine.used()[1]:
            table: Any = self._tables[number][0]()
            table.clear_gradient()
            if number in self._rows_before:
                table.add_rows(*self._rows_before[number])

    def _take_rows(self) -> None:
        for number in self.machine.used()[1]:
            rows = self.machine.touched(number)
            storage = self._tables[number][0]()
            if rows and storage is not None:
                storage.touch(torch.frombuffer(rows, dtype=torch.int64))
                if len(storage.touched) > 16:  # many passes before an update
                    storage.rows()

    def gradient(self, node: int) -> Tensor:
        """Return the gradient of the last `backward` with respect to a node, (batch, *d).

        Raises:
            NoGradientError: there was none, or it began at an earlier node.
        """
        if self._root < node:
            origin = "no backward pass has been run" if self._root < 0 else f"it ran from node {self._root}"
            raise NoGradientError(
                f"requested the gradient of node {node}, but {origin}; call backward() on an expression that depends"
                " on it first (with full=True if no parameter feeds it)"
            )
        machine, dim = self.machine, self.dim(node)
        number = machine.parameter_of(node)
        if number >= 0:
            return self._gradient_of_parameter(number)[None]
        if self._root >= machine.computed or not machine.keeps_gradient(node):
            self._compute_again()
        found = machine.gradient(node)
        return torch.zeros(dim.batch, *dim.d) if found is None else self._tensor(node, found)

    def _gradient_of_parameter(self, number: int) -> Tensor:
        reference, is_updated = self._params[number]
        storage: Any = reference()  # the graph holds it
        if not is_updated:
            return torch.zeros_like(storage.tensor)
        total: Tensor | None = storage.gradient
        if total is not None and _mark(total) == self._left.get(number):
            before = self._before.get(number)
            return total.clone() if before is None else total - before
        found = torch.zeros(storage.tensor.shape)  # it was updated, scaled, or made zero since
        self._compute_again(number, found)
        return found

    def _marks_of_values(self) -> dict[weakref.ref[ParameterStorage], tuple[int, int]]:
        """Return marks that tell whether the values of parameters and tables in the graph were changed."""
        params, tables = self.machine.used()
        references = [self._params[each][0] for each in params] + [self._tables[each][0] for each in tables]
        return {each: _mark(storage.tensor) for each in references if (storage := each()) is not None}

    def _compute_again(self, number: int = -1, gradient: Tensor | None = None) -> None:
        """Compute everything once more without fusion, and the gradient of one parameter at most.

        Raises:
            StateError: parameters are no longer what they were.
        """
        machine = self.machine
        self.check_free("gradient")
        self._refresh(False)
        now = self._marks_of_values()
        if any(now[each] != mark for each, mark in self._values_at_root.items()):
            raise StateError(
                "parameters were changed since backward(), and this gradient was not kept; ask for gradient() before"
                f" trainer.update() (at {user_line()})"
            )
        self._caller.keep()
        machine.fuses, self._caller.is_repeating = False, True
        try:
            machine.revert(self.size, 0)
            self._run(self._root)
            if gradient is not None:
                storage: Any = self._params[number][0]()
                machine.set_parameter(number, self._address(number, storage.tensor), gradient.data_ptr())
            machine.backward(self._root, True)
        finally:
            machine.fuses, self._caller.is_repeating = True, False

    def operands(self, node: int) -> tuple[int, ...]:
        """Return the nodes that a node takes."""
        found: tuple[int, ...] = self.machine.operands(node)
        return tuple(each for each in found if each >= 0)

    # ---- what was run ----

    def batches(self) -> list[Batch]:
        """Return what was run together since `renew`, in order; see `Batch`."""
        machine = self.machine
        found: list[Batch] = []
        rows_of_run: dict[int, int] = {}
        raw = machine.batches()
        for _, rows, _, run in raw:
            rows_of_run[run] = rows_of_run.get(run, 0) + rows
        for signatures, rows, level, run in raw:
            described = [machine.describe(signature) for signature in signatures]
            names = tuple([self._name(op, kind) for op, kind, *_ in described])
            dim = Dim(tuple(described[-1][2]), described[-1][3])
            found.append(Batch(names, dim, rows, level, self._why_alone(rows, rows_of_run[run])))
        return found

    def seconds(self) -> dict[str, float]:
        """Return the time spent since `renew`, in seconds, by "build" (between runs), "schedule", "run", "backward"."""
        return {"build": self._built, **dict(zip(("schedule", "run", "backward"), self.machine.times()))}

    def _name(self, op: int, kind: int) -> str:
        name = kernel_name(op, kind)
        return self._caller.kinds[kind].op.name if name == "call" else name

    def _why_alone(self, rows: int, rows_of_run: int) -> str:
        if rows > 1:
            return ""
        if not self.machine.batched:
            return "batching is off"
        if rows_of_run > 1:
            return "its kind depends on itself, and nothing else stood at this level"
        return "no other node of this kind in this part of the graph"

    # ---- the graph as a whole ----

    def renew(self, immediate: bool = False, checking: bool = False, autobatch: bool | None = None) -> None:
        """Throw all nodes away.

        Args:
            immediate: compute every node when it is made, which shows at once which one fails.
            checking: look for values that are not finite, too.
            autobatch: for this graph only, whether to batch.
        """
        self.check_free("renew_cg")
        self.version += 1
        self._tidy()
        self.is_immediate, self.is_checking = immediate or checking, checking
        self._caller.renew()
        self._held.clear()
        self._before.clear()
        self._rows_before.clear()
        self._marks.clear()
        self._root = -1
        self.machine.batched = self.options.autobatch if autobatch is None else bool(autobatch)
        self.machine.renew(self.version)
        self._built, self._idle_since = 0.0, time.perf_counter()
        if self.is_immediate:
            self.machine.deactivate()  # the fast functions compute nothing
        else:
            self.machine.activate(self.version)

    def call_kind(self, number: int) -> CallKind:
        """Return what the calls of a number in ``machine.describe`` compute, for `explain`."""
        return self._caller.kinds[number]

    def check_free(self, what: str) -> None:
        """Check that nobody computes the graph.

        Args:
            what: what would disturb it.

        Raises:
            StateError: somebody does.
        """
        check_free(what, self.machine.busy)

    def settle(self) -> None:
        """Compute what was computed without being kept, and is held by somebody: the parameters will change."""
        machine = self.machine
        last = machine.ask_again() if machine.computed and not machine.busy else -1
        if last >= machine.computed:
            machine.fuses = False
            try:
                self.forward(last)
            finally:
                machine.fuses = True

    def leave(self) -> None:
        """Make room: another engine's graph is the one under construction."""
        self.machine.deactivate()

    def recalculate(self) -> None:
        """Forget all values, but no nodes, so that parameters that were changed are read again."""
        self._caller.forget()
        self.machine.revert(self.size, 0)
        self._marks = [(size, 0) for size, _ in self._marks]  # what was computed then is no longer there
        self._root = -1

    def checkpoint(self) -> None:
        """Remember the number of nodes, for `revert`."""
        self.check_free("cg_checkpoint")
        self._marks.append((self.size, self.machine.computed))

    def revert(self) -> None:
        """Forget all nodes since the last `checkpoint`; without one, all of them."""
        self.check_free("cg_revert")
        size, computed = self._marks.pop() if self._marks else (0, 0)
        self.machine.revert(size, computed)
        self._caller.cut(self.machine.computed)
        if self._root >= size:
            self._root = -1
