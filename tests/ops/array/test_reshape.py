"""Reshape codes, and the other operators that keep the elements in order."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule.base import OpError, ShapeError
from helpers.op_case import OpCase, check_gradient, check_value, run, shapes


def data(*shape):
    return np.arange(int(np.prod(shape)), dtype="f4").reshape(shape)


def factors(number):
    return [d for d in range(1, number + 1) if number % d == 0]


@st.composite
def coded_shapes(draw):
    """Codes built beside the shape they mean, one step per stretch of the data's axes."""
    dims = draw(st.lists(st.integers(1, 6), min_size=1, max_size=5))
    codes, result, at, inferred = [], [], 0, False
    while at < len(dims):
        step = draw(st.sampled_from(["copy", "number", "infer", "merge", "split", "rest"]))
        if step == "merge" and at + 1 < len(dims):
            codes.append(-3)
            result.append(dims[at] * dims[at + 1])
            at += 2
        elif step == "rest" and draw(st.booleans()):
            codes.append(-2)
            result += dims[at:]
            at = len(dims)
        elif step == "split":
            left = draw(st.sampled_from(factors(dims[at])))
            pair = [left, dims[at] // left]
            hidden = draw(st.sampled_from([None, 0, 1]))
            codes += [-4, *(-1 if i == hidden else n for i, n in enumerate(pair))]
            result += pair
            at += 1
        elif step == "infer" and not inferred:
            codes.append(-1)
            result.append(dims[at])
            inferred = True
            at += 1
        else:
            codes.append(dims[at] if step == "number" else 0)
            result.append(dims[at])
            at += 1
    return tuple(dims), tuple(codes), tuple(result)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(coded_shapes())
def test_codes_mean_what_they_were_built_from(case):
    dims, codes, result = case
    check_value(OpCase("Reshape", (data(*dims),), {"shape": codes}, lambda x: x.reshape(result)))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(coded_shapes())
def test_reverse_reads_codes_and_data_from_the_right(case):
    dims, codes, result = case
    check_value(
        OpCase(
            "Reshape",
            (data(*dims[::-1]),),
            {"shape": codes[::-1], "reverse": True},
            lambda x: x.reshape(result[::-1]),
        )
    )


@settings(max_examples=200, deadline=None, derandomize=True)
@given(coded_shapes(), st.integers(0, 4))
def test_an_unknown_dimension_never_gives_a_wrong_one(case, place):
    dims, codes, result = case
    partial = tuple(0 if i == place % len(dims) else d for i, d in enumerate(dims))
    (found_in,), (found,) = shapes("Reshape", [partial], shape=codes)
    assert len(found) == len(result)
    assert all(f in (0, d) for f, d in zip(found, result, strict=True))
    (back,), _ = shapes("Reshape", [partial], [result], shape=codes)
    assert back == dims


# shape of the data, codes, answer of MXNet 1.9.1
MIXED = [
    ((2, 3, 4), (4, -1, 0), (4, 1, 4)),
    ((2, 3, 4), (0, 0, 0, -1), (2, 3, 4, 1)),
    ((2, 3, 4), (-3, 2, -1), (6, 2, 2)),
    ((2, 3, 4), (-1, 0, 2), (4, 3, 2)),
    ((2, 3, 4), (4, 6, 1, -1), (4, 6, 1, 1)),
    ((2, 3, 4), (-2, -2), (2, 3, 4)),
    ((2, 3, 4), (0, -4, 3, -1, 4), (2, 3, 1, 4)),
]


@pytest.mark.parametrize(("dims", "codes", "expected"), MIXED)
def test_mixed_codes_are_as_in_mxnet(dims, codes, expected):
    if np.prod(expected) == np.prod(dims):
        check_value(OpCase("Reshape", (data(*dims),), {"shape": codes}, lambda x: x.reshape(expected)))
    else:  # MXNet lets this one pass
        with pytest.raises(ShapeError):
            shapes("Reshape", [dims], shape=codes)


@pytest.mark.parametrize(
    "codes",
    [
        (-1, -1),
        (0, 0, 0, 0),
        (-4, 2, 3, 0, 0),
        (-4, -1, -1, 0, 0),
        (-3, -3),
        (-3,),
        (5, -1),
        (25,),
        (0, -5),
        (-2, 0),
    ]
    + [(-4, 2), (-4, -2, 1, -2), (24, -2), (-4, 2, 2, -2)],
)
def test_codes_that_do_not_fit_are_refused(codes):
    with pytest.raises(ShapeError, match="reshape codes"):
        shapes("Reshape", [(2, 3, 4)], shape=codes)
    with pytest.raises(ShapeError, match="reshape codes"):
        run("Reshape", data(2, 3, 4), shape=codes)


@pytest.mark.parametrize(
    ("target", "keep", "expected"),
    [
        ((2, 0), False, (2, 12)),
        ((0, 6, 2), True, (2, 6, 2)),
        ((0, 12), False, (2, 12)),
        ((3, 0), True, (2, 12)),
    ],
)
def test_the_old_target_shape(target, keep, expected):
    attrs = {"target_shape": target, "keep_highest": keep}
    check_value(OpCase("Reshape", (data(2, 3, 4),), attrs, lambda x: x.reshape(expected)))


def test_target_shape_yields_to_shape_and_one_of_them_is_needed():
    assert run("Reshape", data(2, 3, 4), shape=(-1,), target_shape=(3, 0)).shape == (24,)
    with pytest.raises(OpError, match="shape is"):
        run("Reshape", data(2, 3))


@pytest.mark.parametrize(
    ("before", "after", "codes", "known"),
    [
        ((0, 4), (6, 4), (-1, 4), (6, 4)),
        ((0, 2, 4), (6, 4), (-1, 4), (3, 2, 4)),
        ((0, 2, 4), (6, 8), (0, -1), (6, 2, 4)),
    ],
)
def test_the_data_follows_from_the_result(before, after, codes, known):
    assert shapes("Reshape", [before], [after], shape=codes) == ([known], [after])


def test_the_rest_is_known_although_the_batch_is_not():
    assert shapes("Reshape", [(0, 3, 4)], shape=(0, -1))[1] == [(0, 12)]
    assert shapes("Reshape", [(0, 3, 4)], shape=(-1, 4))[1] == [(0, 4)]
    assert shapes("Reshape", [(0, 3, 4)], shape=(-3, 0))[1] == [(0, 4)]
    assert shapes("Reshape", [None], shape=(0, -1))[1] == [None]


def test_flatten_keeps_the_first_axis():
    check_value(OpCase("Flatten", (data(2, 3, 4),), {}, lambda x: x.reshape(2, 12)))
    check_value(OpCase("Flatten", (data(2),), {}, lambda x: x.reshape(2, 1)))
    assert shapes("Flatten", [(0, 4, 2)], [(6, 8)]) == ([(6, 4, 2)], [(6, 8)])
    assert shapes("Flatten", [(0, 0, 2)], [(6, 8)]) == ([(6, 4, 2)], [(6, 8)])
    assert shapes("Flatten", [(0, 4, 2)])[1] == [(0, 8)]


LIKE = [
    ((2, 3, 4), (4, 6), {}, (4, 6)),
    ((2, 3, 4), (6, 2, 2), {"lhs_begin": 0, "lhs_end": 2, "rhs_begin": 0, "rhs_end": 1}, (6, 4)),
    ((2, 3, 4), (6, 2, 2), {"lhs_begin": -1, "rhs_begin": 1}, (2, 3, 2, 2)),
]


@pytest.mark.parametrize(("left", "right", "attrs", "expected"), LIKE)
def test_reshape_like_takes_axes_of_the_other(left, right, attrs, expected):
    check_value(OpCase("reshape_like", (data(*left), data(*right)), attrs, lambda x, y: x.reshape(expected)))
    with pytest.raises(ShapeError):
        shapes("reshape_like", [(2, 3), (7,)])


def test_gradients_go_back_to_their_places():
    x = np.random.RandomState(0).randn(2, 3, 4)
    check_gradient(OpCase("Reshape", (x,), {"shape": (-3, 0)}))
    check_gradient(OpCase("Flatten", (x,)))
    check_gradient(OpCase("reshape_like", (x, np.zeros((4, 6)))))
