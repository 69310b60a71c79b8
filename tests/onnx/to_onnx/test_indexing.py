"""Picking and writing by position in ONNX."""

import numpy as np
import pytest

from helpers.onnx_runs import check_op, check_sizes

X = np.arange(24, dtype="float32").reshape(4, 3, 2)
INDEX_TYPES = ["float32", "int32", "int64"]


@pytest.mark.parametrize("dtype", INDEX_TYPES)
def test_take(dtype):
    index = np.array([[0, 2], [5, -4]], dtype)
    for axis in (0, 1, -1):
        for mode in ("clip", "wrap"):
            check_op("take", X, index, attrs={"axis": axis, "mode": mode})
    check_op("take", X, np.array([1, 0], dtype), attrs={"axis": 1, "mode": "raise"})
    check_sizes("take", X, index, attrs={"axis": 0, "mode": "clip"}, axes=[0])
    check_sizes("take", X, index, attrs={"axis": 0, "mode": "wrap"}, axes=[0])
    check_sizes("take", X, index, axes=[1])


@pytest.mark.parametrize("dtype", INDEX_TYPES)
def test_pick(dtype):
    for axis, shape in ((0, (3, 2)), (1, (4, 2)), (-1, (4, 3))):
        index = (np.arange(np.prod(shape)) % 9 - 3).reshape(shape).astype(dtype)
        for mode in ("clip", "wrap"):
            for keepdims in (True, False):
                attrs = {"axis": axis, "mode": mode, "keepdims": keepdims}
                check_op("pick", X, index, attrs=attrs)
                check_op("pick", X, np.expand_dims(index, axis), attrs=attrs)
    check_sizes("pick", X[:, :, 0], np.array([0, 2, 1, 7], dtype))
    check_op("pick", np.array([1.0, 5.0, 2.0], "float32"), np.array([1], dtype), attrs={"axis": 0})
    check_sizes("batch_take", X[:, :, 0], np.array([0, 2, -1, 7], dtype))


def test_one_hot_has_rows_without():
    index = np.array([[0, 2], [-1, 3]], "float32")
    for dtype in ("float16", "float32", "float64", "int8", "uint8", "int32", "int64"):
        check_sizes("one_hot", index, attrs={"depth": 3, "dtype": dtype})
    check_op("one_hot", index.astype("int32"), attrs={"depth": 3, "on_value": 2.5, "off_value": -1})
    check_sizes("_onehot_encode", np.array([0, 2, 1, 1], "float32"), np.zeros((4, 3), "float32"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"])
def test_where(dtype):
    x, y = (X.astype(dtype), (X + 50).astype(dtype))
    for condition in (X % 2, (X % 3).astype("int32"), np.array([1, 0, 0, 2], "float32"), X > 5):
        check_sizes("where", condition, x, y)


def test_gather_and_scatter_by_several_positions():
    index = np.array([[0, 3, 1], [2, 0, 1]], "int64")
    check_op("gather_nd", X, index)
    check_op("gather_nd", X, index.astype("float32"))
    check_op("gather_nd", X, index[:, :, None])
    check_op("gather_nd", X, np.array([[1, 2]]))
    check_op("gather_nd", X, np.array([1, 2]))
    check_op("scatter_nd", X[:3, 0], index, attrs={"shape": (4, 3, 2)})
    check_op("scatter_nd", np.array([1, 2, 3], "float32"), index[:1], attrs={"shape": (4,)})
    check_op("_scatter_set_nd", X, -X[:3, 0], index, attrs={"shape": (4, 3, 2)})
    check_op("fill_element_0index", X[:, :, 0], X[:, 0, 0] - 9, np.array([0, 2, 1, 1], "float32"))


@pytest.mark.parametrize("opset", [13, 16, 21])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_scattered_elements_add_up(opset, dtype):
    index = np.array([[0, 3, 0], [2, 0, 2]], "int64")
    check_op("_backward_gather_nd", X[:3, 0].astype(dtype), index, attrs={"shape": (4, 3, 2)}, opset=opset)
    part = np.array([1, 2, 3]).astype(dtype)
    check_op("_backward_gather_nd", part, index, attrs={"shape": (4, 3)}, opset=opset)
    check_op("_scatter_add_nd", X.astype(dtype), X[:3, 0].astype(dtype), index, opset=opset)


def test_diagonals():
    for k in (-2, -1, 0, 1):
        check_op("diag", X[0, :, 0], attrs={"k": k})
        check_op("diag", X[0], attrs={"k": k} if k > -3 else {})
    check_sizes("diag", X, attrs={"k": 0, "axis1": 1, "axis2": 2})
    check_op("diag", X, attrs={"k": -1, "axis1": 0, "axis2": -2})
    check_op("diag", np.arange(3), attrs={"k": 1})


def test_positions_as_numbers():
    for dtype in INDEX_TYPES:
        check_op("_ravel_multi_index", np.array([[3, 6, 6], [4, 5, 1]], dtype), attrs={"shape": (7, 6)})
        check_op("_unravel_index", np.array([22, 41, 37], dtype), attrs={"shape": (7, 6)})
        check_op("_unravel_index", np.array([[22, 41], [37, 0]], dtype), attrs={"shape": (3, 7, 6)})


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "int64"])
def test_counts_between_edges(dtype):
    x = np.array([0, 1, 1, 2, 3, 4, 5, 5, 9, -2]).astype(dtype)
    check_op("_histogram", x, attrs={"bin_cnt": 5, "range": (0, 5)})
    check_op("_histogram", x, np.array([0, 1, 3, 5]).astype(dtype))
    check_sizes("_histogram", x, attrs={"bin_cnt": 3, "range": (-2, 9)})


def test_rows_that_are_kept():
    check_sizes("_sparse_retain", X, np.array([2, 0], "int64"), axes=[0])
    check_op("_sparse_retain", X, np.array([3.0, 3.0, 1.0], "float32"))
