"""Wrong calls of operators: of their shape rules, and of the operators on zeros."""

import numpy as np
import torch

import dpmodule as mx
from dpmodule import ops
from dpmodule.base import (
    ArgumentError,
    BoundsError,
    DTypeError,
    FileError,
    FileFormatError,
    NodeError,
    OpError,
    ShapeError,
)
from dpmodule.ops.image import decode, encode, make_border, resize
from dpmodule.ops.nn import rnn_weights
from helpers.arrays import f4, f8, i4, i8
from helpers.op_case import environment, outputs, run, shapes
from helpers.pictures import file_of

I = mx.nd._internal  # noqa: E741
ONES, BLOCK, PIXEL = mx.nd.ones, (2, 3, 4), (1, 2, 1)
ROIS = {"pooled_size": (2, 2), "spatial_scale": 1.0}


def rule(pattern, name, *ins, error=ShapeError, **attrs):
    """Return a row of a shape rule."""
    return lambda: shapes(name, list(ins), **attrs), error, pattern


def zeros(name, *ins, **attrs):
    return lambda: outputs(name, *map(np.zeros, ins), **attrs)


def both(pattern, name, *ins, error=ShapeError, **attrs):
    """Return the rows of a shape rule and of a call with zeros."""
    return [rule(pattern, name, *ins, **attrs), (zeros(name, *ins, **attrs), error, pattern)]


def imperative(name, *ins):
    return lambda: getattr(mx.nd, name, getattr(I, name, None))(*map(ONES, ins))


def zeros_at(name, image):
    """Return a pooling of a region of an image that does not exist."""
    return lambda: run(name, np.ones((2, 1, 4, 4)), f8([[image, 0, 0, 2, 2]]), **ROIS)


CODES = [
    (-1, -1), (0, 0, 0, 0), (-4, 2, 3, 0, 0), (-4, -1, -1, 0, 0), (-3, -3), (5, -1), (25,), (0, -5), (-2, 0), (-4, 2),
]  # fmt: skip

ARRAY = [
    *[row for a in [(0, 1), (0, 1, 3)] for row in both("axes", "transpose", BLOCK, error=OpError, axes=a)],
    *[row for axis in (1, 3) for row in both("axis", "squeeze", PIXEL, error=OpError, axis=axis)],
    rule("multiple", "depth_to_space", (2, 6, 3, 2), block_size=2),
    (zeros("space_to_depth", (1, 1, 3, 4), block_size=2), OpError, "multiples of 2"),
    (lambda: I._set_value(3), ArgumentError, "out"),
    (lambda: I._zeros_without_dtype(), OpError, "shape is None"),
    (lambda: mx.nd.fill_element_0index(mx.nd.zeros((2, 3)), ONES((3,)), ONES((3,))), ShapeError, "disagree"),
    (lambda: shapes("_zeros", [], [(5, 4)], shape=(0, 3)), ShapeError, "5, 4"),
    (lambda: run("_arange", start=2, infer_range=True), OpError, "infer_range"),
    (lambda: mx.nd.broadcast_like(ONES((1, 2)), ONES((3, 2)), lhs_axes=(), rhs_axes=()), ShapeError, "are empty"),
    rule("equal lengths", "broadcast_like", PIXEL, (5, 6), lhs_axes=(0, 2), rhs_axes=(0,)),
    *[row for to in [(2, 2), (3, 1, 4)] for row in both("_to", "broadcast_to", (2, 1, 4), shape=to)],
    rule("reps", "tile", (2, 3), reps=(0, 1)),
    (lambda: mx.nd.tile(ONES((4, 4)), (1, 2, -3)), OpError, "positive numbers"),
    *both("8 numbers", "Pad", (1, 1, 3, 3), error=OpError, mode="edge", pad_width=(0, 0, 0, 0, 1, 1)),
    *both("at least 0", "Pad", (1, 1, 3, 3), error=OpError, mode="edge", pad_width=(0, 0, 0, 0, -1, 1, 0, 0)),
    *both("first two", "Pad", (1, 1, 3, 3), error=OpError, mode="edge", pad_width=(1, 0, 0, 0, 1, 1, 0, 0)),
    *both("reflection", "Pad", (1, 1, 3, 3), error=OpError, mode="reflect", pad_width=(0, 0, 0, 0, 3, 1, 0, 0)),
    (lambda: run("take", f4([1, 2, 3]), i4([-1, 2]), mode="raise"), BoundsError, "expected 0 to 2"),
    (zeros("pick", (2, 3), (1,), axis=None), OpError, "axis is None"),
    *both(r"\(1, 3\)", "pick", BLOCK, (1, 3)),
    (zeros("where", (2, 1), (2, 2), (2, 2)), ShapeError, "one shape"),
    rule("3", "where", (3,), (2, 2), (2, 2)),
    (lambda: run("gather_nd", np.zeros(BLOCK), f8([[5]])), BoundsError, r"\(2, 3, 4\)"),
    rule("4 axes", "gather_nd", BLOCK, (4, 2)),
    *both("no diagonal", "diag", (2, 3), k=5),
    rule("Concat", "Concat", (2, 3), BLOCK, dim=1),
    (lambda: shapes("Concat", [(2, 3), None], [(2, 3)], dim=1), ShapeError, "leave no equal sizes"),
    rule("stack", "stack", (2, 3), (2, 4)),
    *both("2 equal pieces", "SliceChannel", BLOCK, error=OpError, num_outputs=2),
    rule("expected 1", "SliceChannel", BLOCK, num_outputs=2, axis=2, squeeze_axis=True),
    rule("_split_v2", "_split_v2", BLOCK, indices=(0, 3, 1), axis=2),
    *[row for codes in CODES for row in both("reshape codes", "Reshape", BLOCK, shape=codes)],
    (zeros("Reshape", (2, 3)), OpError, "shape is"),
    rule("7", "reshape_like", (2, 3), (7,)),
    rule("step", "slice", BLOCK, begin=(0,), end=(2,), step=(0,)),
    rule("equal lengths", "slice", BLOCK, begin=(0, 1), end=(2,)),
    rule("at most 3", "slice", BLOCK, begin=(0,) * 4, end=(1,) * 4),
    rule("is empty", "slice", BLOCK, begin=(1,), end=(1,)),
    *both(r"\(1, 2\)", "_slice_assign", (3, 3), (1, 2), begin=(0, 1), end=(2, 3)),
    rule("select nothing", "slice_axis", BLOCK, axis=1, begin=0, end=4),
    *[
        (lambda b=b, e=e: run("slice_axis", np.zeros(BLOCK), axis=1, begin=b, end=e), OpError, "select nothing")
        for b, e in [(-4, None), (2, 2)]
    ],
    rule("equal ranks", "slice_like", BLOCK, (1, 2)),
    (zeros("slice_like", BLOCK, (1, 5, 1)), OpError, "shorter"),
    (lambda: mx.nd.ravel_multi_index(ONES((2, 3))), OpError, "shape is None"),
    (lambda: mx.nd.ravel_multi_index(ONES((2, 3)), shape=(1, 2, 3)), ShapeError, "expected"),
    *both("at most 5", "topk", (5,), error=OpError, k=9),
    (lambda: mx.sym.histogram(mx.sym.var("data"), bins=3), ArgumentError, "range is None"),
    (lambda: mx.nd.histogram(ONES((2,)), bins=3, range=(1, 0)), OpError, "ascending"),
    (lambda: mx.nd.histogram(ONES((2,)), bins=ONES((1,))), ShapeError, "bins"),
]  # fmt: skip
MATH = [
    rule(r"\(2, 3\).*\(2, 4\)", "broadcast_add", (2, 3), (2, 4)),
    rule("4 and 5", "dot", BLOCK, (5, 2)),
    rule("at least 3", "batch_dot", (1, 3), (3, 1)),
    *both("batch_dot", "batch_dot", (2, 1, 3), (1, 3, 1)),
    rule("axis", "_linalg_gemm2", (3, 3), (3, 3), axis=-1),
    *[
        row
        for name, *ins in [
            ("_linalg_gemm2", (3, 4), (5, 6)),
            ("_linalg_gemm2", BLOCK, (3, 4, 5)),
            ("_linalg_gemm2", (3,), (3,)),
            ("_linalg_trsm", (2, 2), (3, 3)),
            ("_linalg_potrf", (2, 3)),
            ("_linalg_gelqf", (3, 2)),
            ("_linalg_maketrian", (4,)),
            ("khatri_rao", (2, 3), (2, 4)),
        ]
        for row in (
            rule(name, name, *ins),
            (imperative(name, *ins), ShapeError, "expected|contracted axes|disagree"),
        )
    ],
    (zeros("_linalg_extractdiag", (3, 3), offset=3), ShapeError, "offset"),
    (lambda: mx.nd.linalg.potrf(mx.nd.array([[-4, 1], [1, 3]])), OpError, "positive definite"),
    (lambda: mx.nd.khatri_rao(), OpError, "at least one matrix"),
    rule("argmax_channel", "argmax_channel", (3,)),
    *[row for axis in (3, (0, 0)) for row in both("axis", "sum", BLOCK, error=OpError, axis=axis)],
]
FC, CONV, DECONV, BN, OUTPUT = "FullyConnected", "Convolution", "Deconvolution", "BatchNorm", "SoftmaxOutput"
IMAGE, TINY, LINEAR = (1, 2, 4, 4), (1, 2, 3, 3), "LinearRegressionOutput"
WINDOW = {"kernel": (2, 2), "num_filter": 2, "no_bias": True}
AFFINE = {"transform_type": "affine", "target_shape": (4, 5)}
TRANSFORMER = {**AFFINE, "sampler_type": "bilinear"}
CELL = {"state_size": 3, "num_layers": 1}
GRU = {**CELL, "mode": "gru"}
DATA, X = (4, 3, 2), mx.sym.Variable("x")  # the data of a recurrent network


def ctc(labels, **more):
    flags = {f"use_{key}": True for key in more}
    arrays = {key: mx.nd.array(value) for key, value in more.items()}
    return lambda: mx.nd.CTCLoss(mx.nd.zeros((4, 1, 3)), mx.nd.array(labels), **arrays, **flags).asnumpy()


def recurrent(data, parameters, *states, **attrs):
    """Return a call with arrays of these shapes, or of these types."""
    return lambda: mx.nd.RNN(*map(mx.nd.zeros, (data, (parameters,), *states)), **{**GRU, **attrs})


def mixed_types():
    zeros = {"r_parameters": mx.nd.zeros((63,)), "r_state": mx.nd.zeros((1, 3, 3))}
    net = mx.sym.RNN(X, **GRU, name="r")
    net.bind(mx.cpu(), {"x": mx.nd.zeros(DATA, dtype="float64"), **zeros}).forward()


NN = [
    (lambda: ops.get("Activation").parse({"act_type": "swish"}), OpError, "act_type is 'swish', expected one of relu"),
    (lambda: ops.get("Dropout").parse({"p": 1.5}), OpError, "p is 1.5, expected a number from 0 to 1"),
    rule("moving_mean has shape", BN, (4, 3), None, None, (2,), None),
    rule("axis is 2", BN, (4, 3), None, None, None, None, axis=2),
    rule("kernel size 5 exceeds the input", CONV, IMAGE, None, None, num_filter=4, kernel=(5, 5)),
    rule("stride is", CONV, IMAGE, None, None, num_filter=4, kernel=(3, 3), stride=(1,)),
    rule("num_group is 2", CONV, (1, 3, 4, 4), None, None, num_filter=4, kernel=(3, 3), num_group=2),
    (lambda: mx.sym.Convolution(X, X, X, kernel=(3,), num_filter=4, no_bias=True), OpError, "got 3 inputs"),
    rule(r"is \(9, 9\), expected 1 to \(4, 4\)", DECONV, TINY, None, **WINDOW, target_shape=(9, 9)),
    rule(r"stride is \(0, 2\), expected at least 1", CONV, TINY, None, **WINDOW, stride=(0, 2)),
    rule(r"stride is \(0, 2\), expected at least 1", DECONV, TINY, None, **WINDOW, stride=(0, 2)),
    rule(r"pad is \(-1, 0\), expected at least 0", "Pooling", IMAGE, kernel=(2, 2), pad=(-1, 0)),
    rule(r"dilate is \(1, 0\), expected at least 1", CONV, TINY, None, **WINDOW, dilate=(1, 0)),
    (imperative("InstanceNorm", (4, 3), (3,), (3,)), ShapeError, r"\(4, 3\), expected at least 3 axes"),
    rule("adj is", DECONV, TINY, None, **WINDOW, adj=(1, 1)),
    rule("which makes the output .* empty", DECONV, TINY, None, **WINDOW, pad=(2, 2)),
    rule(r"weight .*\(5, 9\), expected \(5, 3\) from data", FC, (7, 3), (5, 9), num_hidden=5, no_bias=True),
    rule(r"bias has shape \(4, 1\)", FC, (7, 3), None, (4, 1), num_hidden=5),
    rule("weight has shape", "Embedding", (2, 5), (9, 3), input_dim=4, output_dim=3),
    rule("label", LINEAR, (4, 1), (2, 2)),
    rule("flatten", "IdentityAttachKLSparseReg", BLOCK, None),
    (ctc([[1, 2, 1, 2, 1]]), ShapeError, "at most the 4 steps"),
    (ctc([[1, 2], [1, 2]]), ShapeError, "label has shape"),
    (ctc([[1, 3]]), OpError, "label has values from 1 to 3, expected 0 to 2"),
    (ctc([[1, 2]], data_lengths=[5]), OpError, "data_lengths has values from 5 to 5, expected 0 to 4"),
    (ctc([[1, 2]], label_lengths=[3]), OpError, "label_lengths has values from 3 to 3, expected 0 to 2"),
    rule("num_groups is 4", "GroupNorm", (2, 6, 3), None, None, num_groups=4),
    rule("at least 3 axes in mode channel", "L2Normalization", (4, 3), mode="channel"),
    rule("at least 3 axes", "InstanceNorm", (4, 3), None, None),
    rule("one per spatial axis", "Pooling", IMAGE, kernel=(2,)),
    *both("pad is .*expected none with", "Pooling", IMAGE, kernel=(2, 2), pad=(1, 1), pooling_convention="same"),
    rule("p_value is None", "Pooling", IMAGE, kernel=(2, 2), pool_type="lp"),
    rule("expected 4 or 5 axes", "Pooling_v1", BLOCK, kernel=(2,)),
    rule("one per spatial axis", "Pooling_v1", IMAGE, kernel=(2,)),
    rule(r"data has shape \(4,\), expected \(0, 0, 0\)", "RNN", (4,), None, None, **GRU),
    rule("parameters have 64 elements, expected 54 plus 9", "RNN", None, (64,), None, **GRU),
    rule("projection_size is 2 .*only lstm projects", "RNN", DATA, None, None, **GRU, projection_size=2),
    (lambda: [*rnn_weights.blocks("elman", 1, 2, 3)], OpError, "mode is 'elman', expected one of rnn_relu"),
    (recurrent((3, 2), 63, (1, 3, 3)), ShapeError, "expected"),
    (mixed_types, NodeError, "RNN 'r' .*dtype"),
    (recurrent(DATA, 62, (1, 3, 3)), ShapeError, r"parameters has shape \(62,\), expected \(63,\)"),
    (recurrent(DATA, 84, (1, 4, 3), (1, 3, 3), mode="lstm"), ShapeError, "state.* has shape"),
    *[
        (lambda n=n: run("RNN", *map(np.zeros, (DATA, 63, (1, 3, 3))), i8(n), **GRU, use_sequence_length=True), OpError,
         r"sequence_length is \[\d, \d, \d\], expected lengths from 1 to 4")
        for n in ([0, 1, 2], [1, 2, 5])
    ],
    *[
        (zeros_at("ROIPooling", image), BoundsError, rf"has image {image} .* expected 0 to 1 as data has 2 images")
        for image in (-1, 2)
    ],
    rule(r"rois has shape \(4, 6\)", "ROIPooling", (2, 7, 8, 8), (4, 6), pooled_size=(2, 3), spatial_scale=1),
    rule("expected 4 axes", "ROIPooling", (2, 7, 8), (4, 5), pooled_size=(2, 3), spatial_scale=1),
    rule("from 0 to 1", "ROIPooling", (2, 7, 8, 8), (4, 5), pooled_size=(2, 2), spatial_scale=2, error=OpError),
    rule("two positive integers", "ROIPooling", (2, 7, 8, 8), (4, 5), pooled_size=(2,), spatial_scale=1, error=OpError),
    *[
        row
        for name in ("SequenceMask", "SequenceLast", "SequenceReverse")
        for row in [
            rule(r"sequence_length .*\(4,\), expected \(3,\)", name, (5, 3, 2), (4,), use_sequence_length=True),
            *both("at least 2 axes", name, (5,)),
            (zeros(name, (3, 2), (1,), use_sequence_length=True), ShapeError, r"shape \(1,\), expected \(2,\)"),
        ]
    ],
    *[(zeros(n, (2, 3), use_length=True), OpError, f"{n} takes no length") for n in ("log_softmax", "softmin")],
    rule(r"label has shape \(5,\), expected \(4,\) from data \(4, 3\)", OUTPUT, (4, 3), (5,)),
    rule("at least 2 axes with multi_output", OUTPUT, (4,), None, multi_output=True),
    rule("data has shape", "GridGenerator", (1, 5), **AFFINE),
    *both("data has shape", "GridGenerator", (1, 3, 4, 4), transform_type="warp"),
    rule("axis is 2", "LayerNorm", (4, 3), None, None, axis=2),
    rule("grid has shape", "BilinearSampler", TINY, (2, 2, 3, 3)),
    rule("loc has shape", "SpatialTransformer", TINY, (1, 5), **TRANSFORMER),
    rule("target_shape is", "SpatialTransformer", TINY, (1, 6), **{**TRANSFORMER, "target_shape": (0, 3)}),
    rule(r"size \(6, 1\), .* within \(5, 5\)", "Crop", (1, 1, 5, 5), h_w=(6, 1)),
    rule("h_w is", "Crop", (1, 1, 5, 5)),
    rule(r"offset is \(4, 0\)", "Crop", (1, 1, 5, 5), h_w=(2, 2), offset=(4, 0)),
    rule("the second input has shape", "Crop", (1, 1, 5, 5), (1, 2, 2)),
    rule("data has shape", "Crop", (1, 5, 5), h_w=(1, 1)),
    rule("expected 4 axes", "UpSampling", BLOCK, scale=2, sample_type="nearest"),
    rule("one per axis", "im2col", (1, 1, 4), kernel=(2, 2)),
    rule("expected", "col2im", (1, 4, 5), kernel=(2, 2), output_size=(3, 3)),
    rule("3 axes", "col2im", (4, 4), kernel=(2, 2), output_size=(3, 3)),
    rule("raise pad_size", "Correlation", (1, 2, 5, 5), (1, 2, 5, 5), max_displacement=3),
    rule("odd number", "Correlation", (1, 2, 5, 5), (1, 2, 5, 5), kernel_size=2),
    (zeros("Correlation", (1, 2, 5, 5), (1, 2, 5, 5), kernel_size=2), OpError, "odd number"),
    rule("5, 6", "Correlation", (1, 2, 5, 5), (1, 2, 5, 6)),
    *both("data1 and data2", "Correlation", (1, 2, 5, 5), (2, 2, 5, 5)),
    *[
        (zeros(name, (1,) * 6, (1,) * 6, kernel=(1,) * 4, num_filter=1, no_bias=True), ShapeError, "1, 2 or 3 values")
        for name in (CONV, DECONV)
    ],
    (
        lambda: shapes(CONV, [(2, 3, 0, 0), None, None], [(2, 2, 1, 1)], kernel=(2, 2), pad=(2, 2), num_filter=2),
        ShapeError,
        "output of size 1 is too small",
    ),
]  # fmt: skip
C, NMS, PRIOR, ROI_ALIGN = mx.nd.contrib, "_contrib_box_nms", "_contrib_MultiBoxPrior", "_contrib_ROIAlign"
TARGET, DETECTION, DEFORMABLE = (
    "_contrib_MultiBoxTarget",
    "_contrib_MultiBoxDetection",
    "_contrib_DeformableConvolution",
)
RESIZE, POOL, PROPOSAL = "_contrib_BilinearResize2D", "_contrib_AdaptiveAvgPooling2D", "_contrib_Proposal"
SCALES = {"scales": (1.0,), "ratios": (1.0,), "feature_stride": 16, "rpn_min_size": 0}
PSROI = "_contrib_PSROIPooling"
FEATURES, DEFORMED = (2, 4, 8, 9), {"kernel": (3, 3), "pad": (1, 1), "num_filter": 2}


def one(value):
    return mx.nd.array([value])


def proposals(info=(32.0, 48.0, 1.0), images=1, **attrs):
    given = np.zeros((images, 2, 2, 3)), np.zeros((images, 4, 2, 3)), np.tile(info, (images, 1))
    return lambda: run(PROPOSAL, *given, **{**SCALES, **attrs})


def hawkes():
    sizes = [ONES(s) for s in ((1, 2), (2,), (2,), (1, 2), (1, 3))]
    return C.hawkesll(*sizes, mx.nd.array([[0, 1, 2]], dtype="int32"), ONES((1,)), ONES((1,)))


def attention(name, *ins):
    name = f"interleaved_matmul_{name}"
    return [
        rule("expected", f"_contrib_{name}", *ins, heads=3),
        (lambda: getattr(C, name)(*map(ONES, ins), heads=3), ShapeError, "expected"),
    ]


def whole(values, kind="int8"):
    return mx.nd.array(values, dtype=kind)


PIXELS, PICTURE = np.ones((1, 3, 4, 4)), mx.nd.zeros((5, 7, 3), dtype="uint8")
CONTRIB = [
    (lambda: C.boolean_mask(ONES((2, 3)), mx.nd.zeros((3,)), axis=1), OpError, "axis"),
    (lambda: C.boolean_mask(ONES((2, 3)), mx.nd.zeros((3,))), ShapeError, "index"),
    (lambda: C.index_copy(mx.nd.zeros((3, 2)), one(3), ONES((1, 2))), BoundsError, "expected 0 to 2"),
    (lambda: C.index_copy(mx.nd.zeros((3, 2)), one(1), ONES((2, 2))), ShapeError, "new_tensor"),
    rule("getnnz", "_contrib_getnnz", BLOCK),
    rule("score_index is 3", NMS, (4, 6), score_index=3),
    rule("must be different positions", NMS, (4, 6), id_index=1),
    rule("lhs has shape", "_contrib_box_iou", (3, 5), (5, 4)),
    rule(r"offset has shape .* expected \(2, 18, 8, 9\)", DEFORMABLE, FEATURES, (2, 17, 8, 9), None, None, **DEFORMED),
    rule("num_deformable_group 3", DEFORMABLE, FEATURES, None, None, None, num_deformable_group=3, **DEFORMED),
    rule(r"expected \(N, C, H, W\) and", DEFORMABLE, (2, 4, 8), None, None, None, kernel=(3,), num_filter=2),
    rule("even", "_contrib_ifft", (2, 5)),
    (lambda: C.count_sketch(ONES((2, 2)), ONES((1, 2)) * 3, ONES((1, 2)), out_dim=3), BoundsError, "expected 0 to 2"),
    (hawkes, OpError, "marks"),
    (zeros(PRIOR, (1, 1, 2, 2), offsets=(0.5, 1.5)), OpError, "expected offsets within"),
    (zeros(PRIOR, (1, 1, 2, 2), steps=(0.1,)), OpError, "expected 2 numbers"),
    rule("expected 7 anchors", TARGET, (1, 7, 4), (2, 3, 5), (2, 4, 8)),
    rule("differ in the number of anchors", DETECTION, (2, 4, 7), (2, 27), (1, 7, 4)),
    (proposals(ratios=(1.0, 2.0)), OpError, "2 channels, expected 4"),
    (proposals(info=(64.0, 80.0, 33.0)), OpError, "expected at most feature_stride 16 times"),
    (proposals(images=2), OpError, "2 images, expected 1"),
    rule("expected 4 axes", PROPOSAL, (1, 2, 3), None, None),
    rule("expected both", RESIZE, (1, 1, 4, 4), scale_height=2.0),
    rule("expected positive sizes", RESIZE, (1, 1, 4, 4), scale_height=0.1, scale_width=1.0),
    rule("4 axes", RESIZE, (1, 4, 4)),
    rule("4 axes", RESIZE, (1, 1, 4, 4), (4, 4), mode="like"),
    rule("one or two positive numbers", POOL, (1, 1, 4, 4), output_size=(1, 2, 3)),
    (lambda: run(ROI_ALIGN, PIXELS, f8([[0, 2, 2, 2, 3]]), aligned=True, **ROIS), OpError, "has no area"),
    (lambda: run(ROI_ALIGN, PIXELS, f8([[1, 2, 2, 2, 3]]), **ROIS), BoundsError, "has image 1"),
    rule("multiple of 4", ROI_ALIGN, (1, 3, 4, 4), (1, 5), position_sensitive=True, **ROIS),
    rule(r"group_size \*\* 2 = 8", PSROI, (1, 3, 4, 4), (1, 5), **{**ROIS, "pooled_size": 2}, output_dim=2),
    *attention("selfatt_qk", (5, 2, 35)),
    *attention("selfatt_valatt", (5, 2, 36), (6, 5, 4)),
    *attention("encdec_qk", (5, 2, 12), (7, 3, 24)),
    *attention("encdec_valatt", (7, 2, 24), (6, 5, 5)),
    (lambda: C.quantize(whole([1]), one(0), one(1)), DTypeError, "expected"),
    (lambda: C.dequantize(ONES((2,)), one(0), one(1)), DTypeError, "expected"),
    (lambda: C.quantized_elemwise_mul(whole([1], "uint8"), whole([1]), *[one(1)] * 4), DTypeError, "expected"),
    (lambda: C.quantized_act(whole([1]), one(0), one(1), act_type="tanh"), OpError, "act_type"),
    (lambda: C.quantized_pooling(whole([[[[1]]]]), one(0), one(1), pool_type="sum"), OpError, "pool_type"),
    (lambda: C.quantized_elemwise_add(whole([1]), whole([1]), *[one(1)] * 4, min_calib_range=1), OpError, "only one"),
    (lambda: C.quantized_batch_norm(whole([[1, 1]]), *[ONES((2,))] * 4, one(0), one(1)), OpError, "min_calib_range"),
    (lambda: C.calibrate_entropy(ONES((5,)), ONES((5,))), OpError, "hist_edges"),
    (lambda: C.calibrate_entropy(ONES((5,)), ONES((6,))), OpError, "at least 255"),
]  # fmt: skip
HALF, FULL, RATES = mx.nd.ones((2,), dtype="float16"), ONES((2,)), {"lrs": (0.5, 0.25), "wds": (0.0, 0.5)}
RANDOM = [
    (lambda: run("_random_uniform", shape=(0, 3), env=environment(seed=1)), OpError, "positive dimensions"),
    (lambda: run("_random_randint", low=5, high=5, shape=1), OpError, "low is 5, expected less than high 5"),
    *[
        (lambda name=name, attrs=attrs: run(f"_random_{name}", shape=(1,), **attrs), OpError, text)
        for name, attrs, text in [
            ("uniform", {"low": 2, "high": 1}, "low is 2"),
            ("normal", {"scale": -1}, "scale is -1"),
            ("negative_binomial", {"p": 0}, "p is 0"),
        ]
    ],
    rule("first", "_random_pdf_dirichlet", (2, 5, 3), (2, 4)),
    (lambda: mx.nd.random_pdf_poisson(ONES((3, 2)), FULL), ShapeError, "first"),
    (lambda: I._sample_unique_zipfian(3, shape=(1, 4)), OpError, "at most 3"),
]
UPDATE = [
    (lambda: mx.nd.multi_sgd_update(*[FULL] * 3, num_weights=2, **RATES), OpError, "num_weights is 2, but 3 inputs"),
    (lambda: mx.nd.multi_sgd_update(FULL, FULL, num_weights=1, **RATES), OpError, "rates for 2 weights"),
    (lambda: mx.nd.multi_sgd_update(*[FULL] * 4, num_weights=2, lrs=(1, 1), wds=(1,)), OpError, "2 numbers and wds 1"),
    (lambda: mx.nd.mp_sgd_update(HALF, HALF, HALF, lr=0.1), DTypeError, "float32"),
    (lambda: mx.nd.mp_sgd_update(HALF, FULL, FULL, lr=0.1), DTypeError, "grad is float32"),
    (lambda: mx.nd.sgd_mom_update(FULL, FULL, ONES((3,)), lr=0.1), ShapeError, "sgd_mom_update"),
]  # fmt: skip
SPARSE = [
    (zeros("cast_storage", (2, 2), stype="coo"), OpError, "stype"),
    (lambda: mx.nd.dot(ONES((2, 2)).tostype("csr"), ONES((2, 2), dtype="f8")), DTypeError, "with astype"),
    (lambda: mx.nd.sparse.retain(ONES((4, 2)).tostype("row_sparse"), one(9)), BoundsError, "row 9"),
]


def texts(text):
    """Return the rows of an attribute that is not what it should be."""
    shape = mx.sym.Variable("x", __shape__=f"({text},)")
    dense = lambda: mx.sym.FullyConnected(X, num_hidden=text)  # noqa: E731
    return [(dense, OpError, "num_hidden is .*, expected"), (shape.infer_shape, ShapeError, "__shape__ is")]


ATTRIBUTES = [row for text in ["16LL", "1.5L", "u'16"] for row in texts(text)]
BYTES, CROP = torch.zeros(2, 2, 3, dtype=torch.uint8), {"x": 5, "y": 0, "width": 3, "height": 2}
IMAGES = [
    *[
        (lambda data=data: decode(data), FileFormatError, text)
        for data, text in [
            (b"", "the file is empty"),
            (b"version https://git-lfs.github.com/spec/v1", "git lfs pull"),
            (b"<!DOCTYPE html><html>", "HTML page"),
            (b"nonsense", "no known image format"),
            (file_of("wide")[:400], "of 400 bytes cannot be decoded"),
        ]
    ],
    *[
        (lambda given=given: encode(*given), ArgumentError, "encode")
        for given in [
            (np.zeros((2, 2, 3)), ".png", 3),
            (np.zeros(4, np.uint8), ".png", 3),
            (np.zeros((2, 2, 2), np.uint8), ".png", 3),
            (np.zeros((2, 2), np.uint8), ".xyz", 3),
            (np.zeros((2, 2), np.uint8), ".jpg", 0),
        ]
    ],
    rule("expected .height, width, channels.", "_cvimresize", (7, 8), w=4, h=5),
    (lambda: I._cvimread("nothing.png"), FileError, "nothing.png"),
    (lambda: I._cvimresize(mx.nd.zeros((2, 2, 1), dtype="float16"), w=2, h=2), DTypeError, "float16"),
    (lambda: I._cvcopyMakeBorder(ONES((2, 2, 1)), 1, 1, 1, 1, values=(1,) * 5), OpError, "5 numbers"),
    (lambda: make_border(BYTES, -1, 0, 0, 0), ArgumentError, "margins are -1"),
    (lambda: make_border(BYTES, 1, 0, 0, 0, 7), ArgumentError, "border type is 7"),
    (lambda: resize(BYTES[0], 2, 2, 1), ArgumentError, r"shape \(2, 3\)"),
    (lambda: resize(BYTES, 0, 2, 1), ArgumentError, "0 x 2"),
    (lambda: resize(BYTES.int(), 3, 2, 1), DTypeError, "cast it first"),
    *[
        (lambda n=n, shape=shape, a=attrs: getattr(mx.nd.image, n)(ONES(shape), **a), ShapeError, n)
        for n, shape, attrs in [
            ("flip_left_right", (2, 5, 7, 3), {}),
            ("to_tensor", (5, 7), {}),
            ("crop", (5, 7, 3), CROP),
            ("normalize", (5, 7, 4), {"mean": (0.5,), "std": (1.0,)}),
        ]
    ],
    (lambda: mx.nd.image.resize(PICTURE, size=(1, 2, 3)), OpError, "size"),
    (lambda: mx.nd.image.crop(PICTURE, **{**CROP, "x": -1}), OpError, "x is -1"),
    (lambda: mx.nd.image.adjust_lighting(PICTURE, alpha=(1.0,)), OpError, "alpha"),
]
NUMPY = [
    *both("axis 1 has size 3, expected 1", "_np_squeeze", (2, 3), error=OpError, axis=(1,)),
    (zeros("_np_roll", (2,)), OpError, "shift is None"),
    *both(
        "cannot be split into 2 equal pieces", "_npi_hsplit", (2, 3), error=OpError, indices=(), sections=2
    ),
    *both("expected 2 pairs", "_npi_pad", (2, 3), error=OpError, pad_width=((1, 1),)),
    (zeros("_npi_pad", (2,), pad_width=((1, -1),)), OpError, "a pair of numbers for each axis"),
    *both("outside the axis of 3 elements", "_npi_delete", (3,), error=BoundsError, int_ind=4),
    (zeros("_npi_boolean_mask_assign_scalar", (2,), (2, 2), value=1), ShapeError, "at most 1, those of data"),
    rule("does not take inputs", "_npi_matmul", (2, 3), (4, 2)),
    rule("do not broadcast", "_npi_add", (2, 3), (2,)),
    rule("expected -2 to 1", "_np_sum", (2, 3), axis=(2,)),
    rule("contains one axis twice", "_np_max", (2, 3), axis=(1, -1)),
]
ROWS = [*IMAGES, *NUMPY, *ARRAY, *MATH, *NN, *CONTRIB, *RANDOM, *UPDATE, *SPARSE, *ATTRIBUTES]
