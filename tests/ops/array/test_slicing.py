"""Parts of arrays, against Python's own slices; positions beyond 32 bits."""

import numpy as np
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from helpers.arrays import count, i8, randn
from helpers.op_case import OpCase, check_value, gradients, rules_test, values_test


@st.composite
def parts(draw):
    """A shape and ranges over its leading axes, none of them empty."""
    dims = draw(st.lists(st.integers(1, 5), min_size=1, max_size=4))
    ranges = []
    for d in dims[: draw(st.integers(1, len(dims)))]:
        step = draw(st.sampled_from([None, 1, 2, 3, -1, -2]))
        ends = [draw(st.none() | st.integers(-d - 2, d + 2)) for _ in range(2)]
        assume(len(range(*slice(*ends, step).indices(d))))
        ranges.append((*ends, step))
    begin, end, step = zip(*ranges, strict=True)
    attrs = {"begin": begin, "end": end, **({} if set(step) == {None} else {"step": step})}
    return tuple(dims), attrs, tuple(slice(*each) for each in ranges)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(parts())
def test_slices_are_pythons_to_read_and_to_write(case):
    dims, attrs, index = case
    x = count(*dims)

    def written(x, value):
        x = x.copy()
        x[index] = value
        return x

    check_value(OpCase("slice", (x,), attrs, lambda x: x[index]))
    found = gradients("slice", x, head=x[index] + 1, **attrs)[0]
    np.testing.assert_array_equal(found, written(np.zeros(dims), x[index] + 1))
    check_value(OpCase("_slice_assign", (x, -1 - x[index]), attrs, written))
    check_value(OpCase("_slice_assign_scalar", (x,), {"scalar": 5.5, **attrs}, lambda x: written(x, 5.5)))
    left, right = gradients("_slice_assign", x, x[index], **attrs)
    np.testing.assert_array_equal(left, written(np.ones(dims), 0))
    np.testing.assert_array_equal(right, 1)


X = randn(2, 3, 4)
LIKE = [
    (randn(1, 2, 3), {}, np.s_[:1, :2, :3]),
    (randn(1, 2), {"axes": (0, 1)}, np.s_[:1, :2]),
    (randn(1, 9, 2), {"axes": (0, -1)}, np.s_[:1, :, :2]),
]
test_values = values_test(
    *[
        ("slice_axis", (X,), {"axis": axis, "begin": begin, "end": end}, X[:, begin:end])
        for axis, begin, end in [(1, 0, 3), (1, 1, None), (-2, -2, -1), (1, -3, 2)]
    ],
    *[("slice_like", (X, other), attrs, X[index]) for other, attrs, index in LIKE],
    ("slice_like", (X[0].astype("f4"), np.zeros((2, 3), "i4")), {}, X[0, :2, :3].astype("f4")),
    ("_unravel_index", (i8([[0, 1, 2], [3, 4, 5]]),), {"shape": (3, 2)},
     np.stack(np.unravel_index(count(2, 3, dtype="i8"), (3, 2)))),
    ("_unravel_index", (i8([2**59 + 12345, 2**60 - 1]),), {"shape": (2**20,) * 3},
     i8([[2**19, 2**20 - 1], [0, 2**20 - 1], [12345, 2**20 - 1]])),
    ("_ravel_multi_index", (i8([[2**19, 2**20 - 1], [0, 2**20 - 1], [12345, 2**20 - 1]]),), {"shape": (2**20,) * 3},
     i8([2**59 + 12345, 2**60 - 1])),
    ("_unravel_index", (i8([5, 100]),), {"shape": (-1, 4)}, i8([[1, 25], [1, 0]])),
    ("_ravel_multi_index", (i8([[1, 25], [1, 0]]),), {"shape": (-1, 4)}, i8([5, 100])),
)  # fmt: skip

test_shapes = rules_test(
    ("slice_axis", [(0, 5, 0)], {"axis": 1, "begin": 0, "end": 2}, [(6, 5, 8)], None, [(6, 2, 8)]),
    ("slice_axis", [(0, 4, 8)], {"axis": 1, "begin": 0, "end": 2}, None, [(0, 2, 8)]),
    ("slice", [(0, 4, 8)], {"begin": (0, 1), "end": (2, 3)}, None, [(0, 2, 8)]),
    ("_slice_assign", [(3, 3), None], {"begin": (0, 1), "end": (2, 3)}, [(3, 3), (2, 2)], [(3, 3)]),
    ("_ravel_multi_index", [None], {"shape": (3, 2)}, [(2, 7)], None, [(7,)]),
    ("_unravel_index", [None], {"shape": (3, 2)}, [(7,)], None, [(2, 7)]),
)
