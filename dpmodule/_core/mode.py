"""Training, recording and shape-meaning flags of the current thread.

Operators read `is_training`; `autograd.record()` and executors set it.
"""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager


class _Flags(threading.local):
    recording = False
    training = False
    np_shape = False
    carried = False


_flags = _Flags()


def is_recording() -> bool:
    """Return True if operations of this thread are being recorded for differentiation."""
    return _flags.recording


def is_training() -> bool:
    """Return True if operations of this thread run in training mode (dropout and batch statistics on)."""
    return _flags.training


def set_recording(on: bool) -> bool:
    """Set the recording flag and return its former value.

    Args:
        on: True to record operators from now on, in this thread.
    """
    before, _flags.recording = _flags.recording, bool(on)
    return before


def set_training(on: bool) -> bool:
    """Set the training flag and return its former value.

    Args:
        on: True to run operators in training mode from now on, in this thread.
    """
    before, _flags.training = _flags.training, bool(on)
    return before


def is_np_shape() -> bool:
    """Return True if a 0 in a shape means "empty" (NumPy) rather than "unknown" (old MXNet)."""
    return _flags.np_shape


def set_np_shape(on: bool) -> bool:
    """Set the shape-meaning flag and return its former value."""
    before, _flags.np_shape = _flags.np_shape, bool(on)
    return before


@contextmanager
def np_shapes(on: bool) -> Iterator[None]:
    """Use NumPy's meaning of shapes inside a ``with`` block if `on`; otherwise that of the thread."""
    before, _flags.np_shape = _flags.np_shape, _flags.np_shape or on
    try:
        yield
    finally:
        _flags.np_shape = before


def has_float_integers() -> bool:
    """Return True while integers with a gradient are computed as float64 numbers."""
    return _flags.carried


@contextmanager
def float_integers() -> Iterator[None]:
    """Compute integers as float64 numbers inside a ``with`` block, so that torch propagates gradients."""
    before, _flags.carried = _flags.carried, True
    try:
        yield
    finally:
        _flags.carried = before


@contextmanager
def scope(recording: bool | None = None, training: bool | None = None) -> Iterator[None]:
    """Set the flags inside a ``with`` block; None leaves a flag as it is."""
    before = _flags.recording, _flags.training
    if recording is not None:
        _flags.recording = recording
    if training is not None:
        _flags.training = training
    try:
        yield
    finally:
        _flags.recording, _flags.training = before
