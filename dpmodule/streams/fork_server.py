"""The server that processes of "forkserver" come from, when it is stopped or killed."""

from __future__ import annotations

import contextlib
import multiprocessing.process
import os
import signal
import sys
import threading
import time
from collections.abc import Iterator
from multiprocessing.process import BaseProcess
from typing import Any

from .crash_note import state_of
from .errors import WorkerDied, WorkerStuck

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
