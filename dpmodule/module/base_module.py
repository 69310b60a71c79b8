"""`BaseModule`: the interface of everything that can be trained; loops in `fit` work on it alone."""

from __future__ import annotations

import logging
import math
import sys
import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, NoReturn

import torch

from ..base import ArgumentError, StateError
from ..base import _as_list as _as_list
from ..compat import lazy
from ..devices.single_thread import single_thread
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

_DEVICE = "give contexts to its constructor or to fit, such as mx.gpu(0)"
_VALUES = "get_params() returns parameters and auxiliary states, set_params() sets them, save_checkpoint() saves them"
_MODE = "forward takes is_train=True or False; fit trains, score and predict do not"
_TYPE = "DataDesc(..., dtype=) in bind sets the type of an input, mx.contrib.amp runs a network in float16 or bfloat16"
_INSTEAD_OF_TORCH = {
    **dict.fromkeys(("to", "cuda", "cpu"), _DEVICE),
    **dict.fromkeys(("parameters", "named_parameters", "buffers", "state_dict", "load_state_dict"), _VALUES),
    **dict.fromkeys(("train", "eval"), _MODE),
    **dict.fromkeys(("half", "float", "double", "bfloat16"), _TYPE),
    "zero_grad": "backward replaces gradients unless bind was called with grad_req='add'",
}
"""What to use in place of the methods of `torch.nn.Module` that users look for first."""


class BaseModule:
    """What modules have in common: the life cycle bind → init_params → init_optimizer → fit.

    Subclasses define the methods that raise NotImplementedError here; a program may also set them on an object. The
    modules of this package define `_bind`, `_init_params` and `_init_optimizer`, which are handed the arguments of the
    methods of these names as records.

    Args:
        logger: where progress is logged.

    Attributes:
        in_use: held by the thread that is inside of a method which leaves results for the next one.

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
        """Return what `copy.deepcopy` and `pickle` keep of a module that is not bound."""
        if self.binded:
            raise StateError(
                f"{type(self).__name__} is bound, and a bound module cannot be copied or pickled: do that before "
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

    def _not_here(self) -> Exception:
        """Return the error of a method that subclasses define, which names the method that was called."""
        caller = sys._getframe(1).f_code.co_name.lstrip("_")
        return NotImplementedError(f"{type(self).__name__} does not define {caller}")

    if not TYPE_CHECKING:  # a type checker would allow any attribute

        def __getattr__(self, name: str) -> NoReturn:
            if name in _INSTEAD_OF_TORCH:
                raise AttributeError(
                    f"{type(self).__name__} has no {name}, which torch's modules have: {_INSTEAD_OF_TORCH[name]}"
                )
            object.__getattribute__(self, name)  # raises, also where the error comes from inside a property

    def __repr__(self) -> str:
        return describe(self)

    def _repr_html_(self) -> str:
        """Return what notebooks show."""
        from .notebook import module_html

        return module_html(self)

    # life cycle

    @property
    def stage(self) -> Stage:
        """How far the module has come."""
        return self._stage

    def _mark(self, step: Stage, done: bool) -> None:
        """Note that a step has been done, or has to be done again; those behind it are not forgotten."""
        self._steps[step - 1] = done
        self._stage = Stage(next((i for i, each in enumerate(self._steps) if not each), len(self._steps)))

    @property
    def binded(self) -> bool:
        """Whether `bind` has been called; subclasses written for MXNet set it, and the two below."""
        return self.stage >= Stage.BOUND

    @binded.setter
    def binded(self, done: bool) -> None:
        self._mark(Stage.BOUND, done)

    @property
    def params_initialized(self) -> bool:
        """Whether parameters have values."""
        return self.stage >= Stage.INITIALIZED

    @params_initialized.setter
    def params_initialized(self, done: bool) -> None:
        self._mark(Stage.INITIALIZED, done)

    @property
    def optimizer_initialized(self) -> bool:
        """Whether an optimizer is installed."""
        return self.stage >= Stage.READY

    @optimizer_initialized.setter
    def optimizer_initialized(self, done: bool) -> None:
        self._mark(Stage.READY, done)

    @property
    def symbol(self) -> Any:
        """The symbol that is run."""
        return self._symbol

    @property
    def data_names(self) -> list[str]:
        """Names of the inputs."""
        raise self._not_here()

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        raise self._not_here()

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the inputs."""
        raise self._not_here()

    @property
    def matches_by_name(self) -> bool:
        """Whether a batch whose `provide_data` names its arrays may have them in another order than was bound."""
        return False

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels."""
        raise self._not_here()

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of the outputs."""
        raise self._not_here()

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
            label_shapes: the same for labels; None to run without.
            for_training: whether gradients are needed.
            inputs_need_grad: whether gradients of the inputs are needed.
            force_rebind: bind again although the module is bound; parameters keep their values, those of a store that
                was given or is shared with other processes also their place.
            shared_module: a bound module whose parameters this one uses.
            grad_req: "write", "add" or "null" for all parameters, or a list or dict per argument.
            store: where the parameters are, such as a `ParamStore` that came from another process: the module trains
                those, and `init_optimizer` goes on with the states shared there. Parameters that have values keep them.

        Shape:
            data_shapes[i], label_shapes[i]: (N, ...), N samples on the axis that the layout calls "N", the first by
                default.

        Raises:
            ArgumentError: names do not fit, or the module cannot do what an argument asks for.
            ShapeError: shapes contradict the module or each other, or some cannot be inferred.
            StateError: `shared_module` is not bound and initialized; `store` came from another process and lacks a
                parameter; or the module is on another store that it cannot leave.
        """
        wanted = BindArguments(
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
            self._bind(wanted)

    def _bind(self, wanted: BindArguments) -> None:
        raise self._not_here()

    def _stays_bound(self, wanted: BindArguments) -> bool:
        """Say whether `bind` has nothing to do, and warn that it does nothing."""
        if stays := self.binded and not wanted.force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
        return stays

    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return parameters and auxiliary states as CPU arrays.

        Shape:
            returns[0][name], returns[1][name]: that of the parameter or state.
        """
        raise self._not_here()

    def init_params(
        self,
        initializer: InitializerLike = Uniform(0.01),
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Give parameters and auxiliary states their first values.

        Args:
            initializer: called for every array that is not given; an `Initializer`, or its name.
            arg_params: values by parameter name.
            aux_params: values by state name.
            allow_missing: let the initializer fill in what is not given.
            allow_extra: pass over names the module does not have even where they are refused: with `allow_missing`
                and no initializer, as ``set_params(..., allow_missing=True)`` calls this.

        Shape:
            arg_params[name], aux_params[name]: that of the parameter or state.

        Raises:
            ArgumentError: a value is missing, or unknown where that is refused.
            ShapeError: a value has another shape than its parameter.
        """
        with single_thread():
            self._init_params(
                ParamArguments(initializer, arg_params, aux_params, allow_missing, force_init, allow_extra)
            )

    def _init_params(self, given: ParamArguments) -> None:
        raise self._not_here()

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
            allow_missing: leave those not given as they are.
            allow_extra: pass over names the module does not have; they are refused only with `allow_missing`.

        Shape:
            arg_params[name], aux_params[name]: that of the parameter or state.
        """
        self.init_params(None, arg_params, aux_params, allow_missing, force_init, allow_extra)

    def save_params(self, fname: str) -> None:
        """Write parameters and states to a file, atomically, with the keys ``arg:name`` and ``aux:name``.

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
            path: where to write.
            opset: version of ONNX's operators, 13 to 21.
            dynamic: which lengths may differ from call to call, as ``{"data": {0: "batch"}}``; None = the
                batch axis of every input, False = none.
            fold_batchnorm: multiply BatchNorm into the layer before it.

        Raises:
            ArgumentError: a module of this kind is no network of one graph.
        """
        raise ArgumentError(
            f"{type(self).__name__}.to_onnx: only a Module and a BucketingModule can be written, whose symbols are all "
            "that they compute; mx.onnx.export_model writes a symbol with its parameters"
        )

    def load_params(self, fname: str) -> None:
        """Read parameters and states from a file that `save_params`, MXNet or gluon's `collect_params().save` wrote.

        Args:
            fname: path of the file; names in it may lack ``arg:`` and ``aux:``.

        Raises:
            ArgumentError: the file holds arrays without names, or an array that the network does not have.
        """
        from ..checkpoint import split_params  # few programs load by this method
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
        return [n for one in stores for n in one.names()], [n for one in stores for n in one.aux_names()]

    def init_optimizer(
        self,
        kvstore: KVStoreLike = "local",
        optimizer: OptimizerLike = "sgd",
        optimizer_params: OptimizerParams = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Install an optimizer.

        Args:
            kvstore: "local" or "device" (sum gradients over devices; see `kvstore.create`), None (every device for
                itself), or a store.
            optimizer: name or `Optimizer`.
            optimizer_params: its arguments, a dict or pairs; rescale_grad is 1 / batch size unless given.
            force_init: replace an optimizer that is installed. On a shared `ParamStore` its states begin anew only
                where the store was shared; other processes then get a StateError until they are sent it again.

        Raises:
            ArgumentError: the optimizer or store is unknown.
            StateError: the parameters are in a store that came from another process, without states of this optimizer;
                or they are shared, and the optimizer remembers what cannot be.
        """
        with single_thread():
            self._init_optimizer(OptimizerArguments(kvstore, optimizer, optimizer_params, force_init))

    def _init_optimizer(self, wanted: OptimizerArguments) -> None:
        raise self._not_here()

    def _keeps_optimizer(self, wanted: OptimizerArguments) -> bool:
        """Say whether `init_optimizer` has nothing to do, and warn that it does nothing."""
        if keeps := self.optimizer_initialized and not wanted.force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
        return keeps

    # computing

    def forward(self, data_batch: BatchLike, is_train: bool | None = None) -> None:
        """Run forward on a batch.

        Args:
            data_batch: has `data` and `label`, lists of arrays in the order bound.
            is_train: whether to keep what backward needs; None for what `bind` was told.

        Shape:
            data_batch.data[i], data_batch.label[i]: those bound for inputs and labels, N samples each; N may be
                another.
        """
        raise self._not_here()

    def backward(self, out_grads: OutGrads = None) -> None:
        """Run backward.

        Args:
            out_grads: a gradient for each output; None where the outputs are losses.

        Shape:
            out_grads[i]: that of the output.
        """
        raise self._not_here()

    def forward_backward(self, data_batch: BatchLike) -> None:
        """Run forward and backward on a batch.

        Args:
            data_batch: has `data` and `label`, lists of arrays in the order bound.

        Shape:
            data_batch.data[i], data_batch.label[i]: those bound for inputs and labels, N samples each; N may be
                another.
        """
        self.forward(data_batch, is_train=True)
        self.backward()

    def evaluate(self, data_batch: BatchLike) -> None:
        """Run forward in prediction mode, reading the batch where it lies; used by `score` and `predict`.

        Args:
            data_batch: has `data` and `label`, lists of arrays in the order bound.

        Shape:
            data_batch.data[i], data_batch.label[i]: those bound for inputs and labels, N samples each; N may be
                another.
        """
        self.forward(data_batch, is_train=False)

    def update(self) -> None:
        """Apply the optimizer to the gradients of the last backward."""
        raise self._not_here()

    def all_updates(self) -> list[Updates]:
        """Return what applies the gradients of the last backward; several if the module is a chain of them."""
        raise self._not_here()

    def stores(self) -> list[Any]:
        """Return what holds the parameters on every context; several if the module is a chain of them."""
        raise self._not_here()

    def announce_update(self) -> None:
        """Say that `update` will follow the next `forward_backward`, with its gradients as they are.

        With several processes these then go to the others while backward still runs, where they are more than one
        message. `fit` says so by itself; the other processes need not. Here nothing comes of it.
        """

    def keep_gradients(self) -> None:
        """Keep the gradients of the last backward, which the next `update` adds to its own."""
        for each in self.all_updates():
            each.keep()

    def scale_gradients(self, factor: float) -> None:
        """Multiply the gradients of the next `update` by a number.

        Args:
            factor: multiplies what earlier calls have set.
        """
        for each in self.all_updates():
            each.scale *= factor

    def clip_by_global_norm(self, max_norm: float) -> float:
        """Shrink the gradients of the next `update` so that all of them together are no longer than `max_norm`.

        Call it between `backward` and `update`. The length is the Euclidean norm over all parameters, of gradients that
        are summed over contexts and multiplied by the optimizer's ``rescale_grad``.

        Args:
            max_norm: greatest length, above 0.

        Returns:
            The length before.

        Raises:
            ArgumentError: `max_norm` is not above 0.

        Source: Pascanu, Mikolov and Bengio, "On the difficulty of training recurrent neural networks", 2013.
        """
        if not max_norm > 0:
            raise ArgumentError(f"clip_by_global_norm: max_norm is {max_norm!r}, expected a number above 0")
        norm = math.sqrt(sum(each.squared_norm() for each in self.all_updates()))
        if norm > max_norm:
            self.scale_gradients(max_norm / norm)
        return norm

    def update_metric(
        self, eval_metric: EvalMetric, labels: Labels, pre_sliced: bool = False, pad: int = 0
    ) -> None:
        """Show a metric the outputs of the last forward.

        Args:
            eval_metric: what counts.
            labels: arrays in the order bound.
            pre_sliced: whether `labels` holds a list for each context already.
            pad: how many rows at the end of the batch only fill it up, and do not count.

        Shape:
            labels[i]: (N, ...), as bound; for each context a list of them, with its part of N, if `pre_sliced`.
        """
        raise self._not_here()

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the outputs of the last forward.

        Args:
            merge_multi_context: whether the contexts' parts are put together, one array each.

        Shape:
            returns[i]: that of `output_shapes[i]`; a list of the contexts' parts of it if they are not merged.
        """
        raise self._not_here()

    def get_input_grads(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the gradients of the inputs.

        Args:
            merge_multi_context: whether the contexts' parts are put together, one array each.

        Shape:
            returns[i]: that of the input; a list of the contexts' parts of it if they are not merged.
        """
        raise self._not_here()

    def output_probes(self) -> list[list[torch.Tensor]]:
        """Return, for every output of the last forward, tensors that are finite only if all of it is.

        Shape:
            returns[i][k]: any, such as the sum of output i on context k, or all of it.
        """
        try:
            outputs = self.get_outputs()
        except NotImplementedError:  # by a subclass that is trained for its effects alone
            return []
        return [[numbers_of(output)] for output in outputs]

    def nan_rows(self) -> tuple[list[int], int]:
        """Return the numbers of the rows of the last outputs in which something is NaN, and how many rows there are."""
        found = [rows for rows in map(_nan_in_rows, self.get_outputs()) if rows is not None]
        rows = max((len(each) for each in found), default=0)
        together = {int(row) for each in found for row in each.nonzero()}
        return sorted(together), rows

    def network_inputs(self, data_batch: BatchLike) -> list[NetworkInputs]:
        """Return the symbols that read a batch, with what it feeds them; none here.

        Args:
            data_batch: the batch; the module may switch to its bucket.
        """
        return []

    def nonfinite_gradient(self) -> str | None:
        """Return the name of a parameter whose gradient of the last backward is not finite; None if none is known."""
        return None

    def first_nonfinite_node(self) -> str | None:
        """Return what of the last forward is not finite first, by the name of its node; None if that is not known."""
        return None

    def has_overflow(self) -> bool:
        """Say whether gradients of the last backward are too large for float16, and leave everything as it is."""
        return False

    def handle_overflow(self) -> bool:
        """Say whether gradients of the last backward are too large for float16, so that it has to be left out.

        If so, auxiliary states are those before the batch, and the next one's loss is scaled by less. `update` asks by
        itself, and does nothing then; see ``Module(amp="fp16")``.
        """
        return False

    def loss_scales(self) -> list[Any]:
        """Return the scales of losses that are trained on in float16, to be saved with a run; none here."""
        return []

    def restore_aux_states(self) -> None:
        """Put auxiliary states back to what they were before the last backward; there are none here."""

    def get_states(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the states; none here.

        Args:
            merge_multi_context: whether the contexts' parts are put together, one array each.

        Shape:
            returns[i][k]: that of the state on context k.
        """
        return []

    def set_states(self, states: StatesLike = None, value: float | None = None) -> None:
        """Set the states; there are none to set.

        Args:
            states: a list over contexts for each state, as `get_states(False)` gives them.
            value: the number to fill all states with, instead of `states`.

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
        raise self._not_here()

    def prepare(self, data_batch: BatchLike, sparse_row_id_fn: RowIdFunction = None) -> None:
        """Get ready for the batch that comes next.

        Args:
            data_batch: the one that comes next, with `data` and `label`.
            sparse_row_id_fn: ``(batch) -> {parameter: row numbers}``, which rows of row-sparse parameters it needs.

        Shape:
            data_batch.data[i], data_batch.label[i]: those bound for inputs and labels, N samples each; N may be
                another.
        """

    def start_epoch(self, epoch: int, train_data: DataIter | None) -> None:
        """Get ready for an epoch of `fit`.

        Args:
            train_data: the iterator, at its beginning; it has to be left there.
        """

    def end_epoch(self) -> None:
        """Hear that an epoch of `fit` has been run, or was broken off by an error."""

    def sync_contexts(self) -> None:
        """Give every context the mean of all contexts' parameters and states; `fit` does so after each epoch."""

    # loops over batches

    fit, score, predict = exclusive(training.fit), exclusive(scoring.score), exclusive(scoring.predict)
    iter_predict = scoring.iter_predict


def _nan_in_rows(output: NDArray) -> torch.Tensor | None:
    """Say of each row whether something in it is NaN; None of what has no rows, or no fractions."""
    numbers = numbers_of(output)
    if not numbers.dim() or not numbers.is_floating_point():
        return None
    found = torch.isnan(numbers).flatten(1).any(1) if numbers.dim() > 1 else torch.isnan(numbers)
    if not isinstance(output, RaggedNDArray):
        return found
    record = output.stored
    return (
        torch.zeros(len(output), device=found.device).index_add_(0, record.row_numbers(), found.float()) > 0
    )
