"""`BaseModule`: the interface of modules, on which the training loops work."""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from .._core import lazy
from .._devices.single_thread import single_thread
from ..base import ArgumentError, StateError
from ..base import _as_list as _as_list
from ..initializer import Uniform
from ..ndarray import NDArray
from ..ndarray.ragged import RaggedNDArray, numbers_of
from ..params import ParamStore
from . import fit as training
from . import scoring
from .arguments import BindArguments, OptimizerArguments, ParamArguments
from .lifecycle import Stage, exclusive
from .mxnet_helpers import check_input_names as _check_input_names  # noqa: F401  old programs import these from here
from .mxnet_helpers import check_names_match as _check_names_match  # noqa: F401
from .mxnet_helpers import parse_data_desc as _parse_data_desc  # noqa: F401
from .summary import describe
from .updates import Updates

if TYPE_CHECKING:
    from ..io import DataIter
    from ..metric import EvalMetric
    from ..types import GradReqLike
    from .class_labels import NetworkInputs
    from .types import (
        BatchLike,
        DynamicAxes,
        InitializerLike,
        KVStoreLike,
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

__all__ = ["BaseModule"]

lazy.publish(__name__, __all__)

_DEVICE = "pass contexts such as mx.gpu(0) to its constructor or to fit"
_VALUES = "get_params() returns parameters and auxiliary states, set_params() sets them, save_checkpoint() saves them"
_MODE = "pass is_train=True or False to forward; fit trains, score and predict do not"
_TYPE = "DataDesc(..., dtype=) in bind sets the type of an input, mx.contrib.amp runs a network in float16 or bfloat16"
_INSTEAD_OF_TORCH = {
    **dict.fromkeys(("to", "cuda", "cpu"), _DEVICE),
    **dict.fromkeys(("parameters", "named_parameters", "buffers", "state_dict", "load_state_dict"), _VALUES),
    **dict.fromkeys(("train", "eval"), _MODE),
    **dict.fromkeys(("half", "float", "double", "bfloat16"), _TYPE),
    "zero_grad": "backward replaces gradients unless bind was called with grad_req='add'",
}
"""Replacements for common methods of `torch.nn.Module`, for messages."""


class BaseModule:
    """Base class of modules: the life cycle bind → init_params → init_optimizer → fit.

    Subclasses define the methods that raise NotImplementedError here; a program may also set them on an object. The
    modules of this package define `_bind`, `_init_params` and `_init_optimizer`, which receive the arguments of the
    public methods as records.

    Args:
        logger: where progress is logged.

    Attributes:
        in_use: lock held by the thread that runs a method whose results the next method reads.

    Source: MXNet 1.9.1 `BaseModule`.
    """

    def __init__(self, logger: LoggerLike = logging) -> None:
        self.logger = logger
        self.for_training = False
        self.inputs_need_grad = False
        self._symbol: Any = None
        self._steps = [False, False, False]
        self._stage = Stage.CREATED
        self.in_use = threading.RLock()

    def __copy__(self) -> BaseModule:
        """Return a module that shares everything with this one."""
        other = object.__new__(type(self))
        vars(other).update(vars(self))
        return other

    def __getstate__(self) -> dict[str, Any]:
        """Return the attributes of an unbound module for `copy.deepcopy` and `pickle`."""
        if self.binded:
            raise StateError(
                f"{type(self).__name__} is bound, and a bound module cannot be copied or pickled: copy it before "
                "bind(), or save its parameters (save_checkpoint) and load them into a new module"
            )
        state = {key: value for key, value in vars(self).items() if key != "in_use"}
        if self.logger is logging:  # Python does not pickle modules
            del state["logger"]
        return state

    def __setstate__(self, state: Mapping[str, Any]) -> None:
        self.logger = logging
        self.in_use = threading.RLock()
        vars(self).update(state)

    def _not_defined(self) -> Exception:
        """Return the error of a method that only subclasses define; it names the calling method."""
        caller = sys._getframe(1).f_code.co_name.lstrip("_")
        return NotImplementedError(f"{type(self).__name__} does not define {caller}")

    if not TYPE_CHECKING:  # a type checker would allow any attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name in _INSTEAD_OF_TORCH:
                raise AttributeError(
                    f"{type(self).__name__} has no {name}, which torch's modules have: {_INSTEAD_OF_TORCH[name]}"
                )
            object.__getattribute__(self, name)  # raises, also for an error within a property

    def __repr__(self) -> str:
        return describe(self)

    def _repr_html_(self) -> str:
        """Return the HTML that notebooks show."""
        from .notebook import module_html

        return module_html(self)

    # life cycle

    @property
    def stage(self) -> Stage:
        """The stage of the life cycle that the module has reached."""
        return self._stage

    def _mark(self, step: Stage, done: bool) -> None:
        """Mark a step as done or not done; the marks of later steps stay."""
        self._steps[step - 1] = done
        self._stage = Stage(
            next((i for i, is_done in enumerate(self._steps) if not is_done), len(self._steps))
        )

    @property
    def binded(self) -> bool:
        """True once `bind` has been called; subclasses written for MXNet set it, and the two below."""
        return self.stage >= Stage.BOUND

    @binded.setter
    def binded(self, done: bool) -> None:
        self._mark(Stage.BOUND, done)

    @property
    def params_initialized(self) -> bool:
        """True if the parameters have values."""
        return self.stage >= Stage.INITIALIZED

    @params_initialized.setter
    def params_initialized(self, done: bool) -> None:
        self._mark(Stage.INITIALIZED, done)

    @property
    def optimizer_initialized(self) -> bool:
        """True if an optimizer is installed."""
        return self.stage >= Stage.READY

    @optimizer_initialized.setter
    def optimizer_initialized(self, done: bool) -> None:
        self._mark(Stage.READY, done)

    @property
    def symbol(self) -> Any:
        """The symbol that the module runs."""
        return self._symbol

    @property
    def data_names(self) -> list[str]:
        """Names of the inputs."""
        raise self._not_defined()

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        raise self._not_defined()

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the inputs."""
        raise self._not_defined()

    @property
    def matches_by_name(self) -> bool:
        """True if arrays of a batch are matched by the names in its `provide_data`, not by position."""
        return False

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels."""
        raise self._not_defined()

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of the outputs."""
        raise self._not_defined()

    def bind(
        self,
        data_shapes: ShapesLike,
        label_shapes: ShapesLike | None = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: BaseModule | None = None,
        grad_req: GradReqLike = "write",
        store: ParamStore | None = None,
    ) -> None:
        """Allocate everything for some input shapes.

        Args:
            data_shapes: (name, shape) or `DataDesc` of every input.
            label_shapes: the same for labels; None for no labels.
            for_training: True to compute gradients.
            inputs_need_grad: True to compute gradients of the inputs, too.
            force_rebind: bind a bound module again; parameters keep their values, and parameters in a given or shared
                store also keep their memory.
            shared_module: a bound module whose parameters this one uses.
            grad_req: "write", "add" or "null" for all parameters, or a list or dict per argument.
            store: a `ParamStore` with the parameters, such as one received from another process: the module trains
                them, and `init_optimizer` uses the shared optimizer states. Parameters that have values keep them.

        Shape:
            data_shapes[i], label_shapes[i]: (N, ...), N samples on the axis that the layout calls "N", the first by
                default.

        Raises:
            ArgumentError: names do not match, or the module does not support an argument.
            ShapeError: shapes contradict the module or each other, or cannot be inferred.
            StateError: `shared_module` is not bound and initialized; `store` came from another process and lacks a
                parameter; or the module is bound to another store that it cannot leave.
        """
        arguments = BindArguments(
            data_shapes,
            label_shapes,
            for_training,
            inputs_need_grad,
            force_rebind,
            shared_module,
            grad_req,
            store,
        )
        with single_thread():
            self._bind(arguments)

    def _bind(self, arguments: BindArguments) -> None:
        raise self._not_defined()

    def _stays_bound(self, arguments: BindArguments) -> bool:
        """Return True, with a warning, if the module is bound and `bind` has nothing to do."""
        if stays := self.binded and not arguments.force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
        return stays

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return parameters and auxiliary states as CPU arrays.

        Shape:
            returns[0][name], returns[1][name]: that of the parameter or state.
        """
        raise self._not_defined()

    def init_params(
        self,
        initializer: InitializerLike = Uniform(0.01),
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Initialize parameters and auxiliary states.

        Args:
            initializer: called for every array without a given value; an `Initializer`, or its name.
            arg_params: values by parameter name.
            aux_params: values by state name.
            allow_missing: let the initializer fill arrays without a given value.
            allow_extra: ignore unknown names even with `allow_missing` and no initializer, as
                ``set_params(..., allow_missing=True)`` calls this; otherwise they are an error there.

        Shape:
            arg_params[name], aux_params[name]: that of the parameter or state.

        Raises:
            ArgumentError: a value is missing, or a name is unknown.
            ShapeError: the shape of a value differs from that of its parameter.
        """
        with single_thread():
            self._init_params(
                ParamArguments(initializer, arg_params, aux_params, allow_missing, force_init, allow_extra)
            )

    def _init_params(self, arguments: ParamArguments) -> None:
        raise self._not_defined()

    def set_params(
        self,
        arg_params: Mapping[str, NDArray],
        aux_params: Mapping[str, NDArray],
        allow_missing: bool = False,
        force_init: bool = True,
        allow_extra: bool = False,
    ) -> None:
        """Set parameters and auxiliary states.

        Args:
            arg_params: parameters by name.
            aux_params: auxiliary states by name.
            allow_missing: leave parameters without a given value unchanged.
            allow_extra: ignore unknown names; they are an error only with `allow_missing`.

        Shape:
            arg_params[name], aux_params[name]: that of the parameter or state.
        """
        self.init_params(None, arg_params, aux_params, allow_missing, force_init, allow_extra)

    def save_params(self, fname: str) -> None:
        """Write parameters and states atomically to a file, with the keys ``arg:name`` and ``aux:name``.

        Args:
            fname: path of the file.
        """
        from ..ndarray import save

        arg_params, aux_params = self.get_params()
        named = {f"arg:{k}": v for k, v in arg_params.items()}
        named.update({f"aux:{k}": v for k, v in aux_params.items()})
        save(fname, named)

    def to_onnx(
        self, path: PathLike, opset: int = 17, dynamic: DynamicAxes = None, *, fold_batchnorm: bool = False
    ) -> Any:
        """Write the network as an ONNX file; see `Module.to_onnx`.

        Args:
            path: path of the file.
            opset: version of ONNX's operators, 13 to 21.
            dynamic: axes whose lengths may differ from call to call, as ``{"data": {0: "batch"}}``; None for the
                batch axis of every input, False for none.
            fold_batchnorm: multiply BatchNorm into the layer before it.

        Raises:
            ArgumentError: a module of this kind does not have a single graph.
        """
        raise ArgumentError(
            f"{type(self).__name__}.to_onnx: only Module and BucketingModule can be written as ONNX; "
            "mx.onnx.export_model writes a symbol with its parameters"
        )

    def load_params(self, fname: str) -> None:
        """Read parameters and states from a file that `save_params`, MXNet or gluon's `collect_params().save` wrote.

        Args:
            fname: path of the file; names in it may lack ``arg:`` and ``aux:``.

        Raises:
            ArgumentError: the file holds arrays without names, or an array that is not in the network.
        """
        from ..checkpoint.network import split_params  # few programs call this method
        from ..ndarray import load

        named = load(fname)
        if not isinstance(named, dict):
            raise ArgumentError(f"{fname} holds arrays without names, expected keys arg:NAME and aux:NAME")
        arg_params, aux_params, others = split_params(named, self._names_of_values)
        if others:
            raise ArgumentError(
                f"{fname} holds {others[0]!r}, expected the names of this network's parameters and states, with or "
                "without arg: and aux: in front"
            )
        self.set_params(arg_params, aux_params)

    def _names_of_values(self) -> tuple[list[str], list[str]]:
        """Return the names of all parameters, and of all auxiliary states."""
        stores = self.stores()
        return [n for store in stores for n in store.names()], [
            n for store in stores for n in store.aux_names()
        ]

    def init_optimizer(
        self,
        kvstore: KVStoreLike = "local",
        optimizer: OptimizerLike = "sgd",
        optimizer_params: OptimizerParams = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Install an optimizer.

        Args:
            kvstore: "local" or "device" (sum gradients over devices; see `kvstore.create`), None (update each device
                separately), or a store.
            optimizer: name or `Optimizer`.
            optimizer_params: arguments of the optimizer, a dict or pairs; rescale_grad defaults to 1 / batch size.
            force_init: replace an installed optimizer. On a shared `ParamStore` only the process that shared it can
                reset the states; other processes then get a StateError until they receive the store again.

        Raises:
            ArgumentError: the optimizer or store is unknown.
            StateError: the parameters are in a store from another process without states of this optimizer;
                or they are shared, and the optimizer has states that cannot be shared.
        """
        with single_thread():
            self._init_optimizer(OptimizerArguments(kvstore, optimizer, optimizer_params, force_init))

    def _init_optimizer(self, arguments: OptimizerArguments) -> None:
        raise self._not_defined()

    def _keeps_optimizer(self, arguments: OptimizerArguments) -> bool:
        """Return True, with a warning, if an optimizer is installed and `init_optimizer` has nothing to do."""
        if keeps := self.optimizer_initialized and not arguments.force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
        return keeps

    # computing

    def forward(self, data_batch: BatchLike, is_train: bool | None = None) -> None:
        """Run forward on a batch. A module that is bound for prediction reads its arrays without copying them.

        Args:
            data_batch: has `data` and `label`, lists of arrays in the bound order.
            is_train: True to keep values for backward; None for `for_training` of `bind`.

        Shape:
            data_batch.data[i], data_batch.label[i]: the bound shapes, with any number N of samples.
        """
        raise self._not_defined()

    def backward(self, out_grads: OutGrads = None) -> None:
        """Run backward.

        Args:
            out_grads: a gradient for each output; None if the outputs are losses.

        Shape:
            out_grads[i]: that of the output.
        """
        raise self._not_defined()

    def forward_backward(self, data_batch: BatchLike) -> None:
        """Run forward and backward on a batch.

        Args:
            data_batch: has `data` and `label`, lists of arrays in the bound order.

        Shape:
            data_batch.data[i], data_batch.label[i]: the bound shapes, with any number N of samples.
        """
        self.forward(data_batch, is_train=True)
        self.backward()

    def evaluate(self, data_batch: BatchLike) -> None:
        """Run forward in prediction mode without copying the batch; `score` and `predict` call it.

        Args:
            data_batch: has `data` and `label`, lists of arrays in the bound order.

        Shape:
            data_batch.data[i], data_batch.label[i]: the bound shapes, with any number N of samples.
        """
        self.forward(data_batch, is_train=False)

    def update(self) -> None:
        """Apply the optimizer to the gradients of the last backward."""
        raise self._not_defined()

    def all_updates(self) -> list[Updates]:
        """Return the `Updates` that apply the gradients of the last backward; a chain has one for each module."""
        raise self._not_defined()

    def stores(self) -> list[Any]:
        """Return the stores of the parameters; a chain has one for each module."""
        raise self._not_defined()

    def announce_update(self) -> None:
        """Announce that `update` follows the next `forward_backward` and applies its gradients unchanged.

        In distributed training, buckets of gradients are then sent while backward still runs. `fit` calls this;
        other processes need not. This base method does nothing.
        """

    def keep_gradients(self) -> None:
        """Accumulate the gradients of the last backward; the next `update` adds them to its own."""
        for updates in self.all_updates():
            updates.keep()

    def scale_gradients(self, factor: float) -> None:
        """Multiply the gradients of the next `update` by a number.

        Args:
            factor: the number; the factors of several calls are multiplied.
        """
        for updates in self.all_updates():
            updates.scale *= factor

    def clip_by_global_norm(self, max_norm: float) -> float:
        """Scale the gradients of the next `update` so that their global norm is at most `max_norm`.

        Call it between `backward` and `update`. The norm is the Euclidean norm over all parameters, of gradients that
        are summed over contexts and multiplied by the optimizer's ``rescale_grad``.

        Args:
            max_norm: the largest norm, above 0.

        Returns:
            The norm before scaling.

        Raises:
            ArgumentError: `max_norm` is not above 0.

        Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", 2013.
        """
        if not max_norm > 0:
            raise ArgumentError(f"clip_by_global_norm: max_norm is {max_norm!r}, expected a number above 0")
        norm = math.sqrt(sum(updates.squared_norm() for updates in self.all_updates()))
        if norm > max_norm:
            self.scale_gradients(max_norm / norm)
        return norm

    def update_metric(
        self, eval_metric: EvalMetric, labels: Labels, pre_sliced: bool = False, pad: int = 0
    ) -> None:
        """Update a metric with the outputs of the last forward.

        Args:
            eval_metric: updated in place.
            labels: arrays in the bound order.
            pre_sliced: True if `labels` holds a list of slices for each context.
            pad: number of padding rows at the end of the batch, which do not count.

        Shape:
            labels[i]: (N, ...), as bound; with `pre_sliced`, a list of them for each context, with its part of N.
        """
        raise self._not_defined()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the outputs of the last forward.

        Args:
            merge_multi_context: True to concatenate the contexts' parts into one array each.

        Shape:
            returns[i]: that of `output_shapes[i]`; without merging, a list of the contexts' parts.
        """
        raise self._not_defined()

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the gradients of the inputs.

        Args:
            merge_multi_context: True to concatenate the contexts' parts into one array each.

        Shape:
            returns[i]: that of the input; without merging, a list of the contexts' parts.
        """
        raise self._not_defined()

    def output_probes(self) -> list[list[torch.Tensor]]:
        """Return, for every output of the last forward, tensors that are finite only if the whole output is.

        Shape:
            returns[i][k]: any, such as the sum of output i on context k, or the output.
        """
        try:
            outputs = self.get_outputs()
        except NotImplementedError:  # a subclass that is trained only for its side effects
            return []
        return [[numbers_of(output)] for output in outputs]

    def nan_rows(self) -> tuple[list[int], int]:
        """Return the indices of the rows of the last outputs that hold a NaN, and the number of rows."""
        masks = [mask for mask in map(_nan_in_rows, self.get_outputs()) if mask is not None]
        num_rows = max((len(mask) for mask in masks), default=0)
        indices = {int(row) for mask in masks for row in mask.nonzero()}
        return sorted(indices), num_rows

    def network_inputs(self, data_batch: BatchLike) -> list[NetworkInputs]:
        """Return the symbols that read a batch, with their inputs; none here.

        Args:
            data_batch: the batch; the module may switch to its bucket.
        """
        return []

    def nonfinite_gradient(self) -> str | None:
        """Return the name of a parameter with a gradient that is not finite, None if none is known."""
        return None

    def first_nonfinite_node(self) -> str | None:
        """Return the name of the first node of the last forward that is not finite, None if it is not known."""
        return None

    def has_overflow(self) -> bool:
        """Return True if gradients of the last backward overflow float16; change nothing."""
        return False

    def handle_overflow(self) -> bool:
        """Return True if gradients of the last backward overflow float16, so that the batch must be skipped.

        In that case, restore the auxiliary states and reduce the loss scale. `update` calls this itself, and then does
        nothing; see ``Module(amp="fp16")``.
        """
        return False

    def loss_scales(self) -> list[Any]:
        """Return the loss scales of float16 training, which are saved with a run; none here."""
        return []

    def restore_aux_states(self) -> None:
        """Restore the auxiliary states from before the last backward; there are none here."""

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the states; none here.

        Args:
            merge_multi_context: True to concatenate the contexts' parts into one array each.

        Shape:
            returns[i][k]: that of the state on context k.
        """
        return []

    def set_states(self, states: StatesLike = None, value: float | None = None) -> None:
        """Set the states; there are none to set.

        Args:
            states: for each state, a list over contexts, as `get_states(False)` returns.
            value: a number to fill all states with instead of `states`.

        Shape:
            states[i][k]: that of the state on context k.

        Raises:
            ArgumentError: states are given.
        """
        if states or value is not None:
            raise ArgumentError(f"set_states: {type(self).__name__} has no states")

    def install_monitor(self, mon: MonitorLike) -> None:
        """Install a monitor on every executor.

        Args:
            mon: an `mx.mon.Monitor`.
        """
        raise self._not_defined()

    def prepare(self, data_batch: BatchLike, sparse_row_id_fn: RowIdFunction = None) -> None:
        """Prepare for the next batch.

        Args:
            data_batch: the next batch, with `data` and `label`.
            sparse_row_id_fn: ``(batch) -> {parameter: row numbers}``, the rows of row-sparse parameters it needs.

        Shape:
            data_batch.data[i], data_batch.label[i]: the bound shapes, with any number N of samples.
        """

    def start_epoch(self, epoch: int, train_data: DataIter | None) -> None:
        """Prepare for an epoch of `fit`.

        Args:
            train_data: the iterator at its beginning, where it must stay.
        """

    def end_epoch(self) -> None:
        """Called after an epoch of `fit`, including one that failed."""

    def sync_contexts(self) -> None:
        """Set every context's parameters and states to their mean over contexts; `fit` calls it after each epoch."""

    # loops over batches

    fit, score = exclusive()(training.fit), exclusive()(scoring.score)
    predict = exclusive()(scoring.predict)
    iter_predict = scoring.iter_predict


def _nan_in_rows(output: NDArray) -> torch.Tensor | None:
    """Return for each row whether it holds a NaN; None for an output without rows or of integers."""
    values = numbers_of(output)
    if not values.dim() or not values.is_floating_point():
        return None
    is_nan = torch.isnan(values).flatten(1).any(1) if values.dim() > 1 else torch.isnan(values)
    if not isinstance(output, RaggedNDArray):
        return is_nan
    rows = output.stored.row_numbers()
    return torch.zeros(len(output), device=is_nan.device).index_add_(0, rows, is_nan.float()) > 0
