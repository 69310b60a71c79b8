"""8-bit numbers and their ranges.

Steps and order of the arithmetic are those of our own operators, so that the numbers are the same: what is rounded
to 8 bits is scaled before, and QuantizeLinear rounds with a scale of 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.quantize.ranges import GREATEST, STEPS, calibrated
from .call import OperatorCall
from .common import reduce, unsqueeze
from .pooling import pooling

F4 = "float32"


def _number(c: OperatorCall, value: float) -> str:
    return c.const([value], F4)


def _times(c: OperatorCall, *values: str) -> str:
    product, *rest = values
    for value in rest:
        product = c.emit("Mul", product, value)
    return product


def _ratio(c: OperatorCall, value: str | float, by: str | float) -> str:
    one, other = (x if isinstance(x, str) else _number(c, x) for x in (value, by))
    return c.emit("Div", one, other)


def _magnitude(c: OperatorCall, low: str, high: str) -> str:
    """Return the greater of the magnitudes of a range's ends."""
    return c.emit("Max", c.emit("Abs", low), c.emit("Abs", high))


def _rounded(c: OperatorCall, value: str, kind: str) -> str:
    """Round a float32 value to a type, halves to even; what lies outside goes to its ends."""
    if kind != "int32":
        return c.emit("QuantizeLinear", value, c.const(1.0, F4), c.const(0, kind))
    wide = c.emit("Round", c.cast(value, "float64"))
    return c.cast(_within(c, wide, "float64"), "int32")


def _within(c: OperatorCall, value: str, dtype: str) -> str:
    """Cut off what no int32 holds."""
    return c.emit("Clip", value, c.const(-(2**31), dtype), c.const(2**31 - 1, dtype))


def _quantized(c: OperatorCall, low: str, high: str, kind: str, steps: float) -> list[str]:
    reach = _magnitude(c, low, high)
    found = _rounded(c, c.emit("Mul", c.inputs[0], _ratio(c, steps, reach)), kind)
    return [found, low, high] if kind == "uint8" else [found, c.emit("Neg", reach), reach]


def quantize(c: OperatorCall) -> list[str]:
    """Over a range that comes as inputs."""
    _, low, high = c.inputs
    return _quantized(c, low, high, c.a.out_type, GREATEST[c.a.out_type])


def quantize_v2(c: OperatorCall) -> list[str]:
    """Over a calibrated range, or that of the data."""
    a, kind = c.a, c.out_dtypes[0]
    if c.dtypes[0] != F4:
        top = STEPS[c.dtypes[0]]
        low, high = 0.0 if kind == "uint8" else -top, top
        if calibrated(a):
            low, high = a.min_calib_range, a.max_calib_range
        return [c.inputs[0], _number(c, low), _number(c, high)]
    return _quantized(c, *_data_range(c), kind, STEPS[kind])


def _data_range(c: OperatorCall) -> tuple[str, str]:
    """Return the calibrated range, or that of the data."""
    if calibrated(c.a):
        return _number(c, c.a.min_calib_range), _number(c, c.a.max_calib_range)
    return _extreme(c, "ReduceMin", c.inputs[0]), _extreme(c, "ReduceMax", c.inputs[0])


def _extreme(c: OperatorCall, operator: str, value: str) -> str:
    """Return the least or greatest element as one number."""
    return reduce(c, operator, c.emit("Reshape", value, c.ints(-1)), [0], keepdims=True)


def quantize_asym(c: OperatorCall) -> list[str]:
    """Over 0 to 255, with a shift."""
    kind, x = c.dtypes[0], c.inputs[0]
    if kind == "uint8":
        return [x, _number(c, 1.0), _number(c, 0.0)]
    if kind == "int8":
        moved = c.emit("Add", c.cast(x, "int32"), c.const(128, "int32"))
        return [c.cast(moved, "uint8"), _number(c, 1.0), _number(c, 128.0)]
    low, high = _data_range(c)
    top = _number(c, 255.0)
    scale = c.emit("Div", top, c.emit("Sub", high, low))
    shift = c.emit("Sub", top, c.emit("Mul", high, scale))
    moved = c.emit("Add", c.emit("Add", c.emit("Mul", x, scale), shift), _number(c, 0.5))
    found = c.emit("Clip", moved, c.const(0.0, F4), c.const(255.0, F4))
    return [c.cast(found, "uint8"), scale, shift]


def dequantize(c: OperatorCall) -> str:
    """DequantizeLinear, whose scale is the range over the number of steps."""
    data, low, high = c.inputs
    scale = _ratio(c, _magnitude(c, low, high), STEPS[c.dtypes[0]])
    return c.emit("DequantizeLinear", data, c.emit("Reshape", scale, c.const([], "int64")))


def requantize(c: OperatorCall) -> list[str]:
    """From 32 bits to 8."""
    data, low, high = c.inputs
    kind = c.out_dtypes[0]
    unit = _ratio(c, _magnitude(c, low, high), STEPS["int32"])
    if calibrated(c.a):
        reach = _magnitude(c, *_data_range(c))
    else:
        # abs of the least int32 has no int32
        wide = data if kind == "uint8" else c.emit("Abs", c.cast(data, "float64"))
        reach = c.emit("Mul", c.cast(_extreme(c, "ReduceMax", wide), F4), unit)
    factor = c.emit("Mul", unit, _ratio(c, GREATEST[kind], reach))
    found = _rounded(c, c.emit("Mul", c.cast(data, F4), factor), kind)
    return [found, c.emit("Mul", reach, _number(c, 0.0)) if kind == "uint8" else c.emit("Neg", reach), reach]


def _scale_of(c: OperatorCall, i: int, low: str, high: str) -> str:
    """Return how many steps of input `i` one unit is."""
    return _ratio(c, STEPS[c.dtypes[i]], _magnitude(c, low, high))


def _product_range(c: OperatorCall, kinds: Sequence[str], ends: Sequence[str]) -> list[str]:
    """Return the range that int32 products stand for, from the types and ranges of both factors."""
    left = _ratio(c, _magnitude(c, *ends[:2]), GREATEST[kinds[0]])
    right = _ratio(c, _magnitude(c, *ends[2:4]), GREATEST[kinds[1]])
    high = _times(c, left, right, _number(c, GREATEST["int32"]))
    return [c.emit("Neg", high), high]


def _bias_steps(c: OperatorCall, ends: Sequence[str]) -> str:
    """Return the bias in the steps of the 32-bit sums, cut towards 0, as int64."""
    per_unit = c.emit("Mul", _scale_of(c, 0, *ends[:2]), _ratio(c, STEPS["int8"], _magnitude(c, *ends[2:4])))
    factor = c.emit("Div", per_unit, _ratio(c, STEPS["int8"], _magnitude(c, *ends[4:6])))
    return c.cast(c.emit("Mul", c.cast(c.inputs[2], F4), factor), "int64")


def _with_bias(c: OperatorCall, sums: str, bias: str) -> str:
    """Add an int64 bias to int32 sums."""
    total = c.emit("Add", c.cast(sums, "int64"), bias)
    return c.cast(_within(c, total, "int64"), "int32")


def quantized_fully_connected(c: OperatorCall) -> list[str]:
    """MatMulInteger."""
    own = 2 if c.a.no_bias else 3
    x, weight, ends = c.inputs[0], c.inputs[1], c.inputs[own:]
    if c.a.flatten and len(c.shapes[0]) != 2:
        x = c.emit("Flatten", x, axis=1)
    found = c.emit("MatMulInteger", x, c.emit("Transpose", weight, perm=[1, 0]))
    if own == 3:
        found = _with_bias(c, found, _bias_steps(c, ends))
    return [found, *_product_range(c, c.dtypes[:2], ends)]


def quantized_conv(c: OperatorCall) -> list[str]:
    """ConvInteger over uint8; int8 data is moved up by 128, which its zero point says."""
    a, axes = c.a, len(c.a.kernel)
    if a.layout is not None and a.layout.endswith("C"):
        c.refuse(f"its layout is {a.layout}, expected channels second, which is ConvInteger's only one")
    own = 2 if a.no_bias else 3
    x, weight, ends = c.inputs[0], c.inputs[1], c.inputs[own:]
    zero = [] if c.dtypes[0] == "uint8" else [c.const(128, "uint8")]
    if zero:
        x = c.cast(c.emit("Add", c.cast(x, "int32"), c.const(128, "int32")), "uint8")
    found = c.emit(
        "ConvInteger",
        x,
        weight,
        *zero,
        kernel_shape=list(a.kernel),
        strides=list(a.stride or (1,) * axes),
        dilations=list(a.dilate or (1,) * axes),
        pads=list(a.pad or (0,) * axes) * 2,
        group=a.num_group,
    )
    if own == 3:
        bias = c.cast(c.inputs[2], "int64") if c.dtypes[0] == "uint8" else _bias_steps(c, ends)
        found = _with_bias(c, found, unsqueeze(c, bias, *range(1, axes + 1)))
    return [found, *_product_range(c, ("int8", "int8"), ends)]


def quantized_pooling(c: OperatorCall) -> list[str]:
    """Pooling of floating numbers, which hold all sums exactly."""
    floats = c.on([c.cast(c.inputs[0], F4), *c.inputs[1:]], [F4] * 6)
    found = pooling(floats)
    (pooled,) = (found,) if isinstance(found, str) else found
    return [_rounded(c, pooled, c.dtypes[0]), *c.inputs[1:]]


def quantized_act(c: OperatorCall) -> list[str]:
    """Numbers below 0 are cut off."""
    return [c.emit("Clip", c.inputs[0], c.const(0)), *c.inputs[1:]]


def quantized_flatten(c: OperatorCall) -> list[str]:
    """Flatten."""
    return [c.emit("Flatten", c.inputs[0], axis=1), *c.inputs[1:]]


def quantized_embedding(c: OperatorCall) -> list[str]:
    """Gather, positions outside pulled to the ends."""
    places, weight, low, high = c.inputs
    last = c.const(c.length(0, 1) - 1, "int64")
    inside = c.emit("Clip", c.cast(places, "int64"), c.const(0, "int64"), last)
    return [c.emit("Gather", weight, inside, axis=0), low, high]


def quantized_concat(c: OperatorCall) -> list[str]:
    """Concat of parts that are brought to one range."""
    count, kind, zero = c.a.num_args, c.out_dtypes[0], _number(c, 0.0)
    ends = c.inputs[count:]
    low, high = c.emit("Min", *ends[::2], zero), c.emit("Max", *ends[1::2], zero)
    scale = _ratio(c, STEPS[kind], _magnitude(c, low, high))
    parts = []
    for i, x in enumerate(c.inputs[:count]):
        factor = c.emit("Div", scale, _scale_of(c, i, ends[2 * i], ends[2 * i + 1]))
        parts.append(_rounded(c, c.emit("Mul", c.cast(x, F4), factor), kind))
    return [c.emit("Concat", *parts, axis=c.a.dim), low, high]


def quantized_elemwise_add(c: OperatorCall) -> list[str]:
    """Sums of what both stand for."""
    kind, ends = c.out_dtypes[0], c.inputs[2:]
    if calibrated(c.a):
        low, high = _data_range(c)
    else:
        high = c.emit("Add", _magnitude(c, *ends[:2]), _magnitude(c, *ends[2:]))
        low = c.emit("Neg", high)
    scale = _ratio(c, STEPS[kind], _magnitude(c, low, high))
    parts = []
    for i, x in enumerate(c.inputs[:2]):
        factor = c.emit("Div", scale, _scale_of(c, i, ends[2 * i], ends[2 * i + 1]))
        part = c.emit("Mul", c.cast(x, F4), factor)
        if c.dtypes[0] != c.dtypes[1] and c.dtypes[i] == "uint8" and kind == "int8":
            part = c.cast(_rounded(c, part, "int8"), F4)
        parts.append(part)
    return [_rounded(c, c.emit("Add", *parts), kind), low, high]


def quantized_elemwise_mul(c: OperatorCall) -> list[str]:
    """Products, as they are or over a range."""
    ends = c.inputs[2:]
    product = c.emit("Mul", *(c.cast(x, "int32") for x in c.inputs[:2]))
    per_unit = c.emit("Mul", _scale_of(c, 0, *ends[:2]), _scale_of(c, 1, *ends[2:]))
    if c.a.enable_float_output:
        return [c.emit("Div", c.cast(product, F4), per_unit)]
    if not calibrated(c.a):
        return [product, *_product_range(c, c.dtypes[:2], ends)]
    low, high = _data_range(c)
    factor = c.emit("Div", _ratio(c, STEPS["int8"], _magnitude(c, low, high)), per_unit)
    scaled = c.emit("Mul", c.cast(product, F4), factor)
    inside = c.emit("Clip", scaled, c.const(-128.0, F4), c.const(127.0, F4))
    return [c.cast(inside, "int8"), low, high]


def quantized_batch_norm(c: OperatorCall) -> list[str]:
    """A factor and an addend for each channel."""
    data, gamma, beta, mean, variance, *ends = c.inputs
    rank = len(c.shapes[0])
    if c.dtypes[0] == "uint8":
        half = c.emit("Mul", c.cast(data, F4), c.const(STEPS["int8"] / STEPS["uint8"], F4))
        data = _rounded(c, half, "int8")
    low, high = _data_range(c)
    reach, wide = _magnitude(c, low, high), _magnitude(c, *ends)
    inverse = c.emit("Reciprocal", c.emit("Sqrt", c.emit("Add", variance, _number(c, c.a.eps))))
    slope = c.emit("Mul", gamma, inverse)
    # the kernel divides by the deviation of a unit variance once more
    factor = _ratio(c, _ratio(c, c.emit("Mul", slope, wide), reach), (1 + c.a.eps) ** 0.5)
    moved = c.emit("Sub", beta, c.emit("Mul", c.emit("Mul", mean, gamma), inverse))
    added = _ratio(c, c.emit("Mul", moved, _number(c, STEPS["int8"])), reach)
    axes = [i for i in range(rank) if i != c.a.axis % rank]
    scaled = c.emit("Mul", c.cast(data, F4), unsqueeze(c, factor, *axes))
    return [_rounded(c, c.emit("Add", scaled, unsqueeze(c, added, *axes)), "int8"), low, high]
