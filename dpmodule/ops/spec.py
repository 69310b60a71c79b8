"""Records that declare an operator: `Op` and its parts. Pure data; no operator is made here."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..attribute import is_free
from ..base import OpError, Shape
from .attrs import AttrType

DATA, PARAM, AUX, LABEL = "data", "param", "aux", "label"
"""Kinds of input: values that flow, parameters, auxiliary states (not differentiated), labels."""

ROWS, STACK, SHARE, NEVER = "rows", "stack", "share", "never"
"""How inputs of several calls become one: joined along axis 0 (the operator works row by row, unless an attribute
such as the axis of `softmax` names that very axis), stacked on a new axis through `torch.vmap`, the same object for
all, or not at all."""


class _Required:
    def __repr__(self) -> str:
        return "<required>"


REQUIRED = _Required()


@dataclass(frozen=True, slots=True, eq=False)
class Attr:
    """One attribute: how to read it, what it means, and its default (none = required)."""

    type: AttrType
    doc: str = ""
    default: Any = REQUIRED


@dataclass(frozen=True, slots=True, eq=False)
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


def numbered(count: int) -> tuple[str, ...]:
    """Return the names of outputs that are counted: output0, output1, ...; a single one is just output."""
    return ("output",) if count == 1 else tuple(f"output{i}" for i in range(count))


@dataclass(frozen=True, slots=True, eq=False)
class Variadic:
    """Any number of inputs ``<name>0, <name>1, ...``, or of groups of inputs ``weight_0, grad_0, weight_1, ...``.

    Attributes:
        name: what each input's name starts with; unused if there is a group.
        count: the attribute that stores how many inputs, or groups, there are.
        batch: how automatic batching joins each input; unused if there is a group.
        group: the inputs of one group; their names get a number.
        tail: inputs after the last group, under their own names.
        instead: inputs that the operator takes in place of these when `fixed` says so.
        fixed: tells from the attributes whether it takes `instead`; None = never.
    """

    name: str = "arg"
    count: str | None = "num_args"
    batch: str = STACK
    group: tuple[Input, ...] = ()
    tail: tuple[Input, ...] = ()
    instead: tuple[Input, ...] = ()
    fixed: Callable[[Any], bool] | None = None

    def is_fixed(self, a: Any) -> bool:
        """Return True if the operator takes `instead` under the attributes `a`."""
        return self.fixed is not None and self.fixed(a)

    def units(self, inputs: int) -> int:
        """Return what `count` stores for a number of inputs; of groups, as many as they begin."""
        if not self.group:
            return inputs
        return -(-max(inputs - len(self.tail), 0) // len(self.group))

    def total(self, units: int) -> int:
        """Return the number of inputs where `count` stores `units`."""
        return units * len(self.group) + len(self.tail) if self.group else units

    def inputs(self, units: int) -> tuple[Input, ...]:
        """Return all inputs where `count` stores `units`."""
        if not self.group:
            return tuple(Input(f"{self.name}{i}", DATA, self.batch) for i in range(units))
        numbered = (replace(each, name=f"{each.name}_{i}") for i in range(units) for each in self.group)
        return (*numbered, *self.tail)

    def is_input(self, key: str) -> bool:
        """Return True if a keyword names an input."""
        if not self.group:
            return key.startswith(self.name) and key[len(self.name) :].isdigit()
        member, _, number = key.rpartition("_")
        return (
            number.isdigit()
            and any(i.name == member for i in self.group)
            or any(i.name == key for i in self.tail)
        )


@dataclass(frozen=True, slots=True, eq=False)
class Onnx:
    """What becomes of an operator in ONNX: one operator there, or what a builder makes; or why nothing does.

    One operator takes the inputs in their order, without labels, and gives the visible outputs; hidden ones have no
    counterpart. What it has no type for is computed in a type that it has.

    Attributes:
        type: the ONNX operator, or the one that the builder makes most of it from.
        rename: attributes, ours to theirs.
        const: further attributes of theirs.
        drop: attributes of ours that say nothing there: they concern training or storage.
        scalar: which operand the attribute ``scalar`` becomes, "first" or "last"; "" = it has none.
        builder: name of a function in `dpmodule.onnx.to_onnx`.
        missing: why ONNX has nothing for it, as half a sentence: "updates a weight in place".
    """

    type: str = ""
    rename: Mapping[str, str] = field(default_factory=dict)
    const: Mapping[str, Any] = field(default_factory=dict)
    drop: tuple[str, ...] = ()
    scalar: str = ""
    builder: str = ""
    missing: str = ""


@dataclass(slots=True, eq=False, repr=False)
class Env:
    """What an operator may know besides attributes and tensors.

    Attributes:
        device: where new tensors go.
        generator: the context's random generator.
        is_train: training mode.
        out_shapes: inferred output shapes, only for operators declared with ``needs_shapes``.
        context: the `Context` it runs on; None means that of the device.
        memo: what a ``stateful`` operator keeps from one call to the next; None where nothing is kept.
        memory: a tensor that nobody reads any more, in which a step that says so may put its result; it takes the
            tensor away.
        counted: (examples,) of bool, which examples' losses have gradients; None means all.
    """

    device: torch.device
    generator: torch.Generator | None
    is_train: bool
    out_shapes: tuple[tuple[int, ...], ...] = ()
    context: Any = None
    memo: dict[Any, Any] | None = None
    memory: torch.Tensor | None = None
    counted: torch.Tensor | None = None


@dataclass(frozen=True, slots=True, eq=False)
class LossOutput:
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


@dataclass(frozen=True, slots=True)
class ClassLabels:
    """What the labels of an operator may be.

    Attributes:
        count: how many classes there are; a label is a whole number from 0 to ``count - 1``.
        reads: ``(labels) -> mask`` of the labels that count, of their shape; None = all of them.
    """

    count: int
    reads: Callable[[torch.Tensor], torch.Tensor] | None = None


Shapes = tuple[list[Shape], list[Shape]]
Types = tuple[list[str | None], list[str | None]]
"""What rules of shapes and types return: those of the inputs, and those of the outputs."""

Infer = Callable[[Any, list[Shape], list[Shape]], Shapes]
InferType = Callable[[Any, list[str | None], list[str | None]], Types]


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
    loss: LossOutput | None = None
    mutates: tuple[str, ...] = ()
    commit_in_forward: tuple[str, ...] = ()
    infer: Infer | None = None
    infer_type: InferType | None = None
    view: bool = False
    random: bool = False
    needs_shapes: bool = False
    stateful: bool = False
    num_subgraphs: int = 0
    read_attrs: Callable[[Mapping[str, Any]], Any] | None = None
    needs_head: Callable[[Any], bool] | None = None
    differentiable: bool = True
    batch: str = ""
    accepts_any: bool = False
    onnx: Onnx | None = None
    classes: Callable[..., ClassLabels | None] | None = None
    doc: str = field(default="", repr=False)
    owner: Any = field(default=None, repr=False)

    def owns(self, key: str) -> bool:
        """Return True if an attribute of this name is the operator's own, and not a free one of the form ``__x__``."""
        return key in self.attrs or (self.read_attrs is not None and not is_free(key))

    @property
    def accepts_any_keyword(self) -> bool:
        """Whether it takes any keyword: MXNet checks those of operators with parameters only."""
        return self.accepts_any or not (self.attrs or self.read_attrs or self.owner)

    def parse(self, given: Mapping[str, Any], bodies: tuple[Any, ...] = ()) -> Any:
        """Return the attributes as an immutable record, from values or from the strings of a saved graph.

        Args:
            bodies: the subgraphs of an operator that has some; they become the record's last field.
        """
        if self.read_attrs is not None:
            return self.read_attrs(given)
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
        return self.parse_record(*values, bodies) if self.num_subgraphs else self.parse_record(*values)

    def active_inputs(self, a: Any, count: int = 0) -> tuple[Input, ...]:
        """Return the inputs that exist under the attributes `a`; `count` is the number of variadic ones."""
        if self.variadic is not None:
            if self.variadic.is_fixed(a):
                return self.variadic.instead
            return self.variadic.inputs(self.variadic.units(count))
        inputs = self.inputs(a) if callable(self.inputs) else self.inputs
        return tuple(i for i in inputs if i.when is None or i.when(a))

    def mutated_inputs(self, declared: Sequence[Input]) -> list[tuple[int, bool]]:
        """Return the positions of the inputs that `run` gives new values to, and whether forward writes them."""
        if self.variadic is not None:
            names = [i.name.rpartition("_")[0] for i in declared]
            return [(p, n in self.commit_in_forward) for p, n in enumerate(names) if n in self.mutates]
        names = [i.name for i in declared]
        return [(names.index(m), m in self.commit_in_forward) for m in self.mutates if m in names]

    def output_names(self, a: Any) -> tuple[str, ...]:
        """Return the names of the visible outputs."""
        return self.outputs(a) if callable(self.outputs) else self.outputs

    def num_hidden(self, a: Any) -> int:
        """Return how many further outputs MXNet counts in saved graphs but never shows."""
        return self.hidden(a) if callable(self.hidden) else self.hidden

    def is_loss(self, a: Any) -> bool:
        """Return True if the output ignores its head gradient."""
        return self.loss is not None and (self.loss.when is None or self.loss.when(a))

    def needs_head_gradient(self, a: Any) -> bool:
        """Return True if backward needs the gradient of the output from outside."""
        return not self.is_loss(a) if self.needs_head is None else self.needs_head(a)
