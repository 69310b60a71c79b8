"""Layers without parameters: element-wise functions, concatenation, reshaping and reductions."""

from __future__ import annotations

import builtins
import math
from collections.abc import Callable, Sequence
from typing import Any

from ... import symbol as sym
from ...base import ArgumentError, ShapeError, dtype_name
from ...symbol import Symbol
from ..variable import Shape, Variable
from .layer_helper import (
    ACTIVATIONS,
    add_layer,
    apply,
    as_rows,
    as_variable,
    as_variables,
    check_act,
    check_number,
    program_of,
    scaled_tanh,
)


def _pointwise(act: str) -> Callable[..., Variable]:
    """Return the layer of an activation."""

    def layer(x: Any = None, name: str | None = None, **input: Any) -> Variable:
        given = as_variable(act, input.pop("input", None) if x is None else x, "x")
        if input:
            raise ArgumentError(f"{act}: got {', '.join(input)}, expected a variable and name")
        return apply(act, ACTIVATIONS[act], [given], name)

    layer.__name__ = layer.__qualname__ = act
    layer.__doc__ = f"""Apply {act} to each element.

    Args:
        x: a variable.
        name: name of the result; None: ``{act}_0`` and so on.
        input: another name of `x`.
    """
    return layer


abs, exp, log, relu = map(_pointwise, ("abs", "exp", "log", "relu"))
sigmoid, softsign, sqrt, square, tanh = map(_pointwise, ("sigmoid", "softsign", "sqrt", "square", "tanh"))
ceil, cos, floor, reciprocal = map(_pointwise, ("ceil", "cos", "floor", "reciprocal"))
round, rsqrt, sin, softplus = map(_pointwise, ("round", "rsqrt", "sin", "softplus"))


def softmax(
    input: Any = None, use_cudnn: bool = False, name: str | None = None, axis: int = -1, **x: Any
) -> Variable:
    """Apply softmax along an axis.

    Args:
        input: a variable.
        use_cudnn: ignored.
        axis: the axis.
        x: another name of `input`.
    """
    given = as_variable("softmax", x.pop("x", None) if input is None else input)
    if x:
        raise ArgumentError(f"softmax: got {', '.join(x)}, expected input, name and axis")
    return apply("softmax", sym.softmax, [given], name, axis=axis)


def sign(x: Any) -> Variable:
    """Return -1, 0 or 1 for each element."""
    return apply("sign", sym.sign, [as_variable("sign", x, "x")])


def logsigmoid(x: Any, name: str | None = None) -> Variable:
    """Return the log of the sigmoid of each element."""
    given = as_variable("logsigmoid", x, "x")

    def made(name: str) -> Any:
        return sym.negative(sym.Activation(sym.negative(given.symbol), act_type="softrelu"), name=name)

    return add_layer("logsigmoid", [given], made, name)


def gelu(x: Any) -> Variable:
    """Multiply each element by the share of the normal distribution below it."""
    return apply("gelu", sym.LeakyReLU, [as_variable("gelu", x, "x")], act_type="gelu")


def brelu(x: Any, t_min: float = 0.0, t_max: float = 24.0, name: str | None = None) -> Variable:
    """Clip elements to [t_min, t_max]."""
    return apply("brelu", sym.clip, [as_variable("brelu", x, "x")], name, a_min=t_min, a_max=t_max)


def soft_relu(x: Any, threshold: float = 40.0, name: str | None = None) -> Variable:
    """Return ``log(1 + exp(x))`` of elements that are clipped to [-threshold, threshold]."""
    given = as_variable("soft_relu", x, "x")

    def made(name: str) -> Any:
        clipped = sym.clip(given.symbol, a_min=-threshold, a_max=threshold, name=f"{name}_clipped")
        return sym.Activation(clipped, act_type="softrelu", name=name)

    return add_layer("soft_relu", [given], made, name)


def stanh(x: Any, scale_a: float = 0.67, scale_b: float = 1.7159, name: str | None = None) -> Variable:
    """Return ``scale_b * tanh(scale_a * x)``."""
    given = as_variable("stanh", x, "x")
    return apply("stanh", scaled_tanh, [given], name, scale_a=scale_a, scale_b=scale_b)


def relu6(x: Any, threshold: float = 6.0, name: str | None = None) -> Variable:
    """Clip elements to [0, threshold]."""
    return apply("relu6", sym.clip, [as_variable("relu6", x, "x")], name, a_min=0.0, a_max=threshold)


def leaky_relu(x: Any, alpha: float = 0.02, name: str | None = None) -> Variable:
    """Multiply negative elements by `alpha`."""
    given = as_variable("leaky_relu", x, "x")
    return apply("leaky_relu", sym.LeakyReLU, [given], name, act_type="leaky", slope=alpha)


def elu(x: Any, alpha: float = 1.0, name: str | None = None) -> Variable:
    """Replace negative elements by ``alpha * (exp(x) - 1)``."""
    return apply("elu", sym.LeakyReLU, [as_variable("elu", x, "x")], name, act_type="elu", slope=alpha)


def hard_sigmoid(x: Any, slope: float = 0.2, offset: float = 0.5, name: str | None = None) -> Variable:
    """Return ``slope * x + offset``, clipped to [0, 1]."""
    given = as_variable("hard_sigmoid", x, "x")
    return apply("hard_sigmoid", sym.hard_sigmoid, [given], name, alpha=slope, beta=offset)


def swish(x: Any, beta: float = 1.0, name: str | None = None) -> Variable:
    """Return ``x * sigmoid(beta * x)``."""
    given = as_variable("swish", x, "x")
    check_number("swish", "beta", beta)

    def made(name: str) -> Any:
        gate = sym.sigmoid(sym._internal._mul_scalar(given.symbol, scalar=float(beta)), name=f"{name}_gate")
        return sym.elemwise_mul(given.symbol, gate, name=name)

    return add_layer("swish", [given], made, name)


def pow(x: Any, factor: float = 1.0, name: str | None = None) -> Variable:
    """Raise elements to a power."""
    given = as_variable("pow", x, "x")
    check_number("pow", "factor", factor)
    return apply("pow", sym._internal._power_scalar, [given], name, scalar=float(factor))


def _elementwise(operation: str) -> Callable[..., Variable]:
    """Return the layer of a binary operator."""
    layer_name = f"elementwise_{operation}"
    operator = {"max": "maximum", "min": "minimum", "pow": "power"}.get(operation, operation)

    def layer(x: Any, y: Any, axis: int = -1, act: str | None = None, name: str | None = None) -> Variable:
        left, right = as_variable(layer_name, x, "x"), as_variable(layer_name, y, "y")
        check_act(layer_name, act)
        program_of(layer_name, left, right)
        other = _align_axes(layer_name, left, right, axis)

        def made(name: str) -> Any:
            return getattr(sym, f"broadcast_{operator}")(left.symbol, other, name=name)

        shape = left.shape if left.shape == right.shape else None
        return add_layer(layer_name, [left, right], made, name, act=act, shape=shape, dtype=None)

    layer.__name__ = layer.__qualname__ = layer_name
    layer.__doc__ = f"""Apply {operation} to two variables with broadcasting.

    Args:
        x: a variable.
        y: a variable, possibly with fewer axes, which match those of x from `axis` on.
        axis: first axis of x that matches y; -1: the last axes match.
        act: name of an activation.
        name: name of the result.
    """
    return layer


def _align_axes(layer: str, x: Variable, y: Variable, axis: int) -> Any:
    """Return the second input with the number of axes of the first."""
    missing = len(x.shape) - len(y.shape)
    if missing <= 0 or axis == -1 and (missing == 0 or y.shape == (1,)):
        return y.symbol
    before = missing if axis == -1 else axis
    if not 0 <= before <= missing:
        raise ArgumentError(f"{layer}: axis is {axis!r} for shapes {x.shape} and {y.shape}")
    if y.lod_level and before == 0:
        symbol = y.symbol
        for _ in range(missing):
            symbol = sym.expand_dims(symbol, axis=-1)
        return symbol
    shape = (*[1] * before, *y.shape, *[1] * (missing - before))
    return sym.Reshape(y.symbol, shape=tuple(0 if n == -1 and i == 0 else n for i, n in enumerate(shape)))


elementwise_add, elementwise_sub, elementwise_mul = map(_elementwise, ("add", "sub", "mul"))
elementwise_div, elementwise_max, elementwise_min, elementwise_pow = map(
    _elementwise, ("div", "max", "min", "pow")
)


def scale(
    x: Any,
    scale: float = 1.0,
    bias: float = 0.0,
    bias_after_scale: bool = True,
    act: str | None = None,
    name: str | None = None,
) -> Variable:
    """Multiply by a number and add another.

    Args:
        bias: number to add.
        bias_after_scale: whether the bias is added after the multiplication.
    """
    variable = as_variable("scale", x, "x")
    offset = bias if bias_after_scale else bias * scale

    def made(name: str) -> Any:
        product = sym._internal._mul_scalar(
            variable.symbol, scalar=float(scale), name=f"{name}_product" if offset else name
        )
        return sym._internal._plus_scalar(product, scalar=float(offset), name=name) if offset else product

    return add_layer("scale", [variable], made, name, act=act)


def clip(x: Any, min: float, max: float, name: str | None = None) -> Variable:
    """Clip elements to a range."""
    return apply("clip", sym.clip, [as_variable("clip", x, "x")], name, a_min=min, a_max=max)


def cast(x: Any, dtype: Any) -> Variable:
    """Convert to another element type."""
    given, kind = as_variable("cast", x, "x"), dtype_name(dtype)
    return add_layer("cast", [given], lambda name: sym.Cast(given.symbol, dtype=kind, name=name), dtype=kind)


def concat(input: Any, axis: int = 0, name: str | None = None) -> Variable:
    """Concatenate variables along an axis.

    Args:
        axis: the axis; axis 1 are the features of sequences and batches.
    """
    several = as_variables("concat", input)
    symbols = [each.symbol for each in several]
    shapes = [each.shape for each in several]
    place = axis if axis >= 0 else axis + len(shapes[0])
    known = all(len(shape) > place and shape[place] > 0 for shape in shapes)
    width = builtins.sum(shape[place] for shape in shapes) if known else 0
    shape = (*shapes[0][:place], width, *shapes[0][place + 1 :]) if known else None

    def made(name: str) -> Any:
        return sym.Concat(*symbols, dim=axis, name=name)

    return add_layer("concat", several, made, name, shape=shape, dtype=None)


def sums(input: Any, out: Any = None) -> Variable:
    """Add variables of equal shape.

    Args:
        out: a result of `create_tensor`, which gets the sum; None: a new variable.
    """
    if out is not None:
        as_variable("sums", out, "out").become(sums(input))
        return as_variable("sums", out, "out")
    several = as_variables("sums", input)
    symbols = [each.symbol for each in several]
    return add_layer("sums", several, lambda name: sym.add_n(*symbols, name=name), hint="sum", dtype=None)


sum = sums


def reshape(
    x: Any,
    shape: Sequence[int],
    actual_shape: Any = None,
    act: str | None = None,
    inplace: bool = False,
    name: str | None = None,
) -> Variable:
    """Reshape a variable; 0 keeps an axis, and one -1 is inferred.

    Sequences whose elements keep their number of numbers stay sequences; those of one length become rows.

    Args:
        shape: the shape, starting with 0 or -1 for the batch; for sequences, all other sizes must be known.
        actual_shape: must be None.
        inplace: ignored.

    Raises:
        ArgumentError: `actual_shape` is given.
        ShapeError: the sizes are not known for sequences.
        NodeError: on running: a sequence does not fill a row.
    """
    variable = as_variable("reshape", x, "x")
    if actual_shape is not None and not isinstance(actual_shape, bool):
        raise ArgumentError("reshape: actual_shape is not supported; shape must be a list of integers")
    if variable.lod_level:
        return _reshape_sequences(variable, tuple(shape), act, name)

    def made(name: str) -> Any:
        return sym.Reshape(variable.symbol, shape=tuple(shape), name=name)

    return add_layer("reshape", [variable], made, name, act=act, shape=None, dtype=None)


def _reshape_sequences(variable: Variable, shape: Shape, act: str | None, name: str | None) -> Variable:
    """Return sequences with other elements, or as rows if the elements change their number of numbers."""
    before = variable.shape
    sizes = tuple(before[i] if n == 0 and i < len(before) else n for i, n in enumerate(shape))
    numbers = math.prod(before[1:])
    if len(sizes) > 1 and sizes[1:].count(-1) == 1 and shape[0] == 0:
        sizes = (-1, *(-numbers // math.prod(sizes[1:]) if n == -1 else n for n in sizes[1:]))
    if sizes[:1] != (-1,) or min(sizes[1:], default=1) < 1:
        raise ShapeError(
            f"reshape: shape is {list(shape)} for sequences {variable.name!r} of {before}, expected -1 first, and then "
            "sizes from 1"
        )
    if math.prod(sizes[1:]) != numbers:
        rows = as_rows(variable, sizes[1:], name if act is None else None)
        return rows if act is None else apply(act, ACTIVATIONS[act], [rows], name)

    def made(name: str) -> Any:
        if sizes == before:
            return sym.identity(variable.symbol, name=name)
        return sym.sequence_reshape(variable.symbol, new_dim=numbers, name=name)

    if len(sizes) != 2 and sizes != before:
        raise ShapeError(
            f"reshape: shape is {list(shape)} for sequences {variable.name!r} of {before}, expected (-1, {numbers})"
        )
    return add_layer("reshape", [variable], made, name, act=act, shape=sizes)


def dropout(
    x: Any,
    dropout_prob: float,
    is_test: bool = False,
    seed: int | None = None,
    name: str | None = None,
    dropout_implementation: str = "downgrade_in_infer",
) -> Variable:
    """Set elements to zero at random while training.

    Args:
        dropout_prob: probability of zero.
        is_test: whether to predict while training.
        seed: must be None; use `mx.random.seed`.
        dropout_implementation: "downgrade_in_infer" multiplies by 1 - dropout_prob in prediction;
            "upscale_in_train" divides the kept elements by it in training.

    Raises:
        ArgumentError: `seed` is given, or another argument is invalid.
    """
    given = as_variable("dropout", x, "x")
    if seed is not None:
        raise ArgumentError(
            "dropout: seed is not supported; mx.random.seed(n) seeds all random numbers of a process"
        )
    if dropout_implementation not in ("downgrade_in_infer", "upscale_in_train"):
        raise ArgumentError(
            f"dropout: dropout_implementation is {dropout_implementation!r}, expected 'downgrade_in_infer' or "
            "'upscale_in_train'"
        )
    check_number("dropout", "dropout_prob", dropout_prob)
    found = apply("dropout", sym.Dropout, [given], name, p=0.0 if is_test else dropout_prob)
    # the operator divides by 1 - p in training
    return found if dropout_implementation == "upscale_in_train" else found * (1.0 - dropout_prob)


def matmul(
    x: Any,
    y: Any,
    transpose_x: bool = False,
    transpose_y: bool = False,
    alpha: float = 1.0,
    name: str | None = None,
) -> Variable:
    """Multiply matrices.

    Args:
        x: (..., N, K), a variable, or sequences of K numbers.
        y: (..., K, M), a variable or parameter; the axes before are broadcast.
        transpose_x: whether to transpose x first.
        transpose_y: whether to transpose y first.
        alpha: factor of the product.
    """
    left, right = as_variable("matmul", x, "x"), as_variable("matmul", y, "y")
    check_number("matmul", "alpha", alpha)
    ranks = len(left.shape), len(right.shape)

    def made(name: str) -> Any:
        turned = {"transpose_a": transpose_x, "transpose_b": transpose_y}
        own = name if alpha == 1 else f"{name}_product"
        if left.lod_level and ranks == (2, 2) and not transpose_x:
            rows = right.symbol if transpose_y else sym.transpose(right.symbol)
            size = right.shape[0 if transpose_y else 1]
            whole = sym.FullyConnected(
                left.symbol, rows, num_hidden=size, no_bias=True, flatten=False, name=own
            )
        elif max(ranks) <= 3 and ranks[0] == ranks[1]:
            product = sym.dot if ranks[0] == 2 else sym.batch_dot
            whole = product(left.symbol, right.symbol, name=own, **turned)
        else:
            whole = sym._internal._npi_matmul(
                *(
                    sym.SwapAxis(each.symbol, dim1=rank - 2, dim2=rank - 1) if turn else each.symbol
                    for each, rank, turn in zip((left, right), ranks, turned.values())
                ),
                name=own,
            )
        if alpha == 1:
            return whole
        return sym._internal._mul_scalar(whole, scalar=float(alpha), name=name)

    return add_layer("matmul", [left, right], made, name, shape=None, dtype=None, lod_level=left.lod_level)


def _reduction(kind: str) -> Callable[..., Variable]:
    layer_name = f"reduce_{kind}"

    def layer(input: Any, dim: Any = None, keep_dim: bool = False, name: str | None = None) -> Variable:
        variable = as_variable(layer_name, input)
        axes = None if dim is None else tuple(dim) if isinstance(dim, (list, tuple)) else (dim,)

        def made(name: str) -> Any:
            if variable.lod_level and axes is None:
                return over_sequences(kind, variable.symbol, name)
            return getattr(sym, kind)(variable.symbol, axis=axes, keepdims=keep_dim, name=name)

        level = variable.lod_level if axes is not None else 0
        shape = (1,) if axes is None and not keep_dim else None
        return add_layer(layer_name, [variable], made, name, shape=shape, dtype=None, lod_level=level)

    layer.__name__ = layer.__qualname__ = layer_name
    layer.__doc__ = f"""Return the {kind} over axes.

    Args:
        input: a variable.
        dim: one or several axes; None: all axes.
        keep_dim: whether to keep the axes with size 1.
        name: name of the result.
    """
    return layer


def over_sequences(kind: str, data: Symbol, name: str) -> Any:
    """Return the sum or mean over all elements of all sequences."""
    if kind in ("sum", "mean"):
        total = sym.sum(
            sym.sequence_pool(data, pool_type="sum"), name=f"{name}_total" if kind == "mean" else name
        )
        if kind == "sum":
            return total
        number = sym.sum(sym.sequence_pool(sym.ones_like(data), pool_type="sum"))
        return sym.broadcast_div(total, number, name=name)
    raise ArgumentError(
        f"reduce_{kind}: only sum and mean are supported over all elements of sequences; pool them first"
    )


reduce_sum, reduce_mean, reduce_max, reduce_min, reduce_prod = map(
    _reduction, ("sum", "mean", "max", "min", "prod")
)


def mean(x: Any, name: str | None = None) -> Variable:
    """Return the mean of all elements as a scalar."""
    variable = as_variable("mean", x, "x")

    def made(name: str) -> Any:
        if variable.lod_level:
            return over_sequences("mean", variable.symbol, name)
        return sym.mean(variable.symbol, name=name)

    return add_layer("mean", [variable], made, name, shape=(1,), lod_level=0)
