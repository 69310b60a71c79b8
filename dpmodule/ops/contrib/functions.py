"""Fourier transforms, point processes, and functions with a custom gradient."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ..._core import torch_private
from ..._devices.device_transfer import extremes
from ...base import BoundsError, OpError, Shape, ShapeError
from ..attrs import boolean, integer, real
from ..math.pointwise import in_type_of, round_half_away, with_gradient
from ..registry import declare, pure
from ..shapes import first_type, from_data, output_shape, same, unify
from ..spec import ROWS, SHARE, Attr, Onnx, Shapes, Types, arg

_SIZE = {"compute_size": Attr(integer(low=1), "accepted; all rows are transformed together", 128)}


@pure(
    "_contrib_fft",
    [arg("data", ROWS)],
    _SIZE,
    infer=from_data(lambda a, data: (*data[:-1], 2 * data[-1])),
)
def fft(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the discrete Fourier transform of the last axis, with real and imaginary parts interleaved.

    Shape:
        data: (..., D), real.
        returns: (..., 2 * D).

    Source: MXNet 1.9.1 `_contrib_fft`, which runs on GPUs only.
    """
    return torch.view_as_real(torch.fft.fft(x)).flatten(-2)


def _ifft_shape(a: Any, data: tuple[int, ...]) -> tuple[int, ...]:
    if data[-1] % 2:
        raise ShapeError(
            f"_contrib_ifft: data has shape {data}, expected an even last axis (real and imaginary parts)"
        )
    return *data[:-1], data[-1] // 2


@pure(
    "_contrib_ifft",
    [arg("data", ROWS)],
    _SIZE,
    infer=from_data(_ifft_shape),
)
def ifft(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the real part of the inverse Fourier transform of the last axis, times its length.

    Shape:
        data: (..., 2 * D): real and imaginary parts interleaved.
        returns: (..., D); divide by D to invert `fft`.

    Source: MXNet 1.9.1 `_contrib_ifft`, which runs on GPUs only.
    """
    real, imaginary = x.reshape(*x.shape[:-1], -1, 2).unbind(-1)
    signal: torch.Tensor = torch.fft.ifft(torch.complex(real, imaginary), norm="forward")
    return signal.real


def _infer_sketch(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, hashes, signs = ins
    if data is None:
        return ins, outs
    row_shape = (1, data[-1])
    what = "h or s of _contrib_count_sketch"
    out = output_shape(outs[0], (*data[:-1], a.out_dim))
    return [data, unify(hashes, row_shape, what), unify(signs, row_shape, what)], [out]


@pure(
    "_contrib_count_sketch",
    [arg("data", ROWS), arg("h", SHARE), arg("s", SHARE)],
    {
        "out_dim": Attr(integer(low=1), "length of the result's last axis"),
        "processing_batch_size": Attr(integer(low=1), "accepted; all rows are computed together", 32),
    },
    infer=_infer_sketch,
)
def count_sketch(a: Any, data: torch.Tensor, hashes: torch.Tensor, signs: torch.Tensor) -> torch.Tensor:
    """Add each column, multiplied by its sign, to the output column given by its hash.

    Shape:
        data: (..., D).
        h: (1, D): integers from 0 to out_dim - 1; no gradient.
        s: (1, D): 1 or -1; no gradient.
        returns: (..., out_dim).

    Source: MXNet 1.9.1 `_contrib_count_sketch`, which runs on GPUs only; Charikar et al. (2002).
    """
    size = a.out_dim
    columns = hashes.detach().reshape(-1).long()
    if columns.numel() != data.shape[-1] or signs.numel() != data.shape[-1]:
        raise ShapeError(
            f"_contrib_count_sketch: data is {tuple(data.shape)}, h {tuple(hashes.shape)} and s "
            f"{tuple(signs.shape)}, expected one hash and sign per column"
        )
    if columns.numel() and (int(columns.min()) < 0 or int(columns.max()) >= size):
        raise BoundsError(
            f"_contrib_count_sketch: h ranges from {int(columns.min())} to {int(columns.max())}, "
            f"expected 0 to {size - 1}"
        )
    signed = data * signs.detach().reshape(-1)
    return data.new_zeros((*data.shape[:-1], size)).index_add(-1, columns, signed)


Pair = tuple[torch.Tensor, torch.Tensor]


def _infer_hawkes(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    what = "inputs of _contrib_hawkesll"
    batch = kinds = length = 0
    for axes, shape in zip(("nk", "k", "k", "nk", "nt", "nt", "n", "n"), ins):
        for axis, size in zip(axes, shape or ()):
            batch = size or batch if axis == "n" else batch
            kinds = size or kinds if axis == "k" else kinds
            length = size or length if axis == "t" else length
    per_kind, kinds_only, per_event, per_row = (batch, kinds), (kinds,), (batch, length), (batch,)
    wanted = (per_kind, kinds_only, kinds_only, per_kind, per_event, per_event, per_row, per_row)
    filled = [unify(s, w, what) for s, w in zip(ins, wanted)]
    return filled, [output_shape(outs[0], per_row), output_shape(outs[1], per_kind)]


def _hawkes_types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    dtype = next((t for i, t in enumerate((*ins, *outs)) if t is not None and i != 5), None)
    return [t or ("int32" if i == 5 else dtype) for i, t in enumerate(ins)], [t or dtype for t in outs]


def _gather_kind(values: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
    return values.gather(1, kind).squeeze(1)


def _log_likelihood(
    base: torch.Tensor,
    branching: torch.Tensor,
    decay: torch.Tensor,
    state: torch.Tensor,
    lags: torch.Tensor,
    marks: torch.Tensor,
    lengths: torch.Tensor,
    end: torch.Tensor,
) -> Pair:
    """Return log likelihoods and final states, by a loop over the events of all sequences in parallel."""
    times = lags.cumsum(1)
    last = torch.zeros_like(state)
    total = lags.new_zeros(lags.shape[0])
    for step in range(lags.shape[1]):
        kind, now, valid = marks[:, step : step + 1], times[:, step], step < lengths
        rate, alpha, beta, excited = (
            _gather_kind(base, kind),
            branching[kind[:, 0]],
            decay[kind[:, 0]],
            _gather_kind(state, kind),
        )
        waited = now - _gather_kind(last, kind)
        left = torch.exp(-beta * waited)
        intensity = rate + alpha * beta * excited * left
        gained = intensity.log() - rate * waited - alpha * excited * (1 - left)
        total = total + torch.where(valid, gained, 0.0)
        changed = torch.where(valid, 1 + excited * left, excited)
        state = state.scatter(1, kind, changed.unsqueeze(1))
        last = last.scatter(1, kind, torch.where(valid, now, now - waited).unsqueeze(1))
    rest = end.unsqueeze(1) - last
    left = torch.exp(-decay * rest)
    total = total - (base * rest + branching * state * (1 - left)).sum(1)
    return total, (state * left).detach()


@pure(
    "_contrib_hawkesll",
    [
        arg("lda", ROWS),
        arg("alpha", SHARE),
        arg("beta", SHARE),
        arg("state", ROWS),
        arg("lags", ROWS),
        arg("marks", ROWS),
        arg("valid_length", ROWS),
        arg("max_time", ROWS),
    ],
    outputs=("output", "out_state"),
    infer=_infer_hawkes,
    infer_type=_hawkes_types,
    onnx=Onnx(missing="a loop over the events of each sequence"),
)
def hawkesll(a: Any, lda: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor, *rest: torch.Tensor) -> Pair:
    """Return the log likelihood of marked Hawkes processes with exponential decay.

    An event of kind k increases the rate of events of its kind by ``alpha[k] * beta[k]``, which decays as
    ``exp(-beta[k] * t)``. Only `lda`, `alpha` and `beta` get a gradient, and only from the first output.

    Shape:
        lda: (N, K): background rates.
        alpha: (K,): expected number of events that one event triggers.
        beta: (K,): decay rates.
        state: (N, K): initial excitation.
        lags: (N, T): time since the previous event.
        marks: (N, T) int32: kinds of the events.
        valid_length: (N,): number of events of each sequence.
        max_time: (N,): end of the observation.
        output: (N,).
        out_state: (N, K): final excitation.

    Source: MXNet 1.9.1 `_contrib_hawkesll`; Hawkes (1971).
    """
    state, lags, marks, lengths, end = (t.detach() for t in rest)
    kinds = marks.long()
    least, most = extremes(kinds) if kinds.numel() else (0, -1)
    if least < 0 or most >= lda.shape[1]:
        raise OpError(
            f"_contrib_hawkesll: marks range from {least} to {most}, expected 0 to {lda.shape[1] - 1}"
        )
    return _log_likelihood(lda, alpha, beta, state, lags, kinds, lengths, end)


_DOC = """{sentence}, and pass the gradient through unchanged.

Shape:
    data: any shape.
    returns: the same.

Source: MXNet 1.9.1 `{name}`; the straight-through estimator of Bengio et al. (2013).
"""

for _name, _function, _sentence, _onnx in (
    (
        "_contrib_round_ste",
        round_half_away,
        "Round to the nearest integer, halves away from 0",
        Onnx(builder="round_away"),
    ),
    ("_contrib_sign_ste", torch.sign, "Return -1, 0 or 1", Onnx("Sign")),
):
    declare(
        _name,
        with_gradient(_function, lambda x, y: torch.ones_like(x)),
        [arg("data", ROWS)],
        doc=_DOC.format(sentence=_sentence, name=_name),
        aliases=(f"_sparse_{_name}",),
        infer=same,
        onnx=_onnx,
    )


class _Scaled(torch.autograd.Function):
    """Identity whose gradient is multiplied by a number."""

    generate_vmap_rule = True

    @staticmethod
    def forward(x: torch.Tensor, factor: float) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.factor = inputs[1]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        return grads[0] * ctx.factor, None


_scaled: Callable[..., torch.Tensor] = torch_private.autograd_apply(_Scaled)


@pure(
    "_contrib_gradientmultiplier",
    [arg("data", ROWS)],
    {
        "scalar": Attr(real, "factor of the gradient; a negative factor reverses it", 1.0),
        "is_int": Attr(boolean, "accepted for old graphs", True),
    },
    infer=same,
    onnx=Onnx("Identity", drop=("scalar", "is_int")),
)
def gradientmultiplier(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return the input unchanged, and multiply its gradient by a number.

    Shape:
        data: any shape.
        returns: the same.

    Source: MXNet 1.9.1 `_contrib_gradientmultiplier`; gradient reversal of Ganin and Lempitsky (2015).
    """
    factor = a.scalar
    return _scaled(x, factor)


class _ScaledBy(torch.autograd.Function):
    """Identity whose gradient is multiplied or divided by a tensor of one element."""

    @staticmethod
    def forward(x: torch.Tensor, factor: torch.Tensor, inverse: bool) -> torch.Tensor:
        return x.clone()

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: torch.Tensor) -> None:
        ctx.save_for_backward(inputs[1])
        ctx.inverse = inputs[2]

    @staticmethod
    def backward(ctx: Any, *grads: torch.Tensor) -> tuple[Any, ...]:
        (factor,) = ctx.saved_tensors
        scaled = grads[0] / factor if ctx.inverse else grads[0] * factor
        return scaled.to(grads[0].dtype), None, None


_scaled_by: Callable[..., torch.Tensor] = torch_private.autograd_apply(_ScaledBy)


def _first_shape(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    shape = unify(ins[0], outs[0], "_scale_gradient")
    return [shape, (1,)], [shape]


@pure(
    "_scale_gradient",
    [arg("data", ROWS), arg("factor", SHARE)],
    {"inverse": Attr(boolean, "divide instead of multiplying", False)},
    infer=_first_shape,
    infer_type=first_type("float32"),
    onnx=Onnx(missing="it is only part of 16-bit training"),
)
def scale_gradient(a: Any, x: torch.Tensor, factor: torch.Tensor) -> torch.Tensor:
    """Return the input unchanged, and multiply or divide its gradient by a number.

    Shape:
        data: any shape.
        factor: (1,); no gradient.
        returns: the shape of `data`.

    Source: loss scaling of Micikevicius et al., "Mixed precision training", 2018.
    """
    inverse = a.inverse
    return _scaled_by(x, factor, inverse)


@pure(
    "_contrib_quadratic",
    [arg("data", ROWS)],
    {
        "a": Attr(real, "factor of the square", 0.0),
        "b": Attr(real, "factor of the element", 0.0),
        "c": Attr(real, "constant", 0.0),
    },
    infer=same,
)
def quadratic(a: Any, x: torch.Tensor) -> torch.Tensor:
    """Return ``a * x ** 2 + b * x + c`` of each element.

    Shape:
        data: any shape.
        returns: the same.

    Source: MXNet 1.9.1 `_contrib_quadratic`.
    """
    square, slope, constant = a.a, a.b, a.c
    return in_type_of(x, (square * x + slope) * x + constant)
