"""Normalizations."""

from __future__ import annotations

import torch

from .build import GraphBuilder
from .call import NodeCall, Translator
from .forms import normal, reshape, unsqueeze
from .problems import Refused
from .value import OnnxValue


def _is_variable(value: OnnxValue) -> bool:
    return value.entry is not None and value.entry[0].op is None


def _batch(c: NodeCall) -> list[OnnxValue]:
    b, x, a = c.b, c.x, c.attrs
    if any(c.used[1:]) and c.since < 14:
        raise Refused("its running averages are read")
    scale, shift, mean, variance = (c.value(i) for i in range(1, 5))
    if a.get("spatial", 1) != 1:
        raise Refused("spatial is 0")
    vectors = all(v.trains or v.known is not None for v in (scale, shift))
    if vectors and all(v.trains and _is_variable(v) for v in (mean, variance)):
        made = b(
            "BatchNorm",
            x,
            scale,
            shift,
            mean,
            variance,
            eps=a["epsilon"],
            momentum=a["momentum"],
            fix_gamma=scale.name in b.hints.fix_gamma,
            use_global_stats=mean.name in b.hints.use_global_stats,
        )
        return [made, mean, variance][: max(1, len(c.used))] if any(c.used[1:]) else [made]
    wide = [unsqueeze(v, range(1, x.rank - 1)) for v in (scale, shift, mean, variance)]
    spread = (wide[3] + a["epsilon"]).apply("sqrt")
    centred = (x - wide[2]) / spread
    return [centred * wide[0] + wide[1]]


def _instance(c: NodeCall) -> OnnxValue:
    return c.b("InstanceNorm", c.x, c.value(1), c.value(2), eps=c.attrs["epsilon"])


def _centred(
    b: GraphBuilder, x: OnnxValue, axes: list[int], epsilon: float
) -> tuple[OnnxValue, OnnxValue, OnnxValue]:
    """Return the normalized data, their mean and the reciprocal of their spread."""
    mean = x.reduce("mean", axes, True)
    gap = x - mean
    variance = gap.apply("square").reduce("mean", axes, True)
    inverse = (variance + epsilon).apply("rsqrt")
    return gap * inverse, mean, inverse


def _layer(c: NodeCall) -> list[OnnxValue]:
    b, x, scale, shift = c.b, c.x, c.value(1), c.maybe(2)
    axis, epsilon = normal(c.attrs["axis"], x.rank), c.attrs["epsilon"]
    if axis == x.rank - 1 and not any(c.used[1:]) and scale.rank == 1 and scale.size(0) == x.size(axis):
        if shift is None:
            zeros = b.constant(torch.zeros(scale.shapes[0]), scale.dtype)
            return [b("LayerNorm", x, scale, zeros, eps=epsilon)]
        if shift.shapes == scale.shapes:
            return [b("LayerNorm", x, scale, shift, eps=epsilon)]
    found, mean, inverse = _centred(b, x, list(range(axis, x.rank)), epsilon)
    found = found * scale
    return [found if shift is None else found + shift, mean, inverse]


def _rms(c: NodeCall) -> OnnxValue:
    x = c.x
    axes = list(range(normal(c.attrs["axis"], x.rank), x.rank))
    square = x.apply("square").reduce("mean", axes, True)
    inverse = (square + c.attrs["epsilon"]).apply("rsqrt")
    return x * inverse * c.value(1)


def _group(c: NodeCall) -> OnnxValue:
    b, x, groups = c.b, c.x, c.attrs["num_groups"]
    channels = x.size(1)
    if channels is None or channels % groups:
        raise Refused(f"{channels} channels in {groups} groups")
    scale, shift = c.value(1), c.value(2)
    if c.since < 21:
        scale, shift = (b("repeat", v, repeats=channels // groups, axis=0) for v in (scale, shift))
    apart = reshape(x, tuple((s[0], groups, channels // groups, *s[2:]) for s in x.shapes))
    found, _, _ = _centred(b, apart, list(range(2, apart.rank)), c.attrs["epsilon"])
    found = reshape(found, x.shapes)
    wide = [unsqueeze(v, range(1, x.rank - 1)) for v in (scale, shift)]
    return found * wide[0] + wide[1]


def _mean_variance(c: NodeCall) -> OnnxValue:
    axes = [normal(a, c.x.rank) for a in c.attrs["axes"]]
    x = c.x
    gap = x - x.reduce("mean", axes, True)
    spread = gap.apply("square").reduce("mean", axes, True).apply("sqrt")
    return gap / (spread + 1e-9)


def _lp(c: NodeCall) -> OnnxValue:
    x = c.x
    axis = normal(c.attrs["axis"], x.rank)
    if c.attrs["p"] == 1:
        length = x.apply("abs").reduce("sum", [axis], True)
    else:
        length = x.apply("square").reduce("sum", [axis], True).apply("sqrt")
    return x / (length + length.arith("equal", 0.0))


def _local(c: NodeCall) -> OnnxValue:
    a = c.attrs
    return c.b("LRN", c.x, nsize=a["size"], alpha=a["alpha"], beta=a["beta"], knorm=a["bias"])


TABLE: dict[str, Translator] = {
    "BatchNormalization": _batch,
    "GroupNormalization": _group,
    "InstanceNormalization": _instance,
    "LRN": _local,
    "LayerNormalization": _layer,
    "LpNormalization": _lp,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms,
}
