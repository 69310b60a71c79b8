"""Broadcasting, tiling, repeating, reversing, padding."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.arrays import randn
from helpers.op_case import OpCase, check_value, rules_test, values_test


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=1, max_size=4), st.data())
def test_axes_of_one_are_repeated(dims, draw):
    wanted = tuple(draw.draw(st.integers(1, 4)) if d == 1 else d for d in dims)
    expected = np.broadcast_to(randn(*dims), wanted)
    asked = tuple(0 if w == d and draw.draw(st.booleans()) else w for d, w in zip(dims, wanted, strict=True))
    axes = tuple(i for i, d in enumerate(dims) if d == 1)
    for name, more, attrs in (
        ("broadcast_to", (), {"shape": asked}),
        ("broadcast_like", (randn(*wanted),), {}),
        ("broadcast_axis", (), {"axis": axes, "size": tuple(wanted[i] for i in axes)}),
    ):
        check_value(OpCase(name, (randn(*dims), *more), attrs, lambda *_: expected))


LINE, ENDS = randn(2, 1, 5), [(0, 0), (0, 0), (1, 2)]
ROW, LAST = randn(1, 4, 1), {"lhs_axes": (0, 2), "rhs_axes": (0, -1)}
test_values = values_test(
    [
        ("Pad", (LINE,), {"mode": "reflect", "pad_width": (0, 0, 0, 0, 1, 2)}, np.pad(LINE, ENDS, "reflect")),
        ("broadcast_axis", (ROW,), {"axis": (-1, 0), "size": (3, 2)}, np.tile(ROW, (2, 1, 3))),
        ("broadcast_like", (randn(1, 2, 1), randn(5, 6)), LAST, np.tile(randn(1, 2, 1), (5, 1, 6))),
        ("broadcast_like", (randn(3, 1), np.zeros((3, 2), "i1")), {}, np.tile(randn(3, 1), (1, 2))),
    ]
)
test_shapes = rules_test(
    [("Pad", [(0, 1, 5)], {"mode": "edge", "pad_width": (0, 0, 0, 0, 1, 2)}, None, [(0, 1, 8)])]
)
