"""Records that declare an operator: `Op` and its parts. Pure data; no operator is made here."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

import torch

from ..base import OpError, Shape
from .attrs import AttrType

__all__ = [
    "AUX",
    "DATA",
    "LABEL",
    "NEVER",
    "PARAM",
    "REQUIRED",
    "ROWS",
    "SHARE",
    "STACK",
    "Attr",
    "Env",
    "Input",
    "Loss",
    "Onnx",
    "Op",
    "Variadic",
    "arg",
    "aux",
    "label",
    "param",
]

DATA, PARAM, AUX, LABEL = "data", "param", "aux", "label"
"""Kinds of input: values that flow, parameters, auxiliary states (not differentiated), labels."""

ROWS, STACK, SHARE, NEVER = "rows", "stack", "share", "never"
"""How inputs of several calls become one: joined along the batch axis (the operator works row by row), stacked on
a new axis through `torch.vmap`, the same object for all, or not at all."""


class _Required:
    def __repr__(self) -> str:
        return "<required>"


REQUIRED = _Required()


@dataclass(frozen=True, slots=True)
class Attr:
    """One attribute: how to read it, what it means, and its default (none = required)."""

    type: AttrType
    doc: str = ""
    default: Any = REQUIRED


@dataclass(frozen=True, slots=True)
class Input:
    """One input.

    Attributes:
        name: as in MXNet; a missing one becomes the variable ``<node>_<name>``.
        kind: DATA, PARAM, AUX or LABEL.
        batch: ROWS, STACK or SHARE; how automatic batching joins it.
        when: tells from the attributes whether the input exists; None = always.
        init: initializer of a variable made for it, as the JSON text ``["name", {arguments}]``.
    """

    name: str
    kind: str = DATA
    batch: str = STACK
    when: Callable[[Any], bool] | None = None
    init: str | None = None


def arg(name: str, batch: str = STACK, when: Callable[[Any], bool] | None = None) -> Input:
    """Declare a data input."""
    return Input(name, DATA, batch, when)


def param(name: str, when: Callable[[Any], bool] | None = None, init: str | None = None) -> Input:
    """Declare a parameter, shared by all rows of a batch."""
    return Input(name, PARAM, SHARE, when, init)


def aux(name: str, init: str | None = None) -> Input:
    """Declare an auxiliary state."""
    return Input(name, AUX, SHARE, None, init)


def label(name: str = "label", batch: str = ROWS) -> Input:
    """Declare a label."""
    return Input(name, LABEL, batch)


@dataclass(frozen=True, slots=True)
class Variadic:
    """Any number of inputs ``<name>0, <name>1, ...``; `count` is the attribute that stores how many."""

    name: str = "arg"
    count: str | None = "num_args"
    batch: str = STACK


@dataclass(frozen=True, slots=True)
class Onnx:
    """ONNX operator: its type, attributes renamed (ours to theirs) and constant ones; or the name of a builder.

    `missing` says instead why ONNX has nothing for it, as half a sentence: "updates a weight in place".
    """

    type: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)
    const: Mapping[str, Any] = field(default_factory=dict)
    builder: str = ""
    missing: str = ""


@dataclass(slots=True)
class Env:
    """What an operator may know besides attributes and tensors.

    Attributes:
        device: where new tensors go.
        generator: the context's random generator.
        is_train: training mode.
        out_shapes: inferred output shapes, only for operators declared with ``needs_shapes``.
    """

    device: torch.device
    generator: torch.Generator | None
    is_train: bool
    out_shapes: tuple[tuple[int, ...], ...] = ()


@dataclass(frozen=True, slots=True)
class Loss:
    """An output that is its own loss: its gradient ignores the head gradient.

    Attributes:
        forward: ``(a, env, data, *rest) -> output``, not differentiated.
        grad: ``(a, env, output, data, *rest) -> gradient of data``.
        when: tells from the attributes whether the head gradient is indeed ignored; None = always.
        probe: ``(a, output) -> a part of it`` that is finite only if all of it is; None = no smaller part tells.
    """

    forward: Callable[..., torch.Tensor]
    grad: Callable[..., torch.Tensor]
    when: Callable[[Any], bool] | None = None
    probe: Callable[[Any, torch.Tensor], torch.Tensor] | None = None


Infer = Callable[[Any, list[Shape], list[Shape]], tuple[list[Shape], list[Shape]]]
InferType = Callable[[Any, list[str | None], list[str | None]], tuple[list[str | None], list[str | None]]]


@dataclass(frozen=True, eq=False)
class Op:
    """An operator. Made by `registry.op`; see there for the meaning of each field.

    One that is in no registry, since it runs an object of the user's, has that object's `TorchCall` as `owner`.
    """

    name: str
    run: Callable[..., Any]
    parse_record: Callable[..., Any]
    attrs: Mapping[str, Attr]
    inputs: tuple[Input, ...] | Callable[[Any], tuple[Input, ...]] = ()
    variadic: Variadic | None = None
    aliases: tuple[str, ...] = ()
    outputs: tuple[str, ...] | Callable[[Any], tuple[str, ...]] = ("output",)
    hidden: int | Callable[[Any], int] = 0
    bind: Callable[[Any], Callable[..., Any]] | None = None
    loss: Loss | None = None
    mutates: tuple[str, ...] = ()
    commit_now: tuple[str, ...] = ()
    infer: Infer | None = None
    infer_type: InferType | None = None
    view: bool = False
    random: bool = False
    needs_shapes: bool = False
    batch: str = ""
    onnx: Onnx | None = None
    doc: str = field(default="", repr=False)
    owner: Any = field(default=None, repr=False)

    def parse(self, given: Mapping[str, Any]) -> Any:
        """Return the attributes as an immutable record, from values or from the strings of a saved graph.

        Raises:
            OpError: unknown, missing or ill-typed attribute.
        """
        for key in given:
            if key not in self.attrs:
                raise OpError(
                    f"{self.name}: unknown attribute {key!r}; it takes {', '.join(self.attrs) or 'none'}"
                )
        values = []
        for key, attr in self.attrs.items():
            if key in given:
                try:
                    values.append(attr.type.parse(given[key]))
                except (
                    ValueError,
                    TypeError,
                    KeyError,
                    OverflowError,
                    SyntaxError,
                    RecursionError,
                    MemoryError,
                ):
                    raise OpError(
                        f"{self.name}: {key} is {given[key]!r}, expected {attr.type.expects} ({attr.doc})"
                    ) from None
            elif attr.default is REQUIRED:
                raise OpError(f"{self.name}: {key} is required: {attr.doc}, {attr.type.expects}")
            else:
                values.append(attr.default)
        return self.parse_record(*values)

    def wanted(self, a: Any, count: int = 0) -> tuple[Input, ...]:
        """Return the inputs that exist under the attributes `a`; `count` is the number of variadic ones."""
        if self.variadic is not None:
            name, batch = self.variadic.name, self.variadic.batch
            return tuple(Input(f"{name}{i}", DATA, batch) for i in range(count))
        inputs = self.inputs(a) if callable(self.inputs) else self.inputs
        return tuple(i for i in inputs if i.when is None or i.when(a))

    def output_names(self, a: Any) -> tuple[str, ...]:
        """Return the names of the visible outputs."""
        return self.outputs(a) if callable(self.outputs) else self.outputs

    def num_hidden(self, a: Any) -> int:
        """Return how many further outputs MXNet counts in saved graphs but never shows."""
        return self.hidden(a) if callable(self.hidden) else self.hidden

    def is_loss(self, a: Any) -> bool:
        """Say whether the output ignores its head gradient."""
        return self.loss is not None and (self.loss.when is None or self.loss.when(a))
