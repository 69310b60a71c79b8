"""Base of recurrent networks with equal layers, and the simple RNN and GRU."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Any, ClassVar, TypeVar

from ... import native
from ..arguments import TOO_LARGE, as_integer, below_one, flag
from ..collection import ParameterCollection, as_collection
from ..errors import ArgumentError, StaleExpressionError, user_line
from ..expression import Expression, as_list, handle_of, node_of
from ..functions.arithmetic import affine_transform, cmult, logistic, tanh
from ..functions.inputs import dim_of, inputVector, random_bernoulli, zeros
from ..graph import node_holders
from ..initializers import ConstInitializer
from ..parameters import Parameters
from ..session import state as shared
from .state import Layers, Mask, RNNState

if TYPE_CHECKING:
    from typing_extensions import Self

B = TypeVar("B")


class NetworkBuilder:
    """Base of networks that are saved as the arguments of their constructor and a collection.

    Args:
        spec: arguments of the constructor, without the collection.
        model: collection in which a subcollection for the parameters is made.
        name: name of the subcollection.
    """

    def __init__(self, spec: tuple[Any, ...], model: ParameterCollection, name: str) -> None:
        self.spec = spec
        self._model = as_collection(model, "model").add_subcollection(name)

    @classmethod
    def from_spec(cls, spec: Sequence[Any], model: ParameterCollection) -> Self:
        """Create a network from the `spec` of another network.

        Args:
            spec: the other network's `spec`.
            model: collection that gets the parameters.

        Raises:
            ArgumentError: `spec` does not describe a network of this class.
            ForeignValueError: it is not a list.
        """
        return _from_spec(cls, spec, model)

    def whoami(self) -> str:
        """Return the name of the class."""
        return type(self).__name__

    def param_collection(self) -> ParameterCollection:
        """Return the collection of the parameters."""
        return self._model


class RNNBuilder(NetworkBuilder):
    """A recurrent network of several layers.

    Subclasses define `_add_layer`, which creates parameters, and `cell`.

    Shape:
        input: (input_dim,), any minibatch.
        output, memory: (hidden_dim,).

    Args:
        model: collection in which a subcollection for the parameters is made.
    """

    collection_name: ClassVar[str] = "rnn-builder"
    has_memory: ClassVar[bool] = False

    def __init__(self, layers: int, input_dim: int, hidden_dim: int, model: ParameterCollection) -> None:
        layers, input_dim, hidden_dim = (
            as_integer(each, name)
            for each, name in ((layers, "layers"), (input_dim, "input_dim"), (hidden_dim, "hidden_dim"))
        )
        if not all(0 < each < TOO_LARGE for each in (layers, input_dim, hidden_dim)):
            raise ArgumentError(
                f"layers, input_dim, hidden_dim are {layers}, {input_dim}, {hidden_dim}; expected positive numbers"
                f" and below {TOO_LARGE} (at {user_line()})"
            )
        self.layers, self.input_dim, self.hidden_dim = layers, input_dim, hidden_dim
        super().__init__((layers, input_dim, hidden_dim), model, self.collection_name)
        self._dropout = self._dropout_h = 0.0
        self._version = -1
        self._is_updated, self._is_cut = True, False
        self._held_before = 0  # the builder holds nodes with smaller numbers
        self._masks: list[Mask] = []
        self._mask_batch = 0  # size of their minibatch; 0 until they are drawn
        self._expressions: Sequence[tuple[Expression, ...]] = ()
        self.parameters: list[tuple[Parameters, ...]] = [
            self._add_layer(input_dim if layer == 0 else hidden_dim) for layer in range(layers)
        ]
        self.cells: Any = None  # lets native code add steps
        if native.core is not None and self._is_native():
            self.cells = native.core.AutobatchLayers(
                tuple(self.parameters), self.has_memory, self._lstm_forget_bias()
            )

    def _is_native(self) -> bool:
        """Return True if native code may add steps, which it cannot for users' subclasses."""
        return __package__ == type(self).__module__.rpartition(".")[0]

    def _lstm_forget_bias(self) -> float | None:
        """Return the forget bias of an LSTM, which native code implements; None makes it record the steps of `cell`."""
        return None

    def _add_layer(self, size: int) -> tuple[Parameters, ...]:
        """Create the parameters of a layer whose input has `size` elements."""
        raise NotImplementedError(f"{type(self).__name__} does not define _add_layer")

    def _add_gate(self, size: int) -> tuple[Parameters, Parameters, Parameters]:
        """Create a gate's input weight, recurrent weight and bias, for an input of `size` elements."""
        add, hidden = self._model.add_parameters, self.hidden_dim
        return add((hidden, size)), add((hidden, hidden)), add((hidden,), ConstInitializer(0.0))

    def cell(
        self, weights: tuple[Expression, ...], x: Expression, old: tuple[Expression, ...] | None, mask: Mask
    ) -> tuple[Expression, ...]:
        """Compute one layer at one position.

        Shape:
            x: (input_dim,), above the lowest layer (hidden_dim,).
            old, returns: each (hidden_dim,), with the minibatch of `x`.

        Args:
            old: the layer's previous state, None at the beginning.

        Returns:
            The new state: (output,) or (output, memory).
        """
        raise NotImplementedError(f"{type(self).__name__} does not define cell")

    def get_parameters(self) -> list[list[Parameters]]:
        """Return the parameters of every layer.

        Shape:
            returns: see the class.
        """
        return [list(layer) for layer in self.parameters]

    def get_parameter_expressions(self) -> list[list[Expression]]:
        """Return the parameters of every layer as expressions of the graph under construction.

        Shape:
            returns: the shapes of the parameters.
        """
        if self._version != shared.graph.version:
            raise StaleExpressionError(
                f"Attempt to use a stale expression, renew CG and/or call initial_state before accessing"
                f" {self.whoami()} internal parameters expression (at {user_line()})"
            )
        self.refresh()
        return [[handle_of(each.enter(), each.version) for each in layer] for layer in self._expressions]

    def initial_state(self, vecs: Sequence[Expression] | None = None, update: bool = True) -> RNNState:
        """Return the initial state of a sequence.

        Shape:
            vecs: each (hidden_dim,).

        Args:
            vecs: memories of all layers, if the network has memories, then outputs of all layers; zeros by default.
            update: False to treat the network's parameters as constants.
        """
        self._mask_batch = 0
        self.new_graph(update)
        given = [] if vecs is None else as_list("initial_state: vecs", vecs)
        return RNNState(self, self.layers_of(given) if given else ())

    def initial_state_from_raw_vectors(self, vecs: Sequence[Any], update: bool = True) -> RNNState:
        """Return the initial state from lists of numbers; see `initial_state`.

        Shape:
            vecs: each (hidden_dim,).
        """
        return self.initial_state([inputVector(each) for each in as_list("vecs", vecs)], update)

    def new_graph(self, update: bool = True) -> None:
        """Use the parameters in the graph under construction, as constants if `update` is False."""
        self._is_updated, self._is_cut = flag(update, "update"), False
        self._version = shared.graph.version
        expressions: Sequence[tuple[Expression, ...]] = (
            self.parameters
        )  # added to the graph when they are used
        if not self._is_updated:
            expressions = [tuple([each.expr(False) for each in layer]) for layer in self.parameters]
            self.keep()
        if self.cells is not None and expressions is not self._expressions:
            self.cells.weights = tuple(expressions)
        self._expressions = expressions
        self._update_cells()

    def keep(self) -> None:
        """Register as a holder of the nodes made so far, which `cg_revert` may remove."""
        graph = shared.graph
        self._held_before = graph.size
        node_holders.add(self, graph.version)

    def forget_nodes(self, size: int) -> None:
        """Forget nodes from number `size` on; the next step creates them again."""
        if self._held_before > size:
            self._is_cut = True
            self._mask_batch = 0
            self._update_cells()

    def refresh(self) -> None:
        """Add parameters removed by `cg_revert` to the graph again."""
        if self._is_cut:
            self.new_graph(self._is_updated)

    def _update_cells(self) -> None:
        """Report to native code whether it can add steps, and with which masks."""
        cells = self.cells
        if cells is not None:
            has_masks = self._mask_batch > 0
            cells.masks = tuple(self._masks) if has_masks else None
            fits = has_masks == bool(self._dropout or self._dropout_h) and not self._is_cut
            cells.ready = fits and self._is_plain()

    def _is_plain(self) -> bool:
        """Return True if steps follow the class's equations, apart from dropout masks."""
        return True

    def layers_of(self, vecs: Sequence[Expression]) -> Layers:
        """Convert memories and outputs of all layers to states of layers.

        Shape:
            vecs, returns: each (hidden_dim,).
        """
        for each in vecs:
            node_of(each)  # checks that it is an expression of this graph
        count = self.layers
        if len(vecs) != (2 * count if self.has_memory else count):
            expected = f"{count} memories and {count} outputs" if self.has_memory else str(count)
            raise ArgumentError(f"{len(vecs)} initial states given, expected {expected} (at {user_line()})")
        return tuple(zip(vecs[count:], vecs[:count]) if self.has_memory else zip(vecs))

    def zero_layers(self) -> Layers:
        """Return the states of layers before the first input.

        Shape:
            returns: each (hidden_dim,).
        """
        nothing = zeros(self.hidden_dim)
        return ((nothing, nothing) if self.has_memory else (nothing,),) * self.layers

    def step(self, before: Layers, x: Expression) -> Layers:
        """Compute all layers at one position.

        Shape:
            before, returns: each (hidden_dim,).
            x: (input_dim,).

        Args:
            before: the states of the layers, () at the beginning.
        """
        masks = self.masks(x)
        after = []
        for layer, weights in enumerate(self._expressions):
            new = self.cell(weights, x, before[layer] if before else None, masks[layer])
            after.append(new)
            x = new[0]
        return tuple(after)

    def run(self, before: Layers, xs: Iterable[Expression]) -> list[Expression]:
        """Compute all layers at several positions; return the outputs.

        Shape:
            before, returns: each (hidden_dim,).
            xs: each (input_dim,).

        Args:
            before: the states of the layers, () at the beginning.
        """
        outputs = []
        for x in xs:
            before = self.step(before, x)
            outputs.append(before[-1][0])
        return outputs

    def set_dropout(self, p: float) -> None:
        """Apply dropout to inputs and outputs of every layer, with one random mask per sequence."""
        self.set_dropouts(p, p)

    def set_dropouts(self, d: float, d_r: float) -> None:
        """Set the dropout rates of inputs and of recurrent outputs; see `set_dropout`."""
        self._dropout, self._dropout_h = below_one(d, "dropout rate"), below_one(d_r, "dropout rate")
        self._mask_batch = 0
        self._update_cells()

    def disable_dropout(self) -> None:
        """Disable dropout."""
        self.set_dropout(0.0)

    def set_dropout_masks(self, batch_size: int = 1) -> None:
        """Draw new masks, one for each element of the minibatch; call it after `initial_state`.

        Shape:
            masks: (input_dim,) and (hidden_dim,), with a minibatch of `batch_size`.
        """
        batch_size = dim_of(1, batch_size).batch
        self._masks = [
            (
                _mask(self.input_dim if layer == 0 else self.hidden_dim, self._dropout, batch_size),
                _mask(self.hidden_dim, self._dropout_h, batch_size),
            )
            for layer in range(self.layers)
        ]
        self._mask_batch = batch_size
        self.keep()
        self._update_cells()

    def masks(self, x: Expression) -> list[Mask]:
        """Return the dropout masks of all layers, drawn before the first input of a sequence.

        Shape:
            x: (input_dim,).
            returns: for each layer, the shape of its input and (hidden_dim,); with the minibatch of `x`.
        """
        if not (self._dropout or self._dropout_h):
            return [(None, None)] * self.layers
        if not self._mask_batch:
            self.set_dropout_masks(shared.graph.dim(node_of(x)).batch)
        return self._masks


def _from_spec(builder: Callable[..., B], spec: Sequence[Any], model: ParameterCollection) -> B:
    given = as_list("spec", spec)
    try:
        bound = inspect.signature(builder).bind(*given[:3], model, *given[3:])
    except TypeError as failure:
        raise ArgumentError(
            f"spec is {spec!r}, which does not describe a {builder.__name__}: {failure} (at {user_line()})"
        ) from None
    return builder(*bound.args)


def _mask(size: int, rate: float, batch_size: int) -> Expression | None:
    return random_bernoulli(size, 1.0 - rate, 1.0 / (1.0 - rate), batch_size) if rate else None


class SimpleRNNBuilder(RNNBuilder):
    """A multi-layer network with ``h' = tanh(Wx * x + Wh * h + b)``.

    Shape:
        input: (input_dim,), any minibatch.
        output: (hidden_dim,).

    Args:
        layers: number of layers.
        model: collection that gets the parameters.

    Raises:
        ArgumentError: a size is not positive.
        ForeignValueError: `model` is not a collection, or a size is not an integer.
    """

    collection_name: ClassVar[str] = "simple-rnn-builder"

    def _add_layer(self, size: int) -> tuple[Parameters, ...]:
        return self._add_gate(size)

    def cell(
        self, weights: tuple[Expression, ...], x: Expression, old: tuple[Expression, ...] | None, mask: Mask
    ) -> tuple[Expression, ...]:
        wx, wh, b = weights
        x = masked(x, mask[0])
        outside = affine_transform([b, wx, x])  # one product for all positions
        if old is None:
            return (tanh(outside),)
        return (tanh(outside + wh * masked(old[0], mask[1])),)


class GRUBuilder(RNNBuilder):
    """A multi-layer network of gated recurrent units.

    ``z = logistic(Wzx * x + Wzh * h + bz)``, ``r = logistic(Wrx * x + Wrh * h + br)``,
    ``u = tanh(Whx * x + Whh * (r * h) + bh)``, ``h' = (1 - z) * h + z * u``.

    Shape:
        input: (input_dim,), any minibatch.
        output: (hidden_dim,).

    Args:
        layers: number of layers.
        model: collection that gets the parameters.

    Raises:
        ArgumentError: a size is not positive.
        ForeignValueError: `model` is not a collection, or a size is not an integer.

    Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014, as in DyNet.
    """

    collection_name: ClassVar[str] = "gru-builder"

    def _add_layer(self, size: int) -> tuple[Parameters, ...]:
        return tuple(each for _ in "zrh" for each in self._add_gate(size))

    def cell(
        self, weights: tuple[Expression, ...], x: Expression, old: tuple[Expression, ...] | None, mask: Mask
    ) -> tuple[Expression, ...]:
        wzx, wzh, bz, wrx, wrh, br, whx, whh, bh = weights
        x = masked(x, mask[0])
        z, u = affine_transform([bz, wzx, x]), affine_transform([bh, whx, x])
        if old is None:
            return (cmult(logistic(z), tanh(u)),)
        before, h = old[0], masked(old[0], mask[1])
        z = logistic(z + wzh * h)
        r = logistic(affine_transform([br, wrx, x]) + wrh * h)
        u = tanh(u + whh * cmult(r, h))
        return (cmult(1.0 - z, before) + cmult(z, u),)


def masked(x: Expression, mask: Expression | None) -> Expression:
    """Apply a dropout mask, if there is one.

    Shape:
        x, mask, returns: equal.
    """
    return x if mask is None else cmult(x, mask)
