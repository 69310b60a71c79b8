"""Arrays made from attributes, and conversion of types."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule import ops
from dpmodule.base import OpError, ShapeError
from dpmodule.ops.shapes import infer_type
from dpmodule.ops.spec import Env
from helpers.op_case import OpCase, check_value, gradients, run, shapes


@pytest.mark.parametrize(("name", "value"), [("_zeros", 0), ("_ones", 1), ("_full", 2.5)])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int64", "bool"])
def test_filled_arrays(name, value, dtype):
    attrs = {"shape": (2, 3), "dtype": dtype, **({"value": value} if name == "_full" else {})}
    expected = np.full((2, 3), value).astype(dtype)
    check_value(OpCase(name, (), attrs, lambda: expected))
    assert run(name, **attrs).dtype == expected.dtype


def test_unknown_dimensions_of_filled_arrays_follow_from_their_use():
    assert shapes("_zeros", [], [(5, 3)], shape=(0, 3))[1] == [(5, 3)]
    assert shapes("_ones", [], [(5, 3)])[1] == [(5, 3)]
    with pytest.raises(ShapeError):
        shapes("_zeros", [], [(5, 4)], shape=(0, 3))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.integers(-20, 20),
    st.integers(-20, 20),
    st.sampled_from([-3, -1, -0.5, 0.25, 0.5, 1, 2]),
    st.integers(1, 3),
)
def test_arange_is_that_of_numpy(start, stop, step, repeat):
    attrs = {"start": start, "stop": stop, "step": step, "repeat": repeat}
    expected = np.repeat(np.arange(start, stop, step, "f4"), repeat)
    if expected.size:
        check_value(OpCase("_arange", (), attrs, lambda: expected))
    else:
        with pytest.raises(ShapeError, match="give an empty array"):
            shapes("_arange", [], **attrs)


def test_arange_of_one_number_and_of_a_wanted_length():
    np.testing.assert_array_equal(run("_arange", start=3), [0, 1, 2])
    np.testing.assert_array_equal(run("_arange", start=0.5, stop=3, dtype="int32"), [0, 1, 2])
    assert run("_arange", start=0, stop=1, step=0.1).shape == (10,)
    assert shapes("_arange", [], [(5,)], start=2, infer_range=True)[1] == [(5,)]
    op = ops.get("_arange")
    a = op.parse({"start": "2", "infer_range": "True", "repeat": "2"})
    env = Env(torch.device("cpu"), None, False, ((5,),))
    np.testing.assert_array_equal(op.run(a, env).numpy(), [2, 2, 3, 3, 4])
    with pytest.raises(OpError, match="infer_range"):
        run("_arange", start=2, infer_range=True)


@pytest.mark.parametrize("endpoint", [True, False])
@pytest.mark.parametrize(("start", "stop", "num"), [(0, 1, 5), (2, -1, 4), (0, 1, 1)])
def test_linspace_is_that_of_numpy(start, stop, num, endpoint):
    attrs = {"start": start, "stop": stop, "num": num, "endpoint": endpoint}
    check_value(OpCase("_linspace", (), attrs, lambda: np.linspace(start, stop, num, endpoint).astype("f4")))


@pytest.mark.parametrize(
    "attrs", [{"N": 3, "k": -1}, {"N": 2, "M": 4, "k": 7}, {"N": 3, "M": 4, "k": 1}, {"N": 2}]
)
def test_eye_is_that_of_numpy(attrs):
    expected = np.eye(attrs["N"], attrs.get("M") or attrs["N"], attrs.get("k", 0), "i4")
    check_value(OpCase("_eye", (), {**attrs, "dtype": "int32"}, lambda: expected))


# what MXNet 1.9.1 answers
@pytest.mark.parametrize(
    ("dtype", "expected"),
    [
        ("uint8", [255, 2, 44, 254, 0]),
        ("int8", [-1, 2, 44, -2, 0]),
        ("int32", [-1, 2, 300, -2, 0]),
        ("bool", [True, True, True, True, False]),
        ("float16", [-1.5, 2.6992188, 300, -2, 0]),
    ],
)
def test_cast_cuts_and_wraps(dtype, expected):
    x = np.array([-1.5, 2.7, 300, -2, 0], "f4")
    check_value(OpCase("Cast", (x,), {"dtype": dtype}, lambda x: np.array(expected, dtype)))


def test_casts_give_the_gradient_in_the_old_type():
    x = np.array([1, 2], "f4")
    for name in ("Cast", "amp_cast"):
        found = gradients(name, x, dtype="float16")[0]
        assert found.dtype == np.float32
        np.testing.assert_array_equal(found, [1, 1])


def test_amp_cast_leaves_other_types_alone():
    assert run("amp_cast", np.array([1, 2], "i4"), dtype="float16").dtype == np.int32
    assert run("amp_cast", np.array([1, 2], "f4"), dtype="float16").dtype == np.float16
    op = ops.get("amp_cast")
    a = op.parse({"dtype": "float16"})
    assert infer_type(op, a, ["int32"], [None])[1] == ["int32"]
    assert infer_type(op, a, ["float32"], [None])[1] == ["float16"]
    assert infer_type(ops.get("Cast"), a, [None], [None]) == ([None], ["float16"])


def test_arange_of_integers_cuts_start_and_step():
    # recorded from MXNet 1.9.1
    np.testing.assert_array_equal(
        run("_arange", start=1.3, stop=9, step=1.3, dtype="int32"), [1, 2, 3, 4, 5, 6]
    )
    np.testing.assert_array_equal(
        run("_arange", start=-1.7, stop=-9, step=-1.3, dtype="int32"), [-1, -2, -3, -4, -5, -6]
    )
    np.testing.assert_array_equal(run("_arange", start=0.5, stop=3, step=0.5, dtype="int32"), [0] * 5)


def test_arange_of_halves_takes_small_steps():
    found = run("_arange", start=0, stop=2, step=0.001, dtype="float16")
    np.testing.assert_allclose(
        found, np.arange(0, 2, 0.001), atol=1e-3
    )  # MXNet loses the steps, and ends at 0


def test_negative_dimensions_of_filled_arrays_are_unknown():
    assert shapes("_ones", [], [(2, 3)], shape=(-1, 3)) == ([], [(2, 3)])
