"""Softmax and its variants, and the loss outputs based on it."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from functools import partial
from typing import Any

import torch

from ..._core import torch_private
from ...base import OpError, Shape, ShapeError
from ..attrs import boolean, choice, dtype, integer, optional, real
from ..dtypes import torch_dtype
from ..registry import bound, op
from ..shapes import prod, same, typed, unify
from ..spec import NEVER, ROWS, Attr, ClassLabels, Env, Input, Onnx, Shapes, Types, arg, label
from ..tracing import is_tracing
from .layer_shapes import unify_input
from .linear import is_float32_cpu, kernels

_ATTRS: Mapping[str, Attr] = {
    "axis": Attr(integer(), "axis along which the outputs sum to one", -1),
    "temperature": Attr(optional(real), "divisor of the data; None for 1", None),
    "dtype": Attr(optional(dtype), "type of the output; None for the data's", None),
    "use_length": Attr(optional(boolean), "mask positions starting at `length`", False),
}


def _normalize(a: Any, function: Callable[..., torch.Tensor], data: torch.Tensor) -> torch.Tensor:
    """Apply softmax or log-softmax with temperature and output type."""
    if a.temperature is not None:
        data = data / a.temperature
    if a.dtype is None:
        return function(data, a.axis)
    target = torch_dtype(a.dtype)
    return function(data, a.axis, dtype=torch.promote_types(data.dtype, target)).to(target)


def _bind_plain(function: Callable[..., torch.Tensor]) -> Callable[[Any], Callable[..., torch.Tensor] | None]:
    """Return the bind of an operator that is one torch call unless an attribute requires more."""

    def bind(a: Any) -> Callable[..., torch.Tensor] | None:
        if a.use_length or a.temperature is not None or a.dtype is not None:
            return None
        if a.axis == -1:
            return row_softmax if function is torch.softmax else partial(row_softmax, is_log=True)
        return partial(function, dim=a.axis)

    return bind


def _infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    """Infer one shape for data and output; `length` lacks the axis."""
    shape = unify(ins[0], outs[0], "data and output")
    rest = ins[1:]
    if rest and shape is not None:
        axis = a.axis % len(shape)
        rest = [unify(rest[0], shape[:axis] + shape[axis + 1 :], "length and data without the axis")]
    return [shape, *rest], [shape]


def _infer_type(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
    """Infer the output's type from the data or the attribute; `length` has its own type."""
    data = ins[0] or (outs[0] if a.dtype is None else None)
    return [data, *ins[1:]], [outs[0] or a.dtype or data]


def _past_length(data: torch.Tensor, length: torch.Tensor, axis: int) -> torch.Tensor:
    """Return a mask of the positions at or after the length."""
    dims = [1] * data.dim()
    dims[axis] = data.shape[axis]
    return torch.arange(dims[axis], device=data.device).view(dims) >= length.unsqueeze(axis)


@op(
    "softmax",
    [arg("data", ROWS), Input("length", batch=ROWS, when=lambda a: bool(a.use_length))],
    _ATTRS,
    bind=_bind_plain(torch.softmax),
    infer=_infer,
    infer_type=_infer_type,
    onnx=Onnx("Softmax", builder="softmax"),
)
def softmax(a: Any, env: Env, data: torch.Tensor, length: torch.Tensor | None = None) -> torch.Tensor:
    """Apply softmax along an axis: ``exp(x) / sum(exp(x))``.

    Shape:
        data, output: any.
        length: the shape of data without `axis`, integers, only with use_length: the output is zero from there on.

    Source: MXNet 1.9.1 `softmax`.
    """
    if length is None:
        return _normalize(a, torch.softmax, data)
    beyond = _past_length(data, length, a.axis)
    return _normalize(a, torch.softmax, data.masked_fill(beyond, float("-inf"))).masked_fill(beyond, 0.0)


def _refuse_length(a: Any, name: str) -> None:
    if a.use_length:
        raise OpError(f"{name} takes no length; set use_length=False, or use softmax, which supports it")


@op(
    "log_softmax",
    [arg("data", ROWS)],
    _ATTRS,
    bind=_bind_plain(torch.log_softmax),
    infer=_infer,
    infer_type=_infer_type,
    onnx=Onnx("LogSoftmax", builder="softmax"),
)
def log_softmax(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Return the logarithm of softmax, computed without loss of precision.

    Shape:
        data, output: any.

    Source: MXNet 1.9.1 `log_softmax`, which declares use_length but takes no length; here it is an error.
    """
    _refuse_length(a, "log_softmax")
    return _normalize(a, torch.log_softmax, data)


@op(
    "softmin",
    [arg("data", ROWS)],
    _ATTRS,
    infer=_infer,
    infer_type=_infer_type,
)
def softmin(a: Any, env: Env, data: torch.Tensor) -> torch.Tensor:
    """Return the softmax of the negated data.

    Shape:
        data, output: any.

    Source: MXNet 1.9.1 `softmin`, which declares use_length but takes no length; here it is an error.
    """
    _refuse_length(a, "softmin")
    return _normalize(a, torch.softmax, -data)


@bound(
    "SoftmaxActivation",
    [arg("data", ROWS)],
    {
        "mode": Attr(
            choice("channel", "instance"),
            "over axis 1 (channel) or over the last axis (instance)",
            "instance",
        )
    },
    infer=same,
    infer_type=typed(lambda a: None),
    onnx=Onnx("Softmax", builder="softmax_activation"),
)
def softmax_activation(a: Any) -> Callable[..., torch.Tensor]:
    """Apply softmax over the last axis, or over the channels of each position.

    Shape:
        data, output: (N, C, ...).

    Source: MXNet 1.9.1 `SoftmaxActivation`.
    """
    return partial(torch.softmax, dim=1) if a.mode == "channel" else row_softmax


# Softmax of few classes by the native extension.
#
# torch does not vectorize rows shorter than a vector: ten classes take ten times as long, a tenth of the time of a
# small network's prediction.

_MIN_NUMBERS = 2**9
"""Numbers below which torch is as fast."""


def _is_small(data: torch.Tensor) -> bool:
    """Return True if rows are short enough for the kernel and need no gradient."""
    if is_tracing():  # checked first, since sizes may be symbolic then
        return False
    return (
        data.numel() >= _MIN_NUMBERS
        and data.dim() > 1
        and data.size(-1) < getattr(kernels(), "vector_width", 0)
        and is_float32_cpu(data)
        and data.is_contiguous()
        and not data.requires_grad
        and not torch_private.is_transformed(data)
    )


def row_softmax(data: torch.Tensor, is_log: bool = False) -> torch.Tensor:
    """Return ``torch.softmax(data, -1)``, or its logarithm.

    Shape:
        data, returns: (..., classes).
    """
    if not _is_small(data):
        return (torch.log_softmax if is_log else torch.softmax)(data, -1)
    result, classes = torch.empty_like(data), data.shape[-1]
    kernels().softmax(data.numel() // classes, classes, data.data_ptr(), result.data_ptr(), is_log)
    return result


def _add_at_labels(grad: torch.Tensor, labels: torch.Tensor, axis: int, value: float) -> torch.Tensor:
    """Add a number at the class of each label, in place; invalid labels add nothing."""
    inside = labels.clamp(0, grad.shape[axis] - 1)
    return grad.scatter_add_(axis, inside, (labels == inside).to(grad.dtype).mul_(value))


def _subtract_labels(start: torch.Tensor, labels: torch.Tensor, axis: int, value: float) -> torch.Tensor:
    """Return a copy of `start` with `value` subtracted at the class of each label; see `_add_at_labels`."""
    if start.is_cpu:
        with suppress(RuntimeError):  # an invalid label is rare, and checking first would take twice the time
            return start.scatter(axis, labels, -value, reduce="add")
    return _add_at_labels(start.clone(), labels, axis, -value)


def _softmax_output_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data = unify(ins[0], outs[0], "data and output")
    have = ins[1]
    if data is None:
        return ins, outs
    if a.multi_output and len(data) < 2:
        raise ShapeError(f"data has shape {data}, expected at least 2 axes with multi_output")
    if have and len(have) > 1 and not data[0]:
        data = (have[0], *data[1:])
    if have is not None and len(have) == len(data) and have == data:
        return [data, have], [data]
    if a.multi_output:
        spread = (data[0], *data[2:])
        forms = [(data[0], prod(data[2:])), spread, (data[0], 1, *data[2:])]
        want = next((form for form in forms if have is not None and len(have) == len(form)), forms[0])
    else:
        want = data[:-1]
    return [data, unify_input("label", have, want, data)], [data]


def softmax_output_grad(
    a: Any,
    env: Env,
    out: torch.Tensor,
    data: torch.Tensor,
    label: torch.Tensor,
) -> torch.Tensor:
    """Return probability minus label, scaled; see `softmax_output`."""
    scale: float = a.grad_scale
    if label.dim() == 1 and out.dim() == 2 and _is_plain(a):
        grad = _subtract_labels(out, label.long().unsqueeze(1), 1, 1.0)
    elif label.shape == out.shape:
        grad = out - label.to(out.dtype)
    else:
        grad, scale = _hard_label_grad(a, out, label), 1.0
    if scale != 1.0:
        grad.mul_(scale)
    return grad.mul_(out) if a.out_grad else grad


def _is_plain(a: Any) -> bool:
    """Return True if all attributes except grad_scale and out_grad have their defaults."""
    return a.normalization == "null" and not (a.use_ignore or a.smooth_alpha or a.multi_output)


def _hard_label_grad(a: Any, out: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Return the gradient for labels that are class indices."""
    classes = label.long()
    if a.multi_output:
        p = out.flatten(2) if out.dim() > 2 else out.unsqueeze(2)
        labels = classes.reshape(p.shape[0], 1, p.shape[2])
    else:
        p = out if out.dim() == 2 else out.reshape(-1, out.shape[-1]) if a.preserve_shape else out.flatten(1)
        labels = classes.reshape(-1, 1)
        if labels.shape[0] != p.shape[0]:  # there are more labels than rows: MXNet reads the first ones
            labels = labels[: p.shape[0]]
    if a.smooth_alpha and not a.multi_output:
        rest = a.smooth_alpha / max(p.shape[1] - 1, 1)
        grad = _subtract_labels(p - rest, labels, 1, 1.0 - a.smooth_alpha - rest).mul_(
            label_scale(a, classes, p)
        )
    else:
        grad = _scaled_difference(p, labels, label_scale(a, classes, p))
    if a.use_ignore:
        _zero_columns(grad, labels == int(a.ignore_label))
    return grad if grad.shape == out.shape else grad.view(out.shape)


def _scaled_difference(p: torch.Tensor, labels: torch.Tensor, scale: float | torch.Tensor) -> torch.Tensor:
    """Return (p - one-hot label) * scale, with the classes on axis 1.

    One pass over `p`, which is long for a large vocabulary; the values at the labels are written afterwards. Invalid
    labels subtract nothing.
    """
    inside = labels.clamp(0, p.shape[1] - 1)
    at_labels = p.gather(1, inside).sub_((labels == inside).to(p.dtype)).mul_(scale)
    return torch.mul(p, scale).scatter_(1, inside, at_labels)


def _zero_columns(grad: torch.Tensor, where: torch.Tensor) -> None:
    """Set the columns along axis 1 to zero where the mask, of length 1 on that axis, is True."""
    if grad.is_cpu and grad.dim() == 2:  # only writes the affected rows
        grad.index_fill_(0, where.flatten().nonzero().flatten(), 0.0)
    else:
        grad.masked_fill_(where, 0.0)


def label_scale(a: Any, classes: torch.Tensor, p: torch.Tensor) -> float | torch.Tensor:
    """Return grad_scale divided by the count of the normalization."""
    scale: float = a.grad_scale
    if a.normalization == "valid":
        return scale / (classes != int(a.ignore_label)).sum().clamp_(min=1)
    if a.multi_output:
        scale /= max(p.shape[2], 1)
    if a.normalization == "batch":
        scale /= max(classes.shape[0] if a.multi_output else classes.numel(), 1)
    return scale


def _rows_softmax(data: torch.Tensor) -> torch.Tensor:
    """Apply softmax over all axes but the first, flattened."""
    if data.dim() == 2:
        return torch.softmax(data, 1)
    return torch.softmax(data.reshape(data.shape[0], -1), 1).view(data.shape)


def _one_class(a: Any, out: torch.Tensor) -> torch.Tensor:
    """Return the probabilities of one class: a NaN or infinite score makes all classes of its row NaN."""
    return out.select(-1 if a.preserve_shape else 1, 0) if out.dim() > 1 else out


def _softmax_output_classes(a: Any, data: tuple[int, ...], label: tuple[int, ...]) -> ClassLabels | None:
    if label == data or len(data) < 2 or not a.grad_scale:
        return None
    count = data[1] if a.multi_output else data[-1] if a.preserve_shape else prod(data[1:])
    return ClassLabels(count, (lambda labels: labels != int(a.ignore_label)) if a.use_ignore else None)


@op(
    "SoftmaxOutput",
    [arg("data", ROWS), label()],
    {
        "grad_scale": Attr(real, "factor of the gradient", 1.0),
        "ignore_label": Attr(real, "label to ignore, if use_ignore", -1.0),
        "multi_output": Attr(
            boolean, "classes are on axis 1, with a label for each position of the other axes", False
        ),
        "use_ignore": Attr(boolean, "set the gradient to zero where the label is ignore_label", False),
        "preserve_shape": Attr(
            boolean, "apply softmax over the last axis instead of all but the first", False
        ),
        "normalization": Attr(
            choice("batch", "null", "valid"),
            "divide the gradient by 1 (null), the number of labels (batch), or that of labels other than ignore_label",
            "null",
        ),
        "out_grad": Attr(boolean, "multiply the gradient by the output", False),
        "smooth_alpha": Attr(real, "label smoothing: probability distributed over the other classes", 0.0),
    },
    aliases=["Softmax"],
    loss_grad=softmax_output_grad,
    loss_probe=_one_class,
    infer=_softmax_output_infer,
    classes=_softmax_output_classes,
    onnx=Onnx("Softmax", builder="softmax_output"),
)
def softmax_output(a: Any, env: Env, data: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Apply softmax; the gradient is that of the cross-entropy: probability minus one-hot label.

    Labels are class indices (fractions are truncated, invalid ones subtract nothing), or probabilities if they have
    the data's shape, for which all attributes but grad_scale and out_grad are ignored.
    With multi_output the gradient is also divided by the number of positions unless normalization is "valid",
    and smooth_alpha has no effect.

    Shape:
        data, output: (N, ..., K); (N, K, ...) with multi_output.
        label: the shape of data without its last axis; (N, positions) or (N, ...) with multi_output; or like data.

    Source: MXNet 1.9.1 `SoftmaxOutput`, including out_grad: it is documented as the head gradient, but multiplies by
    the output.
    """
    if a.multi_output:
        return torch.softmax(data, 1)
    if env.context is not None and not env.is_train and data.dim() == 2:  # an executor predicts
        return row_softmax(data)
    return torch.softmax(data, -1) if a.preserve_shape else _rows_softmax(data)


class _CrossEntropy(torch.autograd.Function):
    """Summed cross-entropy; the gradient is probability minus one-hot label, even if the loss is clipped."""

    @staticmethod
    def forward(ctx: Any, data: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
        p = torch.softmax(data, 1)
        labels = label.long().reshape(-1, 1)
        inside = labels.clamp(0, data.shape[1] - 1)
        picked = p.gather(1, inside).mul_(labels == inside)
        ctx.save_for_backward(p, labels)
        return picked.clamp_(min=1e-8).log_().sum().neg_().view(1)

    @staticmethod
    def backward(ctx: Any, *heads: torch.Tensor) -> tuple[torch.Tensor, None]:
        p, labels = ctx.saved_tensors
        return _subtract_labels(p, labels, 1, 1.0).mul_(heads[0]), None


def _cross_entropy_infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
    data, have = ins
    if data is not None:
        if len(data) != 2:
            raise ShapeError(f"data has shape {data}, expected 2 axes: (N, classes)")
        have = unify_input("label", have, data[:1], data)
    return [data, have], [unify(outs[0], (1,), "output")]


@op(
    "softmax_cross_entropy",
    [arg("data"), label("label")],
    infer=_cross_entropy_infer,
    classes=lambda a, data, label: ClassLabels(data[1]),
    batch=NEVER,
)
def softmax_cross_entropy(a: Any, env: Env, data: torch.Tensor, label: torch.Tensor) -> torch.Tensor:
    """Return the cross-entropy of softmax with class indices, summed over the batch.

    Probabilities below 1e-8 count as 1e-8.

    Shape:
        data: (N, classes).
        label: (N,).
        output: (1,).

    Source: MXNet 1.9.1 `softmax_cross_entropy`.
    """
    result: torch.Tensor = _CrossEntropy.apply(data, label)  # type: ignore[no-untyped-call]
    return result
