"""Builders of quantized operators: 8-bit numbers and their ranges.

The arithmetic follows the operators of `ops.quantize` step by step, so that the numbers are equal: values are scaled
before they are rounded to 8 bits, and QuantizeLinear rounds with a scale of 1.
"""

from __future__ import annotations

from collections.abc import Sequence

from ...ops.quantize.integer_ranges import MAX_VALUE, STEPS, has_calibration
from .call import OperatorCall, Value
from .common import Builder, windows
from .pooling import pooling

F4 = "float32"


def _number(c: OperatorCall, value: float) -> Value:
    return c.const([value], F4)


def _magnitude(low: Value, high: Value) -> Value:
    """Return the greater magnitude of a range's ends."""
    return abs(low).then("Max", abs(high))


def _rounded(c: OperatorCall, value: Value, kind: str) -> Value:
    """Round a float32 value to a type, halves to even, with saturation."""
    if kind != "int32":
        return c.emit("QuantizeLinear", value, c.const(1.0, F4), c.const(0, kind))
    wide = c.emit("Round", value.cast("float64"))
    return _within(c, wide, "float64").cast("int32")


def _within(c: OperatorCall, value: Value, dtype: str) -> Value:
    """Clip to the range of int32."""
    return c.emit("Clip", value, c.const(-(2**31), dtype), c.const(2**31 - 1, dtype))


def _quantized(c: OperatorCall, low: Value, high: Value, kind: str, steps: float) -> list[Value]:
    reach = _magnitude(low, high)
    output = _rounded(c, c.inputs[0] * (steps / reach), kind)
    return [output, low, high] if kind == "uint8" else [output, -reach, reach]


def quantize(c: OperatorCall) -> list[Value]:
    """Quantize with a range from inputs."""
    _, low, high = c.inputs
    return _quantized(c, low, high, c.a.out_type, MAX_VALUE[c.a.out_type])


def quantize_v2(c: OperatorCall) -> list[Value]:
    """Quantize with a calibrated range, or that of the data."""
    a, dtype = c.a, c.out_dtypes[0]
    if c.dtypes[0] != F4:
        top = STEPS[c.dtypes[0]]
        low, high = 0.0 if dtype == "uint8" else -top, top
        if has_calibration(a):
            low, high = a.min_calib_range, a.max_calib_range
        return [c.inputs[0], _number(c, low), _number(c, high)]
    return _quantized(c, *_data_range(c), dtype, STEPS[dtype])


def _data_range(c: OperatorCall) -> tuple[Value, Value]:
    """Return the calibrated range, or that of the data."""
    if has_calibration(c.a):
        return _number(c, c.a.min_calib_range), _number(c, c.a.max_calib_range)
    return _extreme(c, "ReduceMin", c.inputs[0]), _extreme(c, "ReduceMax", c.inputs[0])


def _extreme(c: OperatorCall, operator: str, value: Value) -> Value:
    """Return the least or greatest element as one number."""
    return value.reshape(-1).reduce(operator, 0, keepdims=True)


def quantize_asym(c: OperatorCall) -> list[Value]:
    """Quantize to 0..255, with a shift."""
    dtype, x = c.dtypes[0], c.inputs[0]
    if dtype == "uint8":
        return [x, _number(c, 1.0), _number(c, 0.0)]
    if dtype == "int8":
        moved = x.cast("int32") + c.const(128, "int32")
        return [moved.cast("uint8"), _number(c, 1.0), _number(c, 128.0)]
    low, high = _data_range(c)
    top = _number(c, 255.0)
    scale = top / (high - low)
    shift = top - high * scale
    moved = x * scale + shift + 0.5
    output = c.emit("Clip", moved, c.const(0.0, F4), c.const(255.0, F4))
    return [output.cast("uint8"), scale, shift]


def dequantize(c: OperatorCall) -> Value:
    """DequantizeLinear; the scale is the range divided by the number of steps."""
    data, low, high = c.inputs
    scale = _magnitude(low, high) / STEPS[c.dtypes[0]]
    return c.emit("DequantizeLinear", data, scale.reshape())


def requantize(c: OperatorCall) -> list[Value]:
    """Requantize 32 bits to 8."""
    data, low, high = c.inputs
    dtype = c.out_dtypes[0]
    unit = _magnitude(low, high) / STEPS["int32"]
    if has_calibration(c.a):
        reach = _magnitude(*_data_range(c))
    else:
        # the magnitude of the least int32 is not an int32
        wide = data if dtype == "uint8" else abs(data.cast("float64"))
        reach = _extreme(c, "ReduceMax", wide).cast(F4) * unit
    factor = unit * (MAX_VALUE[dtype] / reach)
    output = _rounded(c, data.cast(F4) * factor, dtype)
    return [output, reach * 0.0 if dtype == "uint8" else -reach, reach]


def _scale_of(c: OperatorCall, i: int, low: Value, high: Value) -> Value:
    """Return the number of steps of input `i` per unit."""
    return STEPS[c.dtypes[i]] / _magnitude(low, high)


def _product_range(c: OperatorCall, kinds: Sequence[str], ends: Sequence[Value]) -> list[Value]:
    """Return the range represented by int32 products, from the types and ranges of both factors."""
    left = _magnitude(*ends[:2]) / MAX_VALUE[kinds[0]]
    right = _magnitude(*ends[2:4]) / MAX_VALUE[kinds[1]]
    high = left * right * MAX_VALUE["int32"]
    return [-high, high]


def _bias_steps(c: OperatorCall, ends: Sequence[Value]) -> Value:
    """Return the bias in steps of the 32-bit sums, truncated, as int64."""
    per_unit = _scale_of(c, 0, *ends[:2]) * (STEPS["int8"] / _magnitude(*ends[2:4]))
    factor = per_unit / (STEPS["int8"] / _magnitude(*ends[4:6]))
    return (c.inputs[2].cast(F4) * factor).cast("int64")


def _with_bias(c: OperatorCall, sums: Value, bias: Value) -> Value:
    """Add an int64 bias to int32 sums."""
    total = sums.cast("int64") + bias
    return _within(c, total, "int64").cast("int32")


def _unsigned(c: OperatorCall, value: Value, dtype: str) -> tuple[Value, Value]:
    """Return 8-bit numbers as uint8, and their zero point.

    ONNX Runtime limits sums of products of uint8 and int8 to 16 bits on x86-64 processors without VNNI.
    """
    if dtype == "uint8":
        return value, c.const(0, "uint8")
    return (value.cast("int32") + c.const(128, "int32")).cast("uint8"), c.const(128, "uint8")


def quantized_fully_connected(c: OperatorCall) -> list[Value]:
    """MatMulInteger on uint8."""
    own = 2 if c.a.no_bias else 3
    x, weight, ends = c.inputs[0], c.inputs[1], c.inputs[own:]
    if c.a.flatten and len(c.shapes[0]) != 2:
        x = c.emit("Flatten", x, axis=1)
    (x, zero), (weight, weight_zero) = _unsigned(c, x, c.dtypes[0]), _unsigned(c, weight, c.dtypes[1])
    output = c.emit("MatMulInteger", x, c.emit("Transpose", weight, perm=[1, 0]), zero, weight_zero)
    if own == 3:
        output = _with_bias(c, output, _bias_steps(c, ends))
    return [output, *_product_range(c, c.dtypes[:2], ends)]


def quantized_conv(c: OperatorCall) -> list[Value]:
    """ConvInteger on uint8."""
    a, axes = c.a, len(c.a.kernel)
    if a.layout is not None and a.layout.endswith("C"):
        c.refuse(f"its layout is {a.layout}, expected channels second, the only layout of ConvInteger")
    own = 2 if a.no_bias else 3
    x, weight, ends = c.inputs[0], c.inputs[1], c.inputs[own:]
    (x, zero), (weight, weight_zero) = _unsigned(c, x, c.dtypes[0]), _unsigned(c, weight, c.dtypes[1])
    output = c.emit("ConvInteger", x, weight, zero, weight_zero, **windows(c), group=a.num_group)
    if own == 3:
        bias = c.inputs[2].cast("int64") if c.dtypes[0] == "uint8" else _bias_steps(c, ends)
        output = _with_bias(c, output, bias.unsqueeze(*range(1, axes + 1)))
    return [output, *_product_range(c, ("int8", "int8"), ends)]


def quantized_pooling(c: OperatorCall) -> list[Value]:
    """Pool in floating point, which represents all sums exactly."""
    floats = c.on([c.inputs[0].cast(F4), *c.inputs[1:]], [F4] * 6)
    output = pooling(floats)
    (pooled,) = (output,) if isinstance(output, Value) else output
    return [_rounded(c, pooled, c.dtypes[0]), *c.inputs[1:]]


def quantized_embedding(c: OperatorCall) -> list[Value]:
    """Gather, with indices limited to the table."""
    indices, weight, low, high = c.inputs
    last = c.const(c.length(0, 1) - 1, "int64")
    inside = c.emit("Clip", indices.cast("int64"), c.const(0, "int64"), last)
    return [c.emit("Gather", weight, inside, axis=0), low, high]


def quantized_concat(c: OperatorCall) -> list[Value]:
    """Concat after rescaling all parts to one range."""
    count, dtype, zero = c.a.num_args, c.out_dtypes[0], _number(c, 0.0)
    ends = c.inputs[count:]
    low, high = c.emit("Min", *ends[::2], zero), c.emit("Max", *ends[1::2], zero)
    scale = STEPS[dtype] / _magnitude(low, high)
    parts = []
    for i, x in enumerate(c.inputs[:count]):
        factor = scale / _scale_of(c, i, ends[2 * i], ends[2 * i + 1])
        parts.append(_rounded(c, x.cast(F4) * factor, dtype))
    return [c.emit("Concat", *parts, axis=c.a.dim), low, high]


def quantized_elemwise_add(c: OperatorCall) -> list[Value]:
    """Sum of the represented values."""
    dtype, ends = c.out_dtypes[0], c.inputs[2:]
    if has_calibration(c.a):
        low, high = _data_range(c)
    else:
        high = _magnitude(*ends[:2]) + _magnitude(*ends[2:])
        low = -high
    scale = STEPS[dtype] / _magnitude(low, high)
    parts = []
    for i, x in enumerate(c.inputs[:2]):
        factor = scale / _scale_of(c, i, ends[2 * i], ends[2 * i + 1])
        part = x.cast(F4) * factor
        if c.dtypes[0] != c.dtypes[1] and c.dtypes[i] == "uint8" and dtype == "int8":
            part = _rounded(c, part, "int8").cast(F4)
        parts.append(part)
    return [_rounded(c, c.emit("Add", *parts), dtype), low, high]


def quantized_elemwise_mul(c: OperatorCall) -> list[Value]:
    """Products, as int32 or requantized to a range."""
    ends = c.inputs[2:]
    product = c.emit("Mul", *(x.cast("int32") for x in c.inputs[:2]))
    per_unit = _scale_of(c, 0, *ends[:2]) * _scale_of(c, 1, *ends[2:])
    if c.a.enable_float_output:
        return [product.cast(F4) / per_unit]
    if not has_calibration(c.a):
        return [product, *_product_range(c, c.dtypes[:2], ends)]
    low, high = _data_range(c)
    factor = (STEPS["int8"] / _magnitude(low, high)) / per_unit
    scaled = product.cast(F4) * factor
    inside = c.emit("Clip", scaled, c.const(-128.0, F4), c.const(127.0, F4))
    return [inside.cast("int8"), low, high]


def quantized_batch_norm(c: OperatorCall) -> list[Value]:
    """Apply a factor and a summand for each channel."""
    data, gamma, beta, mean, variance, *ends = c.inputs
    rank = len(c.shapes[0])
    if c.dtypes[0] == "uint8":
        half = data.cast(F4) * c.const(STEPS["int8"] / STEPS["uint8"], F4)
        data = _rounded(c, half, "int8")
    low, high = _data_range(c)
    reach, wide = _magnitude(low, high), _magnitude(*ends)
    inverse = c.emit("Reciprocal", c.emit("Sqrt", variance + c.a.eps))
    slope = gamma * inverse
    # MXNet's kernel also divides by the deviation of a unit variance
    factor = slope * wide / reach / ((1 + c.a.eps) ** 0.5)
    moved = beta - mean * gamma * inverse
    added = moved * STEPS["int8"] / reach
    axes = [i for i in range(rank) if i != c.a.axis % rank]
    scaled = data.cast(F4) * factor.unsqueeze(*axes)
    return [_rounded(c, scaled + added.unsqueeze(*axes), "int8"), low, high]


TABLE: dict[str, Builder] = {
    "quantized_act": lambda c: [c.emit("Clip", c.inputs[0], c.const(0)), *c.inputs[1:]],
    "quantized_flatten": lambda c: [c.emit("Flatten", c.inputs[0], axis=1), *c.inputs[1:]],
}
