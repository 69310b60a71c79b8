"""Arrays made from attributes, and conversion of types."""

from itertools import product

import numpy as np
import torch

from dpmodule.ops.spec import Env
from helpers.arrays import f4, i4
from helpers.op_case import call, rules_test, run, types, values_test

FILLED = {"_zeros": 0, "_ones": 1, "_full": 2.5}
NUMBERS = f4([-1.5, 2.7, 300, -2, 0])
# casts and integer ranges: what MXNet 1.9.1 answers
test_values = values_test(
    *[
        (name, (), {"shape": (2, 3), "dtype": dtype} | ({"value": value} if name == "_full" else {}),
         np.full((2, 3), value).astype(dtype))
        for (name, value), dtype in product(FILLED.items(), ["float32", "float16", "int64", "bool"])
    ],
    ("_arange", (), {"start": 3}, f4([0, 1, 2])),
    ("_arange", (), {"start": 0.5, "stop": 3, "dtype": "int32"}, i4([0, 1, 2])),
    ("_arange", (), {"start": -1.7, "stop": -9, "step": -1.3, "dtype": "int32"}, i4([-1, -2, -3, -4, -5, -6])),
    ("_arange", (), {"start": 0.5, "stop": 3, "step": 0.5, "dtype": "int32"}, i4([0] * 5)),
    ("_linspace", (), {"start": 2, "stop": -1, "num": 4, "endpoint": False}, f4([2, 1.25, 0.5, -0.25])),
    ("_linspace", (), {"start": 0, "stop": 1, "num": 1}, f4([0])),
    ("Cast", (NUMBERS,), {"dtype": "uint8"}, np.array([255, 2, 44, 254, 0], "u1")),
    ("Cast", (NUMBERS,), {"dtype": "int8"}, np.array([-1, 2, 44, -2, 0], "i1")),
    ("Cast", (NUMBERS,), {"dtype": "bool"}, np.array([True] * 4 + [False])),
    ("amp_cast", (i4([1, 2]),), {"dtype": "float16"}, i4([1, 2])),
)  # fmt: skip
test_shapes = rules_test(
    ("_zeros", [], {"shape": (0, 3)}, None, [(5, 3)], [(5, 3)]),
    ("_ones", [], {}, None, [(5, 3)], [(5, 3)]),
    ("_ones", [], {"shape": (-1, 3)}, [], [(2, 3)], [(2, 3)]),
    ("_arange", [], {"start": 2, "infer_range": True}, None, [(5,)], [(5,)]),
)
test_types = rules_test(
    ("amp_cast", ["int32"], {"dtype": "float16"}, None, ["int32"]),
    ("amp_cast", ["float32"], {"dtype": "float16"}, None, ["float16"]),
    ("Cast", [None], {"dtype": "float16"}, [None], ["float16"]),
    rule=types,
)


def test_arange_of_an_inferred_length():
    env = Env(torch.device("cpu"), None, False, ((5,),))
    found = call("_arange", env=env, start=2, infer_range=True, repeat=2)[0]
    assert found.tolist() == [2, 2, 3, 3, 4]


def test_arange_of_halves_takes_small_steps():  # MXNet loses the steps, and ends at 0
    found = run("_arange", start=0, stop=2, step=0.001, dtype="float16")
    np.testing.assert_allclose(found, np.arange(0, 2, 0.001), atol=1e-3)
