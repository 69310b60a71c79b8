"""Analysis of a cell's symbol: inputs, parameters, states, ragged values, and whether it works row by row.

A graph works row by row if every operator does. This is decided by the operators' declarations (`Op.batch`,
`Input.batch`), by attributes that name an axis, and by shapes: every value that depends on an example must keep the
rows first, for two row counts that occur nowhere else.
"""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping, Sequence
from typing import Any

import torch

from ..base import ArgumentError, ShapeError
from ..context import cpu
from ..executor import allocate
from ..executor.storage_types import StorageTypes, declared_storage_types, infer_storage_types
from ..graph import Graph, Node, infer_shapes
from ..initializer import InitDesc
from ..ndarray import NDArray
from ..ops.shapes import known
from ..ops.sparse import Ragged
from ..ops.spec import NEVER, PARAM, SHARE
from ..symbol import Symbol
from .arguments import text
from .collection import ExistingParameters, ParameterCollection, find
from .errors import user_line
from .expression import as_list
from .parameters import LookupParameters, Parameters
from .session import state
from .storage import ArrayStorage, ParameterStorage, StateStorage, parameter_attributes

Shape = tuple[int, ...]

_NUMBERS = (7, 11)
"""Row counts for trial shape inference."""

_AXES = ("axis", "axes", "dim", "dim1", "dim2", "begin_axis")
"""Attributes that name an axis."""

NORMALIZING = frozenset({"BatchNorm", "BatchNorm_v1", "_contrib_SyncBatchNorm", "_contrib_BatchNormWithReLU"})
"""Operators that use statistics of the batch by design."""

_NAMES = """
SwapAxis expand_dims squeeze transpose SliceChannel _split_v2 Reshape slice slice_axis broadcast_axis broadcast_to
repeat tile Concat stack pick take argsort sort topk argmax argmax_channel argmin max mean min moments nanprod nansum
norm prod sum
broadcast_add broadcast_div broadcast_hypot broadcast_maximum broadcast_minimum broadcast_mod broadcast_mul
broadcast_power broadcast_sub broadcast_equal broadcast_greater broadcast_greater_equal broadcast_lesser
broadcast_lesser_equal broadcast_logical_and broadcast_logical_or broadcast_logical_xor broadcast_not_equal
batch_dot dot amp_multicast
"""
BY_SHAPE = frozenset(_NAMES.split())
"""Operators whose attributes decide whether they are row-wise; declared for `torch.vmap`, but checked by axes and
shapes."""


def can_stack(graph: Graph) -> bool:
    """Return True if all operators support `torch.vmap`."""
    return all(node.op is None or node.op.batch != NEVER for node in graph.nodes)


def why_not_row_wise(
    graph: Graph,
    examples: Mapping[str, Shape],
    others: Mapping[str, Shape],
    known: Collection[Node] = (),
) -> str:
    """Return the reason why a graph does not work row by row, "" if it does.

    Args:
        examples: shape of one example of every input, without the axis of rows.
        others: shapes of parameters and states.
        known: operators known to work row by row regardless of their declaration, such as those on ragged values.
    """
    batched = _depends(graph, examples)
    for number in _NUMBERS:
        given = {**{name: (number, *shape) for name, shape in examples.items()}, **others}
        try:
            shapes = infer_shapes(graph, given)
        except ShapeError as error:
            return f"{number} examples do not fit: {error}"
        for node in graph.nodes:
            if node in batched and any(not shape or shape[0] != number for shape in shapes[node]):
                return f"{node.describe()} does not keep the examples separate along the first axis"
        for node in graph.nodes:
            if node.op is not None and node in batched and node not in known:
                reason = _reason(node, batched, shapes)
                if reason:
                    return f"{node.describe()} {reason}"
    return ""


def _depends(graph: Graph, examples: Collection[str]) -> set[Node]:
    found = {node for node in graph.inputs if node.name in examples}
    for node in graph.nodes:
        if any(child in found for child, _ in node.inputs):
            found.add(node)
    return found


def _reason(node: Node, batched: set[Node], shapes: Mapping[Node, Any]) -> str:
    op = node.op
    if op is None:
        return ""
    if op.name in NORMALIZING:
        return "" if getattr(node.a, "axis", 1) != 0 else "normalizes along the first axis"
    if op.batch == NEVER:
        return "takes one example at a time"
    if getattr(node.a, "normalization", None) not in (None, "null"):
        return f"divides by what is in the batch (normalization={node.a.normalization})"
    ndim = len(shapes[node.inputs[0][0]][node.inputs[0][1]] or ())
    if op.name in ("take", "dot"):
        return _reason_of_pair(node, batched)
    declared = op.active_inputs(node.a, len(node.inputs))
    for (child, _), one in zip(node.inputs, declared):
        if child in batched and one.batch == SHARE:
            return f"shares {one.name} among examples"
    if any(one.batch not in ("rows", SHARE) for one in declared) and op.name not in BY_SHAPE:
        return "is not declared to work row by row"
    return _reason_of_axes(node, ndim)


def _reason_of_pair(node: Node, batched: set[Node]) -> str:
    """Return why `take` or `dot` does not work row by row; each does for one of its operands only."""
    first, second = (child in batched for child, _ in node.inputs[:2])
    if node.op is not None and node.op.name == "take":
        return "" if second and not first and node.a.axis == 0 else "picks among examples"
    if second or getattr(node.a, "transpose_a", False):
        return "multiplies across examples"
    return ""


def _reason_of_axes(node: Node, ndim: int) -> str:
    op_name = "" if node.op is None else node.op.name
    if op_name == "transpose":
        order = tuple(node.a.axes or ())
        return "" if order[:1] == (0,) or ndim < 2 else "moves the first axis"
    if op_name == "slice" and any(step not in (None, 0, 1) for step in (node.a.step or ())[:1]):
        return "reverses the first axis"
    result_ndim = ndim + 1 if op_name in ("expand_dims", "stack") else ndim
    for name in _AXES:
        if not hasattr(node.a, name):
            continue
        value = getattr(node.a, name)
        if value is None and ndim < 2:
            return "works along the first axis"
        axes = tuple(value) if isinstance(value, (tuple, list)) else () if value is None else (value,)
        if any(axis is not None and int(axis) % max(result_ndim, 1) == 0 for axis in axes):
            return f"works along the first axis ({name}={value})"
    return ""


class RaggedInputs:
    """Ragged inputs and outputs of a cell, and the conversion between rows of examples and ragged values.

    Attributes:
        storage: storage types of the graph's values; None if all are dense.
        nodes: operators that read ragged values, which all work row by row.
    """

    def __init__(self, graph: Graph) -> None:
        declared = declared_storage_types(graph)
        self.names = frozenset(name for name, stype in declared.items() if stype == "ragged")
        self.storage: StorageTypes | None = None
        self.nodes: frozenset[Node] = frozenset()
        self._sources: list[frozenset[str]] = []
        if self.names:
            self._follow(graph)

    def _follow(self, graph: Graph) -> None:
        """Find the ragged values, and the inputs that determine the row lengths of each output."""
        storage = infer_storage_types(graph, dict.fromkeys(self.names, "ragged"))
        if storage is None:
            return
        self.storage, reads = storage, set()
        found: dict[Node, frozenset[str]] = {}
        for node in graph.nodes:
            ragged = [child for child, i in node.inputs if storage.of((child, i)) == "ragged"]
            reads |= {node} if ragged else set()
            own = frozenset([node.name]) & self.names if node.op is None else frozenset()
            found[node] = own.union(*(found[child] for child in ragged))
        self.nodes = frozenset(reads)
        is_ragged = [storage.of(head) == "ragged" for head in graph.heads]
        self._sources = [
            found[node] if is_one else frozenset() for is_one, (node, _) in zip(is_ragged, graph.heads)
        ]

    def without_lengths(self, examples: Mapping[str, Shape]) -> dict[str, Shape]:
        """Return the shapes of examples in the graph, where ragged ones lack the row's length."""
        for name in self.names & examples.keys():
            if not examples[name]:
                raise ShapeError(
                    f"an example of the ragged {name} has no axes, expected (length, ...) (at {user_line()})"
                )
        return {name: shape[1:] if name in self.names else shape for name, shape in examples.items()}

    def with_lengths(self, outputs: Sequence[Shape], examples: Mapping[str, Shape], name: str) -> list[Shape]:
        """Return the shapes of outputs for one example, with the row's length for ragged ones.

        Args:
            examples: shape of each input for one example.
        """
        shapes = []
        for i, shape in enumerate(outputs):
            lengths = {examples[source][0] for source in (self._sources[i] if self._sources else ())}
            if len(lengths) > 1:
                raise ShapeError(
                    f"{name}: an output depends on rows of different lengths {sorted(lengths)} (at {user_line()})"
                )
            shapes.append((*lengths, *shape))
        return shapes

    def value(self, name: str, rows: torch.Tensor) -> torch.Tensor | Ragged:
        """Convert examples of an input to the value that the symbol reads.

        Shape:
            rows: (examples, length, ...) for a ragged input, else (examples, ...).
            returns: (examples, None, ...) for a ragged input, else as `rows`.
        """
        if name not in self.names:
            return rows
        count, length = rows.shape[:2]
        return Ragged(rows.flatten(0, 1), torch.arange(count + 1, device=rows.device) * length)

    @staticmethod
    def rows(value: torch.Tensor | Ragged) -> torch.Tensor:
        """Convert an output to one row per example.

        Shape:
            value: (examples, None, ...) for a ragged output, else (examples, ...).
            returns: (examples, length, ...) for a ragged output, else as `value`.
        """
        if not isinstance(value, Ragged):
            return value
        values, count = value.values, value.shape[0]
        return values.reshape(count, values.shape[0] // count, *values.shape[1:])


class CellParameters:
    """Inputs of a symbol, and the parameters and states for its other arguments.

    Attributes:
        held: parameters and states by name.
    """

    def __init__(
        self,
        symbol: Symbol,
        params: ParameterCollection | Mapping[str, Any] | None,
        inputs: Sequence[str] | None,
        initializer: Any,
        allow_extra: bool,
        ragged: RaggedInputs,
    ) -> None:
        self._ragged = ragged
        self._symbol, self._graph, self._initializer = symbol, symbol.graph, initializer
        self.collection = _collection_of(params)
        self.input_names = self._input_names(params, inputs)
        self.held: dict[str, Parameters] = {}
        self._states = set(self._graph.auxiliary_names)
        wanted = [*self._argument_names(), *self._graph.auxiliary_names]
        if isinstance(params, Mapping):
            self._take(params, wanted, allow_extra)
        else:
            self.held.update((n, each) for n in wanted if (each := find(self.collection, n)) is not None)
            self._mark_states()
        self.missing = [name for name in wanted if name not in self.held]

    def _argument_names(self) -> list[str]:
        return [name for name in self._graph.argument_names if name not in self.input_names]

    def _mark_states(self) -> None:
        """Convert parameters of the collection that are states of the symbol, as after loading a file."""
        for name in self._states & self.held.keys():
            storage = self.held[name].storage
            if not isinstance(storage, StateStorage):
                self.held[name].replace_storage(StateStorage(storage.name, storage.tensor))

    def operands(self) -> dict[str, Parameters]:
        """Return the parameters, without states, by name in the order of the arguments."""
        return {name: self.held[name] for name in self._argument_names() if name in self.held}

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """Return the memory of the states by name."""
        return {name: self.held[name].storage.tensor for name in self._graph.auxiliary_names}

    def shapes(self) -> dict[str, Shape]:
        """Return the shapes of parameters and states by name."""
        return {name: tuple(each.storage.tensor.shape) for name, each in self.held.items()}

    def infer(self, examples: Mapping[str, Shape]) -> dict[Any, list[Any]]:
        """Infer the shapes of all nodes for a batch of one."""
        nominal = self._ragged.without_lengths(examples)
        given: dict[str, Any] = {name: (1, *shape) for name, shape in nominal.items()}
        return infer_shapes(self._graph, {**given, **self.shapes()})

    def _input_names(self, params: Any, inputs: Sequence[str] | None) -> list[str]:
        names = self._graph.argument_names
        if inputs is not None:
            for name in [text(each, "cell: inputs") for each in as_list("cell: inputs", inputs)]:
                if name not in names:
                    raise ArgumentError(
                        f"cell: inputs names {name!r}, the symbol's arguments are {', '.join(names)}"
                    )
            return list(inputs)
        if isinstance(params, Mapping):
            remaining = [name for name in names if name not in params]
        else:
            declared = _declared_parameters(self._graph)
            remaining = [n for n in names if n not in declared and find(self.collection, n) is None]
        if not remaining:
            raise ArgumentError(
                "cell: all arguments of the symbol are parameters; name the inputs with inputs=[...]"
            )
        return remaining

    def _take(self, params: Mapping[str, Any], wanted: Sequence[str], allow_extra: bool) -> None:
        known_names = {*wanted, *self.input_names}
        extra = [name for name in params if name not in known_names]
        if extra and not allow_extra:
            near = difflib.get_close_matches(extra[0], [*known_names], 1)
            raise ArgumentError(
                f"cell: {', '.join(map(repr, extra))} in params is not a parameter of the symbol, which has"
                f" {', '.join(wanted) or 'none'}{f'; did you mean {near[0]!r}?' if near else ''}"
                " (allow_extra=True ignores it)"
            )
        for name in wanted:
            if name in params:
                self.held[name] = _as_parameter(name, params[name], name in self._states)
                if isinstance(self.collection, ExistingParameters):
                    self.collection.add_existing(self.held[name])

    def make(self, given: Mapping[str, Shape]) -> None:
        """Create the missing parameters for the given input shapes."""
        unknown = [name for name in given if name not in self.input_names]
        if unknown:
            raise ArgumentError(f"cell: shapes names {unknown}, the inputs are {', '.join(self.input_names)}")
        found = self.infer(given)
        nodes = {node.name: node for node in self._graph.inputs}
        attributes = self._symbol.attr_dict()
        for name in self.missing:
            shape = found[nodes[name]][0]
            if not known(shape):
                raise ShapeError(
                    f"cell: the shape of {name} cannot be inferred from those of the inputs {dict(given)}"
                )
            value = allocate(shape, cpu(), "float32")
            self._initializer(InitDesc(name, attributes.get(name)), value)
            tensor = value.tensor.to(state.options.device, state.options.dtype)
            parameter = self.collection.parameter_from_tensor(tensor, name)
            if name in self._states:
                parameter.replace_storage(StateStorage(parameter.name(), tensor))
            parameter_attributes[parameter.storage] = attributes.get(name, {})
            self.held[name] = parameter
        self.missing = []


def _collection_of(params: Any) -> ParameterCollection:
    if isinstance(params, ParameterCollection):
        return params
    if params is None:
        return ParameterCollection()
    if isinstance(params, Mapping):
        return ExistingParameters()
    raise ArgumentError(
        f"cell: params is {type(params).__name__}, expected a ParameterCollection, or a dict of arrays by name"
    )


def _declared_parameters(graph: Graph) -> set[str]:
    names: set[str] = set()
    for node in graph.nodes:
        if node.op is not None:
            declared = node.op.active_inputs(node.a, len(node.inputs))
            names.update(
                child.name
                for (child, _), one in zip(node.inputs, declared)
                if child.op is None and one.kind == PARAM
            )
    return names


def _as_parameter(name: str, value: Any, is_state: bool) -> Parameters:
    """Return a parameter that shares the memory of a value given by the user."""
    if isinstance(value, Parameters):
        return value
    if isinstance(value, LookupParameters):
        return Parameters(value.storage)
    if isinstance(value, NDArray):
        return Parameters(
            StateStorage(f"/{name}", value.tensor) if is_state else ArrayStorage(f"/{name}", value)
        )
    if isinstance(value, torch.Tensor):
        storage_type = StateStorage if is_state else ParameterStorage
        return Parameters(storage_type(f"/{name}", value.detach()))
    raise ArgumentError(
        f"cell: {name} is {type(value).__name__}, expected an NDArray, a tensor or Parameters"
    )
