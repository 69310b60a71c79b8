"""`RunSaver`: saving and resuming runs of `fit`."""

from __future__ import annotations

import importlib
import io
import logging
import os
import platform
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, Any

from .. import checkpoint as files
from .._devices import generators
from .._files import finish_commit, naming_errors
from .._object_state import digest, equal, random_generators, set_state, state_of
from ..base import ArgumentError, FileError, FileFormatError, MXNetError, StateError
from ..callback.checkpoint import Checkpoint
from ..checkpoint import run_format
from ..io.convert import EpochStart
from ..ndarray import NDArray
from ..symbol import Symbol
from .lockstep import Lockstep
from .run_state import differences, load_optimizer_bytes, optimizer_bytes

if TYPE_CHECKING:
    from ..callback.base import RunLike
    from ..io import DataIter
    from .protocol import Resumable
    from .types import BatchLike, CheckpointLike

fcntl: Any
try:
    fcntl = importlib.import_module("fcntl")
except ImportError:  # not a POSIX system, where runs are not locked
    fcntl = None

_descriptors: dict[tuple[int, str], int] = {}
"""Descriptors of locked files by process and path, as system locks do not work within a process."""


class RunLock:
    """Lock that prevents other runs from saving under the same prefix.

    The system locks the file ``.<name>.lock`` next to the checkpoints, and releases it when the process ends;
    the next run reuses a remaining file. On file systems without locks it does nothing. Forked children do not inherit
    the lock, so that they cannot hold it longer than the run.
    """

    def __init__(self, prefix: str) -> None:
        folder, name = os.path.split(os.path.abspath(prefix))
        self._prefix = prefix
        self._path = os.path.join(os.path.realpath(folder), f".{name}.lock")
        self._key = (0, "")
        self._descriptor = -1

    def take(self) -> None:
        """Create the folder if it is missing, and acquire the lock."""
        folder = os.path.dirname(self._path)
        with naming_errors(folder):
            os.makedirs(folder, exist_ok=True)
        if fcntl is None:
            return
        key = os.getpid(), self._path
        if key in _descriptors:
            raise StateError(self._message("this process"))
        number = self._open_locked()
        if number >= 0:
            self._key, self._descriptor = key, number
            _descriptors[key] = number
            with suppress(OSError):  # the text is only for messages
                os.ftruncate(number, 0)
                os.pwrite(number, f"process {key[0]} on {platform.node()}".encode(), 0)

    def release(self) -> None:
        """Release the lock and remove its file; does nothing without the lock, or in a forked child."""
        if self._key[0] != os.getpid() or _descriptors.pop(self._key, -1) < 0:
            return
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)

    def _open_locked(self) -> int:
        """Return the descriptor of the locked file; -1 if it cannot be locked."""
        while True:
            try:
                number = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError:  # saving will report the error
                return -1
            try:
                fcntl.lockf(number, fcntl.LOCK_EX | fcntl.LOCK_NB)
                if _is_file(number, self._path):
                    return number
            except (BlockingIOError, PermissionError):
                with open(number, "rb") as file:
                    other = file.read(200).decode(errors="replace")
                raise StateError(self._message(other or "another process")) from None
            except OSError:  # a file system without locks
                os.close(number)
                with suppress(OSError):
                    os.unlink(self._path)
                return -1
            os.close(number)  # removed by the run that held it; try again with the new file

    def _message(self, other: str) -> str:
        return (
            f"fit: {other} is saving a run under the prefix {self._prefix!r}; wait for its end, stop it, or use "
            "another prefix for this run"
        )


def _is_file(number: int, path: str) -> bool:
    """Return True if a descriptor belongs to the file that has a path now."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(number), os.stat(path))
    return False


_logger = logging.getLogger(__name__)


class RunSaver:
    """Saves a run by the rules of a `Checkpoint`, and finds the state to resume.

    Args:
        checkpoint: the rules, or their prefix; None to save nothing.
        lockstep: the processes of the run; rank 0 saves for all.
        others: other objects that may have random generators, such as callbacks, by name.
    """

    def __init__(
        self, checkpoint: CheckpointLike, data: DataIter, lockstep: Lockstep, others: Mapping[str, Any]
    ) -> None:
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
        self._run_info: dict[str, Any] = {"started": time.time()}
        self._others = {"train_data": data, **others}
        # for an iterator without state_dict: its state at the start of the epoch, and whether a reset started it
        self._start = None if _has_state_dict(data) else EpochStart(data)
        self._epoch_start = None if self._start is None else {**self._start.state_dict(), "reset": False}
        self._expected: dict[str, Any] = {}
        self._resumed_from: tuple[str, Any] | None = None
        self._lock = None if checkpoint is None else RunLock(checkpoint.prefix)

    def __enter__(self) -> None:
        """Lock the prefix against other runs; all processes of a run share the lock of rank 0."""
        lock_error: MXNetError | None = None
        if self._lock is not None and not self._lockstep.rank:
            try:
                self._lock.take()
            except MXNetError as error:
                lock_error = error
        if self._lockstep.any(lock_error is not None):
            raise lock_error or StateError("fit: rank 0 cannot save under its prefix; see its error")

    def __exit__(self, *error: object) -> None:
        if self._lock is not None:
            self._lock.release()

    # conditions

    def wants_batch(self, nbatch: int) -> bool:
        """Return True if the run is saved after a batch of an epoch."""
        return self._rules is not None and self._rules.wants_batch(nbatch)

    def wants_end(self, requested: bool) -> bool:
        """Return True if the run is saved because of a stop request."""
        return requested and self._rules is not None and self._rules.save_on_interrupt

    def begin(self, run: RunLike) -> None:
        """Call `on_fit_begin` of the rules."""
        if self._rules is not None:
            self._rules.on_fit_begin(run)

    def begin_epoch(self) -> None:
        """Record the state of data without `state_dict` before it is shuffled."""
        if self._rules is not None and self._start is not None:
            self._epoch_start = {**self._start.state_dict(), "reset": True}

    def note_position(self, nbatch: int, last: BatchLike | None = None) -> None:
        """Record the position of the data and all random states."""
        if self._start is None:
            iterator: dict[str, Any] = {"state": self._data.state_dict()}
        else:
            iterator = {"skip": nbatch, "start": self._epoch_start}
        self._position = {"iterator": iterator, "last": _digest_of_order(last), **self._random_numbers()}

    def _random_numbers(self) -> dict[str, Any]:
        user_states = {path: state_of(each) for path, each in random_generators(self._others).items()}
        return {"generators": generators.state_dict(), "own_generators": user_states}

    # saving

    def within_epoch(
        self, run: RunLike, over: bool, following: BatchLike | None = None, is_repeated: bool = False
    ) -> None:
        """Save after a batch, at the recorded position.

        Args:
            following: the batch that was read since, and is read again on resume.
            is_repeated: True if all work since the position is repeated on resume.
        """
        if self._rules is None:
            return
        after = None if is_repeated else self._random_numbers()
        more = {"next": _digest(following), "after": after}
        self._save(run, files.LAST, {**run.state_dict(over), **self._position, **more})

    def after_epoch(self, run: RunLike, ends: bool) -> None:
        """Save after an epoch, if due, at the beginning of the next epoch."""
        rules = self._rules
        if rules is None:
            return
        is_due = rules.wants_epoch(run.epoch)
        if is_due:
            rules.note(run)
        elif self._lockstep.is_distributed or not self.wants_end(ends):
            return
        self.note_position(0)
        state = {**run.state_dict(), "epoch": run.epoch + 1, "nbatch": 0, **self._position}
        self._save(run, run.epoch + 1 if is_due else files.LAST, {**state, "rules": rules.state_dict()})
        if is_due and not self._lockstep.rank:
            rules.tidy(run.epoch + 1)

    def _save(self, run: RunLike, epoch: int | str, state: Mapping[str, Any]) -> None:
        module = run.module
        own = self._lockstep.own_state(module)
        first, *others = self._lockstep.gather({**state, **self._run_info, "own": own})
        if self._rules is None or (self._lockstep.rank and not self._lockstep.spread_names):
            return
        prefix = self._rules.prefix
        chain = module.all_updates()
        packed = io.BytesIO()
        run_format.write(packed, {**first, "ranks": others})
        symbol = module.symbol if isinstance(getattr(module, "symbol", None), Symbol) else None
        arg_params, aux_params = getattr(module, "live_params", module.get_params)()
        files.save_checkpoint(
            prefix,
            epoch,
            symbol,
            arg_params,
            aux_params,
            states=optimizer_bytes(chain[0]) if len(chain) == 1 else None,
            more={files.run_file(prefix, epoch): packed.getvalue()},
        )

    # resuming

    def find_state(
        self, resume: str | None, fingerprint: Callable[[], Mapping[str, Any]]
    ) -> dict[str, Any] | None:
        """Return the newest state to resume, None to start a run; called before training."""
        self._run_info["facts"] = fingerprint()  # training changes attributes of some optimizers
        if resume is None:
            return None
        if resume == "auto" and self._rules is None:
            raise ArgumentError('fit: resume="auto" resumes what checkpoint= saves; pass checkpoint, too')
        prefix = self._rules.prefix if resume == "auto" and self._rules is not None else os.fspath(resume)
        newest = self._newest(prefix)
        if newest is None and resume != "auto":
            raise FileError(2, "no run is saved under this prefix; resume='auto' starts one", prefix)
        return self._state_of_this_process(newest, prefix)

    def _newest(self, prefix: str) -> dict[str, Any] | None:
        """Return the newest state of the run that was started last; None if nothing is saved."""
        epochs: list[Any] = Checkpoint(prefix).epochs()
        known = {}
        for epoch in [*epochs, files.LAST]:
            path = files.run_file(prefix, epoch)
            finish_commit(path)
            if os.path.exists(path):
                known[epoch] = _sort_key(path)
        if not known:
            return None
        epoch = max(known, key=lambda saved: known[saved])
        self._resumed_from = prefix, epoch
        path = files.run_file(prefix, epoch)
        with _with_advice(path):
            state = run_format.read(path)
        self._run_info["started"] = state["started"]
        return state

    def _state_of_this_process(self, state: dict[str, Any] | None, prefix: str) -> dict[str, Any] | None:
        """Return the part of a state that belongs to this process; None for None."""
        missing = self._lockstep.any(state is None)
        if state is None:
            return None
        if missing:
            raise ArgumentError(
                f"fit: not all processes see the run under {prefix!r}; they must share its folder, or have copies of it"
            )
        states = [state, *state.get("ranks", [])]
        own: dict[str, Any] = states[self._lockstep.rank] if len(states) == self._lockstep.size else state
        changed = differences(own["facts"], self._run_info["facts"])
        if own["nbatch"]:
            changed += _metric_change(own["facts"]["metric"], self._run_info["facts"]["metric"])
        if changed:
            raise ArgumentError(f"fit: the run under {prefix!r} was another one: {'; '.join(changed)}")
        return own

    def load_parameters(self, module: Resumable, rates: Sequence[Mapping[str, Any]]) -> str | None:
        """Load the parameters and the optimizer's states of the resumed run.

        Returns:
            A description of a change of the learning rate, None without one.
        """
        if self._resumed_from is None:
            return None
        module.set_params(*files.load_params(*self._resumed_from, fetch=False))
        chain = module.all_updates()
        for updates in chain:
            updates.replace_stored()
        if len(chain) > 1:  # the run file holds their states
            return None
        change = load_optimizer_bytes(chain[0], files.load_states(*self._resumed_from), rates[0])
        chain[0].load_table_states(files.tables_file(*self._resumed_from))
        return change

    def load_position(self, state: Mapping[str, Any]) -> None:
        """Restore the position of the data and all random states."""
        if self._rules is not None and "rules" in state:
            self._rules.load_state_dict(state["rules"])
        self._expected = dict(state)
        iterator = state["iterator"]
        if "state" not in iterator:
            self._replay(iterator["skip"], iterator["start"])
        elif not hasattr(self._data, "load_state_dict"):
            raise self._cannot_resume("it has no load_state_dict")
        else:
            try:
                self._data.load_state_dict(iterator["state"])
            except (NotImplementedError, StateError) as error:
                raise self._cannot_resume(str(error)) from error
            self._check_last(getattr(self._data, "current_batch", None))
        self._load_random_numbers(state, is_last=state.get("after") is None)

    def continue_after(self, batch: BatchLike | None) -> None:
        """Check the first batch after a resume, and restore the random states after it.

        Args:
            batch: the batch; None if the epoch was over.
        """
        state, self._expected = self._expected, {}
        self._compare(state.get("next"), _digest(batch))
        if state.get("after") is not None:
            self._load_random_numbers(state["after"], is_last=True)

    def _load_random_numbers(self, state: Mapping[str, Any], is_last: bool) -> None:
        """Set the states of all random generators."""
        present = random_generators(self._others)
        try:
            for path, generator in present.items():
                if path in state["own_generators"]:
                    set_state(generator, state["own_generators"][path])
        except ArgumentError as error:
            raise self._cannot_resume(str(error)) from error
        if is_last and (missing := sorted(state["own_generators"].keys() - present.keys())):
            raise StateError(
                f"fit: the run under {self._prefix!r} drew random numbers from {', '.join(missing)}, which is missing "
                "here; pass the same callbacks, metrics and data to fit, or start a new run under another prefix"
            )
        generators.load_state_dict(state["generators"])

    def _replay(self, count: int, start: Mapping[str, Any]) -> None:
        """Restart the epoch of an iterator without `state_dict`, and skip batches."""
        if self._start is None or type(self._data).__module__.startswith("dpmodule."):
            raise self._cannot_resume("it, or an iterator inside it, does not define state_dict")
        if count:
            _logger.info(
                "%s does not define state_dict: reading %d batches again to continue after them",
                type(self._data).__name__,
                count,
            )
        self._epoch_start = dict(start)
        live: Mapping[str, Any] | None = None
        try:
            self._start.load_state_dict(start)
            if start["reset"]:
                live = self._start.live()
                self._data.reset()
            if not count:
                self._start.check(start, live)
        except (ArgumentError, StateError) as error:
            raise self._cannot_resume(str(error)) from error
        batch = None
        for number in range(count):
            batch = next(self._data, None)
            if batch is None and not number:  # it was at its end when the run started
                self._data.reset()
                batch = next(self._data, None)
            if batch is None:
                raise self._cannot_resume(
                    f"it has {number} batches, but the run was saved after {count} batches of an epoch"
                )
        self._check_last(batch)

    def _check_last(self, batch: Any) -> None:
        """Compare the last replayed batch with the one trained on, if no later batch will be compared."""
        if self._expected.get("next") is None:
            self._compare(self._expected["last"], _digest_of_order(batch))

    def _compare(self, before: int | None, now: int | None) -> None:
        if before is not None and now is not None and before != now:
            raise self._cannot_resume(
                "it returns another batch at this position than before, so its order or its data differ"
            )

    @property
    def _prefix(self) -> str | None:
        return None if self._resumed_from is None else self._resumed_from[0]

    def _cannot_resume(self, why: str) -> StateError:
        return StateError(
            f"fit: the run under {self._prefix!r} cannot be resumed with this {type(self._data).__name__}: {why}; pass "
            "the same data with the same seed, define state_dict and load_state_dict, or start a new run under "
            "another prefix"
        )


def _metric_change(saved: list[dict[str, Any]], current: list[dict[str, Any]]) -> list[str]:
    """Return a description of how a metric differs from the saved one."""
    if equal(saved, current):
        return []
    before, now = (", ".join(str(metric["name"]) for metric in rows) for rows in (saved, current))
    if before == now:
        before, now = (
            ", ".join(f"{metric['class']}({metric['arguments']})" for metric in rows)
            for rows in (saved, current)
        )
    return [f"the metric was {before}, is {now}, which can be changed only at the start of an epoch"]


def _has_state_dict(data: DataIter) -> bool:
    try:
        data.state_dict()
    except (NotImplementedError, AttributeError):
        return False
    return True


def _digest(batch: BatchLike | None) -> int | None:
    """Return a hash of a batch; None for None."""
    if batch is None:
        return None
    parts: list[Any] = batch if isinstance(batch, list) else [batch]
    return digest([[list(part.data or ()), list(part.label or ())] for part in parts])


def _digest_of_order(batch: BatchLike | None) -> int | None:
    """Return a hash of the labels of a batch, or of the batch if the labels are constant.

    Random augmentation changes the data but not the labels.
    """
    if batch is None:
        return None
    parts: list[Any] = batch if isinstance(batch, list) else [batch]
    labels = [list(part.label or ()) for part in parts]
    constant = all(
        isinstance(label, NDArray) and bool((label.raw == label.raw[:1]).all()) for label in sum(labels, [])
    )
    return _digest(batch) if constant else digest(labels)


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
_REQUIRED_KEYS |= {
    "callbacks",
    "threads",
    "kernels",
    "iterator",
    "generators",
    "own_generators",
    "last",
    "started",
}


def _sort_key(path: str) -> tuple[float, int, int]:
    """Return the sort key of a saved state: start of its run, epoch and batch."""
    with _with_advice(path):
        state = run_format.peek(path)
        if missing := sorted(_REQUIRED_KEYS - state.keys()):
            raise FileFormatError(f"{path}: the state of the run lacks {', '.join(missing)}")
    return state["started"], state["epoch"], state["nbatch"]


@contextmanager
def _with_advice(path: str) -> Iterator[None]:
    """Add advice on resuming without a file to an error about the file."""
    try:
        yield
    except FileFormatError as error:
        raise FileFormatError(
            f"{error}; to resume from an older state remove the files {path.removesuffix('run')}*, or start a new run "
            "under another prefix"
        ) from error
