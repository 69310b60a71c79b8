"""The parameters and states of a cell: found, taken from the user, or made; and which arguments are inputs."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..base import ArgumentError, ShapeError
from ..context import cpu
from ..executor import allocate
from ..graph import Graph, infer_shapes
from ..initializer import InitDesc
from ..ndarray import NDArray
from ..ops.shapes import known
from ..ops.spec import PARAM
from ..symbol import Symbol
from .arguments import text
from .borrowed_parameters import ArrayStorage, StateStorage, described
from .collection import HeldCollection, ParameterCollection, find
from .expression import listed
from .parameters import LookupParameters, Parameters
from .ragged_inputs import RaggedInputs
from .session import state
from .storage import ParameterStorage

__all__ = ["CellParameters"]

Shape = tuple[int, ...]


class CellParameters:
    """Which of a symbol's arguments are inputs, and the parameters and states for the others.

    Args:
        symbol: the symbol.
        params: as for `cell`.
        inputs: as for `cell`.
        initializer: gives those that are made their first values.
        allow_extra: as for `cell`.
        ragged: which of the symbol's values are ragged.

    Attributes:
        collection: where all of them are.
        input_names: the arguments that are inputs.
        held: parameters and states by name.
        missing: names of those that are still to be made.

    Raises:
        ArgumentError: `params` names no parameter of the symbol, or there is no input.
        ForeignValueError: an argument is of a wrong type.
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
        """Let states that the collection has as parameters, as read from a file, be states."""
        for name in self._states & self.held.keys():
            storage = self.held[name].storage
            if not isinstance(storage, StateStorage):
                self.held[name].begin_with(StateStorage(storage.name, storage.tensor))

    def operands(self) -> dict[str, Parameters]:
        """Return the parameters by name, in the order of the arguments; states are not among them.

        Shape:
            returns: each as the symbol's parameter.
        """
        return {name: self.held[name] for name in self._argument_names() if name in self.held}

    def state_tensors(self) -> dict[str, torch.Tensor]:
        """Return the memory of the states by name.

        Shape:
            returns: each as the symbol's state.
        """
        return {name: self.held[name].storage.tensor for name in self._graph.auxiliary_names}

    def shapes(self) -> dict[str, Shape]:
        """Return the shapes of parameters and states by name."""
        return {name: tuple(each.storage.tensor.shape) for name, each in self.held.items()}

    def infer(self, examples: Mapping[str, Shape]) -> dict[Any, list[Any]]:
        """Infer the shapes of all nodes for a batch of one.

        Raises:
            ShapeError: inputs and parameters do not fit together.
        """
        nominal = self._ragged.without_lengths(examples)
        given: dict[str, Any] = {name: (1, *shape) for name, shape in nominal.items()}
        return infer_shapes(self._graph, {**given, **self.shapes()})

    def _input_names(self, params: Any, inputs: Sequence[str] | None) -> list[str]:
        """Decide which arguments are inputs.

        Raises:
            ArgumentError: one that is named does not exist, or there are none.
        """
        names = self._graph.argument_names
        if inputs is not None:
            for name in [text(each, "cell: inputs") for each in listed("cell: inputs", inputs)]:
                if name not in names:
                    raise ArgumentError(
                        f"cell: inputs names {name!r}, the symbol's arguments are {', '.join(names)}"
                    )
            return list(inputs)
        if isinstance(params, Mapping):
            found = [name for name in names if name not in params]
        else:
            declared = _declared_parameters(self._graph)
            found = [n for n in names if n not in declared and find(self.collection, n) is None]
        if not found:
            raise ArgumentError(
                "cell: all arguments of the symbol are parameters; name those that are inputs=[...]"
            )
        return found

    def _take(self, params: Mapping[str, Any], wanted: Sequence[str], allow_extra: bool) -> None:
        known_names = {*wanted, *self.input_names}
        extra = [name for name in params if name not in known_names]
        if extra and not allow_extra:
            near = difflib.get_close_matches(extra[0], [*known_names], 1)
            raise ArgumentError(
                f"cell: {', '.join(map(repr, extra))} in params is no parameter of the symbol, which has"
                f" {', '.join(wanted) or 'none'}{f'; did you mean {near[0]!r}?' if near else ''}"
                " (allow_extra=True passes over it)"
            )
        for name in wanted:
            if name in params:
                self.held[name] = _held(name, params[name], name in self._states)
                if isinstance(self.collection, HeldCollection):
                    self.collection.hold(self.held[name])

    def make(self, given: Mapping[str, Shape]) -> None:
        """Make the parameters that are missing, now that the shapes of the inputs are known.

        Raises:
            ArgumentError: an input's shape is not given.
            ShapeError: a parameter's shape does not follow from them.
        """
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
                    f"cell: the shape of {name} does not follow from those of the inputs {dict(given)}"
                )
            value = allocate(shape, cpu(), "float32")
            self._initializer(InitDesc(name, attributes.get(name)), value)
            tensor = value.tensor.to(state.options.device, state.options.dtype)
            made = self.collection.parameter_from_tensor(tensor, name)
            if name in self._states:
                made.begin_with(StateStorage(made.name(), tensor))
            described[made.storage] = attributes.get(name, {})
            self.held[name] = made
        self.missing = []


def _collection_of(params: Any) -> ParameterCollection:
    """Return the collection of a cell's parameters.

    Raises:
        ArgumentError: `params` is neither a collection nor a mapping.
    """
    if isinstance(params, ParameterCollection):
        return params
    if params is None:
        return ParameterCollection()
    if isinstance(params, Mapping):
        return HeldCollection()
    raise ArgumentError(
        f"cell: params is {type(params).__name__}, expected a ParameterCollection, or a dict of arrays by name"
    )


def _declared_parameters(graph: Graph) -> set[str]:
    found: set[str] = set()
    for node in graph.nodes:
        if node.op is not None:
            declared = node.op.wanted(node.a, len(node.inputs))
            found.update(
                child.name
                for (child, _), one in zip(node.inputs, declared)
                if child.op is None and one.kind == PARAM
            )
    return found


def _held(name: str, value: Any, is_state: bool) -> Parameters:
    """Return a value that a user has given as a parameter over the same memory.

    Raises:
        ArgumentError: it is no array.
    """
    if isinstance(value, Parameters):
        return value
    if isinstance(value, LookupParameters):
        return Parameters(value.storage)
    if isinstance(value, NDArray):
        return Parameters(
            StateStorage(f"/{name}", value.tensor) if is_state else ArrayStorage(f"/{name}", value)
        )
    if isinstance(value, torch.Tensor):
        kind = StateStorage if is_state else ParameterStorage
        return Parameters(kind(f"/{name}", value.detach()))
    raise ArgumentError(
        f"cell: {name} is {type(value).__name__}, expected an NDArray, a tensor or Parameters"
    )
