"""Long short-term memories with one gate for input and forgetting, and with peepholes."""

from __future__ import annotations

from typing import ClassVar

from ..expression import Expression
from ..functions.combine import affine_transform, cmult
from ..functions.elementwise import logistic, tanh
from ..initializers import ConstInitializer
from ..parameters import Parameters
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
        input_dim: the size of inputs.
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
            weight: weights of the peephole.
            c: the memory.

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
        """Compute one layer at one position; see `RNNBuilder.cell`.

        Shape:
            x: (input_dim,), above the lowest layer (hidden_dim,).
            old, returns: each (hidden_dim,), with the minibatch of `x`.
        """
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
        input_dim: the size of inputs.
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
        """Leave the gate as it is.

        Args:
            gate: what the gate has of input and output so far.
            weight: weights of the peephole.
            c: the memory.

        Shape:
            gate, c, returns: (hidden_dim,).
            weight: (hidden_dim, 1), not used.
        """
        return gate
