"""Reshape codes, and the other operators that keep the elements in order."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.arrays import count, randn
from helpers.op_case import OpCase, check_value, rules_test, shapes, values_test

X = count(2, 3, 4, dtype="f4")


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
            left = draw(st.sampled_from([d for d in range(1, dims[at] + 1) if dims[at] % d == 0]))
            pair = [left, dims[at] // left]
            hidden = draw(st.sampled_from([None, 0, 1]))
            codes += [-4, *(-1 if i == hidden else n for i, n in enumerate(pair))]
            result += pair
            at += 1
        else:
            infer = step == "infer" and not inferred
            inferred = inferred or infer
            codes.append(-1 if infer else dims[at] if step == "number" else 0)
            result.append(dims[at])
            at += 1
    return tuple(dims), tuple(codes), tuple(result)


@settings(max_examples=400, deadline=None, derandomize=True)
@given(coded_shapes(), st.integers(0, 4))
def test_codes_mean_what_they_were_built_from(case, place):
    dims, codes, result = case
    x = count(*dims)
    check_value(OpCase("Reshape", (x,), {"shape": codes}, lambda x: x.reshape(result)))
    attrs = {"shape": codes[::-1], "reverse": True}
    check_value(OpCase("Reshape", (count(*dims[::-1]),), attrs, lambda x: x.reshape(result[::-1])))
    partial = tuple(0 if i == place % len(dims) else d for i, d in enumerate(dims))
    (found,) = shapes("Reshape", [partial], shape=codes)[1]
    assert all(f in (0, d) for f, d in zip(found, result, strict=True))
    assert shapes("Reshape", [partial], [result], shape=codes)[0] == [dims]


MIXED = [  # codes, answer of MXNet 1.9.1
    ((4, -1, 0), (4, 1, 4)), ((-3, 2, -1), (6, 2, 2)), ((-1, 0, 2), (4, 3, 2)), ((4, 6, 1, -1), (4, 6, 1, 1)),
    ((-2, -2), (2, 3, 4)), ((0, -4, 3, -1, 4), (2, 3, 1, 4)), ((0, 0, 0, -1), (2, 3, 4, 1)),
]  # fmt: skip
FITTING = [(codes, wanted) for codes, wanted in MIXED if np.prod(wanted) == 24]
OLD = [
    ((2, 0), False, (2, 12)),
    ((0, 6, 2), True, (2, 6, 2)),
    ((0, 12), False, (2, 12)),
    ((3, 0), True, (2, 12)),
]
ENDS = {"lhs_begin": 0, "lhs_end": 2, "rhs_begin": 0, "rhs_end": 1}
test_values = values_test(
    [
        *[("Reshape", (X,), {"shape": codes}, X.reshape(wanted)) for codes, wanted in FITTING],
        *[("Reshape", (X,), {"target_shape": t, "keep_highest": keep}, X.reshape(w)) for t, keep, w in OLD],
        ("Reshape", (X,), {"shape": (-1,), "target_shape": (3, 0)}, X.reshape(24)),
        ("Flatten", (X,), {}, X.reshape(2, 12)),
        ("Flatten", (count(2),), {}, count(2, 1)),
        ("reshape_like", (X, randn(4, 6)), {}, X.reshape(4, 6)),
        ("reshape_like", (X, randn(6, 2, 2)), ENDS, X.reshape(6, 4)),
        ("reshape_like", (X, randn(6, 2, 2)), {"lhs_begin": -1, "rhs_begin": 1}, X.reshape(2, 3, 2, 2)),
    ]
)
test_shapes = rules_test(
    [
        *[
            ("Reshape", [before], {"shape": codes}, [known], [after], [after])
            for before, after, codes, known in [
                ((0, 4), (6, 4), (-1, 4), (6, 4)),
                ((0, 2, 4), (6, 4), (-1, 4), (3, 2, 4)),
                ((0, 2, 4), (6, 8), (0, -1), (6, 2, 4)),
            ]
        ],
        ("Reshape", [(0, 3, 4)], {"shape": (0, -1)}, None, [(0, 12)]),
        ("Reshape", [(0, 3, 4)], {"shape": (-1, 4)}, None, [(0, 4)]),
        ("Reshape", [(0, 3, 4)], {"shape": (-3, 0)}, None, [(0, 4)]),
        ("Reshape", [None], {"shape": (0, -1)}, None, [None]),
        ("Flatten", [(0, 4, 2)], {}, [(6, 4, 2)], [(6, 8)], [(6, 8)]),
        ("Flatten", [(0, 0, 2)], {}, [(6, 4, 2)], [(6, 8)], [(6, 8)]),
        ("Flatten", [(0, 4, 2)], {}, None, [(0, 8)]),
    ]
)
