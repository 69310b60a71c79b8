"""Threads ask for the extension at once, before it has been loaded: one of them loads it."""

import importlib.util
import threading
import time
from concurrent.futures import ThreadPoolExecutor

from dpmodule import native

find, looking, start = importlib.util.find_spec, [], threading.Barrier(4)


def slow(name, *rest):
    """Take time; Python's own fails where another thread has begun to load the module."""
    looking.append(name)
    time.sleep(0.05)
    return find(name, *rest)


def ask(_):
    start.wait()
    return native.core


importlib.util.find_spec = slow
with ThreadPoolExecutor(4) as executor:
    found = list(executor.map(ask, range(4)))
assert looking == ["dpmodule._native"], looking
assert len(set(map(id, found))) == 1, found
