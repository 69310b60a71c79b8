"""Broadcasting, tiling, repeating, reversing, padding."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from dpmodule.base import OpError, ShapeError
from helpers.op_case import OpCase, check_gradient, check_value, run, shapes


def data(*shape):
    return np.random.RandomState(sum(shape)).randn(*shape)


@st.composite
def stretched(draw):
    """A shape, the shape it is stretched to, and the axes that grow."""
    dims = tuple(draw(st.lists(st.sampled_from([1, 1, 2, 3]), min_size=1, max_size=4)))
    wanted = tuple(draw(st.integers(1, 4)) if d == 1 else d for d in dims)
    return dims, wanted


@settings(max_examples=200, deadline=None, derandomize=True)
@given(stretched(), st.data())
def test_dimensions_of_one_are_repeated(case, draw):
    dims, wanted = case
    expected = np.broadcast_to(data(*dims), wanted)
    asked = tuple(0 if w == d and draw.draw(st.booleans()) else w for d, w in zip(dims, wanted, strict=True))
    check_value(OpCase("broadcast_to", (data(*dims),), {"shape": asked}, lambda x: expected))
    check_value(OpCase("broadcast_like", (data(*dims), data(*wanted)), {}, lambda x, y: expected))
    axes = tuple(i for i, d in enumerate(dims) if d == 1)
    attrs = {"axis": axes, "size": tuple(wanted[i] for i in axes)}
    check_value(OpCase("broadcast_axis", (data(*dims),), attrs, lambda x: expected))


def test_axes_that_are_repeated_count_from_the_end_too():
    attrs = {"axis": (-1, 0), "size": (3, 2)}
    check_value(OpCase("broadcast_axis", (data(1, 4, 1),), attrs, lambda x: np.broadcast_to(x, (2, 4, 3))))


def test_broadcast_like_refuses_no_axes():
    with pytest.raises(OpError, match="are empty"):
        mx.nd.broadcast_like(mx.nd.ones((1, 2)), mx.nd.ones((3, 2)), lhs_axes=(), rhs_axes=())


def test_broadcast_like_can_take_single_axes():
    attrs = {"lhs_axes": (0, 2), "rhs_axes": (0, -1)}
    check_value(
        OpCase(
            "broadcast_like", (data(1, 2, 1), data(5, 6)), attrs, lambda x, y: np.broadcast_to(x, (5, 2, 6))
        )
    )
    with pytest.raises(ShapeError, match="equal lengths"):
        shapes("broadcast_like", [(1, 2, 1), (5, 6)], lhs_axes=(0, 2), rhs_axes=(0,))


@pytest.mark.parametrize("wanted", [(2, 2), (3, 1, 4), (2, 3, 3)])
def test_what_does_not_broadcast_is_refused(wanted):
    with pytest.raises(ShapeError, match="broadcast_to"):
        shapes("broadcast_to", [(2, 1, 4)], shape=wanted)
    with pytest.raises(ShapeError, match="broadcast_to"):
        run("broadcast_to", data(2, 1, 4), shape=wanted)


@settings(max_examples=200, deadline=None, derandomize=True)
@given(
    st.lists(st.integers(1, 3), min_size=1, max_size=3),
    st.lists(st.integers(1, 3), min_size=0, max_size=4),
)
def test_tile_is_that_of_numpy(dims, reps):
    check_value(OpCase("tile", (data(*dims),), {"reps": tuple(reps)}, lambda x: np.tile(x, reps)))


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 3), min_size=1, max_size=3), st.integers(1, 3), st.data())
def test_repeat_and_reverse_are_those_of_numpy(dims, count, draw):
    axis = draw.draw(st.none() | st.integers(-len(dims), len(dims) - 1))
    check_value(
        OpCase(
            "repeat", (data(*dims),), {"repeats": count, "axis": axis}, lambda x: np.repeat(x, count, axis)
        )
    )
    axes = tuple(draw.draw(st.lists(st.integers(0, len(dims) - 1), min_size=1, unique=True)))
    check_value(OpCase("reverse", (data(*dims),), {"axis": axes}, lambda x: np.flip(x, axes)))


def test_tile_repeat_and_reverse_refuse_nonsense():
    with pytest.raises(ShapeError, match="reps"):
        shapes("tile", [(2, 3)], reps=(0, 1))
    with pytest.raises(OpError, match="repeats"):
        shapes("repeat", [(2, 3)], repeats=0)
    with pytest.raises(ShapeError, match="axis is 3"):
        shapes("repeat", [(2, 3)], repeats=2, axis=3)
    with pytest.raises(OpError, match="axis is 3"):
        run("reverse", data(2, 3), axis=3)


@pytest.mark.parametrize(
    ("mode", "numpys"), [("constant", "constant"), ("edge", "edge"), ("reflect", "reflect")]
)
@pytest.mark.parametrize("spatial", [(5,), (4, 5), (3, 4, 5)])
def test_pad_is_that_of_numpy(mode, numpys, spatial):
    pairs = [(0, 0), (0, 0), *[(1, 2), (0, 1), (2, 0)][: len(spatial)]]
    attrs = {"mode": mode, "pad_width": tuple(n for pair in pairs for n in pair), "constant_value": 1.5}
    extra = {"constant_values": 1.5} if mode == "constant" else {}
    case = OpCase("Pad", (data(2, 1, *spatial),), attrs, lambda x: np.pad(x, pairs, numpys, **extra))
    check_value(case)
    check_gradient(case)
    (out,) = shapes("Pad", [(0, 1, *spatial)], **attrs)[1]
    assert out == (0, *run("Pad", data(2, 1, *spatial), **attrs).shape[1:])


@pytest.mark.parametrize(
    ("mode", "width", "match"),
    [
        ("edge", (0, 0, 0, 0, 1, 1), "8 numbers"),
        ("edge", (0, 0, 0, 0, -1, 1, 0, 0), "at least 0"),
        ("edge", (1, 0, 0, 0, 1, 1, 0, 0), "first two"),
        ("reflect", (0, 0, 0, 0, 3, 1, 0, 0), "reflection"),
    ],
)
def test_pad_refuses_widths_that_do_not_fit(mode, width, match):
    with pytest.raises(ShapeError, match=match):
        shapes("Pad", [(1, 1, 3, 3)], mode=mode, pad_width=width)
    with pytest.raises(OpError, match=match):
        run("Pad", data(1, 1, 3, 3), mode=mode, pad_width=width)


@pytest.mark.parametrize(
    ("name", "attrs"),
    [
        ("broadcast_to", {"shape": (2, 3, 4)}),
        ("broadcast_axis", {"axis": (0, 2), "size": (2, 4)}),
        ("tile", {"reps": (2, 1, 2)}),
        ("repeat", {"repeats": 2}),
        ("repeat", {"repeats": 2, "axis": 1}),
        ("reverse", {"axis": (0, 1)}),
    ],
)
def test_gradients_add_up_over_copies(name, attrs):
    check_gradient(OpCase(name, (data(1, 3, 1),), attrs))


@pytest.mark.parametrize("reps", [(1, 2, -3), (1, 0, 3)])
def test_arrays_are_not_tiled_away(reps):
    with pytest.raises(OpError, match="positive numbers"):
        mx.nd.tile(mx.nd.ones((4, 4)), reps)
