"""Connectionist temporal classification: a loss for sequences without alignment."""

from __future__ import annotations

from typing import Any

import torch
from torch.nn import functional as F

from ...base import OpError, Shape, ShapeError
from ...devices.device_transfer import extremes
from ..attrs import boolean, choice
from ..dtypes import HALF
from ..registry import op
from ..spec import LABEL, NEVER, Attr, Env, Input, Onnx, Shapes, Types, arg, label
from .rules import agree


def _with_data_lengths(a: Any) -> bool:
    return bool(a.use_data_lengths)


def _with_label_lengths(a: Any) -> bool:
    return bool(a.use_label_lengths)


def _check_width(labels: Shape, data: tuple[int, ...]) -> None:
    if labels and data[0] and labels[1] > data[0]:
        raise ShapeError(f"label has shape {labels}, expected at most the {data[0]} steps of data {data}")


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Data and labels have one batch size, which lengths and output have, too."""
    data, labels = ins[:2]
    if data is None:
        return ins, outs
    if len(data) != 3:
        raise ShapeError(f"data has shape {data}, expected 3 axes: (T, N, C)")
    for other in (outs[0], *ins[1:]):
        if other and not data[1]:
            data = (data[0], other[0], data[2])
    if labels is not None:
        labels = agree("label", labels, (data[1], 0), data)
        _check_width(labels, data)
    lengths = [agree("lengths", each, (data[1],), data) for each in ins[2:]]
    return [data, labels, *lengths], [agree("output", outs[0], (data[1],), data)]


def _infer_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """The output has the data's type; labels and lengths may have any."""
    data = ins[0] or outs[0]
    return [data, *(t or data for t in ins[1:])], [outs[0] or data]


def _counts(labels: torch.Tensor, padding: int) -> torch.Tensor:
    """Return how many labels of each row come before the first padding."""
    return (labels != padding).long().cumprod(1).sum(1)


def _check_lengths(name: str, found: torch.Tensor, low: int, high: int) -> None:
    if found.numel():
        least, most = extremes(found)
        if least < low or most > high:
            raise OpError(f"CTCLoss: {name} holds numbers from {least} to {most}, expected {low} to {high}")


@op(
    "CTCLoss",
    [
        arg("data"),
        label(),
        Input("data_lengths", LABEL, when=_with_data_lengths),
        Input("label_lengths", LABEL, when=_with_label_lengths),
    ],
    {
        "use_data_lengths": Attr(boolean, "take each row's number of time steps as an input", False),
        "use_label_lengths": Attr(
            boolean, "take each row's number of labels as an input; else padding ends them", False
        ),
        "blank_label": Attr(
            choice("first", "last"),
            "class that stands for no label: 0 (padding of labels is 0), or C - 1 (padding is -1)",
            "first",
        ),
    },
    aliases=("ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss"),
    outputs=("output0",),
    hidden=1,
    infer=_infer,
    infer_type=_infer_type,
    batch=NEVER,
    onnx=Onnx(missing="sums over all alignments of a label sequence; beside other outputs it is left out"),
)
def ctc_loss(
    a: Any, env: Env, data: torch.Tensor, labels: torch.Tensor, *lengths: torch.Tensor
) -> torch.Tensor:
    """Return minus the log-likelihood of each label sequence, summed over all alignments with the time steps.

    Softmax is part of the operator: data are plain activations. A sequence that no alignment fits (too few steps
    for its labels and the blanks between equal ones) has loss and gradient zero.

    Shape:
        data: (T, N, C), C classes with the blank one.
        label: (N, L), class numbers, L <= T; what follows padding or the given length does not count.
        data_lengths, label_lengths: (N,), only with the attributes that ask for them.
        output: (N,).

    Raises:
        OpError: lengths or labels outside their range.

    Source: Graves et al., "Connectionist temporal classification", 2006; MXNet 1.9.1 `CTCLoss`, which computes in
    float32 only.
    """
    steps, rows, classes = data.shape
    _check_width(tuple(labels.shape), tuple(data.shape))
    targets = labels.detach().long()
    rest = [each.detach().long() for each in lengths]
    first = a.blank_label == "first"
    whole = torch.full((rows,), steps, device=data.device)
    input_lengths = rest.pop(0) if a.use_data_lengths else whole
    target_lengths = rest[0] if a.use_label_lengths else _counts(targets, 0 if first else -1)
    _check_lengths("data_lengths", input_lengths, 0, steps)
    _check_lengths("label_lengths", target_lengths, 0, targets.shape[1])
    inside = torch.arange(targets.shape[1], device=data.device) < target_lengths[:, None]
    targets = targets.masked_fill(~inside, 0)
    _check_lengths("label", targets, 0, classes - 1)
    x = data.float() if data.dtype in HALF else data
    if a.use_data_lengths:
        # what lies beyond may be anything, also NaN, and gets no gradient
        beyond = torch.arange(steps, device=data.device)[:, None] >= input_lengths
        x = x.masked_fill(beyond[:, :, None], 0.0)
    loss = F.ctc_loss(
        torch.log_softmax(x, 2),
        targets,
        input_lengths,
        target_lengths,
        0 if first else classes - 1,
        "none",
        zero_infinity=True,
    )
    return loss.to(data.dtype)
