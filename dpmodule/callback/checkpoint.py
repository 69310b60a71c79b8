"""`Checkpoint`: save a run so that it can be resumed exactly, and keep only some of the files."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from .. import checkpoint as files
from .._files import path_text
from ..base import ArgumentError
from .base import Callback
from .early_stopping import BestValue

if TYPE_CHECKING:
    from ..ndarray import NDArray
    from ..symbol import Symbol
    from .base import RunLike


class RetentionPolicy:
    """Chooses the saved epochs to keep, and removes the files of the others.

    Args:
        keep_last: number of last epochs to keep; None keeps all.
        keep_best: number of epochs with the best values of `metric` to keep in addition.
        metric: name of a metric in the history of `fit`, such as "validation-accuracy".
        mode: "max" if larger is better, "min" if smaller is better, "auto" decides by the name.

    Attributes:
        values: the metric of each epoch, by the number in its file names.
    """

    def __init__(
        self, what: str, keep_last: int | None, keep_best: int | None, metric: str | None, mode: str
    ) -> None:
        for name, value in (("keep_last", keep_last), ("keep_best", keep_best)):
            if value is not None and value < 1:
                raise ArgumentError(f"{what}: {name} is {value}, expected at least 1")
        if (keep_best is None) != (metric is None):
            raise ArgumentError(f"{what}: keep_best and metric belong together; give both or neither")
        self._last = keep_last
        self._best = keep_best
        self._metric = metric
        self._order = BestValue(metric or "", mode)
        self.values: dict[int, float] = {}

    def check(self, run: RunLike) -> None:
        """Raise ArgumentError if the run will not measure the metric."""
        if self._metric is not None:
            run.check_measured(self._metric)

    def note(self, run: RunLike) -> None:
        """Record the metric of an epoch that will be saved."""
        if self._metric is not None:
            self.values[run.epoch + 1] = run.history[self._metric][-1]

    def tidy(self, prefix: str, saved: Sequence[int], now: int) -> None:
        """Remove the files of the epochs that are not kept.

        Args:
            saved: the saved epochs, in ascending order.
            now: the epoch that was saved last; later ones belong to another run and are kept.
        """
        if self._last is None and self._best is None:
            return
        saved = [epoch for epoch in saved if epoch <= now]
        kept = set(saved[-(self._last or (len(saved) if self._best is None else 1)) :])
        if self._best is not None:
            known = [epoch for epoch in saved if epoch in self.values]
            kept.update(sorted(known, key=lambda e: self._order.rank(self.values[e]))[: self._best])
        for epoch in saved:
            if epoch not in kept:
                _remove(prefix, epoch)


def _remove(prefix: str, epoch: int) -> None:
    # the state of the run goes first: without it the other files are not taken for a resumable set
    for path in (
        files.run_file(prefix, epoch),
        files.states_file(prefix, epoch),
        *(files.params_file(prefix, epoch, format) for format in files.FORMATS),
    ):
        with suppress(FileNotFoundError):  # or another process of the run has removed it
            os.unlink(path)
    files.tables.remove(files.tables_file(prefix, epoch))


class RetainingSaver(Callback):
    """Epoch callback of `do_checkpoint` and `module_checkpoint` that keeps the files of some epochs only.

    Args:
        save: an epoch callback of MXNet that saves.
        period: number of epochs between two saves.
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
        self._prefix = path_text(prefix, "prefix")
        self._period = period
        self._rules = RetentionPolicy(what, *keep)

    def __call__(
        self,
        epoch: int,
        symbol: Symbol | None = None,
        arg_params: Mapping[str, NDArray] | None = None,
        aux_params: Mapping[str, NDArray] | None = None,
    ) -> None:
        """Save an epoch, and remove the epochs that are not kept; for training loops other than `fit`.

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
            params = getattr(run.module, "live_params", run.module.get_params)()
            self(run.epoch, run.module.symbol, *params)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that is saved with a run."""
        return {"values": dict(self._rules.values)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore the result of `state_dict`."""
        self._rules.values = dict(state["values"])


class Checkpoint(Callback):
    """Save the complete state of a run of `fit`: after epochs, after a number of batches, and when it is interrupted.

    After an epoch these files are replaced together; within an epoch "last" takes the place of the number::

        prefix-symbol.json, prefix-0003.params, prefix-0003.states    as MXNet reads them
        prefix-0003.run                                               everything else, see `run_format`

    Pass it as ``fit(checkpoint=...)``; ``fit(resume="auto")`` resumes the newest state.

    Args:
        prefix: path and first part of the file names; the folder must exist.
        every_n_epochs: number of epochs between two saves.
        every_n_batches: number of batches between two saves within an epoch; None: save only after epochs.
        keep_last: number of last epochs to keep; None keeps all.
        keep_best: number of epochs with the best values of `metric` to keep in addition.
        metric: name of a metric in the history of `fit`, such as "validation-accuracy".
        mode: "max" if larger is better, "min" if smaller is better, "auto" decides by the name.
        save_on_interrupt: whether to save when Ctrl-C or SIGTERM ends training.

    Raises:
        ArgumentError: a number is below 1, the mode is unknown, or `keep_best` is given without `metric`; in `fit`: the
            metric is not measured, if possible before the first batch.

    Example:
        >>> every = mx.callback.Checkpoint("net", every_n_batches=100, keep_last=2)
        >>> every.prefix
        'net'
    """

    saves_runs = True

    def __init__(
        self,
        prefix: str | os.PathLike[str],
        every_n_epochs: int = 1,
        every_n_batches: int | None = None,
        keep_last: int | None = None,
        keep_best: int | None = None,
        metric: str | None = None,
        mode: str = "auto",
        save_on_interrupt: bool = True,
    ) -> None:
        for name, value in (("every_n_epochs", every_n_epochs), ("every_n_batches", every_n_batches)):
            if value is not None and value < 1:
                raise ArgumentError(f"Checkpoint: {name} is {value}, expected at least 1")
        self._rules = RetentionPolicy("Checkpoint", keep_last, keep_best, metric, mode)
        self.prefix = path_text(prefix, "prefix")
        self.every_n_epochs = every_n_epochs
        self.every_n_batches = every_n_batches
        self.save_on_interrupt = save_on_interrupt

    def on_fit_begin(self, run: RunLike) -> None:
        self._rules.check(run)

    def wants_epoch(self, epoch: int) -> bool:
        """Return True if an epoch is to be saved.

        Args:
            epoch: number of the epoch, from 0.
        """
        return (epoch + 1) % self.every_n_epochs == 0

    def wants_batch(self, nbatch: int) -> bool:
        """Return True to save after a batch of an epoch.

        Args:
            nbatch: number of batches of the epoch that are done.
        """
        return self.every_n_batches is not None and nbatch % self.every_n_batches == 0

    def note(self, run: RunLike) -> None:
        """Record the metric of an epoch that will be saved.

        Args:
            run: the run after this epoch.

        Raises:
            ArgumentError: the metric is not measured.
        """
        self._rules.note(run)

    def tidy(self, now: int) -> None:
        """Remove the files of epochs that are not kept.

        Args:
            now: number of the last epoch, from 1 as in file names.
        """
        self._rules.tidy(self.prefix, self.epochs(), now)

    def epochs(self) -> list[int]:
        """Return the epochs that are saved with the state of a run, in ascending order."""
        pattern = re.compile(re.escape(os.path.basename(self.prefix)) + r"-(\d{4,})\.run")
        matches = (
            pattern.fullmatch(os.path.basename(path))
            for path in glob.glob(f"{glob.escape(self.prefix)}-*.run")
        )
        return sorted(int(match[1]) for match in matches if match)

    def state_dict(self) -> dict[str, Any]:
        """Return the state that is saved with a run."""
        return {"values": dict(self._rules.values)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Restore a state.

        Args:
            state: result of `state_dict`, possibly of another process.
        """
        self._rules.values = dict(state["values"])
