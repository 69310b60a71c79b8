"""Operators that ONNX has and MXNet does not, against NumPy and what ONNX's tables say."""

import numpy as np

from helpers.op_case import OpCase

NAN, INF = float("nan"), float("inf")
LEFT = np.array([[5, -7, 127, 0, -128], [1, 2, 3, -1, 64]], "i1")
RIGHT = np.array([[3, 2, 1, 6, 7]], "i1")
X = np.array([-0.0, 0.0, 3.5, -3.5, 3.5, INF, 3.5, -7.25, 2.0, NAN])
Y = np.array([2.0, -2.0, INF, INF, 0.0, 2.0, -INF, 2.5, -1.5, 1.0])
FLOOR_MOD = np.array([0.0, -0.0, 3.5, INF, NAN, NAN, -INF, 0.25, -1.0, NAN])
WIDE = np.array([0.0, -0.0, 1.0, 0.3, -0.3, 17.5, 18.5, 464.0, 464.5, -1e6, 1e-9, INF, -INF, NAN])
SMALL = np.array([0.25, 0.75, 1.25, -1.75, 2.5, 3.5, 5.0, 7.0, -0.0, -INF])

ROUNDED = {
    ("float8_e4m3fn", True): [0.0, -0.0, 1.0, 0.3125, -0.3125, 18, 18, 448, 448, -448, 0.0, 448, -448, NAN],
    ("float8_e4m3fn", False): [0.0, -0.0, 1.0, 0.3125, -0.3125, 18, 18, 448, NAN, NAN, 0.0, NAN, NAN, NAN],
    ("float8_e4m3fnuz", True): [0.0, 0.0, 1.0, 0.3125, -0.3125, 18, 18, 240, 240, -240, 0.0, 240, -240, NAN],
    ("float8_e4m3fnuz", False): [0.0, 0.0, 1.0, 0.3125, -0.3125, 18, 18, NAN, NAN, NAN, 0.0, NAN, NAN, NAN],
    ("float8_e5m2", True): [
        0.0,
        -0.0,
        1.0,
        0.3125,
        -0.3125,
        16,
        20,
        448,
        448,
        -57344,
        0.0,
        57344,
        -57344,
        NAN,
    ],
    ("float8_e5m2", False): [0.0, -0.0, 1.0, 0.3125, -0.3125, 16, 20, 448, 448, -INF, 0.0, INF, -INF, NAN],
    ("float8_e5m2fnuz", True): [
        0.0,
        0.0,
        1.0,
        0.3125,
        -0.3125,
        16,
        20,
        448,
        448,
        -57344,
        0.0,
        57344,
        -57344,
        NAN,
    ],
    ("float8_e5m2fnuz", False): [0.0, 0.0, 1.0, 0.3125, -0.3125, 16, 20, 448, 448, NAN, 0.0, NAN, NAN, NAN],
}
STEPS = "a function of steps has none"

CASES = [
    *(
        OpCase("_onnx_bitwise", (LEFT, RIGHT), {"kind": kind}, function, no_grad="integers have none")
        for kind, function in (
            ("and", np.bitwise_and),
            ("or", np.bitwise_or),
            ("xor", np.bitwise_xor),
            ("left_shift", np.left_shift),
            ("right_shift", np.right_shift),
        )
    ),
    OpCase("_onnx_mod", (np.array([7.3, -7.3, 5.1]), np.array([2.5, 2.5, -2.0])), {}, np.mod),
    OpCase("_onnx_mod", (np.array([7.3, -7.3, 5.1]), np.array([2.5, 2.5, -2.0])), {"fmod": True}, np.fmod),
    OpCase("_onnx_mod", (X, Y), {}, lambda x, y: FLOOR_MOD, no_grad="at infinities and zeros"),
    OpCase("_onnx_mod", (LEFT, RIGHT), {"fmod": True}, np.fmod, no_grad="integers have none"),
    OpCase("_onnx_round", (np.array([0.5, 1.5, -2.5, 2.6, INF]),), {}, np.rint, no_grad=STEPS),
    *(
        OpCase(
            "_onnx_round",
            (WIDE.astype("f4"),),
            {"to": to, "saturate": saturate},
            lambda x, values=values: np.array(values, "f4"),
            no_grad=STEPS,
        )
        for (to, saturate), values in ROUNDED.items()
    ),
    OpCase(
        "_onnx_round",
        (SMALL.astype("f4"),),
        {"to": "float4_e2m1"},
        lambda x: np.array([0, 1, 1, -2, 2, 4, 4, 6, -0.0, -6], "f4"),
        no_grad=STEPS,
    ),
]
