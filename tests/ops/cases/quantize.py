"""Operators on 8-bit numbers that MXNet's CPU build refuses to run, by their formulas."""

import numpy as np

from helpers.arrays import f4, i1
from helpers.op_case import OpCase

DATA, LEFT, RIGHT = f4([-1, -0.2, 0.3, 1.5]), i1([1, 100, -127, 50]), i1([3, 27, -127, -20])
SQUARES = LEFT.reshape(1, 1, 2, 2), RIGHT.reshape(1, 1, 2, 2)
ENDS, MOST = (f4([-1]), f4([1]), f4([-2]), f4([0.5])), f4([2 / 127**2 * 2147483647])
NO_GRADIENT = "quantized numbers have none"


def asymmetric(x):
    scale = 255 / 2.5
    return np.floor(x * scale + 102 + 0.5).astype("u1"), f4([scale]), f4([102])


def product(x, y, *_):
    return (x.astype("f4") * y * 2 / 127.5**2).astype("f4")


def convolution(x, y, *_):
    return (x.astype(int) * y).sum().reshape(1, 1, 1, 1).astype("i4"), -MOST, MOST


CONV = {"kernel": (2, 2), "num_filter": 1, "no_bias": True}
MUL = "_contrib_quantized_elemwise_mul"
CASES = [
    OpCase("_contrib_quantize_asym", (DATA,), {}, asymmetric, no_grad=NO_GRADIENT),
    OpCase(MUL, (LEFT, RIGHT, *ENDS), {"enable_float_output": True}, product, no_grad=NO_GRADIENT),
    OpCase("_contrib_quantized_conv", (*SQUARES, *ENDS), CONV, convolution, no_grad=NO_GRADIENT),
]
