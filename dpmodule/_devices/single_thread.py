"""`single_thread`: torch operations without OpenMP's threads, so that the process can still fork."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch operations in the calling thread alone.

    OpenMP starts its threads at the first large operation. A process that is forked later lacks them and waits for
    them forever. Filling and copying parameters gains little from more threads, so it runs in one, and a server can
    load its networks before it forks. Also a decorator.

    It sets torch's number of threads for the calling thread; a thread started meanwhile inherits it.
    """
    before = torch.get_num_threads()
    if before == 1:
        yield
        return
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)
