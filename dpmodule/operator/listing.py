"""What operators there are, and what arguments they take, in MXNet's words."""

from __future__ import annotations

from typing import Any, NamedTuple

from ..ops import get, names
from ..ops.spec import REQUIRED, Attr


class OperatorArguments(NamedTuple):
    """Arguments of an operator: inputs first, then attributes.

    Attributes:
        narg: how many.
        names: as calls give them.
        types: as text, such as "int, required".
    """

    narg: int
    names: list[str]
    types: list[str]


_WORDS = {
    "int": "int",
    "float": "float",
    "bool": "boolean",
    "str": "string",
    "tuple[int, ...]": "Shape(tuple)",
    "int | tuple[int, ...]": "Shape(tuple)",
    "tuple[float, ...]": "tuple of <float>",
    "Any": "dtype",
}


def get_all_registered_operators() -> list[str]:
    """Return the names of all operators, aliases included."""
    return list(names())


def get_operator_arguments(op_name: str) -> Any:
    """Return an operator's arguments.

    Args:
        op_name: registry name or alias.

    Returns:
        `OperatorArguments` (narg, names, types); types as text, such as "int, required".

    Raises:
        OpError: there is no such operator.

    Example:
        >>> mx.operator.get_operator_arguments("Activation").names
        ['data', 'act_type']
    """
    op = get(op_name)
    if op.variadic is not None:
        inputs = [("data", "NDArray-or-Symbol[]")]
    elif isinstance(op.inputs, tuple):
        inputs = [(each.name, "NDArray-or-Symbol") for each in op.inputs]
    else:
        inputs = [("data", "NDArray-or-Symbol[]")]
    attributes = [(key, _text(attr)) for key, attr in op.attrs.items()]
    found = [*inputs, *attributes]
    return OperatorArguments(len(found), [name for name, _ in found], [kind for _, kind in found])


def _text(attr: Attr) -> str:
    """Return an attribute's type as MXNet writes it."""
    kind = attr.type.annotation
    is_optional = kind.endswith(" | None")
    kind = kind.removesuffix(" | None")
    if attr.type.expects.startswith("one of "):
        choices = attr.type.expects.removeprefix("one of ").split(", or None")[0].split(", ")
        word = "{" + ", ".join(map(repr, sorted(choices))) + "}"
    else:
        word = _WORDS.get(kind, kind)
    word += " or None" if is_optional and not word.startswith("{") else ""
    if attr.default is REQUIRED:
        return f"{word}, required"
    default = int(attr.default) if isinstance(attr.default, bool) else attr.default
    return f"{word}, optional, default={default!r}"
