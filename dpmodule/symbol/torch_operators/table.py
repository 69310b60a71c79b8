"""The table of torch's operators and the functions that translate them."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any, TypeVar

Translator = Callable[..., Any]
"""``(builder, *arguments of torch's operator) -> symbol or value``, or a list of them where torch returns several.

Raises `Untranslatable` for arguments that have no counterpart.
"""

_NAMESPACES = ("aten::", "dpmodule::")
"""Torch's own operators, and those of `torch_functions`, which stand for some of them."""

Given = TypeVar("Given", bound=Translator)

TABLE: dict[str, Translator] = {}
"""Translators by the name of torch's operator, with the overload ("add.Scalar") or for all others ("add")."""


def translates(*names: str) -> Callable[[Given], Given]:
    """Enter a function into the table, under names of torch's operators without "aten"."""

    def enter(function: Given) -> Given:
        for name in names:
            TABLE[name] = function
        return function

    return enter


def translates_as(name: str, operator: str, *keys: tuple[str, float], **fixed: Any) -> None:
    """Enter an operator that takes one array, and numbers under other names.

    Args:
        operator: ours.
        keys: our name and torch's default of each number.
        fixed: attributes of ours that torch's operator does not have.
    """

    def translate(b: Any, value: Any, *numbers: float) -> Any:
        given = (*numbers, *(default for _, default in keys[len(numbers) :]))
        return b.op(operator, value, **fixed, **{key: float(n) for (key, _), n in zip(keys, given)})

    TABLE[name] = translate


def find(target: object) -> Translator | None:
    """Return the translator of an operator of torch, None if there is none.

    An operator that writes into its first argument, with an underscore at the end, goes by the one that does not.
    """
    schema = getattr(target, "_schema", None)
    if schema is None or not schema.name.startswith(_NAMESPACES):
        return None
    name = schema.name.rpartition("::")[2]
    if schema.is_mutable and not name.startswith("_"):
        name = name.removesuffix("_")
    return TABLE.get(f"{name}.{schema.overload_name or 'default'}", TABLE.get(name))


def known_overloads(table: Iterable[object]) -> list[Any]:
    """Return the operators in a table of decompositions that need none, since there are translators."""
    return [target for target in table if find(target) is not None]
