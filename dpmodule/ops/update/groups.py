"""Declaring operators over groups of inputs: weight_0, grad_0, a state, weight_1 and so on."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ...base import OpError, Shape
from ..attrs import integer, reals
from ..bound import bound
from ..shapes import same, unify
from ..spec import NEVER, Attr, Input, Shapes, Types, Variadic, arg, aux, numbered
from .rules import NO_ONNX, Rule

Tensor = torch.Tensor
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


def _stepper(name: str, a: Any, groups: int, width: int, rules: Rules) -> Callable[..., tuple[Tensor, ...]]:
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


def multi(
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
            return _stepper(name, a, getattr(a, count), width, rules)

        bind.__doc__ = rules.__doc__
        bound(
            name,
            (),
            attrs,
            variadic=Variadic(count=count, group=members, tail=tuple(arg(each) for each in tail)),
            outputs=lambda a: numbered(getattr(a, count)),
            mutates=tuple(states),
            commit_now=tuple(states),
            infer=_infer_shape(width, tail_shape),
            infer_type=_infer_type(members, has_copies),
            batch=NEVER,
            onnx=NO_ONNX,
        )(bind)
        return rules

    return declare


def pairs(lrs: Iterable[Any], wds: Iterable[Any]) -> list[tuple[Any, Any]]:
    """Pair learning rates and decays."""
    rates, decays = list(lrs), list(wds)
    if len(rates) != len(decays):
        raise OpError(
            f"lrs has {len(rates)} numbers, but wds {len(decays)}; expected one of each for each weight"
        )
    return list(zip(rates, decays, strict=True))
