"""Convolution and pooling of images, in the layout (N, C, H, W)."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from ... import initializer as init
from ... import symbol as sym
from ...base import ArgumentError, ShapeError
from ..variable import ParamAttr, Variable
from .layer_helper import add_layer, as_variable, biases, check_act, parameter, program_of


def _pair(layer: str, name: str, given: Any, least: int) -> tuple[int, int]:
    """Return (height, width) of a number or a pair."""
    pair = (given, given) if isinstance(given, (int, np.integer)) and not isinstance(given, bool) else given
    is_pair = (
        isinstance(pair, (list, tuple))
        and len(pair) == 2
        and all(isinstance(n, (int, np.integer)) for n in pair)
    )
    if not is_pair or min(pair) < least:
        raise ArgumentError(
            f"{layer}: {name} is {given!r}, expected an integer from {least}, or two for height and width"
        )
    return int(pair[0]), int(pair[1])


def _padding(
    layer: str, name: str, given: Any, variable: Variable, kernel: Sequence[int], stride: Sequence[int]
) -> tuple[int, int, int, int]:
    """Return the padding above, below, left and right.

    Args:
        given: an integer, two, four, four pairs, "VALID" for none, or "SAME" for images of ceil(size / stride).
        variable: the images.
        kernel: height and width of a window.
    """
    if isinstance(given, str) and given.upper() == "SAME":
        sides: list[int] = []
        for size, length, step in zip(variable.shape[2:], kernel, stride):
            if size < 1 and step > 1:
                raise ShapeError(
                    f'{layer}: {name} "SAME" needs the height and width of {variable.name!r}, which has the shape '
                    f"{variable.shape}"
                )
            whole = length - step if size < 1 else (-(-size // step) - 1) * step + length - size
            sides += [max(whole, 0) // 2, max(whole, 0) - max(whole, 0) // 2]
        return sides[0], sides[1], sides[2], sides[3]
    if isinstance(given, str) and given.upper() == "VALID":
        return 0, 0, 0, 0
    flat = list(given) if isinstance(given, (list, tuple)) else []
    if len(flat) == 4 and all(isinstance(each, (list, tuple)) for each in flat):
        flat = [*flat[2], *flat[3]] if list(flat[0]) == list(flat[1]) == [0, 0] else []
    if len(flat) == 4 and all(isinstance(n, (int, np.integer)) and n >= 0 for n in flat):
        return int(flat[0]), int(flat[1]), int(flat[2]), int(flat[3])
    height, width = _pair(layer, name, given, 0)
    return height, height, width, width


def _images(layer: str, given: Any, data_format: Any) -> Variable:
    variable = as_variable(layer, given)
    if data_format != "NCHW":
        raise ArgumentError(f'{layer}: data_format is {data_format!r}, expected "NCHW"')
    if variable.lod_level or len(variable.shape) != 4 or variable.shape[1] < 1:
        raise ShapeError(
            f"{layer}: {variable.name!r} has the shape {variable.shape}, expected (N, C, H, W) with a known C"
        )
    return variable


def conv2d(
    input: Any,
    num_filters: int,
    filter_size: int | Sequence[int],
    stride: int | Sequence[int] = 1,
    padding: int | str | Sequence[Any] = 0,
    dilation: int | Sequence[int] = 1,
    groups: int | None = None,
    param_attr: Any = None,
    bias_attr: Any = None,
    use_cudnn: bool = True,
    act: str | None = None,
    name: str | None = None,
    data_format: str = "NCHW",
) -> Variable:
    """Apply a convolution with an activation.

    Shape:
        input: (N, C, H, W).
        weight: (num_filters, C / groups, height, width), as in Paddle.
        output: (N, num_filters, H', W').

    Args:
        num_filters: number of channels of the result.
        filter_size: height and width, as one number or two; so are the next three.
        stride: step between two places.
        padding: number of zeros on each side; also four for above, below, left and right, "VALID" or "SAME".
        dilation: distance between elements of a filter.
        groups: number of groups of channels; None: 1.
        param_attr: attributes of the weight; without an initializer, it is normal with variance 2 / inputs.
        bias_attr: attributes of the bias; False: no bias.
        use_cudnn: ignored.

    Raises:
        ArgumentError: an argument is not a size, or `groups` does not divide the channels.
        ShapeError: the input does not have four axes.
    """
    variable = _images("conv2d", input, data_format)
    check_act("conv2d", act)
    kernel = _pair("conv2d", "filter_size", filter_size, 1)
    if not isinstance(num_filters, (int, np.integer)) or num_filters < 1:
        raise ArgumentError(f"conv2d: num_filters is {num_filters!r}, expected an integer from 1")
    channels, parts = variable.shape[1], 1 if groups is None else groups
    if parts < 1 or channels % parts or num_filters % parts:
        raise ArgumentError(
            f"conv2d: groups is {groups!r}, expected a divisor of {channels} channels and {num_filters} filters"
        )
    program = program_of("conv2d", variable)
    own = program.unique("conv2d") if name is None else name
    shape = (num_filters, channels // parts, *kernel)
    start = init.Normal(math.sqrt(2.0 / (kernel[0] * kernel[1] * channels)))
    weight = parameter(
        program, f"{own}_weight", shape, ParamAttr.of(param_attr), variable.dtype, initializer=start
    )
    bias = biases(program, own, num_filters, bias_attr)
    steps = _pair("conv2d", "stride", stride, 1)
    up, down, left, right = _padding("conv2d", "padding", padding, variable, kernel, steps)
    is_same = isinstance(padding, str) and padding.upper() == "SAME"  # without dilation, as in Paddle
    is_even = (up, left) == (down, right)
    attributes = {
        "kernel": kernel,
        "num_filter": num_filters,
        "num_group": parts,
        "stride": steps,
        "pad": (up, left) if is_even else (0, 0),
        "dilate": (1, 1) if is_same else _pair("conv2d", "dilation", dilation, 1),
        "no_bias": not bias,
    }

    def made(name: str) -> Any:
        data = variable.symbol
        if not is_even:
            data = sym.Pad(data, mode="constant", pad_width=(0, 0, 0, 0, up, down, left, right))
        return sym.Convolution(data, weight, *bias, name=name, **attributes)

    return add_layer("conv2d", [variable], made, own, act=act, shape=None)


def pool2d(
    input: Any,
    pool_size: int | Sequence[int] = -1,
    pool_type: str = "max",
    pool_stride: int | Sequence[int] = 1,
    pool_padding: int | str | Sequence[Any] = 0,
    global_pooling: bool = False,
    use_cudnn: bool = True,
    ceil_mode: bool = False,
    name: str | None = None,
    exclusive: bool = True,
    data_format: str = "NCHW",
) -> Variable:
    """Return the largest or mean value of each window.

    Shape:
        input: (N, C, H, W).
        output: (N, C, H', W'); H' = W' = 1 with `global_pooling`.

    Args:
        pool_size: height and width of a window, as one number or two; so are the next two.
        pool_type: "max" or "avg".
        pool_stride: step between two windows.
        pool_padding: padding on each side; also "VALID", and "SAME" if both sides need the same.
        global_pooling: whether the window is the whole image.
        use_cudnn: ignored.
        ceil_mode: whether windows may extend beyond the image.
        exclusive: whether means leave out the padding.

    Raises:
        ArgumentError: an argument is not a size, or the type is unknown.
        ShapeError: the input does not have four axes.
    """
    variable = _images("pool2d", input, data_format)
    if pool_type not in ("max", "avg"):
        raise ArgumentError(f'pool2d: pool_type is {pool_type!r}, expected "max" or "avg"')
    attributes: dict[str, Any] = {"pool_type": pool_type, "global_pool": bool(global_pooling)}
    if not global_pooling:
        kernel = _pair("pool2d", "pool_size", pool_size, 1)
        steps = _pair("pool2d", "pool_stride", pool_stride, 1)
        up, down, left, right = _padding("pool2d", "pool_padding", pool_padding, variable, kernel, steps)
        if (up, left) != (down, right):
            raise ArgumentError(
                f"pool2d: pool_padding is {pool_padding!r}, which adds {up} rows above and {down} below, {left} "
                f"columns left and {right} right; expected equal numbers"
            )
        attributes |= {
            "kernel": kernel,
            "stride": steps,
            "pad": (up, left),
            "pooling_convention": "full" if ceil_mode else "valid",
            "count_include_pad": not exclusive,
        }

    divides_by_kernel = pool_type == "avg" and ceil_mode and not exclusive and not global_pooling

    def made(name: str) -> Any:
        if not divides_by_kernel:
            return sym.Pooling(variable.symbol, name=name, **attributes)
        # MXNet divides by the part of a window inside the padded image
        total = sym.Pooling(variable.symbol, name=f"{name}_sum", **{**attributes, "pool_type": "sum"})
        return sym._internal._div_scalar(total, scalar=float(kernel[0] * kernel[1]), name=name)

    return add_layer("pool2d", [variable], made, name, shape=None)
