"""Nested structures of tensors from one process to another, without copies where they lie in shared memory.

A pipe has a fixed number of slots, each a block of shared memory that one message fills. The writer copies a structure
into a free slot, or fills it in place; the reader gets tensors that lie in the slot. When the last of them is gone, the
slot is free again; while none is, the writer waits. Processes at the two ends trust each other: they belong to one job.
"""

from __future__ import annotations

import contextlib
import os

from ...base import ArgumentError
from ..errors import refused
from . import backend
from . import control as c
from .connection import Parts
from .control import PipeFrames
from .end import introduce
from .reader import TensorPipeReader as TensorPipeReader
from .writer import PipeStats as PipeStats
from .writer import TensorPipeWriter as TensorPipeWriter


def tensor_pipe(slots: int = 2, slack: float = 1.5) -> tuple[TensorPipeReader, TensorPipeWriter]:
    """Make a pipe for nested structures of tensors; either end may be given to another process.

    An end belongs to the process that first uses it. A forked child simply uses its copy; to a spawned one the end is
    passed as an argument of `multiprocessing.Process`. Both ends may also stay in one process.

    Args:
        slots: how many messages may be on the way or in use by the reader, 1 to 64. With 2 the writer fills one while
            the other is read. With 1 it waits until the reader has let go of the last message: the reader must drop
            it before it asks for the next one, so that a loop needs a ``del value`` at its end.
        slack: a leaf that has outgrown its place gets this many times the bytes it needs, at least 1.

    Raises:
        ArgumentError: `slots` or `slack` is out of range.
        FileError: the system has too few descriptors left; a pipe needs 9 in all, of which 4 serve either end.

    Example:
        >>> import torch
        >>> reader, writer = tensor_pipe()
        >>> writer.send({"data": torch.arange(3), "label": None})
        >>> reader.recv()
        {'data': tensor([0, 1, 2]), 'label': None}
        >>> writer.close()
        >>> list(reader)
        []
        >>> reader.close()
    """
    if type(slots) is not int or not 1 <= slots <= c.MAX_SLOTS:
        raise ArgumentError(f"slots must be an int in 1..{c.MAX_SLOTS}, got {slots!r}")
    if not isinstance(slack, (int, float)) or not 1.0 <= slack <= 16.0:
        raise ArgumentError(f"slack must be a number in 1..16, got {slack!r}")
    try:
        reader, writer = _ends(slots, float(slack))
    except OSError as error:
        raise refused("a tensor pipe", error) from error
    introduce(reader, writer)
    return reader, writer


def _ends(slots: int, slack: float) -> tuple[TensorPipeReader, TensorPipeWriter]:
    # either end owns its descriptors once it exists; until then they are closed here if something fails
    with contextlib.ExitStack() as left, contextlib.ExitStack() as right:
        control = c.Control.create(backend.protocol(), slots)
        left.callback(os.close, control)
        data = left.enter_context(contextlib.closing(c.Signal.create()))
        credit = left.enter_context(contextlib.closing(c.Signal.create()))
        near, far = c.socket_pair()
        left.enter_context(near)
        right.enter_context(far)
        own = right.enter_context(contextlib.closing(credit.copy()))
        other = right.enter_context(contextlib.closing(data.copy()))
        copy = os.dup(control)
        right.callback(os.close, copy)
        reader = TensorPipeReader(Parts(control, data, credit, PipeFrames(near)))
        left.pop_all()
        writer = TensorPipeWriter(Parts(copy, own, other, PipeFrames(far)), slack)
        right.pop_all()
    return reader, writer
