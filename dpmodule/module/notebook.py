"""HTML of modules and training histories for notebooks."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from numbers import Real
from typing import Any

from .._core.markup import curve, section, table, text
from ..base import MXNetError, dtype_name
from ..ops.shapes import prod
from .protocol import Resumable

_MOST = 20
"""Number of rows up to which parameters are unfolded; number of rows of a history."""


def module_html(module: Resumable) -> str:
    """Return a module as HTML: stage, inputs and outputs, parameters and whether they are trained, network.

    Args:
        module: the module; properties that it lacks are omitted.
    """
    parts = [f"<div>{text(repr(module))}</div>", _ends(module), _parameters(module)]
    symbol = _value_or_none(lambda: module.symbol)
    picture = symbol._repr_svg_() if hasattr(symbol, "_repr_svg_") else None
    if picture:
        parts.append(section("network", f'<div style="overflow:auto">{picture}</div>'))
    return "".join(parts)


def _value_or_none(read: Callable[[], Any]) -> Any:
    """Return the result of a call, None if the module does not support it or not yet; old modules assert that."""
    try:
        return read()
    except (AssertionError, AttributeError, MXNetError, NotImplementedError):
        return None


def _ends(module: Resumable) -> str:
    """Return a table of inputs and outputs."""
    rows: list[tuple[Any, ...]] = []
    for what in ("data", "label", "output"):
        shapes = _value_or_none(lambda what=what: getattr(module, f"{what}_shapes"))  # type: ignore[misc]
        names = _value_or_none(lambda what=what: getattr(module, f"{what}_names"))  # type: ignore[misc]
        if shapes:
            rows += [(what, each[0], tuple(each[1])) for each in shapes]
        else:
            rows += [(what, name, "") for name in names or ()]
    return table(("", "name", "shape"), rows) if rows else ""


def _parameters(module: Resumable) -> str:
    """Return a table of parameters and auxiliary states, unfolded if there are few."""
    rows: list[tuple[Any, ...]] = []
    total = trained = 0
    for store in _value_or_none(module.stores) or ():
        for name in store.names():
            array, learns = store.array(name, 0), store.grad(name, 0) is not None
            total, trained = total + prod(array.shape), trained + learns * prod(array.shape)
            rows.append((name, array.shape, dtype_name(array.dtype), "yes" if learns else "no"))
        for name in store.aux_names():
            array = store.aux(name, 0)
            rows.append((name, array.shape, dtype_name(array.dtype), "state"))
    if not rows:
        return ""
    body = table(("parameter", "shape", "type", "trained"), rows)
    return section(f"parameters: {total:,} ({trained:,} trained)", body, len(rows) <= _MOST)


Rows = list[dict[str, Any]]


def history_html(
    title: str, names: Sequence[str], rows: Rows, positions: Callable[[Rows], list[float]]
) -> str:
    """Return a history as HTML: a table of its last rows, and a small plot of each metric.

    Args:
        positions: returns the positions of rows on the axis of epochs.
    """
    parts = [f"<div>{text(title)}</div>"]
    if len(rows) > _MOST:
        parts.append(f"<div>the last {_MOST} of {len(rows)} rows:</div>")
    if rows:
        head = ["epoch", "batch", "time_s", *names]
        parts.append(table(head, [[_value(row, name) for name in head] for row in rows[-_MOST:]]))
    metrics: dict[str, list[str]] = {}
    for name in names:
        metrics.setdefault(name.partition("-")[2] or name, []).append(name)
    for metric, members in metrics.items():
        plot = curve([_line(rows, name, positions) for name in members], f"{metric} over epochs")
        parts.append(f"<div>{text(metric)}</div>{plot}" if plot else "")
    return "".join(parts)


def _value(row: Mapping[str, Any], name: str) -> str:
    value = row.get(name, "")
    if isinstance(value, int):
        return str(value)
    return f"{value:.4g}" if isinstance(value, Real) else str(value)


def _line(
    rows: Rows, name: str, positions: Callable[[Rows], list[float]]
) -> tuple[str, Sequence[float], Sequence[float]]:
    """Return the label of a metric, the positions of its rows, and its values, NaN if not a number."""
    own = [row for row in rows if name in row]
    numbers = [float(row[name]) if isinstance(row[name], Real) else float("nan") for row in own]
    return name.partition("-")[0], positions(own), numbers
