"""`CollectionModule`: a module over the parameters of an autobatch collection; all but running it."""

from __future__ import annotations

import inspect
from collections.abc import Mapping, Sequence
from typing import Any

from ..autobatch.collection import ParameterCollection
from ..base import ArgumentError, StateError
from ..context import Context
from ..initializer import Uniform
from ..ndarray import NDArray
from .autobatch_run import batch_axis
from .autobatch_store import CollectionStore
from .base_module import BaseModule
from .by_hand import names_of
from .first_values import first_values
from .group_contexts import contexts_of, distinct
from .stage import Stage, needs
from .trainable import TrainableModule
from .updates import check_compression

__all__ = ["CollectionModule"]

_NOT_GIVEN = Uniform(0.01)


class CollectionModule(TrainableModule):
    """Binding, parameters, checkpoints and the optimizer of `AutobatchModule`; see there for the arguments.

    Attributes:
        collection: the parameters.
    """

    def __init__(
        self,
        params: Any,
        data_names: Sequence[str],
        label_names: Sequence[str] | None,
        logger: Any,
        context: Any,
        work_load_list: Sequence[float] | None,
        fixed_param_names: Sequence[str] | None,
        symbol: Any,
        compression_params: Any,
    ) -> None:
        super().__init__(logger)
        check_compression(compression_params)
        collection = getattr(params, "collection", params)
        if not isinstance(collection, ParameterCollection):
            raise ArgumentError(
                f"AutobatchModule: params is {type(params).__name__}, expected a ParameterCollection"
            )
        self.collection = collection
        self._data_names = names_of(data_names, "data_names")
        self._label_names = names_of(label_names, "label_names")
        self._context = distinct(contexts_of(context))
        self._workload = list(work_load_list or [1.0] * len(self._context))
        self._fixed = names_of(fixed_param_names, "fixed_param_names")
        self._symbol = symbol
        self._held: CollectionStore | None = None
        self._shapes: tuple[Any, Any] = (None, None)
        self._grad_req = "write"
        self._stage = Stage.CREATED
        self._compression_params = compression_params
        self._preloaded, self._preloaded_states = None, None
        self._optimizer, self._updates = None, None

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
    def data_shapes(self) -> Any:
        """Descriptions of the inputs, as they were bound."""
        return self._shapes[0]

    @property
    def label_shapes(self) -> Any:
        """Descriptions of the labels, as they were bound."""
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
            data_shapes: (name, shape) or `DataDesc` of every input; only the axis of the examples of the first one
                counts, their number in a batch, by which gradients are divided.
            label_shapes: the same for labels.
            for_training: whether gradients are needed.
            inputs_need_grad: must be False: examples are no arrays.
            force_rebind: bind again although the module is bound.
            shared_module: another module over the same collection, whose copies and optimizer this one uses.
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
            if getattr(shared_module, "collection", None) is not self.collection:
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
        self._stage = max(self._stage, Stage.BOUND)
        if shared_module is not None and shared_module.params_initialized:
            self._stage = max(self._stage, Stage.INITIALIZED)
            if shared_module.optimizer_initialized:
                self.borrow_optimizer(shared_module)

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
        states = self._states_by_name()
        self.bind(data_shapes, label_shapes, True, False, True, None, self._grad_req)
        self._install_again(states)

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
            first_values(arrays, arg_params, drawn, held.attributes, allow_missing, allow_extra),
            first_values(states, aux_params, drawn, held.attributes, allow_missing, allow_extra),
        )
        self._stage = max(self._stage, Stage.INITIALIZED)

    @needs(Stage.BOUND)
    def get_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return copies of parameters and states, averaged over devices, as CPU arrays."""
        return self.held.store.average()

    def sync_contexts(self) -> None:
        """Give every context the mean of all contexts' parameters and states; `fit` does so after each epoch."""
        if self._held is not None and len(self._held.contexts) > 1:
            self._held.store.load(*self._held.store.average())

    # optimizer

    def updated_group(self) -> Any:
        """Return the parameters and gradients as `Updates` takes them."""
        return self.held.group(self._symbol, self._batch_size())

    def _batch_size(self) -> int:
        described = [each for each in self._shapes[0] or () if each[1]]
        if not described:
            return 1
        return int(described[0][1][batch_axis(described[0])])


def _defaults() -> tuple[Any, ...]:
    """Return the initializers that `fit` and `set_params` pass when the user gives none."""
    names = (BaseModule.fit, BaseModule.init_params)
    return (None, *(inspect.signature(each).parameters["initializer"].default for each in names))
