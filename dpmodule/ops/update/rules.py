"""Common parts of update operators: attributes, declaration, and preparation of gradients.

The output of an update operator is the new weight; MXNet programs write it back with ``out=weight``. Its states, such
as a momentum, are auxiliary inputs that are updated in place.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ...base import DTypeError, OpError, Shape, ShapeError
from ..attrs import boolean, integer, real, reals
from ..dtypes import as_float32, name_of
from ..registry import bound
from ..shapes import same, unify
from ..spec import AUX, NEVER, Attr, InferType, Input, Onnx, Shapes, Types, Variadic, arg, aux, numbered

Tensor = torch.Tensor
Rule = Callable[..., tuple[Tensor, ...]]
"""``(weight, gradient, *states) -> (new weight, *new states)``."""

NO_ONNX = Onnx(missing="an optimizer's step is not part of an exported network")

LR = {"lr": Attr(real, "learning rate")}
WD = {"wd": Attr(real, "weight decay", 0.0)}
RESCALE = {"rescale_grad": Attr(real, "factor of the gradient, applied first", 1.0)}
CLIP = {
    "clip_gradient": Attr(
        real, "the rescaled gradient is clipped to [-this, this]; if negative, not clipped", -1.0
    )
}
SCALING = {**RESCALE, **CLIP}
LAZY = {
    "lazy_update": Attr(boolean, "update only the stored rows of a row-sparse gradient", True),
}
BETAS = {
    "beta1": Attr(real, "decay of the mean", 0.9),
    "beta2": Attr(real, "decay of the variance", 0.999),
}


def rescaled(grad: Tensor, rescale: Any, clip: float) -> Tensor:
    """Return a rescaled and clipped gradient."""
    return clip_values(grad * rescale, clip)


def rescaled_with_decay(grad: Tensor, rescale: float, weight: Tensor, wd: float, clip: float) -> Tensor:
    """Return a gradient rescaled, with weight decay added, and then clipped."""
    return clip_values(grad * rescale + wd * weight, clip)


def clip_values(values: Tensor, limit: float) -> Tensor:
    """Clip values to [-limit, limit]; a negative limit does not clip."""
    return values.clamp(-limit, limit) if limit >= 0 else values


def with_float32_copy(rule: Rule) -> Rule:
    """Return a rule for a 16-bit weight whose last state is a float32 copy, from the rule for the copy."""

    def run(weight: Tensor, grad: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        *others, weight32 = states
        check_float32(weight, grad, others, weight32)
        new, *kept = rule(weight32, grad.float(), *others)
        return (new.to(weight.dtype), *kept, new)

    return run


def check_float32(weight: Tensor, grad: Tensor, others: Sequence[Tensor], weight32: Tensor) -> None:
    """Raise an error for inputs with types or shapes that an operator with a float32 copy does not support."""
    if grad.dtype != weight.dtype:
        raise DTypeError(
            f"grad is {name_of(grad.dtype)}, expected {name_of(weight.dtype)}, the dtype of weight"
        )
    for state in (*others, weight32):
        if state.dtype != torch.float32:
            raise DTypeError(f"weight32 and the states must be float32, got {name_of(state.dtype)}")
    for tensor in (grad, *others, weight32):
        if tensor.shape != weight.shape:
            raise ShapeError(
                f"expected inputs of weight's shape {tuple(weight.shape)}, got {tuple(tensor.shape)}"
            )


def float32_types(narrow: int, outputs_wide: bool = False) -> InferType:
    """Return a type rule: the first `narrow` inputs share one type, all others are float32.

    Args:
        narrow: number of inputs of the weight's type.
        outputs_wide: the output is float32, too.
    """

    def infer(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
        known = [*ins[:narrow], *([] if outputs_wide else outs)]
        one = next((t for t in known if t is not None), None)
        in_types = [t or one for t in ins[:narrow]] + [t or "float32" for t in ins[narrow:]]
        return in_types, [t or ("float32" if outputs_wide else one) for t in outs]

    return infer


def _same_except_tail(tail: int) -> Callable[..., Shapes]:
    """Return a shape rule: the output and all inputs but the last `tail`, single numbers, share a shape."""

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        in_shapes, outputs = same(a, ins[:-tail], outs)
        return [
            *in_shapes,
            *(unify(s, (1,), "a single number's shape") if s != () else s for s in ins[-tail:]),
        ], outputs

    return infer


def bias_correction(beta: float, t: int, dtype: torch.dtype) -> float:
    """Return ``1 - beta ** t``, in single precision except for float64, as in MXNet: near 1 the digits matter."""
    power = beta**t
    return 1 - power if dtype == torch.float64 else as_float32(1 - as_float32(power))


def update_op(
    name: str,
    states: Sequence[str] = (),
    attrs: Mapping[str, Attr] | None = None,
    *,
    inputs: Sequence[str] = ("weight", "grad"),
    reads: Sequence[str] = (),
    tail: Sequence[str] = (),
    **fields: Any,
) -> Callable[[Callable[[Any], Rule]], Callable[[Any], Rule]]:
    """Declare an update operator; the decorated function returns its rule for given attributes.

    Args:
        states: inputs with the weight's shape that are updated.
        attrs: attributes in MXNet's order.
    """
    listed: list[Input] = [
        *(arg(input_name) for input_name in inputs),
        *(aux(input_name) for input_name in states),
        *(arg(input_name) for input_name in (*reads, *tail)),
    ]
    if tail:
        fields.setdefault("infer", _same_except_tail(len(tail)))
        fields.setdefault("infer_type", float32_types(len(listed) - len(tail)))
    fields.setdefault("infer", same)
    return bound(
        name,
        listed,
        attrs,
        mutates=tuple(i.name for i in listed if i.kind == AUX),
        commit_in_forward=tuple(states),
        batch=NEVER,
        onnx=NO_ONNX,
        **fields,
    )


Rules = Callable[[Any, Sequence[Tensor]], list[Rule]]
"""``(attributes, tensors after the groups) -> one rule for each group``."""

NUM_WEIGHTS = {"num_weights": Attr(integer(low=1), "number of weights", 1)}
RATES = {
    "lrs": Attr(reals, "learning rate of each weight"),
    "wds": Attr(reals, "weight decay of each weight"),
}


def _infer_shape(width: int, tail: Callable[[int], Shape]) -> Callable[..., Shapes]:
    """Return a shape rule: each group and its output share a shape; inputs after the groups have `tail(groups)`."""

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        groups = len(outs)
        in_shapes: list[Shape] = []
        results: list[Shape] = []
        for i in range(groups):
            members, (out,) = same(a, ins[i * width : (i + 1) * width], [outs[i]])
            in_shapes += members
            results.append(out)
        rest = ins[groups * width :]
        return in_shapes + [unify(s, tail(groups), "an input after the groups") for s in rest], results

    return infer


def _infer_type(members: Sequence[Input], is_mixed: bool) -> Any:
    """Return a type rule: a group shares a type, but states are float32 if there is a float32 copy."""
    width, narrow = len(members), 2 if is_mixed else len(members)

    def infer(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
        in_types: list[str | None] = []
        results: list[str | None] = []
        for i, out in enumerate(outs):
            group = ins[i * width : (i + 1) * width]
            one = next((t for t in (*group[:narrow], out) if t is not None), None)
            in_types += [t or one for t in group[:narrow]] + [t or "float32" for t in group[narrow:]]
            results.append(out or one)
        return in_types + [t or "float32" for t in ins[len(outs) * width :]], results

    return infer


def _bind_update(
    name: str, a: Any, groups: int, width: int, rules: Rules
) -> Callable[..., tuple[Tensor, ...]]:
    """Return a function that updates groups of `width` tensors and returns new weights, then new states."""

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        rules_of_groups = rules(a, tensors[groups * width :])
        if len(rules_of_groups) != groups:
            raise OpError(f"{name}: there are rates for {len(rules_of_groups)} weights, expected {groups}")
        outputs: list[Tensor] = []
        kept: list[Tensor] = []
        for i, rule in enumerate(rules_of_groups):
            new, *states = rule(*tensors[i * width : (i + 1) * width])
            outputs.append(new)
            kept += states
        return (*outputs, *kept)

    return run


def multi_update_op(
    name: str,
    states: Sequence[str],
    attrs: dict[str, Attr],
    *,
    count: str = "num_weights",
    tail: Sequence[str] = (),
    tail_shape: Callable[[int], Shape] = lambda groups: (groups,),
) -> Callable[[Rules], Rules]:
    """Declare an operator over groups (weight, gradient, *states); the decorated function returns their rules.

    Args:
        states: inputs of each group that are updated; "weight32" is a float32 copy of a 16-bit weight.
        attrs: attributes in MXNet's order.
        count: the attribute with the number of groups.
        tail_shape: shape of the inputs after the groups, as a function of the number of groups.
    """
    members = (arg("weight"), arg("grad"), *(aux(input_name) for input_name in states))
    width, has_copies = len(members), "weight32" in states

    def declare(rules: Rules) -> Rules:
        def bind(a: Any) -> Callable[..., tuple[Tensor, ...]]:
            return _bind_update(name, a, getattr(a, count), width, rules)

        bind.__doc__ = rules.__doc__
        bound(
            name,
            (),
            attrs,
            variadic=Variadic(count=count, group=members, tail=tuple(arg(input_name) for input_name in tail)),
            outputs=lambda a: numbered(getattr(a, count)),
            mutates=tuple(states),
            commit_in_forward=tuple(states),
            infer=_infer_shape(width, tail_shape),
            infer_type=_infer_type(members, has_copies),
            batch=NEVER,
            onnx=NO_ONNX,
        )(bind)
        return rules

    return declare


def rate_pairs(lrs: Iterable[Any], wds: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Return pairs of learning rates and weight decays."""
    rates, decays = list(lrs), list(wds)
    if len(rates) != len(decays):
        raise OpError(f"lrs has {len(rates)} numbers and wds {len(decays)}, expected one per weight in each")
    return list(zip(rates, decays, strict=True))
