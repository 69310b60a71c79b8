"""`single_thread`: torch operations without OpenMP's threads, so that a process can still fork afterwards."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch


@contextmanager
def single_thread() -> Iterator[None]:
    """Run torch operations in the calling thread alone.

    OpenMP starts its threads at the first large operation, and a process that is forked later does not have them: it
    waits for them forever. What only fills and copies parameters gains little from more threads, so it runs in one, and
    a server can load its networks before it forks. Also a decorator.

    The number of threads is torch's, of the calling thread; one that starts in between would inherit it.
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
