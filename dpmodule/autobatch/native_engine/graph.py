"""The graph with a native node table and engine (`dpmodule/native/autobatch`); see `graph.EngineGraph`.

Operations with kernels (`ops.spec.Operation.kernel`) become nodes of the engine; batches of all others run in torch
(`torch_calls`). Parameters are shared by pointer (`nodes.NativeParameters`).
"""

from __future__ import annotations

import time
import weakref
from collections.abc import Iterator
from typing import Any, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray

from ..errors import StateError
from ..graph import FEW, EngineGraph, ExecutedBatch, ParameterVersions, display_name, execution_of, inputs_of
from ..ops.native_kernels import OP, SOURCES, kernel_name
from ..ops.spec import Dim, Operation
from .nodes import NativeNodes, NativeParameters, as_buffer
from .torch_calls import CallKind, TorchCaller

Tensor = torch.Tensor


class NativeOperation(NamedTuple):
    """The operation of a signature's nodes.

    Attributes:
        name: public name; operations fused into one kernel are joined with "+".
        parameters: the engine's numbers of its parameters, -1 for none.
        call: the call in torch; None if there is a kernel.
    """

    name: str
    parameters: tuple[int, ...]
    dims: tuple[Dim, ...]
    call: CallKind | None


class NativeGraph(EngineGraph):
    """The node table and engine in C++."""

    engine_name = "native"
    """Name of the engine in `configure`."""

    LIMIT = 50_000
    """Largest number of signatures kept from graph to graph."""

    def __init__(self, core: Any, options: Any, version: int = 0) -> None:
        super().__init__(options, version)
        self._core = core
        self._begin()
        self.machine.activate(version)

    def _begin(self) -> None:
        """Create a new engine, without signatures and parameters."""
        self.machine = self._core.AutobatchEngine()
        self.machine.batched = self.options.autobatch
        self._caller = TorchCaller(self.options)
        caller = self._caller
        self.machine.set_caller(caller.forward, caller.backward, caller.draw, caller.node_arguments)
        self._parameters = NativeParameters(self.machine)
        self._nodes = NativeNodes(self.machine, self._caller, self._parameters)
        self._root = -1
        self._built, self._idle_since = 0.0, time.perf_counter()

    def _tidy(self) -> None:
        """Reset the engine if it has too many signatures or mostly dead parameters."""
        count = self._parameters.count
        is_full = self.machine.signatures > self.LIMIT or len(self._caller.kinds) > self.LIMIT
        if is_full or (count > 256 and 2 * self._parameters.gone() > count):
            self._begin()

    # ---- making nodes ----

    @property
    def size(self) -> int:
        found: int = self.machine.size
        return found

    def append(self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...], aux: Any = None) -> int:
        self.check_thread()
        self.check_nodes(args)
        if args:
            node = op.kernel(self.machine, attrs, args, aux) if op.kernel is not None else -1
            if node < 0:
                node = self._nodes.call(op, attrs, args, aux, False)
        else:
            node = self._nodes.source(op, attrs, aux)
        if self.is_immediate:
            self._compute_immediately(node, op.name)
        return node

    def append_many(self, op: Operation, attrs: tuple[Any, ...], args: tuple[int, ...]) -> int:
        self.check_thread()
        self.check_nodes(args)
        node = op.kernel(self.machine, attrs, args, None) if op.kernel is not None else -1
        if node < 0:
            node = self._nodes.call(op, attrs, args, None, True)
        if self.is_immediate:
            self._compute_immediately(node, op.name)
        return node

    def set_input(self, node: int, array: Any) -> None:
        self.machine.set_input(node, as_buffer(array))
        if node < max(self.machine.computed, self._root):
            self.recalculate()

    def enter(self, parameter: Any) -> int:
        machine = self.machine
        is_known = parameter.serial == machine.serial and parameter.table < -1 and not self.is_immediate
        node: int = machine.parameter(-2 - parameter.table) if is_known else -1
        return node

    def remember(self, parameter: Any, node: int) -> None:
        parameter.serial, parameter.table = self.machine.serial, -2 - self.machine.parameter_of(node)

    def adopt(self, table: Any, is_updated: bool) -> None:
        if table.serial != self.machine.serial:
            table.storage.check_fits(self.options.device, self.options.dtype)
        if is_updated and table.serial != self.machine.serial and not table.storage.is_fetched:
            table.table = self._parameters.table_number(weakref.ref(table.storage), True)
            table.serial = self.machine.serial

    # ---- values and gradients ----

    def dim(self, node: int) -> Dim:
        try:
            return self._nodes.dim(node)
        except IndexError:
            self.check_nodes((node,))
            raise

    def are_alike(self, nodes: list[int]) -> bool:
        found: bool = self.machine.are_alike(nodes)
        return found

    def operation_of(self, node: int) -> str:
        machine = self.machine
        is_parameter = machine.parameter_of(node) >= 0
        return "parameter" if is_parameter else self.operation(machine.signature_of(node)).name

    def forward(self, node: int) -> None:
        machine = self.machine
        if node < machine.computed and not machine.is_fused(node):
            return
        if machine.busy:
            raise StateError("the graph is being computed: its operations must not use it")
        self._built += time.perf_counter() - self._idle_since
        self.machine.follow()
        self._run(node)
        self._idle_since = time.perf_counter()

    def _run(self, node: int) -> None:
        if not self.machine.skips and self._attempt(node) is None:
            return
        errors = self._compute_each(node)
        if node not in errors:  # it has a value, or its operands failed earlier and are retried
            node = self.machine.again(node)
            errors = self._compute_each(node)
        if node in errors:
            raise errors[node]

    def _attempt(self, node: int) -> Exception | None:
        """Compute missing values up to a node; return the error, if any."""
        try:
            self.machine.forward(node)
        except BaseException as error:
            self._caller.cut(self.machine.computed)
            if isinstance(error, Exception):  # user code may raise anything
                return error
            raise
        return None

    def _compute_each(self, last: int) -> dict[int, Exception]:
        """Compute missing values up to a node one by one, after a batch has failed.

        Returns:
            The errors of nodes, without those that read nodes that failed earlier.
        """
        machine = self.machine
        errors: dict[int, Exception] = {}
        for node in range(machine.computed, last + 1):
            reads = [each for each in self.operands(node) if machine.is_skipped(each)]
            error = next((errors[each] for each in reads if each in errors), None)
            if not reads:
                error = self._attempt(node)
            if reads or error is not None:
                machine.skip()
            if error is not None:
                errors[node] = error
        return errors

    def _tensor(self, node: int, data: bytearray) -> Tensor:
        dim = self.dim(node)
        return torch.frombuffer(data, dtype=torch.float32).view(dim.batch, *dim.d)

    def value(self, node: int) -> Tensor:
        self._compute(node)
        return self._tensor(node, self.machine.value(node))

    def as_list(self, node: int) -> list[float] | None:
        self._compute(node)
        found: list[float] | None = self.machine.numbers(node)
        return found

    def _compute(self, node: int) -> None:
        if node < self.machine.computed and not self.machine.is_fused(node):
            self.machine.follow()  # the memory of a parameter may have changed
        else:
            self.forward(node)

    def array(self, node: int) -> NDArray[Any]:
        self._compute(node)
        dim = self.dim(node)
        found = np.frombuffer(self.machine.value(node), np.float32)
        if dim.batch == 1:
            return found.reshape(dim.d).astype(np.float64)
        return found.reshape(dim.batch, dim.size).T.astype(np.float64, order="C").reshape(*dim.d, dim.batch)

    def backward(self, node: int, full: bool = False) -> None:
        self.check_root(node)
        self.forward(node)
        self._parameters.begin_pass()
        try:
            self.machine.backward(node, full)
        except BaseException:
            self._root = -1
            self._parameters.take_back()
            self._caller.forget_rows()
            raise
        self._idle_since = time.perf_counter()
        self._root = node
        self.note_parameters()
        self._parameters.take_rows()
        self._caller.add_rows()

    def gradient(self, node: int) -> Tensor:
        self.check_reached(node)
        machine, dim = self.machine, self.dim(node)
        number = machine.parameter_of(node)
        if number >= 0:
            total = self._parameters.gradient(number)
            return (self._compute_again(number) if total is None else total)[None]
        if self._root >= machine.computed or not machine.keeps_gradient(node):
            self._compute_again()
        found = machine.gradient(node)
        return (
            torch.zeros(dim.batch, *dim.d, dtype=torch.float32)
            if found is None
            else self._tensor(node, found)
        )

    def _compute_again(self, number: int = -1) -> Tensor:
        """Recompute everything without fusion; return the gradient of one parameter, if requested."""
        machine = self.machine
        self.check_free("gradient")
        machine.follow()
        machine.end_pass()
        self._caller.keep()
        machine.keep_drawn()
        machine.fuses, self._caller.is_repeating = False, True
        try:
            machine.revert(self.size, 0)
            self._run(self._root)
            found = self._parameters.collect(number) if number >= 0 else torch.empty(0)
            machine.backward(self._root, True)
        finally:
            machine.fuses, self._caller.is_repeating = True, False
        return found

    def parameter_versions(self) -> ParameterVersions:
        found: ParameterVersions = self.machine.marks()
        return found

    def is_given(self, node: int) -> bool:
        return self.operation_of(node) == "input" and self._root < self.machine.computed

    def operands(self, node: int) -> tuple[int, ...]:
        found: tuple[int, ...] = self.machine.operands(node)
        return tuple(each for each in found if each >= 0)

    # ---- executed batches ----

    def operation(self, signature: int) -> NativeOperation:
        """Return the operation of a signature's nodes."""
        op, kind, _, _, parameters = self.machine.describe(signature)
        name = kernel_name(op, kind, parameters)
        if name == "call":
            call = self._caller.kinds[kind]
            return NativeOperation(call.op.name, parameters, (), call)
        is_part = op in (OP["affine"], OP["lstm"])
        dims = [self._parameters.dim(each) for each in parameters if is_part and each >= 0]
        return NativeOperation(name, parameters, tuple(dims), None)

    def executed_batches(self) -> list[ExecutedBatch]:
        return list(self._ran())

    def _ran(self) -> Iterator[ExecutedBatch]:
        for signatures, count, repeats, forward, nodes in self.machine.batches():
            operations = [self.operation(signature) for signature in signatures]
            (*_, last) = operations
            call = last.call
            if last.name in SOURCES or (call is not None and not call.dims):
                continue
            operation = " + ".join(display_name(each.name) for each in operations)
            dims = [dim for each in operations for dim in each.dims]
            dims += [self.dim(node) for node in nodes if node >= 0]
            if len(dims) > FEW and len(set(dims)) == 1:
                del dims[1:]
            out = self.machine.describe(signatures[-1])
            yield ExecutedBatch(
                kind=signatures,
                operation=operation,
                dims=tuple(dims) if call is None else inputs_of(call.op, call.attrs, call.dims),
                out=Dim(tuple(out[2]), out[3]),
                parameters=tuple(each.parameters for each in operations),
                others=tuple(each.call.attrs for each in operations if each.call is not None),
                nodes=(count + repeats) * (operation.count(" + ") + 1),
                calls=count,
                forward=forward,
                repeats=repeats,
                never_batched="" if call is None else call.op.never_batched,
                execution="" if call is None else execution_of(call.op, call.attrs, call.dims),
            )

    @property
    def computed(self) -> int:
        found: int = self.machine.computed
        return found

    @property
    def is_batched(self) -> bool:
        return bool(self.machine.batched)

    def seconds(self) -> dict[str, float]:
        return {"build": self._built, **dict(zip(("schedule", "run", "backward"), self.machine.times()))}

    # ---- the graph as a whole ----

    def _start(self, is_batched: bool) -> None:
        self._tidy()
        self._caller.renew()
        self._parameters.renew()
        self._root = -1
        self.machine.batched = is_batched
        self.machine.renew(self.version)
        self._built, self._idle_since = 0.0, time.perf_counter()
        self._activate()

    def _activate(self) -> None:
        """Let C functions add nodes to this graph, in this thread."""
        if self.is_immediate:
            self.machine.deactivate()  # C functions compute nothing
        else:
            self.machine.activate(self.version)

    def change_thread(self) -> None:
        super().change_thread()
        self._activate()

    @property
    def is_running(self) -> bool:
        found: bool = self.machine.busy
        return found

    @property
    def has_failed(self) -> bool:
        found: bool = self.machine.skips
        return found

    @property
    def root(self) -> int:
        return self._root

    def settle(self) -> None:
        machine = self.machine
        last = machine.ask_again() if machine.computed and not machine.busy else -1
        if last >= machine.computed:
            machine.fuses = False
            try:
                self.forward(last)
            finally:
                machine.fuses = True

    def deactivate(self) -> None:
        self.machine.deactivate()

    def recalculate(self) -> None:
        self._caller.forget()
        self.machine.forget_drawn()
        self.machine.revert(self.size, 0)
        self._checkpoints = [
            (size, 0) for size, _ in self._checkpoints
        ]  # values computed before are discarded
        self._root = -1

    def _progress(self) -> int:
        return self.computed

    def _cut(self, size: int, progress: int) -> None:
        self.machine.revert(size, progress)
        self._caller.cut(self.machine.computed)
        if self._root >= size:
            self._root = -1
