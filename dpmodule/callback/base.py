"""`Callback` and `BatchEndParam`: what is told to whoever listens to `fit`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

CallbackLike: TypeAlias = "Callback | Callable[..., Any] | Sequence[Callback | Callable[..., Any]] | None"
"""What is told how training goes: one, several, or none."""


class BatchEndParam(NamedTuple):
    """What a batch callback gets.

    Attributes:
        epoch: number of the epoch, from 0.
        nbatch: number of the batch in the epoch, from 0.
        eval_metric: the EvalMetric being kept, or None.
        locals: local variables of the loop that calls.

    Source: MXNet 1.9.1 `model.BatchEndParam`.
    """

    epoch: int
    nbatch: int
    eval_metric: Any
    locals: Any


class RunLike(Protocol):
    """A call of `fit`, as those see it who are told of it: a `TrainingRun`."""

    @property
    def module(self) -> Any:
        """What is trained."""

    @property
    def epoch(self) -> int:
        """Number of the epoch, from 0."""

    @property
    def nbatch(self) -> int:
        """How many of its batches have been trained on."""

    @property
    def num_batches(self) -> int:
        """How many batches have been trained on in all epochs."""

    @property
    def num_updates(self) -> int:
        """How often the parameters have been updated."""

    @property
    def metric(self) -> Any:
        """The metric of training."""

    @property
    def history(self) -> Any:
        """What was measured, a `History`."""

    def check_measured(self, name: str) -> None:
        """Refuse the name of a metric that no epoch will measure."""

    def state_dict(self, over: bool = False) -> dict[str, Any]:
        """Return what the run needs to go on."""

    def stop(self, why: str) -> None:
        """End training when the batch, or what follows the epoch, is over."""


class Callback:
    """What `fit` tells where it stands; a base for classes that override some of this.

    Each method is given the run, whose public attributes say what is trained (`module`), where it stands (`epoch`,
    `nbatch`, `num_batches`), and what was measured (`metric`, `history`); `run.stop(why)` ends it.

    Example:
        >>> class Names(mx.callback.Callback):
        ...     def on_epoch_end(self, run):
        ...         print(run.epoch, run.history.names)
    """

    saves_runs = False
    """Whether this is a `Checkpoint`, which `fit` asks when to save."""

    def on_fit_begin(self, run: RunLike) -> None:
        """Hear that training begins; what was saved with a run is loaded afterwards.

        Args:
            run: the training, with `module`, `history` and the counts of batches and updates.
        """

    def on_batch_end(self, run: RunLike) -> bool | None:
        """Hear that a batch has been trained on; True ends training.

        Args:
            run: the training, with `module`, `history` and the counts of batches and updates; `run.nbatch` is
                that of this epoch.
        """

    def on_epoch_end(self, run: RunLike) -> bool | None:
        """Hear that an epoch is over and evaluated; True ends training.

        Args:
            run: the training; the last row of `run.history` is that of this epoch.
        """

    def has_ended(self) -> bool:
        """Say, of a run that goes on, whether this had ended it already; then nothing more is trained."""
        return False

    def on_fit_end(self, run: RunLike) -> None:
        """Hear that training is over, but for errors.

        Args:
            run: the training, with `module`, `history` and the counts of batches and updates.
        """


def as_list(callbacks: CallbackLike) -> list[Callable[..., Any]]:
    """Return callbacks as a list: none, one, or several."""
    if callbacks is None:
        return []
    found: list[Any] = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    return found
