"""Finding the plan of a call by the way it is written, so that arguments are sorted and read once only.

Calls with equally many positional arguments and the same keywords have one `Form`; in it, the attributes' values
lead to the plan. A program has few forms, and most of its calls differ in the arrays alone.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from ..ops.spec import Op
from .handle import Handle
from .op_dispatch import PreparedOp, can_be_key

_EXTRA = ("name", "out", "ctx")
_MOST_PLANS = 512

Forms = dict[tuple[Any, ...], "Form"]
"""An operator's forms, by the number of positional arguments and the keywords, in order."""

Found = tuple[PreparedOp, tuple[Any, ...] | list[Any]]


class Form:
    """How the arguments of calls of one form are to be read.

    Attributes:
        lead: how many positional arguments are inputs; the others are attributes.
        plans: by the values of the attributes and their types: the plan, and the place among the inputs as written
            of each input as the operator takes them, None where the two orders agree.
    """

    __slots__ = ("attributes", "inputs", "lead", "plain", "plans")

    def __init__(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> None:
        self.lead = next((i for i, x in enumerate(args) if not isinstance(x, Handle)), len(args))
        rest = [k for k in kwargs if k not in _EXTRA]
        self.inputs = tuple(k for k in rest if isinstance(kwargs[k], Handle))
        self.attributes = tuple(k for k in rest if k not in self.inputs)
        self.plain = len(self.attributes) == len(kwargs)
        self.plans: dict[tuple[Any, ...], tuple[PreparedOp, tuple[int, ...] | None]] = {}

    def values(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> tuple[Any, ...]:
        """Return the attributes of a call."""
        if self.plain:
            return (*args[self.lead :], *kwargs.values())
        return (*args[self.lead :], *[kwargs[k] for k in self.attributes])

    def find(self, args: tuple[Any, ...], kwargs: Mapping[str, Any]) -> Found | None:
        """Return the plan and the inputs of a call; None if it has to be read in full."""
        values = self.values(args, kwargs)
        try:
            found = self.plans.get((values, *map(type, values)))  # types too, as 1 == True == 1.0
        except TypeError:  # a list
            return None
        if found is None:
            return None
        arrays: tuple[Any, ...] = args[: self.lead]
        if self.inputs:
            arrays = (*arrays, *[kwargs[k] for k in self.inputs])
        for array in arrays:
            if not isinstance(array, Handle):
                return None
        plan, order = found
        return plan, arrays if order is None else [arrays[i] for i in order]

    def add(self, op: Op, plan: PreparedOp, values: tuple[Any, ...]) -> None:
        """Keep the plan of a call with these values, if calls like it can be told by them."""
        wanted = [i.name for i in op.wanted(plan.a, plan.count)]
        if op.variadic is not None:
            given = wanted if self.lead == len(wanted) else []
        else:
            declared = [i.name for i in op.inputs] if isinstance(op.inputs, tuple) else wanted
            given = [*declared[: self.lead], *self.inputs]
        if sorted(given) != sorted(wanted) or not all(map(can_be_key, values)):
            return
        if len(self.plans) >= _MOST_PLANS:  # a sweep over scalars must not fill the memory
            self.plans.clear()
        order = None if given == wanted else tuple(map(given.index, wanted))
        self.plans[(values, *map(type, values))] = plan, order


def keep(forms: Forms, op: Op, args: tuple[Any, ...], kwargs: Mapping[str, Any], plan: PreparedOp) -> None:
    """Keep the plan of a call that has been read in full.

    Args:
        forms: the operator's; one is added if the call has a new one.
    """
    if op.read_attrs is not None or "ctx" in kwargs or not plan.count:
        return
    key = (len(args), *kwargs)
    form = forms.get(key)
    if form is None:
        form = forms[key] = Form(args, kwargs)
    form.add(op, plan, form.values(args, kwargs))
