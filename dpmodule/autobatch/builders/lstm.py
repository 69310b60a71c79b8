"""LSTM builders."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

import torch

from ..arguments import flag, number, number_from, probability
from ..collection import ParameterCollection
from ..expression import Expression, apply, handle_of, node_of, plain, with_c_version
from ..functions.arithmetic import affine_transform, cmult, logistic, tanh
from ..functions.inputs import zeros
from ..functions.layers import layer_norm, vanilla_lstm_c, vanilla_lstm_gates, vanilla_lstm_h
from ..initializers import ConstInitializer, UniformInitializer
from ..ops.layers import LSTM_FIRST, LSTM_STEP
from ..ops.linear import AFFINE, MATMUL
from ..parameters import Parameters
from ..session import state as shared
from .rnn import RNNBuilder, masked
from .state import Layers, Mask


class VanillaLSTMBuilder(RNNBuilder):
    """A multi-layer LSTM without peepholes.

    Gates ``i, f, o = logistic(Wx * x + Wh * h + b)`` (plus `forget_bias` for f), candidate
    ``u = tanh(Wx * x + Wh * h + b)``, memory ``c' = f * c + i * u``, output ``h' = o * tanh(c')``.

    Shape:
        input: (input_dim,), any minibatch.
        output, memory: (hidden_dim,).
        Wx: (4 * hidden_dim, input_dim).
        Wh: (4 * hidden_dim, hidden_dim).
        b: (4 * hidden_dim,), rows in the order i, f, o, u.

    Args:
        layers: number of layers.
        hidden_dim: size of the outputs and memories.
        model: collection that gets the parameters.
        ln_lstm: True to apply layer normalization to gates and memories.

    Raises:
        ArgumentError: a size is not positive.
        ForeignValueError: `model` is not a collection, or a size is not an integer.

    Example:
        >>> import dpmodule.autobatch as dy
        >>> m = dy.ParameterCollection()
        >>> lstm = dy.VanillaLSTMBuilder(1, 2, 3, m)
        >>> len(lstm.initial_state().transduce([dy.inputTensor([1.0, 2.0]), dy.inputTensor([3.0, 4.0])]))
        2

    Source: Hochreiter and Schmidhuber, "Long short-term memory", 1997, in DyNet's form; `ln_lstm` after Ba et al.,
    "Layer normalization", 2016.
    """

    collection_name: ClassVar[str] = "vanilla-lstm-builder"
    has_memory: ClassVar[bool] = True

    def __init__(
        self,
        layers: int,
        input_dim: int,
        hidden_dim: int,
        model: ParameterCollection,
        ln_lstm: bool = False,
        forget_bias: float = 1.0,
    ) -> None:
        self._has_norm, self._forget_bias = flag(ln_lstm, "ln_lstm"), number(forget_bias, "forget_bias")
        self._norms: list[tuple[Parameters, ...]] = []
        self._outer_model = model  # DyNet adds the gains and biases of normalization here
        super().__init__(layers, input_dim, hidden_dim, model)
        self.spec = (*self.spec, self._has_norm, self._forget_bias)
        self._norm_expressions: dict[int, tuple[Expression, ...]] = {}

    def _add_layer(self, size: int) -> tuple[Parameters, ...]:
        wx, wh = self._add_weights(size)
        return wx, wh, self._add_biases()

    def _add_weights(self, size: int) -> tuple[Parameters, Parameters]:
        hidden = self.hidden_dim
        bounds = ((6.0 / (4 * hidden + each)) ** 0.5 for each in (size, hidden))
        wx, wh = (
            self._model.add_parameters((4 * hidden, each), UniformInitializer(bound))
            for each, bound in zip((size, hidden), bounds)
        )
        return wx, wh

    def _add_biases(self) -> Parameters:
        hidden = self.hidden_dim
        bias = self._model.add_parameters((4 * hidden,), ConstInitializer(0.0))
        if self._has_norm:
            one, nothing = ConstInitializer(1.0), ConstInitializer(0.0)
            sizes = (4 * hidden, 4 * hidden, hidden)
            self._norms.append(
                tuple(
                    self._outer_model.add_parameters((each,), init)
                    for each in sizes
                    for init in (one, nothing)
                )
            )
        return bias

    def new_graph(self, update: bool = True) -> None:
        super().new_graph(update)
        if self._has_norm:
            self._norm_expressions = {
                weights[0].enter(): tuple([each.expr(update) for each in norms])
                for weights, norms in zip(self._expressions, self._norms)
            }
            self.keep()

    def _is_plain(self) -> bool:
        return not self._has_norm

    def _lstm_forget_bias(self) -> float:
        return self._forget_bias

    def cell(
        self, weights: tuple[Expression, ...], x: Expression, old: tuple[Expression, ...] | None, mask: Mask
    ) -> tuple[Expression, ...]:
        wx, wh, b = weights
        if mask[0] is not None:
            x = cmult(x, mask[0])
        if not self._is_plain():
            return self._composed_cell(weights, x, old, mask)
        h = old[0] if old is not None else None
        if h is not None and mask[1] is not None:
            h = cmult(h, mask[1])
        c = old[1] if old is not None else None
        return lstm_step(x, h, c, wx, wh, b, self._forget_bias)

    def run(self, before: Layers, xs: Iterable[Expression]) -> list[Expression]:
        if self._dropout or self._dropout_h or not self._is_plain():
            return super().run(before, xs)
        outputs = list(xs)
        for layer, weights in enumerate(self._expressions if outputs else ()):
            old = before[layer] if before else ()
            h, c = old if old else (None, None)
            wx, wh, b = weights[:3]
            outputs, _ = lstm_sequence(outputs, h, c, wx, wh, b, self._forget_bias)
        return outputs

    def _composed_cell(
        self, weights: tuple[Expression, ...], x: Expression, old: tuple[Expression, ...] | None, mask: Mask
    ) -> tuple[Expression, ...]:
        wx, wh, b = weights
        norms = self._norm_expressions[wx.node] if self._has_norm else ()
        gates = b + _normal(plain(MATMUL, wx, x), norms[2:4])
        if old is not None:
            h = old[0] if mask[1] is None else cmult(old[0], mask[1])
            gates = gates + _normal(wh * h, norms[:2])
        size = self.hidden_dim
        i, o = logistic(gates[:size]), logistic(gates[2 * size : 3 * size])
        f = logistic(gates[size : 2 * size] + self._forget_bias)
        c = cmult(i, tanh(gates[3 * size :]))
        if old is not None:
            c = c + cmult(f, old[1])
        return cmult(o, tanh(_normal(c, norms[4:]))), c


def _normal(x: Expression, gain_and_bias: tuple[Expression, ...]) -> Expression:
    return layer_norm(x, *gain_and_bias) if gain_and_bias else x


@with_c_version
def lstm_step(
    x: Expression,
    h: Expression | None,
    c: Expression | None,
    wx: Expression,
    wh: Expression,
    b: Expression,
    forget_bias: float,
) -> tuple[Expression, Expression]:
    """Compute the output and memory after one input; `h` and `c` may be None for zeros.

    Shape:
        x: (n,).
        h, c, returns: each (k,).
        wx, wh, b: (4k, n), (4k, k), (4k,).
    """
    gates = plain(AFFINE, b, wx, x)
    if h is None:
        if c is not None:
            return lstm_step(x, zeros(c.dim()[0], c.dim()[1]), c, wx, wh, b, forget_bias)
        return _pair(apply(LSTM_FIRST, (gates,), (forget_bias,)))
    if c is None:
        return _pair(apply(LSTM_FIRST, (gates + wh * h,), (forget_bias,)))
    return _pair(apply(LSTM_STEP, (gates, wh, h, c), (forget_bias,)))


def lstm_sequence(
    xs: list[Expression],
    h: Expression | None,
    c: Expression | None,
    wx: Expression,
    wh: Expression,
    b: Expression,
    forget_bias: float,
) -> tuple[list[Expression], Expression | None]:
    """Compute the output after each input, and the last memory; see `lstm_step`.

    Shape:
        xs: each (n,).
        h, c, returns: each (k,).
        wx, wh, b: (4k, n), (4k, k), (4k,).
    """
    outputs: list[Expression] = []
    if not xs:
        return outputs, c
    if h is None or c is None:
        h, c = lstm_step(xs[0], h, c, wx, wh, b, forget_bias)
        outputs.append(h)
    graph = shared.graph
    version, attrs, append = graph.version, (forget_bias,), graph.append
    bias, inner, outer, before, memory = (each.enter() for each in (b, wx, wh, h, c))
    for x in xs[len(outputs) :]:
        try:
            node = x.node if x.version == version else x.enter()
        except AttributeError:
            node = node_of(x)
        gates = append(AFFINE, (), (bias, inner, node))
        before = append(LSTM_STEP, attrs, (gates, outer, before, memory))
        memory = before + 1
        outputs.append(handle_of(before, version))
    return outputs, handle_of(memory, version)


def _pair(h: Expression) -> tuple[Expression, Expression]:
    """Return output and memory of a step, which are consecutive nodes."""
    return h, handle_of(h.node + 1, h.version)


LSTMBuilder = VanillaLSTMBuilder


class CompactVanillaLSTMBuilder(VanillaLSTMBuilder):
    """An equivalent of `VanillaLSTMBuilder`; DyNet computes it in fewer operations.

    Shape:
        input: (input_dim,), any minibatch.
        output, memory: (hidden_dim,).

    Args:
        layers: number of layers.
        hidden_dim: size of the outputs and memories.
        model: collection that gets the parameters.

    Raises:
        ArgumentError: a size is not positive.
        ForeignValueError: `model` is not a collection, or a size is not an integer.
    """

    collection_name: ClassVar[str] = "compact-vanilla-lstm-builder"
    _noise = 0.0

    def __init__(self, layers: int, input_dim: int, hidden_dim: int, model: ParameterCollection) -> None:
        super().__init__(layers, input_dim, hidden_dim, model)
        self.spec = (layers, input_dim, hidden_dim)

    def cell(
        self, weights: tuple[Expression, ...], x: Expression, old: tuple[Expression, ...] | None, mask: Mask
    ) -> tuple[Expression, ...]:
        if not self._noise:
            return super().cell(weights, x, old, mask)
        x = x if mask[0] is None else cmult(x, mask[0])
        nothing = zeros(self.hidden_dim, x.dim()[1])
        h = nothing if old is None else old[0]
        h = h if mask[1] is None else cmult(h, mask[1])
        wx, wh, b = weights
        gates = vanilla_lstm_gates(x, h, wx, wh, b, self._noise)
        c = vanilla_lstm_c(nothing if old is None else old[1], gates)
        return vanilla_lstm_h(c, gates), c

    def _is_plain(self) -> bool:
        return not self._noise and super()._is_plain()

    def set_weightnoise(self, std: float) -> None:
        """Add normally distributed noise to the weights.

        Every step of every graph draws new noise; steps that run in one batch share it.

        Args:
            std: standard deviation; 0 for no noise.

        Raises:
            ArgumentError: `std` is negative or NaN.
            ForeignValueError: it is not a number.
        """
        self._noise = number_from(std, 0.0, "set_weightnoise: std")
        self._update_cells()


class CoupledLSTMBuilder(RNNBuilder):
    """A multi-layer LSTM with peepholes and a coupled input and forget gate.

    ``i = logistic(Wix * x + Wih * h + Wic * c + bi)``, ``u = tanh(Wcx * x + Wch * h + bc)``,
    ``c' = (1 - i) * c + i * u``, ``o = logistic(Wox * x + Woh * h + Woc * c' + bo)``, ``h' = o * tanh(c')``.

    Shape:
        input: (input_dim,), any minibatch.
        output, memory: (hidden_dim,).

    Args:
        layers: number of layers.
        hidden_dim: size of the outputs and memories.
        model: collection that gets the parameters.

    Raises:
        ArgumentError: a size is not positive.
        ForeignValueError: `model` is not a collection, or a size is not an integer.

    Source: Greff et al., "LSTM: a search space odyssey", 2015 (coupled input and forget gate, peepholes), as DyNet's
    `CoupledLSTMBuilder`.
    """

    collection_name: ClassVar[str] = "lstm-builder"
    has_memory: ClassVar[bool] = True

    def _peephole(self) -> tuple[int, int]:
        return self.hidden_dim, self.hidden_dim

    def peep(self, gate: Expression, weight: Expression, c: Expression) -> Expression:
        """Add the peephole term of a memory to a gate.

        Args:
            gate: sum of the gate's input and output terms.

        Shape:
            gate, c, returns: (hidden_dim,).
            weight: (hidden_dim, hidden_dim).
        """
        return gate + weight * c

    def _add_layer(self, size: int) -> tuple[Parameters, ...]:
        model, hidden = self._model, self.hidden_dim
        layer: list[Parameters] = []
        for gate in "ioc":
            layer += [model.add_parameters((hidden, size)), model.add_parameters((hidden, hidden))]
            if gate != "c":
                layer.append(model.add_parameters(self._peephole()))
            layer.append(model.add_parameters((hidden,), ConstInitializer(0.0)))
        return tuple(layer)

    def cell(
        self, weights: tuple[Expression, ...], x: Expression, old: tuple[Expression, ...] | None, mask: Mask
    ) -> tuple[Expression, ...]:
        wix, wih, wic, bi, wox, woh, woc, bo, wcx, wch, bc = weights
        x = masked(x, mask[0])
        i, o, u = (affine_transform([b, w, x]) for b, w in ((bi, wix), (bo, wox), (bc, wcx)))
        if old is not None:
            h = masked(old[0], mask[1])
            i, o, u = (gate + w * h for gate, w in ((i, wih), (o, woh), (u, wch)))
        if old is not None:
            i = logistic(self.peep(i, wic, old[1]))
            c = cmult(1.0 - i, old[1]) + cmult(i, tanh(u))
        else:
            c = cmult(logistic(i), tanh(u))
        o = logistic(self.peep(o, woc, c))
        return cmult(o, tanh(c)), c


class FastLSTMBuilder(CoupledLSTMBuilder):
    """A `CoupledLSTMBuilder` without peepholes; their one-column weights are ignored, as in DyNet.

    Shape:
        input: (input_dim,), any minibatch.
        output, memory: (hidden_dim,).

    Args:
        layers: number of layers.
        hidden_dim: size of the outputs and memories.
        model: collection that gets the parameters.

    Raises:
        ArgumentError: a size is not positive.
        ForeignValueError: `model` is not a collection, or a size is not an integer.

    Source: DyNet's `FastLSTMBuilder`.
    """

    collection_name: ClassVar[str] = "fast-lstm-builder"

    def _peephole(self) -> tuple[int, int]:
        return self.hidden_dim, 1

    def peep(self, gate: Expression, weight: Expression, c: Expression) -> Expression:
        return gate


class SparseLSTMBuilder(VanillaLSTMBuilder):
    """A `VanillaLSTMBuilder` that can prune its smallest weights.

    Shape:
        input: (input_dim,), any minibatch.
        output, memory: (hidden_dim,).

    Args:
        layers: number of layers.
        hidden_dim: size of the outputs and memories.
        model: collection that gets the parameters.
        ln_lstm: True to apply layer normalization to gates and memories.
        forget_bias: added to the input of the forget gate.

    Raises:
        ArgumentError: a size is not positive.
        ForeignValueError: `model` is not a collection, or a size is not an integer.

    Source: Narang et al., "Exploring sparsity in recurrent neural networks", 2017, as in DyNet.
    """

    collection_name: ClassVar[str] = "vanilla-lstm-builder"

    def _is_native(self) -> bool:
        return False

    def _is_plain(self) -> bool:
        return False  # the fused step takes parameters, but these weights are products

    def _add_layer(self, size: int) -> tuple[Parameters, ...]:
        wx, wh = self._add_weights(size)
        masks = [self._model.add_parameters(each.shape(), ConstInitializer(1.0)) for each in (wx, wh)]
        for each in masks:
            each.set_updated(False)
        return wx, wh, self._add_biases(), *masks

    def new_graph(self, update: bool = True) -> None:
        super().new_graph(update)
        pruned: list[tuple[Expression, ...]] = []
        for layer, (wx, wh, b, *_) in enumerate(self._expressions):
            mask_x, mask_h = (each.expr(update=False) for each in self.parameters[layer][3:])
            pruned.append((cmult(wx, mask_x), cmult(wh, mask_h), b))
        self._norm_expressions = {
            new[0].node: self._norm_expressions[old[0].node]
            for new, old in zip(pruned, self._expressions)
            if old[0].node in self._norm_expressions
        }
        self._expressions = pruned
        self.keep()

    def set_sparsity(self, sparsity: float) -> None:
        """Set the smallest weights of each layer to zero.

        Args:
            sparsity: fraction of a layer's weights, from 0 to 1.

        Raises:
            ArgumentError: `sparsity` is out of range.
            ForeignValueError: it is not a number.
        """
        sparsity = probability(sparsity, "sparsity")
        for *weights, _, mask_x, mask_h in self.parameters:
            sizes = torch.cat([each.tensor.abs().flatten() for each in weights])
            kept = torch.ones_like(sizes)
            kept[torch.argsort(sizes)[: int(len(sizes) * sparsity)]] = 0.0
            of_x, of_h = kept.tensor_split([mask_x.tensor.numel()])
            mask_x.tensor.copy_(of_x.view_as(mask_x.tensor))
            mask_h.tensor.copy_(of_h.view_as(mask_h.tensor))
