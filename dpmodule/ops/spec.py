"""Records that declare an operator: `Op` and its parts."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import torch

from ..attribute import is_free
from ..base import OpError, Shape
from .attrs import AttrType

DATA, PARAM, AUX, LABEL = "data", "param", "aux", "label"
"""Kinds of input: data, parameters, auxiliary states (not differentiated), labels."""

ROWS, STACK, SHARE, NEVER = "rows", "stack", "share", "never"
"""How inputs of several calls are batched: joined along axis 0 (the operator works row by row, unless an attribute
such as the axis of `softmax` selects that axis), stacked on a new axis by `torch.vmap`, shared, or not batched."""


class _Required:
    def __repr__(self) -> str:
        return "<required>"


REQUIRED = _Required()


@dataclass(frozen=True, slots=True, eq=False)
class Attr:
    """Attribute of an operator: type, description and default (without one it is required)."""

    type: AttrType
    doc: str = ""
    default: Any = REQUIRED


@dataclass(frozen=True, slots=True, eq=False)
class Input:
    """Input of an operator.

    Attributes:
        name: as in MXNet; a missing input becomes the variable ``<node>_<name>``.
        kind: DATA, PARAM, AUX or LABEL.
        batch: ROWS, STACK, SHARE or NEVER, for automatic batching.
        when: function of the attributes, True if the input exists; None = always.
        init: initializer of a variable created for it, as JSON text ``["name", {arguments}]``.
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
    """Return numbered output names: output0, output1, ...; a single output is named output."""
    return ("output",) if count == 1 else tuple(f"output{i}" for i in range(count))


@dataclass(frozen=True, slots=True, eq=False)
class Variadic:
    """Any number of inputs ``<name>0, <name>1, ...``, or of groups of inputs ``weight_0, grad_0, weight_1, ...``.

    Attributes:
        name: prefix of each input's name; unused with a group.
        count: name of the attribute with the number of inputs or groups.
        batch: `Input.batch` of each input; unused with a group.
        group: inputs of one group, whose names are numbered.
        tail: inputs after the last group.
        instead: inputs that replace these if `fixed` returns True.
        fixed: function of the attributes, True if the operator takes `instead`; None = never.
    """

    name: str = "arg"
    count: str | None = "num_args"
    batch: str = STACK
    group: tuple[Input, ...] = ()
    tail: tuple[Input, ...] = ()
    instead: tuple[Input, ...] = ()
    fixed: Callable[[Any], bool] | None = None

    def is_fixed(self, a: Any) -> bool:
        """Return True if the operator takes `instead` with the attributes `a`."""
        return self.fixed is not None and self.fixed(a)

    def units(self, inputs: int) -> int:
        """Return the value of `count` for a number of inputs; an incomplete group counts."""
        if not self.group:
            return inputs
        return -(-max(inputs - len(self.tail), 0) // len(self.group))

    def total(self, units: int) -> int:
        """Return the number of inputs if `count` is `units`."""
        return units * len(self.group) + len(self.tail) if self.group else units

    def inputs(self, units: int) -> tuple[Input, ...]:
        """Return all inputs if `count` is `units`."""
        if not self.group:
            return tuple(Input(f"{self.name}{i}", DATA, self.batch) for i in range(units))
        numbered = (replace(member, name=f"{member.name}_{i}") for i in range(units) for member in self.group)
        return (*numbered, *self.tail)

    def is_input(self, key: str) -> bool:
        """Return True if `key` is the name of an input."""
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
    """ONNX counterpart of an operator: an ONNX operator or a builder, or the reason why there is none.

    An ONNX operator takes the inputs in order, without labels, and returns the visible outputs. Types that it does not
    support are computed in a supported type.

    Attributes:
        type: the ONNX operator, or the main one of the builder.
        rename: ONNX attribute names by ours.
        const: additional ONNX attributes.
        drop: our attributes without meaning in ONNX, which concern training or storage.
        scalar: operand given by the attribute ``scalar``, "first" or "last"; "" = none.
        builder: name of a function in `dpmodule.onnx.to_onnx`.
        missing: why there is no counterpart, as half a sentence: "updates a weight in place".
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
    """Environment of an operator call, in addition to attributes and tensors.

    Attributes:
        device: device of new tensors.
        generator: random generator of the context.
        is_train: True in training mode.
        out_shapes: inferred output shapes, for operators declared with ``needs_shapes``.
        context: the `Context`; None means the device's.
        memo: state of a ``stateful`` operator between calls; None if no state is kept.
        memory: unused tensor in which some steps may write their result; they then set this to None.
        counted: (examples,) bool, mask of examples whose losses have gradients; None means all.
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
    """Output that is its own loss: its gradient ignores the head gradient.

    Attributes:
        forward: ``(a, env, data, *rest) -> output``, not differentiated.
        grad: ``(a, env, output, data, *rest) -> gradient of data``.
        when: function of the attributes, True if the head gradient is ignored; None = always.
        probe: ``(a, output) -> part`` that is finite only if the whole output is; None = the output itself.
    """

    forward: Callable[..., torch.Tensor]
    grad: Callable[..., torch.Tensor]
    when: Callable[[Any], bool] | None = None
    probe: Callable[[Any, torch.Tensor], torch.Tensor] | None = None


@dataclass(frozen=True, slots=True)
class ClassLabels:
    """Class labels of an operator.

    Attributes:
        count: number of classes; labels are integers from 0 to ``count - 1``.
        reads: ``(labels) -> mask`` of the labels that are used, of their shape; None = all.
    """

    count: int
    reads: Callable[[torch.Tensor], torch.Tensor] | None = None


Shapes = tuple[list[Shape], list[Shape]]
Types = tuple[list[str | None], list[str | None]]
"""Results of shape and type rules: inputs, then outputs."""

Infer = Callable[[Any, list[Shape], list[Shape]], Shapes]
InferType = Callable[[Any, list[str | None], list[str | None]], Types]


@dataclass(frozen=True, eq=False)
class Op:
    """Operator, created by `registry.op`, which documents the fields.

    An operator that runs a user's object is not registered, and has that object's `TorchCall` as `owner`.
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
    random: bool | Callable[[Any, bool], bool] = False
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
    classic: str = ""
    doc: str = field(default="", repr=False)
    owner: Any = field(default=None, repr=False)

    @property
    def kind(self) -> str:
        """Name by which passes know the operator: that of a classic one that computes the same, or its own."""
        return self.classic or self.name

    @property
    def is_numpy(self) -> bool:
        """True if MXNet writes the operator only under ``npx.set_np()``; `_np_cumsum` is also ``cumsum``."""
        return self.name.startswith(("_np_", "_npi_", "_npx_")) and self.name != "_np_cumsum"

    def owns(self, key: str) -> bool:
        """Return True if `key` is an attribute of the operator, not a free attribute of the form ``__x__``."""
        return key in self.attrs or (self.read_attrs is not None and not is_free(key))

    @property
    def accepts_any_keyword(self) -> bool:
        """True if any keyword is accepted: MXNet only checks keywords of operators with parameters."""
        return self.accepts_any or not (self.attrs or self.read_attrs or self.owner)

    def parse(self, given: Mapping[str, Any], bodies: tuple[Any, ...] = ()) -> Any:
        """Return the attributes as an immutable record, from values or strings of a saved graph.

        Args:
            bodies: subgraphs of the operator, stored in the record's last field.
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
        """Return the inputs that exist with the attributes `a`; `count` is the number of variadic inputs."""
        if self.variadic is not None:
            if self.variadic.is_fixed(a):
                return self.variadic.instead
            return self.variadic.inputs(self.variadic.units(count))
        inputs = self.inputs(a) if callable(self.inputs) else self.inputs
        return tuple(i for i in inputs if i.when is None or i.when(a))

    def mutated_inputs(self, declared: Sequence[Input]) -> list[tuple[int, bool]]:
        """Return the positions of inputs that `run` updates, and whether forward writes them."""
        if self.variadic is not None:
            names = [i.name.rpartition("_")[0] for i in declared]
            return [(p, n in self.commit_in_forward) for p, n in enumerate(names) if n in self.mutates]
        names = [i.name for i in declared]
        return [(names.index(m), m in self.commit_in_forward) for m in self.mutates if m in names]

    def output_names(self, a: Any) -> tuple[str, ...]:
        """Return the names of the visible outputs."""
        return self.outputs(a) if callable(self.outputs) else self.outputs

    def num_hidden(self, a: Any) -> int:
        """Return the number of hidden outputs that MXNet counts in saved graphs."""
        return self.hidden(a) if callable(self.hidden) else self.hidden

    def draws(self, a: Any, is_train: bool = True) -> bool:
        """Return True if the operator draws random numbers."""
        return self.random(a, is_train) if callable(self.random) else self.random

    def is_loss(self, a: Any) -> bool:
        """Return True if the output ignores its head gradient."""
        return self.loss is not None and (self.loss.when is None or self.loss.when(a))

    def needs_head_gradient(self, a: Any) -> bool:
        """Return True if backward needs the head gradient."""
        return not self.is_loss(a) if self.needs_head is None else self.needs_head(a)
