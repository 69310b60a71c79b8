"""Long short-term memories over trees."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from ..arguments import sizes_of, whole
from ..collection import ParameterCollection, as_collection
from ..errors import ArgumentError, ForeignValueError, user_line
from ..expression import Expression, listed
from ..functions.combine import affine_transform, cmult, concatenate
from ..functions.elementwise import logistic, tanh
from ..initializers import ConstInitializer
from ..parameters import Parameters
from .rnn import made_from

TreeState = tuple[Expression, Expression]
"""Output and memory of a node of a tree."""


class TreeLSTMBuilder:
    """A long short-term memory that reads a tree from its leaves; each child has a forget gate of its own.

    Shape:
        vector of a leaf: (input_dim,), any minibatch.
        output, memory: (hidden_dim,).

    Args:
        arity: how many children an inner node has.
        input_dim: the size of the vectors of leaves.
        hidden_dim: the size of outputs and memories.
        model: where the parameters go.

    Raises:
        ArgumentError: `arity` is not positive.
        ForeignValueError: `model` is no collection, or a number no integer.
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
        arity = whole(arity, "arity")
        if arity < 1:
            raise ArgumentError(f"arity is {arity}, expected a positive integer (at {user_line()})")
        input_dim, hidden_dim = sizes_of((input_dim, hidden_dim))
        self.arity, self.hidden_dim = arity, hidden_dim
        self.spec = (arity, input_dim, hidden_dim)
        self._model = as_collection(model, "model").add_subcollection("tree-lstm-builder")
        self._leaf = [self._model.add_parameters((hidden_dim, input_dim)) for _ in "iou"]
        self._inner = [self._model.add_parameters((hidden_dim, arity * hidden_dim)) for _ in "iou"]
        self._forget = [self._model.add_parameters((hidden_dim, arity * hidden_dim)) for _ in range(arity)]
        self._bias = [self._model.add_parameters((hidden_dim,), ConstInitializer(0.0)) for _ in "iou"]
        self._forget_bias = self._model.add_parameters((hidden_dim,), ConstInitializer(1.0))

    @classmethod
    def from_spec(cls, spec: Sequence[Any], model: ParameterCollection) -> TreeLSTMBuilder:
        """Make a network as `spec` of another one describes it.

        Args:
            spec: what the other one's `spec` is.
            model: the collection that gets the parameters.

        Raises:
            ArgumentError: `spec` describes no network of this class.
            ForeignValueError: it is no list.
        """
        return made_from(cls, spec, model)

    def whoami(self) -> str:
        """Return the name of the class."""
        return "TreeLSTMBuilder"

    def param_collection(self) -> ParameterCollection:
        """Return the collection of the parameters."""
        return self._model

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
            ShapeError: it has another size.
        """
        i, o, u = self._gates(self._leaf, x)
        c = cmult(i, u)
        return cmult(o, tanh(c)), c

    def node(self, children: Sequence[TreeState]) -> TreeState:
        """Return output and memory of an inner node.

        Shape:
            children, returns: each (hidden_dim,).

        Args:
            children: what `leaf` and `node` returned for them, as many as the builder's arity.

        Raises:
            ArgumentError: there are more or fewer.
            ForeignValueError: they are no pairs of expressions.
        """
        children = listed("node: children", children)
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
