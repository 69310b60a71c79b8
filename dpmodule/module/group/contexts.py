"""Contexts of modules and executor groups, and threads that run them in parallel."""

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
    """Return a context or contexts as a list.

    Args:
        context: a Context or torch device, several of them, or None for ``cpu(0)``.
    """
    if context is None:
        return [cpu()]
    contexts: list[Any] = list(context) if isinstance(context, Iterable) else [context]
    if not contexts or not all(isinstance(ctx, (Context, torch.device)) for ctx in contexts):
        raise ArgumentError(
            f"context is {context!r}, expected a Context or a list such as [mx.cpu(0), mx.cpu(1)]"
        )
    return [context_of(ctx) for ctx in contexts]


def distinct(contexts: Sequence[Context]) -> list[Context]:
    """Return the contexts with repeated CPU contexts replaced by ones with unused numbers.

    Each CPU context has its own thread and random numbers. A repeated GPU runs its executors in sequence.
    """
    unique: list[Context] = []
    for ctx in contexts:
        if ctx in unique and ctx.device_type == "cpu":
            taken = {*contexts, *unique}
            ctx = next(new for new in map(cpu, range(len(taken) + 1)) if new not in taken)
        unique.append(ctx)
    return unique


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
                f"group2ctxs: {', '.join(wrong)} must have one context for each of {count} contexts"
            )
        return [{k: v[i] for k, v in lists.items()} for i in range(count)]
    if len(group2ctxs) != count:
        raise ArgumentError(f"group2ctxs has {len(group2ctxs)} entries for {count} contexts")
    return [dict(each or {}) for each in group2ctxs]


_pools: dict[Context, ThreadPoolExecutor] = {}
_busy_contexts: set[Context] = set()
_lock = threading.Lock()
_forked = False
"""True if this process was forked and has not run contexts in parallel yet."""


def _forget_pools() -> None:
    """Drop pools whose threads did not survive a fork."""
    global _lock, _forked
    _pools.clear()
    _busy_contexts.clear()
    _lock = threading.Lock()
    _forked = True


def _renew_engine() -> None:
    """Make torch create the autograd engine of this process.

    A forked process creates it when the first tensor is saved for backward. Two threads that do so at the same time
    create it twice, which corrupts memory in one of a few hundred processes.
    """
    global _forked
    with torch.enable_grad():
        one = torch.ones((), requires_grad=True)
        one * one  # saves a tensor for backward
    _forked = False


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forget_pools)


def _pool(ctx: Context) -> ThreadPoolExecutor:
    pool = _pools.get(ctx)
    if pool is None:
        pool = _pools[ctx] = ThreadPoolExecutor(
            1, thread_name_prefix=f"dpmodule-{ctx.device_type}{ctx.device_id}"
        )
    return pool


def _with_threads(job: Callable[[], None], threads: int) -> None:
    """Run a job with a number of intra-op threads.

    Each thread has its own number, and a new thread inherits the last one set anywhere; so every job sets it.
    """
    if torch.get_num_threads() != threads:
        torch.set_num_threads(threads)
    job()


def _reserve(contexts: Sequence[Context]) -> bool:
    """Reserve the threads of all contexts; return False if one of them is busy."""
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
    If the thread of a context is busy, jobs run in this thread in sequence, since that thread may be waiting for them,
    as when a user-defined operator runs a module.
    On an error or Ctrl-C the running jobs are awaited first; the first error keeps its type and traceback.

    Args:
        contexts: one per job; jobs of equal CPU contexts run in sequence.
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
    """Run a job in this thread, between two runs of the contexts, with as many threads as each context has.

    Further threads would keep spinning on the cores that the contexts need next.
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
