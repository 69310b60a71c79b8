"""Operators that cut, join and pad ragged rows, as in Paddle's `fluid.layers`."""

from __future__ import annotations

from typing import Any

import torch

from ...base import OpError, Shape, ShapeError
from ..attrs import integer, ints
from ..nn.layer_shapes import unify_input
from ..registry import op
from ..shapes import prod, same, unify
from ..spec import NEVER, Attr, Env, Shapes, Types, Variadic, arg
from .dispatch import SparseRule, Stypes, add_ragged_rule, differentiated_by_torch
from .sequences import NO_ONNX, add_sequence_rule, dense_error
from .storage import Ragged

Tensor = torch.Tensor


def _offsets(lengths: Tensor) -> Tensor:
    """Return the start of each row, (N + 1,), from the lengths."""
    return torch.cat([lengths.new_zeros(1), lengths.cumsum(0)])


def _positions(starts: Tensor, lengths: Tensor) -> Tensor:
    """Return ``starts[i], starts[i] + 1, ...``, ``lengths[i]`` numbers for each row."""
    rows = torch.arange(lengths.numel(), device=lengths.device).repeat_interleave(lengths)
    inside = torch.arange(rows.numel(), device=rows.device) - _offsets(lengths).index_select(0, rows)
    return starts.index_select(0, rows) + inside


def _first_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer types: the output has that of the first input, the others keep theirs."""
    kind = ins[0] or outs[0]
    return [kind, *ins[1:]], [kind, *outs[1:]]


# rows of several values, one after the other


def _concat(a: Any, env: Env, *parts: Ragged) -> Ragged:
    starts = [part.offsets[:-1] for part in parts]
    lengths = [part.lengths() for part in parts]
    if len({part.shape[0] for part in parts}) > 1:
        raise ShapeError(f"sequence_concat: numbers of rows are {', '.join(str(p.shape[0]) for p in parts)}")
    before = [0]
    for part in parts:
        before.append(before[-1] + part.values.shape[0])
    in_order = torch.stack([start + shift for start, shift in zip(starts, before)], 1).reshape(-1)
    positions = _positions(in_order, torch.stack(lengths, 1).reshape(-1))
    values = torch.cat([part.values for part in parts]).index_select(0, positions)
    return Ragged(values, _offsets(torch.stack(lengths).sum(0)))


@op("sequence_concat", variadic=Variadic(batch=NEVER), attrs={"num_args": Attr(integer(low=1), "number of inputs")},
    infer=same, batch=NEVER, onnx=NO_ONNX)  # fmt: skip
def sequence_concat(a: Any, env: Env, *data: Tensor) -> Tensor:
    """Join the same row of several ragged values.

    Shape:
        arg0, arg1, ...: (N, ...), ragged.
        output: (N, ...), ragged, with the sum of the lengths.

    Raises:
        OpError: a value is dense.
        ShapeError: the numbers of rows differ.

    Source: Paddle 1.x `fluid.layers.sequence_concat`.
    """
    raise dense_error("sequence_concat")


def _all_ragged(a: Any, stypes: Stypes) -> Stypes:
    if any(stype != "ragged" for stype in stypes):
        raise dense_error("sequence_concat")
    return ("ragged",)


add_ragged_rule(
    "sequence_concat",
    SparseRule(
        _all_ragged,
        _concat,
        None,
        lambda a, stypes: ("ragged",) * len(stypes),
        differentiated_by_torch(_concat),
    ),
    alone=lambda a: True,
)


# a part of each row


def _slice_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = unify(ins[0], outs[0], "data and output")
    return [data, *ins[1:]], [data]


def _slice(a: Any, env: Env, data: Ragged, offset: Tensor, length: Tensor) -> Ragged:
    first, count = (each.detach().reshape(-1).long() for each in (offset, length))
    if first.numel() != data.shape[0] or count.numel() != data.shape[0]:
        raise ShapeError(
            f"sequence_slice: {first.numel()} offsets and {count.numel()} lengths for {data.shape[0]} rows"
        )
    outside = (first < 0) | (count < 0) | (first + count > data.lengths())
    if bool(outside.any()):
        row = int(outside.nonzero()[0])
        raise OpError(
            f"sequence_slice: row {row} has {int(data.lengths()[row])} elements, but offset {int(first[row])} and "
            f"length {int(count[row])}"
        )
    return Ragged(data.values.index_select(0, _positions(data.offsets[:-1] + first, count)), _offsets(count))


@op("sequence_slice", [arg("data", NEVER), arg("offset", NEVER), arg("length", NEVER)],
    infer=_slice_shapes, infer_type=_first_types, batch=NEVER, onnx=NO_ONNX)  # fmt: skip
def sequence_slice(a: Any, env: Env, data: Tensor, offset: Tensor, length: Tensor) -> Tensor:
    """Return a part of each row.

    Shape:
        data: (N, ...), ragged.
        offset, length: (N, 1) or (N,), integers: first element of a part, and its number of elements.
        output: like data, ragged.

    Raises:
        OpError: the data is dense, or a part is outside of its row.
        ShapeError: there is another number of offsets or lengths than of rows.

    Source: Paddle 1.x `fluid.layers.sequence_slice`.
    """
    raise dense_error("sequence_slice")


add_sequence_rule("sequence_slice", _slice)


# windows


def _window_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = ins[0]
    if data is None:
        return ins, outs
    return [data], [unify_input("output", outs[0], (data[0], a.win_size), data)]


def _windows(a: Any, env: Env, data: Ragged) -> Ragged:
    values = data.values.reshape(data.values.shape[0], -1)[:, :1]
    ends = data.offsets[1:].index_select(0, data.row_numbers())[:, None]
    there = torch.arange(values.shape[0], device=values.device)[:, None] + torch.arange(
        a.win_size, device=values.device
    )
    padded = torch.cat([values[:, 0], values.new_full((1,), a.pad_value)])
    return data.replaced(padded[torch.where(there < ends, there, values.shape[0])])


@op("sequence_enumerate", [arg("data", NEVER)],
    {"win_size": Attr(integer(low=1), "number of elements of a window"),
     "pad_value": Attr(integer(), "number after the end of a row", 0)},
    infer=_window_shapes, infer_type=_first_types, batch=NEVER, onnx=NO_ONNX)  # fmt: skip
def sequence_enumerate(a: Any, env: Env, data: Tensor) -> Tensor:
    """Return for each element the window that begins with it.

    Shape:
        data: (N,) or (N, 1), ragged.
        output: (N, win_size), ragged.

    Raises:
        OpError: the data is dense.

    Source: Paddle 1.x `fluid.layers.sequence_enumerate`.
    """
    raise dense_error("sequence_enumerate")


add_sequence_rule("sequence_enumerate", _windows)


# dense and ragged rows


def _pad_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, value = ins
    if data is None:
        return ins, outs
    rows = data[0] or (outs[0] or (0,))[0]
    padded = unify_input("output", outs[0], (rows, a.maxlen, *data[1:]), data)
    return [(rows, *data[1:]), unify_input("pad_value", value, (1,), data)], [padded, (rows,)]


def _pad_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    kind = ins[0] or outs[0]
    return [kind, ins[1] or kind], [kind, "int64"]


def _pad(a: Any, env: Env, data: Ragged, pad_value: Tensor) -> tuple[Tensor, Tensor]:
    lengths = data.lengths()
    longest = int(lengths.max()) if lengths.numel() else 0
    if longest > a.maxlen:
        raise ShapeError(f"sequence_pad: maxlen is {a.maxlen}, but a row has {longest} elements")
    padded = (
        pad_value.detach()
        .to(data.values.dtype)
        .reshape(-1)[0]
        .expand(data.shape[0] * a.maxlen, *data.values.shape[1:])
    )
    starts = torch.arange(data.shape[0], device=lengths.device) * a.maxlen
    whole = padded.index_copy(0, _positions(starts, lengths), data.values)
    return whole.view(data.shape[0], a.maxlen, *data.values.shape[1:]), lengths


@op("sequence_pad", [arg("data", NEVER), arg("pad_value", NEVER)],
    {"maxlen": Attr(integer(low=1), "length of all rows")},
    outputs=("output", "lengths"), infer=_pad_shapes, infer_type=_pad_types, batch=NEVER, onnx=NO_ONNX)  # fmt: skip
def sequence_pad(a: Any, env: Env, data: Tensor, pad_value: Tensor) -> Any:
    """Return rows as a dense array, with a number after their ends.

    Shape:
        data: (N, ...), ragged.
        pad_value: (1,), not differentiated.
        output: (N, maxlen, ...).
        lengths: (N,), int64.

    Raises:
        OpError: the data is dense.
        ShapeError: a row is longer than `maxlen`.

    Source: Paddle 1.x `fluid.layers.sequence_pad`.
    """
    raise dense_error("sequence_pad")


add_sequence_rule("sequence_pad", _pad, "default default")


def _unpad_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = ins[0]
    if data is None or len(data) < 2:
        return ins, outs
    return ins, [unify_input("output", outs[0], (data[0], *data[2:]), data)]


def _unpad(a: Any, env: Env, data: Tensor, length: Tensor) -> Ragged:
    lengths, longest = length.detach().reshape(-1).long(), data.shape[1]
    if lengths.numel() != data.shape[0]:
        raise ShapeError(f"sequence_unpad: {lengths.numel()} lengths for {data.shape[0]} rows")
    if lengths.numel() and not 0 <= int(lengths.min()) <= int(lengths.max()) <= longest:
        raise OpError(
            f"sequence_unpad: lengths are from {int(lengths.min())} to {int(lengths.max())}, expected 0 to {longest}"
        )
    starts = torch.arange(data.shape[0], device=data.device) * longest
    return Ragged(data.flatten(0, 1).index_select(0, _positions(starts, lengths)), _offsets(lengths))


@op("sequence_unpad", [arg("data", NEVER), arg("length", NEVER)],
    infer=_unpad_shapes, infer_type=_first_types, batch=NEVER, onnx=NO_ONNX)  # fmt: skip
def sequence_unpad(a: Any, env: Env, data: Tensor, length: Tensor) -> Tensor:
    """Return padded rows as ragged rows.

    Shape:
        data: (N, T, ...).
        length: (N,) or (N, 1), integers up to T.
        output: (N, ...), ragged.

    Raises:
        OpError: a value is not dense, or a length is out of range.
        ShapeError: there is another number of lengths than of rows.

    Source: Paddle 1.x `fluid.layers.sequence_unpad`.
    """
    raise OpError("sequence_unpad takes dense data and lengths")


def _dense_only(a: Any, stypes: Stypes) -> Stypes:
    if any(stype != "default" for stype in stypes):
        raise OpError(f"sequence_unpad takes dense data and lengths, got {', '.join(stypes)}")
    return ("ragged",)


add_ragged_rule(
    "sequence_unpad",
    SparseRule(_dense_only, _unpad, None, None, differentiated_by_torch(_unpad)),
    alone=lambda a: True,
)


# other lengths


def _reshape_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = ins[0]
    if data is None:
        return ins, outs
    return [data], [unify_input("output", outs[0], (data[0], a.new_dim), data)]


def _reshape(a: Any, env: Env, data: Ragged) -> Ragged:
    width = prod(data.values.shape[1:])
    total = data.lengths() * width
    if bool((total % a.new_dim).any()):
        row = int((total % a.new_dim).nonzero()[0])
        raise OpError(
            f"sequence_reshape: row {row} has {int(total[row])} numbers, expected a multiple of new_dim, {a.new_dim}"
        )
    return Ragged(data.values.reshape(-1, a.new_dim), data.offsets * width // a.new_dim)


@op("sequence_reshape", [arg("data", NEVER)], {"new_dim": Attr(integer(low=1), "new number of features")},
    infer=_reshape_shapes, infer_type=_first_types, batch=NEVER, onnx=NO_ONNX)  # fmt: skip
def sequence_reshape(a: Any, env: Env, data: Tensor) -> Tensor:
    """Return the numbers of each row with another number of features, and thus another length.

    Shape:
        data: (N, ...), ragged.
        output: (N, new_dim), ragged.

    Raises:
        OpError: the data is dense, or `new_dim` does not divide the numbers of a row.

    Source: Paddle 1.x `fluid.layers.sequence_reshape`.
    """
    raise dense_error("sequence_reshape")


add_sequence_rule("sequence_reshape", _reshape)


def _rows_shapes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = ins[0]
    return [data], [outs[0] if data is None else unify_input("output", outs[0], (data[0], *a.shape), data)]


def _rows(a: Any, env: Env, data: Ragged) -> Tensor:
    wrong = data.lengths() * prod(data.values.shape[1:]) != prod(a.shape)
    if bool(wrong.any()):
        row = int(wrong.nonzero()[0])
        raise ShapeError(
            f"_sequence_rows: sequence {row} has {int(data.lengths()[row])} elements of shape "
            f"{tuple(data.values.shape[1:])}, which do not fill a row of shape {a.shape}"
        )
    return data.values.reshape(-1, *a.shape)


@op("_sequence_rows", [arg("data", NEVER)], {"shape": Attr(ints, "shape of a row", ())},
    infer=_rows_shapes, infer_type=_first_types, batch=NEVER, onnx=NO_ONNX)  # fmt: skip
def sequence_rows(a: Any, env: Env, data: Tensor) -> Tensor:
    """Return ragged rows of one length as dense rows.

    Shape:
        data: (N, ...), ragged.
        output: (N, *shape).

    Raises:
        OpError: the data is dense.
        ShapeError: a row has another number of numbers than `shape`.

    Source: the layers of Paddle 1.x, of which `lod_level=1` data with one element for each example are dense.
    """
    raise dense_error("_sequence_rows")


add_sequence_rule("_sequence_rows", _rows, "default")


def _erase(a: Any, env: Env, data: Ragged) -> Ragged:
    tokens = torch.tensor(a.tokens, dtype=data.values.dtype, device=data.values.device)
    kept = ~torch.isin(data.values.reshape(data.values.shape[0], -1)[:, 0], tokens)
    lengths = torch.zeros_like(data.lengths()).index_add(0, data.row_numbers(), kept.long())
    return Ragged(data.values[kept], _offsets(lengths))


@op("sequence_erase", [arg("data", NEVER)], {"tokens": Attr(ints, "numbers to drop", ())},
    infer=same, infer_type=_first_types, batch=NEVER, onnx=NO_ONNX)  # fmt: skip
def sequence_erase(a: Any, env: Env, data: Tensor) -> Tensor:
    """Drop some numbers from each row.

    Shape:
        data: (N,) or (N, 1), ragged.
        output: like data, ragged.

    Raises:
        OpError: the data is dense.

    Source: Paddle 1.x `fluid.layers.sequence_erase`.
    """
    raise dense_error("sequence_erase")


add_sequence_rule("sequence_erase", _erase)
