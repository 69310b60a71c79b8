"""`Callback` and `BatchEndParam`: the interface between `fit` and its callbacks."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol, TypeAlias

from ..base import ArgumentError

CallbackLike: TypeAlias = "Callback | Callable[..., Any] | Sequence[Callback | Callable[..., Any]] | None"
"""One callback, several callbacks, or None."""


class BatchEndParam(NamedTuple):
    """Argument of a batch callback.

    Attributes:
        epoch: number of the epoch, from 0.
        nbatch: number of the batch in the epoch, from 0.
        eval_metric: the EvalMetric of the epoch, or None.
        locals: local variables of the calling loop.

    Source: MXNet 1.9.1 `model.BatchEndParam`.
    """

    epoch: int
    nbatch: int
    eval_metric: Any
    locals: Any


class RunLike(Protocol):
    """The public interface of a run of `fit` for callbacks; `TrainingRun` implements it."""

    @property
    def module(self) -> Any:
        """The module that is trained."""

    @property
    def epoch(self) -> int:
        """Number of the epoch, from 0."""

    @property
    def nbatch(self) -> int:
        """Number of batches of this epoch so far."""

    @property
    def num_batches(self) -> int:
        """Number of batches of all epochs so far."""

    @property
    def num_updates(self) -> int:
        """Number of updates of the parameters so far."""

    @property
    def metric(self) -> Any:
        """The metric of training."""

    @property
    def history(self) -> Any:
        """The `History` of measured metrics."""

    def check_measured(self, name: str) -> None:
        """Raise ArgumentError for the name of a metric that no epoch will measure."""

    def state_dict(self, over: bool = False) -> dict[str, Any]:
        """Return the state to resume the run from."""

    def stop(self, why: str) -> None:
        """Stop training after the current batch, or after the steps that follow the epoch."""


class Callback:
    """Base class of callbacks; a subclass overrides some of the methods.

    Each method takes the run, with the public attributes `module`, `epoch`, `nbatch`, `num_batches`, `metric` and
    `history`; `run.stop(why)` stops it.

    Example:
        >>> class Names(mx.callback.Callback):
        ...     def on_epoch_end(self, run):
        ...         print(run.epoch, run.history.names)
    """

    saves_runs = False
    """True for a `Checkpoint`, which decides when `fit` saves."""

    def on_fit_begin(self, run: RunLike) -> None:
        """Called when training begins, before the state of a resumed run is loaded.

        Args:
            run: the run, with `module`, `history` and the counts of batches and updates.
        """

    def on_batch_end(self, run: RunLike) -> bool | None:
        """Called after a batch; return True to stop training.

        Args:
            run: the run, with `module`, `history` and the counts of batches and updates.
        """

    def on_epoch_end(self, run: RunLike) -> bool | None:
        """Called after an epoch and its evaluation; return True to stop training.

        Args:
            run: the run; the last row of `run.history` has the metrics of this epoch.
        """

    def has_ended(self) -> bool:
        """Return True if this callback had already stopped a resumed run, which then does not train."""
        return False

    def on_fit_end(self, run: RunLike) -> None:
        """Called at the end of training, unless it ends with an error.

        Args:
            run: the run, with `module`, `history` and the counts of batches and updates.
        """


def as_list(callbacks: CallbackLike) -> list[Callable[..., Any]]:
    """Return callbacks as a list; raise ArgumentError for other objects."""
    if callbacks is None:
        return []
    listed: list[Any] = list(callbacks) if isinstance(callbacks, (list, tuple)) else [callbacks]
    for each in listed:
        if not (callable(each) or isinstance(each, Callback)):
            raise ArgumentError(
                f"a callback is {each!r}, expected a function, a Callback, or a list of these"
            )
    return listed
