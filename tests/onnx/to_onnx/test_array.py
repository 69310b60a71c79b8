"""Arrays in ONNX: shapes and axes with lengths that are dynamic, and arrays made from attributes alone."""

import itertools

import numpy as np
import onnx
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.onnx_runs import check_op, check_same, check_sizes, exported, runtime_outputs

X = np.arange(48, dtype="float32").reshape(4, 3, 4) - 20
TYPES = ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"]


@pytest.mark.parametrize("dtype", TYPES)
def test_every_type_keeps_its_own(dtype):
    x = (X + 20).astype(dtype)
    for name, attrs in (
        ("transpose", {}),
        ("SwapAxis", {"dim1": 0, "dim2": -1}),
        ("Reshape", {"shape": (-1, 2)}),
        ("slice", {"begin": (1,), "end": (3,)}),
        ("tile", {"reps": (2, 1)}),
        ("repeat", {"repeats": 2, "axis": 1}),
        ("reverse", {"axis": (0, 2)}),
        ("SliceChannel", {"num_outputs": 3}),
        ("expand_dims", {"axis": -1}),
        ("_slice_assign_scalar", {"scalar": 3, "begin": (1,), "end": (3,)}),
        ("depth_to_space", {"block_size": 2}),
        ("Pad", {"mode": "constant", "pad_width": (0, 0, 0, 0, 1, 2), "constant_value": 3}),
    ):
        data = x.reshape(1, 4, 3, 4) if name == "depth_to_space" else x
        check_op(name, data, attrs=attrs)
    check_op("stack", x, x, attrs={"axis": 1})
    check_op("Concat", x, x, attrs={"dim": 2})


RESHAPES = [
    ((0, -1), False),
    ((-1, 0), True),
    ((0, 0, -1), False),
    ((-1, 4), False),
    ((-3, 0), False),
    ((-3, 4), False),
    ((-1, 2, 0), True),
    ((0, -4, 3, 1, 0), False),
    ((-4, -1, 2, -2), False),
    ((-2,), False),
    ((-2, 1, 1), False),
    ((0, -3), False),
    ((-1,), False),
    ((-1, 0, 0), True),
    ((-3, 0), True),
    ((0, 2, -1, 3), False),
]


@pytest.mark.parametrize(("shape", "reverse"), RESHAPES)
def test_reshape_by_codes_with_a_dynamic_batch(shape, reverse):
    check_sizes("Reshape", X, attrs={"shape": shape, "reverse": reverse})


def test_reshape_of_old_graphs():
    check_op("Reshape", X, attrs={"target_shape": (0, 12)})
    check_sizes("Reshape", X, attrs={"target_shape": (0, 0), "keep_highest": True})


def test_a_reshape_that_fixes_the_batch_is_refused():
    net = mx.sym.Reshape(mx.sym.Variable("x"), shape=(4, 12), name="fixed")
    with pytest.raises(
        ArgumentError, match="the length 'batch' cannot be dynamic.*'fixed'.*0 and -1 leave it open"
    ):
        exported(net, {"x": X}, dynamic={"x": {0: "batch"}})


def test_reshape_with_two_dynamic_lengths():
    x = mx.sym.Variable("x")
    for shape in ((-3, 0), (0, -1), (0, -4, -1, 2, 0), (-1, 4), (0, 0, 2, 2), (-1,)):
        net = mx.sym.Reshape(x, shape=shape)
        model = exported(net, {"x": np.ones((2, 6, 4), "float32")}, dynamic={"x": {0: "batch", 1: "time"}})
        for sizes in ((2, 6), (3, 4)):
            data = np.random.rand(*sizes, 4).astype("float32")
            wanted = mx.nd.Reshape(mx.nd.array(data), shape=shape).asnumpy()
            assert np.array_equal(runtime_outputs(model, {"x": data})[0], wanted)


def test_reshape_like():
    check_sizes("reshape_like", X, X.reshape(4, 12))
    y = np.ones((4, 3, 2, 2), "float32")
    attrs = {"lhs_begin": 2, "lhs_end": 3, "rhs_begin": 2, "rhs_end": 4}
    check_sizes("reshape_like", X, y, attrs=attrs)


def test_squeeze_leaves_an_axis():
    one = np.ones((1, 1, 1), "float32")
    for attrs in ({}, {"axis": (0, 1, 2)}, {"axis": (1,)}, {"axis": (-1,)}):
        check_op("squeeze", one, attrs=attrs)
    check_sizes("squeeze", X[:, :1], attrs={"axis": (1,)})
    check_sizes("squeeze", X[:, :1, :1])


ENDS = [None, 0, 3, -2, 7, -9]


def test_ranges_with_nones_and_steps():
    x = np.arange(5, dtype="float32")
    for begin, end, step in itertools.product(ENDS, ENDS, (None, 2, -1, -2)):
        if len(x[begin:end:step]):
            check_op("slice", x, attrs={"begin": (begin,), "end": (end,), "step": (step,)})


def test_ranges_of_a_dynamic_batch():
    for begin, end, step in (
        (None, -1, None),
        (-2, None, None),
        (None, None, -1),
        (1, 3, 1),
        (None, None, 2),
    ):
        attrs = {"begin": (begin, 0), "end": (end, 2), "step": (step, 1)}
        check_sizes("slice", X, attrs=attrs)
        check_sizes("_slice_assign_scalar", X, attrs={"scalar": 2.5, **attrs})
    check_sizes("slice_axis", X, attrs={"axis": 0, "begin": -2, "end": None})
    check_sizes("slice_axis", X, attrs={"axis": 1, "begin": 1, "end": -1})


def test_assigned_ranges():
    for attrs in (
        {"begin": (1,), "end": (3,)},
        {"begin": (None, 2), "end": (None, 0), "step": (2, -1)},
        {"begin": (), "end": ()},
    ):
        part = X[tuple(slice(*r) for r in zip(attrs["begin"], attrs["end"], attrs.get("step", (1, 1))))]
        check_op("_slice_assign", X, np.full(part.shape, 7, "float32"), attrs=attrs)


def test_slice_like():
    y = np.ones((4, 2, 3), "float32")
    check_sizes("slice_like", X, y)
    check_sizes("slice_like", X, y, attrs={"axes": (1, -1)})
    check_sizes("slice_like", np.concatenate([X, X]), X[:, :, :2], axes=[0])


def test_broadcasting():
    one = X[:, :1]
    check_sizes("broadcast_to", one, attrs={"shape": (0, 5, 4)})
    check_sizes("broadcast_axis", one, attrs={"axis": (1,), "size": (3,)})
    check_sizes("broadcast_like", one, X)
    check_sizes("broadcast_like", X[:1], X, axes=[1])
    check_sizes("broadcast_like", X[:1, :, :1], X, attrs={"lhs_axes": (0,), "rhs_axes": (0,)}, axes=[1])


def test_repeated_elements():
    for attrs in ({"repeats": 3}, {"repeats": 2, "axis": 0}, {"repeats": 2, "axis": -1}):
        check_sizes("repeat", X, attrs=attrs)
    for reps in ((2,), (3, 1, 2), (2, 1, 1, 3)):
        check_sizes("tile", X, attrs={"reps": reps})


@pytest.mark.parametrize("mode", ["constant", "edge", "reflect"])
def test_padding(mode):
    x = np.random.rand(2, 2, 4, 5).astype("float32")
    attrs = {"mode": mode, "pad_width": (0, 0, 0, 0, 1, 2, 3, 0), "constant_value": -1.5}
    check_sizes("Pad", x, attrs=attrs)


@pytest.mark.parametrize("opset", [13, 17, 18, 21])
def test_pieces(opset):
    x = np.arange(24, dtype="float32").reshape(4, 6)
    for attrs in ({"num_outputs": 3}, {"num_outputs": 6, "squeeze_axis": True}, {"num_outputs": 1}):
        model = check_op("SliceChannel", x, attrs=attrs, opset=opset)
    for attrs in (
        {"indices": (0, 2, 5), "axis": 1},
        {"indices": (0, 1, 3), "axis": 0},
        {"sections": 2, "indices": ()},
    ):
        check_op("_split_v2", x, attrs={"axis": 0, **attrs}, opset=opset)
    # along the dynamic axis itself
    check_sizes("SliceChannel", x, attrs={"num_outputs": 2, "axis": 0}, opset=opset)
    check_sizes("_split_v2", x, attrs={"indices": (0, 1, 3), "axis": 0}, opset=opset)
    assert model.opset_import[0].version == opset


def test_types_that_are_joined():
    half, single = X.astype("float16"), X
    for narrow in (True, False):
        check_op("amp_multicast", half, single, attrs={"num_outputs": 2, "cast_narrow": narrow})
    check_op("amp_cast", X.astype("int32"), attrs={"dtype": "float16"})
    check_op("amp_cast", X, attrs={"dtype": "float16"})
    for dtype in TYPES:
        check_op("Cast", np.array([0.0, 1.7, 3.2], "float32"), attrs={"dtype": dtype})


def test_bfloat16_is_written():
    net = mx.sym.Cast(mx.sym.Cast(mx.sym.Variable("x"), dtype="bfloat16") * 3, dtype="float32")
    model = exported(net, {"x": X})
    assert onnx.TensorProto.BFLOAT16 in {each.i for node in model.graph.node for each in node.attribute}


def test_a_chain_of_dynamic_shapes():
    x = mx.sym.Variable("x")
    tall = mx.sym.repeat(x, repeats=3, axis=0)
    net = mx.sym.Reshape(mx.sym.broadcast_like(mx.sym.zeros_like(tall), tall) + tall, shape=(-4, -1, 3, -2))
    model = check_same(net, {"x": X}, dynamic={"x": {0: "batch"}})
    more = np.concatenate([X, X, X])
    assert np.array_equal(runtime_outputs(model, {"x": more})[0], np.repeat(more, 3, 0).reshape(12, 3, 3, 4))


# made from attributes alone

S = mx.sym


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"])
def test_types(dtype):
    for name, attrs in (
        ("_zeros", {"shape": (2, 3)}),
        ("_ones", {"shape": (2,)}),
        ("_full", {"shape": (2, 2), "value": 3.7}),
        ("_arange", {"start": 1, "stop": 9.5, "step": 2, "repeat": 2}),
        ("_linspace", {"start": 0, "stop": 7, "num": 5, "endpoint": False}),
        ("_eye", {"N": 3, "M": 4, "k": 1}),
    ):
        check_op(name, attrs={**attrs, "dtype": dtype})


def test_sizes_that_follow_from_elsewhere():
    """MXNet's recurrent cells begin from zeros whose batch is not said."""
    x = S.Variable("x")
    net = S.broadcast_add(S.zeros(shape=(0, 3), name="begin") + x, S.ones((1, 3)))
    model = check_same(net, {"x": np.ones((2, 3), "float32")}, dynamic=True)
    assert runtime_outputs(model, {"x": np.ones((5, 3), "float32")})[0].shape == (5, 3)


def test_a_length_that_only_another_value_has():
    wide = S.repeat(S.Variable("x"), repeats=2, axis=0)
    net = S.Group([wide, S._internal._zeros(shape=(0, 1)) + S.slice_axis(wide, axis=1, begin=0, end=1)])
    model = check_same(net, {"x": np.ones((2, 3), "float32")}, dynamic=True)
    assert runtime_outputs(model, {"x": np.ones((5, 3), "float32")})[1].shape == (10, 1)


# picking and writing by position in ONNX

DATA = np.arange(24, dtype="float32").reshape(4, 3, 2)
INDEX_TYPES = ["float32", "int32", "int64"]


@pytest.mark.parametrize("dtype", INDEX_TYPES)
def test_take(dtype):
    index = np.array([[0, 2], [5, -4]], dtype)
    for axis in (0, 1, -1):
        for mode in ("clip", "wrap"):
            check_op("take", DATA, index, attrs={"axis": axis, "mode": mode})
    check_op("take", DATA, np.array([1, 0], dtype), attrs={"axis": 1, "mode": "raise"})
    check_sizes("take", DATA, index, attrs={"axis": 0, "mode": "clip"}, axes=[0])
    check_sizes("take", DATA, index, attrs={"axis": 0, "mode": "wrap"}, axes=[0])
    check_sizes("take", DATA, index, axes=[1])


@pytest.mark.parametrize("dtype", INDEX_TYPES)
def test_pick(dtype):
    for axis, shape in ((0, (3, 2)), (1, (4, 2)), (-1, (4, 3))):
        index = (np.arange(np.prod(shape)) % 9 - 3).reshape(shape).astype(dtype)
        for mode in ("clip", "wrap"):
            for keepdims in (True, False):
                attrs = {"axis": axis, "mode": mode, "keepdims": keepdims}
                check_op("pick", DATA, index, attrs=attrs)
                check_op("pick", DATA, np.expand_dims(index, axis), attrs=attrs)
    check_sizes("pick", DATA[:, :, 0], np.array([0, 2, 1, 7], dtype))
    check_op("pick", np.array([1.0, 5.0, 2.0], "float32"), np.array([1], dtype), attrs={"axis": 0})
    check_sizes("batch_take", DATA[:, :, 0], np.array([0, 2, -1, 7], dtype))


def test_one_hot_has_rows_without():
    index = np.array([[0, 2], [-1, 3]], "float32")
    for dtype in ("float16", "float32", "float64", "int8", "uint8", "int32", "int64"):
        check_sizes("one_hot", index, attrs={"depth": 3, "dtype": dtype})
    check_op("one_hot", index.astype("int32"), attrs={"depth": 3, "on_value": 2.5, "off_value": -1})
    check_sizes("_onehot_encode", np.array([0, 2, 1, 1], "float32"), np.zeros((4, 3), "float32"))


@pytest.mark.parametrize("dtype", ["float16", "float32", "float64", "int8", "uint8", "int32", "int64"])
def test_where(dtype):
    x, y = (DATA.astype(dtype), (DATA + 50).astype(dtype))
    for condition in (DATA % 2, (DATA % 3).astype("int32"), np.array([1, 0, 0, 2], "float32"), DATA > 5):
        check_sizes("where", condition, x, y)


def test_gather_and_scatter_by_several_positions():
    index = np.array([[0, 3, 1], [2, 0, 1]], "int64")
    check_op("gather_nd", DATA, index)
    check_op("gather_nd", DATA, index.astype("float32"))
    check_op("gather_nd", DATA, index[:, :, None])
    check_op("gather_nd", DATA, np.array([[1, 2]]))
    check_op("gather_nd", DATA, np.array([1, 2]))
    check_op("scatter_nd", DATA[:3, 0], index, attrs={"shape": (4, 3, 2)})
    check_op("scatter_nd", np.array([1, 2, 3], "float32"), index[:1], attrs={"shape": (4,)})
    check_op("_scatter_set_nd", DATA, -DATA[:3, 0], index, attrs={"shape": (4, 3, 2)})
    check_op("fill_element_0index", DATA[:, :, 0], DATA[:, 0, 0] - 9, np.array([0, 2, 1, 1], "float32"))


@pytest.mark.parametrize("opset", [13, 16, 21])
@pytest.mark.parametrize("dtype", ["float32", "float16", "int32"])
def test_scattered_elements_add_up(opset, dtype):
    index = np.array([[0, 3, 0], [2, 0, 2]], "int64")
    check_op("_backward_gather_nd", DATA[:3, 0].astype(dtype), index, attrs={"shape": (4, 3, 2)}, opset=opset)
    part = np.array([1, 2, 3]).astype(dtype)
    check_op("_backward_gather_nd", part, index, attrs={"shape": (4, 3)}, opset=opset)
    check_op("_scatter_add_nd", DATA.astype(dtype), DATA[:3, 0].astype(dtype), index, opset=opset)


def test_diagonals():
    for k in (-2, -1, 0, 1):
        check_op("diag", DATA[0, :, 0], attrs={"k": k})
        check_op("diag", DATA[0], attrs={"k": k} if k > -3 else {})
    check_sizes("diag", DATA, attrs={"k": 0, "axis1": 1, "axis2": 2})
    check_op("diag", DATA, attrs={"k": -1, "axis1": 0, "axis2": -2})
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
    check_sizes("_sparse_retain", DATA, np.array([2, 0], "int64"), axes=[0])
    check_op("_sparse_retain", DATA, np.array([3.0, 3.0, 1.0], "float32"))
