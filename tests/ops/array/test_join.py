"""Joining and splitting."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.arrays import randn
from helpers.op_case import OpCase, check_value, rules_test, shapes, values_test

DIMS = st.lists(st.integers(1, 3), min_size=1, max_size=4)
X = randn(2, 3, 4)
# attributes, what NumPy calls them
CUTS = [({"indices": (0, 1, 2)}, [1, 2]), ({"indices": (), "sections": 3}, 3), ({"indices": (0,)}, [])]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(DIMS, st.integers(1, 4), st.booleans(), st.data())
def test_split_and_its_rule_in_both_directions(dims, count, squeeze, draw):
    axis = draw.draw(st.integers(-len(dims), len(dims) - 1))
    dims[axis] = count if squeeze else dims[axis] * count
    attrs = {"num_outputs": count, "axis": axis, "squeeze_axis": squeeze}
    pieces = [np.atleast_1d(p.squeeze(axis)) if squeeze else p for p in np.split(randn(*dims), count, axis)]
    check_value(OpCase("SliceChannel", (randn(*dims),), attrs, lambda _: tuple(pieces)))
    outs = [p.shape for p in pieces]
    if not squeeze or len(dims) > 1:
        found = shapes("SliceChannel", [None], [outs[0]] + [None] * (count - 1), **attrs)
        assert found == ([tuple(dims)], outs)


test_values = values_test(
    ("stack", (randn(2, 3),) * 3, {"axis": -3}, np.stack([randn(2, 3)] * 3, -3)),
    *[("add_n", (randn(2, 3),) * count, {}, count * randn(2, 3)) for count in (1, 5)],
    *[("_split_v2", (X,), {**attrs, "axis": 1}, tuple(np.split(X, places, 1))) for attrs, places in CUTS],
    ("_split_v2", (X,), {"indices": (0, 1, 2), "axis": 1, "squeeze_axis": True}, tuple(X[:, i] for i in range(3))),
)  # fmt: skip
test_shapes = rules_test(
    ("Concat", [(6, 5, 8), (0, 0, 8)], {"dim": 1}, [(6, 5, 8), (6, 0, 8)], [(6, 0, 8)]),
    ("Concat", [None, None], {"dim": 1}, [None, None], [None]),
    *[("stack", [None] * 3, {"axis": axis}, [(2, 3)] * 3, None, [(3, 2, 3)]) for axis in (-3, 0)],
    ("stack", [None] * 4, {"axis": -1}, [(2, 3)] * 4, None, [(2, 3, 4)]),
    ("add_n", [(5, 0), (0, 4)], {}, [(5, 4), (5, 4)], None),
)
