"""Tensor pipes on both cores, children to use them in, and structures to send."""

import collections
import contextlib
import dataclasses
import os
import signal
import time
import traceback
import warnings

import pytest
import torch
from hypothesis import strategies as st

from dpmodule.streams import tensor_pipe
from dpmodule.streams.pipe import backend, control

PROTOCOLS = {control.NATIVE: "native", control.PYTHON: "python"}
if backend.protocol() != control.NATIVE:
    del PROTOCOLS[control.NATIVE]


@dataclasses.dataclass
class Pair:
    left: object
    right: object


@dataclasses.dataclass(frozen=True, slots=True)
class Frozen:
    value: object


class Named(collections.namedtuple("Named", "x y")):
    __slots__ = ()


def structures(leaves, most):
    """Return a strategy of nested structures of so many leaves at most."""
    keys = st.text(max_size=3) | st.integers(-3, 3)

    def wider(inner):
        lists, dicts = st.lists(inner, max_size=3), st.dictionaries(keys, inner, max_size=3)
        pairs = [st.builds(kind, inner, inner) for kind in (Pair, Named)]
        plain = lists, lists.map(tuple), dicts, dicts.map(collections.OrderedDict)
        return st.one_of(*plain, *pairs, st.builds(Frozen, inner))

    return st.recursive(leaves, wider, max_leaves=most)


def make(core, slots=2, **options):
    """Make a pipe that uses one of the cores."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(backend, "protocol", lambda: core)
        return tensor_pipe(slots=slots, **options)


@contextlib.contextmanager
def pipe(core, slots=2, **options):
    """A pipe that is closed afterwards."""
    reader, writer = make(core, slots, **options)
    try:
        yield reader, writer
    finally:
        writer.close()
        reader.close()


class Child:
    """A forked child that runs a function and ends with 0, or with 1 if that raises."""

    def __init__(self, function):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)  # that other threads are not forked
            self.pid = os.fork()
        if self.pid == 0:
            status = 1
            try:
                torch.set_num_threads(1)
                signal.alarm(60)
                function()
                status = 0
            except BaseException:
                traceback.print_exc()
            finally:
                os._exit(status)

    def ok(self):
        """Wait for its end; whether the function returned."""
        return os.waitpid(self.pid, 0)[1] == 0

    def kill(self):
        os.kill(self.pid, signal.SIGKILL)
        return time.monotonic()

    def reap(self):
        os.waitpid(self.pid, 0)


def same(a, b):
    """Whether two structures are equal, types, dtypes and all."""
    if isinstance(a, torch.Tensor):
        alike = isinstance(b, torch.Tensor) and (a.dtype, a.shape) == (b.dtype, b.shape)
        return alike and equal(a.detach(), b)
    if a is None:
        return b is None
    if type(a) is not type(b):
        return False
    if isinstance(a, dict):
        return list(a) == list(b) and all(same(a[key], b[key]) for key in a)
    if isinstance(a, (list, tuple)):
        return len(a) == len(b) and all(map(same, a, b))
    return all(same(getattr(a, field.name), getattr(b, field.name)) for field in dataclasses.fields(a))


def equal(a, b):
    """Whether two tensors have the same bits."""
    a, b = (t.resolve_conj().resolve_neg().clone(memory_format=torch.contiguous_format) for t in (a, b))
    return torch.equal(a.reshape(-1).view(torch.uint8), b.reshape(-1).view(torch.uint8))
