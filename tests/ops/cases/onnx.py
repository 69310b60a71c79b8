"""Operators that ONNX has and MXNet does not, against NumPy and what ONNX's tables say."""

import numpy as np

from helpers.arrays import INF, NAN, f4, f8, i1
from helpers.op_case import OpCase

LEFT, RIGHT = i1([[5, -7, 127, 0, -128], [1, 2, 3, -1, 64]]), i1([[3, 2, 1, 6, 7]])
X = f8([-0.0, 0.0, 3.5, -3.5, 3.5, INF, 3.5, -7.25, 2.0, NAN])
Y = f8([2.0, -2.0, INF, INF, 0.0, 2.0, -INF, 2.5, -1.5, 1.0])
FLOOR_MOD = f8([0.0, -0.0, 3.5, INF, NAN, NAN, -INF, 0.25, -1.0, NAN])
WIDE = f4([0.0, -0.0, 1.0, 0.3, -0.3, 17.5, 18.5, 464.0, 464.5, -1e6, 1e-9, INF, -INF, NAN])
SMALL = f4([0.25, 0.75, 1.25, -1.75, 2.5, 3.5, 5.0, 7.0, -0.0, -INF])
PAIR = f8([7.3, -7.3, 5.1]), f8([2.5, 2.5, -2.0])
FEW, MOST = [0.0, 0.0, 1.0, 0.3125, -0.3125], 57344
ROUNDED = {  # of WIDE to a type, saturating or not
    ("float8_e4m3fn", True): [*FEW, 18, 18, 448, 448, -448, 0.0, 448, -448, NAN],
    ("float8_e4m3fn", False): [*FEW, 18, 18, 448, NAN, NAN, 0.0, NAN, NAN, NAN],
    ("float8_e4m3fnuz", True): [*FEW, 18, 18, 240, 240, -240, 0.0, 240, -240, NAN],
    ("float8_e4m3fnuz", False): [*FEW, 18, 18, NAN, NAN, NAN, 0.0, NAN, NAN, NAN],
    ("float8_e5m2", True): [*FEW, 16, 20, 448, 448, -MOST, 0.0, MOST, -MOST, NAN],
    ("float8_e5m2", False): [*FEW, 16, 20, 448, 448, -INF, 0.0, INF, -INF, NAN],
    ("float8_e5m2fnuz", True): [*FEW, 16, 20, 448, 448, -MOST, 0.0, MOST, -MOST, NAN],
    ("float8_e5m2fnuz", False): [*FEW, 16, 20, 448, 448, NAN, 0.0, NAN, NAN, NAN],
}
FLOAT4 = f4([0, 1, 1, -2, 2, 4, 4, 6, 0, -6])
STEPS, WHOLE = "a function of steps has none", "integers have none"

CASES = [
    *[
        OpCase("_onnx_bitwise", (LEFT, RIGHT), {"kind": kind}, function, no_grad=WHOLE)
        for kind, function in [
            *((name, getattr(np, f"bitwise_{name}")) for name in ("and", "or", "xor")),
            *((name, getattr(np, name)) for name in ("left_shift", "right_shift")),
        ]
    ],
    OpCase("_onnx_mod", PAIR, {}, np.mod),
    OpCase("_onnx_mod", PAIR, {"fmod": True}, np.fmod),
    OpCase("_onnx_mod", (X, Y), {}, lambda x, y: FLOOR_MOD, no_grad="at infinities and zeros"),
    OpCase("_onnx_mod", (LEFT, RIGHT), {"fmod": True}, np.fmod, no_grad=WHOLE),
    OpCase("_onnx_round", (f8([0.5, 1.5, -2.5, 2.6, INF]),), {}, np.rint, no_grad=STEPS),
    *[
        OpCase("_onnx_round", (WIDE,), {"to": to, "saturate": saturate}, lambda x, v=values: f4(v), no_grad=STEPS)
        for (to, saturate), values in ROUNDED.items()
    ],
    OpCase("_onnx_round", (SMALL,), {"to": "float4_e2m1"}, lambda x: FLOAT4, no_grad=STEPS),
]  # fmt: skip
