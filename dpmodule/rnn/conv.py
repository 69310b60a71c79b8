"""Recurrent cells whose linear maps are convolutions, for sequences of images."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from .. import symbol as sym
from ..base import ArgumentError
from ..symbol import Symbol
from .base import RNNParams
from .cell import GatedCell
from .gates import Activation, activate, update_gru, update_lstm

Pair = tuple[int, int]


def leaky(inputs: Symbol, **kwargs: Any) -> Symbol:
    """Apply the leaky rectifier with slope 0.2."""
    found: Symbol = sym.LeakyReLU(inputs, act_type="leaky", slope=0.2, **kwargs)
    return found


class BaseConvRNNCell(GatedCell):
    """Interface of the convolutional cells: one convolution of the input, one of the hidden state.

    Args:
        input_shape: shape of one step's input with any batch size, in `conv_layout`.
        h2h_kernel: window over the state, odd so that the state keeps its size.
        h2h_dilate: distance of the window's elements.
        i2h_stride: step between windows over the input.
        i2h_dilate: distance of the window's elements.
        i2h_weight_initializer: of the input's weight; None leaves it to the Module's.
        h2h_weight_initializer: of the state's weight; None leaves it to the Module's.
        i2h_bias_initializer: of the input's bias.
        h2h_bias_initializer: of the state's bias.
        activation: `act_type` of `sym.Activation`, or a function of symbols.
        prefix: put before the names of its nodes and weights; None means `default_prefix`.
        params: weights to share with other cells.
        conv_layout: layout of the convolutions, "NCHW" or "NHWC".

    Raises:
        ArgumentError: `h2h_kernel` has an even size.
        ShapeError: the window does not fit the input.

    Source: Shi et al., "Convolutional LSTM network", 2015; MXNet 1.9.1 `rnn.BaseConvRNNCell`.
    """

    mode: ClassVar[str] = "rnn_tanh"
    """Decides the gates, see `ops.nn.rnn_weights`."""

    default_prefix: ClassVar[str] = ""
    """Prefix of a cell that is given none."""

    def __init__(
        self,
        input_shape: Sequence[int],
        num_hidden: int,
        h2h_kernel: Pair = (3, 3),
        h2h_dilate: Pair = (1, 1),
        i2h_kernel: Pair = (3, 3),
        i2h_stride: Pair = (1, 1),
        i2h_pad: Pair = (1, 1),
        i2h_dilate: Pair = (1, 1),
        i2h_weight_initializer: Any = None,
        h2h_weight_initializer: Any = None,
        i2h_bias_initializer: Any = "zeros",
        h2h_bias_initializer: Any = "zeros",
        activation: Activation = leaky,
        prefix: str | None = None,
        params: RNNParams | None = None,
        conv_layout: str = "NCHW",
    ) -> None:
        if any(size % 2 == 0 for size in h2h_kernel):
            raise ArgumentError(
                f"{type(self).__name__}: h2h_kernel is {h2h_kernel}, expected odd sizes: the state keeps its size"
            )
        super().__init__(
            num_hidden,
            self.mode,
            self.default_prefix if prefix is None else prefix,
            params,
            i2h_weight={"init": i2h_weight_initializer},
            h2h_weight={"init": h2h_weight_initializer},
            i2h_bias={"init": i2h_bias_initializer},
            h2h_bias={"init": h2h_bias_initializer},
        )
        around = tuple(dilate * (size - 1) // 2 for size, dilate in zip(h2h_kernel, h2h_dilate))
        self._activation = activation
        self._layout = conv_layout
        self._channels = conv_layout.index("C")
        self._maps: dict[str, dict[str, Any]] = {
            "i2h": {"kernel": i2h_kernel, "stride": i2h_stride, "pad": i2h_pad, "dilate": i2h_dilate},
            "h2h": {"kernel": h2h_kernel, "stride": (1, 1), "pad": around, "dilate": h2h_dilate},
        }
        trial = sym.Convolution(
            sym.Variable("data"), num_filter=num_hidden, layout=conv_layout, **self._maps["i2h"]
        )
        found = trial.infer_shape(data=tuple(input_shape))[1][0]
        self._state_shape = (0, *found[1:])

    @property
    def state_info(self) -> list[dict[str, Any]]:
        return [{"shape": self._state_shape, "__layout__": self._layout}]

    def project(self, part: str, data: Symbol, name: str) -> Symbol:
        weight, bias = self._variables[f"{part}_weight"], self._variables[f"{part}_bias"]
        width = self.num_hidden * len(self.gates)
        found: Symbol = sym.Convolution(
            data, weight, bias, num_filter=width, layout=self._layout, name=name, **self._maps[part]
        )
        return found

    def both(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[str, Symbol, Symbol]:
        """Return the next step's name and the convolutions of input and state.

        Args:
            inputs: the input of the step, such as (N, C, H, W) in the layout "NCHW".
            states: states before it, of the same layout with `num_hidden` channels.
        """
        self.check_states(states)
        name = self.next_name()
        return name, self.project("i2h", inputs, f"{name}i2h"), self.project("h2h", states[0], f"{name}h2h")


class ConvRNNCell(BaseConvRNNCell):
    """Compute one step of a plain convolutional network; arguments as for `BaseConvRNNCell`."""

    default_prefix = "ConvRNN_"

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph; see `BaseRNNCell`."""
        name, i2h, h2h = self.both(inputs, states)
        output = activate(i2h + h2h, self._activation, name=f"{name}out")
        return output, [output]


class ConvLSTMCell(BaseConvRNNCell):
    """Compute one step of a convolutional LSTM; arguments as for `BaseConvRNNCell`, states are (hidden, cell)."""

    mode = "lstm"
    default_prefix = "ConvLSTM_"

    @property
    def state_info(self) -> list[dict[str, Any]]:
        return super().state_info * 2

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph; see `BaseRNNCell`."""
        name, i2h, h2h = self.both(inputs, states)
        new = update_lstm(name, i2h + h2h, states, self._activation, axis=self._channels)
        return new[0], new


class ConvGRUCell(BaseConvRNNCell):
    """Compute one step of a convolutional GRU; arguments as for `BaseConvRNNCell`."""

    mode = "gru"
    default_prefix = "ConvGRU_"

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph; see `BaseRNNCell`."""
        name, i2h, h2h = self.both(inputs, states)
        axis = {} if self._channels == 1 else {"axis": self._channels}
        output = update_gru(name, i2h, h2h, states[0], self._activation, **axis)
        return output, [output]
