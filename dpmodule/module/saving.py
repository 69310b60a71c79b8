"""`Saving`: when a run is saved, what stands in its files, and where it goes on."""

from __future__ import annotations

import io
import logging
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from .. import checkpoint as files
from .. import run_file
from ..base import ArgumentError, FileError, FileFormatError, StateError
from ..callback.checkpoint import Checkpoint
from ..devices import generators
from ..files import file_transaction
from ..symbol import Symbol
from .lockstep import Lockstep
from .run_lock import RunLock
from .run_state import differences, load_optimizer_bytes, optimizer_bytes

if TYPE_CHECKING:
    from ..callback.base import RunLike
    from ..io import DataIter
    from .protocol import Resumable
    from .types import CheckpointLike

__all__ = ["Saving"]

_logger = logging.getLogger(__name__)


class Saving:
    """Saves a run by the rules of a `Checkpoint`, and finds the one to go on from.

    Args:
        checkpoint: the rules, their prefix, or None: nothing is saved.
        data: the iterator that the run reads.
        lockstep: the processes that train together; the first one saves for all.

    Raises:
        ArgumentError: `checkpoint` is something else.
    """

    def __init__(self, checkpoint: CheckpointLike, data: DataIter, lockstep: Lockstep) -> None:
        if isinstance(checkpoint, (str, os.PathLike)):
            checkpoint = Checkpoint(checkpoint)
        if checkpoint is not None and not isinstance(checkpoint, Checkpoint):
            raise ArgumentError(
                f"fit: checkpoint is {checkpoint!r}, expected a callback.Checkpoint, or the prefix of its files"
            )
        self._rules: Checkpoint | None = checkpoint
        self._data = data
        self._lockstep = lockstep
        self._position: dict[str, Any] = {}
        self._facts: dict[str, Any] = {"started": time.time()}
        # states of the random generators before the epoch was shuffled
        self._before_reset: dict[str, Any] | None = None
        self._found_at: tuple[str, Any] | None = None
        self._lock = None if checkpoint is None else RunLock(checkpoint.prefix)

    def __enter__(self) -> None:
        """Keep other runs away from the prefix; those that train with this one are the same run.

        Raises:
            StateError: there is one.
        """
        wrong: StateError | None = None
        if self._lock is not None and not self._lockstep.rank:
            try:
                self._lock.take()
            except StateError as error:
                wrong = error
        if self._lockstep.any(wrong is not None):
            raise wrong or StateError(
                "fit: the first process found another run under its prefix; see its error"
            )

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            self._lock.release()

    # when

    def wants_batch(self, nbatch: int) -> bool:
        """Say whether to save after so many batches of an epoch."""
        return self._rules is not None and self._rules.wants_batch(nbatch)

    def wants_end(self, asked: bool) -> bool:
        """Say whether to save because the run ends, if somebody wants it to."""
        return asked and self._rules is not None and self._rules.save_on_interrupt

    def begin(self, run: RunLike) -> None:
        """Let the rules look at a run that begins."""
        if self._rules is not None:
            self._rules.on_fit_begin(run)

    def begin_epoch(self) -> None:
        """Note how random numbers stand before the data are put into an order, for iterators that say nothing."""
        if self._rules is not None:
            self._before_reset = generators.state_dict()

    def note_position(self, nbatch: int) -> None:
        """Note where the data and all random numbers stand.

        Args:
            nbatch: how many batches of the epoch have been read.
        """
        try:
            iterator: dict[str, Any] = {"state": self._data.state_dict()}
        except (NotImplementedError, AttributeError):
            iterator = {"skip": nbatch, "generators": self._before_reset}
        self._position = {"iterator": iterator, "generators": generators.state_dict()}

    # saving

    def within_epoch(self, run: RunLike, over: bool) -> None:
        """Save after a batch, at the position that was noted.

        Args:
            run: the run.
            over: whether it was the epoch's last batch.
        """
        if self._rules is not None:
            self._save(run, files.LAST, {**run.state_dict(over), **self._position})

    def after_epoch(self, run: RunLike, ends: bool) -> None:
        """Save after an epoch, if it is due, at the beginning of the next one.

        Args:
            run: the run.
            ends: whether somebody wants it to end here.
        """
        rules = self._rules
        if rules is None:
            return
        is_due = rules.wants_epoch(run.epoch)
        if is_due:
            rules.note(run)
        elif self._lockstep.several or not self.wants_end(ends):
            return
        self.note_position(0)
        state = {**run.state_dict(), "epoch": run.epoch + 1, "nbatch": 0, **self._position}
        self._save(run, run.epoch + 1 if is_due else files.LAST, {**state, "rules": rules.state_dict()})
        if is_due and not self._lockstep.rank:
            rules.tidy(run.epoch + 1)

    def _save(self, run: RunLike, epoch: int | str, state: Mapping[str, Any]) -> None:
        module = run.module
        own = self._lockstep.own_state(module)
        first, *others = self._lockstep.gather({**state, **self._facts, "own": own})
        if self._rules is None or self._lockstep.rank:
            return
        prefix = self._rules.prefix
        chain = module.all_updates()
        packed = io.BytesIO()
        run_file.write(packed, {**first, "ranks": others})
        symbol = module.symbol if isinstance(getattr(module, "symbol", None), Symbol) else None
        arg_params, aux_params = module.get_params()
        files.save_checkpoint(
            prefix,
            epoch,
            symbol,
            arg_params,
            aux_params,
            states=optimizer_bytes(chain[0]) if len(chain) == 1 else None,
            more={files.run_file(prefix, epoch): packed.getvalue()},
        )

    # going on

    def found(self, resume: str | None, here: Callable[[], Mapping[str, Any]]) -> dict[str, Any] | None:
        """Return the newest state to go on from; None if a run is to begin. It is asked before training.

        Args:
            resume: as `fit` was given it.
            here: returns facts about the module and the data.

        Raises:
            ArgumentError: `resume` is "auto" without a checkpoint; or the state is that of another network, optimizer
                or form of data: lists every difference.
            FileError: there is no state under another prefix.
            FileFormatError: a file is damaged.
        """
        self._facts["facts"] = here()  # training changes attributes of some optimizers
        if resume is None:
            return None
        if resume == "auto" and self._rules is None:
            raise ArgumentError('fit: resume="auto" goes on from what checkpoint= saves; give that, too')
        prefix = self._rules.prefix if resume == "auto" and self._rules is not None else os.fspath(resume)
        best = self._newest(prefix)
        if best is None and resume != "auto":
            raise FileError(2, "no run has been saved under this prefix; resume='auto' begins one", prefix)
        return self._state_of_this_process(best, prefix)

    def _newest(self, prefix: str) -> dict[str, Any] | None:
        """Return the newest state of the run that was begun last; None if nothing is saved."""
        epochs: list[Any] = Checkpoint(prefix).epochs()
        known = {}
        for epoch in [*epochs, files.LAST]:
            path = files.run_file(prefix, epoch)
            file_transaction.settle(path)
            if os.path.exists(path):
                known[epoch] = _sort_key(path)
        if not known:
            return None
        epoch = max(known, key=lambda each: known[each])
        self._found_at = prefix, epoch
        path = files.run_file(prefix, epoch)
        with _with_advice(path):
            state = run_file.read(path)
        self._facts["started"] = state["started"]
        return state

    def _state_of_this_process(self, state: dict[str, Any] | None, prefix: str) -> dict[str, Any] | None:
        """Return what a state, None if there is none, has of this process.

        Raises:
            ArgumentError: not all processes see the run, or it was another one.
        """
        missing = self._lockstep.any(state is None)
        if state is None:
            return None
        if missing:
            raise ArgumentError(
                f"fit: not all processes see the run under {prefix!r}; they have to share its folder, or have copies"
            )
        states = [state, *state.get("ranks", [])]
        own: dict[str, Any] = states[self._lockstep.rank] if len(states) == self._lockstep.size else state
        if wrong := differences(own["facts"], self._facts["facts"]):
            raise ArgumentError(f"fit: the run under {prefix!r} was another one: {'; '.join(wrong)}")
        return own

    def load_parameters(self, module: Resumable, install: Callable[[], None]) -> None:
        """Give a module the parameters, and its optimizer the states, that were saved with the state found.

        Args:
            module: what is trained.
            install: installs its optimizer anew.
        """
        if self._found_at is None:
            return
        module.set_params(*files.load_params(*self._found_at))
        # the store has copies of the parameters
        if any(each.updater is None for each in module.all_updates()):
            install()
        chain = module.all_updates()
        if len(chain) == 1:
            load_optimizer_bytes(chain[0], files.load_states(*self._found_at))

    def load_position(self, state: Mapping[str, Any]) -> None:
        """Bring the data and all random numbers to where they stood."""
        if self._rules is not None and "rules" in state:
            self._rules.load_state_dict(state["rules"])
        iterator = state["iterator"]
        if "state" not in iterator:
            self._skip_batches(iterator["skip"], iterator["generators"])
        elif not hasattr(self._data, "load_state_dict"):
            raise self._cannot_go_on("has no load_state_dict")
        else:
            try:
                self._data.load_state_dict(iterator["state"])
            except NotImplementedError as error:
                raise self._cannot_go_on(str(error)) from error
        generators.load_state_dict(state["generators"])

    def _skip_batches(self, count: int, before: Mapping[str, Any] | None) -> None:
        """Read and drop batches of an iterator that cannot say where it stands."""
        _logger.info(
            "%s does not say where it stands: %d batches are read again, to go on behind them",
            type(self._data).__name__,
            count,
        )
        if before is not None:
            generators.load_state_dict(before)
            self._data.reset()
        for number in range(count):
            if next(self._data, None) is None:
                raise self._cannot_go_on(
                    f"gave {number} batches, the run was saved after {count} of an epoch"
                )

    def _cannot_go_on(self, why: str) -> StateError:
        prefix = None if self._found_at is None else self._found_at[0]
        return StateError(
            f"fit: the run under {prefix!r} cannot go on with this {type(self._data).__name__}: {why}; give the data "
            "that it was trained on, or begin anew under another prefix"
        )


_REQUIRED_KEYS = {
    "epoch",
    "nbatch",
    "num_batches",
    "over",
    "facts",
    "metric",
    "steps",
    "module",
    "optimizers",
    "history",
}
_REQUIRED_KEYS |= {"callbacks", "threads", "kernels", "iterator", "generators", "started"}


def _sort_key(path: str) -> tuple[float, int, int]:
    """Return what orders saved states: when their run was begun, and where it stood.

    Raises:
        FileFormatError: the file holds no state; says how to go on without it.
    """
    with _with_advice(path):
        state = run_file.peek(path)
        if missing := sorted(_REQUIRED_KEYS - state.keys()):
            raise FileFormatError(f"{path}: the state of a run without {', '.join(missing)}")
    return state["started"], state["epoch"], state["nbatch"]


@contextmanager
def _with_advice(path: str) -> Iterator[None]:
    """Let an error about a file say how to go on without it.

    Raises:
        FileFormatError: the block raised one.
    """
    try:
        yield
    except FileFormatError as error:
        raise FileFormatError(
            f"{error}; to go on from an older state remove the files {path.removesuffix('run')}*, or give another "
            "prefix to begin anew"
        ) from error
