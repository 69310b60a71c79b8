"""Outputs that are their own loss, whose gradient ignores the head gradient, and the CTC loss."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import torch
from torch.nn import functional as F

from ..._devices.device_transfer import extremes
from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, choice, fraction, real
from ..dtypes import HALF
from ..registry import op
from ..shapes import data_type, prod, same, unify
from ..spec import LABEL, NEVER, ROWS, Attr, ClassLabels, Env, Input, Onnx, Shapes, arg, aux, label
from .layer_shapes import unify_input


def _regression_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer label shapes: the data's numbers of rows and elements; by default its shape, or (N,) for one column."""
    data = unify(ins[0], outs[0], "data and output")
    have = ins[1]
    if data is None:
        return ins, outs
    if have and data and have[0] == data[0] and prod(have) == prod(data) > 0:
        return [data, have], [data]
    if have and len(have) == len(data) > 1:
        data = unify(data, have, "data and label") or data
    column = len(data) == 2 and data[1] == 1
    if have is None:
        want: Shape = data[:1] if column else data
    elif column and len(have) == 1:
        want = data[:1]
    else:
        want = (*data, 1) if len(data) == 1 and len(have) == 2 else data
    return [data, unify_input("label", have, want, data)], [data]


def _per_row(a: Any, grad: torch.Tensor) -> torch.Tensor:
    """Scale a new gradient in place by grad_scale divided by the number of outputs per row."""
    scale = a.grad_scale / max(math.prod(grad.shape[1:]), 1)
    return grad if scale == 1.0 else grad.mul_(scale)


def _difference_grad(
    a: Any, env: Env, out: torch.Tensor, data: torch.Tensor, label: torch.Tensor
) -> torch.Tensor:
    return _per_row(a, out - label.reshape(out.shape).to(out.dtype))


def _sign_grad(a: Any, env: Env, out: torch.Tensor, data: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    return _per_row(a, (out > label.reshape(out.shape)).to(out.dtype).mul_(2.0).sub_(1.0))


def _regression(
    name: str, grad: Callable[..., torch.Tensor], onnx: str, fresh: bool = False
) -> Callable[..., Any]:
    """Declare a regression output; it shares the data's memory unless `fresh`."""
    return op(
        name,
        [arg("data", ROWS), label()],
        {"grad_scale": Attr(real, "factor of the gradient", 1.0)},
        aliases=[f"_sparse_{name}"],
        loss_grad=grad,
        infer=_regression_infer,
        view=not fresh,
        accepts_any=True,
        onnx=Onnx(onnx, drop=("grad_scale",)),
    )


@_regression("LinearRegressionOutput", _difference_grad, "Identity")
def linear_regression_output(a: Any, env: Env, data: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Return the data; the gradient is ``(output - label) * grad_scale / outputs per row``.

    Shape:
        data, output: (N, ...).
        label: like data, or another shape (N, ...) with as many elements, such as (N,) for data (N, 1).

    Source: MXNet 1.9.1 `LinearRegressionOutput`.
    """
    return data


@_regression("LogisticRegressionOutput", _difference_grad, "Sigmoid", fresh=True)
def logistic_regression_output(a: Any, env: Env, data: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Apply the logistic function; the gradient is ``(output - label) * grad_scale / outputs per row``.

    Shape:
        data, output: (N, ...).
        label: like data, or another shape (N, ...) with as many elements, such as (N,) for data (N, 1).

    Source: MXNet 1.9.1 `LogisticRegressionOutput`.
    """
    return torch.sigmoid(data)


@_regression("MAERegressionOutput", _sign_grad, "Identity")
def mae_regression_output(a: Any, env: Env, data: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Return the data; the gradient is that of the absolute error: 1 above the label, else -1, scaled.

    Shape:
        data, output: (N, ...).
        label: like data, or another shape (N, ...) with as many elements, such as (N,) for data (N, 1).

    Source: MXNet 1.9.1 `MAERegressionOutput`.
    """
    return data


def _make_loss_scaled_grad(a: Any, env: Env, out: torch.Tensor, data: torch.Tensor) -> torch.Tensor:
    scale: float = a.grad_scale
    if a.normalization == "batch":
        scale /= max(prod(data.shape[:-1]), 1)
    grad = torch.full_like(data, scale, requires_grad=False)
    if a.normalization == "valid":
        grad.div_((data > a.valid_thresh).sum().clamp_(min=1))
    return grad


@op(
    "MakeLoss",
    [arg("data", ROWS)],
    {
        "grad_scale": Attr(real, "value of the gradient", 1.0),
        "valid_thresh": Attr(real, "elements above this are counted by normalization 'valid'", 0.0),
        "normalization": Attr(
            choice("batch", "null", "valid"),
            "divide the gradient by nothing, the batch size, or the number of valid elements",
            "null",
        ),
    },
    loss_grad=_make_loss_scaled_grad,
    infer=same,
    view=True,
    onnx=Onnx("Identity", drop=("grad_scale", "valid_thresh", "normalization")),
)
def make_loss_scaled(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Treat the data as a loss: return it, with grad_scale as its gradient.

    Shape:
        data, output: any; the batch size that normalization="batch" divides by is the product of all axes but the last.

    Source: MXNet 1.9.1 `MakeLoss`.
    """
    return data


@op(
    "make_loss",
    [arg("data", ROWS)],
    aliases=["_sparse_make_loss"],
    outputs=("loss",),
    loss_grad=lambda a, env, out, data: torch.ones_like(data, requires_grad=False),
    infer=same,
    view=True,
    onnx=Onnx("Identity"),
)
def make_loss(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Treat the data as a loss: return it, with ones as its gradient.

    Shape:
        data, output: any.

    Source: MXNet 1.9.1 `make_loss`.
    """
    return data


def _svm_grad(a: Any, env: Env, out: torch.Tensor, data: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Return the gradient of the one-against-all hinge loss, squared unless use_linear."""
    x = out.reshape(-1, out.shape[-1])
    classes = torch.arange(x.shape[1], device=x.device)
    sign = (label.long().reshape(-1, 1) == classes).to(x.dtype).mul_(2.0).sub_(1.0)
    missing = (a.margin - sign * x).clamp_(min=0)
    size = (missing > 0).to(x.dtype) if a.use_linear else missing.mul_(2.0)
    return sign.mul_(size).mul_(-a.regularization_coefficient).view(out.shape)


def _svm_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = unify(ins[0], outs[0], "data and output")
    if data is None:
        return ins, outs
    return [data, unify_input("label", ins[1], data[:-1], data)], [data]


@op(
    "SVMOutput",
    [arg("data", ROWS), label()],
    {
        "margin": Attr(real, "margin of the hinge loss", 1.0),
        "regularization_coefficient": Attr(real, "factor of the gradient", 1.0),
        "use_linear": Attr(boolean, "use the hinge loss instead of the squared hinge loss", False),
    },
    loss_grad=_svm_grad,
    infer=_svm_infer,
    classes=lambda a, data, label: ClassLabels(data[-1]),
    view=True,
    onnx=Onnx("Identity", drop=("margin", "regularization_coefficient", "use_linear")),
)
def svm_output(a: Any, env: Env, data: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Return the data; the gradient is that of the hinge loss of the label's class against all other classes.

    Shape:
        data, output: (..., K).
        label: the shape of data without its last axis, class indices.

    Source: Tang, "Deep learning using linear support vector machines", 2013; MXNet 1.9.1 `SVMOutput`.
    """
    return data


class _Penalty(torch.autograd.Function):
    """Identity that adds a constant for each column to the gradient."""

    @staticmethod
    def forward(ctx: Any, data: torch.Tensor, slope: torch.Tensor) -> torch.Tensor:
        ctx.save_for_backward(slope)
        return data.clone()

    @staticmethod
    def backward(ctx: Any, *heads: torch.Tensor) -> tuple[torch.Tensor, None]:
        (slope,) = ctx.saved_tensors
        return heads[0] + slope, None


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = unify(ins[0], outs[0], "data and output")
    if data is None:
        return ins, outs
    if len(data) != 2:
        raise ShapeError(f"data has shape {data}, expected 2 axes: batch and units; flatten it first")
    return [data, unify_input("moving_avg", ins[1], data[1:], data)], [data]


@op(
    "IdentityAttachKLSparseReg",
    [arg("data"), aux("moving_avg", '["zero", {}]')],
    {
        "sparseness_target": Attr(fraction, "target mean activation", 0.1),
        "penalty": Attr(real, "factor of the penalty", 0.001),
        "momentum": Attr(fraction, "weight of the old moving average", 0.9),
    },
    mutates=("moving_avg",),
    infer=_infer,
    batch=NEVER,
    onnx=Onnx("Identity", drop=("sparseness_target", "penalty", "momentum")),
)
def identity_attach_kl_sparse_reg(
    a: Any, env: Env, data: torch.Tensor, moving_avg: torch.Tensor
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """Return the data; a penalty in the gradient moves the mean activation of each unit towards a target.

    The penalty is the Kullback-Leibler divergence of the moving average m from the target t: ``penalty * ((1 - t) / (1
    - m) - t / m)`` is added to the gradient of each element. Backward updates the average: ``m = momentum * m + (1 -
    momentum) * mean over the batch``. Meant for the outputs of a sigmoid.

    Shape:
        data, output: (N, D), values between 0 and 1.
        moving_avg: (D,).

    Source: Hinton, "A practical guide to training restricted Boltzmann machines", 2010; MXNet 1.9.1
    `IdentityAttachKLSparseReg`.
    """
    if not env.is_train:
        return data.clone(), None
    with torch.no_grad():
        moved = a.momentum * moving_avg + (1.0 - a.momentum) * data.mean(0)
        target = a.sparseness_target
        slope = a.penalty * ((1.0 - target) / (1.0 - moved) - target / moved)
    out: torch.Tensor = _Penalty.apply(data, slope)  # type: ignore[no-untyped-call]
    return out, moved


def _check_width(labels: Shape, data: tuple[int, ...]) -> None:
    if labels and data[0] and labels[1] > data[0]:
        raise ShapeError(f"label has shape {labels}, expected at most the {data[0]} steps of data {data}")


def _infer_ctc(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer one batch size for data, labels, lengths and output."""
    data, labels = ins[:2]
    if data is None:
        return ins, outs
    if len(data) != 3:
        raise ShapeError(f"data has shape {data}, expected 3 axes: (T, N, C)")
    for other in (outs[0], *ins[1:]):
        if other and not data[1]:
            data = (data[0], other[0], data[2])
    if labels is not None:
        labels = unify_input("label", labels, (data[1], 0), data)
        _check_width(labels, data)
    lengths = [unify_input("lengths", shape, (data[1],), data) for shape in ins[2:]]
    return [data, labels, *lengths], [unify_input("output", outs[0], (data[1],), data)]


def _counts(labels: torch.Tensor, padding: int) -> torch.Tensor:
    """Return the number of labels of each row before the first padding."""
    return (labels != padding).long().cumprod(1).sum(1)


def _check_lengths(name: str, values: torch.Tensor, low: int, high: int) -> None:
    if values.numel():
        least, most = extremes(values)
        if least < low or most > high:
            raise OpError(f"CTCLoss: {name} has values from {least} to {most}, expected {low} to {high}")


@op(
    "CTCLoss",
    [
        arg("data"),
        label(),
        Input("data_lengths", LABEL, when=lambda a: bool(a.use_data_lengths)),
        Input("label_lengths", LABEL, when=lambda a: bool(a.use_label_lengths)),
    ],
    {
        "use_data_lengths": Attr(boolean, "pass each row's number of time steps as an input", False),
        "use_label_lengths": Attr(
            boolean, "pass each row's number of labels as an input; else padding ends them", False
        ),
        "blank_label": Attr(
            choice("first", "last"),
            "index of the blank class: 0 (labels are padded with 0), or C - 1 (padded with -1)",
            "first",
        ),
    },
    aliases=("ctc_loss", "_contrib_CTCLoss", "_contrib_ctc_loss"),
    outputs=("output0",),
    hidden=1,
    infer=_infer_ctc,
    infer_type=data_type,
    batch=NEVER,
    onnx=Onnx(missing="sums over all alignments of a label sequence; omitted if there are other outputs"),
)
def ctc_loss(
    a: Any, env: Env, data: torch.Tensor, labels: torch.Tensor, *lengths: torch.Tensor
) -> torch.Tensor:
    """Return the negative log-likelihood of each label sequence, summed over all alignments with the time steps.

    The operator includes softmax: data are unnormalized activations. A sequence without a valid alignment (too few
    steps for its labels and the blanks between equal ones) has zero loss and gradient.

    Shape:
        data: (T, N, C), where the C classes include the blank.
        label: (N, L), class indices, L <= T; values after padding or the given length are ignored.
        data_lengths, label_lengths: (N,), only with use_data_lengths and use_label_lengths.
        output: (N,).

    Raises:
        OpError: lengths or labels are out of range.

    Source: Graves et al., "Connectionist temporal classification", 2006; MXNet 1.9.1 `CTCLoss`, which only
    computes in float32.
    """
    steps, rows, classes = data.shape
    _check_width(tuple(labels.shape), tuple(data.shape))
    targets = labels.detach().long()
    rest = [length.detach().long() for length in lengths]
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
        # values after the end may be anything, including NaN, and get no gradient
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
