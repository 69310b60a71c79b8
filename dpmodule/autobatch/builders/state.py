"""States of recurrent networks: `RNNState` and `StackedRNNState`."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

from ... import native
from ..errors import ArgumentError, ForeignValueError, StaleExpressionError, user_line, wrong_type
from ..expression import Expression, as_list, node_of
from ..session import state as shared

Layers = tuple[tuple[Expression, ...], ...]
"""The states of all layers: for each, (output,) or (output, memory)."""

Mask = tuple[Expression | None, Expression | None]
"""Dropout masks of a layer's input and output; None for no mask."""


class RecurrentNetwork(Protocol):
    """Interface of recurrent networks used by their states.

    Attributes:
        has_memory: True if the state of a layer is (output, memory), False if it is (output,).
    """

    layers: int
    has_memory: ClassVar[bool]
    cells: Any

    def refresh(self) -> None:
        """Ensure that the network's expressions belong to the graph under construction."""

    def layers_of(self, vecs: Sequence[Expression]) -> Layers:
        """Convert memories and outputs of all layers to states of layers.

        Shape:
            vecs, returns: each (hidden_dim,).
        """

    def zero_layers(self) -> Layers:
        """Return the states of layers before the first input.

        Shape:
            returns: each (hidden_dim,).
        """

    def masks(self, x: Expression) -> list[Mask]:
        """Return the dropout masks of all layers, drawn before the first input of a sequence.

        Shape:
            x: (input_dim,).
            returns: for each layer, the shape of its input and (hidden_dim,).
        """

    def step(self, before: Layers, x: Expression) -> Layers:
        """Compute all layers at one position.

        Shape:
            before, returns: each (hidden_dim,).
            x: (input_dim,).
        """

    def run(self, before: Layers, xs: Iterable[Expression]) -> list[Expression]:
        """Compute all layers at several positions; return the outputs.

        Shape:
            before, returns: each (hidden_dim,).
            xs: each (input_dim,).
        """


class _PlainState:
    """Base of states without the native extension."""

    __slots__ = ("_builder", "_cells", "_layers", "_previous", "_version")

    _builder: RecurrentNetwork
    _cells: Any
    _layers: Layers
    _previous: RNNState | None
    _version: int


if TYPE_CHECKING or native.core is None:  # noqa: SIM108 (mypy follows this form only)
    _Base = _PlainState
else:
    _Base = native.core.AutobatchState


class RNNState(_Base):
    """Immutable state of a recurrent network after some inputs.

    Shape:
        outputs, memories: each (hidden_dim,), with the minibatch of the inputs.

    Args:
        layers: states of the layers, empty at the beginning.
        previous: state before the last input.
    Source: DyNet's `RNNState`.
    """

    __slots__ = ()

    def __init__(
        self, builder: RecurrentNetwork, layers: Layers = (), previous: RNNState | None = None
    ) -> None:
        self._builder, self._layers, self._previous = builder, layers, previous
        self._cells = builder.cells
        self._version = shared.graph.version

    # implemented in C with the extension, which calls `_step` and `_run` for what it cannot add itself
    if TYPE_CHECKING or native.core is None:

        def add_input(self, x: Expression) -> RNNState:
            """Return the state after another input.

            Shape:
                x: (input_dim,).
            """
            return self._step(x)

        def transduce(self, xs: Iterable[Expression]) -> list[Expression]:
            """Return the outputs after each of several inputs.

            Shape:
                xs: each (input_dim,).
                returns: each (hidden_dim,).
            """
            return self._run(xs)

        def output(self) -> Expression | None:
            """Return the output of the last layer; None before the first input.

            Shape:
                returns: (hidden_dim,).
            """
            return self._layers[-1][0] if self._layers else None

    def __reduce_ex__(self, protocol: Any) -> Any:
        """Raise an error, since states cannot be copied or pickled."""
        raise ForeignValueError(
            "RNNState belongs to the graph and cannot be copied or pickled; save the values of s()"
        )

    def _check(self) -> None:
        graph = shared.graph
        if self._version != graph.version:
            raise StaleExpressionError(
                "Using stale builder. Create .new_graph() after computation graph is renewed: call initial_state()"
                f" again after renew_cg() (at {user_line()})"
            )
        if graph.was_cut and self._layers:
            graph.check_nodes((self._layers[-1][-1].node,))  # before new nodes reuse its number
        self._builder.refresh()

    def _step(self, x: Expression) -> RNNState:
        self._check()
        if self._draws_masks(x):
            return self.add_input(x)
        return RNNState(self._builder, self._builder.step(self._layers, x), self)

    def add_inputs(self, xs: Iterable[Expression]) -> list[RNNState]:
        """Return the states after each of several inputs.

        Shape:
            xs: each (input_dim,).

        Args:
            xs: the input vectors; see `add_input`.

        Raises:
            ForeignValueError: `xs` is not a list of expressions.
            ShapeError: an input does not have the size the builder expects.
            StaleExpressionError: `renew_cg` has been called since `initial_state`.
        """
        states, current = [], self
        for x in as_list("add_inputs: xs", xs):
            current = current.add_input(x)
            states.append(current)
        return states

    def _run(self, xs: Iterable[Expression]) -> list[Expression]:
        self._check()
        xs = as_list("transduce: xs", xs)
        if xs and self._draws_masks(xs[0]):
            return self.transduce(xs)
        return self._builder.run(self._layers, xs)

    def _draws_masks(self, x: Expression) -> bool:
        """Draw masks at the beginning of a sequence; return True if native code can add steps from then on."""
        builder = self._builder
        if builder.cells is None or builder.cells.ready:
            return False
        builder.masks(x)
        return bool(builder.cells.ready)

    def h(self) -> tuple[Expression, ...]:
        """Return the outputs of all layers.

        Shape:
            returns: each (hidden_dim,).
        """
        return tuple(layer[0] for layer in self._layers)

    def s(self) -> tuple[Expression, ...]:
        """Return memories of all layers, if they have any, then outputs of all layers.

        Shape:
            returns: each (hidden_dim,).
        """
        return (*(layer[1] for layer in self._layers if len(layer) > 1), *self.h())

    def prev(self) -> RNNState | None:
        """Return the state before the last input."""
        return self._previous

    def b(self) -> RecurrentNetwork:
        """Return the network."""
        return self._builder

    def set_h(self, es: Sequence[Expression] | None = None) -> RNNState:
        """Return a state with other outputs; memories are kept, and are zeros at the beginning.

        Shape:
            es: each (hidden_dim,).

        Args:
            es: one output for each layer.

        Raises:
            ArgumentError: the number of expressions is wrong.
            ForeignValueError: `es` is not a list of expressions.
            StaleExpressionError: `renew_cg` has been called since `initial_state`.
        """
        self._check()
        given = self._checked(es, self._builder.layers)
        old = self._layers or self._builder.zero_layers()
        return RNNState(self._builder, tuple((h, *layer[1:]) for h, layer in zip(given, old)), self)

    def set_s(self, es: Sequence[Expression] | None = None) -> RNNState:
        """Return a state with other memories and, if given, other outputs.

        Shape:
            es: each (hidden_dim,).

        Args:
            es: memories of all layers, optionally followed by their outputs; only outputs for networks without memory.

        Raises:
            ArgumentError: the number of expressions is wrong.
            ForeignValueError: `es` is not a list of expressions.
            StaleExpressionError: `renew_cg` has been called since `initial_state`.
        """
        self._check()
        layers = self._builder.layers
        if not self._builder.has_memory:
            return self.set_h(es)
        es = None if es is None else as_list("set_s: es", es)
        if es is not None and len(es) == layers:
            old = self._layers or self._builder.zero_layers()
            given = self._checked(es, layers)
            return RNNState(self._builder, tuple((layer[0], c) for layer, c in zip(old, given)), self)
        return RNNState(self._builder, self._builder.layers_of(self._checked(es, 2 * layers)), self)

    @staticmethod
    def _checked(es: Sequence[Expression] | None, count: int) -> Sequence[Expression]:
        given = [] if es is None else as_list("es", es)
        if len(given) != count:
            raise ArgumentError(f"{len(given)} expressions given, expected {count} (at {user_line()})")
        for each in given:
            node_of(each)  # checks that it is an expression of this graph
        return given


# names in Python's own error messages
RNNState._step.__qualname__ = "RNNState.add_input"
RNNState._run.__qualname__ = "RNNState.transduce"


class StackedRNNState:
    """States of stacked networks, each of which reads the outputs of the one below.

    Shape:
        outputs, memories: see each network.

    Args:
        states: one for each network, from the lowest up.
        prev: state before the last input.

    Raises:
        ArgumentError: `states` is empty.
        ForeignValueError: an element is not a state.

    Source: DyNet's `StackedRNNState`.
    """

    __slots__ = ("_previous", "states")

    def __init__(self, states: Sequence[RNNState], prev: StackedRNNState | None = None) -> None:
        self.states: list[RNNState] = as_list("states", states)
        if not self.states:
            raise ArgumentError(f"states is empty, expected a state of each network (at {user_line()})")
        for each in self.states:
            if not hasattr(each, "add_input"):
                raise wrong_type("states", each, "is not a state of a network")
        self._previous = prev

    def add_input(self, x: Expression) -> StackedRNNState:
        """Return the state after another input.

        Shape:
            x: (input_dim,) of the lowest network.

        Args:
            x: input vector of the lowest network.

        Raises:
            ShapeError: `x` does not have the size the network expects.
            StaleExpressionError: `renew_cg` has been called since `initial_state`.
        """
        after = []
        for each in self.states:
            new = each.add_input(x)
            after.append(new)
            x = new.h()[-1]
        return StackedRNNState(after, self)

    def add_inputs(self, xs: Iterable[Expression]) -> list[StackedRNNState]:
        """Return the states after each of several inputs.

        Shape:
            xs: each (input_dim,) of the lowest network.

        Args:
            xs: the input vectors; see `add_input`.

        Raises:
            ForeignValueError: `xs` is not a list of expressions.
            ShapeError: see `add_input`, also for other errors.
        """
        found, current = [], self
        for x in as_list("add_inputs: xs", xs):
            current = current.add_input(x)
            found.append(current)
        return found

    def output(self) -> Expression | None:
        """Return the output of the topmost network.

        Shape:
            returns: (hidden_dim,) of the topmost network.
        """
        return self.states[-1].output()

    def s(self) -> list[tuple[Expression, ...]]:
        """Return `RNNState.s` of every network.

        Shape:
            returns: for each network, each (hidden_dim,).
        """
        return [each.s() for each in self.states]

    def h(self) -> list[tuple[Expression, ...]]:
        """Return `RNNState.h` of every network.

        Shape:
            returns: for each network, each (hidden_dim,).
        """
        return [each.h() for each in self.states]

    def prev(self) -> StackedRNNState | None:
        """Return the state before the last input."""
        return self._previous
