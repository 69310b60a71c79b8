"""`SymbolDoc`: MXNet's helper for documentation, which some programs import."""

from __future__ import annotations

from typing import Any

from ._core import lazy

__all__ = ["SymbolDoc"]

lazy.publish(__name__, __all__)


class SymbolDoc:
    """Shapes for examples in documentation.

    Source: MXNet 1.9.1 `symbol_doc.SymbolDoc`, of which programs only use `get_output_shape`.
    """

    @staticmethod
    def get_output_shape(sym: Any, **input_shapes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return the shape of every output by name.

        Args:
            input_shapes: shapes of its inputs by name.
        """
        _, output_shapes, _ = sym.infer_shape(**input_shapes)
        return dict(zip(sym.list_outputs(), output_shapes))
