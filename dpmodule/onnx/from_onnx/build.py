"""`GraphBuilder`: makes the nodes of a symbol, and folds constants."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import torch

from ...base import dtype_code
from ...graph import Entry, Node
from ...ops import get
from ...ops.attrs import to_text
from ...ops.dtypes import name_of, torch_dtype
from ...ops.shapes import infer_shape, infer_type
from ...ops.spec import Env, Op
from ..hints import Hints
from .check import Unsupported
from .value import Dims, OnnxValue, Sizes

_CPU = torch.device("cpu")
_MAX_FOLDED = 2**24
"""Maximal number of elements of a folded constant."""

_MAX_FOLDED_TOTAL = 2**26
_FROZEN = {"__lr_mult__": "0.0", "__wd_mult__": "0.0"}


class GraphScope:
    """A graph under construction: the main one, or the body of a loop or branch."""

    def __init__(self, parent: GraphScope | None = None) -> None:
        self.parent = parent
        self.depth: int = 0 if parent is None else parent.depth + 1
        self.captured: dict[Entry, tuple[Entry, Node]] = {}
        """Captured entries of the outer graph, with the variable that represents each in this graph."""
        self.size_sources: dict[Sizes, tuple[OnnxValue, int]] = {}
        """A value and an axis for each size that differs between trials."""

    def capture(self, entry: Entry) -> Entry:
        """Return the variable that represents an entry of the outer graph."""
        if entry not in self.captured:
            node, number = entry
            name = node.name if node.op is None else f"{node.name}-{number}"
            self.captured[entry] = (
                entry,
                Node(None, name, attrs=dict(node.attrs) if node.op is None else {}),
            )
        return self.captured[entry][1], 0


def _is_same(x: torch.Tensor, y: torch.Tensor) -> bool:
    """Return True if two arrays have the same elements; NaN equals NaN."""
    return x is y or x.shape == y.shape and bool(((x == y) | (x != x) & (y != y)).all())


class GraphBuilder:
    """Makes nodes, and folds those that depend only on constants.

    Args:
        trials: number of trials.

    Attributes:
        params: values of the variables that are not inputs, by name.
        may_end: bodies of loops that can end the loop, by id.
    """

    def __init__(self, trials: int, hints: Hints) -> None:
        self.trials = trials
        self.hints = hints
        self.params: dict[str, torch.Tensor] = {}
        self.root = self.scope = GraphScope()
        self.label = "onnx"
        self.fresh: list[Node] = []
        self.may_end: dict[int, Any] = {}
        self._taken: dict[str, int] = {}
        self._packed: dict[str, OnnxValue] = {}
        self._folded = 0

    # names and variables

    def reserve(self, name: str) -> str:
        """Return a unique name, equal to the given one if possible."""
        unique = name = name or "onnx"
        while unique in self._taken:
            self._taken[name] += 1
            unique = f"{name}_{self._taken[name]}"
        self._taken[unique] = 0
        return unique

    def variable(self, name: str, shapes: tuple[Dims, ...], dtype: str, is_open: bool = False) -> OnnxValue:
        """Make a variable.

        Args:
            shapes: its shape in every trial; () for an array without axes.
            is_open: do not declare its shape, which binding then determines.
        """
        held = tuple(shape or (1,) for shape in shapes)
        # declared, since operators with inputs of several types would guess an input's type
        attrs = {} if dtype == "float32" and not is_open else {"__dtype__": str(dtype_code(dtype))}
        if not is_open:
            attrs["__shape__"] = to_text(held[0])
        value = OnnxValue(self, held, dtype, (Node(None, name, attrs=attrs), 0))
        value.is_scalar, value.scope, value.name = not shapes[0], self.scope, name
        self.register_sizes(value)
        return value

    def parameter(self, name: str, tensor: torch.Tensor, trains: bool) -> OnnxValue:
        """Make a value from an array of the file."""
        value = self.constant(tensor)
        value.name = name
        if trains:
            value.trains = True
            value.entry = self.variable(name, value.dims, value.dtype).entry
            self.params[name] = value.known[0]  # type: ignore[index]
        return value

    def packed(self, name: str, tensor: Callable[[], torch.Tensor]) -> OnnxValue:
        """Return a parameter that the file stores in pieces."""
        if name not in self._packed:
            self._packed[name] = self.parameter(self.reserve(name), tensor(), True)
        return self._packed[name]

    def constant(self, data: Any, dtype: str | None = None) -> OnnxValue:
        """Make a constant."""
        return self.from_trials([data if isinstance(data, torch.Tensor) else torch.tensor(data)], dtype)

    def from_trials(self, per_trial: Sequence[torch.Tensor], dtype: str | None = None) -> OnnxValue:
        """Make a constant that may differ between trials."""
        tensors = [t if dtype is None else t.to(torch_dtype(dtype)) for t in per_trial]
        held = [t.reshape(1) if t.dim() == 0 else t for t in tensors]
        if all(_is_same(t, held[0]) for t in held[1:]):
            held = [held[0]] * self.trials
        value = OnnxValue(self, tuple(tuple(t.shape) for t in held), name_of(held[0].dtype))
        value.known, value.is_scalar, value.scope = tuple(held), tensors[0].dim() == 0, self.root
        return value

    def entry(self, value: OnnxValue) -> Entry:
        """Return a value's entry in the current graph, adding a constant to the graph if necessary."""
        if value.entry is None:
            self._add_constant(value)
        entry, scope = value.entry, value.scope
        if entry is None:
            raise Unsupported(
                "a value that depends on the sizes of the inputs, and that no operator computes"
            )
        inner, here = [], self.scope
        while here is not scope and here.parent is not None:
            inner.append(here)
            here = here.parent
        for step in reversed(inner):
            entry = step.capture(entry)
        return entry

    def _add_constant(self, value: OnnxValue) -> None:
        """Add a constant to the graph: as an operator if all its elements are equal, else as a variable."""
        tensor = self.constant_value(value)
        if tensor is None:
            return
        if 0 in tensor.shape:
            raise Unsupported(f"an array without elements, of shape {tuple(tensor.shape)}")
        first = tensor.reshape(-1)[0]
        if bool((tensor == first).all()) and abs(float(first)) < 2**53:
            params = {
                "shape": to_text(tuple(tensor.shape)),
                "dtype": value.dtype,
                "value": to_text(float(first)),
            }
            node = Node(get("_full"), value.name or self.reserve(f"{self.label}_full"), params)
            self.fresh.append(node)
            value.entry, value.scope = (node, 0), self.root
            return
        name = value.name or self.reserve(f"{self.label}_const")
        attrs = {"__shape__": to_text(tuple(tensor.shape)), **_FROZEN}
        if value.dtype != "float32":
            attrs["__dtype__"] = str(dtype_code(value.dtype))
        value.entry, value.scope = (Node(None, name, attrs=attrs), 0), self.root
        self.params[name] = tensor

    # values

    def values_per_trial(self, value: OnnxValue) -> tuple[torch.Tensor, ...] | None:
        """Return a value's elements in every trial; None if they depend on the inputs.

        Each recipe is tried only once, since a failed one would fail again.
        """
        waiting = [value]
        while waiting:
            last = waiting[-1]
            if last.known is not None or last.recipe is None:
                waiting.pop()
                continue
            op, a, inputs = last.recipe
            before = [each for each in inputs if each.known is None and each.recipe is not None]
            waiting += before
            if not before:
                last.recipe, tensors = None, [each.known for each in inputs]
                if all(t is not None for t in tensors) and self._may_fold(list(last.shapes)):
                    last.known = self._run(op, a, tensors, [last.shapes])[0]  # type: ignore[arg-type]
        return value.known

    def constant_value(self, value: OnnxValue) -> torch.Tensor | None:
        """Return a value's elements if they are the same in every trial, else None."""
        tensors = self.values_per_trial(value)
        if tensors is None:
            return None
        first = tensors[0]
        return first if all(_is_same(t, first) for t in tensors) else None

    def required_constant(self, value: OnnxValue | None, what: str) -> torch.Tensor:
        """Return a value's elements, which must be constant."""
        tensor = None if value is None else self.constant_value(value)
        if tensor is None:
            raise Unsupported(f"{what} is not constant")
        return tensor

    def integers(self, value: OnnxValue, what: str) -> list[Dims]:
        """Return a value's integers in every trial."""
        tensors = self.values_per_trial(value)
        if tensors is None:
            raise Unsupported(f"{what} depends on the data")
        return [tuple(int(n) for n in t.reshape(-1).tolist()) for t in tensors]

    def _may_fold(self, shapes: Sequence[Dims]) -> bool:
        total = sum(map(math.prod, shapes))
        if total > _MAX_FOLDED or self._folded + total > _MAX_FOLDED_TOTAL:
            return False
        self._folded += total
        return True

    def _run(
        self, op: Op, a: Any, inputs: Sequence[tuple[torch.Tensor, ...]], shapes: Sequence[tuple[Dims, ...]]
    ) -> list[tuple[torch.Tensor, ...]]:
        """Compute an operator in every trial; return the elements of each output."""
        rows: list[list[torch.Tensor]] = []
        for trial in range(self.trials):
            tensors = [t[trial] for t in inputs]
            if trial and all(t[trial] is t[0] for t in inputs) and all(s[trial] == s[0] for s in shapes):
                rows.append(rows[0])
                continue
            with torch.no_grad():
                results = op.run(a, Env(_CPU, None, False, tuple(s[trial] for s in shapes)), *tensors)
            results = results if isinstance(results, (tuple, list)) else (results,)
            rows.append([t.reshape(1) if t.dim() == 0 else t.contiguous() for t in results])
        return [tuple(column) for column in zip(*rows)]

    # operators

    def __call__(
        self, name: str, *inputs: OnnxValue, shapes: Sequence[tuple[Dims, ...]] = (), **attrs: Any
    ) -> OnnxValue:
        """Apply an operator of one output; see `many`."""
        return self.many(name, *inputs, shapes=shapes, **attrs)[0]

    def many(
        self, name: str, *inputs: OnnxValue, shapes: Sequence[tuple[Dims, ...]] = (), **attrs: Any
    ) -> list[OnnxValue]:
        """Apply an operator.

        Args:
            shapes: shapes of the outputs in every trial, if they depend on the data; inferred by default.

        Returns:
            Its outputs.
        """
        op = get(name)
        params = {key: to_text(value) for key, value in attrs.items()}
        if op.variadic is not None and op.variadic.count:
            params[op.variadic.count] = str(len(inputs))
        a = op.parse(params)
        return self.apply_op(op, a, params, inputs, shapes)

    def apply_op(
        self,
        op: Op,
        a: Any,
        params: dict[str, str],
        inputs: Sequence[OnnxValue],
        shapes: Sequence[tuple[Dims, ...]] = (),
        subgraphs: tuple[Any, ...] = (),
        types: Sequence[str] = (),
    ) -> list[OnnxValue]:
        """Make the values of an operator; see `many`."""
        count = len(shapes) or len(op.output_names(a))
        plain = bool(inputs) and not (op.draws(a) or op.loss or subgraphs or op.stateful)
        known: list[tuple[torch.Tensor, ...]] | None = None
        if plain and not shapes and all(v.known is not None and not v.trains for v in inputs):
            known = self._fold(op, a, inputs, count)
            if known is not None and all(self.is_uniform(tensors) for tensors in known):
                return [self.constant(tensors[0]) for tensors in known]
        if known is not None:
            shapes = [tuple(tuple(t.shape) for t in tensors) for tensors in known]
        elif not shapes:
            shapes = self.infer_shapes(op, a, inputs, count)
        types = types or [
            t or "float32" for t in infer_type(op, a, [v.dtype for v in inputs], [None] * count)[1]
        ]
        entries = tuple(self.entry(v) for v in inputs)
        node = Node(op, self.reserve(f"{self.label}_{op.name.strip('_').lower()}"), params, {}, entries)
        node.subgraphs = subgraphs
        self.fresh.append(node)
        values = [
            OnnxValue(self, each, dtype, (node, i)) for i, (each, dtype) in enumerate(zip(shapes, types))
        ]
        for i, value in enumerate(values):
            value.scope, value.trains = self.scope, any(v.trains for v in inputs)
            value.known = None if known is None else known[i]
            if plain and count == 1 and all(v.known is not None or v.recipe is not None for v in inputs):
                value.recipe = (op, a, tuple(inputs))
            self.register_sizes(value)
        return values

    @staticmethod
    def is_uniform(known: Sequence[torch.Tensor] | None) -> bool:
        """Return True if elements are the same in every trial."""
        return known is not None and all(t is known[0] for t in known)

    def _fold(
        self, op: Op, a: Any, inputs: Sequence[OnnxValue], count: int
    ) -> list[tuple[torch.Tensor, ...]] | None:
        """Compute an operator on constants, unless the result is large."""
        if any(0 in shape for v in inputs for shape in v.shapes):
            shapes = [v.shapes for v in inputs]
        else:
            shapes = self.infer_shapes(op, a, inputs, count)
        if not self._may_fold([each for one in shapes for each in one]):
            return None
        return self._run(op, a, [v.known or () for v in inputs], shapes)

    def infer_shapes(self, op: Op, a: Any, inputs: Sequence[OnnxValue], count: int) -> list[tuple[Dims, ...]]:
        """Return the shapes of each of an operator's outputs in every trial."""
        rows: dict[tuple[Dims, ...], list[Dims]] = {}
        for trial in range(self.trials):
            ins = tuple(v.shapes[trial] for v in inputs)
            if ins not in rows:
                _, outs = infer_shape(op, a, list(ins), [None] * count)
                if any(o is None or 0 in o for o in outs):
                    raise Unsupported(f"{op.name}: the shape of the result cannot be inferred from {ins}")
                rows[ins] = [o or (1,) for o in outs]
        every = [rows[tuple(v.shapes[trial] for v in inputs)] for trial in range(self.trials)]
        return [tuple(row[i] for row in every) for i in range(count)]

    # sizes that differ between trials

    def register_sizes(self, value: OnnxValue) -> None:
        """Record a value's sizes that differ between trials."""
        for axis in range(len(value.shapes[0])) if self.trials > 1 else ():
            sizes = value.axis(axis)
            if any(n != sizes[0] for n in sizes):
                self.scope.size_sources.setdefault(sizes, (value, axis))

    def find_size(self, sizes: Sizes) -> tuple[OnnxValue, int] | None:
        """Return a value and an axis with a given size; None if there is none."""
        scope: GraphScope | None = self.scope
        while scope is not None:
            if sizes in scope.size_sources:
                return scope.size_sources[sizes]
            scope = scope.parent
        return None

    def all_sizes(self) -> dict[Sizes, tuple[OnnxValue, int]]:
        """Return all sizes that differ between trials, with a value and an axis of each."""
        sources: dict[Sizes, tuple[OnnxValue, int]] = {}
        scope: GraphScope | None = self.scope
        while scope is not None:
            sources = {**scope.size_sources, **sources}
            scope = scope.parent
        return sources


@dataclass(slots=True, eq=False)
class NodeCall:
    """A node to translate.

    Attributes:
        inputs: its inputs; None for an omitted one.
        attrs: its attributes, including defaults.
        since: the opset that introduced the operator's version used in the file.
        body: translates a subgraph of the node: ``(graph, inputs) -> outputs``.
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
        """Return True if an input is given."""
        return number < len(self.inputs) and self.inputs[number] is not None

    def value(self, number: int) -> OnnxValue:
        """Return an input."""
        if not self.has(number):
            raise Unsupported(f"input {number} is missing")
        value = self.inputs[number]
        if not isinstance(value, OnnxValue):
            raise Unsupported(f"input {number} is a sequence, expected an array")
        return value

    def maybe(self, number: int) -> OnnxValue | None:
        """Return an input; None if it is omitted or empty."""
        if not self.has(number):
            return None
        value = self.value(number)
        return None if any(0 in shape for shape in value.shapes) else value

    def ints(self, name: str, number: int) -> list[tuple[int, ...]] | None:
        """Return integers, an attribute in old opsets and an input in new ones, in every trial."""
        if name in self.attrs:
            return [tuple(self.attrs[name])] * self.b.trials
        if not self.has(number):
            return None
        return self.b.integers(self.value(number), name)

    def fixed_ints(self, name: str, number: int) -> tuple[int, ...] | None:
        """Return the integers of `ints`, which must be the same in every trial."""
        integers = self.ints(name, number)
        if integers is None:
            return None
        if any(row != integers[0] for row in integers):
            raise Unsupported(f"{name} depends on the sizes of the inputs")
        return integers[0]


Translator = Callable[[NodeCall], Any]
"""Translates a node: ``(call) -> value``, or a list of values, one for each output."""
