"""`Checkpoint`: save a run so that it can be resumed exactly, and keep only some of what was saved."""

from __future__ import annotations

import glob
import os
import re
from collections.abc import Callable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from .. import checkpoint as files
from ..base import ArgumentError
from .base import Callback
from .early_stopping import BestValue

if TYPE_CHECKING:
    from ..ndarray import NDArray
    from ..symbol import Symbol
    from .base import RunLike


class RetentionPolicy:
    """Says which of the epochs that have been saved are to be removed, and removes their files.

    Args:
        keep_last: how many of the last ones to keep; None keeps all.
        keep_best: how many of those with the best values of `metric` to keep besides.
        metric: name of a metric in the history of `fit`, such as "validation-accuracy".
        mode: "max" if larger is better, "min" if smaller is, "auto" tells by the name.

    Attributes:
        values: the metric of each epoch, by the number of its files.
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
        """Look, before a run begins, whether the metric will be measured."""
        if self._metric is not None:
            run.check_measured(self._metric)

    def note(self, run: RunLike) -> None:
        """Keep the metric of an epoch that is to be saved."""
        if self._metric is not None:
            self.values[run.epoch + 1] = run.history[self._metric][-1]

    def tidy(self, prefix: str, saved: Sequence[int], now: int) -> None:
        """Remove the files of the epochs that are not to be kept.

        Args:
            saved: the epochs that are there, in ascending order.
            now: the one that was saved last; later ones are another training's, and stay.
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
    # the run's state goes first: without it nobody takes the rest for a set to go on from
    for path in (
        files.run_file(prefix, epoch),
        files.states_file(prefix, epoch),
        *(files.params_file(prefix, epoch, format) for format in files.FORMATS),
    ):
        if os.path.exists(path):
            os.unlink(path)


class RetainingSaver(Callback):
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
        self._rules = RetentionPolicy(what, *keep)

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


class Checkpoint(Callback):
    """Save what `fit` needs to go on exactly: after epochs, after so many batches, and when it is broken off.

    After an epoch these files switch together, within an epoch the same with "last" in place of the number::

        prefix-symbol.json, prefix-0003.params, prefix-0003.states    as MXNet reads them
        prefix-0003.run                                               everything else, see `run_format`

    Give it as ``fit(checkpoint=...)``; ``fit(resume="auto")`` goes on from the newest state.

    Args:
        prefix: path and first part of the file names; the folder must exist.
        every_n_epochs: how many epochs lie between two sets of files.
        every_n_batches: how many batches lie between two sets within an epoch; None: there are none.
        keep_last: how many of the last epochs' sets to keep; None keeps all.
        keep_best: how many of the sets with the best values of `metric` to keep besides.
        metric: name of a metric in the history of `fit`, such as "validation-accuracy".
        mode: "max" if larger is better, "min" if smaller is, "auto" tells by the name.
        save_on_interrupt: whether to save when Ctrl-C or SIGTERM ends training.

    Raises:
        ArgumentError: a number below 1, an unknown mode, or `keep_best` without `metric`; in `fit`: nothing of that
            name is measured, as far as possible before the first batch.

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
        self.prefix = os.fspath(prefix)
        self.every_n_epochs = every_n_epochs
        self.every_n_batches = every_n_batches
        self.save_on_interrupt = save_on_interrupt

    def on_fit_begin(self, run: RunLike) -> None:
        self._rules.check(run)

    def wants_epoch(self, epoch: int) -> bool:
        """Say whether an epoch is to be saved.

        Args:
            epoch: its number, counted from 0.
        """
        return (epoch + 1) % self.every_n_epochs == 0

    def wants_batch(self, nbatch: int) -> bool:
        """Say whether to save after so many batches of an epoch.

        Args:
            nbatch: how many batches of the epoch are done.
        """
        return self.every_n_batches is not None and nbatch % self.every_n_batches == 0

    def note(self, run: RunLike) -> None:
        """Keep the metric of an epoch that is to be saved.

        Args:
            run: the training whose last epoch it is.

        Raises:
            ArgumentError: nothing of that name is measured.
        """
        self._rules.note(run)

    def tidy(self, now: int) -> None:
        """Remove the sets of epochs that are not to be kept; `now` is the number of the last one.

        Args:
            now: number of the last epoch, counted from 1 as in names of files.
        """
        self._rules.tidy(self.prefix, self.epochs(), now)

    def epochs(self) -> list[int]:
        """Return the epochs that have been saved with the state of a run, in ascending order."""
        pattern = re.compile(re.escape(os.path.basename(self.prefix)) + r"-(\d{4,})\.run")
        found = (
            pattern.fullmatch(os.path.basename(path))
            for path in glob.glob(f"{glob.escape(self.prefix)}-*.run")
        )
        return sorted(int(match[1]) for match in found if match)

    def state_dict(self) -> dict[str, Any]:
        """Return what is to be saved with a run."""
        return {"values": dict(self._rules.values)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from what `state_dict` returned.

        Args:
            state: what `state_dict` of another one returned, which may have been in another process.
        """
        self._rules.values = dict(state["values"])
