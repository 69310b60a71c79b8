"""`AutobatchModule`: a program for one example with the interface of a module."""

from __future__ import annotations

import inspect
import logging
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from typing_extensions import override

from ...autobatch.arguments import flag
from ...autobatch.collection import ParameterCollection
from ...autobatch.explain import Explanation, explain
from ...autobatch.from_torch import wrap
from ...base import ArgumentError, StateError
from ...context import Context
from ...kvstore.base import has_other_processes
from ...ndarray import NDArray
from ...ndarray.row_source import FetchedArray
from ...ndarray.sparse_base import fetched
from .. import scoring as loops
from ..arguments import BindArguments, OptimizerArguments, ParamArguments, first_values
from ..base_module import BaseModule
from ..checkpointed_module import CheckpointedModule
from ..fit import pad_of
from ..group.batch_splitter import split_batch
from ..group.contexts import contexts_of, distinct
from ..group.input_order import in_order
from ..lifecycle import Stage, needs
from ..mxnet_helpers import names_of
from ..updates import Updates, check_compression, prefetch_rows
from .batch_run import (
    BatchResult,
    CollectionGroup,
    CollectionStore,
    are_sequences,
    array_of_labels,
    axes_of,
    batch_axis,
    columns_of,
    merged,
    on_context,
    run_examples,
    run_torch_examples,
)

if TYPE_CHECKING:
    from ...autobatch.pytorch.batching import Run
    from ...autobatch.pytorch.explain import BatchingReport
    from ...metric import EvalMetric
    from ...symbol import Symbol
    from ..types import (
        BatchLike,
        CollectionLike,
        CompressionLike,
        ContextsLike,
        DataLike,
        Labels,
        LoggerLike,
        MonitorLike,
        OutGrads,
        RowIdFunction,
        ShapesLike,
    )


class AutobatchModule(CheckpointedModule):
    """Trains and runs a function that is written for one example.

    For every batch, `function` is called once for each example, in one graph, which `dpmodule.autobatch` batches
    automatically; examples may differ in structure. Its arguments are the example's data, in the order of
    `data_names`, and its labels, in the order of `label_names` (None for labels that a batch lacks); it returns
    expressions:

    * the loss; or
    * a tuple ``(loss, output, ...)``. The loss may be None outside of training, or if the outputs are loss heads of
      cells, such as SoftmaxOutput.

    The losses of all examples are summed. Without outputs, the loss is the output. For metrics, outputs and labels are
    stacked along a new first axis if all shapes are equal, else concatenated along their first axis; they are also
    concatenated if each example has a label for every vector of its output, as in tagging. `stack` overrides this.

    ``batch.data[k]`` is an array, whose rows the function receives as NumPy arrays, or a list of any Python objects, as
    yielded by `ExampleIter`.

    The first context uses the memory of the collection's parameters; further contexts have copies, whose gradients a
    kvstore sums. Parameters always have values: `init_params` and `fit` draw new ones only if an initializer is passed.
    In files a parameter "/encoder/W" is called "encoder_W", and parameters of cells have the names of the symbol's
    arguments, so that `Module` can load them. A forward in training mode also computes the gradients. Each run starts a
    new graph (`renew_cg`); `autobatch.explain()` shows it afterwards.

    With a module of torch as `params`, the function is plain PyTorch for one example, as for `autobatch.batching`: it
    may be asynchronous, receives tensors instead of arrays, and returns tensors. Its buffers are not saved.

    Args:
        params: a `ParameterCollection`, an object with one as ``collection``, such as a cell, or a torch module, whose
            parameters are trained.
        label_names: inputs that are labels; None for none.
        logger: where progress is logged.
        context: a device or a list of them.
        work_load_list: share of the batch for each device; None = equal.
        fixed_param_names: parameters that are not trained.
        output_names: names of the outputs; further ones are numbered.
        symbol: written to checkpoints with the parameters.
        autobatch: True to compute examples in batches; False for debugging.
        stack: True to always stack outputs and labels, False to always concatenate them.
        compression_params: gradient compression; see `Module`.
        shard_rows: False to keep whole tables in every process of a kvstore "dist_sync"; see `Module`.

    Raises:
        ArgumentError: an argument is invalid.
        ForeignValueError: `autobatch`, `stack` or `shard_rows` is neither True nor False.

    Example:
        >>> import dpmodule.autobatch as dy
        >>> m = dy.ParameterCollection()
        >>> W = m.add_parameters((2, 3), name="W")
        >>> def program(words, label):
        ...     scores = W * dy.average([dy.inputTensor(word) for word in words])
        ...     return None if label is None else dy.pickneglogsoftmax(scores, label), dy.softmax(scores)
        >>> data = [np.eye(3)[:1], np.eye(3)[1:], np.eye(3)]
        >>> mod = mx.mod.AutobatchModule(program, m)
        >>> train = mx.mod.ExampleIter(data, [0, 1, 1], batch_size=3)
        >>> history = mod.fit(train, num_epoch=30, optimizer="adam", optimizer_params={"learning_rate": 0.1})
        >>> mod.score(train, "acc")
        [('accuracy', 1.0)]
    """

    def __init__(
        self,
        function: Callable[..., Any],
        params: CollectionLike,
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: LoggerLike = logging,
        context: ContextsLike = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        *,
        output_names: Sequence[str] = ("output",),
        symbol: Symbol | None = None,
        autobatch: bool = True,
        stack: bool | None = None,
        compression_params: CompressionLike = None,
        shard_rows: bool = True,
    ) -> None:
        super().__init__(logger, symbol)
        check_compression(compression_params)
        self._torch_module = params if isinstance(params, torch.nn.Module) else None
        self._block: Run | None = None
        owner: Any = params if self._torch_module is None else wrap(self._torch_module)
        collection = getattr(owner, "collection", params)
        if not isinstance(collection, ParameterCollection):
            raise ArgumentError(
                f"AutobatchModule: params is {type(params).__name__}, expected a ParameterCollection or a torch module"
            )
        self.collection = collection
        if not callable(function):
            raise ArgumentError(
                f"AutobatchModule: function is {type(function).__name__}, expected a function"
            )
        self.function, self._autobatch = function, flag(autobatch, "AutobatchModule: autobatch")
        self._stack = None if stack is None else flag(stack, "AutobatchModule: stack")
        self._output_names = list(output_names)
        self._results: list[BatchResult | None] = []
        self._label_axes: list[int] = []
        self._label_order: list[int] | None = None  # positions of the labels in the last batch
        self._has_gradients = False
        self._data_names = names_of(data_names, "data_names")
        self._label_names = names_of(label_names, "label_names")
        self._context = distinct(contexts_of(context))
        self._workload = list(work_load_list or [1.0] * len(self._context))
        self._fixed = names_of(fixed_param_names, "fixed_param_names")
        self._compression_params = compression_params
        self._shard_rows = flag(shard_rows, "AutobatchModule: shard_rows")
        self._shapes: tuple[Any, Any] = (None, None)
        self._grad_req = "write"
        self._held: CollectionStore | None = None

    @staticmethod
    def load(
        prefix: str,
        epoch: int,
        function: Callable[..., Any],
        params: CollectionLike,
        load_optimizer_states: bool = False,
        **kwargs: Any,
    ) -> AutobatchModule:
        """Create a module with the parameters of a checkpoint of this class or of `Module`.

        Args:
            prefix: path prefix of the files.
            params: as for the constructor; the file must have a value for each parameter.
            load_optimizer_states: also read ``prefix-NNNN.states`` once the optimizer is installed.

        Raises:
            ArgumentError: an argument is invalid.
        """
        from ...checkpoint import load_params

        module = AutobatchModule(function, params, **kwargs)
        states = f"{prefix}-{epoch:04d}.states" if load_optimizer_states else None
        module.preload(*load_params(prefix, epoch, fetch=False), states)
        return module

    # properties

    @property
    @override
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        """Names of the labels."""
        return self._label_names

    @property
    def data_shapes(self) -> Any:
        return self._shapes[0]

    @property
    def label_shapes(self) -> Any:
        return self._shapes[1]

    @property
    def held(self) -> CollectionStore:
        """The parameters on all contexts.

        Raises:
            StateError: `bind` has not been called.
        """
        if self._held is None:
            raise StateError("AutobatchModule: call bind(data_shapes=..., label_shapes=...) first")
        return self._held

    @property
    @override
    def matches_by_name(self) -> bool:
        return True

    @property
    def output_names(self) -> list[str]:
        count = max(
            (len(result.outputs) for result in self._results if result is not None),
            default=len(self._output_names),
        )
        more = [f"output{i}" for i in range(len(self._output_names), count)]
        return [*self._output_names, *more][:count]

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return [(name, output.shape) for name, output in zip(self.output_names, self.get_outputs())]

    # binding

    @override
    def _bind(self, arguments: BindArguments) -> None:
        """Use the collection's parameters, and copy them to further contexts.

        The shapes only define the number of examples in a batch, by which gradients are divided. A shared module has
        the same collection; copies and optimizer are shared, too.
        """
        if self._stays_bound(arguments):
            return
        arguments.refuse_store(self)
        grad_req, shared_module = arguments.grad_req, arguments.shared_module
        if arguments.inputs_need_grad:
            raise ArgumentError("bind: inputs_need_grad: the inputs of an AutobatchModule have no gradients")
        if grad_req not in ("write", "add"):
            raise ArgumentError(f'bind: grad_req is {grad_req!r}, an AutobatchModule takes "write" or "add"')
        if len(self._workload) != len(self._context):
            raise ArgumentError(
                f"work_load_list has {len(self._workload)} entries for {len(self._context)} contexts"
            )
        if shared_module is not None:
            if getattr(shared_module, "collection", None) is not self.collection:
                raise ArgumentError("bind: shared_module has another collection; make both modules over one")
            self._held = shared_module.held
        else:
            self.sync_contexts()
            self._held = CollectionStore(self.collection, self._context, self._fixed)
        if not self.held.parameters:
            raise ArgumentError(
                "bind: the collection has no parameters yet; a cell creates them at the first call, or "
                "immediately with cell(symbol, params, shapes={input: shape of one example})"
            )
        self.for_training, self._grad_req = arguments.for_training, grad_req
        self._shapes = list(arguments.data_shapes), list(arguments.label_shapes or ()) or None
        self._mark(Stage.BOUND, True)
        if shared_module is not None and shared_module.params_initialized:
            self._mark(Stage.INITIALIZED, True)
            if shared_module.optimizer_initialized:
                self.borrow_optimizer(shared_module)

    def rebind(
        self,
        contexts: Sequence[Context] | None,
        workload: Sequence[float] | None,
        data_shapes: ShapesLike,
        label_shapes: ShapesLike | None,
    ) -> None:
        """Bind for training on other devices; parameters and optimizer states stay.

        Args:
            contexts: the devices; None keeps them.
            workload: share of each device; None = equal for given devices, else unchanged.
            data_shapes: as in `bind`.
            label_shapes: as in `bind`.

        Shape:
            data_shapes[i], label_shapes[i]: (N, ...), N samples on the axis that the layout calls "N", the first by
                default.
        """
        self.sync_contexts()
        if self._updates is not None and (spread := self._updates.spread_names()):
            raise StateError(
                f"rebind: the rows of {', '.join(spread)} are spread over processes, which have one context each; make "
                "a new module, or use shard_rows=False"
            )
        if contexts is not None:
            self._context = distinct(contexts_of(contexts))
            self._workload = [1.0] * len(self._context)
        if workload is not None:
            self._workload = list(workload)
        before = self._updates if self._stage >= Stage.READY else None
        states = None if before is None else before.states_by_name()
        self.bind(data_shapes, label_shapes, True, False, True, None, self._grad_req)
        if before is not None and states is not None:
            self._mark(Stage.READY, False)
            self.init_optimizer(before.kind, before.optimizer)
            self.updates.restore_states(states)

    # parameters and optimizer

    @override
    @needs(Stage.BOUND)
    def _init_params(self, arguments: ParamArguments) -> None:
        """Set parameters and states, or draw new values if an initializer was passed."""
        if self.params_initialized and not arguments.force_init:
            return
        arg_params, aux_params = arguments.arg_params, arguments.aux_params
        if arg_params is None and aux_params is None and self.preloaded is not None:
            arg_params, aux_params = self.preloaded
        self.preloaded = None
        held = self.held
        drawn = (
            None
            if any(arguments.initializer is default for default in _default_initializers())
            else arguments.initializer
        )
        arg_params, unchanged = self._without_tables(arg_params, drawn, arguments.allow_missing)
        arrays = {name: held.store.array(name, 0) for name in held.parameters if name not in unchanged}
        states = {name: held.store.aux(name, 0) for name in held.states}
        held.store.load(
            first_values(
                arrays, arg_params, drawn, held.attributes, arguments.allow_missing, arguments.allow_extra
            ),
            first_values(
                states, aux_params, drawn, held.attributes, arguments.allow_missing, arguments.allow_extra
            ),
        )
        for name in held.tables.keys() & arrays.keys():
            held.tables[name].begin(None)
        if self._stage >= Stage.READY or not has_other_processes():  # it is known that they stay whole
            held.fill_tables()
        self._mark(Stage.INITIALIZED, True)

    def _without_tables(
        self, given: Mapping[str, NDArray] | None, drawn: Any, allow_missing: bool
    ) -> tuple[dict[str, NDArray] | None, set[str]]:
        """Return the values to set now, and the names of tables that keep their values, or get new ones later."""
        from ..initial_rows import InitialRows  # few collections have tables

        held, unchanged = self.held, set()
        values = None if given is None else dict(given)
        for name, storage in held.tables.items():
            rows = None
            may_wait = self._shard_rows and len(self._context) == 1 and not storage.is_fetched
            if values is not None and name in values:
                if may_wait and isinstance(array := values[name], FetchedArray):
                    rows = InitialRows.of_array(array)
                    del values[name]
                elif not storage.is_fetched:
                    values[name] = fetched(values[name])
            elif values is not None and not allow_missing:
                continue
            elif drawn is None:
                unchanged.add(name)
            elif may_wait:
                rows = InitialRows.of(drawn, name, held.attributes.get(name), held.store.array(name, 0))
            if rows is not None:
                storage.postpone(rows)
                unchanged.add(name)
        return values, unchanged

    @override
    @needs(Stage.BOUND)
    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        arg_params, aux_params = self.live_params()
        return {name: fetched(array) for name, array in arg_params.items()}, aux_params

    @override
    @needs(Stage.BOUND)
    def live_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        self.held.fill_tables()
        return self.held.store.average()

    @override
    def sync_contexts(self) -> None:
        if self._held is not None and len(self._held.contexts) > 1:
            self._held.store.load(*self._held.store.average())

    def updated_group(self) -> CollectionGroup:
        """Return the parameters and gradients for `Updates`."""
        described = [desc for desc in self._shapes[0] or () if desc[1]]
        rows = int(described[0][1][batch_axis(described[0])]) if described else 1
        return self.held.group(self._symbol, rows)

    @override
    @needs(Stage.INITIALIZED)
    def _init_optimizer(self, arguments: OptimizerArguments) -> None:
        if self._keeps_optimizer(arguments):
            return
        spreads = self._shard_rows and all(context.device_type == "cpu" for context in self._context)
        if not spreads:
            self.held.fill_tables()
        rows = self.held.initial_rows() if spreads else None
        updates = Updates.install(
            arguments, self.updated_group(), self._compression_params, initial_rows=rows
        )
        self.held.fill_tables()  # those that the store does not have, such as fixed ones
        self._update_by(updates)
        self._mark(Stage.READY, True)
        self.load_preloaded_states()

    @needs(Stage.INITIALIZED)
    def borrow_optimizer(self, shared_module: AutobatchModule) -> None:
        """Use the optimizer, its states and the store of another module.

        Args:
            shared_module: the other module, which continues to use them.

        Raises:
            StateError: the other module has no optimizer.
        """
        if shared_module.stage < Stage.READY:
            raise StateError("borrow_optimizer: call init_optimizer() of the other module first")
        self._update_by(Updates.borrow(shared_module.updates, self.updated_group()))
        self._mark(Stage.READY, True)

    @override
    @needs(Stage.READY)
    def update(self) -> None:
        self.updates.apply()

    @override
    def stores(self) -> list[Any]:
        return [self.held.store]

    @override
    def nonfinite_gradient(self) -> str | None:
        return None if self._updates is None else self._updates.nonfinite_gradient()

    # computing

    def prepare(self, data_batch: BatchLike, sparse_row_id_fn: RowIdFunction = None) -> None:
        if sparse_row_id_fn is not None:
            prefetch_rows(sparse_row_id_fn(data_batch), self.held.parameters, self.held.store)

    @needs(Stage.INITIALIZED)
    def forward(self, data_batch: BatchLike, is_train: bool | None = None) -> None:
        is_train = self.for_training if is_train is None else bool(is_train)
        num_data, num_labels = len(self._data_names), len(self._label_names)
        data_batch, self._label_order = in_order(
            data_batch, self._data_names, self._label_names, *self._shapes
        )
        axes = axes_of(getattr(data_batch, "provide_data", None) or self._shapes[0], num_data)
        provided = getattr(data_batch, "provide_label", None)
        self._label_axes = axes_of(provided or self._shapes[1], num_labels)
        rows = columns_of(data_batch, num_data, num_labels, [*axes, *self._label_axes])
        held, self._results = self.held, []
        for i, rows_slice in enumerate(split_batch(len(rows), self._workload)):
            if rows_slice.start == rows_slice.stop:
                self._results.append(None)
                if is_train and self._grad_req == "write":
                    held.no_gradients(i)
                continue
            with on_context(self._context[i]), held.placed(i):
                held.clear()
                self._results.append(self._run(rows[rows_slice], is_train, self._context[i]))
                if is_train:
                    held.take_gradients(i, self._grad_req == "add")
        self._has_gradients = is_train

    def _run(self, rows: Sequence[tuple[Any, ...]], is_train: bool, context: Context) -> BatchResult:
        """Run the function on the examples of a context."""
        if self._torch_module is None:
            return run_examples(self.function, rows, is_train, self._autobatch)
        result, self._block = run_torch_examples(
            self.function, self._torch_module, rows, is_train, self._autobatch, context
        )
        return result

    @needs(Stage.INITIALIZED)
    def backward(self, out_grads: OutGrads = None) -> None:
        if out_grads is not None:
            raise ArgumentError("backward: out_grads is not supported; the function returns its own loss")
        if not self._has_gradients:
            raise StateError("AutobatchModule.backward: call forward(batch, is_train=True) first")

    def _nonempty_results(self) -> list[BatchResult]:
        results = [result for result in self._results if result is not None]
        if not results:
            raise StateError("AutobatchModule: call forward() first")
        return results

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        parts = self._nonempty_results()
        if not merge_multi_context:
            columns = [[part.outputs[k] for part in parts] for k in range(len(parts[0].outputs))]
            return [[merged(outputs, self._stack) for outputs in column] for column in columns]
        return [merged(column, self._stack) for column in _columns(parts)]

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        raise ArgumentError("get_input_grads: the inputs of an AutobatchModule have no gradients")

    @override
    def output_probes(self) -> list[list[torch.Tensor]]:
        parts = self._nonempty_results()
        losses = [torch.tensor(part.loss) for part in parts if part.loss is not None]
        return [*_columns(parts), losses]

    def nan_rows(self) -> tuple[list[int], int]:
        columns = _columns(self._nonempty_results())
        count = len(columns[0]) if columns else 0
        return [i for i in range(count) if any(bool(column[i].isnan().any()) for column in columns)], count

    def predict(
        self,
        eval_data: DataLike | NDArray | np.ndarray[Any, Any] | torch.Tensor,
        num_batch: int | None = None,
        merge_batches: bool = True,
        reset: bool = True,
        always_output_list: bool = False,
        sparse_row_id_fn: RowIdFunction = None,
        *,
        on_nonfinite: str = "warn",
    ) -> Any:
        if isinstance(eval_data, (NDArray, np.ndarray, torch.Tensor)):
            return super().predict(
                eval_data, num_batch, merge_batches, reset, always_output_list, on_nonfinite=on_nonfinite
            )
        batches, counter = [], loops.NaNRowCounter(self, "predict", on_nonfinite)
        for number, batch in enumerate(loops.batches_of(self, eval_data, num_batch, reset, sparse_row_id_fn)):
            self.evaluate(batch)
            pad = pad_of(batch)
            counter.update(number, pad)
            batches.append([column[: len(column) - pad] for column in _columns(self._nonempty_results())])
        counter.warn()
        if not merge_batches:
            return [[merged(column, self._stack) for column in batch] for batch in batches]
        outputs = [merged([row for part in parts for row in part], self._stack) for parts in zip(*batches)]
        return outputs[0] if len(outputs) == 1 and not always_output_list else outputs

    @needs(Stage.BOUND)
    def update_metric(
        self, eval_metric: EvalMetric, labels: Labels, pre_sliced: bool = False, pad: int = 0
    ) -> None:
        if pre_sliced:
            raise ArgumentError(
                "update_metric: pre_sliced: an AutobatchModule takes labels of the whole batch"
            )
        columns = [column[: len(column) - pad] for column in _columns(self._nonempty_results())]
        if self._label_order is not None and labels and len(labels) > max(self._label_order):
            labels = [labels[i] for i in self._label_order]
        count, label_arrays, stacks = len(columns[0]), {}, [self._stack] * len(columns)
        for k, (name, label) in enumerate(zip(self._label_names, labels or ())):
            axis = self._label_axes[k]
            if k < len(columns) and self._stack is None and are_sequences(columns[k], label, axis):
                stacks[k] = False
            stack = stacks[k] if k < len(columns) else self._stack
            label_arrays[name] = array_of_labels(label, count, stack, axis)
        outputs = map(merged, columns, stacks)
        eval_metric.update_dict(label_arrays, dict(zip(self.output_names, outputs)))

    def explain(self) -> Explanation | BatchingReport:
        """Return the batches of operations in the last forward on the last context; see `autobatch.explain`.

        For a program of torch, it is a report as that of a block of `autobatch.batching`.

        Raises:
            StateError: nothing has run, or another graph has been started since.
        """
        return explain() if self._block is None else self._block.explain()

    def install_monitor(self, mon: MonitorLike) -> None:
        raise ArgumentError("install_monitor: an AutobatchModule has no executors; see autobatch.explain()")


def _columns(parts: Sequence[BatchResult]) -> list[list[Any]]:
    """Return, for every output, the tensors of all examples."""
    return [[output for part in parts for output in part.outputs[k]] for k in range(len(parts[0].outputs))]


def _default_initializers() -> tuple[Any, ...]:
    """Return the initializers that `fit` and `set_params` pass when the user gives none."""
    methods = (BaseModule.fit, BaseModule.init_params)
    return (None, *(inspect.signature(method).parameters["initializer"].default for method in methods))
