"""What the handle of a node stores: in C where the native extension is here, else in Python."""

from __future__ import annotations

from typing import TYPE_CHECKING

from .. import native

__all__ = ["NodeBase"]


class _PlainNode:
    """The numbers of a node, where there is no native extension.

    Whoever makes one sets them: without `__init__` that takes half the time.

    Attributes:
        node: its number in the graph.
        version: the version of the graph it belongs to.
        serial: of a parameter, the native engine that knows it; see `EngineGraph.remember`.
        table: of a parameter or a table of rows, its number there.
    """

    __slots__ = ("node", "serial", "table", "version")

    node: int
    version: int
    serial: int
    table: int


if TYPE_CHECKING or native.core is None:  # noqa: SIM108 (mypy follows this form only)
    NodeBase = _PlainNode
else:
    NodeBase = native.core.AutobatchNode
