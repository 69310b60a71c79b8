"""`DataParallelExecutorGroup`: one executor per context, fed with slices of a batch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from .. import later
from ..base import ShapeError, StateError
from ..executor import Executor
from ..executor.sparse_arrays import is_sparse, load_stored
from ..ndarray import NDArray
from ..ops.sparse import Csr
from ..slicing import split_input_slice as _split_input_slice  # noqa: F401
from ..staging import send
from .by_hand import load_data as _load_data  # noqa: F401  old programs import these from here
from .by_hand import load_general as _load_general  # noqa: F401
from .by_hand import load_label as _load_label  # noqa: F401
from .by_hand import merge_multi_context as _merge_multi_context
from .group_binding import BoundGroup
from .workers import run_parallel

__all__ = ["DataParallelExecutorGroup"]

later.publish(__name__, __all__)


class DataParallelExecutorGroup(BoundGroup):
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
            own = array.raw
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


def _forward_job(executor: Executor, inputs: dict[str, Any], train: bool) -> Callable[[], None]:
    return lambda: executor.run(train, inputs)


def _step_job(executor: Executor, inputs: dict[str, Any]) -> Callable[[], None]:
    return lambda: executor.step(inputs)


def _backward_job(executor: Executor, grads: Any) -> Callable[[], None]:
    return lambda: executor.backward(grads)
