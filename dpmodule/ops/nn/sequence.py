"""Masking, last step and reversal of sequences of different lengths in one array."""

from __future__ import annotations

from typing import Any

import torch

from ...base import Shape, ShapeError
from ..attrs import boolean, integer, real
from ..math.pointwise import element_of
from ..registry import op
from ..shapes import data_type, unify
from ..spec import Attr, Env, Onnx, Shapes, arg
from .layer_shapes import unify_input

_INPUTS = (arg("data"), arg("sequence_length", when=lambda a: a.use_sequence_length))
_USE = Attr(boolean, "pass the length of each sequence as an input; else all have the length of data", False)
_AXIS = Attr(integer(0, 1), "axis of the time steps; the other of the first two is the batch", 0)


def _lengths_shape(a: Any, lengths: list[Shape], data: tuple[int, ...]) -> list[Shape]:
    """Return the shape of the lengths in a list, empty if they are not an input."""
    return [unify_input("sequence_length", have, (data[1 - a.axis],), data) for have in lengths]


def _check_rank(data: tuple[int, ...]) -> None:
    if len(data) < 2:
        raise ShapeError(f"data has shape {data}, expected at least 2 axes: time steps and batch")


def _check(a: Any, data: torch.Tensor, lengths: torch.Tensor | None) -> None:
    """Raise an error for shapes that torch would broadcast."""
    shape = tuple(data.shape)
    _check_rank(shape)
    if lengths is not None:
        _lengths_shape(a, [tuple(lengths.shape)], shape)


def _infer_batch(a: Any, data: tuple[int, ...], lengths: list[Shape]) -> tuple[int, ...]:
    """Infer the batch size from the lengths."""
    if lengths and lengths[0] and not data[1 - a.axis]:
        return (data[0], *lengths[0], *data[2:]) if a.axis == 0 else (*lengths[0], *data[1:])
    return data


def _infer_same(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = unify(ins[0], outs[0], "data and output")
    if data is None:
        return ins, outs
    _check_rank(data)
    data = _infer_batch(a, data, ins[1:])
    return [data, *_lengths_shape(a, ins[1:], data)], [data]


def _infer_last(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, out = ins[0], outs[0]
    if out:
        data = unify(data, (*out[: a.axis], 0, *out[a.axis :]), "data of SequenceLast")
    if data is None:
        return ins, outs
    _check_rank(data)
    data = _infer_batch(a, data, ins[1:])
    wanted = data[: a.axis] + data[a.axis + 1 :]
    return [data, *_lengths_shape(a, ins[1:], data)], [unify_input("output", out, wanted, data)]


def _fields(infer: Any, builder: str) -> dict[str, Any]:
    return {"infer": infer, "infer_type": data_type, "view": True, "onnx": Onnx(builder=builder)}


def _steps(a: Any, data: torch.Tensor, lengths: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Return step indices and sequence lengths, broadcastable to the first two axes."""
    steps = torch.arange(data.shape[a.axis], device=data.device)
    whole = lengths.detach().to(torch.int64)
    return (steps[:, None], whole[None, :]) if a.axis == 0 else (steps[None, :], whole[:, None])


@op(
    "SequenceMask",
    _INPUTS,
    {"use_sequence_length": _USE, "value": Attr(real, "value of elements after the end", 0.0), "axis": _AXIS},
    **_fields(_infer_same, "sequence_mask"),
)
def sequence_mask(a: Any, env: Env, data: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
    """Overwrite the elements after the end of each sequence.

    Shape:
        data: (T, N, ...), or (N, T, ...) with axis=1.
        sequence_length: (N,), any type of number, with use_sequence_length.
        output: like data; data itself without lengths.

    Source: MXNet 1.9.1 `SequenceMask`.
    """
    _check(a, data, lengths)
    if lengths is None:
        return data
    steps, ends = _steps(a, data, lengths)
    over = steps >= ends
    return data.masked_fill(over.reshape(*over.shape, *(1,) * (data.dim() - 2)), element_of(data, a.value))


@op(
    "SequenceLast",
    _INPUTS,
    {"use_sequence_length": _USE, "axis": _AXIS},
    **_fields(_infer_last, "sequence_last"),
)
def sequence_last(a: Any, env: Env, data: torch.Tensor, lengths: torch.Tensor | None = None) -> torch.Tensor:
    """Return the last step of each sequence.

    Shape:
        data: (T, N, ...), or (N, T, ...) with axis=1.
        sequence_length: (N,), from 1 to T, with use_sequence_length; clipped to this range.
        output: (N, ...).

    Source: MXNet 1.9.1 `SequenceLast`.
    """
    _check(a, data, lengths)
    if lengths is None:
        return data.select(a.axis, -1)
    last = lengths.detach().to(torch.int64).clamp(1, data.shape[a.axis]) - 1
    rows = torch.arange(len(last), device=data.device)
    return data[last, rows] if a.axis == 0 else data[rows, last]


@op(
    "SequenceReverse",
    _INPUTS,
    {"use_sequence_length": _USE, "axis": _AXIS},
    **_fields(_infer_same, "sequence_reverse"),
)
def sequence_reverse(
    a: Any, env: Env, data: torch.Tensor, lengths: torch.Tensor | None = None
) -> torch.Tensor:
    """Reverse the steps of each sequence; steps after its end stay in place.

    Shape:
        data: (T, N, ...), or (N, T, ...) with axis=1.
        sequence_length: (N,), any type of number, with use_sequence_length.
        output: like data.

    Source: MXNet 1.9.1 `SequenceReverse`, which only supports axis=0.
    """
    _check(a, data, lengths)
    if lengths is None:
        return data.flip(a.axis)
    steps, ends = _steps(a, data, lengths)
    ends = ends.clamp(max=data.shape[a.axis])
    positions = torch.where(steps < ends, ends - 1 - steps, steps)
    rows = torch.arange(data.shape[1 - a.axis], device=data.device)
    return data[positions, rows[None, :]] if a.axis == 0 else data[rows[:, None], positions]
