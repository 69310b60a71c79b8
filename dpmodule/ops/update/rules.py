"""What the update operators share: attributes, declaration, and how a gradient is prepared.

An update operator computes a new weight, its output; MXNet programs write it back with ``out=weight``. Its states,
such as a momentum, are auxiliary inputs that get their new values in place at once.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch

from ...base import DTypeError, Shape, ShapeError
from ..attrs import boolean, real
from ..bound import bound
from ..dtypes import name_of, single
from ..shapes import same, unify
from ..spec import AUX, NEVER, Attr, InferType, Input, Onnx, Shapes, Types, arg, aux

Tensor = torch.Tensor
Rule = Callable[..., tuple[Tensor, ...]]
"""``(weight, gradient, *states) -> (new weight, *new states)``."""

NO_ONNX = Onnx(missing="an optimizer's step is no part of an exported network")

LR = {"lr": Attr(real, "learning rate")}
WD = {"wd": Attr(real, "weight decay", 0.0)}
RESCALE = {"rescale_grad": Attr(real, "the gradient is multiplied by this first", 1.0)}
CLIP = {
    "clip_gradient": Attr(real, "the rescaled gradient is cut to [-this, this]; negative leaves it", -1.0)
}
SCALING = {**RESCALE, **CLIP}
LAZY = {
    "lazy_update": Attr(boolean, "of a row-sparse gradient, update only the rows that it stores", True),
}
BETAS = {
    "beta1": Attr(real, "share of the mean that is kept", 0.9),
    "beta2": Attr(real, "share of the variance that is kept", 0.999),
}


def scaled(grad: Tensor, rescale: Any, clip: float) -> Tensor:
    """Return a gradient rescaled and cut."""
    return cut(grad * rescale, clip)


def scaled_with_decay(grad: Tensor, rescale: float, weight: Tensor, wd: float, clip: float) -> Tensor:
    """Return a gradient rescaled, with the decayed weight added, and cut after that."""
    return cut(grad * rescale + wd * weight, clip)


def cut(values: Tensor, limit: float) -> Tensor:
    """Return values cut to [-limit, limit]; a negative limit leaves them."""
    return values.clamp(-limit, limit) if limit >= 0 else values


def mixed(rule: Rule) -> Rule:
    """Make a rule for a 16-bit weight with a float32 copy, its last state, from the rule for the copy."""

    def run(weight: Tensor, grad: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        *others, weight32 = states
        check_wide(weight, grad, others, weight32)
        new, *kept = rule(weight32, grad.float(), *others)
        return (new.to(weight.dtype), *kept, new)

    return run


def check_wide(weight: Tensor, grad: Tensor, others: Sequence[Tensor], weight32: Tensor) -> None:
    """Refuse inputs of other types or shapes than an operator with a float32 copy takes."""
    if grad.dtype != weight.dtype:
        raise DTypeError(f"grad is {name_of(grad.dtype)}, expected {name_of(weight.dtype)} as weight is")
    for state in (*others, weight32):
        if state.dtype != torch.float32:
            raise DTypeError(f"weight32 and the states have to be float32, got {name_of(state.dtype)}")
    for each in (grad, *others, weight32):
        if each.shape != weight.shape:
            raise ShapeError(
                f"expected inputs of weight's shape {tuple(weight.shape)}, got {tuple(each.shape)}"
            )


def wide_types(narrow: int, outputs_wide: bool = False) -> InferType:
    """Make a type rule: the first `narrow` inputs share one type, all others are float32.

    Args:
        narrow: number of inputs of the weight's type.
        outputs_wide: the output is float32 too.
    """

    def infer(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
        known = [*ins[:narrow], *([] if outputs_wide else outs)]
        one = next((t for t in known if t is not None), None)
        found = [t or one for t in ins[:narrow]] + [t or "float32" for t in ins[narrow:]]
        return found, [t or ("float32" if outputs_wide else one) for t in outs]

    return infer


def _same_but_tail(tail: int) -> Callable[..., Shapes]:
    """Make a shape rule: all inputs but the last `tail`, and the output, share a shape; those are single numbers."""

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        found, outputs = same(a, ins[:-tail], outs)
        return [
            *found,
            *(unify(s, (1,), "a single number's shape") if s != () else s for s in ins[-tail:]),
        ], outputs

    return infer


def remaining(beta: float, t: int, dtype: torch.dtype) -> float:
    """Return ``1 - beta ** t``, in single precision for arrays of it, as MXNet does: near 1 the digits matter."""
    power = beta**t
    return 1 - power if dtype == torch.float64 else single(1 - single(power))


def step(
    name: str,
    states: Sequence[str] = (),
    attrs: Mapping[str, Attr] | None = None,
    *,
    inputs: Sequence[str] = ("weight", "grad"),
    reads: Sequence[str] = (),
    tail: Sequence[str] = (),
    **fields: Any,
) -> Callable[[Callable[[Any], Rule]], Callable[[Any], Rule]]:
    """Declare an update operator; the decorated function makes its rule from the attributes.

    Args:
        states: inputs with the weight's shape that get new values.
        attrs: attributes in MXNet's order.
    """
    listed: list[Input] = [
        *(arg(each) for each in inputs),
        *(aux(each) for each in states),
        *(arg(each) for each in (*reads, *tail)),
    ]
    if tail:
        fields.setdefault("infer", _same_but_tail(len(tail)))
        fields.setdefault("infer_type", wide_types(len(listed) - len(tail)))
    fields.setdefault("infer", same)
    return bound(
        name,
        listed,
        attrs,
        mutates=tuple(i.name for i in listed if i.kind == AUX),
        commit_now=tuple(states),
        batch=NEVER,
        onnx=NO_ONNX,
        **fields,
    )
