"""`Trainer`: applies an optimizer to parameters on one or several contexts."""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import optimizer as opt
from .._core import lazy
from .._files import write_atomically
from ..base import ArgumentError, StateError
from ..context import Context
from ..kvstore import KVStoreBase, create_kvstore
from ..ndarray import NDArray
from .parameter import Parameter, ParameterDict, ParameterError

if TYPE_CHECKING:
    from ..module.types import CompressionLike, KVStoreLike, OptimizerLike

__all__ = ["Trainer"]

lazy.publish(__name__, __all__)


class _StepError(StateError, UserWarning):
    """A step with a gradient older than the last one, or with another batch size; also a UserWarning, as in MXNet."""


class Trainer:
    """Applies an optimizer to parameters after `backward`, and keeps the contexts equal.

    Args:
        params: parameters, as a `ParameterDict`, a dict or a list.
        optimizer: name of an optimizer, or an `Optimizer`.
        optimizer_params: arguments of a named optimizer, such as ``{"learning_rate": 0.1}``.
        kvstore: store that sums the gradients of several contexts: a name, a store or None.
        compression_params: gradient compression of the store; None for none.
        update_on_kvstore: True if the optimizer runs in the store, False if on each context; None follows the store and
            the variable MXNET_UPDATE_ON_KVSTORE.

    Raises:
        ArgumentError: `params` does not hold parameters, or arguments contradict each other.

    Example:
        >>> weight = mx.gluon.Parameter("weight", shape=(2,))
        >>> weight.initialize(mx.init.One())
        >>> trainer = mx.gluon.Trainer([weight], "sgd", {"learning_rate": 0.5})
        >>> with mx.autograd.record():
        ...     loss = (weight.data() * 3).sum()
        >>> loss.backward()
        >>> trainer.step(batch_size=1)
        >>> weight.data().asnumpy()
        array([-0.5, -0.5], dtype=float32)

    Source: MXNet 1.9.1 `gluon.Trainer`.
    """

    def __init__(
        self,
        params: ParameterDict | Mapping[str, Parameter] | Sequence[Parameter],
        optimizer: OptimizerLike,
        optimizer_params: Mapping[str, Any] | None = None,
        kvstore: KVStoreLike = "device",
        compression_params: CompressionLike = None,
        update_on_kvstore: bool | None = None,
    ) -> None:
        if isinstance(params, (Mapping, ParameterDict)):
            params = [params[name] for name in sorted(params.keys())]
        if not isinstance(params, (list, tuple)):
            raise ArgumentError(f"First argument must be a list or dict of Parameters, got {type(params)}.")
        for param in params:
            if not isinstance(param, Parameter):
                raise ArgumentError(
                    f"First argument must be a list or dict of Parameters, got list of {type(param)}."
                )
        self._params = list(params)
        self._contexts = self._common_contexts()
        for param in self._params:
            param.set_trainer(self)
        self._optimizer = self._make_optimizer(optimizer, dict(optimizer_params or {}))
        self._updaters = [opt.get_updater(self._optimizer) for _ in self._contexts]
        self._scale: float = self._optimizer.rescale_grad
        self._compression_params = compression_params
        self._kvstore_params = kvstore, update_on_kvstore
        self._kvstore: KVStoreBase | None = None
        self._update_on_kvstore = False
        self._has_store = False  # the store is made with the first step
        self._waiting: list[int] = []  # parameters that are not in the store yet

    def _common_contexts(self) -> list[Context]:
        """Return the contexts of the parameters, which must be the same."""
        contexts: list[Context] | None = None
        for param in self._params:
            own = param.list_ctx()
            if contexts is not None and own != contexts:
                raise ParameterError(
                    "All Parameters must be initialized on the same set of contexts, but Parameter "
                    f"{param.name} is initialized on {own} while previous Parameters are initialized on {contexts}."
                )
            contexts = own
        return contexts or []

    def _make_optimizer(self, optimizer: Any, arguments: dict[str, Any]) -> opt.Optimizer:
        numbered = dict(enumerate(self._params))
        if isinstance(optimizer, opt.Optimizer):
            if arguments:
                raise ParameterError(
                    "optimizer_params must be None if optimizer is an instance of Optimizer instead of str"
                )
            optimizer.param_dict = numbered
            return optimizer
        return opt.create(optimizer, param_dict=numbered, **arguments)

    # the store

    def _init_kvstore(self) -> None:
        """Create the store if there is none, and put the parameters into it that have values by now."""
        if not self._has_store:
            kvstore, wanted = self._kvstore_params
            firsts = {param.name: param.data(self._contexts[0]) for param in self._params}
            store, on_store = create_kvstore(kvstore, len(self._contexts), firsts)
            if store is not None and wanted is not None:
                if wanted and not store.is_capable(KVStoreBase.OPTIMIZER):
                    raise ArgumentError(
                        f"Please set update_on_kvstore=False when training with {type(store).__name__}"
                    )
                on_store = wanted
            if store is not None and self._compression_params:
                store.set_gradient_compression(self._compression_params)
            if store is not None and on_store:
                store.set_optimizer(self._optimizer)
            self._kvstore, self._update_on_kvstore, self._has_store = store, on_store, True
            self._waiting = list(range(len(self._params)))
        if self._kvstore is not None:
            for i in self._waiting:
                arrays = self._params[i].list_data()
                self._kvstore.broadcast(i, arrays[0], arrays)
        self._waiting = []

    def note_written(self, param: Parameter) -> None:
        """Make the store take over a parameter that is written outside of `step`.

        Args:
            param: the parameter.
        """
        if self._has_store and self._update_on_kvstore:
            if "dist" in self._type:
                raise StateError("Cannot reset distributed KVStore.")
            self._has_store, self._kvstore = False, None

    @property
    def _type(self) -> str:
        return "" if self._kvstore is None else str(self._kvstore.type)

    # the optimizer

    @property
    def learning_rate(self) -> float:
        """The current learning rate."""
        return self._optimizer.learning_rate

    @property
    def optimizer(self) -> opt.Optimizer:
        """The optimizer."""
        return self._optimizer

    def set_learning_rate(self, lr: float) -> None:
        """Set the learning rate.

        Args:
            lr: the new learning rate.

        Raises:
            StateError: a schedule sets it; a UserWarning, too.
        """
        self._optimizer.set_learning_rate(lr)

    def _rescale(self, batch_size: float) -> None:
        scale = self._scale / batch_size
        if self._update_on_kvstore and "dist" in self._type and self._optimizer.rescale_grad != scale:
            raise _StepError(
                "Possible change in the `batch_size` from previous `step` detected. The optimizer runs in the store of "
                "all processes, whose factor of gradients does not change; pass the same batch_size, or "
                "update_on_kvstore=False"
            )
        self._optimizer.rescale_grad = scale

    # steps

    def step(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Sum the gradients over contexts, and update the parameters.

        Args:
            batch_size: number of samples, by which gradients are divided; 1 for a loss that is a mean.
            ignore_stale_grad: True to leave parameters whose gradient `backward` has not written since the last step;
                else they are an error.

        Raises:
            StateError: a gradient is stale; a UserWarning, too.
        """
        self._rescale(batch_size)
        self._init_kvstore()
        self._allreduce_grads()
        self._update(ignore_stale_grad)

    def allreduce_grads(self) -> None:
        """Sum the gradients over contexts, for a change of gradients before `update`.

        Raises:
            StateError: the optimizer runs in the store.
        """
        self._init_kvstore()
        self._check_outside("allreduce_grads")
        self._allreduce_grads()

    def update(self, batch_size: float, ignore_stale_grad: bool = False) -> None:
        """Update the parameters after `allreduce_grads`; arguments as for `step`.

        Args:
            batch_size: see `step`.
            ignore_stale_grad: see `step`.

        Raises:
            StateError: the optimizer runs in the store, or a gradient is stale.
        """
        self._init_kvstore()
        self._check_outside("update")
        self._rescale(batch_size)
        self._update(ignore_stale_grad)

    def _check_outside(self, what: str) -> None:
        if self._update_on_kvstore:
            raise StateError(
                f"{what}() when parameters are updated on kvstore is not supported. Try setting `update_on_kvstore` to "
                "False when creating trainer."
            )

    def _trained(self) -> Iterable[tuple[int, Parameter]]:
        return ((i, param) for i, param in enumerate(self._params) if param.grad_req != "null")

    def _allreduce_grads(self) -> None:
        """Sum the gradients over contexts; update the parameters if the optimizer runs in the store."""
        store = self._kvstore
        if store is None:
            return
        for i, param in self._trained():
            grads = param.list_grad()
            out = param.list_data() if self._update_on_kvstore else grads
            store.pushpull(i, grads, out=out, priority=-i)

    def _update(self, ignore_stale_grad: bool = False) -> None:
        """Check that gradients are fresh, and update the parameters unless the store has done so."""
        rows: list[list[tuple[int, NDArray, NDArray]]] = [[] for _ in self._updaters]
        for i, param in self._trained():
            arrays = param.list_data()
            stale = [] if ignore_stale_grad else [array for array in arrays if not array._fresh_grad]
            if stale:
                raise _StepError(
                    f"Gradient of Parameter `{param.name}` on context {stale[0].context} has not been updated by "
                    "backward since last `step`. This could mean a bug in your model that made it only use a subset of "
                    "the Parameters (Blocks) for this iteration. If you are intentionally only using a subset, call "
                    "step with ignore_stale_grad=True to suppress this warning and skip updating of Parameters with "
                    "stale gradient"
                )
            if self._update_on_kvstore:
                continue
            for row, array, grad in zip(rows, arrays, param.list_grad(), strict=True):
                if array._fresh_grad:
                    row.append((i, grad, array))
                    array._fresh_grad = False
        for updater, row in zip(self._updaters, rows, strict=True):
            if row:
                updater(*map(list, zip(*row, strict=True)))

    # states

    def save_states(self, fname: str | os.PathLike[str]) -> None:
        """Save the optimizer and its states to a file that MXNet 1.9.1 reads; replaced as a whole.

        Args:
            fname: path of the file.

        Raises:
            FileError: the file cannot be written.
        """
        self._init_kvstore()
        if self._kvstore is not None and self._update_on_kvstore:
            self._kvstore.save_optimizer_states(os.fspath(fname), dump_optimizer=True)
        else:
            write_atomically(fname, self._updaters[0].get_states(dump_optimizer=True))

    def load_states(self, fname: str | os.PathLike[str]) -> None:
        """Load the optimizer and its states from a file of `save_states`, here or in MXNet.

        Multipliers remain those of the parameters.

        Args:
            fname: path of the file; nothing in it is executed.

        Raises:
            FileError: the file cannot be read.
            FileFormatError: the file is damaged or has another format.
        """
        self._init_kvstore()
        store: Any = self._kvstore
        if store is not None and self._update_on_kvstore:
            store.load_optimizer_states(os.fspath(fname))
            self._optimizer = store.updater.optimizer
        else:
            for updater in self._updaters:
                updater.load_states(fname)
                updater.optimizer = self._updaters[0].optimizer
            self._optimizer = self._updaters[0].optimizer
        self._optimizer.param_dict = dict(enumerate(self._params))
