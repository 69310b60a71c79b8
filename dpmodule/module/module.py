"""`Module`: a symbol, its parameters and an optimizer, on one or several contexts."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from .. import later
from .. import optimizer as opt
from ..base import ArgumentError, StateError
from ..context import Context
from ..executor import run_options
from ..initializer import Uniform
from ..ndarray import NDArray
from ..symbol import Symbol
from .by_hand import check_descriptions, check_input_names, names_of
from .executor_group import DataParallelExecutorGroup
from .first_values import first_values
from .group_contexts import contexts_of
from .optimizing import OptimizedModule
from .stage import Stage, needs
from .summary import describe
from .updates import Updates, check_compression

__all__ = ["Module"]

later.publish(__name__, __all__)

_ROW_SPARSE = "1"  # the text of `__storage_type__` in graphs


class Module(OptimizedModule):
    """Trains and runs a symbol.

    Args:
        symbol: the network, usually ending in a loss such as SoftmaxOutput.
        data_names: its inputs.
        label_names: its labels.
        logger: where progress is logged.
        context: a device or a list of them.
        work_load_list: share of the batch for each device; None = equal.
        fixed_param_names: parameters that are not trained.
        state_names: arguments that carry state from batch to batch.
        group2ctxs: where the groups named by ``AttrScope(ctx_group=...)`` live; see `DataParallelExecutorGroup`.
        compression_params: how a kvstore "device" compresses gradients, such as
            ``{"type": "2bit", "threshold": 0.5}``; None = not at all.
        compile: whether the network is handed to `torch.compile`: True, the name of a backend, or a dict of
            `torch.compile`'s arguments. Compiling takes seconds, anew for every set of input shapes; it pays where a
            network of many small operators runs long. What cannot be compiled runs as always, with a warning.
        cuda_graphs: whether `forward_backward` and prediction on a GPU are recorded once they repeat with the same
            shapes, and then replayed, with the settings of torch that were in force at that time; it pays for small
            networks. None = as MXNet's environment variable MXNET_ENABLE_CUDA_GRAPHS says.
        mirror: what backward computes again instead of keeping it from forward, for less memory: True for the
            results of cheap operators, a number n for all results within n equal parts of the network, False for
            none. None = as the attribute ``force_mirroring`` of operators, and MXNet's environment variable
            MXNET_BACKWARD_DO_MIRROR, say.

    Raises:
        ArgumentError: a name is no argument of the symbol, `symbol` is none, or `compile` is something else.

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
        symbol: Any,
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Any = logging,
        context: Any = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        state_names: Sequence[str] | None = None,
        group2ctxs: Any = None,
        compression_params: Any = None,
        *,
        compile: Any = None,
        cuda_graphs: bool | None = None,
        mirror: bool | int | None = None,
    ) -> None:
        super().__init__(logger)
        if not isinstance(symbol, Symbol):
            hint = "; sym.load_json reads JSON" if isinstance(symbol, str) else ""
            raise ArgumentError(f"symbol is of type {type(symbol).__name__}, expected a Symbol{hint}")
        self._run_options = run_options(compile, cuda_graphs, mirror)
        check_compression(compression_params)
        self._compression_params = compression_params
        self._context = contexts_of(context)
        self._workload = list(work_load_list) if work_load_list is not None else None
        self._group2ctxs = group2ctxs
        self._symbol = symbol
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
        self._stage = Stage.CREATED
        self._group: DataParallelExecutorGroup | None = None
        self._preloaded: tuple[Mapping[str, NDArray], Mapping[str, NDArray]] | None = None
        self._preloaded_states: str | None = None
        self._grad_req: Any = "write"
        self._optimizer: opt.Optimizer | None = None
        self._updates: Updates | None = None

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
            prefix: path and first part of the file names.
            epoch: number of the epoch, or `checkpoint.INTERRUPTED`.
            load_optimizer_states: also read ``prefix-NNNN.states`` once the optimizer is installed.
            kwargs: arguments of the constructor.
        """
        from ..checkpoint import load_checkpoint, states_file

        symbol, arg_params, aux_params = load_checkpoint(prefix, epoch)
        module = Module(symbol, **kwargs)
        module.preload(arg_params, aux_params, states_file(prefix, epoch) if load_optimizer_states else None)
        return module

    # properties

    @property
    def data_names(self) -> list[str]:
        """Names of the inputs."""
        return self._data_names

    @property
    def label_names(self) -> list[str]:
        """Names of the labels."""
        return self._label_names

    @property
    def output_names(self) -> list[str]:
        """Names of the outputs."""
        return list(self._symbol.list_outputs())

    @property
    def param_names(self) -> list[str]:
        """Names of the parameters."""
        return self._param_names

    # binding

    def bind(
        self,
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None = None,
        for_training: bool = True,
        inputs_need_grad: bool = False,
        force_rebind: bool = False,
        shared_module: Any = None,
        grad_req: Any = "write",
    ) -> None:
        """Allocate everything for some input shapes.

        Args:
            data_shapes: (name, shape) or `DataDesc` of every input.
            label_shapes: the same for labels; None to run without.
            for_training: whether gradients are needed.
            inputs_need_grad: whether gradients of the inputs are needed.
            force_rebind: bind again although the module is bound; parameters keep their values.
            shared_module: a bound module whose parameters this one uses.
            grad_req: "write", "add" or "null" for all parameters, or a list or dict per argument.

        Raises:
            ArgumentError: names do not fit the symbol.
            ShapeError: shapes contradict the symbol, or some cannot be inferred.
            StateError: `shared_module` is not bound and initialized.
        """
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        check_descriptions(data_shapes, "data_shapes")
        check_descriptions(label_shapes, "label_shapes")
        names = [s[0] for s in data_shapes]
        if names != self._data_names and sorted(names) != sorted(self._data_names):
            raise ArgumentError(
                f"bind: data_shapes names {names}, the module's data_names are {self._data_names}"
            )
        label_shapes = label_shapes or None
        if label_shapes is not None:
            label_shapes = self._known_labels(label_shapes)
        shared_group = None
        if shared_module is not None:
            if shared_module.stage < Stage.INITIALIZED:
                raise StateError("bind: shared_module must be bound and initialized first")
            shared_group = shared_module.group
        saved = self._saved_params()
        self.for_training, self.inputs_need_grad, self._grad_req = for_training, inputs_need_grad, grad_req
        self._group = DataParallelExecutorGroup(
            self._symbol,
            self._context,
            self._workload,
            list(data_shapes),
            label_shapes,
            self._param_names,
            for_training,
            inputs_need_grad,
            shared_group,
            self.logger,
            self._fixed_param_names,
            grad_req,
            self._state_names,
            self._group2ctxs,
            self._run_options,
        )
        self._unbound = False
        if self._stage < Stage.BOUND:
            self._stage = Stage.BOUND
        if shared_module is not None:
            self._stage = max(self._stage, Stage.INITIALIZED)
            if shared_module.stage >= Stage.READY:
                self.borrow_optimizer(shared_module)
        elif saved is not None:
            self._group.set_params(*saved)
            self._stage = max(self._stage, Stage.INITIALIZED)

    def _saved_params(self) -> Any:
        """Return values that binding must carry over: present ones, or those a checkpoint brought."""
        if self._stage >= Stage.INITIALIZED:
            return self.group.store.average()
        return self._preloaded_if_complete()

    def _preloaded_if_complete(self) -> Any:
        if self._preloaded is None:
            return None
        have = {*self._preloaded[0], *self._preloaded[1]}
        wanted = {*self._param_names, *self._symbol.list_auxiliary_states()}
        return self._preloaded if have == wanted else None

    def rebind(
        self,
        contexts: Sequence[Context] | None,
        workload: Sequence[float] | None,
        data_shapes: Sequence[Any],
        label_shapes: Sequence[Any] | None,
    ) -> None:
        """Bind for training over other devices, keeping parameters and the optimizer's states.

        Args:
            contexts: the devices; None = as before.
            workload: share of each device; None = equal if devices are given, else as before.
            data_shapes: as in `bind`.
            label_shapes: as in `bind`.
        """
        wanted = self._context if contexts is None else contexts_of(contexts)
        if contexts is not None and workload is None and len(wanted) != len(self._workload or wanted):
            self._workload = None
        same = wanted == self._context and (workload is None or list(workload) == self._workload)
        if self._stage >= Stage.BOUND and same and self.for_training:
            return
        states = self._states_by_name()
        self._context = wanted
        if workload is not None:
            self._workload = list(workload)
        self.bind(data_shapes, label_shapes, True, self.inputs_need_grad, True, None, self._grad_req)
        self._install_again(states)

    # parameters

    @needs(Stage.INITIALIZED)
    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return copies of parameters and auxiliary states, averaged over devices, as CPU arrays.

        Parameters declared ``stype="row_sparse"`` come as row-sparse arrays; the devices' own are dense.
        """
        arg_params, aux_params = self.group.store.average()
        for name in self._row_sparse:
            arg_params[name] = arg_params[name].tostype("row_sparse")
        return {k: arg_params[k] for k in self._param_names}, {k: aux_params[k] for k in self.group.aux_names}

    def sync_contexts(self) -> None:
        """Give every context the mean of all contexts' parameters and states; `fit` does so after each epoch."""
        if len(self._context) > 1:
            self.group.store.load(*self.group.store.average())

    @needs(Stage.BOUND)
    def init_params(
        self,
        initializer: Any = Uniform(0.01),
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Give parameters and auxiliary states their first values.

        Args:
            initializer: called for every array that is not given.
            arg_params: values by parameter name.
            aux_params: values by state name.
            allow_missing: let the initializer fill in what is not given.
            force_init: initialize again although values exist.
            allow_extra: pass over names the module does not have even where they are refused: with `allow_missing`
                and no initializer, as ``set_params(..., allow_missing=True)`` calls this.

        Raises:
            ArgumentError: a value is missing, or unknown where that is refused.
            ShapeError: a value has another shape than its parameter.
        """
        if self._stage >= Stage.INITIALIZED and not force_init:
            if arg_params is not None or aux_params is not None:
                warnings.warn(
                    "init_params: parameters have values already, those given are ignored; pass force_init=True",
                    stacklevel=2,
                )
            return
        if arg_params is None and aux_params is None and self._preloaded is not None:
            arg_params, aux_params = self._preloaded
        self._preloaded = None
        store = self.group.store
        attributes = self._symbol.attr_dict()
        arrays = {name: store.array(name, 0) for name in self._param_names}
        states = {name: store.aux(name, 0) for name in self.group.aux_names}
        # MXNet passes over names that the module lacks, but for those of a set_params that need not name all
        passes = allow_extra or not allow_missing or initializer is not None
        store.load(
            first_values(arrays, arg_params, initializer, attributes, allow_missing, passes),
            first_values(states, aux_params, initializer, attributes, allow_missing, passes),
        )
        self._stage = max(self._stage, Stage.INITIALIZED)
