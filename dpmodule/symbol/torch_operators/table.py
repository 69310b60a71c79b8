"""The table of torch's operators and the functions that translate them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Translator = Callable[..., Any]
"""``(builder, *arguments of torch's operator) -> symbol or value``, or a list if torch returns several.

Raises `NoCounterpart` for arguments that have no counterpart.
"""

_NAMESPACES = ("aten::", "dpmodule::")
"""Torch's operators, and those of `torch_functions`, which replace some of them."""

Given = TypeVar("Given", bound=Translator)

TABLE: dict[str, Translator] = {}
"""Translators by the name of torch's operator, for one overload ("add.Scalar") or all others ("add")."""


def translates(*names: str) -> Callable[[Given], Given]:
    """Register a translator under names of torch's operators without "aten"."""

    def enter(function: Given) -> Given:
        for name in names:
            TABLE[name] = function
        return function

    return enter


def translates_as(name: str, operator: str, *keys: tuple[str, float], **fixed: Any) -> None:
    """Register an operator with one array and differently named numbers.

    Args:
        operator: the symbol's operator.
        keys: name here and torch's default of each number.
        fixed: attributes that torch's operator lacks.
    """

    def translate(b: Any, value: Any, *numbers: float) -> Any:
        values = (*numbers, *(default for _, default in keys[len(numbers) :]))
        return b.op(operator, value, **fixed, **{key: float(n) for (key, _), n in zip(keys, values)})

    TABLE[name] = translate


def find(target: object) -> Translator | None:
    """Return the translator of an operator of torch, None if there is none.

    An in-place operator, with a trailing underscore, uses the translator of the other one.
    """
    schema = getattr(target, "_schema", None)
    if schema is None or not schema.name.startswith(_NAMESPACES):
        return None
    name = schema.name.rpartition("::")[2]
    if schema.is_mutable and not name.startswith("_"):
        name = name.removesuffix("_")
    return TABLE.get(f"{name}.{schema.overload_name or 'default'}", TABLE.get(name))


def known_overloads(table: Iterable[object]) -> list[Any]:
    """Return the operators in a table of decompositions that have translators."""
    return [target for target in table if find(target) is not None]
