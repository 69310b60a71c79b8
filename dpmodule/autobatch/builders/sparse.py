"""Long short-term memories whose weights are thinned out."""

from __future__ import annotations

from typing import ClassVar

import torch

from ..arguments import probability
from ..expression import Expression
from ..functions.combine import cmult
from ..initializers import ConstInitializer
from ..parameters import Parameters
from .lstm import VanillaLSTMBuilder


class SparseLSTMBuilder(VanillaLSTMBuilder):
    """A `VanillaLSTMBuilder` that can set the smallest weights to zero.

    Shape:
        input: (input_dim,), any minibatch.
        output, memory: (hidden_dim,).

    Args:
        layers: how many.
        input_dim: the size of inputs.
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
        """Put the parameters, with zeros where they are thinned out, into the graph under construction.

        Raises:
            ForeignValueError: `update` is neither True nor False.
        """
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
