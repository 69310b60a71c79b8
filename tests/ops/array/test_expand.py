"""Broadcasting and padding."""

import numpy as np

from helpers.arrays import randn
from helpers.op_case import rules_test, values_test

LINE, ENDS = randn(2, 1, 5), [(0, 0), (0, 0), (1, 2)]
ROW, LAST = randn(1, 4, 1), {"lhs_axes": (0, 2), "rhs_axes": (0, -1)}
test_values = values_test(
    ("Pad", (LINE,), {"mode": "reflect", "pad_width": (0, 0, 0, 0, 1, 2)}, np.pad(LINE, ENDS, "reflect")),
    *[("tile", (ROW,), {"reps": reps}, np.tile(ROW, reps)) for reps in ((2,), (2, 1, 1, 3))],
    *[("repeat", (ROW,), {"repeats": 2, "axis": a}, np.repeat(ROW, 2, a)) for a in (None, -2)],
    ("broadcast_to", (ROW,), {"shape": (2, 0, 3)}, np.tile(ROW, (2, 1, 3))),
    ("broadcast_axis", (ROW,), {"axis": (-1, 0), "size": (3, 2)}, np.tile(ROW, (2, 1, 3))),
    ("broadcast_like", (randn(1, 2, 1), randn(5, 6)), LAST, np.tile(randn(1, 2, 1), (5, 1, 6))),
    ("broadcast_like", (randn(3, 1), np.zeros((3, 2), "i1")), {}, np.tile(randn(3, 1), (1, 2))),
)
test_shapes = rules_test(
    ("Pad", [(0, 1, 5)], {"mode": "edge", "pad_width": (0, 0, 0, 0, 1, 2)}, None, [(0, 1, 8)])
)
