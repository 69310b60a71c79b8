"""Likelihood of events that make further events more likely."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch

from ...base import OpError, Shape
from ...devices.device_transfer import extremes
from ..bound import bound
from ..shapes import output_shape, unify
from ..spec import ROWS, SHARE, Onnx, Shapes, Types, arg

Pair = tuple[torch.Tensor, torch.Tensor]


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    what = "inputs of _contrib_hawkesll"
    batch = kinds = length = 0
    for axes, shape in zip(("nk", "k", "k", "nk", "nt", "nt", "n", "n"), ins):
        for axis, size in zip(axes, shape or ()):
            batch = size or batch if axis == "n" else batch
            kinds = size or kinds if axis == "k" else kinds
            length = size or length if axis == "t" else length
    wide, row, time, one = (batch, kinds), (kinds,), (batch, length), (batch,)
    filled = [unify(s, w, what) for s, w in zip(ins, (wide, row, row, wide, time, time, one, one))]
    return filled, [output_shape(outs[0], one), output_shape(outs[1], wide)]


def _types(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    found = next((t for i, t in enumerate((*ins, *outs)) if t is not None and i != 5), None)
    return [t or ("int32" if i == 5 else found) for i, t in enumerate(ins)], [t or found for t in outs]


def _at(values: torch.Tensor, kind: torch.Tensor) -> torch.Tensor:
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
    """Walk along the events, all sequences abreast: intensity of each kind decays until its next event."""
    times = lags.cumsum(1)
    last = torch.zeros_like(state)
    total = lags.new_zeros(lags.shape[0])
    for step in range(lags.shape[1]):
        kind, now, valid = marks[:, step : step + 1], times[:, step], step < lengths
        rate, alpha, beta, excited = (
            _at(base, kind),
            branching[kind[:, 0]],
            decay[kind[:, 0]],
            _at(state, kind),
        )
        waited = now - _at(last, kind)
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


@bound(
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
    infer=_infer,
    infer_type=_types,
    onnx=Onnx(missing="a loop over the events of each sequence"),
)
def hawkesll(a: Any) -> Callable[..., Pair]:
    """Return the log likelihood of marked Hawkes processes with exponential decay.

    An event of kind k raises the rate of further ones of its kind by ``alpha[k] * beta[k]``, which then decays
    as ``exp(-beta[k] * t)``. Only `lda`, `alpha` and `beta` get a gradient, and only from the first output.

    Shape:
        lda: (N, K): background rates.
        alpha: (K,): number of events that one event causes.
        beta: (K,): rates of decay.
        state: (N, K): excitation at the beginning.
        lags: (N, T): time since the event before.
        marks: (N, T) int32: kinds of the events.
        valid_length: (N,): number of events of each sequence.
        max_time: (N,): when observation ended.
        output: (N,).
        out_state: (N, K): excitation at the end.

    Source: MXNet 1.9.1 `_contrib_hawkesll`; Hawkes (1971).
    """

    def hawkesll(lda: torch.Tensor, alpha: torch.Tensor, beta: torch.Tensor, *rest: torch.Tensor) -> Pair:
        state, lags, marks, lengths, end = (t.detach() for t in rest)
        kinds = marks.long()
        least, most = extremes(kinds) if kinds.numel() else (0, -1)
        if least < 0 or most >= lda.shape[1]:
            raise OpError(
                f"_contrib_hawkesll: marks run from {least} to {most}, expected 0 to {lda.shape[1] - 1}"
            )
        return _log_likelihood(lda, alpha, beta, state, lags, kinds, lengths, end)

    return hawkesll
