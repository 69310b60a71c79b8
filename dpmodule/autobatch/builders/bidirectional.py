"""Networks that read a sequence from both ends."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from ..arguments import TOO_LARGE, whole
from ..collection import ParameterCollection, as_collection
from ..errors import ArgumentError, foreign_value, user_line
from ..expression import Expression, listed
from ..functions.combine import concatenate
from .rnn import RNNBuilder, made_from
from .state import RNNState


class BiRNNBuilder:
    """Pairs of networks, one for each direction; a layer reads both outputs of the one below.

    Shape:
        input: (input_dim,), any minibatch.
        output: (hidden_dim,), (hidden_dim / 2,) from each direction.

    Args:
        num_layers: how many pairs.
        hidden_dim: the size of outputs, half of it from each direction.
        model: where the parameters go.
        rnn_builder_factory: a builder class, such as `LSTMBuilder`.
        builder_layers: pairs of builders to use in place of new ones.

    Raises:
        ArgumentError: `hidden_dim` is odd, or `builder_layers` is empty.
        ForeignValueError: `builder_layers` holds something else than pairs of builders.

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
        self.spec = (num_layers, input_dim, hidden_dim, rnn_builder_factory, None)
        self._model = as_collection(model, "model").add_subcollection("birnn")
        if builder_layers is not None:
            self.builder_layers = [_pair(each) for each in listed("builder_layers", builder_layers)]
            if not self.builder_layers:
                raise ArgumentError(
                    f"builder_layers is empty, expected a pair of builders for each layer (at {user_line()})"
                )
            return
        num_layers, hidden_dim = whole(num_layers, "num_layers"), whole(hidden_dim, "hidden_dim")
        if not 0 < num_layers < TOO_LARGE or hidden_dim % 2:
            raise ArgumentError(
                f"num_layers, hidden_dim are {num_layers}, {hidden_dim}; expected a positive number"
                f" below {TOO_LARGE} and an even one (at {user_line()})"
            )
        if not callable(rnn_builder_factory):
            what = "makes no builders; pass a class such as LSTMBuilder"
            raise foreign_value("rnn_builder_factory", rnn_builder_factory, what)
        self.builder_layers = []
        for layer in range(num_layers):
            size = hidden_dim if layer else input_dim
            pair = tuple(rnn_builder_factory(1, size, hidden_dim // 2, self._model) for _ in "fb")
            self.builder_layers.append(_pair(pair))

    @classmethod
    def from_spec(cls, spec: Sequence[Any], model: ParameterCollection) -> BiRNNBuilder:
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
        return "BiRNNBuilder"

    def param_collection(self) -> ParameterCollection:
        """Return the collection of the parameters."""
        return self._model

    def set_dropout(self, p: float) -> None:
        """Set the dropout rate of all networks; see `RNNBuilder.set_dropout`.

        Args:
            p: chance that a number is dropped, from 0 to less than 1.

        Raises:
            ArgumentError: `p` is below 0, or 1 or more.
            ForeignValueError: it is no number.
        """
        for each in self._all():
            each.set_dropout(p)

    def disable_dropout(self) -> None:
        """Do without dropout."""
        for each in self._all():
            each.disable_dropout()

    def _all(self) -> list[RNNBuilder]:
        return [each for pair in self.builder_layers for each in pair]

    def _joined(
        self, es: Sequence[Expression], layers: Sequence[tuple[RNNBuilder, RNNBuilder]]
    ) -> list[Expression]:
        found = listed("es", es)
        for forward, backward in layers:
            ahead = forward.initial_state().transduce(found)
            behind = backward.initial_state().transduce(found[::-1])
            found = [concatenate([f, b]) for f, b in zip(ahead, behind[::-1])]
        return found

    def add_inputs(self, es: Sequence[Expression]) -> list[tuple[RNNState, RNNState]]:
        """Return the states of the topmost pair at every position.

        Shape:
            es: each (input_dim,).

        Raises:
            ForeignValueError: `es` is no list of expressions.
            ShapeError: one has another size than the builder was made for.
        """
        inputs = self._joined(es, self.builder_layers[:-1])
        forward, backward = self.builder_layers[-1]
        ahead = forward.initial_state().add_inputs(inputs)
        behind = backward.initial_state().add_inputs(inputs[::-1])
        return list(zip(ahead, behind[::-1]))

    def transduce(self, es: Sequence[Expression]) -> list[Expression]:
        """Return both outputs of the topmost pair, joined, at every position.

        Shape:
            es: each (input_dim,).
            returns: each (hidden_dim,).

        Raises:
            ForeignValueError: `es` is no list of expressions.
            ShapeError: one has another size than the builder was made for.
        """
        return self._joined(es, self.builder_layers)


def _pair(given: Any) -> tuple[RNNBuilder, RNNBuilder]:
    """Return the builders of a layer."""
    if isinstance(given, (tuple, list)) and len(given) == 2:
        forward, backward = given
        if hasattr(forward, "initial_state") and hasattr(backward, "initial_state"):
            return forward, backward
    raise foreign_value("builder_layers", given, "is no pair of builders")
