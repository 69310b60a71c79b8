"""Simple recurrent networks and gated recurrent units."""

from __future__ import annotations

from typing import ClassVar

from ..expression import Expression
from ..functions.combine import affine_transform, cmult
from ..functions.elementwise import logistic, tanh
from ..parameters import Parameters
from .rnn import RNNBuilder
from .state import Mask


class SimpleRNNBuilder(RNNBuilder):
    """A network with ``h' = tanh(Wx * x + Wh * h + b)``.

    Shape:
        input: (input_dim,), any minibatch.
        output: (hidden_dim,).

    Args:
        layers: how many.
        model: where the parameters go.

    Raises:
        ArgumentError: a size is not positive.
        ForeignValueError: `model` is no collection, or a size no integer.
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
    """A network of gated recurrent units.

    ``z = logistic(Wzx * x + Wzh * h + bz)``, ``r = logistic(Wrx * x + Wrh * h + br)``,
    ``u = tanh(Whx * x + Whh * (r * h) + bh)``, ``h' = (1 - z) * h + z * u``.

    Shape:
        input: (input_dim,), any minibatch.
        output: (hidden_dim,).

    Args:
        layers: how many.
        model: where the parameters go.

    Raises:
        ArgumentError: a size is not positive.
        ForeignValueError: `model` is no collection, or a size no integer.

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
    """Multiply with the mask of dropout, if there is one.

    Shape:
        x, mask, returns: equal.
    """
    return x if mask is None else cmult(x, mask)
