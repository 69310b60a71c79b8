"""Reductions: NumPy over random shapes and axes, ties, NaN, types, and finite differences."""

from itertools import product

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.arrays import NAN, f2, f4, i4, u1
from helpers.op_case import (
    OpCase,
    check_gradient,
    check_value,
    gradients,
    gradients_test,
    run,
    shapes,
    values_test,
)
from helpers.walk import walks

FUNCTIONS = {name: getattr(np, name) for name in ("sum", "mean", "prod", "nansum", "nanprod", "max", "min")}


def data(*shape):
    return np.random.RandomState(sum(shape)).permutation(int(np.prod(shape))).reshape(shape) * 0.1 + 0.3


def expected(name, x, axis=None, keepdims=False, exclude=False):
    """The rule in NumPy's words: None and () are all axes, `exclude` is the complement, a scalar is (1,)."""
    axes = tuple(range(x.ndim)) if axis in (None, ()) else tuple(a % x.ndim for a in np.atleast_1d(axis))
    if exclude and axis not in (None, ()):
        axes = tuple(set(range(x.ndim)) - set(axes))
    return np.atleast_1d(FUNCTIONS[name](x, axis=axes, keepdims=keepdims)) if axes else x


@st.composite
def reductions(draw):
    shape = tuple(draw(st.lists(st.integers(1, 4), min_size=1, max_size=4)))
    rank = len(shape)
    kept = draw(st.lists(st.integers(0, rank - 1), unique=True, max_size=rank))
    axis = tuple(a - rank if draw(st.booleans()) else a for a in kept)
    axis = draw(st.sampled_from([axis, None if len(axis) != 1 else axis[0]]))
    attrs = {"axis": axis, "keepdims": draw(st.booleans()), "exclude": draw(st.booleans())}
    return draw(st.sampled_from(sorted(FUNCTIONS))), shape, attrs


@settings(max_examples=400, deadline=None, derandomize=True)
@given(reductions())
def test_any_axes_of_any_shape_are_as_in_numpy(case):
    name, shape, attrs = case
    check_value(OpCase(name, (data(*shape),), attrs, lambda x: expected(name, x, **attrs)), rtol=1e-9)
    (full,) = shapes(name, [shape], **attrs)[1]
    for hidden in range(len(shape)):
        partial = tuple(0 if i == hidden else d for i, d in enumerate(shape))
        (found,) = shapes(name, [partial], **attrs)[1]
        assert all(f in (0, d) for f, d in zip(found, full, strict=True))


@walks(
    product(FUNCTIONS, [{}, {"axis": 1}, {"axis": (0, 2), "keepdims": True}, {"axis": 1, "exclude": True}])
)
def test_gradient_is_that_of_finite_differences(name, attrs):
    check_gradient(OpCase(name, (data(2, 3, 2) * 0.5,), attrs))


@walks(product([1, 2], [{}, {"axis": 1}, {"axis": (1, 2), "keepdims": True}]))
def test_norm_is_that_of_numpy(order, attrs):
    def norm(x):
        return np.atleast_1d((np.abs(x) ** order).sum(**attrs) ** (1 / order))

    case = OpCase("norm", (data(2, 3, 2) - 0.75,), {"ord": order, **attrs}, norm)
    check_value(case)
    check_gradient(case)


PLACES = f4([[[1, 5, 5], [5, 1, 1]], [[2, 2, 0], [0, 0, 2]]])
BLOCK = data(2, 3, 2)
test_values = values_test(
    [
        ("norm", (f2([3, 4]),), {"out_dtype": "float32"}, f4([5])),
        ("norm", (i4([3, 4]),), {}, i4([5])),
        *[  # MXNet gives 100 and 120, the greatest one times an integer
            ("norm", (np.array([[100, 20], [120, 40]], kind),), {"axis": 1}, np.array([101, 126]).astype(kind))
            for kind in ("i1", "u1", "i4", "i8")
        ],
        ("nansum", (f4([NAN, -2, 5]),), {}, f4([3])),
        ("nanprod", (f4([NAN, -2, 5]),), {}, f4([-10])),
        ("max", (f4([1, NAN, 5]),), {}, f4([NAN])),
        ("argmax", (f4([1, NAN, 5]),), {"axis": 0}, f4([1])),
        ("mean", (u1([200, 200, 203]),), {}, u1([201])),
        ("sum", (u1([200, 100]),), {}, u1([44])),
        ("sum", (i4([200, 100]),), {}, i4([300])),
        ("mean", (i4([1, 2]),), {}, i4([1])),
        ("prod", (i4([3, 2]),), {}, i4([6])),
        ("max", (i4([3, 2]),), {}, i4([3])),
        ("sum", (f2([1] * 5000),), {}, f2([5000])),
        *[  # the first of equal ones wins
            (name, (PLACES.astype(kind),), {"axis": axis}, np.atleast_1d(getattr(np, name)(PLACES, axis)).astype(kind))
            for name in ("argmax", "argmin") for axis in (0, 1, None) for kind in ("f4", "i4")
        ],
        ("argmax", (PLACES,), {"axis": -1, "keepdims": True}, PLACES.argmax(-1)[..., None].astype("f4")),
        ("argmin", (PLACES,), {"keepdims": True}, f4([[[8]]])),
        ("argmax_channel", (BLOCK.astype("f4"),), {}, BLOCK.argmax(1).astype("f4")),
        ("moments", (BLOCK,), {"axes": (0, 2)}, (BLOCK.mean((0, 2)), BLOCK.var((0, 2)))),
        ("moments", (BLOCK,), {}, (BLOCK.mean().reshape(1), BLOCK.var().reshape(1))),
        ("moments", (BLOCK,), {"axes": 1, "keepdims": True}, (BLOCK.mean(1)[:, None], BLOCK.var(1)[:, None])),
    ]
)  # fmt: skip
test_gradients_at_ties_and_zeros = gradients_test(
    [
        ("norm", (f4([[0, 0], [0, 0]]),), {}, [[[0, 0], [0, 0]]]),
        ("norm", (f4([0, -2]),), {"ord": 1}, [[0, -1]]),
        ("prod", (f4([0, 2, 3]),), {}, [[6, 0, 0]]),
        ("prod", (f4([0, 2, 0]),), {}, [[0, 0, 0]]),
        ("min", (f4([[1, 3, 3], [0, 0, 0]]),), {"axis": 1, "keepdims": True}, [[[1, 0, 0], [1, 1, 1]]]),
        ("nansum", (f4([NAN, -2, 5]),), {}, [[0, 1, 1]]),
        ("nanprod", (f4([NAN, -2, 5]),), {}, [[0, 5, -2]]),
    ]
)


def test_every_tie_gets_the_whole_gradient():
    found = gradients("max", f4([[1, 3, 3], [0, 0, 0]]), axis=1, head=[2.0, 1.0])[0]
    assert found.tolist() == [[0, 2, 2], [1, 1, 1]]
    assert run("argmax", PLACES, keepdims=True).shape == (1, 1, 1)
