"""Translators of recurrent networks: LSTM, GRU and RNN."""

from __future__ import annotations

import itertools
import math
from collections.abc import Callable

import torch

from ...ops.nn.rnn_weights import ONNX_GATES, gates
from .build import GraphBuilder, NodeCall, Translator
from .check import Unsupported
from .control import scan_steps
from .shape_helpers import transpose, unsqueeze
from .value import OnnxValue

_DEFAULT_ACTIVATIONS = {"LSTM": ["sigmoid", "tanh", "tanh"], "GRU": ["sigmoid", "tanh"], "RNN": ["tanh"]}

Values = list[OnnxValue]


class _Layer:
    """Attributes and inputs of a recurrent node."""

    def __init__(self, c: NodeCall) -> None:
        a, self.b, self.kind = c.attrs, c.b, c.kind
        self.x, self.weight, self.recurrent = c.x, c.value(1), c.value(2)
        self.bias, self.lengths = c.maybe(3), c.maybe(4)
        self.is_batch_first = bool(a.get("layout"))
        self.direction = a["direction"]
        self.directions = 2 if self.direction == "bidirectional" else 1
        self.hidden = self.recurrent.size(2) or 0
        self.gates = len(ONNX_GATES[c.kind])
        usual = _DEFAULT_ACTIVATIONS[c.kind] * self.directions
        # ONNX's default for RNN is of two directions
        self.activations = [n.lower() for n in a.get("activations") or usual][: len(usual)]
        self.reset_after = bool(a.get("linear_before_reset")) or c.kind != "GRU"
        self.peepholes = c.maybe(7) if c.kind == "LSTM" else None
        self.clip = a.get("clip")
        self.coupled = bool(a.get("input_forget"))
        self._check(c)
        if self.is_batch_first:
            self.x = transpose(self.x, (1, 0, 2))
        count = 2 if c.kind == "LSTM" else 1
        self.states = [self._state(c.maybe(5 + i)) for i in range(count)]

    def _check(self, c: NodeCall) -> None:
        wanted = (self.directions, self.gates * self.hidden)
        if self.x.rank != 3 or self.weight.shapes[0][:2] != wanted or self.recurrent.shapes[0][:2] != wanted:
            raise Unsupported(
                f"weights {self.weight.dims[0]} and {self.recurrent.dims[0]} for data of {self.x.dims[0]}"
            )
        if c.attrs.get("activation_alpha") or c.attrs.get("activation_beta"):
            raise Unsupported("activation_alpha and activation_beta are not supported")

    def _state(self, given: OnnxValue | None) -> OnnxValue:
        b = self.b
        if given is not None:
            return transpose(given, (1, 0, 2)) if self.is_batch_first else given
        one = b("slice_axis", b("slice_axis", self.x, axis=0, begin=0, end=1), axis=2, begin=0, end=1)
        zeros = b("zeros_like", one)
        size = (self.directions, self.hidden)
        return b("broadcast_axis", zeros, axis=(0, 2), size=size)

    @property
    def is_supported(self) -> bool:
        """True if the operator RNN can compute it."""
        usual = self.activations == _DEFAULT_ACTIVATIONS[self.kind] * self.directions
        plain_relu = self.kind == "RNN" and set(self.activations) == {"relu"}
        odd = self.clip is not None or self.coupled or self.peepholes is not None or not self.reset_after
        return (usual or plain_relu) and not odd

    @property
    def mode(self) -> str:
        """Its mode in the operator RNN."""
        return f"rnn_{self.activations[0]}" if self.kind == "RNN" else self.kind.lower()

    @property
    def order(self) -> list[int]:
        """Positions of the operator RNN's gates in ONNX's order."""
        return [ONNX_GATES[self.kind].index(gate) for gate in gates(self.mode)]

    def vector(self) -> OnnxValue:
        """Return all weights as the flat vector of the operator RNN."""
        b, order = self.b, self.order
        whole = self._whole()
        if whole is not None:
            return whole
        weights = [
            self._pieces(w, math.prod(w.shapes[0][2:]) * self.hidden, 1)
            for w in (self.weight, self.recurrent)
        ]
        parts = []
        for d in range(self.directions):
            for pieces in weights:
                parts += [pieces[d * self.gates + g] for g in order]
        if self.bias is None:
            size = 2 * self.directions * self.gates * self.hidden
            parts.append(b.constant(torch.zeros(size), self.x.dtype))
        else:
            pieces = self._pieces(self.bias, self.hidden, 2)
            for d in range(self.directions):
                for part in range(2):
                    parts += [pieces[(2 * d + part) * self.gates + g] for g in order]
        return b("Concat", *parts, dim=0)

    def _whole(self) -> OnnxValue | None:
        """Return the original parameter vector of an exported RNN, or this layer's part; None in other files."""
        b, name, layer = self.b, *_layer_of(self.weight.name)
        count = dict(b.hints.packed).get(name, 0)
        names = [[f"{name}/{i}/{part}" for part in "WRB"] for i in range(min(count, len(b.params)))]
        mine = [v.name for v in (self.weight, self.recurrent, self.bias) if v is not None]
        if mine not in names or not all(each in b.params for row in names for each in row):
            return None
        parts = [self._sorted(*(b.params[each] for each in row)) for row in names]
        whole = b.packed(name, lambda: torch.cat([t for column in zip(*parts) for t in column]))
        if count == 1:
            return whole
        sizes = [t.numel() for column in zip(*parts) for t in column]
        ends = list(itertools.accumulate(sizes))
        indices = [layer, count + layer]
        return b(
            "Concat",
            *(b("slice_axis", whole, axis=0, begin=ends[i] - sizes[i], end=ends[i]) for i in indices),
            dim=0,
        )

    def _sorted(
        self, weight: torch.Tensor, recurrent: torch.Tensor, bias: torch.Tensor
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Return weights and biases in the order of the operator RNN, each as a vector."""
        order, rows = self.order, self.directions
        weights = [m.reshape(rows, self.gates, -1)[:, order].reshape(rows, -1) for m in (weight, recurrent)]
        biases = bias.reshape(rows, 2, self.gates, -1)[:, :, order]
        return torch.cat(weights, 1).reshape(-1), biases.reshape(-1)

    def _pieces(self, value: OnnxValue, length: int, parts: int) -> Values:
        count = self.directions * self.gates * parts
        flat = self.b("Reshape", value, shape=(count, length))
        if count == 1:
            return [self.b("Reshape", flat, shape=(-1,))]
        return self.b.many("SliceChannel", flat, num_outputs=count, axis=0, squeeze_axis=True)

    def flipped(self, x: OnnxValue) -> OnnxValue:
        """Return reversed sequences."""
        if self.lengths is None:
            return self.b("reverse", x, axis=0)
        lengths = self.lengths.cast("float32")
        return self.b("SequenceReverse", x, lengths, use_sequence_length=True)


def _layer_of(name: str) -> tuple[str, int]:
    """Return the parameter vector that contains a weight, and the layer; see `Hints`."""
    vector, _, rest = name.removesuffix("/W").rpartition("/")
    return vector, int(rest) if rest.isdecimal() else 0


def _recurrent(c: NodeCall) -> Values:
    layer = _Layer(c)
    outs, *last = _fused(layer) if layer.is_supported else _unrolled(layer)
    if layer.is_batch_first:
        outs = transpose(outs, (2, 0, 1, 3))
        last = [transpose(v, (1, 0, 2)) for v in last]
    return [outs, *last]


def _fused(layer: _Layer) -> Values:
    b = layer.b
    is_back = layer.direction == "reverse"
    x = layer.flipped(layer.x) if is_back else layer.x
    more = [] if layer.lengths is None else [layer.lengths]
    out, *last = b.many(
        "RNN",
        x,
        layer.vector(),
        *layer.states,
        *more,
        state_size=layer.hidden,
        num_layers=1,
        mode=layer.mode,
        bidirectional=layer.directions == 2,
        state_outputs=True,
        use_sequence_length=bool(more),
    )
    if is_back:
        out = layer.flipped(out)
    apart = b("Reshape", out, shape=(0, 0, -4, layer.directions, -1))
    return [transpose(apart, (0, 2, 1, 3)), *last]


# networks that the operator RNN does not support: step by step

_FUNCTIONS: dict[str, Callable[[GraphBuilder, OnnxValue], OnnxValue]] = {
    "sigmoid": lambda b, x: x.apply("sigmoid"),
    "tanh": lambda b, x: x.apply("tanh"),
    "relu": lambda b, x: x.apply("relu"),
    "softsign": lambda b, x: x.apply("softsign"),
    "softplus": lambda b, x: x.apply("Activation", act_type="softrelu"),
    "hardsigmoid": lambda b, x: x.apply("hard_sigmoid", alpha=0.2, beta=0.5),
}


def _unrolled(layer: _Layer) -> Values:
    b = layer.b
    if layer.lengths is not None:
        raise Unsupported(
            "sequence_lens cannot be combined with unusual activations, clip, peepholes or linear_before_reset of 0"
        )
    columns: list[Values] = []
    for d in range(layer.directions):
        is_back = layer.direction == "reverse" or d == 1
        x = layer.flipped(layer.x) if is_back else layer.x
        states = [_row(b, s, d) for s in layer.states]
        cell = _DirectionStep(layer, d)
        outs, last = scan_steps(b, [x], states, cell.step)
        out = layer.flipped(outs[0]) if is_back else outs[0]
        columns.append([unsqueeze(out, [1]), *(unsqueeze(v, [0]) for v in last)])
    if len(columns) == 1:
        return columns[0]
    return [b("Concat", *parts, dim=0 if i else 1) for i, parts in enumerate(zip(*columns))]


def _row(b: GraphBuilder, value: OnnxValue, number: int) -> OnnxValue:
    part = b("slice_axis", value, axis=0, begin=number, end=number + 1)
    return b("squeeze", part, axis=(0,))


class _DirectionStep:
    """One step of one direction."""

    def __init__(self, layer: _Layer, number: int) -> None:
        b = self._b = layer.b
        self._layer = layer
        self._weight = [_row(b, w, number) for w in (layer.weight, layer.recurrent)]
        self._bias: list[OnnxValue | None] = [None, None]
        if layer.bias is not None:
            row = _row(b, layer.bias, number)
            self._bias = [*b.many("SliceChannel", row, num_outputs=2, axis=0)]
        self._peep: Values = []
        if layer.peepholes is not None:
            self._peep = b.many("SliceChannel", _row(b, layer.peepholes, number), num_outputs=3, axis=0)
        count = len(layer.activations) // layer.directions
        names = layer.activations[number * count : (number + 1) * count]
        if any(n not in _FUNCTIONS for n in names):
            raise Unsupported(f"activations {', '.join(names)}")
        self._functions = [_FUNCTIONS[n] for n in names]

    def step(self, elements: Values, states: Values) -> tuple[Values, Values]:
        """Return the output and the states after one step."""
        kind = self._layer.kind
        result = {"LSTM": self._lstm, "GRU": self._gru, "RNN": self._plain}[kind](elements[0], states)
        return [result[0]], result

    def _linear(self, x: OnnxValue, which: int) -> OnnxValue:
        b, weight, bias = self._b, self._weight[which], self._bias[which]
        rows = weight.size(0)
        given = [] if bias is None else [bias]
        return b("FullyConnected", x, weight, *given, num_hidden=rows, no_bias=not given, flatten=False)

    def _gates(self, x: OnnxValue) -> Values:
        count = self._layer.gates
        return self._b.many("SliceChannel", x, num_outputs=count, axis=1) if count > 1 else [x]

    def _activate(self, number: int, x: OnnxValue) -> OnnxValue:
        clip = self._layer.clip
        limited = x if clip is None else x.apply("clip", a_min=-clip, a_max=clip)
        return self._functions[number](self._b, limited)

    def _plain(self, x: OnnxValue, states: Values) -> Values:
        return [self._activate(0, self._linear(x, 0) + self._linear(states[0], 1))]

    def _gru(self, x: OnnxValue, states: Values) -> Values:
        state = states[0]
        x_z, x_r, x_h = self._gates(self._linear(x, 0))
        h_z, h_r, h_h = self._gates(self._linear(state, 1))
        update, reset = self._activate(0, x_z + h_z), self._activate(0, x_r + h_r)
        if self._layer.reset_after:
            inner = reset * h_h
        else:
            _, _, inner = self._gates(self._linear(reset * state, 1))
        new = self._activate(1, x_h + inner)
        return [new + update * (state - new)]

    def _lstm(self, x: OnnxValue, states: Values) -> Values:
        b, (state, cell) = self._b, states
        whole = self._linear(x, 0) + self._linear(state, 1)
        i, o, f, g = self._gates(whole)
        if self._peep:
            i = i + cell * self._peep[0]
            f = f + cell * self._peep[2]
        enter = self._activate(0, i)
        keep = 1.0 - enter if self._layer.coupled else self._activate(0, f)
        new = keep * cell + enter * self._activate(1, g)
        if self._peep:
            o = o + new * self._peep[1]
        return [self._activate(0, o) * self._functions[2](b, new), new]


TABLE: dict[str, Translator] = dict.fromkeys(("LSTM", "GRU", "RNN"), _recurrent)
