"""Starting processes through `multiprocessing`."""

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
from .child import START, ChildStart, PassedDescriptor
from .errors import UnpicklableError, WorkerDied, WorkerStuck
from .messages import Message, pack
from .worker_status import process_state

_STOPPED_S = 5.0
"""Most seconds that the server may be stopped (SIGSTOP) while it starts a process."""

_POLL_S = 0.2
_END_S = 5.0


@contextlib.contextmanager
def fork_server_watchdog(worker: str, timeout_s: float) -> Iterator[None]:
    """Raise if the fork server dies or does not answer while it starts a process: `multiprocessing` only waits.

    Args:
        timeout_s: most seconds for the start.
    """
    over, reasons = threading.Event(), list[str]()

    def watch() -> None:
        waited = stopped = 0.0  # counts polls, as this process may have been stopped for a while
        while not over.wait(_POLL_S):
            pid = _server_pid()
            waited += _POLL_S
            stopped = stopped + _POLL_S if _is_stopped(pid) else 0.0
            if pid is not None and (waited > timeout_s or stopped > _STOPPED_S):
                how = "is stopped" if stopped else f"did not answer within {timeout_s:g} s"
                reasons.append(f"the fork server (pid {pid}) {how}")
                with contextlib.suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)  # ends the wait
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
            f"{worker} could not be started: the fork server died; the next start makes a new one"
        ) from error
    finally:
        over.set()
        watcher.join()


def _server_pid() -> int | None:
    from multiprocessing import forkserver  # few programs need it

    server: Any = forkserver._forkserver
    pid: int | None = server._forkserver_pid
    return pid


def _await_end(pid: int | None) -> None:
    """Wait for a server that has closed its connections to end, so that the next start makes a new one."""
    deadline = time.monotonic() + _END_S
    while pid is not None and process_state(pid) not in ("", "X", "Z") and time.monotonic() < deadline:
        time.sleep(0.001)


def _is_stopped(pid: int | None) -> bool:
    return pid is not None and process_state(pid) == "T"


def resume_fork_server() -> None:
    """Resume a stopped fork server: only it knows the exit status of its children."""
    pid = _server_pid() if "multiprocessing.forkserver" in sys.modules else None
    if pid is not None and _is_stopped(pid):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)


def forget_process(process: BaseProcess) -> None:
    """Keep the interpreter from waiting at exit for a process whose end is never reported."""
    multiprocessing.process._children.discard(process)  # type: ignore[attr-defined]


START_METHODS = ("spawn", "fork", "forkserver")

START_S = 60.0
"""Most seconds for a process that is not forked to start and import torch on a busy machine."""

_MAIN_KEYS = ("init_main_from_name", "init_main_from_path")
_hiding = threading.RLock()
_preloaded = ["__main__", child.__name__]
_chosen: list[list[str]] = []


def check_start_method(method: str) -> str:
    """Return the name of a start method, or raise ArgumentError if the system lacks it."""
    known = [name for name in START_METHODS if name in multiprocessing.get_all_start_methods()]
    if method not in known:
        raise ArgumentError(f"start_method is {method!r}, expected one of {', '.join(known)}")
    return method


def check_not_importing_main() -> None:
    """Raise StateError if a child is importing the main program that starts processes."""
    if child.importing_main():
        raise StateError(
            "a child process must not start processes while it imports its parent's main file: put the code that "
            'starts processes under: if __name__ == "__main__":'
        )


class _DescriptorCollector:
    """Replacement of multiprocessing's process object while a child's arguments are pickled."""

    DupFd = PassedDescriptor

    def __init__(self) -> None:
        self.fds: list[int] = []

    def duplicate_for_child(self, fd: int) -> int:
        """Record a descriptor that the child needs, and return its position."""
        self.fds.append(fd)
        return len(self.fds) - 1


def _dumps(value: Any) -> tuple[bytes, list[int], object]:
    """Pickle a value for a child, moving tensors to shared memory as torch.multiprocessing does.

    Returns:
        The pickle, the descriptors it needs, and the pickler, which keeps them open.
    """
    collector, buffer = _DescriptorCollector(), io.BytesIO()
    pickler = reduction.ForkingPickler(buffer)
    before = multiprocessing.context.get_spawning_popen()
    multiprocessing.context.set_spawning_popen(collector)  # type: ignore[arg-type]
    try:
        pickler.dump(value)
        return buffer.getvalue(), collector.fds, pickler
    finally:
        multiprocessing.context.set_spawning_popen(before)


def pack_target(target: Callable[..., Any], args: tuple[Any, ...]) -> Message:
    """Return the message with the function and arguments of a spawned child."""
    try:
        data, fds, pickler = _dumps((target, args))
    except MemoryError:
        raise
    except Exception as error:  # raised by the objects' own code
        if shared_memory.is_out_of_memory(error):
            raise shared_memory.out_of_memory_error(f"the arguments of {_name(target)}") from error
        raise UnpicklableError(_unpicklable_text(target, args, error)) from error
    main = _main_for(target, data)
    message = pack(START, (main, data), fds=fds)
    message.kept = pickler
    return message


def _unpicklable_text(target: Callable[..., Any], args: tuple[Any, ...], error: Exception) -> str:
    candidates = [(f"the function {_name(target)}", target)]
    candidates += [(f"argument {i} of {_name(target)}, {_short(arg)},", arg) for i, arg in enumerate(args)]
    culprits = [what for what, value in candidates if not _can_dump(value)]
    what = " and ".join(culprits) or f"{_name(target)} with its arguments"
    return (
        f"{what} cannot be passed to another process: {error}. Define functions and classes at the top level of a "
        "module (not as a lambda, not inside a function), and make what cannot be pickled, such as open files, in the "
        'child. With start_method="fork" nothing is pickled'
    )


def _can_dump(value: Any) -> bool:
    try:
        _dumps(value)
    except Exception:  # raised by the object's own code
        return False
    return True


def _name(function: Any) -> str:
    return str(getattr(function, "__qualname__", None) or _short(function))


def _short(value: Any) -> str:
    try:
        text = repr(value)
    except Exception:  # raised by its own code
        text = type(value).__qualname__
    return text if len(text) <= 60 else f"a {type(value).__qualname__}"


def _main_for(target: Callable[..., Any], data: bytes) -> dict[str, Any] | None:
    """Return the data with which the child imports the main program; None if the pickle does not refer to it.

    Programs whose pickles do not refer to the main program work without a guard.
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
    start: ChildStart,
    target: Callable[..., Any],
    args: tuple[Any, ...],
    timeout_s: float = START_S,
) -> BaseProcess:
    """Start the process of a child and return it.

    Args:
        timeout_s: most seconds for the fork server to start it.
    """
    context: Any = multiprocessing.get_context(method)
    child_args = (start, target, args) if method == "fork" else (start,)
    # not a daemon: a worker may start processes of its own, such as a DataLoader's
    process: BaseProcess = context.Process(target=child.run, args=child_args, name=start.name, daemon=False)
    if method == "fork":
        with without_interrupts():
            process.start()
        return process
    if method == "forkserver":
        _prepare_forkserver()
        try:
            _start(process, fork_server_watchdog(_worker(start), timeout_s))
        except WorkerDied:  # the old server may have been dying: try a new one
            _start(process, fork_server_watchdog(_worker(start), timeout_s))
    else:
        _start(process, contextlib.nullcontext())
    return process


def _worker(start: ChildStart) -> str:
    return f"worker {start.index} {start.name!r}"


def _start(process: BaseProcess, watch: contextlib.AbstractContextManager[None]) -> None:
    resource_tracker.ensure_running()
    with _hiding, watch, _hidden_main(), without_interrupts():
        process.start()


def preload(module: str) -> None:
    """Have the fork server import a module, if the server has not been started yet.

    Args:
        module: name of a module that all its children need; importing it must not start threads.
    """
    if module not in _preloaded:
        _preloaded.append(module)


def _prepare_forkserver() -> None:
    """Have the server import torch once for all children, unless the program has set its own modules."""
    from multiprocessing import forkserver

    server: Any = forkserver._forkserver
    if getattr(server, "_preload_modules", None) in (["__main__"], *_chosen):
        forkserver.set_forkserver_preload(list(_preloaded))
        _chosen[:] = [list(_preloaded)]


def _renew_lock() -> None:
    global _hiding
    _hiding = threading.RLock()  # a thread that the forked child lacks may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)


@contextlib.contextmanager
def without_interrupts() -> Iterator[None]:
    """Block Ctrl-C until the child ignores it: a child starts with its parent's blocked signals."""
    before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT})
    try:
        yield
    finally:
        signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def _hidden_main() -> Iterator[None]:
    """Keep multiprocessing from importing the main program in the child; `child` does so if needed."""
    main: Any = sys.modules["__main__"]
    hidden = {name: vars(main)[name] for name in ("__file__", "__spec__") if name in vars(main)}
    if "__file__" in hidden:
        del main.__file__
    if "__spec__" in hidden:
        main.__spec__ = None
    try:
        yield
    finally:
        vars(main).update(hidden)
