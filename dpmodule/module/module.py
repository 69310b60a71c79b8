"""`Module`: a symbol, its parameters and an optimizer, on one or several contexts."""

from __future__ import annotations

import logging
import warnings
import zlib
from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from itertools import chain
from operator import methodcaller
from typing import TYPE_CHECKING, Any

import torch
from typing_extensions import override

from .._core import lazy
from .._core.overrides import overrides
from .._devices import generators
from ..base import ArgumentError, ShapeError, StateError
from ..context import Context
from ..executor import run_options
from ..io import DataDesc
from ..kvstore.base import has_other_processes
from ..ndarray import NDArray
from ..ndarray.growing_table import HashedArray, is_hashed
from ..ndarray.sparse_base import fetched
from ..params import ParamStore
from ..symbol import Symbol
from ..symbol.mixed_precision import convert_to_half
from .arguments import BindArguments, OptimizerArguments, ParamArguments, first_values
from .checkpointed_module import CheckpointedModule
from .class_labels import network_inputs
from .group.batch_splitter import redescribe, resized
from .group.contexts import contexts_of, distinct, run_between
from .group.executor_group import DataParallelExecutorGroup
from .group.input_order import in_order
from .lifecycle import Stage, concurrent_use, exclusive, missing_call, needs
from .lr_search import RateSearch, find_rate
from .mixed_precision import LossScale, check_devices, rules_of
from .mxnet_compat import MODULE, also_named
from .mxnet_helpers import check_descriptions, check_input_names, matching, names_of
from .nonfinite import are_finite, first_nonfinite_node
from .summary import describe, summarize
from .updates import Updates, check_compression, prefetch_rows, rows_of_ids

if TYPE_CHECKING:
    from torch.fx import GraphModule

    from ..executor.explanation import ExecutorExplanation
    from ..metric import EvalMetric
    from ..metric.composite import MetricLike
    from .class_labels import NetworkInputs
    from .initial_rows import InitialRows
    from .types import (
        AmpLike,
        BatchLike,
        CompileLike,
        CompressionLike,
        ContextsLike,
        DataLike,
        DynamicAxes,
        GroupContextsLike,
        InitializerLike,
        Labels,
        LoggerLike,
        MonitorLike,
        OptimizerLike,
        OptimizerParams,
        OutGrads,
        PathLike,
        RowIdFunction,
        ShapesLike,
        StatesLike,
    )

__all__ = ["Module"]

lazy.publish(__name__, __all__)

_INITIALIZED = Stage.INITIALIZED  # Python 3.11 looks members up by a function
_STEPS = "forward", "backward"


def _described(examples: Mapping[str, torch.Tensor]) -> list[DataDesc]:
    """Describe inputs by examples; an input whose first axis differs from the first input's has no batch axis."""
    lengths = [e.shape[0] for e in examples.values() if e.dim()]
    descs = []
    for name, example in examples.items():
        dtype: Any = "float32" if example.dtype is torch.bool else example.dtype
        batched = example.dim() and example.shape[0] == lengths[0]
        descs.append(DataDesc(name, example.shape or (1,), dtype, "NCHW" if batched else "C" * example.dim()))
    return descs


_LOSSES = {
    "CrossEntropyLoss": "mx.sym.SoftmaxOutput",
    "cross_entropy": "mx.sym.SoftmaxOutput",
    "MSELoss": "mx.sym.LinearRegressionOutput",
    "mse_loss": "mx.sym.LinearRegressionOutput",
    "L1Loss": "mx.sym.MAERegressionOutput",
    "l1_loss": "mx.sym.MAERegressionOutput",
    "BCEWithLogitsLoss": "mx.sym.LogisticRegressionOutput",
    "binary_cross_entropy_with_logits": "mx.sym.LogisticRegressionOutput",
}
"""Operators that replace losses of torch."""


def _with_head(symbol: Symbol, head: Any) -> Symbol:
    """Return a symbol with a loss added by `head`."""
    name = getattr(head, "__name__", type(head).__name__)
    is_torch = isinstance(head, torch.nn.Module) or str(getattr(head, "__module__", "")).startswith("torch.")
    result = None if is_torch or not callable(head) else head(symbol)
    if not isinstance(result, Symbol):
        instead = _LOSSES.get(name, "mx.sym.SoftmaxOutput or mx.sym.MakeLoss")
        what = f"torch's {name}" if is_torch else f"{name}, which does not return a symbol"
        raise ArgumentError(
            f"from_torch: head is {what}; expected a function that adds a loss to a symbol, such as {instead}"
        )
    return result


def _is_label(symbol: Symbol, name: str) -> bool:
    """Return True if an argument of a symbol is a label."""
    return name in symbol.graph.labels or name.endswith("label")


_ROW_SPARSE = "1"  # value of `__storage_type__` in graphs


@also_named(MODULE)
class Module(CheckpointedModule):
    """Trains and runs a symbol.

    Args:
        symbol: the network, usually with a loss such as SoftmaxOutput at the end.
        label_names: inputs that are labels; None for none.
        logger: logger of the progress.
        context: a device or a list of them.
        work_load_list: share of the batch for each device; None = equal.
        fixed_param_names: parameters that are not updated.
        state_names: arguments that carry state from batch to batch.
        group2ctxs: contexts of the groups named by ``AttrScope(ctx_group=...)``; see `DataParallelExecutorGroup`.
        compression_params: how a kvstore "device" compresses gradients, such as
            ``{"type": "2bit", "threshold": 0.5}``; None for no compression.
        compile: compile the network with `torch.compile`: True, the name of a backend, or a dict of its arguments.
            Compiling takes seconds for every set of input shapes; it pays for long runs of a network of many small
            operators. A network that cannot be compiled runs uncompiled, with a warning.
        cuda_graphs: record `forward_backward` and prediction on a GPU once they repeat with the same shapes, and
            replay the recording, with the torch settings in force at that time; it pays for small networks. None =
            as MXNet's environment variable MXNET_ENABLE_CUDA_GRAPHS says.
        mirror: results that backward recomputes to save memory: True for those of cheap operators, a number n for
            all results within n equal parts of the network, False for none. None = as the attribute
            ``force_mirroring`` of operators and MXNet's environment variable MXNET_BACKWARD_DO_MIRROR say.
        amp: "bf16" or "fp16" to run costly operators in 16 bits, forward and backward, by the lists of `contrib.amp`;
            parameters, gradients, checkpoints and outputs stay float32. "fp16" scales the loss dynamically; batches
            whose gradients overflow are skipped, and `fit` saves the scale with a run. False turns it off; None = as
            `contrib.amp.init` says.
        shard_rows: False to keep whole tables in every process of a kvstore "dist_sync". By default, the rows of
            parameters with a row-sparse gradient are spread over the processes; see
            [distributed training](../distributed.md#tables-whose-rows-are-spread).

    Raises:
        ArgumentError: a name is not an argument of the symbol, `symbol` is not a Symbol, `compile` or `amp` is invalid,
            or a device cannot compute in 16 bits.

    Example:
        >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
        >>> mod = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
        >>> mod.bind([("data", (4, 3))], [("softmax_label", (4,))])
        >>> mod.output_shapes
        [('softmax_output', (4, 2))]

    Source: MXNet 1.9.1 `Module`.
    """

    def __init__(
        self,
        symbol: Symbol,
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: LoggerLike = logging,
        context: ContextsLike = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: GroupContextsLike = None,
        compression_params: CompressionLike = None,
        *,
        compile: CompileLike = None,
        cuda_graphs: bool | None = None,
        mirror: bool | int | None = None,
        amp: AmpLike = None,
        shard_rows: bool = True,
    ) -> None:
        super().__init__(logger, symbol)
        if not isinstance(symbol, Symbol):
            raise ArgumentError(
                f"symbol is of type {type(symbol).__name__}, expected a Symbol"
                + ("; sym.load_json reads JSON" if isinstance(symbol, str) else "")
            )
        self._run_options = run_options(compile, cuda_graphs, mirror)
        check_compression(compression_params)
        self._compression_params = compression_params
        self._context = contexts_of(context)
        self._half = rules_of(amp)
        if self._half is not None:
            check_devices(self._half, self._context)
        self._scale = LossScale() if self._half is not None and self._half.needs_scale else None
        self._work_load_list = list(work_load_list) if work_load_list is not None else None
        self._group2ctxs = group2ctxs
        self._data_names = names_of(data_names, "data_names")
        self._label_names = names_of(label_names, "label_names")
        self._state_names = names_of(state_names, "state_names")
        self._fixed_param_names = names_of(fixed_param_names, "fixed_param_names")
        check_input_names(symbol, self._data_names, "data", True)
        check_input_names(symbol, self._label_names, "label", False)
        check_input_names(symbol, self._state_names, "state", True)
        check_input_names(symbol, self._fixed_param_names, "fixed_param", True)
        inputs = {*self._data_names, *self._label_names, *self._state_names}
        self._param_names = [name for name in symbol.list_arguments() if name not in inputs]
        attributes = symbol.attr_dict()
        self._row_sparse = {
            name
            for name in self._param_names
            if attributes.get(name, {}).get("__storage_type__") == _ROW_SPARSE
        }
        self._shard_rows = shard_rows
        self._initial_rows: dict[str, InitialRows] = {}
        self._binds_anew = False
        self._store_is_given = False
        self._valued: frozenset[str] = frozenset()
        self._grad_req: Any = "write"
        self._group: DataParallelExecutorGroup | None = None
        self._is_announced = False  # True if `update` follows the next backward

    def __repr__(self) -> str:
        counted = f"{len(self._param_names)} parameters"
        if self._group is not None:
            sizes = [self._group.store.array(name, 0).size for name in self._param_names]
            counted += f" of {sum(sizes):,} numbers"
        return describe(self, [counted, f"on {', '.join(map(str, self._context))}"])

    # checkpoints

    @staticmethod
    def load(prefix: str, epoch: int | str, load_optimizer_states: bool = False, **kwargs: Any) -> Module:
        """Make a module from a checkpoint.

        Args:
            prefix: path and beginning of the file names.
            epoch: number of the epoch, or "last".
            load_optimizer_states: also read ``prefix-NNNN.states`` once the optimizer is installed.

        Raises:
            ArgumentError: an argument of the constructor is invalid.
            FileError: a file cannot be read.
            FileFormatError: a file is damaged or of another format.
        """
        from ..checkpoint import load_checkpoint, states_file

        symbol, arg_params, aux_params = load_checkpoint(prefix, epoch, fetch=False)
        module = Module(symbol, **kwargs)
        module.preload(arg_params, aux_params, states_file(prefix, epoch) if load_optimizer_states else None)
        return module

    @staticmethod
    def from_pretrained(folder: PathLike, revision: str | None = None, **kwargs: Any) -> Module:
        """Make a module from a folder that `save_pretrained` wrote, ready for `predict` and `fit`.

        It is bound for prediction at the saved shapes; `forward` binds again for batches of other sizes.
        `interop.load_pretrained` returns the rest of the folder: input shapes and preprocessing.

        Args:
            folder: the folder, or a repository id such as "user/name", which `huggingface_hub` fetches.
            revision: branch, tag or commit of the repository.
            kwargs: arguments of the constructor, such as `context`; names of inputs are the saved ones.

        Raises:
            FileError: the folder does not exist, a file is missing, or the repository cannot be fetched.
            FileFormatError: a file is damaged, or parameters do not match the graph.
            MissingPackageError: `folder` is an id, and `huggingface_hub` is not installed.
            ArgumentError: an argument of the constructor is invalid.
        """
        from ..interop import load_pretrained

        saved = load_pretrained(folder, revision)
        names = {"data_names": [name for name, _ in saved.data_shapes]}
        names.update({key: saved.config[key] for key in ("label_names", "state_names")})
        module = Module(saved.symbol, **{**names, **kwargs})
        sizes = dict(
            zip(saved.symbol.list_arguments(), saved.symbol.infer_shape(**dict(saved.data_shapes))[0] or ())
        )
        labels = [(name, sizes[name]) for name in module.label_names if name in sizes]
        module.bind(saved.data_shapes, labels or None, for_training=False)
        module.init_params(arg_params=saved.arg_params, aux_params=saved.aux_params)
        return module

    @staticmethod
    def from_torch(
        module: torch.nn.Module,
        *example: Any,
        context: ContextsLike = None,
        dynamic: Mapping[str, Mapping[int, str]] | None = None,
        head: Callable[[Symbol], Symbol] | None = None,
        **named: Any,
    ) -> Module:
        """Make a module from a torch module's operators and values, bound to the shapes of the examples.

        It is ready for `predict` and, if it ends in a loss, for `fit`. Parameters without ``requires_grad``, buffers
        and constants are fixed. Batches of another size bind it again; inputs are named as forward's parameters.

        Args:
            module: the torch module; it keeps its own parameters.
            example: a tensor for each parameter of its forward.
            context: a device or a list of them.
            dynamic: sizes that may vary; see `sym.from_torch`.
            head: adds a loss to the network's symbol. A variable that it adds is a label if its name ends in "label"
                or a loss reads it as one, else a parameter.
            named: examples for parameters of forward by name.

        Shape:
            example[i], named[name]: (N, ...), as forward expects.

        Raises:
            ArgumentError: the module cannot be translated, see `sym.from_torch`; or `head` does not return a symbol.

        Example:
            >>> import torch
            >>> net = torch.nn.Linear(3, 2)
            >>> mod = mx.mod.Module.from_torch(net, torch.zeros(4, 3), head=mx.sym.SoftmaxOutput)
            >>> mod.data_names, sorted(mod.get_params()[0])
            (['input'], ['bias', 'weight'])
        """
        from ..symbol.torch_import import imported  # imports torch.export, which is slow

        traced = imported(module, example, named, dynamic)
        symbol = traced.symbol if head is None else _with_head(traced.symbol, head)
        shapes = _described(traced.inputs)
        present = {*traced.inputs, *traced.arg_params}
        labels = [n for n in symbol.list_arguments() if n not in present and _is_label(symbol, n)]
        sizes, _, _ = symbol.infer_shape(**dict(shapes))
        known = dict(zip(symbol.list_arguments(), sizes or ()))
        result = Module(symbol, list(traced.inputs), labels, context=context, fixed_param_names=traced.fixed)
        result.bind(shapes, [(n, known[n]) for n in labels] or None)
        result.init_params(arg_params=traced.arg_params, aux_params=traced.aux_params, allow_missing=True)
        return result

    @staticmethod
    def from_onnx(
        file: PathLike,
        context: ContextsLike = None,
        shapes: Mapping[str, Sequence[int]] | None = None,
        **kwargs: Any,
    ) -> Module:
        """Make a module from an ONNX file, ready for `predict`.

        It is bound for prediction at the shapes in the file. A symbolic size is 1 at first, or the smallest of a few
        usual sizes that the network accepts; `forward` binds again for batches of other sizes.

        Args:
            file: path of the ONNX file.
            context: a device or a list of them.
            shapes: shapes of inputs that replace or complete those of the file.

        Shape:
            shapes[name]: (N, ...), as the network expects.

        Raises:
            FileError: the file cannot be opened.
            FileFormatError: the file is not an ONNX file, or has parts that cannot be translated.
            ArgumentError: an argument of the constructor is invalid.
        """
        from ..onnx.load import import_model, input_descriptions

        symbol, arg_params, aux_params = import_model(file, shapes)
        inputs = input_descriptions(file, symbol, shapes or {})
        names = [desc.name for desc in inputs]
        module = Module(symbol, data_names=names, label_names=None, context=context, **kwargs)
        module.bind(inputs, for_training=False)
        module.init_params(arg_params=arg_params, aux_params=aux_params)
        return module

    # properties

    @override
    def _mark(self, step: Stage, done: bool) -> None:
        if step is Stage.BOUND:
            self._binds_anew = not done
        elif not done:
            self._stage = min(self._stage, Stage(step - 1))

    @property
    def binded(self) -> bool:
        return self._stage >= Stage.BOUND and not self._binds_anew

    @binded.setter
    def binded(self, done: bool) -> None:
        self._mark(Stage.BOUND, done)

    @property
    def group(self) -> DataParallelExecutorGroup:
        """The executor group.

        Raises:
            StateError: `bind` has not been called.
        """
        if self._group is None:
            raise StateError("Module: call bind(data_shapes=..., label_shapes=...) first")
        return self._group

    @property
    def store(self) -> ParamStore:
        """Parameters, gradients and auxiliary states; `store.share_memory()` shares them with other processes.

        Raises:
            StateError: `bind` has not been called.
        """
        return self.group.store

    @property
    @override
    def data_names(self) -> list[str]:
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        """Names of the labels."""
        return self._label_names

    @property
    def fixed_param_names(self) -> list[str]:
        """Names of the parameters that are not updated."""
        return list(self._fixed_param_names)

    @property
    @override
    def output_names(self) -> list[str]:
        return list(self._symbol.list_outputs())

    @property
    def param_names(self) -> list[str]:
        """Names of the parameters."""
        return self._param_names

    @property
    @override
    def data_shapes(self) -> Any:
        return self.group.data_shapes

    @property
    @override
    def label_shapes(self) -> Any:
        return self.group.label_shapes

    @property
    @override
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        return self.group.get_output_shapes()

    @property
    @override
    def matches_by_name(self) -> bool:
        return True

    # binding

    @override
    def _bind(self, arguments: BindArguments) -> None:
        if self._stays_bound(arguments):
            return
        check_descriptions(arguments.data_shapes, "data_shapes")
        check_descriptions(arguments.label_shapes, "label_shapes")
        names = [s[0] for s in arguments.data_shapes]
        if names != self._data_names and sorted(names) != sorted(self._data_names):
            raise ArgumentError(
                f"bind: data_shapes names {names}, the module's data_names are {self._data_names}"
            )
        labels = self._known_labels(arguments.label_shapes) if arguments.label_shapes else None
        shared = arguments.shared_module
        if shared is not None and shared.stage < Stage.INITIALIZED:
            raise StateError("bind: shared_module must be bound and initialized first")
        if shared is not None:
            self._scale = shared._scale if self._scale is not None else None
        store, before = self._store_for(arguments), self._group
        # True if the parameters move into a store with other users
        joins = store is not None and (before is None or before.store is not store)
        valued = frozenset() if store is None else store.filled & self._param_and_aux_names()
        kept_values = self._values_to_keep(joins and bool(valued)) if joins or store is None else None
        group = self._make_group(arguments, labels, store)
        self.for_training, self.inputs_need_grad = arguments.for_training, arguments.inputs_need_grad
        self._grad_req = arguments.grad_req
        self._group, self._valued = group, valued if joins else frozenset()
        self._store_is_given = self._store_is_given or store is not None
        self._binds_anew = False
        self._stage = Stage.BOUND if joins else max(self._stage, Stage.BOUND)
        if kept_values is not None:
            group.set_params(*self._without_tables(*kept_values))
        if shared is not None or kept_values is not None or (joins and valued >= self._param_and_aux_names()):
            self._stage = max(self._stage, Stage.INITIALIZED)
        if shared is not None and shared.stage >= Stage.READY:
            self.borrow_optimizer(shared)
        elif shared is None and self._updates is not None and self._stage >= Stage.READY:
            self._install(Updates.borrow(self._updates, group))

    def _param_and_aux_names(self) -> set[str]:
        """Return the names of parameters and auxiliary states."""
        return {*self._param_names, *self._symbol.list_auxiliary_states()}

    def _values_to_keep(self, store_has_values: bool) -> Any:
        """Return the values that stay through binding; None if those of the store stay."""
        saved = self._present_values()
        if saved is not None and store_has_values:
            self._warn_about_ignored_values()
            return None
        return saved

    def _warn_about_ignored_values(self) -> None:
        """Warn that values of the module, or of its checkpoint, do not replace those of a store."""
        warnings.warn(
            "bind: the store's parameters have values, so the module's values and the optimizer states of its "
            "checkpoint are ignored; set_params and load_optimizer_states write them into the store",
            stacklevel=6,
        )
        self.preloaded = self.preloaded_states = None

    def _store_for(self, arguments: BindArguments) -> ParamStore | None:
        """Return the store that binding must use, None for the module's own store."""
        requested, group = arguments.store, self._group
        if requested is not None and not isinstance(requested, ParamStore):
            raise ArgumentError(f"bind: store is of type {type(requested).__name__}, expected a ParamStore")
        if requested is not None and arguments.shared_module is not None:
            raise ArgumentError(
                "bind: store and shared_module both determine the parameters; pass one of them"
            )
        present = (
            group.store if group is not None and (self._store_is_given or group.store.is_shared) else None
        )
        if present is None:
            return requested if requested is None or group is None else self._store_to_join(requested)
        other = requested if arguments.shared_module is None else arguments.shared_module.group.store
        if other is not None and other is not present:
            raise StateError(
                "bind: the module is bound to a shared store and cannot change to another; make a new module"
            )
        self._check_contexts(self._context)
        return None if arguments.shared_module is not None else present

    def _store_to_join(self, store: ParamStore) -> ParamStore:
        """Return the store for a module that was bound without one."""
        if self._stage >= Stage.READY:
            raise StateError(
                "bind: the module has an optimizer with its own states; make a new module and bind that to the store"
            )
        return store

    def _check_contexts(self, contexts: Sequence[Context]) -> None:
        """Raise StateError for other contexts while the parameters are in a shared store."""
        if self._group is None or not (self._store_is_given or self._group.store.is_shared):
            return
        present = self._group.store.contexts
        if distinct(contexts) != present:
            raise StateError(
                f"{type(self).__name__}: the parameters are in a shared store on {', '.join(map(str, present))} and "
                f"cannot move to {', '.join(map(str, contexts))}; make a new module, and set its parameters with "
                "set_params"
            )

    def _make_group(
        self, arguments: BindArguments, labels: list[Any] | None, store: ParamStore | None
    ) -> DataParallelExecutorGroup:
        differentiated = [*self._param_names, *(self._data_names if arguments.inputs_need_grad else ())]
        symbol, grad_req = self._symbol, arguments.grad_req
        if self._half is not None:
            symbol = convert_to_half(symbol, self._half, differentiated)
            if isinstance(grad_req, (list, tuple)):  # in the order of the symbol's own arguments
                grad_req = dict(zip(self._symbol.list_arguments(), grad_req))
        group = DataParallelExecutorGroup(
            symbol,
            self._context,
            self._work_load_list,
            list(arguments.data_shapes),
            labels,
            self._param_names,
            arguments.for_training,
            arguments.inputs_need_grad,
            None if arguments.shared_module is None else arguments.shared_module.group,
            self.logger,
            self._fixed_param_names,
            grad_req,
            self._state_names,
            self._group2ctxs,
            self._run_options,
            store,
        )
        group.output_names = list(self._symbol.list_outputs())
        return group

    def _without_tables(self, arg_params: Any, aux_params: Any) -> tuple[Any, Any]:
        """Return the values to set through binding; tables that are spread or saved in parts follow later."""
        arg_params, spread = dict(arg_params), self._spread_names()
        for name in [name for name, array in arg_params.items() if hasattr(array, "source")]:
            array = arg_params.pop(name)
            if name in spread:
                continue
            if isinstance(array, HashedArray):
                self._set_hashed(name, array)
                continue
            if self._shard_rows and has_other_processes() and self._is_table(name):
                from .initial_rows import InitialRows  # few networks have tables

                self._initial_rows[name] = InitialRows.of_array(array)
            else:
                arg_params[name] = array.fetched()
        return arg_params, aux_params

    def _start_hashed(
        self, name: str, initializer: Any, attributes: Mapping[str, str] | None, given: Any
    ) -> None:
        """Give a table with ``hash_rows=True`` its rows, if they are given, and the initial rows of other ids."""
        from .initial_rows import rows_by_id

        rows = rows_of_ids(self.store.array(name, 0))
        for node in self._symbol.graph.nodes:
            if node.op is not None and node.op.name == "Embedding" and node.inputs[1][0].name == name:
                rows.min_count, rows.ttl_steps = node.a.min_count, node.a.ttl_steps
        if initializer is not None:
            rows.initial = rows_by_id(initializer, name, attributes, rows.shape[1])
            rows.seed = generators.drawn_seed() ^ zlib.crc32(name.encode())
        if given is not None and name in given:
            self._set_hashed(name, given[name])
        self.store.replace_array(name, self.store.array(name, 0))

    def _set_hashed(self, name: str, array: NDArray) -> None:
        table: Any = self.store.array(name, 0)
        if not hasattr(array, "parts") or array.shape != table.shape:
            raise ShapeError(
                f"{name} has hash_rows=True, and is given as {array!r}; expected a row_sparse array of shape "
                f"{table.shape}, whose row numbers are ids"
            )
        table.assign(array)

    def _is_table(self, name: str) -> bool:
        """Return True if a parameter has a row-sparse gradient, and all its rows in this process."""
        grad, array = self.store.grad(name, 0), self.store.array(name, 0)
        return grad is not None and grad.stype == "row_sparse" and array.stype == "default"

    def _present_values(self) -> Any:
        """Return the values that must stay through binding: the present ones, or those of a checkpoint."""
        if self._stage >= Stage.INITIALIZED:
            self._fill_tables()
            return self.group.store.average()
        if self.preloaded is None:
            return None
        names = {*self.preloaded[0], *self.preloaded[1]}
        return self.preloaded if names == self._param_and_aux_names() else None

    def rebind(
        self,
        contexts: Sequence[Context] | None,
        workload: Sequence[float] | None,
        data_shapes: ShapesLike,
        label_shapes: ShapesLike | None,
    ) -> None:
        """Bind for training over other devices, keeping parameters and the optimizer's states.

        Args:
            contexts: the devices; None = as before.
            workload: share of each device; None = equal if devices are given, else as before.
            data_shapes: as in `bind`.
            label_shapes: as in `bind`.

        Shape:
            data_shapes[i], label_shapes[i]: (N, ...), N samples on the axis that the layout calls "N", the first by
                default.

        Raises:
            StateError: the parameters are in a shared store on other devices.
        """
        new_contexts = self._context if contexts is None else contexts_of(contexts)
        if (
            contexts is not None
            and workload is None
            and len(new_contexts) != len(self._work_load_list or new_contexts)
        ):
            self._work_load_list = None
        same = new_contexts == self._context and (workload is None or list(workload) == self._work_load_list)
        if self._stage >= Stage.BOUND and same and self.for_training:
            return
        self._check_contexts(new_contexts)
        if spread := self._spread_names():
            raise StateError(
                f"rebind: the rows of {', '.join(spread)} are spread over processes, which have one context each; make "
                "a new module, or use shard_rows=False"
            )
        before = self._updates if self._stage >= Stage.READY else None
        store_stays = self._store_is_given or (self._group is not None and self._group.store.is_shared)
        states = None if before is None or store_stays else before.states_by_name()
        self._context = new_contexts
        if workload is not None:
            self._work_load_list = list(workload)
        self.bind(data_shapes, label_shapes, True, self.inputs_need_grad, True, None, self._grad_req)
        if before is not None and states is not None:
            self._stage = Stage.INITIALIZED
            self.init_optimizer(before.kind, before.optimizer)
            self.updates.restore_states(states)

    @needs(Stage.BOUND)
    def reshape(self, data_shapes: ShapesLike, label_shapes: ShapesLike | None = None) -> None:
        """Change the input shapes; parameters stay.

        Args:
            data_shapes: as in `bind`.
            label_shapes: as in `bind`.

        Shape:
            data_shapes[i], label_shapes[i]: (N, ...), N samples on the axis that the layout calls "N", the first by
                default.

        Raises:
            ArgumentError: `label_shapes` has a label that is not in the module.
            ShapeError: shapes contradict the symbol or each other.
        """
        labels = self._known_labels(label_shapes) if label_shapes else None
        self.group.reshape(list(data_shapes), labels)

    def _known_labels(self, label_shapes: ShapesLike) -> list[Any]:
        """Return the label shapes that the symbol reads; an iterator may have more labels."""
        arguments = self._symbol.list_arguments()
        known = [s for s in label_shapes if s[0] in arguments]
        unknown = [s[0] for s in label_shapes if s[0] not in arguments]
        if unknown and set(unknown) - set(self._label_names):
            raise ArgumentError(
                f"bind: label_shapes names {unknown}, the module's label_names are {self._label_names}"
            )
        return known

    # parameters

    @needs(Stage.INITIALIZED)
    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        arg_params, aux_params = self.live_params()
        return {k: fetched(array) for k, array in arg_params.items()}, aux_params

    @override
    @needs(Stage.INITIALIZED)
    def live_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        self._fill_tables()
        arg_params, aux_params = self.group.store.average()
        for name in self._row_sparse:
            if arg_params[name].stype == "default":
                arg_params[name] = arg_params[name].tostype("row_sparse")
        return {k: arg_params[k] for k in self._param_names}, {k: aux_params[k] for k in self.group.aux_names}

    def _tables_to_fill(
        self, arguments: ParamArguments, given: Any, attributes: Any
    ) -> dict[str, InitialRows]:
        """Return the tables to fill when it is known whether their rows are spread over processes."""
        tables: dict[str, InitialRows] = {}
        for name in self._param_names:
            has_value = name in self._valued and not arguments.force_init
            if has_value or not self._is_table(name):
                continue
            from .initial_rows import InitialRows  # few networks have tables

            rows = None
            if name in (given or {}):
                rows = InitialRows.of_array(given[name]) if hasattr(given[name], "source") else None
            elif given is None or arguments.allow_missing:
                array = self.store.array(name, 0)
                rows = InitialRows.of(arguments.initializer, name, attributes.get(name), array)
            if rows is not None:
                tables[name] = rows
        return tables

    def _spread_names(self) -> list[str]:
        return [] if self._updates is None else self._updates.spread_names()

    def _fill_tables(self) -> None:
        """Fill the tables whose rows are not spread over processes."""
        tables, self._initial_rows = self._initial_rows, {}
        for name, rows in tables.items():
            self.store.fill(name, rows.fill)

    def sync_contexts(self) -> None:
        if len(self._context) > 1:
            self.group.store.load(*self.group.store.average())

    @override
    @needs(Stage.BOUND)
    def _init_params(self, arguments: ParamArguments) -> None:
        arg_params, aux_params, allow_missing = (
            arguments.arg_params,
            arguments.aux_params,
            arguments.allow_missing,
        )
        if self._stage >= Stage.INITIALIZED and not arguments.force_init:
            if arg_params is not None or aux_params is not None:
                warnings.warn(
                    "init_params: parameters have values already, so arg_params and aux_params are ignored; "
                    "pass force_init=True",
                    stacklevel=4,
                )
            return
        if arg_params is None and aux_params is None and self.preloaded is not None:
            arg_params, aux_params = self.preloaded
        self.preloaded = None
        store = self.group.store
        attributes = self._symbol.attr_dict()
        self._initial_rows = (
            self._tables_to_fill(arguments, arg_params, attributes) if self._shard_rows else {}
        )
        hashed = [name for name in self._param_names if is_hashed(store.array(name, 0).shape)]
        for name in hashed:
            self._start_hashed(name, arguments.initializer, attributes.get(name), arg_params)
        if arg_params is not None:
            arg_params = {name: array for name, array in arg_params.items() if name not in hashed}
            read_in_parts = {*self._initial_rows, *self._spread_names()}
            arg_params = {
                name: array if name in read_in_parts else fetched(array) for name, array in arg_params.items()
            }
        # parameters that have values in the bound store
        keeps_value = frozenset() if arguments.force_init else self._valued
        later = {*keeps_value, *self._initial_rows, *hashed}
        arrays = {name: store.array(name, 0) for name in self._param_names if name not in later}
        states = {name: store.aux(name, 0) for name in self.group.aux_names if name not in keeps_value}
        # as in MXNet, unknown names are an error only in set_params(..., allow_missing=True)
        ignores_extra = arguments.allow_extra or not allow_missing or arguments.initializer is not None
        labels = self._symbol.graph.labels
        store.load(
            first_values(
                arrays, arg_params, arguments.initializer, attributes, allow_missing, ignores_extra, labels
            ),
            first_values(states, aux_params, arguments.initializer, attributes, allow_missing, ignores_extra),
        )
        self._valued = frozenset()
        self._stage = max(self._stage, Stage.INITIALIZED)
        if self._stage >= Stage.READY or not has_other_processes():  # it is known that they stay whole
            self._fill_tables()

    # optimizer

    @override
    @needs(Stage.INITIALIZED)
    def _init_optimizer(self, arguments: OptimizerArguments) -> None:
        if self._keeps_optimizer(arguments):
            return
        may_run_in_store = not self.group.store.is_shared
        initial = self._initial_rows if self._shard_rows else None
        updates = Updates.install(arguments, self.group, self._compression_params, may_run_in_store, initial)
        if updates.store is None:
            self._fill_tables()
        self._initial_rows = {}
        self._install(updates, arguments.force_init and self._stage >= Stage.READY)
        self.load_preloaded_states()

    def _install(self, updates: Updates, reset: bool = False) -> None:
        """Set the `Updates` of the module, and register them in the store."""
        keys = None if updates.updater is None else updates.keys()
        self.group.store.register_updater(updates.owner, keys, reset)
        self._update_by(updates)
        self._stage = Stage.READY

    @needs(Stage.INITIALIZED)
    def borrow_optimizer(self, shared_module: Module) -> None:
        """Use the optimizer, its states and the store of another module.

        Args:
            shared_module: the other module, which keeps using them.

        Raises:
            StateError: the other module has no optimizer.
        """
        if shared_module.stage < Stage.READY:
            raise StateError("borrow_optimizer: call init_optimizer() of the other module first")
        self._fill_tables()
        self._install(Updates.borrow(shared_module.updates, self.group))

    @override
    def update(self) -> None:
        if not self.in_use.acquire(False):  # as `exclusive` does, with one call less per batch
            raise concurrent_use(self, "update")
        try:
            updates = self._updates
            if self._stage < Stage.READY or updates is None:
                raise missing_call(self, "update")
            scale = self._scale
            if scale is not None and self._skips_update(updates):
                return
            if len(self._context) == 1:
                updates.apply()
            else:
                run_between(self.group.active_contexts, updates.apply)
            if scale is not None:
                self._adapt_loss_scale(scale, updates)
        finally:
            self.in_use.release()

    def _skips_update(self, updates: Updates) -> bool:
        """Return True to skip an update because of an overflow; with several processes, only send a flag."""
        if not updates.is_shared:
            return self.handle_overflow()
        updates.send_overflow(self.has_overflow())
        return False

    def _adapt_loss_scale(self, scale: LossScale, updates: Updates) -> None:
        """Adapt the loss scale to the result of an update, equally in all processes."""
        if updates.is_shared and updates.receive_overflow():
            self._shrink_loss_scale(scale)
        elif not updates.is_held:
            scale.note_update()

    def _shrink_loss_scale(self, scale: LossScale) -> None:
        scale.note_overflow()
        self.restore_aux_states()
        self.logger.info("a gradient overflows float16: the loss scale is now %g", scale.value)

    @override
    def has_overflow(self) -> bool:
        return (
            self._scale is not None
            and self._scale.can_shrink
            and self.nonfinite_gradient() is not None
            and all(map(are_finite, chain(*self.output_probes())))
        )

    @override
    def handle_overflow(self) -> bool:
        scale = self._scale
        if scale is None or not self.has_overflow():
            return False
        self._shrink_loss_scale(scale)
        return True

    @override
    def loss_scales(self) -> list[LossScale]:
        return [] if self._scale is None else [self._scale]

    @override
    def all_updates(self) -> list[Updates]:
        return [self._updates or self.updates]

    @override
    def stores(self) -> list[Any]:
        return [self.store]

    @override
    def network_inputs(self, data_batch: BatchLike) -> list[NetworkInputs]:
        return [network_inputs(self, data_batch)]

    @override
    def nonfinite_gradient(self) -> str | None:
        return None if self._updates is None else self._updates.nonfinite_gradient()

    @override
    def first_nonfinite_node(self) -> str | None:
        return next(filter(None, map(first_nonfinite_node, self.group.execs)), None)

    # fixed parameters

    def freeze(self, *patterns: str) -> list[str]:
        """Stop updating some parameters; everything else stays, including optimizer states.

        Moving statistics of BatchNorm are not parameters: training batches still change them.

        Args:
            patterns: names of parameters, in which "*" matches any text.

        Returns:
            The matching names.

        Raises:
            ArgumentError: a pattern matches no parameter.

        Example:
            >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
            >>> mx.mod.Module(net, label_names=None).freeze("fc_w*")
            ['fc_weight']
        """
        names = matching("freeze", patterns, self._param_names)
        self._set_fixed_params(
            [*self._fixed_param_names, *(n for n in names if n not in self._fixed_param_names)]
        )
        return names

    def unfreeze(self, *patterns: str) -> list[str]:
        """Update fixed parameters again; all of them without a pattern.

        Args:
            patterns: as for `freeze`.

        Returns:
            The names of the parameters that are updated again.

        Raises:
            ArgumentError: a pattern matches no parameter.
        """
        names = matching("unfreeze", patterns or ("*",), self._param_names)
        unfrozen = [name for name in self._fixed_param_names if name in names]
        self._set_fixed_params([name for name in self._fixed_param_names if name not in names])
        return unfrozen

    def _set_fixed_params(self, fixed: list[str]) -> None:
        self._fixed_param_names = fixed
        if self._group is None or not self.for_training:
            return
        group = self._group
        shapes = group.data_shapes, group.label_shapes
        self.bind(*shapes, True, self.inputs_need_grad, True, None, self._grad_req)
        if self._updates is not None:
            self._updates.add_to_store()

    def lr_find(
        self,
        train_data: DataLike,
        start_lr: float = 1e-5,
        end_lr: float = 10.0,
        num_batches: int = 100,
        optimizer: OptimizerLike | None = None,
        optimizer_params: OptimizerParams | None = None,
        initializer: InitializerLike = None,
        metric: MetricLike | None = None,
    ) -> RateSearch:
        """Find a learning rate by training a copy of the module on some batches with a growing rate.

        The module, its optimizer, random states, and the position of an iterator with `state_dict` do not change; other
        iterators are reset. The suggestion is a rate at which the loss is close to its minimum. It is large, for a run
        whose rate decays.

        Args:
            train_data: as for `fit`.
            start_lr: the first rate, above 0.
            num_batches: number of rates and batches, at least 22.
            optimizer: name, class or `Optimizer`, which is copied; None for the module's own, or "sgd".
            optimizer_params: arguments of the optimizer, a dict or pairs; a learning rate is ignored.
            initializer: initializes the parameters if they have no values; None as in `fit`.
            metric: the loss: a name, function or `EvalMetric`; None for that of the network's first output.

        Returns:
            The rates, the losses, and the suggestion.

        Raises:
            ArgumentError: the rates are not ascending, there are too few batches, or the network has no loss.
            StateError: there is no batch, or the loss diverges immediately.

        Source: Smith, "Cyclical learning rates for training neural networks", 2017, section 3.3.
        """
        copy = self._unbound_copy()
        if optimizer is None:
            optimizer = "sgd" if self.optimizer is None else self.optimizer
        optimizer = deepcopy(optimizer)
        return find_rate(
            copy, train_data, start_lr, end_lr, num_batches, optimizer, optimizer_params, initializer, metric
        )

    def _unbound_copy(self) -> Module:
        """Return an unbound module with a copy of this module's parameters, if they have values."""
        copy = Module(
            self._symbol,
            self._data_names,
            self._label_names,
            self.logger,
            self._context,
            self._work_load_list,
            self._fixed_param_names,
            self._state_names,
            self._group2ctxs,
            self._compression_params,
        )
        copy._run_options, copy._half = self._run_options, self._half
        copy._scale = deepcopy(self._scale)
        if self._stage >= Stage.INITIALIZED:
            copy.preload(*self.get_params())
        elif self.preloaded is not None:
            copy.preload(*self.preloaded)
        return copy

    # computing

    def prepare(self, data_batch: BatchLike, sparse_row_id_fn: RowIdFunction = None) -> None:
        if sparse_row_id_fn is not None:
            prefetch_rows(sparse_row_id_fn(data_batch), self._param_names, self.group.store)

    def forward(self, data_batch: BatchLike, is_train: bool | None = None) -> None:
        if not self.in_use.acquire(False):  # `exclusive` takes longer
            raise concurrent_use(self, "forward")
        try:
            train = self.for_training if is_train is None else bool(is_train)
            # only backward reads a batch again
            group, loaded = self._load(data_batch, "forward", train, borrow=not self.for_training)
            group.run(train, loaded)
        finally:
            self.in_use.release()

    @override
    def forward_backward(self, data_batch: BatchLike) -> None:
        # most modules are plain, and a call costs more
        is_plain = type(self) is Module and vars(self).keys().isdisjoint(_STEPS)
        if not is_plain and overrides(self, Module, *_STEPS):
            super().forward_backward(data_batch)
            return
        if not self.in_use.acquire(False):
            raise concurrent_use(self, "forward_backward")
        try:
            group, loaded = self._load(data_batch, "forward_backward", True, borrow=True)
            listener = None
            if self._is_announced:
                self._is_announced = False
                listener = self.updates.listener()
            group.step(loaded, listener)
        finally:
            self.in_use.release()

    def _load(
        self, batch: BatchLike, method: str, train: bool, borrow: bool
    ) -> tuple[DataParallelExecutorGroup, list[dict[str, Any]]]:
        """Copy a batch into the executors' arrays, binding again first if its shapes differ from the bound ones.

        Returns:
            The group of the executors, and the result of its `load`.
        """
        group = self._group
        if group is None or self._stage < _INITIALIZED:
            raise missing_call(self, method)
        if self._initial_rows:
            self._fill_tables()
        loaded = group.try_load(batch, train, borrow)
        if loaded is None:
            self._rebind_for(batch)
            group = self.group
            loaded = group.load(batch, train, borrow)
        if self._scale is not None:
            self._scale.write(group.execs)
        return group, loaded

    @override
    def announce_update(self) -> None:
        # a subclass may change gradients between the two
        self._is_announced = not overrides(self, Module, *_STEPS, "forward_backward", "update")

    @override
    @exclusive(Stage.INITIALIZED)
    def evaluate(self, data_batch: BatchLike) -> None:
        if overrides(self, Module, "forward"):
            super().evaluate(data_batch)
            return
        group, loaded = self._load(data_batch, "evaluate", False, borrow=True)
        group.run(False, loaded)

    def _rebind_for(self, batch: Any) -> None:
        """Bind again for the shapes of a batch."""
        group = self.group
        batch, _ = in_order(batch, group.feed.data_names, group.label_names)
        labels = (getattr(batch, "label", None) or ()) if group.label_names else ()
        data = redescribe(group.data_shapes, batch.data, getattr(batch, "provide_data", None))
        label = None
        if labels:
            label = redescribe(group.label_shapes, labels, getattr(batch, "provide_label", None))
        elif group.label_shapes:
            label = resized(group.label_shapes, data[0])
        self.reshape(data, label)

    @override
    def backward(self, out_grads: OutGrads = None) -> None:
        if not self.in_use.acquire(False):
            raise concurrent_use(self, "backward")
        try:
            if self._group is None or self._stage < _INITIALIZED:
                raise missing_call(self, "backward")
            self._group.backward(out_grads)
        finally:
            self.in_use.release()

    @override
    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        if self._group is None or self._stage < _INITIALIZED:
            raise missing_call(self, "get_outputs")
        return self._group.get_outputs(merge_multi_context)

    @override
    def output_probes(self) -> list[list[torch.Tensor]]:
        executors = (self._group or self.group).execs
        return list(map(list, zip(*map(methodcaller("probes"), executors))))

    @override
    def restore_aux_states(self) -> None:
        for executor in self.group.execs:
            executor.restore_aux_states()

    @override
    @needs(Stage.INITIALIZED)
    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        return self.group.get_input_grads(merge_multi_context)

    @needs(Stage.INITIALIZED)
    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        return self.group.get_states(merge_multi_context)

    @needs(Stage.INITIALIZED)
    def set_states(self, states: StatesLike = None, value: float | None = None) -> None:
        self.group.set_states(states, value)

    @override
    def update_metric(
        self, eval_metric: EvalMetric, labels: Labels, pre_sliced: bool = False, pad: int = 0
    ) -> None:
        if self._group is None:
            raise missing_call(self, "update_metric")
        self._group.update_metric(eval_metric, labels, pre_sliced, pad)

    @override
    @needs(Stage.BOUND)
    def install_monitor(self, mon: MonitorLike) -> None:
        self.group.install_monitor(mon)

    @needs(Stage.BOUND)
    def summary(self) -> str:
        """Return a table of operators with output shapes, numbers of parameters, operations and memory, and their sums.

        Operations and memory are those of a whole batch, by its shapes; `explain` shows the steps of one executor.
        """
        return summarize(self.group)

    @needs(Stage.BOUND)
    def explain(
        self, is_train: bool | None = None, times: bool = False, measure_memory: bool = False
    ) -> ExecutorExplanation:
        """Return the steps of the first device's executor and their costs, as a printable table.

        Args:
            is_train: True for the steps of training; None = as the module is bound.
            times: measure the time of every step, on the last batch.
            measure_memory: measure the memory of a run instead of estimating it.

        Raises:
            StateError: the module is not bound, or `measure_memory` while a profiler runs.
        """
        return self.group.execs[0].explain(is_train, times, measure_memory, self.group.param_names)

    def to_torch(self, share: bool = False) -> GraphModule:
        """Return the network with its parameters as a `torch.nn.Module`; see `Symbol.to_torch`.

        ``forward`` takes data, states and labels. Fixed parameters have no gradient. `set_params` copies values back:
        ``mod.set_params({n: mx.nd.array(t) for n, t in net.state_dict().items() if n in mod.param_names}, aux)``.

        Args:
            share: True if the torch module uses this module's parameters on its first context, so that training one
                changes the other; False for copies.

        Raises:
            StateError: the parameters have no values, or `share` without binding.
            ArgumentError: a torch module cannot have some names; lists all.
            OpError: a torch module cannot have some parts, such as sparse inputs; lists all.

        Example:
            >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
            >>> mod = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
            >>> mod.bind([("data", (4, 3))], [("softmax_label", (4,))])
            >>> mod.init_params()
            >>> mod.to_torch().eval()(mx.nd.ones((5, 3)).torch()).shape
            torch.Size([5, 2])
        """
        from ..executor.to_torch import to_torch

        shapes: dict[str, tuple[int, ...]] = {}
        if self._stage >= Stage.INITIALIZED:
            described = (*self.group.data_shapes, *(self.group.label_shapes or ()))
            shapes = {desc[0]: tuple(desc[1]) for desc in described}
            arg_params, aux_params = self._shared_params() if share else self.get_params()
        elif self.preloaded is not None and not share:
            arg_params, aux_params = map(dict, self.preloaded)
        else:
            raise missing_call(self, "to_torch")
        inputs = [*self._data_names, *self._label_names, *self._state_names]
        return to_torch(
            self._symbol.graph,
            arg_params,
            aux_params,
            share,
            inputs=inputs,
            fixed=self._fixed_param_names,
            shapes=shapes,
        )

    def _shared_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return the arrays of the first context, not copies."""
        store = self.group.store
        aux_names = self._symbol.list_auxiliary_states()
        return {n: store.array(n, 0) for n in self._param_names}, {n: store.aux(n, 0) for n in aux_names}

    # files

    @needs(Stage.INITIALIZED)
    def save_pretrained(
        self,
        folder: PathLike,
        preprocessor: Mapping[str, Any] | None = None,
        card: str | None = None,
        max_shard_bytes: int | None = None,
    ) -> None:
        """Save the network as a folder for `from_pretrained`; other libraries can load much of it.

        It has ``config.json`` (inputs, labels, versions), ``symbol.json``, ``model.safetensors``, ``README.md`` (a
        model card) and optionally ``preprocessor.json``. They replace the files of an earlier save together.

        Args:
            folder: path of the folder, which is created if missing.
            preprocessor: preprocessing of the data: some of "mean", "scale", "size" and "labels", as numbers, texts,
                lists or arrays; None keeps the existing file.
            card: text of the model card; None keeps an existing card, or generates one.
            max_shard_bytes: largest number of parameter bytes in a file; None = 5 GB.

        Raises:
            ArgumentError: `preprocessor` has unknown names, or `max_shard_bytes` is below 1.
            FileError: a file cannot be written; existing files are then unchanged.
        """
        from ..interop import folder as interop

        arg_params, aux_params = self._dense_params()
        arg_params = {name: fetched(array).tostype("default") for name, array in arg_params.items()}
        interop.save_pretrained(
            folder,
            self._symbol,
            arg_params,
            aux_params,
            self.data_shapes,
            self._label_names,
            self._state_names,
            preprocessor,
            card,
            interop.MAX_SHARD_BYTES if max_shard_bytes is None else max_shard_bytes,
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
    ) -> str:
        """Write the network as an ONNX file, for prediction, and return the file's path.

        The inputs, without labels of losses, have the bound shapes and types. See `mx.onnx.export_model` for the
        translation.

        Args:
            path: path of the file.
            opset: version of ONNX's operators, 13 to 21.
            dynamic: axes whose lengths may differ from call to call, as ``{"data": {0: "batch"}}``; None for the batch
                axis of every input, False for none.
            fold_batchnorm: multiply BatchNorm into the layer before it.

        Raises:
            ArgumentError: some operators have no equivalent in ONNX (the message lists all), or an argument is
                invalid; nothing is written.
            FileError: the file cannot be written.

        Example:
            >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
            >>> mod = mx.mod.Module(mx.sym.SoftmaxOutput(net, name="softmax"))
            >>> mod.bind([("data", (4, 3))], for_training=False)
            >>> mod.init_params()
            >>> mod.to_onnx("net.onnx")
            'net.onnx'
        """
        from .onnx_files import BoundNetwork, write_one

        return write_one(BoundNetwork(self), path, opset, dynamic, fold_batchnorm)
