"""`DataParallelExecutorGroup`: one executor per context, fed with slices of a batch."""

from __future__ import annotations

import logging
from collections import OrderedDict
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from ..base import ArgumentError, ShapeError, StateError, dtype_name
from ..context import Context, cpu
from ..executor import (
    PLAIN,
    Executor,
    RecordingExecutor,
    RunOptions,
    from_pool,
    placement,
    requirements,
)
from ..executor.gradients import check_differentiable
from ..executor.sparse_arrays import allocate_as, clear, is_sparse, load_stored
from ..executor.storage import declared_storage, gradient_storage, storage_of
from ..graph import infer_shapes, infer_types
from ..io import DataDesc
from ..ndarray import NDArray
from ..ops.sparse import Csr
from ..params import ParamStore
from ..slicing import split_input_slice as _split_input_slice  # noqa: F401
from ..staging import send
from .by_hand import load_data as _load_data  # noqa: F401  old programs import these from here
from .by_hand import load_general as _load_general  # noqa: F401
from .by_hand import load_label as _load_label  # noqa: F401
from .by_hand import merge_multi_context as _merge_multi_context
from .feed import Feed, describe, is_per_context
from .group_arrays import GroupArrays
from .workers import run_parallel

__all__ = ["DataParallelExecutorGroup"]

_MAX_SHAPES = 8
"""How many sets of input shapes keep their executors; further ones push out the one used longest ago."""


class _Silent:
    """Swallows the warning about growing memory, which only concerns sharing between groups."""

    def warning(self, *args: Any) -> None:
        """Drop a message."""


def _distinct(contexts: Sequence[Context]) -> list[Context]:
    """Return the contexts with CPU contexts that are named again replaced by ones of other numbers.

    Each CPU context has a thread and random numbers of its own. A GPU named twice runs one executor after the other.
    """
    found: list[Context] = []
    for ctx in contexts:
        if ctx in found and ctx.device_type == "cpu":
            taken = {*contexts, *found}
            ctx = next(each for each in map(cpu, range(len(taken) + 1)) if each not in taken)
        found.append(ctx)
    return found


def _per_context(group2ctxs: Any, count: int) -> list[dict[str, Context]]:
    """Return the contexts of groups for each context of a data-parallel group.

    Raises:
        ArgumentError: a list has another length than there are contexts.
    """
    if not group2ctxs:
        return [{}] * count
    if isinstance(group2ctxs, Mapping):
        lists = {k: list(v) if isinstance(v, (list, tuple)) else [v] for k, v in group2ctxs.items()}
        lists = {k: v * count if len(v) == 1 else v for k, v in lists.items()}
        wrong = [k for k, v in lists.items() if len(v) != count]
        if wrong:
            raise ArgumentError(
                f"group2ctxs: {', '.join(wrong)} has not one context for each of {count} contexts"
            )
        return [{k: v[i] for k, v in lists.items()} for i in range(count)]
    if len(group2ctxs) != count:
        raise ArgumentError(f"group2ctxs has {len(group2ctxs)} entries for {count} contexts")
    return [dict(each or {}) for each in group2ctxs]


class DataParallelExecutorGroup(GroupArrays):
    """Executors of one symbol on several contexts.

    A batch can be fed in two ways. MXNet's: `data_shapes` describes the whole batch, which is cut into slices by
    `workload`; contexts for which no sample is left are idle. That of Deformable ConvNets: `data_shapes` is a list
    of such descriptions, one per context, and a batch's `data` holds one list of arrays per context.

    Args:
        symbol: what to run.
        contexts: where. A device named twice gets two executors.
        workload: a positive number per context; shares of a batch are proportional. None = equal.
        data_shapes: descriptions of the inputs, (name, shape) or `DataDesc`.
        label_shapes: descriptions of the labels, or None.
        param_names: which arguments are parameters.
        for_training: whether gradients are needed.
        inputs_need_grad: whether gradients of the inputs are needed.
        shared_group: group whose parameters and data memory this one uses.
        logger: where the warning about growing shared memory goes.
        fixed_param_names: parameters that are not trained.
        grad_req: "write", "add" or "null" for all parameters, or a list or dict per argument.
        state_names: arguments that carry state from batch to batch.
        group2ctxs: where the groups named by ``AttrScope(ctx_group=...)`` live: a dict of contexts (or of lists of
            them, one for each of `contexts`), or a list of dicts, one for each of `contexts`.
        options: how executors run their programs.

    Raises:
        ArgumentError: names, sizes or options do not fit.
        ShapeError: shapes contradict the symbol or each other.

    Source: MXNet 1.9.1 `DataParallelExecutorGroup`; the per-context form from Deformable ConvNets' group.
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
        shared_group: DataParallelExecutorGroup | None = None,
        logger: Any = logging,
        fixed_param_names: Sequence[str] | None = None,
        grad_req: Any = "write",
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        options: RunOptions = PLAIN,
    ) -> None:
        self.symbol = symbol
        self._options = options
        self.contexts = _distinct(contexts)
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
        self.group2ctxs = _per_context(group2ctxs, len(self.contexts))
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

    # binding

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
        shared_group: DataParallelExecutorGroup | None = None,
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
        check_differentiable(graph, (name for name, req in self.grad_req.items() if req != "null"))
        if not self._declared:
            self._declare(shapes, types)
        ctx, pool, places = self.contexts[i], self.shared_data_arrays[i], self._places[i]
        args, grads = {}, {}
        for node in graph.arguments:
            name = node.name
            if name in self.param_names:
                args[name], grad = self.store.array(name, i), self.store.grad(name, i)
                if args[name].shape != shapes[node][0]:
                    raise ShapeError(
                        f"parameter {name} has shape {args[name].shape}, these inputs need {shapes[node][0]}"
                    )
                if grad is not None:
                    grads[name] = grad
            else:
                shape, dtype = tuple(shapes[node][0] or ()), types[node][0] or "float32"
                where = places.get(node, ctx)
                stype = self._stypes.get(name, "default")
                if stype == "default":
                    args[name] = from_pool(pool, name, shape, where, dtype, logger)
                else:
                    args[name] = pool[name] = allocate_as(stype, shape, where, dtype)
                if self.grad_req[name] != "null":
                    grads[name] = from_pool(pool, f"grad of {name}", shape, where, dtype, logger)
        aux = {name: self.store.aux(name, i) for name in self.aux_names}
        known = {name: stype for name, stype in self._stypes.items() if name in self.param_names}
        kind = RecordingExecutor if self._options.cuda_graphs else Executor
        return kind(
            graph,
            ctx,
            args,
            grads,
            self.grad_req,
            aux,
            shapes,
            types,
            places,
            known,
            self.symbol,
            self._options,
        )

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

    # running

    @staticmethod
    def _load(executor: Executor, inputs: dict[str, Any], borrow: bool) -> dict[str, Any]:
        """Copy inputs into an executor's arrays; return those it may read in place instead."""
        kept = {}
        for name, tensor in inputs.items():
            array = executor.input_array(name)
            if is_sparse(array) or isinstance(tensor, Csr):
                value = load_stored(name, array, tensor, borrow)
                if value is not None:
                    kept[name] = value
                continue
            own = array.tensor
            if tensor.shape != own.shape:
                raise ShapeError(f"{name} has shape {tuple(tensor.shape)}, expected {tuple(own.shape)}")
            if borrow and tensor.dtype == own.dtype and tensor.device == own.device:
                kept[name] = tensor
            elif tensor is not own:
                send(own, tensor)
        return kept

    def _each(self, jobs: Sequence[Callable[[], None]]) -> None:
        if len(jobs) == 1:
            jobs[0]()
        else:
            run_parallel(self.active_contexts, jobs)

    def forward(self, data_batch: Any, is_train: bool | None = None, borrow: bool = False) -> None:
        """Feed a batch and run forward on every context.

        Args:
            data_batch: `DataBatch`, or anything with `data` and `label`; or a list of one per context.
            is_train: None = as the group was bound.
            borrow: read the batch's arrays in place where their type and device fit. They must stay unchanged
                until the following backward.

        Raises:
            ArgumentError: arrays are missing.
            ShapeError: shapes are not those that were bound.
        """
        train = self.for_training if is_train is None else bool(is_train)
        pieces = self.feed.split(data_batch, train)
        self._each([_forward_job(e, self._load(e, own, borrow), train) for e, own in zip(self.execs, pieces)])

    def forward_backward(self, data_batch: Any) -> None:
        """Feed a batch, run forward and backward on every context; the outputs must be losses.

        Args:
            data_batch: as in `forward`; its arrays are read in place and must not change during the call.
        """
        self._check_training("forward_backward")
        pieces = self.feed.split(data_batch, True)
        self._each([_step_job(e, self._load(e, own, True)) for e, own in zip(self.execs, pieces)])

    def backward(self, out_grads: Any = None) -> None:
        """Run backward on every context.

        Args:
            out_grads: gradients of the merged outputs; needed for outputs that are no losses, so a list may end
                before outputs that are. With inputs given per context, a list of such lists.

        Raises:
            StateError: the group was bound for prediction, or nothing has been run.
        """
        self._check_training("backward")
        if not all(executor.has_run for executor in self.execs):
            raise StateError("backward: call forward(is_train=True) first")
        grads = self._split_out_grads(out_grads)
        self._each([_backward_job(e, own) for e, own in zip(self.execs, grads)])

    def _check_training(self, what: str) -> None:
        if not self.for_training:
            raise StateError(f"{what}: bound with for_training=False; bind again with for_training=True")

    def _split_out_grads(self, out_grads: Any) -> list[Any]:
        if out_grads is None or (isinstance(out_grads, (list, tuple)) and not out_grads):
            return [None] * len(self.execs)
        if self.per_context:
            return list(out_grads)
        given = [out_grads] if isinstance(out_grads, NDArray) else list(out_grads)
        if len(self.contexts) == 1:
            return [given]
        rows = list(zip(given, self.output_layouts))
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
            merge_multi_context: join the contexts' outputs along the batch axis; else a list per output.
            begin: first output.
            end: output after the last.
        """
        outputs = [[e.outputs[k] for e in self.execs] for k in range(self.num_outputs)][begin:end]
        return (
            _merge_multi_context(outputs, self.output_layouts[begin:end]) if merge_multi_context else outputs
        )

    def get_output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """Return (name, shape) of the merged outputs."""
        found = []
        for k, (name, axis) in enumerate(zip(self.output_names, self.output_layouts)):
            shape = list(self.execs[0].outputs[k].shape)
            if axis >= 0 and not self.per_context:
                shape[axis] = sum(e.outputs[k].shape[axis] for e in self.execs)
            found.append((name, tuple(shape)))
        return found

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the gradients of the inputs, merged like outputs.

        Raises:
            StateError: the group was bound without `inputs_need_grad`.
        """
        arrays = self.input_grad_arrays
        if arrays is None:
            raise StateError("get_input_grads: bind with inputs_need_grad=True")
        return _merge_multi_context(arrays, self.data_layouts) if merge_multi_context else arrays

    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False, pad: int = 0) -> None:
        """Show a metric each context's outputs and labels.

        Args:
            eval_metric: the metric.
            labels: arrays of the whole batch; per context a list of them if `pre_sliced` or fed so.
            pre_sliced: whether labels are given per context.
            pad: how many samples at the end of the batch are padding that must not count.
        """
        for k, executor in enumerate(self.execs):
            if pre_sliced or self.per_context:
                own = labels[k] if isinstance(labels[k], (list, tuple)) else [labels[k]]
            else:
                own = self.feed.split_labels(labels, k, executor.context)
            shown = dict(zip(self.label_names, own))
            outputs = dict(zip(self.output_names, executor.outputs))
            if pad and self.feed.slices:
                if self.feed.valid(k, pad) == 0:
                    continue
                shown = self.feed.without_padding(shown, self.label_layouts, k, pad)
                outputs = self.feed.without_padding(outputs, self.output_layouts, k, pad)
            eval_metric.update_dict(shown, outputs)

    def install_monitor(self, mon: Any) -> None:
        """Install a monitor on every executor."""
        for executor in self.execs:
            mon.install(executor)


def _memory(array: NDArray) -> int:
    if is_sparse(array):  # each executor has one of its own
        return 0
    return array.tensor.untyped_storage().data_ptr()


def _known(shape: Any) -> bool:
    return shape is not None and 0 not in shape


def _forward_job(executor: Executor, inputs: dict[str, Any], train: bool) -> Callable[[], None]:
    return lambda: executor.run(train, inputs)


def _step_job(executor: Executor, inputs: dict[str, Any]) -> Callable[[], None]:
    return lambda: executor.step(inputs)


def _backward_job(executor: Executor, grads: Any) -> Callable[[], None]:
    return lambda: executor.backward(grads)
