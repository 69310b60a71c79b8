"""HTML of arrays for notebooks: shape, type, context, some of the numbers, and a small plot."""

from __future__ import annotations

import torch

from .._core.markup import curve, histogram, table, text
from ..ops.dtypes import name_of
from .convert import to_numpy
from .handle import Handle

_EDGE = 4
"""Number of values that a table shows at each end of a long axis."""
_SAMPLE = 200_000
_POINTS = 240
_BARS = 24


def array_html(array: Handle) -> str:
    """Return an array as HTML; only the shown values are read.

    Args:
        array: the array; a sparse or ragged one is shown as text.
    """
    if array.stype != "default":
        return f'<pre style="color:inherit;background:transparent">{text(repr(array).strip())}</pre>'
    tensor = array.raw.detach()
    size = "x".join(map(str, tensor.shape)) or "scalar"
    pieces = [text(f"{type(array).__name__} {size} {name_of(tensor.dtype)} @{array.context}")]
    if tensor.numel() and tensor.dim() <= 2:
        pieces.append(_numbers(tensor))
    if tensor.numel() > 2 * _EDGE and (tensor.dim() > 2 or max(tensor.shape) > 2 * _EDGE):
        pieces.append(_plot(tensor))
    return "".join(f"<div>{part}</div>" for part in pieces)


def _numbers(tensor: torch.Tensor) -> str:
    """Return a table of a matrix, of the corners of a large one, or of a row."""
    rows = tensor.reshape(1, -1) if tensor.dim() < 2 else tensor
    if len(rows) <= 2 * _EDGE:
        return table((), [_row(each) for each in rows])
    top = [_row(each) for each in rows[:_EDGE]]
    return table((), [*top, ["\u2026"] * len(top[0]), *(_row(each) for each in rows[-_EDGE:])])


def _row(row: torch.Tensor) -> list[str]:
    """Return the numbers of a row as text; for a long row those at its ends."""
    if len(row) <= 2 * _EDGE:
        return _cells(row)
    return [*_cells(row[:_EDGE]), "\u2026", *_cells(row[-_EDGE:])]


def _cells(numbers: torch.Tensor) -> list[str]:
    return [f"{v:.4g}" if isinstance(v, float) else str(v) for v in to_numpy(numbers).tolist()]


def _plot(tensor: torch.Tensor) -> str:
    """Return a plot of a row of numbers, a histogram of other arrays, with minimum, mean and maximum."""
    flat = tensor.reshape(-1)
    sample = flat[:: -(-flat.numel() // _SAMPLE)].cpu().double()
    finite = sample[torch.isfinite(sample)]
    if not finite.numel():
        return "no finite numbers"
    low, high = finite.min().item(), finite.max().item()
    words = f"from {low:.4g} to {high:.4g}, mean {finite.mean().item():.4g}"
    if finite.numel() < sample.numel():
        words += f", {sample.numel() - finite.numel()} not finite"
    if sample.numel() < flat.numel():
        words += f" (of {sample.numel()} numbers)"
    return (_curve(flat) if tensor.dim() == 1 else _bars(finite, low, high)) + f"<div>{text(words)}</div>"


def _curve(flat: torch.Tensor) -> str:
    step = -(-flat.numel() // _POINTS)
    values = flat[::step].cpu().double().tolist()
    return curve([("values", range(0, step * len(values), step), values)], f"{flat.numel()} numbers in a row")


def _bars(finite: torch.Tensor, low: float, high: float) -> str:
    if low == high:
        return ""
    return histogram(torch.histc((finite - low) / (high - low), _BARS, 0, 1).tolist(), low, high)
