"""One node of an ONNX graph as its translator sees it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from .build import GraphBuilder
from .problems import Refused
from .value import OnnxValue


@dataclass(slots=True, eq=False)
class NodeCall:
    """One node.

    Attributes:
        inputs: its inputs; None for one that is left out.
        attrs: its attributes, those with a default always.
        since: the opset in which the operator got the form that the file uses.
        body: translates a graph that the node carries: ``(graph, inputs) -> outputs``.
    """

    b: GraphBuilder
    kind: str
    inputs: list[Any]
    attrs: dict[str, Any]
    since: int
    used: list[bool]
    body: Callable[..., list[Any]]
    read: Callable[[Any], Any]
    extra: dict[str, Any] = field(default_factory=dict)

    @property
    def x(self) -> OnnxValue:
        """The first input."""
        return self.value(0)

    def has(self, number: int) -> bool:
        """Say whether an input is given."""
        return number < len(self.inputs) and self.inputs[number] is not None

    def value(self, number: int) -> OnnxValue:
        """Return an input."""
        if not self.has(number):
            raise Refused(f"input {number} is missing")
        found = self.inputs[number]
        if not isinstance(found, OnnxValue):
            raise Refused(f"input {number} is a sequence, expected an array")
        return found

    def maybe(self, number: int) -> OnnxValue | None:
        """Return an input, None if it is left out or holds nothing."""
        if not self.has(number):
            return None
        found = self.value(number)
        return None if any(0 in shape for shape in found.shapes) else found

    def ints(self, name: str, number: int) -> list[tuple[int, ...]] | None:
        """Return integers that are an attribute in old opsets and an input in new ones, in every world."""
        if name in self.attrs:
            return [tuple(self.attrs[name])] * self.b.worlds
        if not self.has(number):
            return None
        return self.b.numbers(self.value(number), name)

    def fixed_ints(self, name: str, number: int) -> tuple[int, ...] | None:
        """Return integers as `ints` does, which have to be the same in every world."""
        found = self.ints(name, number)
        if found is None:
            return None
        if any(each != found[0] for each in found):
            raise Refused(f"{name} depends on the sizes of the inputs")
        return found[0]


Translator = Callable[[NodeCall], Any]
"""Makes what a node does: ``(call) -> value``, or a list of values, one for each output."""
