"""Sorting, the greatest few, running sums, counts."""

import numpy as np
from hypothesis import given, settings
from hypothesis import strategies as st

import dpmodule as mx
from helpers.arrays import count, f4, f8, i1, i4, i8
from helpers.op_case import OpCase, call, check_value, gradients_test, rules_test, values_test

HALVES = st.integers(-8, 8).map(lambda n: n / 2)
TIES, X = f4([3, 1, 3, 2, 1]), f8([[3, 1, 2], [4, 6, 5]])
BOOLS, BYTES, SUMMED = np.array([[True, True], [False, True]]), i1([100, 100]), count(2, 3)


@settings(max_examples=250, deadline=None, derandomize=True)
@given(st.lists(st.integers(1, 4), min_size=1, max_size=3), st.booleans(), st.data())
def test_sorting_is_stable_along_any_axis(dims, ascending, data):
    size = int(np.prod(dims))
    array = f4(data.draw(st.lists(st.integers(-3, 3), min_size=size, max_size=size))).reshape(dims)
    axis = data.draw(st.none() | st.integers(-len(dims), len(dims) - 1))
    flat, along = (array.reshape(-1), 0) if axis is None else (array, axis)
    places = np.argsort(flat if ascending else -flat, along, kind="stable")
    values = np.take_along_axis(flat, places, along)
    k = data.draw(st.integers(0, flat.shape[along]))
    first = (slice(None),) * (along % flat.ndim) + (slice(k or None),)
    mask = np.zeros_like(flat)
    np.put_along_axis(mask, places[first], 1, along)
    top = {"k": k, "ret_typ": "indices"}
    for name, more, wanted in (
        ("sort", {}, values),
        ("argsort", {"dtype": "int32"}, places.astype("i4")),
        ("topk", top, places[first].astype("f4")),
        ("topk", {**top, "ret_typ": "value"}, values[first]),
        ("topk", {**top, "ret_typ": "both"}, (values[first], places[first].astype("f4"))),
        ("topk", {**top, "ret_typ": "mask"}, mask.reshape(array.shape)),
    ):
        attrs = {"axis": axis, "is_ascend": ascending, **more}
        check_value(OpCase(name, (array,), attrs, lambda _, wanted=wanted: wanted))


test_values = values_test(
    [
        ("argsort", (TIES,), {}, f4([1, 4, 3, 0, 2])),
        ("argsort", (TIES,), {"is_ascend": False}, f4([0, 2, 3, 1, 4])),
        ("topk", (TIES,), {"k": 2}, f4([0, 2])),
        *[("cumsum", (SUMMED,), {"axis": a}, lambda x, a=a: np.cumsum(x, a)) for a in (None, 0, 1, -1)],
        ("cumsum", (BYTES,), {}, i1([100, -56])),
        ("cumsum", (BYTES,), {"dtype": "int32"}, i4([100, 200])),
        ("cumsum", (BOOLS,), {"axis": 1}, i8([[1, 2], [0, 1]])),
        ("_histogram", (f4([1, 2, 3, 4, 5, 9]), f4([0, 2, 3, 5])), {}, (i8([1, 1, 3]), f4([0, 2, 3, 5]))),
        (
            "_histogram",
            (i4([1, 2, 3, 4]),),
            {"bin_cnt": 3, "range": (0, 3.5)},
            (i8([0, 1, 2]), i4([0, 1, 2, 3])),
        ),
    ]
)
test_gradients_by_hand = gradients_test(
    [
        ("topk", (X,), {"k": 2, "ret_typ": "value"}, [[[1, 0, 1], [0, 1, 1]]]),
        ("argsort", (X,), {}, [np.zeros((2, 3))]),
    ]
)
test_shapes = rules_test(
    [
        ("topk", [(0, 4)], {"k": 2}, None, [(0, 2)]),
        ("sort", [(0, 4)], {"axis": None}, None, [None]),
    ]
)


def test_cumsum_of_booleans_is_int64_in_a_graph():
    symbol = mx.sym.cumsum(mx.sym.Variable("x", dtype="bool"))
    assert symbol.infer_type()[1] == [np.int64]
    assert symbol.eval(x=mx.nd.array([1, 1], dtype="bool"))[0].dtype == np.int64


@settings(max_examples=200, deadline=None, derandomize=True)
@given(st.lists(HALVES, min_size=1, max_size=20), st.integers(1, 6), HALVES, st.integers(1, 8))
def test_counts_are_those_of_numpy(values, bins, low, width):
    ends = (low, low + float(width))
    found = call("_histogram", mx.nd.array(values, dtype="f8").tensor, bin_cnt=bins, range=ends)
    counts, edges = np.histogram(f8(values), bins, ends)
    assert found[0].tolist() == counts.tolist()
    np.testing.assert_allclose(found[1].numpy(), edges)


def test_histogram_of_arrays():
    data, edges = mx.nd.array([1, 2, 3, 4, 5, 9]), mx.nd.array([0, 2, 3, 5])
    found = mx.nd.histogram(data, bins=edges)
    assert found[0].dtype == np.int64
    assert [x.asnumpy().tolist() for x in found] == [[1, 1, 3], [0, 2, 3, 5]]
    found = mx.nd.histogram(data[:4], bins=3)  # from the least to the greatest
    assert [x.asnumpy().tolist() for x in found] == [[1, 1, 2], [1, 2, 3, 4]]


def test_histogram_as_a_symbol():
    data, edges = mx.sym.var("data"), mx.sym.var("edges")
    symbol = mx.sym.histogram(data, bins=edges)
    assert symbol.list_arguments() == ["data", "edges"]
    assert symbol.infer_shape(data=(5,), edges=(4,))[1] == [(3,), (4,)]
    assert mx.sym.histogram(data, bins=3, range=(0, 1)).list_arguments() == ["data"]
