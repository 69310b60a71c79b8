"""Bidirectional networks and tree LSTMs."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arguments import TOO_LARGE, as_integer, sizes_of
from ..collection import ParameterCollection
from ..errors import ArgumentError, ForeignValueError, user_line, wrong_type
from ..expression import Expression, as_list
from ..functions.arithmetic import affine_transform, cmult, concatenate, logistic, tanh
from ..initializers import ConstInitializer
from ..parameters import Parameters
from .rnn import NetworkBuilder, RNNBuilder
from .state import RNNState


class BiRNNBuilder(NetworkBuilder):
    """A bidirectional network: each layer is a pair of networks that reads both outputs of the layer below.

    Shape:
        input: (input_dim,), any minibatch.
        output: (hidden_dim,), (hidden_dim / 2,) from each direction.

    Args:
        num_layers: number of pairs.
        hidden_dim: size of the outputs, half of it from each direction.
        model: collection that gets the parameters.
        rnn_builder_factory: a builder class, such as `LSTMBuilder`.
        builder_layers: existing pairs of builders to use.

    Raises:
        ArgumentError: `hidden_dim` is odd, or `builder_layers` is empty.
        ForeignValueError: `builder_layers` contains anything but pairs of builders.

    Example:
        >>> import dpmodule.autobatch as dy
        >>> m = dy.ParameterCollection()
        >>> both = dy.BiRNNBuilder(1, 2, 6, m, dy.LSTMBuilder)
        >>> both.transduce([dy.inputTensor([1.0, 2.0])])[0].dim()
        ((6,), 1)

    Source: Schuster and Paliwal, "Bidirectional recurrent neural networks", 1997, as DyNet's `BiRNNBuilder`.
    """

    def __init__(
        self,
        num_layers: int,
        input_dim: int,
        hidden_dim: int,
        model: ParameterCollection,
        rnn_builder_factory: Callable[..., RNNBuilder] | None,
        builder_layers: Sequence[tuple[RNNBuilder, RNNBuilder]] | None = None,
    ) -> None:
        super().__init__((num_layers, input_dim, hidden_dim, rnn_builder_factory, None), model, "birnn")
        if builder_layers is not None:
            self.builder_layers = [_pair(each) for each in as_list("builder_layers", builder_layers)]
            if not self.builder_layers:
                raise ArgumentError(
                    f"builder_layers is empty, expected a pair of builders for each layer (at {user_line()})"
                )
            return
        num_layers, hidden_dim = as_integer(num_layers, "num_layers"), as_integer(hidden_dim, "hidden_dim")
        if not 0 < num_layers < TOO_LARGE or hidden_dim % 2:
            raise ArgumentError(
                f"num_layers, hidden_dim are {num_layers}, {hidden_dim}; expected a positive number"
                f" below {TOO_LARGE} and an even one (at {user_line()})"
            )
        if not callable(rnn_builder_factory):
            what = "does not create builders; pass a class such as LSTMBuilder"
            raise wrong_type("rnn_builder_factory", rnn_builder_factory, what)
        self.builder_layers = []
        for layer in range(num_layers):
            size = hidden_dim if layer else input_dim
            pair = tuple(rnn_builder_factory(1, size, hidden_dim // 2, self._model) for _ in "fb")
            self.builder_layers.append(_pair(pair))

    def set_dropout(self, p: float) -> None:
        """Set the dropout rate of all networks; see `RNNBuilder.set_dropout`.

        Args:
            p: probability of dropping an element, in [0, 1).

        Raises:
            ArgumentError: `p` is below 0, or 1 or more.
            ForeignValueError: it is not a number.
        """
        for each in self._all():
            each.set_dropout(p)

    def disable_dropout(self) -> None:
        """Disable dropout."""
        for each in self._all():
            each.disable_dropout()

    def _all(self) -> list[RNNBuilder]:
        return [each for pair in self.builder_layers for each in pair]

    def _joined(
        self, es: Sequence[Expression], layers: Sequence[tuple[RNNBuilder, RNNBuilder]]
    ) -> list[Expression]:
        found = as_list("es", es)
        for forward, backward in layers:
            ahead = forward.initial_state().transduce(found)
            reverse = backward.initial_state().transduce(found[::-1])
            found = [concatenate([f, b]) for f, b in zip(ahead, reverse[::-1])]
        return found

    def add_inputs(self, es: Sequence[Expression]) -> list[tuple[RNNState, RNNState]]:
        """Return the states of the topmost pair at every position.

        Shape:
            es: each (input_dim,).

        Raises:
            ForeignValueError: `es` is not a list of expressions.
            ShapeError: an input does not have the size the builder expects.
        """
        inputs = self._joined(es, self.builder_layers[:-1])
        forward, backward = self.builder_layers[-1]
        ahead = forward.initial_state().add_inputs(inputs)
        reverse = backward.initial_state().add_inputs(inputs[::-1])
        return list(zip(ahead, reverse[::-1]))

    def transduce(self, es: Sequence[Expression]) -> list[Expression]:
        """Return the concatenated outputs of the topmost pair at every position.

        Shape:
            es: each (input_dim,).
            returns: each (hidden_dim,).

        Raises:
            ForeignValueError: `es` is not a list of expressions.
            ShapeError: an input does not have the size the builder expects.
        """
        return self._joined(es, self.builder_layers)


def _pair(given: Any) -> tuple[RNNBuilder, RNNBuilder]:
    """Return the builders of a layer."""
    if isinstance(given, (tuple, list)) and len(given) == 2:
        forward, backward = given
        if hasattr(forward, "initial_state") and hasattr(backward, "initial_state"):
            return forward, backward
    raise wrong_type("builder_layers", given, "is not a pair of builders")


TreeState = tuple[Expression, Expression]
"""Output and memory of a node of a tree."""


class TreeLSTMBuilder(NetworkBuilder):
    """A tree LSTM, computed from the leaves up, with one forget gate per child.

    Shape:
        vector of a leaf: (input_dim,), any minibatch.
        output, memory: (hidden_dim,).

    Args:
        arity: number of children of an inner node.
        input_dim: size of the leaves' vectors.
        hidden_dim: size of the outputs and memories.
        model: collection that gets the parameters.

    Raises:
        ArgumentError: `arity` is not positive.
        ForeignValueError: `model` is not a collection, or a number is not an integer.
        ShapeError: a size is not positive.

    Example:
        >>> import dpmodule.autobatch as dy
        >>> m = dy.ParameterCollection()
        >>> tree = dy.TreeLSTMBuilder(2, 3, 4, m)
        >>> left, right = tree.leaf(dy.inputTensor([1.0, 2, 3])), tree.leaf(dy.inputTensor([4.0, 5, 6]))
        >>> tree.node([left, right])[0].dim()
        ((4,), 1)

    Source: Tai, Socher, Manning, "Improved semantic representations from tree-structured long short-term memory
    networks", 2015 (the N-ary form, inputs at leaves only).
    """

    def __init__(self, arity: int, input_dim: int, hidden_dim: int, model: ParameterCollection) -> None:
        arity = as_integer(arity, "arity")
        if arity < 1:
            raise ArgumentError(f"arity is {arity}, expected a positive integer (at {user_line()})")
        input_dim, hidden_dim = sizes_of((input_dim, hidden_dim))
        self.arity, self.hidden_dim = arity, hidden_dim
        super().__init__((arity, input_dim, hidden_dim), model, "tree-lstm-builder")
        self._leaf = [self._model.add_parameters((hidden_dim, input_dim)) for _ in "iou"]
        self._inner = [self._model.add_parameters((hidden_dim, arity * hidden_dim)) for _ in "iou"]
        self._forget = [self._model.add_parameters((hidden_dim, arity * hidden_dim)) for _ in range(arity)]
        self._bias = [self._model.add_parameters((hidden_dim,), ConstInitializer(0.0)) for _ in "iou"]
        self._forget_bias = self._model.add_parameters((hidden_dim,), ConstInitializer(1.0))

    def _gates(
        self, weights: Sequence[Parameters], x: Expression
    ) -> tuple[Expression, Expression, Expression]:
        i, o, u = (affine_transform([b, w, x]) for b, w in zip(self._bias, weights))
        return logistic(i), logistic(o), tanh(u)

    def leaf(self, x: Expression) -> TreeState:
        """Return output and memory of a leaf.

        Shape:
            x: (input_dim,).
            returns: each (hidden_dim,).

        Raises:
            ShapeError: `x` has the wrong size.
        """
        i, o, u = self._gates(self._leaf, x)
        c = cmult(i, u)
        return cmult(o, tanh(c)), c

    def node(self, children: Sequence[TreeState]) -> TreeState:
        """Return output and memory of an inner node.

        Shape:
            children, returns: each (hidden_dim,).

        Args:
            children: results of `leaf` or `node`, as many as the builder's arity.

        Raises:
            ArgumentError: the number of children is wrong.
            ForeignValueError: a child is not a pair of expressions.
        """
        children = as_list("node: children", children)
        if len(children) != self.arity:
            raise ArgumentError(
                f"{len(children)} children for a tree of arity {self.arity} (at {user_line()})"
            )
        try:
            outputs = [h for h, _ in children]
        except (TypeError, ValueError):
            raise ForeignValueError(
                f"children are {children!r}, expected pairs as leaf() and node() return them (at {user_line()})"
            ) from None
        joined = concatenate(outputs) if len(outputs) > 1 else outputs[0]
        i, o, u = self._gates(self._inner, joined)
        c = cmult(i, u)
        for weights, (_, memory) in zip(self._forget, children):
            f = logistic(affine_transform([self._forget_bias, weights, joined]))
            c = c + cmult(f, memory)
        return cmult(o, tanh(c)), c
