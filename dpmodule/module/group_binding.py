"""`BoundGroup`: binding one executor per context to the arrays that contexts and groups share."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from typing import Any

from ..base import ArgumentError, ShapeError, dtype_name
from ..context import Context
from ..executor import (
    PLAIN,
    Binding,
    Executor,
    RunOptions,
    from_pool,
    placement,
    requirements,
)
from ..executor.gradients import check_differentiable
from ..executor.sparse_arrays import allocate_as, clear, is_sparse
from ..executor.storage import declared_storage, gradient_storage, storage_of
from ..graph import infer_shapes, infer_types
from ..io import DataDesc
from ..ndarray import NDArray
from ..params import ParamStore
from .feed import Feed, describe, is_per_context
from .group_arrays import GroupArrays
from .group_contexts import distinct, per_context

__all__ = ["BoundGroup"]

_MAX_SHAPES = 8
"""How many sets of input shapes keep their executors; further ones push out the one used longest ago."""


class _Silent:
    """Swallows the warning about growing memory, which only concerns sharing between groups."""

    def warning(self, *args: Any) -> None:
        """Drop a message."""


class BoundGroup(GroupArrays):
    """The executors of one symbol on several contexts, made for some input shapes and kept for others.

    It takes the arguments of `DataParallelExecutorGroup`, which runs them.

    Raises:
        ArgumentError: names, sizes or options do not fit.
        ShapeError: shapes contradict the symbol or each other.
    """

    def __init__(
        self,
        symbol: Any,
        contexts: Sequence[Context],
        workload: Sequence[float] | None,
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None,
        param_names: Sequence[str],
        for_training: bool,
        inputs_need_grad: bool,
        shared_group: BoundGroup | None = None,
        logger: Any = logging,
        fixed_param_names: Sequence[str] | None = None,
        grad_req: Any = "write",
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        options: RunOptions = PLAIN,
    ) -> None:
        self.symbol = symbol
        self._options = options
        self.contexts = distinct(contexts)
        self.workload = list(workload) if workload is not None else [1] * len(self.contexts)
        if len(self.workload) != len(self.contexts):
            raise ArgumentError(
                f"workload has {len(self.workload)} entries for {len(self.contexts)} contexts"
            )
        for ctx in self.contexts:
            ctx.check()
        self.param_names = list(param_names)
        self.fixed_param_names = list(fixed_param_names or ())
        self.state_names = list(state_names or ())
        self.for_training = for_training
        self.inputs_need_grad = inputs_need_grad
        self.group2ctxs = per_context(group2ctxs, len(self.contexts))
        self._places = [placement(symbol.graph, c, g) for c, g in zip(self.contexts, self.group2ctxs)]
        self.logger = logger
        self.arg_names = symbol.list_arguments()
        self.aux_names = symbol.list_auxiliary_states()
        self.output_names = symbol.list_outputs()
        self.num_outputs = len(self.output_names)
        self.output_layouts = [DataDesc.get_batch_axis(out.attr("__layout__")) for out in symbol]
        first = data_shapes[0] if is_per_context(data_shapes) else data_shapes
        self.data_names = [d.name for d in describe(first)]
        self.grad_req = self._requirements(grad_req)
        self.store: ParamStore = ParamStore(self.contexts) if shared_group is None else shared_group.store
        self.shared_data_arrays: list[dict[str, NDArray]] = (
            [{} for _ in self.contexts] if shared_group is None else shared_group.shared_data_arrays
        )
        self._declared = False
        self._stypes = declared_storage(symbol.graph)
        self._bound: OrderedDict[Any, list[Executor]] = OrderedDict()
        self.bind_exec(data_shapes, label_shapes, shared_group)

    def _requirements(self, grad_req: Any) -> dict[str, str]:
        """Return the requirement of every argument: parameters as asked, data only with `inputs_need_grad`."""
        if not self.for_training:
            return dict.fromkeys(self.arg_names, "null")
        usual = grad_req if isinstance(grad_req, str) else "write"
        found = {}
        for name in self.arg_names:
            if name in self.param_names:
                found[name] = "null" if name in self.fixed_param_names else usual
            else:
                found[name] = usual if name in self.data_names and self.inputs_need_grad else "null"
        if isinstance(grad_req, (list, tuple)):
            found = requirements(self.arg_names, grad_req)
        elif not isinstance(grad_req, str):
            found.update(grad_req)
        return requirements(self.arg_names, found)

    def decide_slices(self, data_shapes: Sequence[Any]) -> list[int]:
        """Return the batch axis of each input.

        Args:
            data_shapes: descriptions of inputs that share one batch size.

        Raises:
            ShapeError: two inputs disagree about the batch size.
        """
        return Feed(data_shapes, None, self.workload).data_layouts

    def bind_exec(
        self,
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None,
        shared_group: BoundGroup | None = None,
        reshape: bool = False,
    ) -> None:
        """Make the executors for some input shapes, or take those made before for the same shapes.

        Args:
            data_shapes: as in the constructor.
            label_shapes: as in the constructor.
            shared_group: group to share with; None when reshaping.
            reshape: whether executors exist and only shapes change.
        """
        self.feed = Feed(data_shapes, label_shapes, self.workload)
        execs = self._bound.get(self.feed.key)
        if execs is None:
            logger = _Silent() if reshape or shared_group is None else self.logger
            execs = [self._bind_ith_exec(i, self.feed.shapes[i], logger) for i in self.feed.active]
            self._bound[self.feed.key] = execs
            if len(self._bound) > _MAX_SHAPES:
                self._bound.popitem(last=False)
        self._bound.move_to_end(self.feed.key)
        if reshape:
            for former, now in zip(self.execs, execs):
                now.watch_as(former)
                if now is not former:
                    former.set_aside()
        self.execs = execs
        self._silence_idle()

    def _bind_ith_exec(self, i: int, inputs: Sequence[DataDesc], logger: Any) -> Executor:
        """Make the executor of one context: parameters from the store, everything else from the data pool."""
        graph = self.symbol.graph
        shapes, types = self._inferred(inputs)
        check_differentiable(graph, (name for name, req in self.grad_req.items() if req != "null"))
        if not self._declared:
            self._declare(shapes, types)
        args, grads = {}, {}
        for node in graph.arguments:
            if node.name in self.param_names:
                array, grad = self._parameter(i, node, shapes)
            else:
                array, grad = self._input(i, node, shapes, types, logger)
            args[node.name] = array
            if grad is not None:
                grads[node.name] = grad
        aux = {name: self.store.aux(name, i) for name in self.aux_names}
        known = {name: stype for name, stype in self._stypes.items() if name in self.param_names}
        binding = Binding(
            graph, self.contexts[i], args, grads, self.grad_req, aux, shapes, types, self._places[i], known
        )
        return Executor(binding, self.symbol, self._options)

    def _inferred(self, inputs: Sequence[DataDesc]) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        """Return shapes and types of all nodes for some inputs.

        Raises:
            ArgumentError: an input is no argument of the symbol.
            ShapeError: they do not give all shapes.
        """
        graph = self.symbol.graph
        graph.check_names()
        unknown = [d.name for d in inputs if d.name not in self.arg_names]
        if unknown:
            has = ", ".join(self.arg_names)
            raise ArgumentError(f"{', '.join(unknown)} is no argument of the symbol; it has {has}")
        types = infer_types(graph, {d.name: dtype_name(d.dtype) for d in inputs}, default="float32")
        shapes = infer_shapes(graph, {d.name: d.shape for d in inputs})
        unknown = [n.name for n in graph.nodes if n.op is None and not _known(shapes[n][0])]
        if unknown:
            given = ", ".join(f"{d.name} {d.shape}" for d in inputs)
            raise ShapeError(
                f"cannot infer the shape of {', '.join(unknown)} from {given}; "
                "give more input shapes, or declare them with Variable(shape=...)"
            )
        return shapes, types

    def _parameter(self, i: int, node: Any, shapes: Mapping[Any, Any]) -> tuple[NDArray, NDArray | None]:
        """Return the array of a parameter on one context, and that of its gradient if there is one."""
        array = self.store.array(node.name, i)
        if array.shape != shapes[node][0]:
            raise ShapeError(
                f"parameter {node.name} has shape {array.shape}, these inputs need {shapes[node][0]}"
            )
        return array, self.store.grad(node.name, i)

    def _input(
        self, i: int, node: Any, shapes: Mapping[Any, Any], types: Mapping[Any, Any], logger: Any
    ) -> tuple[NDArray, NDArray | None]:
        """Return an array for an input, label or state on one context, and one for its gradient if it has one."""
        name, pool, where = node.name, self.shared_data_arrays[i], self._places[i].get(node, self.contexts[i])
        shape, dtype = tuple(shapes[node][0] or ()), types[node][0] or "float32"
        stype = self._stypes.get(name, "default")
        if stype == "default":
            array = from_pool(pool, name, shape, where, dtype, logger)
        else:
            array = pool[name] = allocate_as(stype, shape, where, dtype)
        if self.grad_req[name] == "null":
            return array, None
        return array, from_pool(pool, f"grad of {name}", shape, where, dtype, logger)

    @property
    def row_sparse_names(self) -> set[str]:
        """Names of the parameters that are declared row-sparse; devices keep all their rows, in dense arrays."""
        return {n for n in self.param_names if self._stypes.get(n) == "row_sparse"}

    @property
    def _total_exec_bytes(self) -> int:
        """Bytes that executors have allocated beside the shared arrays, as MXNet counts them: none."""
        return 0

    @property
    def size(self) -> int:
        """Number of elements of what all operators make, over all contexts."""
        return sum(executor.size for executor in self.execs)

    def release(self) -> bool:
        """Give up what was computed, so that another group can use the memory; arrays and parameters stay.

        Returns:
            Whether there was something to give up.
        """
        released = [executor.release() for execs in self._bound.values() for executor in execs]
        return any(released)

    def refresh(self) -> None:
        """Bind again if the shared data memory has been replaced by a larger one since."""
        names = [d.name for d in self.feed.shapes[0]]
        for i, executor in zip(self.feed.active, self.execs):
            pool = self.shared_data_arrays[i]
            if any(_memory(pool[name]) != _memory(executor.input_array(name)) for name in names):
                self._bound.clear()
                self.bind_exec(self.data_shapes, self.label_shapes, reshape=True)
                return

    def _declare(self, shapes: Mapping[Any, Any], types: Mapping[Any, Any]) -> None:
        """Allocate parameters and states, or check that shared ones fit."""
        graph = self.symbol.graph
        storage = storage_of(graph, self._stypes)
        grad_stypes = {} if storage is None else gradient_storage(graph, storage)
        for node in self.symbol.graph.arguments:
            if node.name in self.param_names:
                needs_grad = self.grad_req[node.name] != "null"
                self.store.declare(
                    node.name,
                    tuple(shapes[node][0]),
                    types[node][0],
                    needs_grad,
                    self._places_of(node),
                    grad_stypes.get(node.name, "default"),
                )
        for node in self.symbol.graph.auxiliary:
            self.store.declare_aux(node.name, tuple(shapes[node][0]), types[node][0], self._places_of(node))
        self._declared = True

    def _places_of(self, node: Any) -> list[Context]:
        """Return where a variable lies for each of the contexts."""
        return [places.get(node, ctx) for places, ctx in zip(self._places, self.contexts)]

    def _silence_idle(self) -> None:
        """Make sure that contexts without samples add nothing to gradients."""
        for i in range(len(self.contexts)):
            if i not in self.feed.active:
                for name in self.param_names:
                    grad = self.store.grad(name, i)
                    if grad is not None and self.grad_req[name] == "write":
                        clear(grad)

    def reshape(self, data_shapes: Sequence[Any], label_shapes: Sequence[Any] | None) -> None:
        """Change the input shapes; parameters stay.

        Args:
            data_shapes: as in the constructor.
            label_shapes: as in the constructor.
        """
        self.bind_exec(data_shapes, label_shapes, reshape=True)


def _memory(array: NDArray) -> int:
    if is_sparse(array):  # each executor has one of its own
        return 0
    return array.raw.untyped_storage().data_ptr()


def _known(shape: Any) -> bool:
    return shape is not None and 0 not in shape
