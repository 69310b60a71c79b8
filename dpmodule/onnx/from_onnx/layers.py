"""Translators of convolution, pooling and normalisation."""

from __future__ import annotations

import itertools
import math
from typing import Any

import torch

from .array import padded
from .build import GraphBuilder, NodeCall, Translator
from .check import Unsupported
from .shape_helpers import filled, fold, normalize_axis, reshape, unsqueeze
from .value import OnnxValue, Sizes

_LOWEST = {"float16": -65504.0, "bfloat16": -3.0e38, "float32": -3.4e38, "float64": -1e308}


class _ConvWindow:
    """Window of a convolution or pooling over the axes after the second."""

    def __init__(self, c: NodeCall, kernel: tuple[int, ...]) -> None:
        a, count = c.attrs, len(kernel)
        self.kernel = kernel
        self.stride = tuple(a.get("strides") or (1,) * count)
        self.dilate = tuple(a.get("dilations") or (1,) * count)
        pads = tuple(a.get("pads") or (0,) * 2 * count)
        if {len(self.stride), len(self.dilate), len(pads) / 2} != {count} or c.x.rank != count + 2:
            raise Unsupported(
                f"kernel {kernel}, strides {self.stride}, dilations {self.dilate} and pads {pads} for {c.x.dims[0]}"
            )
        if min((*kernel, *self.stride, *self.dilate), default=1) < 1:
            raise Unsupported(
                f"kernel {kernel}, strides {self.stride} and dilations {self.dilate} must be at least 1"
            )
        self.before, self.after = pads[:count], pads[count:]
        mode = a.get("auto_pad", "NOTSET")
        if mode in ("SAME_UPPER", "SAME_LOWER"):
            self._same(c.x, mode == "SAME_LOWER")
        elif mode == "VALID":
            self.before = self.after = (0,) * count

    def _same(self, x: OnnxValue, is_lower: bool) -> None:
        """Compute the padding with which the result has the data's size divided by the strides."""
        before, after = [], []
        for i, (k, s, d) in enumerate(zip(self.kernel, self.stride, self.dilate)):
            totals = {max(0, (-(-n // s) - 1) * s + (k - 1) * d + 1 - n) for n in x.axis(i + 2)}
            if len(totals) > 1:
                raise Unsupported("auto_pad with padding that depends on the sizes of the inputs")
            total = totals.pop()
            half = -(-total // 2) if is_lower else total // 2
            before.append(half)
            after.append(total - half)
        self.before, self.after = tuple(before), tuple(after)

    @property
    def is_even(self) -> bool:
        """True if the padding before and after is equal, and not negative."""
        return self.before == self.after and min(self.before, default=0) >= 0

    def pad(self, b: GraphBuilder, x: OnnxValue, value: float) -> OnnxValue:
        """Pad the data and clear the padding of the window."""
        count = (1,) * b.trials
        widths: dict[int, tuple[Sizes, Sizes]] = {
            i + 2: (tuple(m * k for k in count), tuple(n * k for k in count))
            for i, (m, n) in enumerate(zip(self.before, self.after))
        }
        self.before = self.after = (0,) * len(self.kernel)
        return padded(x, widths, "constant", value)


def _filter_sizes(c: NodeCall, weight: OnnxValue) -> tuple[int, ...]:
    sizes = [weight.size(i) for i in range(weight.rank)]
    if weight.rank < 3 or None in sizes or weight.rank != c.x.rank:
        raise Unsupported(f"weights of shape {weight.dims[0]} for data of {c.x.dims[0]}")
    given = c.attrs.get("kernel_shape")
    if given and tuple(given) != tuple(sizes[2:]):
        raise Unsupported(f"kernel_shape {tuple(given)} for weights of {weight.dims[0]}")
    return tuple(n or 0 for n in sizes)


def _conv(c: NodeCall) -> OnnxValue:
    b, x, weight = c.b, c.x, c.value(1)
    sizes = _filter_sizes(c, weight)
    window = _ConvWindow(c, sizes[2:])
    if not window.is_even:
        x = window.pad(b, x, 0.0)
    bias = [c.value(2)] if c.maybe(2) is not None else []
    return b(
        "Convolution",
        x,
        weight,
        *bias,
        kernel=window.kernel,
        stride=window.stride,
        dilate=window.dilate,
        pad=window.before,
        num_filter=sizes[0],
        num_group=c.attrs["group"],
        no_bias=not bias,
    )


def _deconv(c: NodeCall) -> OnnxValue:
    b, x, weight = c.b, c.x, c.value(1)
    sizes = _filter_sizes(c, weight)
    count = len(sizes) - 2
    auto = c.attrs.get("auto_pad", "NOTSET")
    window = _ConvWindow(_without_auto(c), sizes[2:])
    extra = tuple(c.attrs.get("output_padding") or (0,) * count)
    before, after = list(window.before), list(window.after)
    wanted = c.attrs.get("output_shape")
    if wanted or auto.startswith("SAME"):
        for i in range(count):
            outs = {
                (n - 1) * window.stride[i]
                + extra[i]
                + (window.kernel[i] - 1) * window.dilate[i]
                + 1
                - (wanted[-count:][i] if wanted else n * window.stride[i])
                for n in x.axis(i + 2)
            }
            if len(outs) > 1 or min(outs) <= -window.stride[i]:
                raise Unsupported(
                    "output_shape or auto_pad with padding that depends on the sizes of the inputs"
                )
            total = outs.pop()
            if total < 0:
                extra, total = (*extra[:i], extra[i] - total, *extra[i + 1 :]), 0
            half = total // 2 if auto == "SAME_UPPER" else total - total // 2
            before[i], after[i] = half, total - half
    common = tuple(min(m, n) for m, n in zip(before, after))
    if min(common) < 0:
        raise Unsupported(f"negative pads {before} and {after}")
    bias = [c.value(2)] if c.maybe(2) is not None else []
    result = b(
        "Deconvolution",
        x,
        weight,
        *bias,
        kernel=window.kernel,
        stride=window.stride,
        dilate=window.dilate,
        pad=common,
        adj=extra,
        num_filter=sizes[1] * c.attrs["group"],
        num_group=c.attrs["group"],
        no_bias=not bias,
    )
    for i, (m, n) in enumerate(zip(before, after)):
        if m != n:
            end = -(n - common[i]) or None
            result = b("slice_axis", result, axis=i + 2, begin=m - common[i], end=end)
    return result


def _without_auto(c: NodeCall) -> NodeCall:
    c.attrs = {**c.attrs, "auto_pad": "VALID" if c.attrs.get("auto_pad") == "VALID" else "NOTSET"}
    return c


def _pool(c: NodeCall) -> list[OnnxValue]:
    if len(c.used) > 1 and c.used[1]:
        raise Unsupported("its output of positions is read")
    b, x, a = c.b, c.x, c.attrs
    kind = {"MaxPool": "max", "AveragePool": "avg", "LpPool": "lp"}[c.kind]
    window = _ConvWindow(c, tuple(a["kernel_shape"]))
    given = window.after
    if a.get("ceil_mode"):
        _extend_padding(window, x)
    options: dict[str, Any] = {"kernel": window.kernel, "stride": window.stride}
    if kind == "lp":
        x, kind = x.apply("abs") ** float(a["p"]), "sum"
        result = _pooled(b, window, x, kind, options, True, given)
        return [result ** (1.0 / a["p"])]
    return [_pooled(b, window, x, kind, options, bool(a.get("count_include_pad")), given)]


def _pooled(
    b: GraphBuilder,
    window: _ConvWindow,
    x: OnnxValue,
    kind: str,
    options: dict[str, Any],
    counts_pads: bool,
    given: tuple[int, ...],
) -> OnnxValue:
    """Pool over windows.

    Args:
        given: padding after the data, without what a rounded-up number of windows adds.
    """
    if any(d != 1 for d in window.dilate):
        return _dilated(b, window, x, kind, counts_pads)
    if (
        window.is_even
        and window.after == given
        and all(2 * p <= k for p, k in zip(window.before, window.kernel))
    ):
        return _small(b, x, kind, options, window.before, counts_pads)
    if kind == "avg":
        return _average(b, window, x, options, counts_pads, given)
    lowest = _LOWEST.get(x.dtype, 0.0) if kind == "max" else 0.0
    return _small(b, window.pad(b, x, lowest), kind, options, (0,) * len(window.kernel), True)


def _small(
    b: GraphBuilder, x: OnnxValue, kind: str, options: dict[str, Any], pad: tuple[int, ...], counts: bool
) -> OnnxValue:
    more: dict[str, Any] = {"count_include_pad": counts} if kind == "avg" else {}
    return b("Pooling", x, pool_type=kind, pad=pad, **options, **more)


def _extend_padding(window: _ConvWindow, x: OnnxValue) -> None:
    """Extend the padding after the data for a rounded-up number of windows."""
    after = list(window.after)
    for i, (k, s, d) in enumerate(zip(window.kernel, window.stride, window.dilate)):
        more = set()
        for n in x.axis(i + 2):
            length = n + window.before[i] + window.after[i] - (k - 1) * d - 1
            steps = -(-length // s)
            if steps * s >= n + window.before[i]:  # a window must not begin after the data
                steps -= 1
            more.add(max(0, steps * s - length))
        if len(more) > 1:
            raise Unsupported("ceil_mode with a number of windows that depends on the sizes of the inputs")
        after[i] += more.pop()
    window.after = tuple(after)


def _average(
    b: GraphBuilder,
    window: _ConvWindow,
    x: OnnxValue,
    options: dict[str, Any],
    counts_pads: bool,
    given: tuple[int, ...],
) -> OnnxValue:
    """Average over windows that exceed the data on one side."""
    before, after = window.before, window.after
    total = _small(b, window.pad(b, x, 0.0), "sum", options, (0,) * len(before), True)
    if counts_pads and after == given:
        return total / float(math.prod(window.kernel))
    counted = [m + n if counts_pads else 0 for m, n in zip(before, given)]
    shape = tuple((1, 1, *(n + more for n, more in zip(s[2:], counted))) for s in x.shapes)
    window.before, window.after = before, after
    if counts_pads:
        window.before, window.after = (0,) * len(before), tuple(n - m for n, m in zip(after, given))
    ones = window.pad(b, filled(b, shape, 1.0, x.dtype), 0.0)
    number = _small(b, ones, "sum", options, (0,) * len(before), True)
    return b("broadcast_div", total, number)


def _dilated(b: GraphBuilder, window: _ConvWindow, x: OnnxValue, kind: str, counts_pads: bool) -> OnnxValue:
    """Pool over dilated windows: the maximum of shifted images, one for each element of a window."""
    if math.prod(window.kernel) > 64 or (kind != "max" and not (counts_pads or not any(window.before))):
        raise Unsupported(f"dilations {window.dilate} of a window of {window.kernel}")
    x = window.pad(b, x, _LOWEST.get(x.dtype, 0.0) if kind == "max" else 0.0)
    parts = []
    for indices in itertools.product(*map(range, window.kernel)):
        begin, end = [], []
        for i, position in enumerate(indices):
            first = position * window.dilate[i]
            last = first - (window.kernel[i] - 1) * window.dilate[i]
            begin.append(first)
            end.append(last or None)
        nothing = (None, None)
        step = (*nothing, *window.stride)
        parts.append(b("slice", x, begin=(*nothing, *begin), end=(*nothing, *end), step=step))
    if kind == "max":
        return fold("maximum", parts)
    total = fold("plus", parts)
    return total if kind == "sum" else total / float(math.prod(window.kernel))


def _global(c: NodeCall) -> OnnxValue:
    b, x = c.b, c.x
    kind = {"GlobalMaxPool": "max", "GlobalAveragePool": "avg", "GlobalLpPool": "lp"}[c.kind]
    count = x.rank - 2
    if count < 1 or count > 3:
        axes = tuple(range(2, x.rank))
        return b({"max": "max", "avg": "mean"}[kind], x, axis=axes, keepdims=True) if axes else x
    options: dict[str, Any] = {"p_value": c.attrs["p"]} if kind == "lp" else {}
    return b("Pooling", x, pool_type=kind, global_pool=True, kernel=(1,) * count, **options)


# normalizations


def _is_variable(value: OnnxValue) -> bool:
    return value.entry is not None and value.entry[0].op is None


def _batch(c: NodeCall) -> list[OnnxValue]:
    b, x, a = c.b, c.x, c.attrs
    if any(c.used[1:]) and c.since < 14:
        raise Unsupported("its outputs of running averages are read")
    scale, shift, mean, variance = (c.value(i) for i in range(1, 5))
    if a.get("spatial", 1) != 1:
        raise Unsupported("spatial is 0")
    vectors = all(v.trains or v.known is not None for v in (scale, shift))
    if vectors and all(v.trains and _is_variable(v) for v in (mean, variance)):
        result = b(
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
        return [result, mean, variance][: max(1, len(c.used))] if any(c.used[1:]) else [result]
    wide = [unsqueeze(v, range(1, x.rank - 1)) for v in (scale, shift, mean, variance)]
    spread = (wide[3] + a["epsilon"]).apply("sqrt")
    centred = (x - wide[2]) / spread
    return [centred * wide[0] + wide[1]]


def _instance(c: NodeCall) -> OnnxValue:
    return c.b("InstanceNorm", c.x, c.value(1), c.value(2), eps=c.attrs["epsilon"])


def _normalized(
    b: GraphBuilder, x: OnnxValue, axes: list[int], epsilon: float
) -> tuple[OnnxValue, OnnxValue, OnnxValue]:
    """Return the normalized data, the mean and the reciprocal of the standard deviation."""
    mean = x.reduce("mean", axes, True)
    gap = x - mean
    variance = gap.apply("square").reduce("mean", axes, True)
    inverse = (variance + epsilon).apply("rsqrt")
    return gap * inverse, mean, inverse


def _layer(c: NodeCall) -> list[OnnxValue]:
    b, x, scale, shift = c.b, c.x, c.value(1), c.maybe(2)
    axis, epsilon = normalize_axis(c.attrs["axis"], x.rank), c.attrs["epsilon"]
    if axis == x.rank - 1 and not any(c.used[1:]) and scale.rank == 1 and scale.size(0) == x.size(axis):
        if shift is None:
            zeros = b.constant(torch.zeros(scale.shapes[0]), scale.dtype)
            return [b("LayerNorm", x, scale, zeros, eps=epsilon)]
        if shift.shapes == scale.shapes:
            return [b("LayerNorm", x, scale, shift, eps=epsilon)]
    result, mean, inverse = _normalized(b, x, list(range(axis, x.rank)), epsilon)
    result = result * scale
    return [result if shift is None else result + shift, mean, inverse]


def _rms(c: NodeCall) -> OnnxValue:
    x = c.x
    axes = list(range(normalize_axis(c.attrs["axis"], x.rank), x.rank))
    square = x.apply("square").reduce("mean", axes, True)
    inverse = (square + c.attrs["epsilon"]).apply("rsqrt")
    scaled: OnnxValue = x * inverse
    return scaled * c.value(1)


def _group(c: NodeCall) -> OnnxValue:
    b, x, groups = c.b, c.x, c.attrs["num_groups"]
    channels = x.size(1)
    if channels is None or channels % groups:
        raise Unsupported(f"{channels} channels in {groups} groups")
    scale, shift = c.value(1), c.value(2)
    if c.since < 21:
        scale, shift = (b("repeat", v, repeats=channels // groups, axis=0) for v in (scale, shift))
    apart = reshape(x, tuple((s[0], groups, channels // groups, *s[2:]) for s in x.shapes))
    result, _, _ = _normalized(b, apart, list(range(2, apart.rank)), c.attrs["epsilon"])
    result = reshape(result, x.shapes)
    wide = [unsqueeze(v, range(1, x.rank - 1)) for v in (scale, shift)]
    return result * wide[0] + wide[1]


def _mean_variance(c: NodeCall) -> OnnxValue:
    axes = [normalize_axis(a, c.x.rank) for a in c.attrs["axes"]]
    x = c.x
    gap = x - x.reduce("mean", axes, True)
    spread = gap.apply("square").reduce("mean", axes, True).apply("sqrt")
    return gap / (spread + 1e-9)


def _lp(c: NodeCall) -> OnnxValue:
    x = c.x
    axis = normalize_axis(c.attrs["axis"], x.rank)
    if c.attrs["p"] == 1:
        length = x.apply("abs").reduce("sum", [axis], True)
    else:
        length = x.apply("square").reduce("sum", [axis], True).apply("sqrt")
    return x / (length + length.arith("equal", 0.0))


def _local(c: NodeCall) -> OnnxValue:
    a = c.attrs
    return c.b("LRN", c.x, nsize=a["size"], alpha=a["alpha"], beta=a["beta"], knorm=a["bias"])


TABLE: dict[str, Translator] = {
    "Conv": _conv,
    "ConvTranspose": _deconv,
    **dict.fromkeys(("MaxPool", "AveragePool", "LpPool"), _pool),
    **dict.fromkeys(("GlobalMaxPool", "GlobalAveragePool", "GlobalLpPool"), _global),
    "BatchNormalization": _batch,
    "GroupNormalization": _group,
    "InstanceNormalization": _instance,
    "LRN": _local,
    "LayerNormalization": _layer,
    "LpNormalization": _lp,
    "MeanVarianceNormalization": _mean_variance,
    "RMSNormalization": _rms,
}
