"""`AutobatchModule`: a program for one example with the interface of a module."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from .. import optimizer as opt
from ..autobatch.collection import ParameterCollection
from ..base import ArgumentError, StateError
from ..context import Context
from ..initializer import Uniform
from ..ndarray import NDArray
from ..slicing import split_batch
from .autobatch_run import Ran, array_of_labels, columns_of, merged, run_examples
from .autobatch_store import CollectionStore, on_context
from .base_module import BaseModule
from .first_values import first_values
from .group_contexts import contexts_of, distinct
from .stage import Stage, needs
from .updates import Updates, make_optimizer, make_store

__all__ = ["AutobatchModule"]

_NOT_GIVEN = Uniform(0.01)


class AutobatchModule(BaseModule):
    """Trains and runs a function that is written for one example.

    For every batch, `function` is called once for each example, in one graph, which `dpmodule.autobatch` computes in
    batches of its own finding; examples need not be alike. It is called with the example's data, in the order of
    `data_names`, and then its labels, in the order of `label_names` (None in place of labels that a batch does not
    have), and returns expressions:

    * the loss; or
    * a tuple ``(loss, output, ...)``. The loss may be None where no gradient is wanted, or if the outputs are loss
      heads of cells, such as SoftmaxOutput, which need none.

    The losses of all examples are added up. Outputs are shown to metrics: of equal shapes, they are stacked along a new
    first axis; else joined along their first one, as labels then are. Without outputs, the loss is the output.

    Data come as a batch holds them: ``batch.data[k]`` is an array, of which the function gets rows as NumPy arrays, or
    a list of any Python objects, as `ExampleIter` gives.

    The parameters are those of the collection, the same memory on the first context; further contexts have copies, whose
    gradients a kvstore adds up. They have values from the beginning: `init_params`, and `fit`, draw new ones only with
    an initializer that is given. In files a parameter "/encoder/W" is called "encoder_W", and those of cells have the
    names of the symbol's arguments, so that `Module` serves what has been trained here. A forward in training mode
    computes the gradients as well. Running begins a new graph, `renew_cg`; `autobatch.explain()` shows it afterwards.

    Args:
        function: the program for one example.
        params: the parameters, a `ParameterCollection`, or what has one as ``collection``, such as a cell.
        data_names: names of the inputs.
        label_names: names of the labels; None for none.
        logger: where progress is logged.
        context: a device or a list of them.
        work_load_list: share of the batch for each device; None = equal.
        fixed_param_names: parameters that are not trained.
        output_names: names of the outputs; more are made by numbers.
        symbol: written to checkpoints beside the parameters, if given.
        autobatch: whether examples are computed together; off to look for errors.

    Raises:
        ArgumentError: an argument does not fit.

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
        >>> mod.fit(train, num_epoch=30, optimizer="adam", optimizer_params={"learning_rate": 0.1})
        >>> mod.score(train, "acc")
        [('accuracy', 1.0)]
    """

    def __init__(
        self,
        function: Callable[..., Any],
        params: Any,
        data_names: Sequence[str] = ("data",),
        label_names: Sequence[str] | None = ("softmax_label",),
        logger: Any = logging,
        context: Any = None,
        work_load_list: Sequence[float] | None = None,
        fixed_param_names: Sequence[str] | None = None,
        *,
        output_names: Sequence[str] = ("output",),
        symbol: Any = None,
        autobatch: bool = True,
    ) -> None:
        super().__init__(logger)
        collection = getattr(params, "collection", params)
        if not isinstance(collection, ParameterCollection):
            raise ArgumentError(
                f"AutobatchModule: params is {type(params).__name__}, expected a ParameterCollection"
            )
        if not callable(function):
            raise ArgumentError(
                f"AutobatchModule: function is {type(function).__name__}, expected a function"
            )
        self.function, self.collection = function, collection
        self._data_names, self._label_names = list(data_names), list(label_names or ())
        self._context = distinct(contexts_of(context))
        self._workload = list(work_load_list or [1.0] * len(self._context))
        self._fixed = list(fixed_param_names or ())
        self._output_names = list(output_names)
        self._symbol, self._autobatch = symbol, autobatch
        self._held: CollectionStore | None = None
        self._shapes: tuple[Any, Any] = (None, None)
        self._grad_req = "write"
        self._preloaded: tuple[Mapping[str, NDArray], Mapping[str, NDArray]] | None = None
        self._optimizer: opt.Optimizer | None = None
        self._updates: Updates | None = None
        self._ran: list[Ran | None] = []
        self._has_gradients = False

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
        """Names of the outputs, as many as the function has returned last."""
        count = max(
            (len(ran.outputs) for ran in self._ran if ran is not None), default=len(self._output_names)
        )
        more = [f"output{i}" for i in range(len(self._output_names), count)]
        return [*self._output_names, *more][:count]

    @property
    def data_shapes(self) -> Any:
        """Descriptions of the inputs, as they were bound."""
        return self._shapes[0]

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels, as they were bound."""
        return self._shapes[1]

    @property
    def output_shapes(self) -> list[tuple[str, tuple[int, ...]]]:
        """(name, shape) of the outputs of the last forward; they may change from batch to batch."""
        return [(name, output.shape) for name, output in zip(self.output_names, self.get_outputs())]

    @property
    def optimizer(self) -> opt.Optimizer | None:
        """The optimizer, None before `init_optimizer`."""
        return self._optimizer

    @property
    def held(self) -> CollectionStore:
        """The parameters on all contexts.

        Raises:
            StateError: `bind` has not been called.
        """
        if self._held is None:
            raise StateError("AutobatchModule: call bind(data_shapes=..., label_shapes=...) first")
        return self._held

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
        """Take the collection's parameters, and copy them to further contexts.

        Args:
            data_shapes: (name, shape) or `DataDesc` of every input; only the first axis of the first one counts, the
                number of examples in a batch, by which gradients are divided.
            label_shapes: the same for labels.
            for_training: whether gradients are needed.
            inputs_need_grad: must be False: examples are no arrays.
            force_rebind: bind again although the module is bound.
            shared_module: another module over the same collection, whose copies this one uses.
            grad_req: "write" or "add".

        Raises:
            ArgumentError: an argument is none of these, or the collection is empty.
        """
        if self.binded and not force_rebind:
            self.logger.warning("Already bound, ignoring bind()")
            return
        if inputs_need_grad:
            raise ArgumentError("bind: inputs_need_grad: the inputs of an AutobatchModule have no gradients")
        if grad_req not in ("write", "add"):
            raise ArgumentError(f'bind: grad_req is {grad_req!r}, an AutobatchModule takes "write" or "add"')
        if len(self._workload) != len(self._context):
            raise ArgumentError(
                f"work_load_list has {len(self._workload)} entries for {len(self._context)} contexts"
            )
        if shared_module is not None:
            if shared_module.collection is not self.collection:
                raise ArgumentError("bind: shared_module has another collection; make both modules over one")
            self._held = shared_module.held
        else:
            self.sync_contexts()
            self._held = CollectionStore(self.collection, self._context, self._fixed)
        if not self.held.parameters:
            raise ArgumentError(
                "bind: the collection has no parameters yet; a cell makes its own at the first call, or at once with"
                " cell(symbol, params, shapes={input: shape of one example})"
            )
        self.for_training, self._grad_req = for_training, grad_req
        self._shapes = list(data_shapes), list(label_shapes or ()) or None
        self.binded = True
        if shared_module is not None and shared_module.params_initialized:
            self.params_initialized = True

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
        self.sync_contexts()
        if contexts is not None:
            self._context = distinct(contexts_of(contexts))
            self._workload = [1.0] * len(self._context)
        if workload is not None:
            self._workload = list(workload)
        states = self._updates.states_by_name() if self._updates is not None else None
        self.bind(data_shapes, label_shapes, True, False, True, None, self._grad_req)
        if states is not None and self._optimizer is not None and self._updates is not None:
            kind = self._updates.store.type if self._updates.store is not None else "local"
            self.init_optimizer(kind, self._optimizer, force_init=True)
            self._updates.restore_states(states)

    # parameters

    @needs(Stage.BOUND)
    def init_params(
        self,
        initializer: Any = _NOT_GIVEN,
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
        allow_missing: bool = False,
        force_init: bool = False,
        allow_extra: bool = False,
    ) -> None:
        """Set parameters and states, or draw new first values.

        Args:
            initializer: called for every array that is not given; without one, values stay as the collection has them.
            arg_params: values by parameter name.
            aux_params: values by state name.
            allow_missing: leave, or initialize, what is not given.
            force_init: set again.
            allow_extra: pass over names that there are not.

        Raises:
            ArgumentError: a value is missing, or unknown.
            ShapeError: a value has another shape than its parameter.
        """
        if self.params_initialized and not force_init:
            return
        if arg_params is None and aux_params is None and self._preloaded is not None:
            arg_params, aux_params = self._preloaded
        self._preloaded = None
        held = self.held
        drawn = None if any(initializer is each for each in (_NOT_GIVEN, *_defaults())) else initializer
        arrays = {name: held.store.array(name, 0) for name in held.parameters}
        states = {name: held.store.aux(name, 0) for name in held.states}
        held.store.load(
            first_values(arrays, arg_params, drawn, {}, allow_missing, allow_extra),
            first_values(states, aux_params, drawn, {}, allow_missing, allow_extra),
        )
        self.params_initialized = True

    @needs(Stage.BOUND)
    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return copies of parameters and states, averaged over devices, as CPU arrays."""
        return self.held.store.average()

    def sync_contexts(self) -> None:
        """Give every context the mean of all contexts' parameters and states; `fit` does so after each epoch."""
        if self._held is not None and len(self._held.contexts) > 1:
            self._held.store.load(*self._held.store.average())

    # checkpoints

    @staticmethod
    def load(
        prefix: str, epoch: int, function: Callable[..., Any], params: Any, **kwargs: Any
    ) -> AutobatchModule:
        """Make a module whose parameters start from a checkpoint, of this class or of `Module`.

        Args:
            prefix: path and first part of the file names.
            epoch: number of the epoch.
            function: as for the constructor.
            params: as for the constructor; the file has a value for each of them.
            kwargs: further arguments of the constructor.
        """
        from ..checkpoint import load_params

        module = AutobatchModule(function, params, **kwargs)
        module._preloaded = load_params(prefix, epoch)
        return module

    @needs(Stage.INITIALIZED)
    def save_checkpoint(self, prefix: str, epoch: int, save_optimizer_states: bool = False) -> None:
        """Write ``prefix-NNNN.params``, ``prefix-symbol.json`` if the module has a symbol, and the states if asked.

        Args:
            prefix: path and first part of the file names.
            epoch: number of the epoch.
            save_optimizer_states: whether to write ``prefix-NNNN.states``.

        Raises:
            StateError: states are asked for, but there is no optimizer.
        """
        from ..checkpoint import save_checkpoint

        states = (
            self.updates.active_updater().get_states(dump_optimizer=False) if save_optimizer_states else None
        )
        save_checkpoint(prefix, epoch, self._symbol, *self.get_params(), states=states)

    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file; see `Module.load_optimizer_states`."""
        self.updates.active_updater().load_states(fname)

    # optimizer

    @property
    def updates(self) -> Updates:
        """How gradients become new parameters.

        Raises:
            StateError: `init_optimizer` has not been called.
        """
        if self._updates is None:
            raise StateError("AutobatchModule: call init_optimizer() first")
        return self._updates

    @needs(Stage.INITIALIZED)
    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Install an optimizer; see `Module.init_optimizer`."""
        if self.optimizer_initialized and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        group = self.held.group(self._symbol, self._batch_size())
        store, on_store = make_store(kvstore, group)
        self._optimizer = make_optimizer(optimizer, optimizer_params, group, on_store)
        self._updates = Updates(group, store, None if on_store else opt.get_updater(self._optimizer))
        self._updates.start()
        if store is not None and on_store:
            store.set_optimizer(self._optimizer)
        self.optimizer_initialized = True

    def _batch_size(self) -> int:
        described = [each[1] for each in self._shapes[0] or () if each[1]]
        return int(described[0][0]) if described else 1

    @needs(Stage.READY)
    def update(self) -> None:
        """Apply the optimizer to the gradients of the last backward, summed over devices."""
        self.updates.apply()

    # computing

    @needs(Stage.INITIALIZED)
    def forward(self, data_batch: Any, is_train: bool | None = None) -> None:
        """Build the graphs of a batch, one on every context, and compute them; in training, the gradients as well.

        Args:
            data_batch: a `DataBatch`; see the class for what it holds.
            is_train: None = as the module was bound.

        Raises:
            ArgumentError: columns differ in length, or the function returned something else than expressions.
        """
        is_train = self.for_training if is_train is None else bool(is_train)
        rows = columns_of(data_batch, len(self._data_names), len(self._label_names))
        held, self._ran = self.held, []
        for i, part in enumerate(split_batch(len(rows), self._workload)):
            if part.start == part.stop:
                self._ran.append(None)
                if is_train and self._grad_req == "write":
                    held.no_gradients(i)
                continue
            with on_context(self._context[i]), held.placed(i):
                held.clear()
                self._ran.append(run_examples(self.function, rows[part], is_train, self._autobatch))
                if is_train:
                    held.take_gradients(i, self._grad_req == "add")
        self._has_gradients = is_train

    @needs(Stage.INITIALIZED)
    def backward(self, out_grads: Any = None) -> None:
        """Do nothing: `forward` in training mode has computed the gradients.

        Raises:
            ArgumentError: `out_grads` is given; the function returns its own loss.
            StateError: the last forward was none in training mode.
        """
        if out_grads is not None:
            raise ArgumentError("backward: out_grads has no place here; the function returns its own loss")
        if not self._has_gradients:
            raise StateError("AutobatchModule.backward: call forward(batch, is_train=True) first")

    def _parts(self) -> list[Ran]:
        found = [ran for ran in self._ran if ran is not None]
        if not found:
            raise StateError("AutobatchModule: call forward() first")
        return found

    def get_outputs(self, merge_multi_context: bool = True) -> list[Any]:
        """Return the outputs of the last forward; per device if `merge_multi_context` is off."""
        parts = self._parts()
        if not merge_multi_context:
            return [[merged(part.outputs[k]) for part in parts] for k in range(len(parts[0].outputs))]
        return [merged(column) for column in _joined(parts)]

    @needs(Stage.BOUND)
    def update_metric(self, eval_metric: Any, labels: Any, pre_sliced: bool = False, pad: int = 0) -> None:
        """Show a metric the outputs of the last forward.

        Args:
            eval_metric: the metric.
            labels: the batch's labels.
            pre_sliced: must be False.
            pad: how many examples at the end are padding that must not count.

        Raises:
            ArgumentError: labels are given per device.
        """
        if pre_sliced:
            raise ArgumentError("update_metric: pre_sliced: labels are given for the whole batch here")
        columns = [column[: len(column) - pad] for column in _joined(self._parts())]
        outputs = dict(zip(self.output_names, map(merged, columns)))
        count = len(columns[0]) if columns else 0
        given = {name: array_of_labels(label, count) for name, label in zip(self._label_names, labels or ())}
        eval_metric.update_dict(given, outputs)

    def install_monitor(self, mon: Any) -> None:
        """Refuse: there are no executors.

        Raises:
            ArgumentError: always; `autobatch.explain()` shows what has been run.
        """
        raise ArgumentError("install_monitor: an AutobatchModule has no executors; see autobatch.explain()")


def _joined(parts: Sequence[Ran]) -> list[list[Any]]:
    """Return, for every output, the tensors of all examples."""
    return [[each for part in parts for each in part.outputs[k]] for k in range(len(parts[0].outputs))]


def _defaults() -> tuple[Any, ...]:
    """Return the initializers that `fit` and `set_params` pass when the user gives none."""
    import inspect

    names = (BaseModule.fit, BaseModule.init_params)
    return (None, *(inspect.signature(each).parameters["initializer"].default for each in names))
