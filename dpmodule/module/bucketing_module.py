"""`BucketingModule`: one set of parameters, one graph and executor group per bucket."""

from __future__ import annotations

import functools
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar, cast

from typing_extensions import override

from .._core import lazy
from .._core.overrides import overrides
from .._devices.malloc import trim_heap
from ..base import ArgumentError, MXNetError, ShapeError, StateError
from ..context import Context
from ..io.iterator import shape_of
from ..ndarray import NDArray
from ..params import ParamStore
from ..symbol import Symbol
from . import buckets as bucket_files
from .arguments import BindArguments, OptimizerArguments, ParamArguments
from .base_module import BaseModule
from .buckets import Buckets, SymGen, with_symbols
from .group.batch_splitter import describe
from .lifecycle import Stage, needs
from .module import Module
from .mxnet_compat import BUCKETING_MODULE, also_named

if TYPE_CHECKING:
    from ..executor.explanation import ExecutorExplanation
    from ..io import DataIter
    from .class_labels import NetworkInputs
    from .types import (
        AmpLike,
        BatchLike,
        BucketKey,
        CompileLike,
        CompressionLike,
        DynamicAxes,
        GroupContextsLike,
        LoggerLike,
        MonitorLike,
        PathLike,
        RowIdFunction,
        ShapesLike,
    )

__all__ = ["BucketingModule"]

lazy.publish(__name__, __all__)


_Method = TypeVar("_Method", bound=Callable[..., Any])

_WORTH_RETURNING = 2**22
"""Smallest number of elements of a bucket's results for which its free memory is returned before another runs."""


def _of_current(name: str, doc: str | None = None) -> Any:
    """Return a property of the current bucket's module."""
    return property(lambda self: getattr(self._curr_module, name), doc=doc)


def _by_current(method: _Method, stage: Stage = Stage.CREATED) -> _Method:
    """Return a method that the current bucket's module runs, once the stage is reached."""

    @functools.wraps(method)
    def run(self: BucketingModule, *args: Any, **kwargs: Any) -> Any:
        return getattr(self._curr_module, method.__name__)(*args, **kwargs)

    return needs(stage)(cast(_Method, run))


@also_named(BUCKETING_MODULE)
class BucketingModule(BaseModule):
    """A module for inputs of several sizes, such as sentences grouped into buckets by length.

    Every bucket has its own graph, which `sym_gen` makes on first use. All buckets share parameters, gradients,
    auxiliary and optimizer states, and the data memory of the largest bucket. The results of a bucket are released
    when another bucket runs, so that many buckets need hardly more memory than the largest.

    Args:
        sym_gen: ``(bucket_key) -> (symbol, data_names, label_names)``.
        default_bucket_key: the bucket that is bound first and initializes parameters, preferably the largest.
        logger: logger of the progress.
        context: a device or a list of them.
        work_load_list: share of the batch for each device; None = equal.
        fixed_param_names: parameters that are not updated.
        state_names: arguments that carry state from batch to batch.
        group2ctxs: contexts of attribute groups; see `Module`.
        compression_params: gradient compression; see `Module`.
        max_buckets: number of buckets, including the default one, that keep their executors; the least recently
            used is dropped first, and made again on its next use. None = all.
        compile: compile the network of every bucket with `torch.compile`; see `Module`.
        amp: "bf16" or "fp16" for training in 16 bits; see `Module`.
        cuda_graphs: record CUDA graphs; see `Module`. Changing the bucket drops a recording.
        mirror: results that backward recomputes instead of keeping them; see `Module`.
        shard_rows: False to keep whole tables in every process of a kvstore "dist_sync"; see `Module`.

    Raises:
        ArgumentError: an argument is invalid.

    Source: MXNet 1.9.1 `BucketingModule`.
    """

    def __init__(
        self,
        sym_gen: SymGen,
        default_bucket_key: BucketKey = None,
        logger: LoggerLike = logging,
        context: Context | Sequence[Context] | None = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: GroupContextsLike = None,
        compression_params: CompressionLike = None,
        *,
        max_buckets: int | None = None,
        compile: CompileLike = None,
        amp: AmpLike = None,
        cuda_graphs: bool | None = None,
        mirror: bool | int | None = None,
        shard_rows: bool = True,
    ) -> None:
        super().__init__(logger)
        if not callable(sym_gen):
            raise ArgumentError(f"sym_gen is {sym_gen!r}, expected a function of the bucket key")
        if default_bucket_key is None:
            raise ArgumentError("default_bucket_key is missing; pass the key of the largest bucket")
        self._sym_gen = sym_gen
        self._default_bucket_key = default_bucket_key
        self.options: dict[str, Any] = {
            "context": context,
            "work_load_list": work_load_list,
            "fixed_param_names": fixed_param_names,
            "state_names": state_names,
            "group2ctxs": group2ctxs,
            "compression_params": compression_params,
            "compile": compile,
            "amp": amp,
            "cuda_graphs": cuda_graphs,
            "mirror": mirror,
            "shard_rows": shard_rows,
        }
        if logger is not logging:
            self.options["logger"] = logger
        self._buckets = Buckets(sym_gen, self.options, max_buckets)
        self._default = self._buckets.make(default_bucket_key)
        self._key, self._curr_module = default_bucket_key, self._default
        self._is_announced = False  # True if `update` follows the next backward
        self._binding: BindArguments | None = None
        self._grad_req: Any = None
        self._monitor: Any = None
        self._memory_returned, self._in_epoch = True, False

    # properties

    @property
    @override
    def stage(self) -> Stage:
        return self._default.stage

    @property
    def bucket_keys(self) -> list[Any]:
        """Keys of the buckets that have executors, the least recently used first."""
        return list(self._buckets)

    @property
    def bucket_key(self) -> Any:
        """Key of the current bucket."""
        return self._key

    symbol: Any = _of_current("symbol")
    data_names: list[str] = _of_current("data_names")
    label_names: list[str] = _of_current("label_names", "Names of the labels of the current bucket.")
    output_names: list[str] = _of_current("output_names")
    data_shapes: Any = _of_current("data_shapes")
    label_shapes: Any = _of_current("label_shapes")
    output_shapes: list[tuple[str, tuple[int, ...]]] = _of_current("output_shapes")

    @property
    @override
    def matches_by_name(self) -> bool:
        return True

    # binding

    @override
    def _bind(self, arguments: BindArguments) -> None:
        """Allocate the default bucket; other buckets are allocated on their first batch."""
        if arguments.shared_module is not None:
            raise ArgumentError(
                "bind: BucketingModule does not accept shared_module; its own buckets share parameters"
            )
        if self._stays_bound(arguments):
            return
        arguments.bind(self._default)
        self._note_binding(arguments)
        self._reset_to_default_bucket()

    @property
    def store(self) -> ParamStore:
        """Parameters, gradients and auxiliary states of all buckets; see `Module.store`."""
        return self._default.store

    def _note_binding(self, arguments: BindArguments) -> None:
        self._binding, self._grad_req = arguments, arguments.grad_req
        self.for_training, self.inputs_need_grad = arguments.for_training, arguments.inputs_need_grad

    def _reset_to_default_bucket(self) -> None:
        """Make the default bucket the current one, and drop the others."""
        self._buckets.drop_others(self._default_bucket_key)
        self._key, self._curr_module = self._default_bucket_key, self._default

    def rebind(
        self,
        contexts: Sequence[Context] | None,
        workload: Sequence[float] | None,
        data_shapes: ShapesLike,
        label_shapes: ShapesLike | None,
    ) -> None:
        """Bind for training over other devices, keeping parameters and the optimizer's states; see `Module.rebind`.

        Args:
            contexts: the devices; None = as before.
            workload: share of each device; None = equal if devices are given, else as before.
            data_shapes: as in `bind`.
            label_shapes: as in `bind`.

        Shape:
            data_shapes[i], label_shapes[i]: (N, ...), N samples on the axis that the layout calls "N", the first by
                default.
        """
        self._default.rebind(contexts, workload, data_shapes, label_shapes)
        if contexts is not None:
            self.options["context"] = list(contexts)
            self.options["work_load_list"] = None
        if workload is not None:
            self.options["work_load_list"] = list(workload)
        self._note_binding(BindArguments(data_shapes, label_shapes, True, self.inputs_need_grad))
        self._reset_to_default_bucket()

    def _bucket(self, key: BucketKey, data_shapes: ShapesLike, label_shapes: ShapesLike | None) -> Module:
        """Return the bound module of a bucket; make it if it is new."""
        known = key in self._buckets
        module = self._buckets[key] if known else self._buckets.make(key)
        if self._binding is not None and not module.binded:
            bucket_arguments = replace(
                self._binding,
                data_shapes=data_shapes,
                label_shapes=label_shapes,
                force_rebind=False,
                shared_module=self._default,
                store=None,
            )
            try:
                self._check_parameters(key, module)
                bucket_arguments.bind(module)
            except MXNetError as error:
                del self._buckets[key]
                raise type(error)(f"bucket {key!r}: {error}") from error
            if self._monitor is not None:
                module.install_monitor(self._monitor)
        elif self._default.optimizer_initialized and not module.optimizer_initialized:
            module.borrow_optimizer(self._default)
        self._buckets.move_to_end(key)
        return module

    def _check_parameters(self, key: BucketKey, module: Module) -> None:
        extra = [name for name in module.param_names if name not in self._default.param_names]
        if extra:
            raise ArgumentError(
                f"it has the parameter {', '.join(extra)}, which the default bucket "
                f"{self._default_bucket_key!r} lacks; all buckets must use one set of parameters"
            )

    @needs(Stage.BOUND)
    def switch_bucket(
        self, bucket_key: BucketKey, data_shapes: ShapesLike, label_shapes: ShapesLike | None = None
    ) -> None:
        """Make a bucket the current one.

        Args:
            bucket_key: the argument of `sym_gen`.
            data_shapes: (name, shape) or `DataDesc` of the inputs, for a new bucket.
            label_shapes: the same for labels.

        Shape:
            data_shapes[i], label_shapes[i]: (N, ...), N samples on the axis that the layout calls "N", the first by
                default.

        Raises:
            ArgumentError: the key has no symbol, or the symbol needs other parameters.
            ShapeError: shapes contradict the symbol.
        """
        module = self._bucket(bucket_key, data_shapes, label_shapes)
        if module is not self._curr_module:
            if self._curr_module.group.release():
                self._return_memory()
            module.group.refresh()
            self._key, self._curr_module = bucket_key, module
        self._buckets.evict((self._default_bucket_key, self._key))

    def _return_memory(self) -> None:
        """Return the memory that the current bucket released to the system, if there are other buckets.

        Other buckets need blocks of other sizes, so the allocator would keep both. Allocating memory again costs a
        quarter of a step, so `fit` returns it only once an epoch.
        """
        group = self._curr_module.group
        is_large = group.size >= _WORTH_RETURNING and group.contexts[0].device_type == "cpu"
        if self._memory_returned or self._in_epoch:
            return
        if len(self._buckets) > 1 and is_large:
            trim_heap()
        self._memory_returned = True

    @override
    @needs(Stage.INITIALIZED)
    def prepare(self, data_batch: BatchLike, sparse_row_id_fn: RowIdFunction = None) -> None:
        batch: Any = data_batch  # has all attributes of a DataBatch
        if batch.bucket_key is not None:
            self._bucket(batch.bucket_key, *shapes_of(batch))
            self._buckets.move_to_end(self._key)
        self._default.prepare(data_batch, sparse_row_id_fn)

    # parameters and optimizer

    @override
    @needs(Stage.INITIALIZED)
    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        return self._default.get_params()

    @needs(Stage.INITIALIZED)
    def live_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return the parameters like `Module.live_params`."""
        return self._default.live_params()

    @override
    @needs(Stage.BOUND)
    def _init_params(self, arguments: ParamArguments) -> None:
        arguments.init_params(self._default)

    @override
    @needs(Stage.INITIALIZED)
    def _init_optimizer(self, arguments: OptimizerArguments) -> None:
        """Install one optimizer for all buckets."""
        if self.optimizer_initialized and not arguments.force_init:
            self.logger.warning("optimizer already initialized, ignoring.")
            return
        arguments.init_optimizer(self._default)
        for module in self._buckets.values():
            if module is not self._default and module.params_initialized:
                module.borrow_optimizer(self._default)

    @override
    @needs(Stage.READY)
    def update(self) -> None:
        self._curr_module.update()
        self._return_memory()

    @override
    def stores(self) -> list[Any]:
        return [self.store]

    def freeze(self, *patterns: str) -> list[str]:
        """Stop updating some parameters, in every bucket; see `Module.freeze`.

        Args:
            *patterns: names of parameters, in which "*" matches any text.
        """
        return self._apply_fixed_params(self._default.freeze(*patterns))

    def unfreeze(self, *patterns: str) -> list[str]:
        """Update parameters again, in every bucket; see `Module.unfreeze`.

        Args:
            *patterns: as for `freeze`.
        """
        return self._apply_fixed_params(self._default.unfreeze(*patterns))

    def _apply_fixed_params(self, changed: list[str]) -> list[str]:
        """Apply the default bucket's fixed parameters to new buckets, and drop the others."""
        self.options["fixed_param_names"] = self._default.fixed_param_names
        self._reset_to_default_bucket()
        return changed

    # computing

    @needs(Stage.INITIALIZED)
    def forward(self, data_batch: BatchLike, is_train: bool | None = None) -> None:
        self._compute_in_bucket(data_batch, lambda: self._curr_module.forward(data_batch, is_train))

    @override
    @needs(Stage.INITIALIZED)
    def forward_backward(self, data_batch: BatchLike) -> None:
        if overrides(self, BucketingModule, "forward", "backward"):
            super().forward_backward(data_batch)
            return
        self._compute_in_bucket(data_batch, lambda: self._module_for_step().forward_backward(data_batch))

    def _module_for_step(self) -> Module:
        """Return the module of the batch's bucket, after announcing an update that follows."""
        if self._is_announced:
            self._is_announced = False
            self._curr_module.announce_update()
        return self._curr_module

    @override
    def announce_update(self) -> None:
        # a subclass may change gradients between the two
        self._is_announced = not overrides(self, BucketingModule, "forward", "backward", "update")

    @override
    @needs(Stage.INITIALIZED)
    def evaluate(self, data_batch: BatchLike) -> None:
        if overrides(self, BucketingModule, "forward"):
            super().evaluate(data_batch)
            return
        self._compute_in_bucket(data_batch, lambda: self._curr_module.evaluate(data_batch))

    def _compute_in_bucket(self, batch: Any, compute: Callable[[], None]) -> None:
        """Switch to a batch's bucket and call a function; shape errors name the bucket."""
        key = getattr(batch, "bucket_key", None)
        if key is None:
            raise ArgumentError(
                "the batch has no bucket_key; pass DataBatch(bucket_key=...) with a key that sym_gen accepts"
            )
        self.switch_bucket(key, *shapes_of(batch))
        self._memory_returned = False
        try:
            compute()
        except ShapeError as error:
            raise ShapeError(
                f"bucket {key!r} does not accept a batch with shapes {[tuple(a.shape) for a in batch.data]}: {error}"
            ) from error

    @override
    def network_inputs(self, data_batch: BatchLike) -> list[NetworkInputs]:
        inputs: list[NetworkInputs] = []
        self._compute_in_bucket(
            data_batch, lambda: inputs.extend(self._curr_module.network_inputs(data_batch))
        )
        return inputs

    all_updates = _by_current(BaseModule.all_updates)
    backward = _by_current(BaseModule.backward, Stage.INITIALIZED)
    get_outputs = _by_current(BaseModule.get_outputs, Stage.INITIALIZED)
    output_probes = _by_current(BaseModule.output_probes)
    nonfinite_gradient = _by_current(BaseModule.nonfinite_gradient)
    first_nonfinite_node = _by_current(BaseModule.first_nonfinite_node)
    has_overflow = _by_current(BaseModule.has_overflow)
    handle_overflow = _by_current(BaseModule.handle_overflow)
    loss_scales = _by_current(BaseModule.loss_scales)
    restore_aux_states = _by_current(BaseModule.restore_aux_states)
    get_input_grads = _by_current(BaseModule.get_input_grads, Stage.INITIALIZED)
    get_states = _by_current(BaseModule.get_states, Stage.INITIALIZED)
    set_states = _by_current(BaseModule.set_states, Stage.INITIALIZED)
    update_metric = _by_current(BaseModule.update_metric, Stage.INITIALIZED)

    @needs(Stage.BOUND)
    def explain(
        self, is_train: bool | None = None, times: bool = False, measure_memory: bool = False
    ) -> ExecutorExplanation:
        """Return the steps of the current bucket and their costs; see `Module.explain`.

        Args:
            is_train: True for the steps of training; None = as the module is bound.
            times: measure the time of every step, on the last batch.
            measure_memory: measure the memory of a run instead of estimating it.
        """
        return self._curr_module.explain(is_train, times, measure_memory)

    def start_epoch(self, epoch: int, train_data: DataIter | None) -> None:
        self._default.start_epoch(epoch, train_data)
        self._in_epoch = True

    def end_epoch(self) -> None:
        self._default.end_epoch()
        self._in_epoch = False
        self._return_memory()

    @override
    def sync_contexts(self) -> None:
        self._default.sync_contexts()

    @needs(Stage.BOUND)
    def install_monitor(self, mon: MonitorLike) -> None:
        self._monitor = mon
        for module in self._buckets.values():
            module.install_monitor(mon)

    # checkpoints

    @needs(Stage.INITIALIZED)
    def save_checkpoint(
        self,
        prefix: str,
        epoch: int,
        remove_amp_cast: bool = False,
        save_optimizer_states: bool = False,
        format: str = "params",
    ) -> None:
        """Write parameters and the symbols of all existing buckets as one set.

        The files are MXNet's (``prefix-NNNN.params``, ``prefix-KEY-symbol.json``, and ``prefix.buckets`` for integer
        keys) and ``prefix-buckets.json``, with which `load` works without `sym_gen`.

        Args:
            prefix: path and beginning of the file names.
            remove_amp_cast: remove `amp_cast` operators from the graphs.
            save_optimizer_states: also write ``prefix-NNNN.states``.
            format: "params" is MXNet's; "safetensors" writes the parameters as ``prefix-NNNN.safetensors``.

        Raises:
            ArgumentError: the format is unknown.
            StateError: `save_optimizer_states` without an optimizer.
        """
        states = None
        if save_optimizer_states:
            if not self.optimizer_initialized:
                raise StateError(
                    "BucketingModule.save_checkpoint: call init_optimizer() before saving optimizer states"
                )
            states = self._default.updates.saved_states()
        bucket_files.save(
            prefix,
            epoch,
            self._buckets.contents(),
            self._default_bucket_key,
            self.live_params(),
            states,
            remove_amp_cast,
            format,
        )

    @override
    @needs(Stage.INITIALIZED)
    def to_onnx(
        self,
        path: PathLike,
        opset: int = 17,
        dynamic: DynamicAxes = None,
        *,
        fold_batchnorm: bool = False,
        one_file: bool = False,
    ) -> list[str]:
        """Write the networks of all buckets as ONNX files, for prediction, and return the files' paths.

        Args:
            path: path of the file. The file of a bucket has the key appended to its name: ``lm.onnx`` becomes
                ``lm-10.onnx``, ``lm-20.onnx``, ...
            opset: version of ONNX's operators, 13 to 21.
            dynamic: axes whose lengths may differ from call to call; see `Module.to_onnx`.
            fold_batchnorm: multiply BatchNorm into the layer before it.
            one_file: write one file for all buckets, if their graphs are equal, as those of an RNN operator are. By
                default, lengths that differ between buckets are then dynamic axes named "time".

        Raises:
            ArgumentError: some operators have no equivalent in ONNX (the message lists all), or the graphs differ with
                `one_file`. Nothing is written.
            FileError: a file cannot be written; none is then written.
        """
        from .onnx_files import BoundNetwork, write_buckets, write_one_for_all

        networks = {key: BoundNetwork(module) for key, module in self._buckets.items()}
        if one_file:
            default = self._default_bucket_key
            return [write_one_for_all(networks, default, path, opset, dynamic, fold_batchnorm)]
        return write_buckets(networks, path, opset, dynamic, fold_batchnorm)

    @staticmethod
    def load(
        prefix: str,
        epoch: int,
        sym_gen: SymGen | None = None,
        default_bucket_key: BucketKey = None,
        load_optimizer_states: bool = False,
        **kwargs: Any,
    ) -> BucketingModule:
        """Make a module from a checkpoint.

        Args:
            prefix: path and beginning of the file names.
            sym_gen: makes the symbols of buckets that were not saved; None = only saved buckets are available.
            default_bucket_key: the bucket to bind first; None = that of the saved module.
            load_optimizer_states: also read ``prefix-NNNN.states`` once the optimizer is installed.

        Raises:
            ArgumentError: the files do not name the default bucket.
            FileFormatError: a file is damaged or of another format.
        """
        saved, default = bucket_files.load(prefix)
        if default_bucket_key is None:
            default_bucket_key = default
        if default_bucket_key is None or (sym_gen is None and not saved):
            raise ArgumentError(
                f"{prefix}: MXNet's own bucket files name neither the default bucket nor the inputs; "
                "pass sym_gen and default_bucket_key"
            )
        module = BucketingModule(bucket_files.as_sym_gen(saved, sym_gen), default_bucket_key, **kwargs)
        states = f"{prefix}-{epoch:04d}.states" if load_optimizer_states else None
        module._default.preload(*bucket_files.load_params(prefix, epoch, fetch=False), states)
        return module

    @staticmethod
    def load_dict(
        sym_dict: Mapping[Any, Symbol] | None = None,
        sym_gen: SymGen | None = None,
        default_bucket_key: BucketKey = None,
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        **kwargs: Any,
    ) -> BucketingModule:
        """Make a module from symbols by bucket key and parameters; `sym_gen` names their inputs.

        Args:
            sym_dict: symbols by bucket key, which replace those of `sym_gen`; None for none.
            sym_gen: makes the symbols of all other buckets.
            arg_params: parameters by name.
            aux_params: auxiliary states by name; None for none.

        Shape:
            arg_params[name], aux_params[name]: that of the parameter or state.

        Raises:
            ArgumentError: an argument is missing.
        """
        if sym_gen is None or default_bucket_key is None or arg_params is None:
            raise ArgumentError("load_dict: sym_gen, default_bucket_key and arg_params are all needed")
        symbols = dict(sym_dict or {})
        new_sym_gen = with_symbols(sym_gen, lambda key, symbol: symbols.get(key, symbol))
        module = BucketingModule(new_sym_gen, default_bucket_key, **kwargs)
        module._default.preload(arg_params, aux_params or {})
        return module

    def converted(
        self,
        convert: Callable[[Symbol], Symbol],
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray],
    ) -> BucketingModule:
        """Return an unbound module with converted symbols.

        Args:
            convert: function from the symbol of a bucket to its replacement.
            aux_params: auxiliary states of the new module.

        Shape:
            arg_params[name], aux_params[name]: that of the parameter or state.
        """
        return BucketingModule.load_dict(
            {},
            with_symbols(self._sym_gen, lambda _, symbol: convert(symbol)),
            self._default_bucket_key,
            arg_params,
            aux_params,
            max_buckets=self._buckets.max_buckets,
            **self.options,
        )


def shapes_of(batch: Any) -> tuple[Any, Any]:
    """Return a batch's descriptions of its data and labels, checked against its arrays.

    Shape:
        batch.data[i], batch.label[i]: those of the descriptions.
    """
    for provided, arrays in ((batch.provide_data, batch.data), (batch.provide_label, batch.label)):
        for desc, array in zip(describe(provided), arrays or ()):
            shape = shape_of(array, desc.name)
            if shape != tuple(desc.shape):
                raise ShapeError(
                    f"bucket {batch.bucket_key!r}: the batch describes {desc.name} as {tuple(desc.shape)}, "
                    f"but its array has shape {shape}"
                )
    return batch.provide_data, batch.provide_label
