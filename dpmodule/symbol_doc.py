"""`SymbolDoc`, which old programs import though MXNet made it for the writers of its documentation."""

from __future__ import annotations

from typing import Any

from ._core import lazy

__all__ = ["SymbolDoc"]

lazy.publish(__name__, __all__)


class SymbolDoc:
    """Looks up shapes for examples in documentation.

    Source: MXNet 1.9.1 `symbol_doc.SymbolDoc`, of which programs use nothing but the import and `get_output_shape`.
    """

    @staticmethod
    def get_output_shape(sym: Any, **input_shapes: tuple[int, ...]) -> dict[str, tuple[int, ...]]:
        """Return the shape of every output by name.

        Args:
            input_shapes: shapes of its inputs by name.
        """
        _, found, _ = sym.infer_shape(**input_shapes)
        return dict(zip(sym.list_outputs(), found))
