"""Order, insertion and removal of axes."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

from helpers.arrays import count, f8
from helpers.op_case import OpCase, check_value, rules_test, shapes, values_test

ODD = count(1, 2, 1)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=5), st.data())
def test_axes_move_in_both_directions(dims, draw):
    rank, x = len(dims), count(*dims)
    order = tuple(draw.draw(st.permutations(range(rank))))
    one, other = draw.draw(st.integers(-rank, rank - 1)), draw.draw(st.integers(-rank, rank - 1))
    axis = draw.draw(st.integers(-rank - 1, rank))
    for name, attrs, wanted in (
        ("transpose", {"axes": order}, x.transpose(order)),
        ("transpose", {}, x.transpose()),
        ("SwapAxis", {"dim1": one, "dim2": other}, np.swapaxes(x, one, other)),
        ("expand_dims", {"axis": axis}, np.expand_dims(x, axis)),
    ):
        check_value(OpCase(name, (x,), attrs, lambda _, wanted=wanted: wanted))
        assert shapes(name, [None], [wanted.shape], **attrs)[0] == [tuple(dims)]


test_values = values_test(
    ("transpose", (count(2, 3, 4),), {"axes": (-1, 0, -2)}, lambda x: x.transpose(2, 0, 1)),
    *[
        ("squeeze", (x,), {"axis": axis}, x.reshape(shape))
        for x, axis, shape in [
            (ODD, None, (2,)), (ODD, 0, (2, 1)), (ODD, -1, (1, 2)), (ODD, (0, 2), (2,)), (ODD, (), (1, 2, 1)),
            (f8([[5]]), None, (1,)), (f8([[5]]), (0, 1), (1,)),
        ]
    ],
)  # fmt: skip
test_shapes = rules_test(
    ("squeeze", [(0, 1, 4)], {"axis": 1}, None, [(0, 4)]),
    ("squeeze", [(0, 1, 4)], {}, None, [None]),
    ("depth_to_space", [(0, 8, 3, 2)], {"block_size": 2}, None, [(0, 2, 6, 4)]),
)
