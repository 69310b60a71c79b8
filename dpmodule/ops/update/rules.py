"""What the update operators share: attributes, declaration, and how a gradient is prepared.

An update operator computes a new weight, its output; MXNet programs write it back with ``out=weight``. Its states,
such as a momentum, are auxiliary inputs that get their new values in place at once.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import torch

from ...base import DTypeError, OpError, Shape, ShapeError
from ..attrs import boolean, integer, real, reals
from ..dtypes import name_of, single
from ..registry import bound
from ..shapes import same, unify
from ..spec import AUX, NEVER, Attr, InferType, Input, Onnx, Shapes, Types, Variadic, arg, aux, numbered

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


def rescaled(grad: Tensor, rescale: Any, clip: float) -> Tensor:
    """Return a gradient rescaled and cut."""
    return clip_values(grad * rescale, clip)


def rescaled_with_decay(grad: Tensor, rescale: float, weight: Tensor, wd: float, clip: float) -> Tensor:
    """Return a gradient rescaled, with the decayed weight added, and cut after that."""
    return clip_values(grad * rescale + wd * weight, clip)


def clip_values(values: Tensor, limit: float) -> Tensor:
    """Return values cut to [-limit, limit]; a negative limit leaves them."""
    return values.clamp(-limit, limit) if limit >= 0 else values


def with_float32_copy(rule: Rule) -> Rule:
    """Make a rule for a 16-bit weight with a float32 copy, its last state, from the rule for the copy."""

    def run(weight: Tensor, grad: Tensor, *states: Tensor) -> tuple[Tensor, ...]:
        *others, weight32 = states
        check_float32(weight, grad, others, weight32)
        new, *kept = rule(weight32, grad.float(), *others)
        return (new.to(weight.dtype), *kept, new)

    return run


def check_float32(weight: Tensor, grad: Tensor, others: Sequence[Tensor], weight32: Tensor) -> None:
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


def float32_types(narrow: int, outputs_wide: bool = False) -> InferType:
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


def _same_except_tail(tail: int) -> Callable[..., Shapes]:
    """Make a shape rule: all inputs but the last `tail`, and the output, share a shape; those are single numbers."""

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        found, outputs = same(a, ins[:-tail], outs)
        return [
            *found,
            *(unify(s, (1,), "a single number's shape") if s != () else s for s in ins[-tail:]),
        ], outputs

    return infer


def bias_correction(beta: float, t: int, dtype: torch.dtype) -> float:
    """Return ``1 - beta ** t``, in single precision for arrays of it, as MXNet does: near 1 the digits matter."""
    power = beta**t
    return 1 - power if dtype == torch.float64 else single(1 - single(power))


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
    """Make a shape rule: each group and its output share a shape; each input after the groups has `tail(groups)`."""

    def infer(a: Any, ins: list[Shape], outs: list[Shape]) -> Shapes:
        groups = len(outs)
        found: list[Shape] = []
        results: list[Shape] = []
        for i in range(groups):
            members, (out,) = same(a, ins[i * width : (i + 1) * width], [outs[i]])
            found += members
            results.append(out)
        rest = ins[groups * width :]
        return found + [unify(s, tail(groups), "an input after the groups") for s in rest], results

    return infer


def _infer_type(members: Sequence[Input], is_mixed: bool) -> Any:
    """Make a type rule: a group shares a type, but its states are float32 if they go with a float32 copy."""
    width, narrow = len(members), 2 if is_mixed else len(members)

    def infer(a: Any, ins: list[str | None], outs: list[str | None]) -> Types:
        found: list[str | None] = []
        results: list[str | None] = []
        for i, out in enumerate(outs):
            group = ins[i * width : (i + 1) * width]
            one = next((t for t in (*group[:narrow], out) if t is not None), None)
            found += [t or one for t in group[:narrow]] + [t or "float32" for t in group[narrow:]]
            results.append(out or one)
        return found + [t or "float32" for t in ins[len(outs) * width :]], results

    return infer


def _bind_update(
    name: str, a: Any, groups: int, width: int, rules: Rules
) -> Callable[..., tuple[Tensor, ...]]:
    """Return the function that updates groups of `width` tensors; it gives the new weights, then the new states."""

    def run(*tensors: Tensor) -> tuple[Tensor, ...]:
        made = rules(a, tensors[groups * width :])
        if len(made) != groups:
            raise OpError(f"{name}: rates for {len(made)} weights are given, expected {groups}")
        outputs: list[Tensor] = []
        kept: list[Tensor] = []
        for i, rule in enumerate(made):
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
    """Declare an operator over groups (weight, gradient, *states); the decorated function makes their rules.

    Args:
        states: inputs of each group that get new values; "weight32" stands for a float32 copy of a 16-bit weight.
        attrs: attributes in MXNet's order.
        count: the attribute that holds the number of groups.
        tail_shape: their shape, by the number of groups.
    """
    members = (arg("weight"), arg("grad"), *(aux(each) for each in states))
    width, has_copies = len(members), "weight32" in states

    def declare(rules: Rules) -> Rules:
        def bind(a: Any) -> Callable[..., tuple[Tensor, ...]]:
            return _bind_update(name, a, getattr(a, count), width, rules)

        bind.__doc__ = rules.__doc__
        bound(
            name,
            (),
            attrs,
            variadic=Variadic(count=count, group=members, tail=tuple(arg(each) for each in tail)),
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
    """Pair learning rates and decays."""
    rates, decays = list(lrs), list(wds)
    if len(rates) != len(decays):
        raise OpError(
            f"lrs has {len(rates)} numbers, but wds {len(decays)}; expected one of each for each weight"
        )
    return list(zip(rates, decays, strict=True))
