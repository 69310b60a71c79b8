"""Sequences as symbols: one symbol with an axis of time steps, or a list with one symbol for each step."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from .. import symbol as sym
from ..base import ArgumentError
from ..symbol import Symbol

Steps = Symbol | list[Symbol]
"""A sequence in either form."""


def time_axis(layout: str) -> int:
    """Return the axis of time steps.

    Args:
        layout: one letter per axis, T for time steps and N for the batch first in either order: NTC, TNC, NTCHW.
    """
    if not isinstance(layout, str) or layout[:2] not in ("NT", "TN"):
        raise ArgumentError(f"layout is {layout!r}, expected 'NTC' (batch first) or 'TNC' (time first)")
    return layout.index("T")


def as_list(length: int, inputs: Symbol | Iterable[Symbol], axis: int) -> list[Symbol]:
    """Return a sequence as one symbol for each step.

    Args:
        length: number of steps.
        axis: axis of time steps of a merged one.
    """
    if isinstance(length, bool) or not isinstance(length, int) or length < 1:
        raise ArgumentError(f"length is {length!r}, expected a number of steps from 1")
    if isinstance(inputs, Symbol):
        return list(sym.split(_single(inputs), axis=axis, num_outputs=length, squeeze_axis=1))
    steps = list(inputs)
    if len(steps) != length or not all(isinstance(step, Symbol) for step in steps):
        raise ArgumentError(
            f"inputs has {len(steps)} steps ({', '.join(type(s).__name__ for s in steps[:4])}), expected "
            f"{length} Symbols: one for each of `length` steps, or a single Symbol with an axis of time steps"
        )
    return steps


def as_merged(length: int, inputs: Symbol | Iterable[Symbol], axis: int) -> Symbol:
    """Return a sequence as one symbol; arguments and errors as for `as_list`."""
    if isinstance(inputs, Symbol):
        return _single(inputs)
    steps = [sym.expand_dims(step, axis=axis) for step in as_list(length, inputs, axis)]
    merged: Symbol = sym.Concat(*steps, dim=axis)
    return merged


def shaped(length: int, inputs: Steps, axis: int, merge: bool | None) -> Steps:
    """Return a sequence in the wanted form; None leaves it as it is.

    Args:
        length: number of steps.
        axis: axis of time steps of a merged one.
        merge: True for one symbol, False for a list.
    """
    if merge is None:
        return inputs
    return as_merged(length, inputs, axis) if merge else as_list(length, inputs, axis)


def mask(length: int, outputs: Steps, axis: int, valid_length: Symbol, merge: bool | None) -> Steps:
    """Write zeros after the end of each sequence.

    Args:
        length: number of steps.
        axis: axis of time steps of a merged one.
        valid_length: steps of each sequence, (N,).
        merge: form of the result; None keeps that of `outputs`.
    """
    masked = sym.SequenceMask(
        as_merged(length, outputs, axis), sequence_length=valid_length, use_sequence_length=True, axis=axis
    )
    return shaped(length, masked, axis, isinstance(outputs, Symbol) if merge is None else merge)


def last_valid(history: Sequence[Sequence[Symbol]], valid_length: Symbol) -> list[Symbol]:
    """Return each state as it is after the last step of each sequence.

    Args:
        valid_length: steps of each sequence, (N,).
    """
    return [
        sym.SequenceLast(sym.stack(*states, axis=0), sequence_length=valid_length, use_sequence_length=True)
        for states in zip(*history, strict=True)
    ]


def reverse(length: int, inputs: Steps, axis: int, valid_length: Symbol | None = None) -> Steps:
    """Turn a sequence round, in the form it has; padding stays at the end if lengths are given.

    Args:
        length: number of steps.
        axis: axis of time steps of a merged one.
        valid_length: steps of each sequence, (N,).
    """
    if valid_length is not None:
        turned = sym.SequenceReverse(
            as_merged(length, inputs, axis), sequence_length=valid_length, use_sequence_length=True, axis=axis
        )
        return turned if isinstance(inputs, Symbol) else as_list(length, turned, axis)
    return sym.reverse(inputs, axis=axis) if isinstance(inputs, Symbol) else inputs[::-1]


def _single(inputs: Symbol) -> Symbol:
    if len(inputs) != 1:
        raise ArgumentError(
            f"inputs is a group of {len(inputs)} symbols; give list(inputs) if they are the steps, or choose one"
        )
    return inputs
