"""Broadcasting, tiling, repeating, reversing, padding."""

from itertools import product

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


def pad(mode, spatial):
    pairs = [(0, 0), (0, 0), *[(1, 2), (0, 1), (2, 0)][: len(spatial)]]
    x, numpys = randn(2, 1, *spatial), {"constant_values": 1.5} if mode == "constant" else {}
    attrs = {"mode": mode, "pad_width": tuple(n for pair in pairs for n in pair), "constant_value": 1.5}
    return "Pad", (x,), attrs, np.pad(x, pairs, mode, **numpys)


PADS = [pad(*row) for row in product(("constant", "edge", "reflect"), [(5,), (4, 5), (3, 4, 5)])]
ROW, LAST = randn(1, 4, 1), {"lhs_axes": (0, 2), "rhs_axes": (0, -1)}
test_values = values_test(
    [
        *PADS,
        ("broadcast_axis", (ROW,), {"axis": (-1, 0), "size": (3, 2)}, np.tile(ROW, (2, 1, 3))),
        ("broadcast_like", (randn(1, 2, 1), randn(5, 6)), LAST, np.tile(randn(1, 2, 1), (5, 1, 6))),
        ("broadcast_like", (randn(3, 1), np.zeros((3, 2), "i1")), {}, np.tile(randn(3, 1), (1, 2))),
    ]
)
test_shapes = rules_test(
    [("Pad", [(0, *x.shape[1:])], attrs, None, [(0, *wanted.shape[1:])]) for _, (x,), attrs, wanted in PADS]
)
