"""Contexts as users give them, made into the ones that modules and executor groups run on."""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from typing import TYPE_CHECKING, Any

import torch

from ...base import ArgumentError
from ...context import Context, context_of, cpu

if TYPE_CHECKING:
    from ..types import ContextsLike, GroupContextsLike


def contexts_of(context: ContextsLike) -> list[Context]:
    """Return one context or several as a list.

    Args:
        context: a Context or torch device, several of them, or None for ``cpu(0)``.
    """
    if context is None:
        return [cpu()]
    found: list[Any] = list(context) if isinstance(context, Iterable) else [context]
    if not found or not all(isinstance(each, (Context, torch.device)) for each in found):
        raise ArgumentError(
            f"context is {context!r}, expected a Context or a list such as [mx.cpu(0), mx.cpu(1)]"
        )
    return [context_of(each) for each in found]


def distinct(contexts: Sequence[Context]) -> list[Context]:
    """Return the contexts with CPU contexts that are named again replaced by ones of other numbers.

    Each CPU context has a thread and random numbers of its own. A GPU named twice runs one executor after the other.
    """
    found: list[Context] = []
    for ctx in contexts:
        if ctx in found and ctx.device_type == "cpu":
            taken = {*contexts, *found}
            ctx = next(each for each in map(cpu, range(len(taken) + 1)) if each not in taken)
        found.append(ctx)
    return found


def per_context(group2ctxs: GroupContextsLike, count: int) -> list[dict[str, Context]]:
    """Return the contexts of groups for each context of a data-parallel group."""
    if not group2ctxs:
        return [{}] * count
    if isinstance(group2ctxs, Mapping):
        lists: dict[str, list[Any]] = {
            k: list(v) if isinstance(v, (list, tuple)) else [v] for k, v in group2ctxs.items()
        }
        lists = {k: v * count if len(v) == 1 else v for k, v in lists.items()}
        wrong = [k for k, v in lists.items() if len(v) != count]
        if wrong:
            raise ArgumentError(
                f"group2ctxs: {', '.join(wrong)} has not one context for each of {count} contexts"
            )
        return [{k: v[i] for k, v in lists.items()} for i in range(count)]
    if len(group2ctxs) != count:
        raise ArgumentError(f"group2ctxs has {len(group2ctxs)} entries for {count} contexts")
    return [dict(each or {}) for each in group2ctxs]


_pools: dict[Context, ThreadPoolExecutor] = {}
_busy_contexts: set[Context] = set()
_lock = threading.Lock()
_forked = False
"""Whether this process was forked and has run no contexts in parallel yet."""


def _forget_pools() -> None:
    """Drop pools whose threads did not survive a fork."""
    global _lock, _forked
    _pools.clear()
    _busy_contexts.clear()
    _lock = threading.Lock()
    _forked = True


def _renew_engine() -> None:
    """Let torch make this process's engine of gradients now.

    A forked process makes its own at the first tensor that is saved for gradients, and two threads that save one at
    the same time make it twice: memory is spoiled, once in a few hundred processes.
    """
    global _forked
    with torch.enable_grad():
        one = torch.ones((), requires_grad=True)
        one * one  # saves a tensor for backward
    _forked = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


def _pool(ctx: Context) -> ThreadPoolExecutor:
    found = _pools.get(ctx)
    if found is None:
        found = _pools[ctx] = ThreadPoolExecutor(
            1, thread_name_prefix=f"dpmodule-{ctx.device_type}{ctx.device_id}"
        )
    return found


def _with_threads(job: Callable[[], None], threads: int) -> None:
    """Run a job with a number of intra-op threads.

    The number is per thread, and a new thread inherits the last one set anywhere; so it is set before every job.
    """
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    job()


def _reserve(contexts: Sequence[Context]) -> bool:
    """Take the threads of all contexts, unless one of them has work already."""
    with _lock:
        if not _busy_contexts.isdisjoint(contexts):
            return False
        _busy_contexts.update(contexts)
        return True


def _release(contexts: Sequence[Context]) -> None:
    with _lock:
        _busy_contexts.difference_update(contexts)


def run_parallel(contexts: Sequence[Context], jobs: Sequence[Callable[[], None]]) -> None:
    """Run one job per context and wait for all.

    CPU contexts run in their own threads; GPU work is launched from this thread, since launching does not wait.
    Jobs never wait for a thread that has work already, which may be waiting for them, as where a user's operator
    runs a module of its own: they run in this thread, one after the other.
    On an error or Ctrl-C the running jobs are awaited first; the first error keeps its type and traceback.

    Args:
        contexts: one per job; CPU contexts that are equal take turns.
    """
    if len(jobs) == 1 or any(ctx.device_type == "gpu" for ctx in contexts) or not _reserve(contexts):
        for job in jobs:
            job()
        return
    try:
        _run_in_threads(contexts, jobs)
    finally:
        _release(contexts)


def run_between(contexts: Sequence[Context], job: Callable[[], None]) -> None:
    """Run a job in this thread, between two runs of the contexts, with as many threads as each of them has.

    Were there more, they would go on spinning for a while on the cores that the contexts need next.
    """
    before = torch.get_num_threads()
    share = max(1, before // len(contexts))
    if share == before or any(ctx.device_type == "gpu" for ctx in contexts):
        job()
        return
    torch.set_num_threads(share)
    try:
        job()
    finally:
        torch.set_num_threads(before)


def _run_in_threads(contexts: Sequence[Context], jobs: Sequence[Callable[[], None]]) -> None:
    if _forked:
        _renew_engine()
    before = torch.get_num_threads()
    share = max(1, before // len(jobs))
    futures: list[Future[None]] = [
        _pool(ctx).submit(_with_threads, job, share) for ctx, job in zip(contexts, jobs)
    ]
    try:
        wait(futures)
    except BaseException:
        wait(futures)
        raise
    finally:
        if torch.get_num_threads() != before:
            torch.set_num_threads(before)
    for future in futures:
        future.result()
