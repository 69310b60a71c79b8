"""The optimizer of a module: installing and applying it, its states in files."""

from __future__ import annotations

from typing import Any

from .. import optimizer as opt
from ..base import StateError
from .computing import GroupModule
from .stage import Stage, needs
from .updates import Updates, make_optimizer, make_store
from .workers import run_between

__all__ = ["OptimizedModule"]


class OptimizedModule(GroupModule):
    """A module whose parameters an optimizer updates."""

    _optimizer: opt.Optimizer | None
    _compression_params: Any

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
            raise StateError("Module: call init_optimizer() first")
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
        store, on_store = make_store(kvstore, self.group, self._compression_params)
        self._optimizer = make_optimizer(optimizer, optimizer_params, self.group, on_store)
        self._updates = Updates(self.group, store, None if on_store else opt.get_updater(self._optimizer))
        self._updates.start()
        if store is not None and on_store:
            store.set_optimizer(self._optimizer)
        self._stage = Stage.READY
        if self._preloaded_states is not None:
            self.load_optimizer_states(self._preloaded_states)
            self._preloaded_states = None

    @needs(Stage.INITIALIZED)
    def borrow_optimizer(self, shared_module: OptimizedModule) -> None:
        """Use the optimizer, its states and the store of another module.

        Raises:
            StateError: the other module has no optimizer.
        """
        if shared_module.stage < Stage.READY:
            raise StateError("borrow_optimizer: call init_optimizer() of the other module first")
        other = shared_module.updates
        self._optimizer = shared_module.optimizer
        self._updates = Updates(self.group, other.store, other.updater, other.parameters)
        self._stage = Stage.READY

    @needs(Stage.READY)
    def update(self) -> None:
        """Apply the optimizer to the gradients of the last backward, summed over devices."""
        if self._updates is not None:
            run_between(self.group.active_contexts, self._updates.apply)

    # states in files

    def _optimizer_states(self) -> bytes:
        if self._stage < Stage.READY:
            raise StateError("Module.save_optimizer_states: call init_optimizer() first")
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
