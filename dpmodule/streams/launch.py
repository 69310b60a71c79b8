"""Start a process: the one place that calls `multiprocessing`."""

from __future__ import annotations

import contextlib
import io
import multiprocessing
import multiprocessing.context
import multiprocessing.process
import multiprocessing.spawn
import os
import pickletools
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from multiprocessing import reduction, resource_tracker
from multiprocessing.process import BaseProcess
from typing import Any

from .._devices import shared_memory
from ..base import ArgumentError, StateError
from . import child
from .child import START, Link, Passed
from .crash_note import state_of
from .errors import UnpicklableError, WorkerDied, WorkerStuck
from .messages import Message, pack

_STOPPED_S = 5.0
"""How long the server may be stopped (SIGSTOP) while a process is started, in seconds."""

_LOOK_S = 0.2
_END_S = 5.0


@contextlib.contextmanager
def watched(worker: str, timeout_s: float) -> Iterator[None]:
    """Raise if the fork server does not answer, or dies, while it starts a process: `multiprocessing` only waits.

    Args:
        timeout_s: how long it may take, in seconds.
    """
    over, reasons = threading.Event(), list[str]()

    def watch() -> None:
        waited = stopped = 0.0  # in looks, as this process may itself have been stopped for a while
        while not over.wait(_LOOK_S):
            pid = _server_pid()
            waited += _LOOK_S
            stopped = stopped + _LOOK_S if _is_stopped(pid) else 0.0
            if pid is not None and (waited > timeout_s or stopped > _STOPPED_S):
                how = "is stopped" if stopped else f"did not answer within {timeout_s:g} s"
                reasons.append(f"the fork server (pid {pid}) {how}")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # ends the wait for it
                return

    watcher = threading.Thread(target=watch, name="dpmodule-forkserver-watch", daemon=True)
    watcher.start()
    try:
        yield
    except (EOFError, ConnectionError) as error:
        _await_end(_server_pid())
        if reasons:
            raise WorkerStuck(
                f"{worker} could not be started: {reasons[0]} and has been killed; the next start makes a new one"
            ) from error
        raise WorkerDied(
            f"{worker} could not be started: the fork server died meanwhile; the next start makes a new one"
        ) from error
    finally:
        over.set()
        watcher.join()


def _server_pid() -> int | None:
    from multiprocessing import forkserver  # its import starts nothing, but few programs need it

    server: Any = forkserver._forkserver
    pid: int | None = server._forkserver_pid
    return pid


def _await_end(pid: int | None) -> None:
    """Wait for a server to be gone that has closed its connections, so that the next start does not ask it again."""
    deadline = time.monotonic() + _END_S
    while pid is not None and state_of(pid) not in ("", "X", "Z") and time.monotonic() < deadline:
        time.sleep(0.001)


def _is_stopped(pid: int | None) -> bool:
    return pid is not None and state_of(pid) == "T"


def let_continue() -> None:
    """Let a fork server that is stopped go on: it alone tells how its children ended."""
    pid = _server_pid() if "multiprocessing.forkserver" in sys.modules else None
    if pid is not None and _is_stopped(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def forget(process: BaseProcess) -> None:
    """Keep the interpreter from waiting, when it exits, for a process whose end nobody tells."""
    multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]


START_METHODS = ("spawn", "fork", "forkserver")

START_S = 60.0
"""How long a process that is not forked may take to start and import torch on a busy machine, in seconds."""

_MAIN_KEYS = ("init_main_from_name", "init_main_from_path")
_hiding = threading.RLock()
_preloaded = ["__main__", child.__name__]
_chosen: list[list[str]] = []


def check_start_method(method: str) -> str:
    """Return the name of a way to start processes if the system has it."""
    known = [each for each in START_METHODS if each in multiprocessing.get_all_start_methods()]
    if method not in known:
        raise ArgumentError(f"start_method is {method!r}, expected one of {', '.join(known)}")
    return method


def check_not_importing_main() -> None:
    """Refuse to start processes from a main program that a child is importing."""
    if child.importing_main():
        raise StateError(
            "a child process was to be started while its own parent's main file is being imported: put what starts "
            'processes under: if __name__ == "__main__":'
        )


class _Collector:
    """Takes multiprocessing's part of a process being started, so that what only such a one gets can be pickled."""

    DupFd = Passed

    def __init__(self) -> None:
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        """Note a descriptor that the child needs; returns its position."""
        self.fds.append(fd)
        return len(self.fds) - 1


def _dumps(value: Any) -> tuple[bytes, list[int], object]:
    """Pickle for a child; tensors are moved to shared memory, as torch.multiprocessing does.

    Returns:
        The pickle, the descriptors it needs, and what keeps these open: the pickler, which holds all it has pickled,
        also what was made for that alone.
    """
    collector, buffer = _Collector(), io.BytesIO()
    pickler = reduction.ForkingPickler(buffer)
    before = multiprocessing.context.get_spawning_popen()
    multiprocessing.context.set_spawning_popen(collector)  # type: ignore[arg-type]
    try:
        pickler.dump(value)
        return buffer.getvalue(), collector.fds, pickler
    finally:
        multiprocessing.context.set_spawning_popen(before)


def pack_target(target: Callable[..., Any], args: tuple[Any, ...]) -> Message:
    """Make the message that tells a spawned child what to run."""
    try:
        data, fds, kept = _dumps((target, args))
    except MemoryError:
        raise
    except Exception as error:  # whatever the objects' own code raises
        if shared_memory.is_out_of_memory(error):
            raise shared_memory.out_of_memory_error(f"the arguments of {_name(target)}") from error
        raise UnpicklableError(_explain(target, args, error)) from error
    main = _main_for(target, data)
    message = pack(START, (main, data), fds=fds)
    message.kept = kept
    return message


def _explain(target: Callable[..., Any], args: tuple[Any, ...], error: Exception) -> str:
    named = [(f"the function {_name(target)}", target)]
    named += [(f"argument {i} of {_name(target)}, {_short(each)},", each) for i, each in enumerate(args)]
    culprits = [what for what, value in named if not _can_dump(value)]
    what = " and ".join(culprits) or f"{_name(target)} with its arguments"
    return (
        f"{what} cannot be given to another process: {error}. Functions and classes have to be defined at the top "
        "level of a module (no lambda, nothing inside a function); what cannot be pickled, such as open files, has to "
        'be made in the child. With start_method="fork" nothing is pickled'
    )


def _can_dump(value: Any) -> bool:
    try:
        _dumps(value)
    except Exception:  # whatever the object's own code raises
        return False
    return True


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or _short(function))


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # whatever its own code raises
        text = type(value).__qualname__
    return text if len(text) <= 60 else f"a {type(value).__qualname__}"


def _main_for(target: Callable[..., Any], data: bytes) -> dict[str, Any] | None:
    """Return how the child imports the main program, None where it need not.

    Only what mentions the main program needs it: others work from scripts without a guard, too.
    """
    if not _mentions_main(data):
        return None
    prepared = multiprocessing.spawn.get_preparation_data("")
    main = {key: prepared[key] for key in _MAIN_KEYS if key in prepared}
    path = main.get("init_main_from_path")
    if not main or (path is not None and not os.path.exists(path)):
        raise UnpicklableError(
            f"{_name(target)} or one of its arguments is defined in the main program, which other processes cannot "
            "import, since it has no file (python -c, standard input, a notebook): move it into a module, or use "
            'start_method="fork"'
        )
    return main


def _mentions_main(data: bytes) -> bool:
    names = ("__main__", "__mp_main__")
    if not any(name.encode() in data for name in names):
        return False
    words = (str(arg).split(" ")[0] for _, arg, _ in pickletools.genops(data) if isinstance(arg, str))
    return any(word in names for word in words)


def launch(
    method: str,
    link: Link,
    target: Callable[..., Any],
    args: tuple[Any, ...],
    timeout_s: float = START_S,
) -> BaseProcess:
    """Start the process of a child.

    Args:
        timeout_s: how long the fork server may take to start it, in seconds.
    """
    context: Any = multiprocessing.get_context(method)
    given = (link, target, args) if method == "fork" else (link,)
    # not a daemon: a worker may start processes of its own, such as a DataLoader's
    process: BaseProcess = context.Process(target=child.run, args=given, name=link.name, daemon=False)
    if method == "fork":
        with _without_interrupts():
            process.start()
        return process
    if method == "forkserver":
        _prepare_forkserver()
        try:
            _start(process, watched(_worker(link), timeout_s))
        except WorkerDied:  # it may have been killed before, and just not been gone: the next one is new
            _start(process, watched(_worker(link), timeout_s))
    else:
        _start(process, contextlib.nullcontext())
    return process


def _worker(link: Link) -> str:
    return f"worker {link.index} {link.name!r}"


def _start(process: BaseProcess, watch: contextlib.AbstractContextManager[None]) -> None:
    resource_tracker.ensure_running()
    with _hiding, watch, _hidden_main(), _without_interrupts():
        process.start()


def preload(module: str) -> None:
    """Have the server that children of "forkserver" come from import a module, should it not have been started yet.

    Args:
        module: name of a module that all these children need; importing it starts no thread.
    """
    if module not in _preloaded:
        _preloaded.append(module)


def _prepare_forkserver() -> None:
    """Have the server import torch once, rather than every child, unless the program has made its own choice."""
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver
    if getattr(server, "_preload_modules", None) in (["__main__"], *_chosen):
        forkserver.set_forkserver_preload(list(_preloaded))
        _chosen[:] = [list(_preloaded)]


def _renew_lock() -> None:
    global _hiding
    _hiding = threading.RLock()  # a thread that a forked child does not have may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@contextlib.contextmanager
def _without_interrupts() -> Iterator[None]:
    """Keep Ctrl-C from a child that is not yet ready to ignore it: it begins with the signals its parent blocks."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    """Keep multiprocessing from importing the main program in the child; `child` does that where it is needed."""
    main: Any = sys.modules["__main__"]
    kept = {name: vars(main)[name] for name in ("__file__", "__spec__") if name in vars(main)}
    if "__file__" in kept:
        del main.__file__
    if "__spec__" in kept:
        main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update(kept)
