"""`RunSaver`: when a run is saved, what stands in its files, and where it goes on."""

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
from .. import run_file
from ..base import ArgumentError, FileError, FileFormatError, StateError
from ..callback.checkpoint import Checkpoint
from ..devices import generators
from ..files import settle
from ..io.convert import EpochStart
from ..ndarray import NDArray
from ..object_state import digest, equal, random_generators, set_state, state_of
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
except ImportError:  # not a POSIX system: runs are not kept apart
    fcntl = None

_descriptors: dict[tuple[int, str], int] = {}
"""Locked files by process and path: the system's locks hold between processes only."""


class RunLock:
    """Keeps other runs from saving under the same prefix, as long as it is taken.

    The file ``.<name>.lock`` beside the checkpoints is locked by the system, which lets go when the process ends,
    however that is; what is left of it then is taken over by the next run. Where files cannot be locked, nothing is.
    Forked children do not share the lock, so that none of them keeps it longer than the run.
    """

    def __init__(self, prefix: str) -> None:
        folder, name = os.path.split(os.path.abspath(prefix))
        self._prefix = prefix
        self._path = os.path.join(os.path.realpath(folder), f".{name}.lock")
        self._key = (0, "")
        self._descriptor = -1

    def take(self) -> None:
        """Take the lock."""
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
        """Give the lock back, and remove its file; does nothing without the lock, or in a forked child."""
        if self._key[0] != os.getpid() or _descriptors.pop(self._key, -1) < 0:
            return
        with suppress(OSError):
            os.unlink(self._path)
        os.close(self._descriptor)

    def _open_locked(self) -> int:
        """Return the descriptor of the locked file; -1 if there can be none."""
        while True:
            try:
                number = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)
            except OSError:  # saving reports what is wrong with the folder
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
            os.close(number)  # removed by the run that had it; begin with the new file

    def _message(self, other: str) -> str:
        return (
            f"fit: {other} saves a run under the prefix {self._prefix!r} right now; wait for its end, end it, or give "
            "this run another prefix"
        )


def _is_file(number: int, path: str) -> bool:
    """Say whether a descriptor is of the file that has a name now."""
    with suppress(FileNotFoundError):
        return os.path.samestat(os.fstat(number), os.stat(path))
    return False


_logger = logging.getLogger(__name__)


class RunSaver:
    """Saves a run by the rules of a `Checkpoint`, and finds the one to go on from.

    Args:
        checkpoint: the rules, their prefix, or None: nothing is saved.
        lockstep: the processes that train together; the first one saves for all.
        others: what else may draw random numbers of its own, such as callbacks, by name.
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
        self._facts: dict[str, Any] = {"started": time.time()}
        self._others = {"train_data": data, **others}
        # for an iterator that does not say where it stands: what the epoch began with, and whether a reset began it
        self._start = None if _says_position(data) else EpochStart(data)
        self._epoch_start = None if self._start is None else {**self._start.state_dict(), "reset": False}
        self._expected: dict[str, Any] = {}
        self._found_at: tuple[str, Any] | None = None
        self._lock = None if checkpoint is None else RunLock(checkpoint.prefix)

    def __enter__(self) -> None:
        """Keep other runs away from the prefix; those that train with this one are the same run."""
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
        """Note what the data are like before they are put into an order, if they do not say that themselves."""
        if self._rules is not None and self._start is not None:
            self._epoch_start = {**self._start.state_dict(), "reset": True}

    def note_position(self, nbatch: int, last: BatchLike | None = None) -> None:
        """Note where the data and all random numbers stand."""
        if self._start is None:
            iterator: dict[str, Any] = {"state": self._data.state_dict()}
        else:
            iterator = {"skip": nbatch, "start": self._epoch_start}
        self._position = {"iterator": iterator, "last": _digest_of_order(last), **self._random_numbers()}

    def _random_numbers(self) -> dict[str, Any]:
        own = {path: state_of(each) for path, each in random_generators(self._others).items()}
        return {"generators": generators.state_dict(), "own_generators": own}

    # saving

    def within_epoch(
        self, run: RunLike, over: bool, following: BatchLike | None = None, is_repeated: bool = False
    ) -> None:
        """Save after a batch, at the position that was noted.

        Args:
            following: the batch that has been read since, and will be read again.
            is_repeated: whether all that has been done since is done again on resume.
        """
        if self._rules is None:
            return
        after = None if is_repeated else self._random_numbers()
        more = {"next": _digest(following), "after": after}
        self._save(run, files.LAST, {**run.state_dict(over), **self._position, **more})

    def after_epoch(self, run: RunLike, ends: bool) -> None:
        """Save after an epoch, if it is due, at the beginning of the next one."""
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
        """Return the newest state to go on from; None if a run is to begin. It is asked before training."""
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
            settle(path)
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
        """Return what a state, None if there is none, has of this process."""
        missing = self._lockstep.any(state is None)
        if state is None:
            return None
        if missing:
            raise ArgumentError(
                f"fit: not all processes see the run under {prefix!r}; they have to share its folder, or have copies"
            )
        states = [state, *state.get("ranks", [])]
        own: dict[str, Any] = states[self._lockstep.rank] if len(states) == self._lockstep.size else state
        wrong = differences(own["facts"], self._facts["facts"])
        if own["nbatch"]:
            wrong += _other_metric(own["facts"]["metric"], self._facts["facts"]["metric"])
        if wrong:
            raise ArgumentError(f"fit: the run under {prefix!r} was another one: {'; '.join(wrong)}")
        return own

    def load_parameters(
        self, module: Resumable, install: Callable[[], None], rates: Sequence[Mapping[str, Any]]
    ) -> str | None:
        """Give a module the parameters, and its optimizer the states, that were saved with the state found.

        Returns:
            How the learning rate changes, None if it does not.
        """
        if self._found_at is None:
            return None
        module.set_params(*files.load_params(*self._found_at))
        # the store has copies of the parameters
        if any(each.updater is None for each in module.all_updates()):
            install()
        chain = module.all_updates()
        if len(chain) > 1:  # their states are in the run's file
            return None
        return load_optimizer_bytes(chain[0], files.load_states(*self._found_at), rates[0])

    def load_position(self, state: Mapping[str, Any]) -> None:
        """Bring the data and all random numbers to where they stood."""
        if self._rules is not None and "rules" in state:
            self._rules.load_state_dict(state["rules"])
        self._expected = dict(state)
        iterator = state["iterator"]
        if "state" not in iterator:
            self._read_again(iterator["skip"], iterator["start"])
        elif not hasattr(self._data, "load_state_dict"):
            raise self._cannot_go_on("it has no load_state_dict")
        else:
            try:
                self._data.load_state_dict(iterator["state"])
            except (NotImplementedError, StateError) as error:
                raise self._cannot_go_on(str(error)) from error
            self._check_last(getattr(self._data, "current_batch", None))
        self._load_random_numbers(state, is_last=state.get("after") is None)

    def continue_after(self, batch: BatchLike | None) -> None:
        """Check the first batch that has been read after a resume, and set the random numbers to those after it.

        Args:
            batch: the batch; None: the epoch was over.
        """
        state, self._expected = self._expected, {}
        self._compare(state.get("next"), _digest(batch))
        if state.get("after") is not None:
            self._load_random_numbers(state["after"], is_last=True)

    def _load_random_numbers(self, state: Mapping[str, Any], is_last: bool) -> None:
        """Set all random generators."""
        here = random_generators(self._others)
        try:
            for path, each in here.items():
                if path in state["own_generators"]:
                    set_state(each, state["own_generators"][path])
        except ArgumentError as error:
            raise self._cannot_go_on(str(error)) from error
        if is_last and (missing := sorted(state["own_generators"].keys() - here.keys())):
            raise StateError(
                f"fit: the run under {self._prefix!r} drew random numbers from {', '.join(missing)}, which is missing "
                "here; give fit the same callbacks, metrics and data, or begin anew under another prefix"
            )
        generators.load_state_dict(state["generators"])

    def _read_again(self, count: int, begun: Mapping[str, Any]) -> None:
        """Begin the epoch of an iterator that cannot say where it stands again, and drop batches."""
        if self._start is None or type(self._data).__module__.startswith("dpmodule."):
            raise self._cannot_go_on("it, or an iterator inside of it, does not define state_dict")
        if count:
            _logger.info(
                "%s does not say where it stands: %d batches are read again, to continue after them",
                type(self._data).__name__,
                count,
            )
        self._epoch_start = dict(begun)
        held: Mapping[str, Any] | None = None
        try:
            self._start.load_state_dict(begun)
            if begun["reset"]:
                held = self._start.live()
                self._data.reset()
            if not count:
                self._start.check(begun, held)
        except (ArgumentError, StateError) as error:
            raise self._cannot_go_on(str(error)) from error
        batch = None
        for number in range(count):
            batch = next(self._data, None)
            if batch is None and not number:  # it was at its end when the run began
                self._data.reset()
                batch = next(self._data, None)
            if batch is None:
                raise self._cannot_go_on(
                    f"it gave {number} batches, the run was saved after {count} of an epoch"
                )
        self._check_last(batch)

    def _check_last(self, batch: Any) -> None:
        """Compare the last batch that has been read again with the one that was trained on, if no other will come."""
        if self._expected.get("next") is None:
            self._compare(self._expected["last"], _digest_of_order(batch))

    def _compare(self, before: int | None, now: int | None) -> None:
        if before is not None and now is not None and before != now:
            raise self._cannot_go_on(
                "it gives another batch there than it did before, so its order, or its data, are not the same"
            )

    @property
    def _prefix(self) -> str | None:
        return None if self._found_at is None else self._found_at[0]

    def _cannot_go_on(self, why: str) -> StateError:
        return StateError(
            f"fit: the run under {self._prefix!r} cannot be resumed with this {type(self._data).__name__}: {why}; give "
            "the data that it was trained on, seeded alike, define state_dict and load_state_dict, or begin anew under "
            "another prefix"
        )


def _other_metric(saved: list[dict[str, Any]], here: list[dict[str, Any]]) -> list[str]:
    """Return how a metric differs from the one whose sums have been saved, in words."""
    if equal(saved, here):
        return []
    before, now = (", ".join(str(each["name"]) for each in rows) for rows in (saved, here))
    if before == now:
        before, now = (
            ", ".join(f"{each['class']}({each['arguments']})" for each in rows) for rows in (saved, here)
        )
    return [f"the metric was {before}, is {now}, which can be changed only at the start of an epoch"]


def _says_position(data: DataIter) -> bool:
    try:
        data.state_dict()
    except (NotImplementedError, AttributeError):
        return False
    return True


def _digest(batch: BatchLike | None) -> int | None:
    """Return a number that tells batches apart; None for None."""
    if batch is None:
        return None
    parts: list[Any] = batch if isinstance(batch, list) else [batch]
    return digest([[list(each.data or ()), list(each.label or ())] for each in parts])


def _digest_of_order(batch: BatchLike | None) -> int | None:
    """Return a number that tells batches apart, without random changes of their data, if their labels do."""
    if batch is None:
        return None
    parts: list[Any] = batch if isinstance(batch, list) else [batch]
    labels = [list(each.label or ()) for each in parts]
    constant = all(
        isinstance(each, NDArray) and bool((each.raw == each.raw[:1]).all()) for each in sum(labels, [])
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
    """Return what orders saved states: when their run was begun, and where it stood."""
    with _with_advice(path):
        state = run_file.peek(path)
        if missing := sorted(_REQUIRED_KEYS - state.keys()):
            raise FileFormatError(f"{path}: the state of a run without {', '.join(missing)}")
    return state["started"], state["epoch"], state["nbatch"]


@contextmanager
def _with_advice(path: str) -> Iterator[None]:
    """Let an error about a file say how to go on without it."""
    try:
        yield
    except FileFormatError as error:
        raise FileFormatError(
            f"{error}; to go on from an older state remove the files {path.removesuffix('run')}*, or give another "
            "prefix to begin anew"
        ) from error
