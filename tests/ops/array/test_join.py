"""Joining and splitting."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule import ops
from dpmodule.base import OpError, ShapeError
from helpers.op_case import OpCase, call, check_gradient, check_value, shapes


def data(*shape):
    return np.random.RandomState(sum(shape)).randn(*shape)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=4),
    st.lists(st.integers(1, 4), min_size=1, max_size=4),
    st.data(),
)
def test_concat_and_its_rule_in_both_directions(dims, sizes, draw):
    axis = draw.draw(st.integers(-len(dims), len(dims) - 1))
    shaped = [tuple(size if i == axis % len(dims) else d for i, d in enumerate(dims)) for size in sizes]
    arrays = tuple(data(*s) for s in shaped)
    check_value(OpCase("Concat", arrays, {"dim": axis}, lambda *args: np.concatenate(args, axis)))
    out = np.concatenate(arrays, axis).shape
    for missing in range(len(sizes)):
        partial = [None if i == missing else s for i, s in enumerate(shaped)]
        assert shapes("Concat", partial, [out], dim=axis) == (shaped, [out])


def test_concat_carries_what_is_known():
    assert shapes("Concat", [(6, 5, 8), (0, 0, 8)], dim=1) == ([(6, 5, 8), (6, 0, 8)], [(6, 0, 8)])
    assert shapes("Concat", [None, None], dim=1) == ([None, None], [None])


@pytest.mark.parametrize("bad", [[(2, 3, 4), (2, 2, 3)], [(2, 3), (2, 3, 4)], [(2,), (2,)]])
def test_concat_refuses_what_does_not_fit(bad):
    with pytest.raises(ShapeError):
        shapes("Concat", bad, dim=1)


def test_concat_refuses_a_result_without_room():
    with pytest.raises(ShapeError, match="leave no equal sizes"):
        shapes("Concat", [(2, 3), None], [(2, 3)], dim=1)
    with pytest.raises(ShapeError):
        shapes("Concat", [(2, 3), (2, 1)], [(2, 5)], dim=1)


@pytest.mark.parametrize("axis", [-3, -1, 0, 1, 2])
def test_stack_makes_a_new_axis(axis):
    arrays = (data(2, 3), data(2, 3), data(2, 3))
    check_value(OpCase("stack", arrays, {"axis": axis}, lambda *args: np.stack(args, axis)))
    out = np.stack(arrays, axis).shape
    assert shapes("stack", [None] * 3, [out], axis=axis) == ([(2, 3)] * 3, [out])


def test_stack_refuses_what_does_not_fit():
    with pytest.raises(ShapeError):
        shapes("stack", [(2, 3), (2, 4)])
    with pytest.raises(ShapeError, match="axis is 3"):
        shapes("stack", [(2, 3), (2, 3)], axis=3)


@pytest.mark.parametrize("count", [1, 2, 5])
def test_add_n_adds_any_number(count):
    arrays = tuple(data(2, 3) for _ in range(count))
    check_value(OpCase("add_n", arrays, {}, lambda *args: sum(args)))
    check_gradient(OpCase("add_n", arrays))
    assert shapes("add_n", [(5, 0), (0, 4)])[0] == [(5, 4), (5, 4)]


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=4), st.integers(1, 4), st.booleans(), st.data())
def test_split_and_its_rule_in_both_directions(dims, count, squeeze, draw):
    axis = draw.draw(st.integers(-len(dims), len(dims) - 1))
    dims[axis] = count if squeeze else dims[axis] * count
    attrs = {"num_outputs": count, "axis": axis, "squeeze_axis": squeeze}

    def pieces(x):
        found = np.split(x, count, axis)
        return tuple(np.atleast_1d(p.squeeze(axis)) if squeeze else p for p in found)

    check_value(OpCase("SliceChannel", (data(*dims),), attrs, pieces))
    outs = [p.shape for p in pieces(data(*dims))]
    if not squeeze or len(dims) > 1:
        assert shapes("SliceChannel", [None], [outs[0]] + [None] * (count - 1), **attrs) == (
            [tuple(dims)],
            outs,
        )


def test_split_refuses_uneven_pieces():
    with pytest.raises(ShapeError, match="2 equal pieces"):
        shapes("SliceChannel", [(2, 3, 4)], num_outputs=2)
    with pytest.raises(ShapeError, match="expected 1"):
        shapes("SliceChannel", [(2, 3, 4)], num_outputs=2, axis=2, squeeze_axis=True)
    with pytest.raises(OpError, match="2 equal pieces"):
        call("SliceChannel", torch.zeros(2, 3), num_outputs=2)


def test_outputs_of_split_are_numbered_even_a_single_one():
    op = ops.get("split")
    assert op.output_names(op.parse({"num_outputs": 1})) == ("output0",)
    assert op.output_names(op.parse({"num_outputs": 2})) == ("output0", "output1")


@pytest.mark.parametrize(
    ("attrs", "places"),
    [
        ({"indices": (0, 1, 2)}, [1, 2]),
        ({"indices": (0, 1)}, [1]),
        ({"indices": (), "sections": 3}, 3),
        ({"indices": (0,)}, []),
    ],
)
def test_split_v2_cuts_at_places_or_evenly(attrs, places):
    x = data(2, 3, 4)
    check_value(OpCase("_split_v2", (x,), {**attrs, "axis": 1}, lambda x: tuple(np.split(x, places, 1))))
    check_gradient(OpCase("_split_v2", (x,), {**attrs, "axis": 1}))


def test_split_v2_can_drop_the_axis_and_refuses_wrong_places():
    x = data(2, 3, 4)
    attrs = {"indices": (0, 1, 2), "axis": 1, "squeeze_axis": True}
    check_value(OpCase("_split_v2", (x,), attrs, lambda x: tuple(x[:, i] for i in range(3))))
    for wrong in ({"indices": (0, 3, 1), "axis": 2}, {"indices": (0, 1, 9), "axis": 2}):
        with pytest.raises(ShapeError, match="_split_v2"):
            shapes("_split_v2", [(2, 3, 4)], **wrong)
    with pytest.raises(ShapeError, match="expected 1"):
        shapes("_split_v2", [(2, 3, 4)], indices=(0, 1), axis=1, squeeze_axis=True)


@pytest.mark.parametrize(
    ("name", "attrs"),
    [("Concat", {"dim": 1}), ("Concat", {"dim": -1}), ("stack", {"axis": 1}), ("stack", {"axis": -1})],
)
def test_gradients_go_back_to_their_places(name, attrs):
    check_gradient(OpCase(name, (data(2, 3), data(2, 3) * 2), attrs))
