"""`EMA`: a moving average of the parameters."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch

from ..base import ArgumentError
from ..context import cpu
from ..ndarray import NDArray
from .base import Callback

if TYPE_CHECKING:
    from .base import RunLike


class EMA(Callback):
    """Keep an exponential moving average of the parameters, which often predicts better than the last parameters.

    After every update ``average = decay * average + (1 - decay) * parameters``, starting with the parameters of the
    first update. Auxiliary states are not averaged.

    Args:
        decay: share of the old average that stays, from 0 to below 1.
        every_n_batches: number of batches between two steps of the average; batches without an update, as with
            `accumulate`, are skipped.
        use: set the module's parameters to the average at the end of training.

    Raises:
        ArgumentError: `decay` or `every_n_batches` is out of range.

    Example:
        >>> average = mx.callback.EMA(0.99)

    Source: Polyak and Juditsky, "Acceleration of stochastic approximation by averaging", 1992; as torch's
    `torch.optim.swa_utils.AveragedModel` with `get_ema_multi_avg_fn`.
    """

    def __init__(self, decay: float = 0.999, every_n_batches: int = 1, use: bool = True) -> None:
        if not 0 <= decay < 1:
            raise ArgumentError(f"EMA: decay is {decay!r}, expected a number from 0 to below 1")
        if every_n_batches < 1:
            raise ArgumentError(f"EMA: every_n_batches is {every_n_batches}, expected at least 1")
        self._decay = decay
        self._every = every_n_batches
        self._use = use
        self._averages: dict[str, torch.Tensor] = {}
        self._updates = 0

    @torch.no_grad()
    def on_batch_end(self, run: RunLike) -> None:
        if run.num_batches % self._every or run.num_updates == self._updates:
            return
        self._updates = run.num_updates
        params, _ = run.module.get_params()
        values = {name: array.raw for name, array in params.items() if array.raw.is_floating_point()}
        if not self._averages:
            self._averages = {name: value.clone() for name, value in values.items()}
            return
        targets = [self._averages[name] for name in values]
        torch._foreach_lerp_(targets, list(values.values()), 1 - self._decay)

    @property
    def arg_params(self) -> dict[str, NDArray]:
        """The averages by the name of the parameter; empty before the first update."""
        return {name: NDArray(value.clone(), cpu()) for name, value in self._averages.items()}

    def on_fit_end(self, run: RunLike) -> None:
        if self._use and self._averages:
            params, states = run.module.get_params()
            run.module.set_params({**params, **self.arg_params}, states)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that is saved with a run."""
        return {"averages": self.arg_params, "updates": self._updates}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state.

        Args:
            state: result of `state_dict`, possibly of another process.
        """
        self._averages = {name: array.raw.clone() for name, array in state["averages"].items()}
        self._updates = state["updates"]
