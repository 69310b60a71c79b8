"""Basic cells: RNN, LSTM and GRU, dense or convolutional."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, ClassVar

from .. import initializer
from .. import symbol as sym
from ..base import ArgumentError
from ..ops.nn import rnn_weights
from ..symbol import Symbol
from .base import Activation, BaseRNNCell, RNNParams, activate


class GatedCell(BaseRNNCell):
    """Base of cells whose gates are packed into one weight and bias each for input and hidden state.

    Args:
        attributes: arguments of `sym.Variable` for each weight, such as ``i2h_bias={"init": ...}``.
    """

    _activation: Activation = "tanh"
    _before_part: ClassVar[str] = ""  # part of the names of its linear maps

    def __init__(
        self, num_hidden: int, mode: str, prefix: str, params: RNNParams | None, **attributes: dict[str, Any]
    ) -> None:
        super().__init__(prefix, params)
        if isinstance(num_hidden, bool) or not isinstance(num_hidden, int) or num_hidden < 1:
            raise ArgumentError(
                f"{type(self).__name__}: num_hidden is {num_hidden!r}, expected an integer from 1"
            )
        self.num_hidden = self._num_hidden = num_hidden
        self.gates, self._state_count = rnn_weights.gates(mode), 2 if mode == "lstm" else 1
        self._state_shape: tuple[int, ...] = (0, num_hidden)
        self._layout = "NC"
        self._slicing: dict[str, int] = {}  # axis of the gates, if not 1
        names = ("i2h_weight", "i2h_bias", "h2h_weight", "h2h_bias")
        self._variables = {name: self.params.get(name, **attributes.get(name, {})) for name in names}

    # MXNet's names, for derived cells

    @property
    def _gate_names(self) -> tuple[str, ...]:
        return tuple(self.gates)

    @property
    def _iW(self) -> Symbol:
        return self._variables["i2h_weight"]

    @property
    def _iB(self) -> Symbol:
        return self._variables["i2h_bias"]

    @property
    def _hW(self) -> Symbol:
        return self._variables["h2h_weight"]

    @property
    def _hB(self) -> Symbol:
        return self._variables["h2h_bias"]

    @property
    def state_info(self) -> list[dict[str, Any]]:
        return [{"shape": self._state_shape, "__layout__": self._layout}] * self._state_count

    def next_name(self) -> str:
        """Return the prefix of the names of the next step's nodes."""
        self._counter += 1
        return f"{self.prefix}t{self._counter}_"

    def project_both(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[str, Symbol, Symbol]:
        """Return the next step's name prefix, and the linear maps of input and hidden state."""
        self.check_states(states)
        name = self.next_name()
        maps = (("i2h", inputs), ("h2h", states[0]))
        i2h, h2h = (self.project(part, x, f"{name}{self._before_part}{part}") for part, x in maps)
        return name, i2h, h2h

    def __call__(self, inputs: Symbol, states: Sequence[Symbol]) -> tuple[Symbol, list[Symbol]]:
        """Add one step to the graph; see `BaseRNNCell`."""
        new = self._update(*self.project_both(inputs, states), states)
        return new[0], new

    def _update(self, name: str, i2h: Symbol, h2h: Symbol, states: Sequence[Symbol]) -> list[Symbol]:
        """Return the new states.

        Args:
            name: prefix of the names of its nodes.
            i2h: input terms of the concatenated gates.
            h2h: recurrent terms of the concatenated gates.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define __call__")

    def project(self, part: str, data: Symbol, name: str) -> Symbol:
        """Apply the linear map to all gates.

        Args:
            part: "i2h" or "h2h".
        """
        weight, bias = self._variables[f"{part}_weight"], self._variables[f"{part}_bias"]
        width = self.num_hidden * len(self.gates)
        found: Symbol = sym.FullyConnected(data, weight, bias, num_hidden=width, name=name)
        return found

    def _weight_names(self) -> list[tuple[str, str]]:
        found = []
        for variable in self._variables.values():
            name, _, kind = str(variable.name).rpartition("_")
            found.append((name, kind))
        return found


def _update_plain(
    cell: GatedCell, name: str, i2h: Symbol, h2h: Symbol, states: Sequence[Symbol]
) -> list[Symbol]:
    return [activate(i2h + h2h, cell._activation, name=f"{name}out")]


def _update_lstm(
    cell: GatedCell, name: str, i2h: Symbol, h2h: Symbol, states: Sequence[Symbol]
) -> list[Symbol]:
    parts = sym.SliceChannel(i2h + h2h, num_outputs=4, name=f"{name}slice", **cell._slicing)
    enter = sym.Activation(parts[0], act_type="sigmoid", name=f"{name}i")
    forget = sym.Activation(parts[1], act_type="sigmoid", name=f"{name}f")
    new = activate(parts[2], cell._activation, name=f"{name}c")
    leave = sym.Activation(parts[3], act_type="sigmoid", name=f"{name}o")
    memory = sym._internal._plus(forget * states[1], enter * new, name=f"{name}state")
    hidden = sym._internal._mul(leave, activate(memory, cell._activation), name=f"{name}out")
    return [hidden, memory]


def _update_gru(
    cell: GatedCell, name: str, i2h: Symbol, h2h: Symbol, states: Sequence[Symbol]
) -> list[Symbol]:
    i2h_r, i2h_z, i2h_n = sym.SliceChannel(i2h, num_outputs=3, name=f"{name}_i2h_slice", **cell._slicing)
    h2h_r, h2h_z, h2h_n = sym.SliceChannel(h2h, num_outputs=3, name=f"{name}_h2h_slice", **cell._slicing)
    reset = sym.Activation(i2h_r + h2h_r, act_type="sigmoid", name=f"{name}_r_act")
    update = sym.Activation(i2h_z + h2h_z, act_type="sigmoid", name=f"{name}_z_act")
    new = activate(i2h_n + reset * h2h_n, cell._activation, name=f"{name}_h_act")
    return [sym._internal._plus((1.0 - update) * new, update * states[0], name=f"{name}out")]


class RNNCell(GatedCell):
    """A plain recurrent cell: ``activation(W x + b + R h + c)``.

    Args:
        activation: `act_type` of `sym.Activation`, or a function of symbols.
        prefix: prefix of the names of nodes and weights.
        params: weights shared with other cells.
    """

    _update = _update_plain

    def __init__(
        self,
        num_hidden: int,
        activation: Activation = "tanh",
        prefix: str = "rnn_",
        params: RNNParams | None = None,
    ) -> None:
        super().__init__(num_hidden, "rnn_tanh", prefix, params)
        self._activation = activation


class LSTMCell(GatedCell):
    """An LSTM cell, with states (hidden, cell).

    Args:
        num_hidden: size of each state.
        prefix: prefix of the names of nodes and weights.
        params: weights shared with other cells.
        forget_bias: initial bias of the forget gate, which preserves the memory early in training.
    Source: Hochreiter and Schmidhuber, "Long short-term memory", 1997; MXNet 1.9.1 `rnn.LSTMCell`.
    """

    _update = _update_lstm

    def __init__(
        self,
        num_hidden: int,
        prefix: str = "lstm_",
        params: RNNParams | None = None,
        forget_bias: float = 1.0,
    ) -> None:
        bias = {"init": initializer.LSTMBias(forget_bias=forget_bias)}
        super().__init__(num_hidden, "lstm", prefix, params, i2h_bias=bias)


class GRUCell(GatedCell):
    """A GRU cell, whose reset gate applies after the linear map of the state, as in cuDNN.

    Args:
        prefix: prefix of the names of nodes and weights.
        params: weights shared with other cells.
    Source: Cho et al., "Learning phrase representations using RNN encoder-decoder", 2014; MXNet 1.9.1 `rnn.GRUCell`.
    """

    _before_part = "_"
    _update = _update_gru

    def __init__(self, num_hidden: int, prefix: str = "gru_", params: RNNParams | None = None) -> None:
        super().__init__(num_hidden, "gru", prefix, params)


Pair = tuple[int, int]


def leaky(inputs: Symbol, **kwargs: Any) -> Symbol:
    """Apply a leaky ReLU with slope 0.2."""
    found: Symbol = sym.LeakyReLU(inputs, act_type="leaky", slope=0.2, **kwargs)
    return found


class BaseConvRNNCell(GatedCell):
    """Base of convolutional cells, with one convolution each for input and hidden state.

    Args:
        input_shape: shape of one step's input in `conv_layout`, with any batch size.
        h2h_kernel: kernel of the state's convolution; odd, to preserve the size.
        h2h_dilate: dilation of the state's convolution.
        i2h_stride: stride of the input's convolution.
        i2h_dilate: dilation of the input's convolution.
        i2h_weight_initializer: initializer of the input's weight; by default the Module's.
        h2h_weight_initializer: initializer of the state's weight; by default the Module's.
        i2h_bias_initializer: initializer of the input's bias.
        h2h_bias_initializer: initializer of the state's bias.
        activation: `act_type` of `sym.Activation`, or a function of symbols.
        prefix: prefix of the names of nodes and weights; None means `default_prefix`.
        params: weights shared with other cells.
        conv_layout: layout of the convolutions, "NCHW" or "NHWC".

    Raises:
        ArgumentError: `h2h_kernel` has an even size.
        ShapeError: the kernel does not fit the input.

    Source: Shi et al., "Convolutional LSTM network", 2015; MXNet 1.9.1 `rnn.BaseConvRNNCell`.
    """

    mode: ClassVar[str] = "rnn_tanh"
    """Determines the gates, see `ops.nn.rnn_weights`."""

    default_prefix: ClassVar[str] = ""
    """Default prefix."""

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
                f"{type(self).__name__}: h2h_kernel is {h2h_kernel}, expected odd sizes, which keep the state's size"
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
        channels = conv_layout.index("C")
        self._slicing = {} if channels == 1 and self.mode == "gru" else {"axis": channels}  # as in MXNet
        self._maps: dict[str, dict[str, Any]] = {
            "i2h": {"kernel": i2h_kernel, "stride": i2h_stride, "pad": i2h_pad, "dilate": i2h_dilate},
            "h2h": {"kernel": h2h_kernel, "stride": (1, 1), "pad": around, "dilate": h2h_dilate},
        }
        trial = sym.Convolution(
            sym.Variable("data"), num_filter=num_hidden, layout=conv_layout, **self._maps["i2h"]
        )
        found = trial.infer_shape(data=tuple(input_shape))[1][0]
        self._state_shape = (0, *found[1:])

    def project(self, part: str, data: Symbol, name: str) -> Symbol:
        weight, bias = self._variables[f"{part}_weight"], self._variables[f"{part}_bias"]
        width = self.num_hidden * len(self.gates)
        found: Symbol = sym.Convolution(
            data, weight, bias, num_filter=width, layout=self._layout, name=name, **self._maps[part]
        )
        return found


class ConvRNNCell(BaseConvRNNCell):
    """A plain convolutional cell; see `BaseConvRNNCell` for the arguments."""

    default_prefix = "ConvRNN_"
    _update = _update_plain


class ConvLSTMCell(BaseConvRNNCell):
    """A convolutional LSTM cell, with states (hidden, cell); see `BaseConvRNNCell` for the arguments."""

    mode = "lstm"
    default_prefix = "ConvLSTM_"
    _update = _update_lstm


class ConvGRUCell(BaseConvRNNCell):
    """A convolutional GRU cell; see `BaseConvRNNCell` for the arguments."""

    mode = "gru"
    default_prefix = "ConvGRU_"
    _update = _update_gru
