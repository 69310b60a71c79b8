"""Rewrites of the steps before they become a Program; each can be switched off, which changes no result.

Order matters: `fresh_heads` comes last, since it looks at what the others made.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

from ..lowering import Lowered
from .channels_last import channels_last
from .fresh_heads import fresh_heads

__all__ = ["apply", "disabled", "settings"]

_PASSES: dict[str, Callable[[Lowered], None]] = {"channels_last": channels_last}
_off: set[str] = set()


def settings() -> frozenset[str]:
    """Return the names of the passes that are switched off."""
    return frozenset(_off)


@contextmanager
def disabled(*names: str) -> Iterator[None]:
    """Switch passes off for graphs bound or run inside the block.

    Args:
        names: names of passes, such as "channels_last".
    """
    before = set(_off)
    _off.update(names)
    try:
        yield
    finally:
        _off.clear()
        _off.update(before)


def apply(low: Lowered) -> None:
    """Run every pass that is on."""
    for name, rewrite in _PASSES.items():
        if name not in _off:
            rewrite(low)
    fresh_heads(low)
