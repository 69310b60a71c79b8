"""`DataParallelExecutorGroup`: one executor per context, fed with slices of a batch."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

from ..._core import lazy
from ...base import ArgumentError, ShapeError, StateError, dtype_name
from ...context import Context
from ...executor import PLAIN, Binding, Executor, RunOptions, from_pool, grad_reqs, place_nodes
from ...executor.backward import Listener
from ...executor.gradients import check_differentiable
from ...executor.sparse_arrays import allocate_as
from ...executor.storage_types import declared_storage_types, gradient_storage_types, infer_storage_types
from ...graph import infer_shapes, infer_types, variable_dtype
from ...io import DataDesc
from ...ndarray import NDArray
from ...ndarray.sparse_base import clear
from ...params import ParamStore
from ..mxnet_helpers import load_data as _load_data  # noqa: F401  old programs import these from here
from ..mxnet_helpers import load_general as _load_general  # noqa: F401
from ..mxnet_helpers import load_label as _load_label  # noqa: F401
from ..mxnet_helpers import merge_multi_context as _merge_multi_context
from .batch_splitter import BatchSplitter, describe, is_per_context
from .batch_splitter import split_input_slice as _split_input_slice  # noqa: F401
from .contexts import distinct, per_context, run_parallel
from .input_order import in_order

if TYPE_CHECKING:
    from ...graph import Node
    from ...metric import EvalMetric
    from ...symbol import Symbol
    from ...types import GradReqLike
    from ..types import (
        BatchLike,
        GroupContextsLike,
        Labels,
        LoggerLike,
        MonitorLike,
        OutGrads,
        ShapesLike,
        StatesLike,
    )


class ExecutorMaker:
    """Creates executors of one symbol, with parameters from a store and other arrays from data pools.

    Args:
        group2ctxs: for each context, the contexts of the groups of ``AttrScope(ctx_group=...)``.
        store: parameters, gradients and auxiliary states; missing ones are declared with the first executor.

    Attributes:
        stypes: storage types that the symbol declares, by name.
    """

    def __init__(
        self,
        symbol: Symbol,
        contexts: Sequence[Context],
        param_names: Sequence[str],
        grad_req: Mapping[str, str],
        group2ctxs: Sequence[Mapping[str, Context]],
        store: ParamStore,
        pools: Sequence[dict[str, NDArray]],
        options: RunOptions = PLAIN,
    ) -> None:
        self._symbol, self._contexts, self._options = symbol, contexts, options
        self._param_names, self._grad_req = param_names, grad_req
        self._placements = [place_nodes(symbol.graph, ctx, g) for ctx, g in zip(contexts, group2ctxs)]
        self._store, self._pools = store, pools
        self._declared = False
        self.stypes = declared_storage_types(symbol.graph)

    def make(self, i: int, inputs: Sequence[DataDesc], logger: Any) -> Executor:
        """Create the executor of one context.

        Args:
            logger: receives a warning when pool memory is too small and is replaced.

        Shape:
            inputs[i]: (n, ...), the samples of this context.
        """
        graph = self._symbol.graph
        shapes, types = self._inferred(inputs)
        self.stypes.update((desc.name, desc.stype) for desc in inputs if desc.stype != "default")
        check_differentiable(graph, (name for name, req in self._grad_req.items() if req != "null"))
        if not self._declared:
            self._declare(shapes, types)
        args, grads = {}, {}
        for node in graph.arguments:
            if node.name in self._param_names:
                array, grad = self._parameter(i, node, shapes, inputs)
            else:
                array, grad = self._input(i, node, shapes, types, logger)
            args[node.name] = array
            if grad is not None:
                grads[node.name] = grad
        aux = {name: self._store.aux(name, i) for name in graph.auxiliary_names}
        known = {name: stype for name, stype in self.stypes.items() if name in self._param_names}
        binding = Binding(
            graph,
            self._contexts[i],
            args,
            grads,
            self._grad_req,
            aux,
            shapes,
            types,
            self._placements[i],
            known,
        )
        return Executor(binding, self._symbol, self._options)

    def _inferred(self, inputs: Sequence[DataDesc]) -> tuple[Mapping[Any, Any], Mapping[Any, Any]]:
        """Return shapes and types of all nodes for input shapes."""
        graph = self._symbol.graph
        graph.check_names()
        unknown = [d.name for d in inputs if d.name not in graph.argument_names]
        if unknown:
            has = ", ".join(graph.argument_names)
            raise ArgumentError(f"{', '.join(unknown)} is not an argument of the symbol; it has {has}")
        types = infer_types(graph, {d.name: dtype_name(d.dtype) for d in inputs}, default="float32")
        shapes = infer_shapes(graph, {d.name: d.shape for d in inputs})
        unknown = [n.name for n in graph.nodes if n.op is None and not _is_known(shapes[n][0])]
        if unknown:
            raise ShapeError(
                f"cannot infer the shape of {', '.join(unknown)} from {_listed(inputs)}; "
                "pass more input shapes, or declare them with Variable(shape=...)"
            )
        return shapes, types

    def _parameter(
        self, i: int, node: Node, shapes: Mapping[Any, Any], inputs: Sequence[DataDesc]
    ) -> tuple[NDArray, NDArray | None]:
        """Return the array of a parameter on one context, and of its gradient if it has one."""
        array = self._store.array(node.name, i)
        if array.shape != shapes[node][0]:
            raise ShapeError(
                f"{_listed(inputs)} need {node.name} of shape {shapes[node][0]}, which has {array.shape}; "
                "check shapes and order of the inputs"
            )
        return array, self._store.grad(node.name, i)

    def _input(
        self, i: int, node: Node, shapes: Mapping[Any, Any], types: Mapping[Any, Any], logger: Any
    ) -> tuple[NDArray, NDArray | None]:
        """Return the array of an input, label or state on one context, and of its gradient if it has one."""
        name, pool, where = node.name, self._pools[i], self._placements[i].get(node, self._contexts[i])
        shape, dtype = tuple(shapes[node][0] or ()), types[node][0] or "float32"
        stype = self.stypes.get(name, "default")
        if stype == "default":
            array = from_pool(pool, name, shape, where, dtype, logger)
        else:
            array = pool[name] = allocate_as(stype, shape, where, dtype)
        if self._grad_req[name] == "null":
            return array, None
        if stype == "ragged":
            return array, allocate_as(stype, shape, where, dtype)
        return array, from_pool(pool, f"grad of {name}", shape, where, dtype, logger)

    def _declare(self, shapes: Mapping[Any, Any], types: Mapping[Any, Any]) -> None:
        """Allocate parameters and states, or check shared ones."""
        graph = self._symbol.graph
        storage = infer_storage_types(graph, self.stypes)
        grad_stypes = {} if storage is None else gradient_storage_types(graph, storage)
        for node in graph.arguments:
            if node.name in self._param_names:
                needs_grad = self._grad_req[node.name] != "null"
                self._store.declare(
                    node.name,
                    tuple(shapes[node][0]),
                    types[node][0],
                    needs_grad,
                    self._contexts_of(node),
                    grad_stypes.get(node.name, "default"),
                )
        for node in graph.auxiliary:
            self._store.declare_aux(
                node.name, tuple(shapes[node][0]), types[node][0], self._contexts_of(node)
            )
        self._declared = True

    def _contexts_of(self, node: Node) -> list[Context]:
        """Return the context of a variable for each context of the group."""
        return [placement.get(node, ctx) for placement, ctx in zip(self._placements, self._contexts)]


def _listed(inputs: Sequence[DataDesc]) -> str:
    return ", ".join(f"{d.name} {d.shape}" for d in inputs)


def _is_known(shape: Sequence[int] | None) -> bool:
    return shape is not None and 0 not in shape


__all__ = ["DataParallelExecutorGroup"]

lazy.publish(__name__, __all__)

_MAX_SHAPES = 8
"""Number of sets of input shapes with cached executors; the least recently used is dropped."""


class _Silent:
    """Logger that drops the warning about growing memory, which only concerns sharing between groups."""

    def warning(self, *args: object) -> None:
        """Drop a message."""


def _integer_arguments(symbol: Symbol) -> set[str]:
    """Return the names of arguments that are declared as integers, which no optimizer can train."""
    types = {node.name: variable_dtype(node) or "" for node in symbol.graph.arguments}
    return {name for name, dtype in types.items() if dtype.startswith(("int", "uint", "bool"))}


class DataParallelExecutorGroup:
    """Executors of one symbol on several contexts.

    A batch can be fed in two ways. As in MXNet, `data_shapes` describes the whole batch, which is split by `workload`;
    contexts without samples are idle. As in Deformable ConvNets, `data_shapes` is a list of such descriptions, one per
    context, and `data` of a batch holds one list of arrays per context.

    Args:
        workload: a positive number per context; shares of a batch are proportional. None = equal.
        data_shapes: descriptions of the inputs, (name, shape) or `DataDesc`.
        label_shapes: descriptions of the labels, or None.
        grad_req: "write", "add" or "null" for all parameters, or a list or dict per argument.
        group2ctxs: contexts of the groups of ``AttrScope(ctx_group=...)``: a dict of contexts (or of lists with one for
            each of `contexts`), or a list of dicts, one for each of `contexts`.
        store: store of the parameters; None = that of `shared_group`, or a new one.

    Shape:
        data_shapes[i], label_shapes[i]: (N, ...), N samples on the axis that the layout calls "N", the first by
            default.
    """

    def __init__(
        self,
        symbol: Symbol,
        contexts: Sequence[Context],
        workload: Sequence[float] | None,
        data_shapes: ShapesLike,
        label_shapes: ShapesLike | None,
        param_names: Sequence[str],
        for_training: bool,
        inputs_need_grad: bool,
        shared_group: DataParallelExecutorGroup | None = None,
        logger: LoggerLike = logging,
        fixed_param_names: Sequence[str] | None = None,
        grad_req: GradReqLike = "write",
        state_names: Sequence[str] | None = None,
        group2ctxs: GroupContextsLike = None,
        options: RunOptions = PLAIN,
        store: ParamStore | None = None,
    ) -> None:
        self.symbol = symbol
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
        self.logger = logger
        self.arg_names = symbol.list_arguments()
        self.aux_names = symbol.list_auxiliary_states()
        self.output_names = symbol.list_outputs()
        self.num_outputs = len(self.output_names)
        self.output_layouts = [DataDesc.get_batch_axis(out.attr("__layout__")) for out in symbol]
        first = data_shapes[0] if is_per_context(data_shapes) else data_shapes
        self.data_names = [d.name for d in describe(first)]
        self.grad_req = self._grad_requirements(grad_req)
        self.store: ParamStore = self._store_of(store, shared_group)
        self.shared_data_arrays: list[dict[str, NDArray]] = (
            [{} for _ in self.contexts] if shared_group is None else shared_group.shared_data_arrays
        )
        self._executor_maker = ExecutorMaker(
            symbol,
            self.contexts,
            self.param_names,
            self.grad_req,
            self.group2ctxs,
            self.store,
            self.shared_data_arrays,
            options,
        )
        self._label_order: list[int] | None = None  # positions of the bound labels in the last batch
        self.execs: list[Executor] = []
        self._executors_by_shapes: OrderedDict[Any, list[Executor]] = OrderedDict()
        self.bind_exec(data_shapes, label_shapes, shared_group)

    def _store_of(
        self, store: ParamStore | None, shared_group: DataParallelExecutorGroup | None
    ) -> ParamStore:
        """Return the store that the group uses."""
        if store is None:
            return ParamStore(self.contexts) if shared_group is None else shared_group.store
        if store.contexts != self.contexts:
            raise ArgumentError(
                f"store keeps parameters on {', '.join(map(str, store.contexts))}, the module is on "
                f"{', '.join(map(str, self.contexts))}; give the module the store's contexts"
            )
        return store

    def _grad_requirements(self, grad_req: Any) -> dict[str, str]:
        """Return `grad_req` of every argument; data has gradients only with `inputs_need_grad`."""
        if not self.for_training:
            return dict.fromkeys(self.arg_names, "null")
        usual = grad_req if isinstance(grad_req, str) else "write"
        fixed = {*self.fixed_param_names, *_integer_arguments(self.symbol)}
        requirements = {}
        for name in self.arg_names:
            if name in self.param_names:
                requirements[name] = "null" if name in fixed else usual
            else:
                requirements[name] = usual if name in self.data_names and self.inputs_need_grad else "null"
        if isinstance(grad_req, (list, tuple)):
            requirements = grad_reqs(self.arg_names, grad_req)
        elif not isinstance(grad_req, str):
            requirements.update(grad_req)
        return grad_reqs(self.arg_names, requirements)

    # binding

    def decide_slices(self, data_shapes: ShapesLike) -> list[int]:
        """Return the batch axis of each input.

        Shape:
            data_shapes[i]: (N, ...), N samples on the axis that the layout calls "N".
        """
        return BatchSplitter(data_shapes, None, self.workload).data_layouts

    def bind_exec(
        self,
        data_shapes: ShapesLike,
        label_shapes: ShapesLike | None,
        shared_group: DataParallelExecutorGroup | None = None,
        reshape: bool = False,
    ) -> None:
        """Create the executors for input shapes, or reuse cached ones.

        Args:
            shared_group: group to share with; None when reshaping.
            reshape: True if executors exist and only shapes change.

        Shape:
            data_shapes[i], label_shapes[i]: (N, ...), N samples on the axis that the layout calls "N", the first by
                default.
        """
        self.feed = BatchSplitter(data_shapes, label_shapes, self.workload)
        execs = self._executors_by_shapes.get(self.feed.key)
        if execs is None:
            logger = _Silent() if reshape or shared_group is None else self.logger
            execs = [self._executor_maker.make(i, self.feed.shapes[i], logger) for i in self.feed.active]
            self._executors_by_shapes[self.feed.key] = execs
            if len(self._executors_by_shapes) > _MAX_SHAPES:
                self._executors_by_shapes.popitem(last=False)
        self._executors_by_shapes.move_to_end(self.feed.key)
        if reshape:
            for former, now in zip(self.execs, execs):
                now.copy_monitor(former)
                if now is not former:
                    former.drop_cached_runs()
        self.execs = execs
        self._clear_idle_gradients()

    def use_array(self, name: str, array: NDArray) -> None:
        """Use another array for a parameter of the only context."""
        if all(executor.arg_dict.get(name) is array for executor in self.execs):
            return
        self.store.replace_array(name, array)
        self._executors_by_shapes.clear()
        self.bind_exec(self.data_shapes, self.label_shapes, reshape=True)

    def reshape(self, data_shapes: ShapesLike, label_shapes: ShapesLike | None) -> None:
        """Change the input shapes; parameters stay.

        Shape:
            data_shapes[i], label_shapes[i]: (N, ...), N samples on the axis that the layout calls "N", the first by
                default.
        """
        self.bind_exec(data_shapes, label_shapes, reshape=True)

    def release(self) -> bool:
        """Free intermediate results for use by another group; arrays and parameters stay.

        Returns:
            True if memory was freed.
        """
        released = [executor.release() for execs in self._executors_by_shapes.values() for executor in execs]
        return any(released)

    def refresh(self) -> None:
        """Rebind if the shared data memory has been replaced by a larger one."""
        names = [d.name for d in self.feed.shapes[0]]
        for i, executor in zip(self.feed.active, self.execs):
            pool = self.shared_data_arrays[i]
            if any(_address(pool[name]) != _address(executor.input_array(name)) for name in names):
                self._executors_by_shapes.clear()
                self.bind_exec(self.data_shapes, self.label_shapes, reshape=True)
                return

    def _clear_idle_gradients(self) -> None:
        """Set the gradients of contexts without samples to zero."""
        for i in range(len(self.contexts)):
            if i not in self.feed.active:
                for name in self.param_names:
                    grad = self.store.grad(name, i)
                    if grad is not None and self.grad_req[name] == "write":
                        clear(grad)

    @property
    def _total_exec_bytes(self) -> int:
        """Bytes that executors allocate in addition to the shared arrays, as counted by MXNet: none."""
        return 0

    @property
    def size(self) -> int:
        """Number of elements of all operator outputs, over all contexts."""
        return sum(executor.size for executor in self.execs)

    # arrays and shapes

    @property
    def row_sparse_names(self) -> set[str]:
        """Names of the row-sparse parameters, which devices store as dense arrays with all rows."""
        return {n for n in self.param_names if self._executor_maker.stypes.get(n) == "row_sparse"}

    @property
    def per_context(self) -> bool:
        """True if a batch has one list of arrays per context."""
        return self.feed.per_context

    @property
    def batch_size(self) -> int | None:
        """Samples in a whole batch; the number of contexts if `per_context`."""
        return self.feed.batch_size

    @property
    def num_samples(self) -> int:
        """Samples in a whole batch, however it is fed; 1 if no input has a batch axis."""
        if not self.per_context:
            return self.batch_size or 1
        axis = max(self.data_layouts[0], 0)
        return sum(int(data[0].shape[axis]) for data in self.data_shapes)

    @property
    def slices(self) -> list[slice]:
        """Each context's part of a batch."""
        return self.feed.slices

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the inputs."""
        return self.feed.data_shapes

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels; None without labels."""
        return self.feed.label_shapes

    @property
    def label_names(self) -> list[str]:
        """Names of the labels."""
        return self.feed.label_names

    @property
    def data_layouts(self) -> list[int]:
        """Batch axis of each input."""
        return self.feed.data_layouts

    @property
    def label_layouts(self) -> list[int]:
        """Batch axis of each label."""
        return self.feed.label_layouts

    @property
    def active(self) -> list[int]:
        """Positions of the contexts that have samples under the present shapes."""
        return self.feed.active

    @property
    def active_contexts(self) -> list[Context]:
        """Contexts that have samples under the present shapes."""
        return [self.contexts[i] for i in self.feed.active]

    @property
    def param_arrays(self) -> list[list[NDArray]]:
        """For each parameter its array on every context.

        Shape:
            returns[i][k]: that of the parameter.
        """
        used = [name for name in self.arg_names if name in self.param_names]
        return [[self.store.array(name, i) for i in range(len(self.contexts))] for name in used]

    @property
    def grad_arrays(self) -> list[list[NDArray | None]] | None:
        """For each parameter its gradient on every context; None when not training.

        Shape:
            returns[i][k]: that of the parameter.
        """
        if not self.for_training:
            return None
        used = [name for name in self.arg_names if name in self.param_names]
        return [[self.store.grad(name, i) for i in range(len(self.contexts))] for name in used]

    @property
    def aux_arrays(self) -> list[list[NDArray]]:
        """For each auxiliary state its array on every context.

        Shape:
            returns[i][k]: that of the state.
        """
        return [[self.store.aux(name, i) for i in range(len(self.contexts))] for name in self.aux_names]

    def _input_arrays(self, names: Sequence[str]) -> list[Any]:
        if self.per_context:
            return [[e.arg_dict[name] for name in names] for e in self.execs]
        return [
            [(self.slices[i], e.arg_dict[name]) for i, e in zip(self.feed.active, self.execs)]
            for name in names
        ]

    @property
    def data_arrays(self) -> list[Any]:
        """For each input its (slice, array) on every active context; per context a list of arrays if fed so.

        Shape:
            returns[i][k][1]: (n, ...), the samples of context k.
        """
        return self._input_arrays(self.data_names)

    @property
    def label_arrays(self) -> list[Any] | None:
        """Like `data_arrays`, for labels; None without labels."""
        return self._input_arrays(self.label_names) if self.label_shapes else None

    @property
    def state_arrays(self) -> list[list[NDArray]]:
        """For each state its array on every active context.

        Shape:
            returns[i][k]: that of the state on context k.
        """
        return [[e.arg_dict[name] for e in self.execs] for name in self.state_names]

    @property
    def input_grad_arrays(self) -> list[list[NDArray | None]] | None:
        """For each input its gradient on every active context; None unless `inputs_need_grad`.

        Shape:
            returns[i][k]: (n, ...), the samples of context k.
        """
        if not self.inputs_need_grad:
            return None
        return [[e.grad_dict[name] for e in self.execs] for name in self.data_names]

    # parameters

    def set_params(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray] | None,
        allow_extra: bool = False,
    ) -> None:
        """Copy parameters and states to every context; see `ParamStore.load`.

        Shape:
            arg_params[name], aux_params[name]: that of the parameter or state.
        """
        self.store.load(arg_params, aux_params or {}, allow_extra)

    def get_params(self, arg_params: dict[str, NDArray], aux_params: dict[str, NDArray]) -> None:
        """Write parameters and states, averaged over contexts, into given arrays.

        Args:
            arg_params: arrays by parameter name; those that exist are written in place, others are added.

        Shape:
            arg_params[name], aux_params[name]: that of the parameter or state.
        """
        for averages, target in zip(self.store.average(), (arg_params, aux_params)):
            for name, value in averages.items():
                if name in target:
                    target[name].raw.copy_(value.raw)
                else:
                    target[name] = value

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Return a list over contexts for each state; merging raises ArgumentError, as in MXNet.

        Shape:
            returns[i][k]: that of the state on context k.
        """
        if merge_multi_context:
            raise ArgumentError("get_states: merge_multi_context=True is not supported; pass False")
        return self.state_arrays

    def set_states(self, states: StatesLike = None, value: float | None = None) -> None:
        """Set the states.

        Args:
            states: a list over contexts of arrays for each state, as returned by `get_states`.

        Shape:
            states[i][k]: that of the state on context k.
        """
        if (states is None) == (value is None):
            raise ArgumentError("set_states: pass either states or value")
        if value is not None:
            for targets in self.state_arrays:
                for target in targets:
                    target.raw.fill_(value)
            return
        pairs = self._pairs_of_states(states)
        for source, target in pairs:
            if source is not target:
                target.raw.copy_(source.raw)

    def _pairs_of_states(self, states: Any) -> list[tuple[NDArray, NDArray]]:
        """Return pairs of a given state and its target array."""
        if len(states) != len(self.state_names):
            names = ", ".join(self.state_names) or "none"
            count = len(self.state_names)
            raise ArgumentError(f"set_states: got {len(states)} states, the module has {count}: {names}")
        pairs = []
        for name, sources, targets in zip(self.state_names, states, self.state_arrays):
            if not isinstance(sources, (list, tuple)) or len(sources) != len(targets):
                raise ArgumentError(
                    f"set_states: {name} is {sources!r}, expected a list of {len(targets)} arrays, one per context, as "
                    "get_states and get_outputs return them with merge_multi_context=False"
                )
            for source, target in zip(sources, targets):
                if source.shape != target.shape:
                    raise ShapeError(f"set_states: {name} has shape {source.shape}, expected {target.shape}")
                pairs.append((source, target))
        return pairs

    # running

    def try_load(self, batch: BatchLike, train: bool, borrow: bool) -> list[dict[str, Any]] | None:
        """Copy a batch into the executors' arrays as `load` does; return None if other shapes must be bound first."""
        whole = self.feed.whole(batch, train)
        if whole is not None:
            in_place = self.execs[0].load(whole, borrow, train)
            if in_place is not None:
                self._label_order = None
                return [in_place]
        return self.load(batch, train, borrow) if self.feed.takes(batch) else None

    def load(self, batch: BatchLike, train: bool, borrow: bool) -> list[dict[str, Any]]:
        """Copy a batch into the executors' arrays.

        Args:
            train: True if a batch without label is an error.
            borrow: read the batch's arrays in place if type and device match. They must not change before the next
                backward.

        Returns:
            For each executor, the arrays to read in place instead.

        Shape:
            batch.data[i], batch.label[i]: the bound shapes.
        """
        feed = self.feed
        batch, self._label_order = in_order(batch, feed.data_names, feed.label_names)
        loaded = []
        for executor, inputs in zip(self.execs, feed.split(batch, train)):
            in_place = executor.load(inputs, borrow, train)
            if in_place is None:
                name = next(n for n, value in inputs.items() if value.shape != executor.input_array(n).shape)
                given, bound = tuple(inputs[name].shape), executor.input_array(name).shape
                raise ShapeError(f"{name} has shape {given}, expected {bound}")
            loaded.append(in_place)
        return loaded

    def forward(self, data_batch: BatchLike, is_train: bool | None = None) -> None:
        """Feed a batch and run forward on every context.

        Args:
            data_batch: `DataBatch`, an object with `data` and `label`, or a list of one per context. A batch whose
                `provide_data` has the bound names in another order is matched by name.
            is_train: None = the `for_training` of bind.

        Shape:
            data_batch.data[i], data_batch.label[i]: the bound shapes.
        """
        train = self.for_training if is_train is None else bool(is_train)
        self.run(train, self.load(data_batch, train, borrow=False))

    def run(self, train: bool, loaded: Sequence[dict[str, Any]]) -> None:
        """Run forward on every context.

        Args:
            loaded: from `load`.
        """
        if len(loaded) == 1:
            self.execs[0].run(train, loaded[0])
        else:
            jobs = [partial(e.run, train, own) for e, own in zip(self.execs, loaded)]
            run_parallel(self.active_contexts, jobs)

    def step(self, loaded: Sequence[dict[str, Any]], listener: Listener | None = None) -> None:
        """Run forward and backward on every context; the outputs must be losses.

        Args:
            loaded: from `load`; arrays that are read in place must not change during the call.
            listener: called with the name and the tensor of each gradient when it is computed, on one context.
        """
        if not self.for_training:
            raise _bound_for_prediction("forward_backward")
        if len(loaded) == 1:
            self.execs[0].step(loaded[0], listener)
        else:
            run_parallel(self.active_contexts, [partial(e.step, own) for e, own in zip(self.execs, loaded)])

    def backward(self, out_grads: OutGrads = None) -> None:
        """Run backward on every context.

        Args:
            out_grads: gradients of the merged outputs; needed for outputs that are not losses; a list may end before
                losses. With inputs per context, a list of such lists.

        Shape:
            out_grads[i]: (N, ...), the shape of the merged output, or of the output per context.
        """
        if not self.for_training:
            raise _bound_for_prediction("backward")
        for executor in self.execs:
            if not executor.has_run:
                raise StateError("backward: call forward(is_train=True) first")
        if len(self.execs) == 1 and not self.feed.per_context:
            if not (out_grads is None or isinstance(out_grads, (NDArray, list, tuple))):
                out_grads = list(out_grads)
            self.execs[0].backward(out_grads)
            return
        grads = self._split_out_grads(out_grads)
        run_parallel(self.active_contexts, [partial(e.backward, own) for e, own in zip(self.execs, grads)])

    def _split_out_grads(self, out_grads: OutGrads) -> list[Any]:
        if out_grads is None or (isinstance(out_grads, (list, tuple)) and not out_grads):
            return [None] * len(self.execs)
        if self.per_context:
            return list(out_grads)
        heads = [out_grads] if isinstance(out_grads, NDArray) else list(out_grads)
        rows = list(zip(heads, self.output_layouts))
        return [
            [
                self.feed.split_head(g, axis, k, e.outputs[n].shape[axis], e.context)
                for n, (g, axis) in enumerate(rows)
            ]
            for k, e in enumerate(self.execs)
        ]

    # results

    def get_outputs(
        self, merge_multi_context: bool = True, begin: int = 0, end: int | None = None
    ) -> list[Any]:
        """Return the outputs of the last forward.

        Args:
            merge_multi_context: concatenate over contexts along the batch axis; else a list per output.

        Shape:
            returns[i]: (N, ...), see `get_output_shapes`; else returns[i][k]: (n, ...), the samples of context k.
        """
        if merge_multi_context and len(self.execs) == 1:
            return self.execs[0].outputs[begin:end]
        outputs = [[e.outputs[k] for e in self.execs] for k in range(self.num_outputs)][begin:end]
        return (
            _merge_multi_context(outputs, self.output_layouts[begin:end]) if merge_multi_context else outputs
        )

    def get_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return (name, shape) of the merged outputs.

        Shape:
            returns[i][1]: (N, ...), the samples of all contexts on the output's batch axis.
        """
        shapes = []
        for k, (name, axis) in enumerate(zip(self.output_names, self.output_layouts)):
            shape = list(self.execs[0].outputs[k].shape)
            if axis >= 0 and not self.per_context:
                shape[axis] = sum(e.outputs[k].shape[axis] for e in self.execs)
            shapes.append((name, tuple(shape)))
        return shapes

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the gradients of the inputs, merged like outputs.

        Shape:
            returns[i]: (N, ...), that of the input; else returns[i][k]: (n, ...), the samples of context k.
        """
        arrays = self.input_grad_arrays
        if arrays is None:
            raise StateError("get_input_grads: bind with inputs_need_grad=True")
        return _merge_multi_context(arrays, self.data_layouts) if merge_multi_context else arrays

    def update_metric(
        self, eval_metric: EvalMetric, labels: Labels, pre_sliced: bool = False, pad: int = 0
    ) -> None:
        """Update a metric with the outputs and labels of each context.

        Args:
            labels: arrays of the whole batch, in its order; per context a list of them if `pre_sliced` or fed so.
            pad: number of padding samples at the end of the batch, which are not counted.

        Shape:
            labels[i]: (N, ...), as bound; for each context a list of them, with its part of N, if `pre_sliced`.
        """
        feed, order = self.feed, self._label_order
        if order is not None and labels and not pre_sliced and len(labels) > max(order):
            labels = [labels[i] for i in order]
        for k, executor in enumerate(self.execs):
            own = labels
            if pre_sliced or feed.per_context:
                own = labels[k] if isinstance(labels[k], (list, tuple)) else [labels[k]]
            elif len(self.contexts) > 1:
                own = feed.split_labels(labels, k, executor.context)
            shown = dict(zip(feed.label_names, own))
            outputs = dict(zip(self.output_names, executor.outputs))
            if pad and feed.slices:
                if feed.valid(k, pad) == 0:
                    continue
                shown = feed.without_padding(shown, feed.label_layouts, k, pad)
                outputs = feed.without_padding(outputs, self.output_layouts, k, pad)
            eval_metric.update_dict(shown, outputs)

    def install_monitor(self, mon: MonitorLike) -> None:
        """Install a monitor on every executor."""
        for executor in self.execs:
            mon.install(executor)


def _bound_for_prediction(what: str) -> StateError:
    return StateError(
        f"{what}: the group is bound with for_training=False; bind again with for_training=True"
    )


def _address(array: NDArray) -> int:
    if array.stype != "default":  # sparse memory is never shared
        return 0
    return array.raw.untyped_storage().data_ptr()
