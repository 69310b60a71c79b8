"""The optimizer and the checkpoints of a module, whatever computes its gradients."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from .. import optimizer as opt
from ..base import StateError
from ..ndarray import NDArray
from .base_module import BaseModule
from .stage import Stage, needs
from .updates import Updates, make_optimizer, make_store

__all__ = ["TrainableModule"]


class TrainableModule(BaseModule):
    """A module whose parameters an optimizer updates, and which is saved and resumed with its states.

    Subclasses set the attributes below in their constructor and define `updated_group`.
    """

    _stage: Stage
    _optimizer: opt.Optimizer | None
    _updates: Updates | None
    _compression_params: Any
    _preloaded: tuple[Mapping[str, NDArray], Mapping[str, NDArray]] | None
    _preloaded_states: str | None

    @property
    def stage(self) -> Stage:
        """How far the module has come."""
        return self._stage

    def updated_group(self) -> Any:
        """Return what holds the parameters and gradients: an executor group, or what looks like one to `Updates`."""
        raise self._not_here()

    @property
    def optimizer(self) -> opt.Optimizer | None:
        """The optimizer, None before `init_optimizer`."""
        return self._optimizer

    @property
    def updates(self) -> Updates:
        """How gradients become new parameters.

        Raises:
            StateError: `init_optimizer` has not been called.
        """
        if self._updates is None:
            raise StateError(f"{type(self).__name__}: call init_optimizer() first")
        return self._updates

    @needs(Stage.INITIALIZED)
    def init_optimizer(
        self,
        kvstore: Any = "local",
        optimizer: Any = "sgd",
        optimizer_params: Any = (("learning_rate", 0.01),),
        force_init: bool = False,
    ) -> None:
        """Install an optimizer.

        Args:
            kvstore: "local" or "device" (sum gradients over devices; see `kvstore.create`), None (every device for
                itself), or a store.
            optimizer: name or `Optimizer`.
            optimizer_params: its arguments, a dict or pairs; rescale_grad is 1 / batch size unless given.
            force_init: replace an optimizer that is installed.

        Raises:
            ArgumentError: the optimizer or store is unknown.
        """
        if self._stage >= Stage.READY and not force_init:
            self.logger.warning("optimizer already initialized, ignoring...")
            return
        group = self.updated_group()
        store, on_store = make_store(kvstore, group, self._compression_params)
        self._optimizer = make_optimizer(optimizer, optimizer_params, group, on_store)
        self._updates = Updates(group, store, None if on_store else opt.get_updater(self._optimizer))
        self._updates.start()
        if store is not None and on_store:
            store.set_optimizer(self._optimizer)
        self._stage = Stage.READY
        if self._preloaded_states is not None:
            self.load_optimizer_states(self._preloaded_states)
            self._preloaded_states = None

    @needs(Stage.INITIALIZED)
    def borrow_optimizer(self, shared_module: TrainableModule) -> None:
        """Use the optimizer, its states and the store of another module.

        Raises:
            StateError: the other module has no optimizer.
        """
        if shared_module.stage < Stage.READY:
            raise StateError("borrow_optimizer: call init_optimizer() of the other module first")
        other = shared_module.updates
        self._optimizer = shared_module.optimizer
        self._updates = Updates(self.updated_group(), other.store, other.updater, other.parameters)
        self._stage = Stage.READY

    def _states_by_name(self) -> dict[str, Any] | None:
        """Return the optimizer's states by parameter name, None if none is installed."""
        return self.updates.states_by_name() if self._stage >= Stage.READY else None

    def _install_again(self, states: dict[str, Any] | None) -> None:
        """Install the same optimizer over new arrays, with the states that `_states_by_name` returned before."""
        if states is None or self._optimizer is None:
            return
        kind = self.updates.store.type if self.updates.store is not None else "local"
        self._stage = Stage.INITIALIZED
        self.init_optimizer(kind, self._optimizer)
        self.updates.restore_states(states)

    @needs(Stage.READY)
    def update(self) -> None:
        """Apply the optimizer to the gradients of the last backward, summed over devices."""
        self.updates.apply()

    def bad_gradient(self) -> str | None:
        """Return the name of a parameter whose gradient of the last backward is not finite, None if all are."""
        return None if self._updates is None else self._updates.bad_gradient(self._optimizer)

    # files

    def preload(
        self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray], states: str | None = None
    ) -> None:
        """Keep values for the time when the module is bound.

        Args:
            arg_params: parameters by name.
            aux_params: auxiliary states by name.
            states: file with the optimizer's states, read once the optimizer is installed.
        """
        self._preloaded = arg_params, aux_params
        self._preloaded_states = states

    @needs(Stage.INITIALIZED)
    def save_checkpoint(
        self, prefix: str, epoch: int, save_optimizer_states: bool = False, remove_amp_cast: bool = True
    ) -> None:
        """Write ``prefix-symbol.json``, ``prefix-NNNN.params`` and, if asked, ``prefix-NNNN.states``.

        The files switch together: a process killed at any moment leaves either the old set or the new one. A module
        without a symbol writes none.

        Args:
            prefix: path and first part of the file names.
            epoch: number of the epoch.
            save_optimizer_states: whether to write the optimizer's states.
            remove_amp_cast: leave `amp_cast` operators out of the graph.

        Raises:
            StateError: states are asked for, but there is no optimizer.
        """
        from ..checkpoint import save_checkpoint

        states = self._optimizer_states() if save_optimizer_states else None
        arg_params, aux_params = self.get_params()
        save_checkpoint(prefix, epoch, self._symbol, arg_params, aux_params, remove_amp_cast, states=states)
        self.logger.info('Saved checkpoint to "%s-%04d.params"', prefix, epoch)

    def _optimizer_states(self) -> bytes:
        if self._stage < Stage.READY:
            raise StateError(f"{type(self).__name__}.save_optimizer_states: call init_optimizer() first")
        return self.updates.active_updater().get_states(dump_optimizer=False)

    @needs(Stage.READY)
    def save_optimizer_states(self, fname: str) -> None:
        """Write the optimizer's states to a file, atomically."""
        from ..atomic import write_atomically

        write_atomically(fname, self._optimizer_states())

    @needs(Stage.READY)
    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file of this package or of MXNet; no code in it is run.

        Raises:
            FileError: the file cannot be read.
            FileFormatError: it is damaged or foreign.
        """
        self.updates.active_updater().load_states(fname)
