"""The errors that tell how a child process ended, or where it hung."""

from __future__ import annotations

import signal

from .child_resources import Ends
from .errors import WorkerDied, WorkerStuck


def death(who: str, index: int, name: str, ends: Ends) -> WorkerDied:
    """Return the error for a child that has ended without an exception of its own."""
    code, doing = ends.exitcode, ends.note.read()
    text = f"{who} {_manner(code)}" + (f" while working on {doing}" if doing else "")
    if code == -signal.SIGKILL:
        text += "; if nobody killed it, the system did, for want of memory"
    elif not ends.note.begun():
        text += " before it had begun; what it wrote to standard error may say why"
    if stacks := ends.note.stacks():
        text += f"\n{stacks}"
    error = WorkerDied(text)
    error.index, error.name, error.pid, error.exitcode = index, name, ends.pid, code
    return error


def hanging(who: str, how: str, doing: str, state: str, stack: str, begun: bool) -> WorkerStuck:
    """Return the error for a child that has been killed because it hung.

    Args:
        state: the system's letter for its state before it was asked for its stack.
    """
    text = f"{who} {how}" + (f", working on {doing}" if doing else "")
    if state == "T":
        text += "; it was stopped by a signal"
    if stack:
        shown = f"Its stack:\n{stack}"
    elif begun:
        shown = "It showed no stack"
    else:
        shown = "It had not begun yet: it was still starting and importing"
    return WorkerStuck(f"{text}; it has been killed. {shown}")


def _manner(code: int | None) -> str:
    """Say how a process ended."""
    if code is None:
        return "ended; other code took its exit status"
    if code >= 0:
        return f"ended by itself with exit code {code}"
    try:
        return f"was killed by {signal.Signals(-code).name}"
    except ValueError:
        return f"was killed by signal {-code}"
