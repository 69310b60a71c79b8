"""Operators on 8-bit numbers that MXNet's CPU build refuses to run, by their formulas."""

import numpy as np

from helpers.op_case import OpCase

DATA = np.array([-1.0, -0.2, 0.3, 1.5], dtype="f4")
LEFT, RIGHT = np.array([1, 100, -127, 50], dtype="i1"), np.array([3, 27, -127, -20], dtype="i1")
NO_GRADIENT = "quantized numbers have none"


def ends(*values):
    return tuple(np.array([v], dtype="f4") for v in values)


def asymmetric(x):
    scale = 255 / 2.5
    return np.floor(x * scale + 102 + 0.5).astype("u1"), np.array([scale], "f4"), np.array([102.0], "f4")


CASES = [
    OpCase("_contrib_quantize_asym", (DATA,), {}, asymmetric, no_grad=NO_GRADIENT),
    OpCase(
        "_contrib_quantized_elemwise_mul",
        (LEFT, RIGHT, *ends(-1.0, 1.0, -2.0, 0.5)),
        {"enable_float_output": True},
        lambda x, y, *r: (x.astype("f4") * y * 2 / 127.5**2).astype("f4"),
        no_grad=NO_GRADIENT,
    ),
    OpCase(
        "_contrib_quantized_conv",
        (LEFT.reshape(1, 1, 2, 2), RIGHT.reshape(1, 1, 2, 2), *ends(-1.0, 1.0, -2.0, 0.5)),
        {"kernel": (2, 2), "num_filter": 1, "no_bias": True},
        lambda x, y, *r: (
            (x.astype(int) * y).sum().reshape(1, 1, 1, 1).astype("i4"),
            *ends(-2 / 127**2 * 2147483647.0, 2 / 127**2 * 2147483647.0),
        ),
        no_grad=NO_GRADIENT,
    ),
]
