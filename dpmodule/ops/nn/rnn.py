"""The fused recurrent network: all layers, directions and time steps in one operator."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from functools import lru_cache
from typing import Any

import torch
from torch.nn.utils import rnn as packing

from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, choice, fraction, integer, optional, real
from ..registry import op
from ..spec import NEVER, Attr, Env, Onnx, Shapes, Types, arg, param
from ..tracing import is_jit_tracing, is_tracing
from . import rnn_weights
from .activation import bernoulli_mask
from .layer_shapes import unify_input
from .recurrence import is_fastest, predict, run_layer


def _layout(a: Any, features: int) -> tuple[str, int, int, int, bool, int | None]:
    """Return the arguments of the functions of `rnn_weights`."""
    return a.mode, a.num_layers, features, a.state_size, a.bidirectional, a.projection_size


def _with_cell(a: Any) -> bool:
    return bool(a.mode == "lstm")


def _with_lengths(a: Any) -> bool:
    return bool(a.use_sequence_length)


def _outputs(a: Any) -> tuple[str, ...]:
    if not a.state_outputs:
        return ("output",)
    return ("output", "state_output", "statecell_output") if _with_cell(a) else ("output", "state_output")


def _data_shape(a: Any, ins: list[Shape], outs: list[Shape]) -> tuple[int, ...]:
    """Infer (T, N, C) from data, states, lengths and outputs; 0 for unknown dimensions."""
    steps, rows, features = unify_input("data", ins[0], (0, 0, 0), ins[0]) or (0, 0, 0)
    if outs[0] is not None and len(outs[0]) == 3:
        steps, rows = steps or outs[0][0], rows or outs[0][1]
    for state in (*ins[2 : 3 + _with_cell(a)], *outs[1:]):
        if state is not None and len(state) == 3:
            rows = rows or state[1]
    if _with_lengths(a) and ins[-1]:
        rows = rows or ins[-1][0]
    if not features and ins[1] and ins[1][0]:
        features = rnn_weights.input_size(
            ins[1][0], a.mode, a.num_layers, a.state_size, a.bidirectional, a.projection_size
        )
    return steps, rows, features


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer all shapes from data; batch size and time steps also from states and outputs, features from parameters.

    Ragged data, of shape (N, C), and their output have no axis of time steps.
    """
    if ins[0] is not None and len(ins[0]) == 2 and not _with_lengths(a):
        return _infer_ragged(a, ins, outs)
    if a.projection_size is not None and not _with_cell(a):
        raise OpError(
            f"projection_size is {a.projection_size} in mode {a.mode}, expected None; only lstm projects"
        )
    directions = 2 if a.bidirectional else 1
    data = _data_shape(a, ins, outs)
    steps, rows, features = data
    hidden = a.projection_size or a.state_size
    state = (a.num_layers * directions, rows, hidden)
    cell = (*state[:2], a.state_size)
    size = rnn_weights.vector_size(*_layout(a, features)) if features else 0
    wanted = [("data", data), ("parameters", (size,)), ("state", state)]
    if _with_cell(a):
        wanted.append(("state_cell", cell))
    if _with_lengths(a):
        wanted.append(("sequence_length", (rows,)))
    in_shapes = [unify_input(name, have, want, data) for (name, want), have in zip(wanted, ins, strict=True)]
    results = zip(_outputs(a), outs, ((steps, rows, directions * hidden), state, cell), strict=False)
    return in_shapes, [unify_input(name, have, want, data) for name, have, want in results]


def _infer_ragged(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer shapes with one time step, and remove its axis from data and output."""
    first = [None if shapes[0] is None else (1, *shapes[0]) for shapes in (ins, outs)]
    in_shapes, out_shapes = _infer(a, [first[0], *ins[1:]], [first[1], *outs[1:]])
    data, output = in_shapes[0], out_shapes[0]
    return [data and data[1:], *in_shapes[1:]], [output and output[1:], *out_shapes[1:]]


def _infer_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer the data's type for all but the lengths, which may have any."""
    count = len(ins) - _with_lengths(a)
    dtype = next((t for t in (*ins[:count], *outs) if t is not None), None)
    return [t or dtype for t in ins], [t or dtype for t in outs]


@lru_cache(maxsize=256)
def _weight_layout(
    layout: tuple[str, int, int, int, bool, int | None],
) -> tuple[list[int], list[tuple[int, ...]], list[int]]:
    """Return sizes and shapes of the weights in the flat vector, and their order in torch.

    torch groups the weights by layer and direction: i2h, h2h, their biases, then the projection.
    """
    blocks = list(rnn_weights.matrices(*layout))
    number = {block.suffix: i for i, block in enumerate(blocks)}
    networks = [
        block.suffix.removesuffix("_i2h_weight") for block in blocks if block.suffix.endswith("_i2h_weight")
    ]
    suffixes = ("i2h_weight", "h2h_weight", "i2h_bias", "h2h_bias", "h2r_weight")
    order = [
        number[f"{network}_{suffix}"]
        for network in networks
        for suffix in suffixes
        if f"{network}_{suffix}" in number
    ]
    return [block.size for block in blocks], [block.shape for block in blocks], order


def weights_of(
    a: Any, parameters: torch.Tensor | tuple[torch.Tensor, ...], features: int
) -> list[torch.Tensor]:
    """Split the flat vector into torch's list of weights, in one call, so that backward is one concatenation.

    Args:
        parameters: the vector, or its parts; parts that are not the weights one by one are joined.
    """
    layout = (
        _weight_layout.__wrapped__ if torch.compiler.is_compiling() else _weight_layout
    )  # the compiler warns about lru_cache
    sizes, shapes, order = layout(_layout(a, features))
    if isinstance(parameters, tuple):
        # cuDNN needs them in one block of memory
        if not parameters[0].is_cuda and [tuple(each.shape) for each in parameters] == shapes:
            return [parameters[i] for i in order]
        parameters = torch.cat([each.reshape(-1) for each in parameters])
    weights = [
        weight.view(shape)
        for weight, shape in zip(torch.split_with_sizes(parameters, sizes), shapes, strict=True)
    ]
    return [weights[i] for i in order]


def _run_layers(
    a: Any,
    x: torch.Tensor,
    batch_sizes: torch.Tensor | None,
    states: Sequence[torch.Tensor],
    weights: list[torch.Tensor],
    num_layers: int,
) -> tuple[torch.Tensor, ...]:
    """Run some layers without dropout; return the output and the last states."""
    is_plain = batch_sizes is None and not a.projection_size
    if is_plain and is_fastest(a.mode, x, [state[0] for state in states], weights):
        if torch.is_grad_enabled():
            return _run_by_layer(a, x, states, weights, num_layers)
        return predict(a.mode, x, states, weights, 2 if a.bidirectional else 1)
    if a.mode == "lstm" and torch.compiler.is_compiling() and torch.is_grad_enabled():
        x = _require_grad_like(x, weights[0])
    if x.is_cuda:  # cuDNN reads contiguous states only
        states = [state.contiguous() for state in states]
    hx = tuple(states) if _with_cell(a) else states[0]
    # cuDNN supports backward only in its training mode; `torch.jit.trace` records one mode for both
    training = torch.is_grad_enabled() or is_jit_tracing()
    options = True, num_layers, 0.0, training, a.bidirectional
    given = (
        (x, hx, weights, *options, False) if batch_sizes is None else (x, batch_sizes, hx, weights, *options)
    )
    function = getattr(torch, a.mode)
    if training or is_tracing() or x.is_cuda or a.mode == "lstm":
        return tuple(function(*given))
    with torch.inference_mode():  # saves a tenth of the time of many small calls
        outputs = function(*given)
    return tuple(
        map(torch.clone, outputs)
    )  # other tensors than those of inference may be differentiated later


def _require_grad_like(x: torch.Tensor, weight: torch.Tensor) -> torch.Tensor:
    """Return the data, requiring a gradient if a weight does.

    torch compiles an LSTM over data without gradient to a oneDNN call without backward.
    """
    if x.requires_grad or not weight.requires_grad:
        return x
    return torch.cat([x, weight[:0].unsqueeze(1).expand(-1, x.shape[1], -1)])


def _run_by_layer(
    a: Any,
    x: torch.Tensor,
    states: Sequence[torch.Tensor],
    weights: list[torch.Tensor],
    num_layers: int,
) -> tuple[torch.Tensor, ...]:
    """Run each layer and direction by our own kernel."""
    found: list[tuple[torch.Tensor, ...]] = []
    directions = 2 if a.bidirectional else 1
    for layer in range(num_layers):
        for i in range(layer * directions, (layer + 1) * directions):
            begin = [state[i] for state in states]
            found.append(run_layer(a.mode, x, begin, weights[4 * i : 4 * i + 4], i % directions == 1))
        x = torch.cat([each[0] for each in found[-2:]], 2) if a.bidirectional else found[-1][0]
    return found[0] if len(found) == 1 else (x, *map(torch.cat, list(zip(*found, strict=True))[1:]))


def _apply_dropout(x: torch.Tensor, p: float, generator: torch.Generator | None) -> torch.Tensor:
    mask = bernoulli_mask(1.0 - p, list(x.shape), x, generator)
    return x * (mask.div_(1.0 - p) if p < 1 else mask)


def run(
    a: Any,
    env: Env,
    x: torch.Tensor,
    batch_sizes: torch.Tensor | None,
    states: Sequence[torch.Tensor],
    weights: list[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Run all layers, in one call or, with dropout between them, one by one."""
    if not _drops(a, env.is_train):
        return _run_layers(a, x, batch_sizes, states, weights, a.num_layers)
    per_layer = len(weights) // a.num_layers
    split = [state.chunk(a.num_layers) for state in states]
    last: list[tuple[torch.Tensor, ...]] = []
    for layer, layer_states in enumerate(zip(*split, strict=True)):
        if layer:
            x = _apply_dropout(x, a.p, env.generator)
        layer_weights = weights[layer * per_layer : (layer + 1) * per_layer]
        x, *new = _run_layers(
            a, x, batch_sizes, [state.contiguous() for state in layer_states], layer_weights, 1
        )
        last.append(tuple(new))
    return x, *(torch.cat(layers) for layers in zip(*last, strict=True))


def _run_padded(
    a: Any,
    env: Env,
    data: torch.Tensor,
    states: Sequence[torch.Tensor],
    lengths: torch.Tensor,
    weights: list[torch.Tensor],
) -> tuple[torch.Tensor, ...]:
    """Run sequences of different lengths; outputs after a sequence's end are zero."""
    counts = lengths.detach().to("cpu", torch.int64)
    if counts.min() < 1 or counts.max() > data.shape[0]:
        raise OpError(
            f"sequence_length is {counts.tolist()}, expected lengths from 1 to {data.shape[0]}, the time steps of data"
        )
    packed = packing.pack_padded_sequence(data, counts, enforce_sorted=False)
    order, back = packed.sorted_indices, packed.unsorted_indices
    if order is None or back is None:
        raise OpError("sequence_length: torch packed the sequences without sorting them")
    sorted_states = [state.index_select(1, order) for state in states]
    out, *last = run(a, env, packed.data, packed.batch_sizes, sorted_states, weights)
    whole = packing.PackedSequence(out, packed.batch_sizes, order, back)
    padded, _ = packing.pad_packed_sequence(whole, total_length=data.shape[0])
    return padded, *(state.index_select(1, back) for state in last)


def check_states(a: Any, data: torch.Tensor, states: Sequence[torch.Tensor]) -> None:
    """Raise an error for states of wrong shapes, which torch's functions do not check."""
    count = a.num_layers * (2 if a.bidirectional else 1)
    sizes = (a.projection_size or a.state_size, a.state_size)
    for name, state, size in zip(("state", "state_cell"), states, sizes, strict=False):
        wanted = (count, data.shape[1], size)
        if tuple(state.shape) != wanted:
            raise ShapeError(
                f"{name} has shape {tuple(state.shape)}, expected {wanted} from data {tuple(data.shape)}"
            )


def _drops(a: Any, is_train: bool) -> bool:
    """Return True if there is dropout between layers."""
    return is_train and bool(a.p > 0) and bool(a.num_layers > 1)


@op(
    "RNN",
    [
        arg("data"),
        param("parameters"),
        arg("state"),
        arg("state_cell", when=_with_cell),
        arg("sequence_length", when=_with_lengths),
    ],
    {
        "state_size": Attr(integer(low=1), "features of the state of one direction"),
        "num_layers": Attr(integer(low=1), "number of layers"),
        "bidirectional": Attr(boolean, "add a second network that runs backwards", False),
        "mode": Attr(choice(*rnn_weights.MODES), "kind of cell"),
        "p": Attr(fraction, "dropout probability between layers in training", 0.0),
        "state_outputs": Attr(boolean, "also return the last states", False),
        "projection_size": Attr(optional(integer(low=1)), "size of the projection of an LSTM's state", None),
        "lstm_state_clip_min": Attr(optional(real), "has no effect, as in MXNet on the CPU", None),
        "lstm_state_clip_max": Attr(optional(real), "has no effect, as in MXNet on the CPU", None),
        "lstm_state_clip_nan": Attr(boolean, "has no effect, as in MXNet on the CPU", False),
        "use_sequence_length": Attr(boolean, "pass the length of each sequence as an input", False),
    },
    outputs=_outputs,
    infer=_infer,
    infer_type=_infer_type,
    random=_drops,
    batch=NEVER,
    onnx=Onnx(builder="rnn"),
)
def rnn(
    a: Any,
    env: Env,
    data: torch.Tensor,
    parameters: torch.Tensor,
    state: torch.Tensor,
    *rest: torch.Tensor,
) -> torch.Tensor | tuple[torch.Tensor, ...]:
    """Run a multi-layer recurrent network over whole sequences.

    Every layer reads the outputs of the layer below, concatenated for two directions. In training, dropout is applied
    between layers. The reset gate of a GRU is applied after the linear map of the state.

    Shape:
        data: (T, N, C): time steps, batch, features; or (N, C), ragged, each row a sequence.
        parameters: (`rnn_weights.vector_size`,), in the layout of `rnn_weights`.
        state: (num_layers * D, N, H), with D directions and H = projection_size or state_size; any type, since zeros
            as initial states are float32.
        state_cell: (num_layers * D, N, state_size), for LSTM.
        sequence_length: (N,), from 1 to T, with use_sequence_length; outputs after the end are zero.
        output: (T, N, D * H); for ragged data (N, D * H), ragged.
        state_output, statecell_output: like state and state_cell, after each sequence's last step; for an empty row,
            the initial states.

    Raises:
        OpError: a length is not in 1 to T, or projection_size is given and the mode is not lstm.
        ShapeError: the data do not have three axes.

    Source: MXNet 1.9.1 `RNN`. On the CPU, MXNet rejects projection_size, and silently ignores sequence_length and the
    limits of the cell state; here lengths are used, and limits are ignored with a warning.
    """
    if not (a.lstm_state_clip_min is None and a.lstm_state_clip_max is None):
        warnings.warn("RNN: lstm_state_clip_min and lstm_state_clip_max have no effect", stacklevel=2)
    if data.dim() != 3:
        raise ShapeError(
            f"data has shape {tuple(data.shape)}, expected three axes: time steps, batch, features"
        )
    weights = weights_of(a, parameters, data.shape[-1])
    count = 1 + _with_cell(a)
    states = tuple(each.to(data.dtype) for each in (state, *rest[: count - 1]))
    if not is_jit_tracing():  # comparing sizes would cause a warning
        check_states(a, data, states)
    if _with_lengths(a):
        outputs = _run_padded(a, env, data, states, rest[-1], weights)
    else:
        outputs = run(a, env, data, None, states, weights)
    return outputs if a.state_outputs else outputs[0]
