"""`CheckpointedModule`: base of modules with an optimizer, its updates and their files."""

from __future__ import annotations

import os
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
    """Base of modules that update their own parameters and write them and the optimizer's states to files.

    Args:
        symbol: written with the parameters, if given.

    Attributes:
        preloaded: parameters and auxiliary states to use when the module is bound, or None.
        preloaded_states: file with optimizer states to read when the optimizer is installed, or None.
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
        """The `Updates` that apply gradients to parameters."""
        if self._updates is None:
            raise StateError(f"{type(self).__name__}: call init_optimizer() first")
        return self._updates

    def _update_by(self, updates: Updates) -> None:
        """Set the `Updates` of the module."""
        self._updates = updates

    @override
    def all_updates(self) -> list[Updates]:
        return [self.updates]

    def preload(
        self, arg_params: Mapping[str, NDArray], aux_params: Mapping[str, NDArray], states: str | None = None
    ) -> None:
        """Keep values to use when the module is bound.

        Args:
            arg_params: parameters by name.
            aux_params: auxiliary states by name.
            states: file with optimizer states, read when the optimizer is installed.

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
        """Write ``prefix-symbol.json``, ``prefix-NNNN.params`` and optionally ``prefix-NNNN.states``.

        The files are replaced together: a killed process leaves either the old or the new set. A module without a
        symbol writes no symbol file. Tables that are spread over processes are saved in parts, which `load` reads in
        any number of processes; all processes must call this.

        Args:
            epoch: number of the epoch.
            format: "params" is MXNet's; "safetensors" writes ``prefix-NNNN.safetensors`` instead of the first two.
        """
        from ..checkpoint import save_checkpoint

        states = self._optimizer_states() if save_optimizer_states else None
        arg_params, aux_params = self._dense_params() if format == "safetensors" else self.live_params()
        save_checkpoint(
            prefix, epoch, self._symbol, arg_params, aux_params, remove_amp_cast, states=states, format=format
        )

    def live_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return the parameters like `get_params`, but tables that are spread over processes only when they are read.

        Such a table has the rows of that moment. All processes must read it at the same point.
        """
        return self.get_params()

    def _dense_params(self) -> tuple[dict[str, NDArray], dict[str, NDArray]]:
        """Return the arrays of `live_params`, converted to dense ones where this process has them."""
        arg_params, aux_params = self.live_params()
        dense = {
            name: array if hasattr(array, "source") else array.tostype("default")
            for name, array in arg_params.items()
        }
        return dense, aux_params

    def _optimizer_states(self) -> bytes:
        if self._stage < Stage.READY:
            raise StateError(f"{type(self).__name__}.save_optimizer_states: call init_optimizer() first")
        return self.updates.saved_states()

    @needs(Stage.READY)
    def save_optimizer_states(self, fname: str) -> None:
        """Write the optimizer's states to a file, atomically.

        Raises:
            StateError: states are spread over processes; `save_checkpoint` saves them in parts.
        """
        from .._files import write_atomically

        if spread := self.updates.spread_names():
            raise StateError(
                f"save_optimizer_states: the states of {', '.join(spread)} are spread over processes; call "
                "save_checkpoint(prefix, epoch, save_optimizer_states=True) in all of them"
            )
        write_atomically(fname, self._optimizer_states())

    @needs(Stage.READY)
    def load_optimizer_states(self, fname: str) -> None:
        """Read the optimizer's states from a file of this package or of MXNet, without executing code in it."""
        self.updates.active_updater().load_states(fname)
        self.updates.load_table_states(f"{os.fspath(fname).removesuffix('.states')}.tables")

    def load_preloaded_states(self) -> None:
        """Read the preloaded states for the newly installed optimizer, which keeps its settings."""
        path, self.preloaded_states = self.preloaded_states, None
        if path is None:
            return
        from .run_state import keep_settings  # few programs read files

        optimizer = self.updates.optimizer
        self.load_optimizer_states(path)
        keep_settings(self.updates, optimizer)
