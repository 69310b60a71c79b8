"""`KeepingSaver`: an epoch callback that saves, and keeps only some of what was saved."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from .. import checkpoint as files
from .base import Callback
from .keep_rules import KeepRules

if TYPE_CHECKING:
    from ..ndarray import NDArray
    from ..symbol import Symbol
    from .base import RunLike


class KeepingSaver(Callback):
    """What `do_checkpoint` and `module_checkpoint` return if only some epochs' files are to be kept.

    Args:
        save: saves an epoch, as an epoch callback of MXNet's kind.
        period: number of epochs between two that are saved.
    """

    def __init__(
        self,
        what: str,
        save: Callable[..., Any],
        prefix: str,
        period: int,
        keep: tuple[int | None, int | None, str | None, str],
    ) -> None:
        self._save = save
        self._prefix = os.fspath(prefix)
        self._period = period
        self._rules = KeepRules(what, *keep)

    def __call__(
        self,
        epoch: int,
        symbol: Symbol | None = None,
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
    ) -> None:
        """Save an epoch, and remove what is not to be kept; a loop of one's own calls it so.

        Args:
            epoch: number of the epoch, from 0.
        """
        self._save(epoch, symbol, arg_params, aux_params)
        if (epoch + 1) % self._period == 0:
            self._rules.tidy(self._prefix, files.epochs(self._prefix), epoch + 1)

    def on_fit_begin(self, run: RunLike) -> None:
        self._rules.check(run)

    def on_epoch_end(self, run: RunLike) -> None:
        if (run.epoch + 1) % self._period == 0:
            self._rules.note(run)
            self(run.epoch, run.module.symbol, *run.module.get_params())

    def state_dict(self) -> dict[str, Any]:
        """Return what is to be saved with a run."""
        return {"values": dict(self._rules.values)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned."""
        self._rules.values = dict(state["values"])
