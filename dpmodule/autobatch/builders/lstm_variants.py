"""Long short-term memories with coupled gates, with peepholes, and with sparse weights."""

from __future__ import annotations

from typing import ClassVar

import torch

from ..arguments import probability
from ..expression import Expression
from ..functions.combine import affine_transform, cmult
from ..functions.elementwise import logistic, tanh
from ..initializers import ConstInitializer
from ..parameters import Parameters
from .lstm import VanillaLSTMBuilder
from .rnn import RNNBuilder
from .simple import masked
from .state import Mask


class CoupledLSTMBuilder(RNNBuilder):
    """A network of long short-term memories whose input gate also decides what is forgotten.

    ``i = logistic(Wix * x + Wih * h + Wic * c + bi)``, ``u = tanh(Wcx * x + Wch * h + bc)``,
    ``c' = (1 - i) * c + i * u``, ``o = logistic(Wox * x + Woh * h + Woc * c' + bo)``, ``h' = o * tanh(c')``.

    Shape:
        input: (input_dim,), any minibatch.
        output, memory: (hidden_dim,).

    Args:
        layers: how many.
        hidden_dim: the size of outputs and memories.
        model: where the parameters go.

    Raises:
        ArgumentError: a size is not positive.
        ForeignValueError: `model` is no collection, or a size no integer.

    Source: Greff et al., "LSTM: a search space odyssey", 2015 (coupled input and forget gate, peepholes), as DyNet's
    `CoupledLSTMBuilder`.
    """

    collection_name: ClassVar[str] = "lstm-builder"
    has_memory: ClassVar[bool] = True

    def _peephole(self) -> tuple[int, int]:
        return self.hidden_dim, self.hidden_dim

    def peep(self, gate: Expression, weight: Expression, c: Expression) -> Expression:
        """Add what a peephole sees of a memory to a gate.

        Args:
            gate: what the gate has of input and output so far.

        Shape:
            gate, c, returns: (hidden_dim,).
            weight: (hidden_dim, hidden_dim).
        """
        return gate + weight * c

    def _add_layer(self, size: int) -> tuple[Parameters, ...]:
        model, hidden = self._model, self.hidden_dim
        found: list[Parameters] = []
        for gate in "ioc":
            found += [model.add_parameters((hidden, size)), model.add_parameters((hidden, hidden))]
            if gate != "c":
                found.append(model.add_parameters(self._peephole()))
            found.append(model.add_parameters((hidden,), ConstInitializer(0.0)))
        return tuple(found)

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
    """The same network without an effect of peepholes: DyNet has weights of one column for them, and does not use them.

    Shape:
        input: (input_dim,), any minibatch.
        output, memory: (hidden_dim,).

    Args:
        layers: how many.
        hidden_dim: the size of outputs and memories.
        model: where the parameters go.

    Raises:
        ArgumentError: a size is not positive.
        ForeignValueError: `model` is no collection, or a size no integer.

    Source: DyNet's `FastLSTMBuilder`.
    """

    collection_name: ClassVar[str] = "fast-lstm-builder"

    def _peephole(self) -> tuple[int, int]:
        return self.hidden_dim, 1

    def peep(self, gate: Expression, weight: Expression, c: Expression) -> Expression:
        return gate


class SparseLSTMBuilder(VanillaLSTMBuilder):
    """A `VanillaLSTMBuilder` that can set the smallest weights to zero.

    Shape:
        input: (input_dim,), any minibatch.
        output, memory: (hidden_dim,).

    Args:
        layers: how many.
        hidden_dim: the size of outputs and memories.
        model: where the parameters go.
        ln_lstm: normalize what goes into gates and memories.
        forget_bias: added to what goes into the forget gate.

    Raises:
        ArgumentError: a size is not positive.
        ForeignValueError: `model` is no collection, or a size no integer.

    Source: Narang et al., "Exploring sparsity in recurrent neural networks", 2017, as in DyNet.
    """

    collection_name: ClassVar[str] = "vanilla-lstm-builder"

    def _is_native(self) -> bool:
        return False

    def _is_plain(self) -> bool:
        return False  # the single operation of a step takes parameters, these weights are products

    def _add_layer(self, size: int) -> tuple[Parameters, ...]:
        wx, wh = self._add_weights(size)
        masks = [self._model.add_parameters(each.shape(), ConstInitializer(1.0)) for each in (wx, wh)]
        for each in masks:
            each.set_updated(False)
        return wx, wh, self._add_biases(), *masks

    def new_graph(self, update: bool = True) -> None:
        super().new_graph(update)
        thinned: list[tuple[Expression, ...]] = []
        for layer, (wx, wh, b, *_) in enumerate(self._expressions):
            mask_x, mask_h = (each.expr(update=False) for each in self.parameters[layer][3:])
            thinned.append((cmult(wx, mask_x), cmult(wh, mask_h), b))
        self._norm_expressions = {
            new[0].node: self._norm_expressions[old[0].node]
            for new, old in zip(thinned, self._expressions)
            if old[0].node in self._norm_expressions
        }
        self._expressions = thinned
        self.keep()

    def set_sparsity(self, sparsity: float) -> None:
        """Set the smallest weights to zero.

        Args:
            sparsity: how many of them, from 0 to 1.

        Raises:
            ArgumentError: it is outside.
            ForeignValueError: it is no number.
        """
        sparsity = probability(sparsity, "sparsity")
        for wx, wh, _, mask_x, mask_h in self.parameters:
            for weights, mask in ((wx, mask_x), (wh, mask_h)):
                sizes = weights.tensor.abs().flatten()
                order = torch.argsort(sizes)[: int(sizes.numel() * sparsity)]
                mask.tensor.fill_(1.0).view(-1).index_fill_(0, order, 0.0)
