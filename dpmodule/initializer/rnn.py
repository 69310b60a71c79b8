"""`FusedRNN`: the initializer of the one flat vector that holds all weights of a fused recurrent network."""

from __future__ import annotations

from typing import Any

from ..base import ArgumentError
from ..ndarray import NDArray
from ..ops.nn import rnn_weights
from .base import InitDesc, Initializer, create, register


@register
class FusedRNN(Initializer):
    """Fill the parameters of a fused RNN piece by piece, each matrix and bias of each gate by its own name.

    An initializer that looks at shapes, such as `Xavier`, thus sees matrices of (num_hidden, inputs). The biases of an
    LSTM's forget gates become `forget_bias`.

    Shape:
        arr: (size,), laid out as ``mx.sym.RNN`` wants it; the number of inputs follows from the size.

    Args:
        init: initializer of the pieces, or its name or JSON text; None takes the one that initializes the network.
        num_hidden: features of the state of one direction.
        mode: "rnn_relu", "rnn_tanh", "lstm" or "gru".
        bidirectional: whether there is a second network that reads from the right.
        forget_bias: value for the forget gates, for i2h and h2h alike.

    Raises:
        ArgumentError: `init` is no initializer.
        OpError: there is no such mode.

    Example:
        >>> vector = mx.nd.zeros((504,))
        >>> init = mx.init.FusedRNN(mx.init.One(), 3, 2, "lstm", bidirectional=True)
        >>> mx.init.Zero()(mx.init.InitDesc("lstm_parameters", {"__init__": init.dumps()}), vector)
        >>> vector.asnumpy()[-12:]  # of the last bias only the forget gate is not 0
        array([0., 0., 0., 1., 1., 1., 0., 0., 0., 0., 0., 0.], dtype=float32)

    Source: MXNet 1.9.1, where `dumps` of one with an initializer of its own cannot be read again.
    """

    def __init__(
        self,
        init: Any,
        num_hidden: int,
        num_layers: int,
        mode: str,
        bidirectional: bool = False,
        forget_bias: float = 1.0,
    ) -> None:
        rnn_weights.gates(mode)  # refuses an unknown mode
        chosen = None if init is None else create(init)
        super().__init__(
            init=None if chosen is None else chosen.dumps(),
            num_hidden=num_hidden,
            num_layers=num_layers,
            mode=mode,
            bidirectional=bidirectional,
            forget_bias=forget_bias,
        )
        self._init = chosen
        self._num_hidden = num_hidden
        self._num_layers = num_layers
        self._mode = mode
        self._bidirectional = bidirectional
        self._forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        whole = getattr(name, "global_init", None)
        init = whole if self._init is None else self._init
        if init is None or init is self:
            raise ArgumentError(
                f"FusedRNN: there is no initializer for the pieces of {name}; give one as init, or call the network's "
                "initializer on an InitDesc whose __init__ attribute is this one's dumps()"
            )
        pieces = rnn_weights.unpack(
            arr.raw, self._mode, self._num_layers, self._num_hidden, self._bidirectional
        )
        for suffix, piece in pieces.items():
            if self._mode == "lstm" and suffix.endswith("_f_bias"):
                piece.fill_(self._forget_bias)
            else:
                init(InitDesc(suffix, global_init=whole), NDArray(piece, arr.context))
