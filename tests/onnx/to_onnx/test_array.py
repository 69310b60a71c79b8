"""Arrays in ONNX: shapes and axes with lengths that are dynamic, positions, and arrays made from attributes alone."""

import itertools

import numpy as np
import onnx
import pytest

import dpmodule as mx
from helpers.onnx_runs import check_op, check_same, check_sizes, exported, runtime_outputs

S = mx.sym
X = np.arange(48, dtype="float32").reshape(4, 3, 4) - 20
TYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"]


FORWARD = [(0, -1), (0, 0, -1), (-1, 4), (-3, 0), (-3, 4), (0, -4, 3, 1, 0), (-4, -1, 2, -2), (-2,)]
FORWARD += [(-2, 1, 1), (0, -3), (-1,), (0, 2, -1, 3)]


def test_reshape():
    check_sizes("Reshape", X, shape=FORWARD)
    check_sizes("Reshape", X, shape=[(-1, 0), (-1, 2, 0), (-1, 0, 0), (-3, 0)], reverse=True)
    check_op("Reshape", X, target_shape=(0, 12))  # of old graphs
    check_sizes("Reshape", X, target_shape=(0, 0), keep_highest=True)
    check_sizes("reshape_like", X, X.reshape(4, 12))
    y = np.ones((4, 3, 2, 2), "float32")
    check_sizes("reshape_like", X, y, lhs_begin=2, lhs_end=3, rhs_begin=2, rhs_end=4)


def test_ranges():
    x, ends = np.arange(5, dtype="float32"), [None, 0, 3, -2, 7, -9]
    for begin, end, step in itertools.product(ends, ends, (None, 2, -1, -2)):
        if len(x[begin:end:step]):
            check_op("slice", x, begin=(begin,), end=(end,), step=(step,))
    dynamic = ((None, -1, None), (-2, None, None), (None, None, -1), (1, 3, 1), (None, None, 2))
    for begin, end, step in dynamic:
        attrs = {"begin": (begin, 0), "end": (end, 2), "step": (step, 1)}
        check_sizes("slice", X, **attrs)
        check_sizes("_slice_assign_scalar", X, scalar=2.5, **attrs)
    check_sizes("slice_axis", X, axis=0, begin=-2, end=None)
    check_sizes("slice_axis", X, axis=1, begin=1, end=-1)
    check_op("_slice_assign", X, np.full((2, 2, 4), 7, "f"), begin=(None, 2), end=(None, 0), step=(2, -1))
    y = np.ones((4, 2, 3), "float32")
    check_sizes("slice_like", X, y)
    check_sizes("slice_like", X, y, axes=(1, -1))
    check_sizes("slice_like", np.concatenate([X, X]), X[:, :, :2], changing=[0])


def test_axes():
    check_op("squeeze", X[:1, :1, :1])
    check_sizes("squeeze", X[:, :1], axis=(1,))
    check_sizes("squeeze", X[:, :1, :1])
    check_sizes("broadcast_to", X[:, :1], shape=(0, 5, 4))
    check_sizes("broadcast_axis", X[:, :1], axis=(1,), size=(3,))
    check_sizes("broadcast_like", X[:, :1], X)
    check_sizes("broadcast_like", X[:1], X, changing=[1])
    check_sizes("broadcast_like", X[:1, :, :1], X, lhs_axes=(0,), rhs_axes=(0,), changing=[1])


@pytest.mark.parametrize("opset", [13, 18])
def test_pieces(opset):
    x = np.arange(24, dtype="float32").reshape(4, 6)
    check_op("SliceChannel", x, num_outputs=[3, 1], opset=opset)
    model = check_op("SliceChannel", x, num_outputs=6, squeeze_axis=True, opset=opset)
    check_op("_split_v2", x, indices=(0, 1, 3), axis=0, opset=opset)
    check_op("_split_v2", x, sections=2, indices=(), axis=0, opset=opset)
    # along the dynamic axis itself
    check_sizes("SliceChannel", x, num_outputs=2, axis=0, opset=opset)
    check_sizes("_split_v2", x, indices=(0, 1, 3), axis=0, opset=opset)
    assert model.opset_import[0].version == opset


def test_types_that_are_joined():
    check_op("amp_multicast", X.astype("float16"), X, num_outputs=2, cast_narrow=[True, False])
    check_op("amp_cast", X, types=["int32", "float32"], dtype="float16")
    check_op("Cast", np.array([0.0, 1.7, 3.2], "float32"), dtype=TYPES)
    model = exported(S.Cast(S.Cast(S.Variable("x"), dtype="bfloat16") * 3, dtype="float32"), {"x": X})
    assert onnx.TensorProto.BFLOAT16 in {each.i for node in model.graph.node for each in node.attribute}


def test_a_chain_of_dynamic_shapes():
    tall = S.repeat(S.Variable("x"), repeats=3, axis=0)
    net = S.Reshape(S.broadcast_like(S.zeros_like(tall), tall) + tall, shape=(-4, -1, 3, -2))
    model, more = check_same(net, {"x": X}, dynamic={"x": {0: "batch"}}), np.concatenate([X, X, X])
    found = runtime_outputs(model, {"x": more})[0]
    np.testing.assert_array_equal(found, np.repeat(more, 3, 0).reshape(12, 3, 3, 4))


# picking and writing by position

DATA = np.arange(24, dtype="float32").reshape(4, 3, 2)
INDEX_TYPES = ["float32", "int32", "int64"]


@pytest.mark.parametrize("dtype", INDEX_TYPES)
def test_picking(dtype):
    index = np.array([[0, 2], [5, -4]], dtype)
    check_op("take", DATA, index, axis=[0, 1, -1], mode=["clip", "wrap"])
    check_op("take", DATA, np.array([1, 0], dtype), axis=1, mode="raise")
    check_sizes("take", DATA, index, axis=0, mode=["clip", "wrap"], changing=[0])
    for axis, shape in ((0, (3, 2)), (1, (4, 2)), (-1, (4, 3))):
        index = (np.arange(np.prod(shape)) % 9 - 3).reshape(shape).astype(dtype)
        for each in (index, np.expand_dims(index, axis)):
            check_op("pick", DATA, each, axis=axis, mode=["clip", "wrap"], keepdims=[True, False])
    check_op("pick", np.array([1.0, 5.0, 2.0], "float32"), np.array([1], dtype), axis=0)
    check_sizes("batch_take", DATA[:, :, 0], np.array([0, 2, -1, 7], dtype))
    check_op("_ravel_multi_index", np.array([[3, 6, 6], [4, 5, 1]], dtype), shape=(7, 6))
    check_op("_unravel_index", np.array([22, 41, 37], dtype), shape=(7, 6))
    check_op("_unravel_index", np.array([[22, 41], [37, 0]], dtype), shape=(3, 7, 6))


@pytest.mark.parametrize("opset", [13, 16, 21])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_scattered_elements_add_up(opset, dtype):
    index, part = np.array([[0, 3, 0], [2, 0, 2]], "int64"), DATA[:3, 0].astype(dtype)
    check_op("_backward_gather_nd", part, index, shape=(4, 3, 2), opset=opset)
    check_op("_backward_gather_nd", part[:, 0], index, shape=(4, 3), opset=opset)
    check_op("_scatter_add_nd", DATA.astype(dtype), part, index, opset=opset)
