"""Deterministic initializers, and initializers that delegate to others."""

from __future__ import annotations

import logging
import math
import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from .. import ndarray
from ..base import ArgumentError, ShapeError
from ..ndarray import NDArray
from ..ops.nn import rnn_weights
from ..ops.torch_call import torch_value
from .base import InitDesc, Initializer, alias, create, register


@alias("zeros")
class Zero(Initializer):
    """Fill weights with 0."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr.raw.zero_()


@alias("ones")
class One(Initializer):
    """Fill weights with 1."""

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr.raw.fill_(1.0)


@register
class Constant(Initializer):
    """Fill weights with fixed values.

    Args:
        value: a number, or an array or nested list that broadcasts to the weight's shape.
    """

    def __init__(self, value: Any) -> None:
        super().__init__(value=value)
        self.value = value

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr[:] = self.value


@register
class Bilinear(Initializer):
    """Fill the kernel of a transposed convolution with bilinear interpolation.

    Shape:
        arr: (C_in, C_out, H, W); all (H, W) slices are equal.
    """

    def __init__(self) -> None:
        super().__init__()

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if arr.ndim != 4:
            raise ShapeError(
                f"Bilinear: {name} has shape {arr.shape}, expected 4 axes (in, out, height, width)"
            )
        height, width = arr.shape[2:]
        factor = math.ceil(width / 2.0)  # uses the width for both axes, as MXNet does
        centre = (2 * factor - 1 - factor % 2) / (2.0 * factor)
        rows = 1 - (torch.arange(height, dtype=torch.float64) / factor - centre).abs()
        columns = 1 - (torch.arange(width, dtype=torch.float64) / factor - centre).abs()
        arr.raw.copy_(torch.outer(rows, columns).expand(arr.shape))


@register
class LSTMBias(Initializer):
    """Fill an LSTM's bias with 0, except for the forget gate.

    Shape:
        arr: (4 * num_hidden, ...), gates in the order input, forget, cell, output.

    Args:
        forget_bias: bias of the forget gate; 1 preserves the memory early in training.
    """

    def __init__(self, forget_bias: float = 1.0) -> None:
        super().__init__(forget_bias=forget_bias)
        self.forget_bias = forget_bias

    def _init_weight(self, name: str, arr: NDArray) -> None:
        if arr.ndim == 0 or arr.shape[0] % 4:
            raise ShapeError(
                f"LSTMBias: {name} has shape {arr.shape}, expected a first axis of 4 * num_hidden"
            )
        hidden = arr.shape[0] // 4
        arr.raw.zero_()
        arr.raw[hidden : 2 * hidden] = self.forget_bias


class Mixed:
    """Choose the initializer of a parameter by its name.

    Args:
        patterns: regular expressions, matched from the start of the name; the first match applies.
        initializers: one initializer per pattern.

    Raises:
        ArgumentError: patterns and initializers differ in number.

    Example:
        >>> init = mx.init.Mixed([".*bias", ".*"], [mx.init.Zero(), mx.init.Uniform(0.1)])
    """

    def __init__(
        self, patterns: Sequence[str], initializers: Sequence[Callable[[str, NDArray], None]]
    ) -> None:
        if len(patterns) != len(initializers):
            raise ArgumentError(
                f"Mixed: {len(patterns)} patterns for {len(initializers)} initializers, expected the same number"
            )
        self.map = [(re.compile(pattern), init) for pattern, init in zip(patterns, initializers, strict=True)]

    def __call__(self, name: str, arr: NDArray) -> None:
        """Fill `arr` with the first initializer whose pattern matches `name`."""
        for pattern, init in self.map:
            if pattern.match(name):
                init(name, arr)
                return
        tried = ", ".join(repr(pattern.pattern) for pattern, _ in self.map)
        raise ArgumentError(
            f'Mixed: no pattern matches {name!r} (tried {tried}); add ".*" with a default at the end'
        )


class Load:
    """Fill parameters with saved values, or with a default initializer.

    Args:
        param: arrays by name, or a file of `nd.save`; the prefixes ``arg:`` and ``aux:`` are removed.
        default_init: initializer of other names; None raises an error for them.
        verbose: True to log the source of each parameter.

    Raises:
        ArgumentError: the file contains arrays without names.
    """

    def __init__(
        self,
        param: str | Mapping[str, NDArray],
        default_init: Callable[[str, NDArray], None] | None = None,
        verbose: bool = False,
    ) -> None:
        loaded = ndarray.load(param) if isinstance(param, str) else param
        if not isinstance(loaded, Mapping):
            raise ArgumentError(f"Load: param is {type(loaded).__name__}, expected arrays by name")
        self.param = {name.removeprefix("arg:").removeprefix("aux:"): array for name, array in loaded.items()}
        self.default_init = default_init
        self.verbose = verbose

    def __call__(self, name: str, arr: NDArray) -> None:
        """Fill `arr`."""
        saved = self.param.get(name)
        if saved is not None:
            if tuple(saved.shape) != arr.shape:
                raise ShapeError(
                    f"Load: {name} has shape {arr.shape}, but the loaded array has {tuple(saved.shape)}"
                )
            arr[:] = saved
        elif self.default_init is not None:
            self.default_init(name, arr)
        else:
            raise ArgumentError(f"Load: {name} is not among the loaded arrays, and there is no default_init")
        if self.verbose:
            logging.info("Initialized %s by %s", name, "default" if saved is None else "loading")


# `FusedRNN` initializes the flat vector of all weights of a fused recurrent network


@register
class FusedRNN(Initializer):
    """Fill the parameter vector of a fused RNN, with each gate's matrices and biases initialized separately by name.

    Initializers that depend on shapes, such as `Xavier`, get matrices of (num_hidden, inputs). The biases of an LSTM's
    forget gates become `forget_bias`.

    Shape:
        arr: (size,), in the layout of ``mx.sym.RNN``; the number of inputs is inferred from the size.

    Args:
        init: initializer of the pieces, or its name or JSON; None uses the network's initializer.
        num_hidden: size of the state of one direction.
        mode: "rnn_relu", "rnn_tanh", "lstm" or "gru".
        bidirectional: True for a second network that reads from the right.
        forget_bias: value of both biases (i2h and h2h) of the forget gates.

    Raises:
        ArgumentError: `init` is not an initializer.
        OpError: the mode is unknown.

    Example:
        >>> vector = mx.nd.zeros((504,))
        >>> init = mx.init.FusedRNN(mx.init.One(), 3, 2, "lstm", bidirectional=True)
        >>> mx.init.Zero()(mx.init.InitDesc("lstm_parameters", {"__init__": init.dumps()}), vector)
        >>> vector.asnumpy()[-12:]  # of the last bias only the forget gate is not 0
        array([0., 0., 0., 1., 1., 1., 0., 0., 0., 0., 0., 0.], dtype=float32)

    Source: MXNet 1.9.1, which cannot read its own `dumps` of one with an explicit initializer.
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
        rnn_weights.gates(mode)  # raises an error for an unknown mode
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
                f"FusedRNN: there is no initializer for the pieces of {name}; pass init, or call the network's "
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


# `TorchModuleValue` copies values of a torch module


@register
class TorchModuleValue(Initializer):
    """Copy a parameter or buffer of a torch module; used by the variables of `sym.torch_module`.

    Args:
        number: number of the module in this process.
        path: name of the parameter in torch, such as "layers.0.weight".
    """

    def __init__(self, number: int, path: str) -> None:
        super().__init__(number=number, path=path)
        self._number, self._path = number, path

    def _init_weight(self, name: str, arr: NDArray) -> None:
        arr.raw.copy_(torch_value(self._number, self._path))
