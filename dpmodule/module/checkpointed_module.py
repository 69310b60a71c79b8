"""`CheckpointedModule`: what modules with an optimizer of their own have in common, its updates and their files."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING

from typing_extensions import override

from .. import optimizer as opt
from ..base import StateError
from ..ndarray import NDArray
from .base_module import BaseModule
from .lifecycle import Stage, needs
from .updates import Updates

if TYPE_CHECKING:
    from ..symbol import Symbol
    from .types import LoggerLike


class CheckpointedModule(BaseModule):
    """A module that updates its own parameters, and writes them and the optimizer's states to files.

    Args:
        symbol: written beside the parameters, if given.

    Attributes:
        preloaded: parameters and auxiliary states for the time when the module is bound, None if there are none.
        preloaded_states: file with the optimizer's states for the time when it is installed.
    """

    def __init__(self, logger: LoggerLike, symbol: Symbol | None) -> None:
        super().__init__(logger)
        self._symbol = symbol
        self._updates: Updates | None = None
        self.preloaded: tuple[Mapping[str, NDArray], Mapping[str, NDArray]] | None = None
        self.preloaded_states: str | None = None

    @property
    def optimizer(self) -> opt.Optimizer | None:
        """The optimizer, None before `init_optimizer`."""
        return None if self._updates is None else self._updates.optimizer

    @property
    def updates(self) -> Updates:
        """How gradients become new parameters."""
        if self._updates is None:
            raise StateError(f"{type(self).__name__}: call init_optimizer() first")
        return self._updates

    def _update_by(self, updates: Updates) -> None:
        """Update the parameters by these from now on."""
        self._updates = updates

    @override
    def all_updates(self) -> list[Updates]:
        return [self.updates]

    def preload(
        self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray], states: str | None = None
    ) -> None:
        """Keep values for the time when the module is bound.

        Args:
            arg_params: parameters by name.
            aux_params: auxiliary states by name.
            states: file with the optimizer's states, read once the optimizer is installed.

        Shape:
            arg_params[name], aux_params[name]: that of the parameter or state.
        """
        self.preloaded = arg_params, aux_params
        self.preloaded_states = states

    @needs(Stage.INITIALIZED)
    def save_checkpoint(
        self,
        prefix: str,
        epoch: int,
        save_optimizer_states: bool = False,
        remove_amp_cast: bool = True,
        format: str = "params",
    ) -> None:
        """Write ``prefix-symbol.json``, ``prefix-NNNN.params`` and, if asked, ``prefix-NNNN.states``.

        The files switch together: a process killed at any moment leaves either the old set or the new one. A module
        without a symbol writes none.

        Args:
            epoch: number of the epoch.
            format: "params" is MXNet's; "safetensors" writes ``prefix-NNNN.safetensors`` in place of the first two.
        """
        from ..checkpoint import params_file, save_checkpoint

        states = self._optimizer_states() if save_optimizer_states else None
        arg_params, aux_params = self._dense_params() if format == "safetensors" else self.get_params()
        save_checkpoint(
            prefix, epoch, self._symbol, arg_params, aux_params, remove_amp_cast, states=states, format=format
        )
        self.logger.info('Saved checkpoint to "%s"', params_file(prefix, epoch, format))

    def _dense_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return what `get_params` does, all of it dense."""
        arg_params, aux_params = self.get_params()
        return {name: array.tostype("default") for name, array in arg_params.items()}, aux_params

    def _optimizer_states(self) -> bytes:
        if self._stage < Stage.READY:
            raise StateError(f"{type(self).__name__}.save_optimizer_states: call init_optimizer() first")
        return self.updates.saved_states()

    @needs(Stage.READY)
    def save_optimizer_states(self, fname: str) -> None:
        """Write the optimizer's states to a file, atomically."""
        from .._files import write_atomically

        write_atomically(fname, self._optimizer_states())

    @needs(Stage.READY)
    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file of this package or of MXNet; no code in it is run."""
        self.updates.active_updater().load_states(fname)

    def load_preloaded_states(self) -> None:
        """Read the states for the optimizer that has just been installed, whose settings stay."""
        path, self.preloaded_states = self.preloaded_states, None
        if path is None:
            return
        from .run_state import keep_settings  # reads files, which few programs do

        own = self.updates.optimizer
        self.load_optimizer_states(path)
        keep_settings(self.updates, own)
