"""ONNX graphs written by hand: TensorFlow's habits, loops and branches, old opsets, ai.onnx.ml."""

from __future__ import annotations

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

__all__ = ["GRAPHS", "draw", "graph_of", "made", "model_of"]

FLOAT, INT64, BOOL = TensorProto.FLOAT, TensorProto.INT64, TensorProto.BOOL
RNG = np.random.default_rng(0)


def draw(*shape):
    return RNG.standard_normal(shape).astype(np.float32)


def value(name, shape, kind=FLOAT):
    return helper.make_tensor_value_info(name, kind, shape)


def array(name, data):
    return numpy_helper.from_array(np.asarray(data), name)


def node(kind, inputs, outputs, **attrs):
    return helper.make_node(kind, inputs.split(), outputs.split(), **attrs)


def graph_of(nodes, inputs, outputs, arrays=(), name="g"):
    return helper.make_graph(nodes, name, inputs, outputs, [array(n, a) for n, a in dict(arrays).items()])


def model_of(nodes, inputs, outputs, arrays=(), opset=17, functions=(), **domains):
    opsets = [
        helper.make_opsetid("", opset),
        *(helper.make_opsetid(d.replace("_", "."), v) for d, v in domains.items()),
    ]
    graph = graph_of(nodes, inputs, outputs, arrays)
    ir = 8 if opset <= 17 else 10
    return helper.make_model(graph, opset_imports=opsets, ir_version=ir, functions=list(functions))


def channels_last():
    """A convolution as TensorFlow writes it: NHWC, with transposes around, and a shape that is computed."""
    nodes = [
        node("Transpose", "x", "t", perm=[0, 3, 1, 2]),
        node("Conv", "t w b", "c", auto_pad="SAME_UPPER", strides=[2, 2]),
        node("Relu", "c", "r"),
        node("Transpose", "r", "u", perm=[0, 2, 3, 1]),
        node("Shape", "u", "s"),
        node("Slice", "s zero one", "n"),
        node("Concat", "n rest", "target", axis=0),
        node("Reshape", "u target", "flat"),
        node("MatMul", "flat m", "p"),
        node("Add", "p d", "y"),
    ]
    arrays = {"w": draw(4, 3, 3, 3), "b": draw(4), "m": draw(64, 5), "d": draw(5)}
    arrays |= {"zero": np.array([0]), "one": np.array([1]), "rest": np.array([-1])}
    return (
        model_of(nodes, [value("x", ["n", 8, 8, 3])], [value("y", None)], arrays),
        (2, 8, 8, 3),
        (5, 8, 8, 3),
    )


def gathered_shape():
    """Shape, Gather, Unsqueeze, Concat, Reshape: how exporters write a view."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s zero", "n", axis=0),
        node("Gather", "s one", "t", axis=0),
        node("Mul", "n t", "nt"),
        node("Unsqueeze", "nt", "nt1", axes=[0]),
        node("Unsqueeze", "four", "four1", axes=[0]),
        node("Concat", "nt1 two four1", "target", axis=0),
        node("Reshape", "x target", "y"),
        node("Unsqueeze", "n", "n1", axes=[0]),
        node("Unsqueeze", "t", "t1", axes=[0]),
        node("Concat", "n1 t1 eight", "back", axis=0),
        node("Reshape", "y back", "z"),
    ]
    arrays = {
        "zero": np.array(0),
        "one": np.array(1),
        "four": np.array(4),
        "two": np.array([2]),
        "eight": np.array([8]),
    }
    model = model_of(nodes, [value("x", ["n", "t", 8])], [value("y", None), value("z", None)], arrays, 11)
    return model, (2, 3, 8), (4, 5, 8)


def loop_rnn():
    """A recurrent network as a Loop over time steps, as TensorFlow writes it."""
    body = graph_of(
        [
            node("Gather", "turned i", "x_t", axis=0),
            node("MatMul", "x_t wx", "a"),
            node("MatMul", "h wh", "b"),
            node("Add", "a b", "sum"),
            node("Tanh", "sum", "h_next"),
            node("Identity", "h_next", "out"),
            node("Identity", "go", "go_on"),
        ],
        [value("i", [], INT64), value("go", [], BOOL), value("h", ["n", 4])],
        [value("go_on", [], BOOL), value("h_next", ["n", 4]), value("out", ["n", 4])],
        name="body",
    )
    nodes = [
        node("Transpose", "x", "turned", perm=[1, 0, 2]),
        node("Shape", "turned", "s"),
        node("Gather", "s zero", "steps", axis=0),
        node("Gather", "s one", "n", axis=0),
        node("Unsqueeze", "n", "n1", axes=[0]),
        node("Concat", "n1 width", "start_shape", axis=0),
        node("ConstantOfShape", "start_shape", "start"),
        node("Loop", "steps true start", "last all", body=body),
        node("Transpose", "all", "y", perm=[1, 0, 2]),
    ]
    arrays = {
        "wx": draw(3, 4),
        "wh": draw(4, 4),
        "zero": np.array(0),
        "one": np.array(1),
        "width": np.array([4]),
    }
    arrays["true"] = np.array(True)
    outs = [value("y", None), value("last", None)]
    return model_of(nodes, [value("x", ["n", "t", 3])], outs, arrays, 11), (2, 5, 3), (4, 3, 3)


def scan():
    body = graph_of(
        [node("Add", "state item", "next"), node("Mul", "next item", "out")],
        [value("state", [3]), value("item", [3])],
        [value("next", [3]), value("out", [3])],
        name="body",
    )
    nodes = [node("Scan", "start x", "last y", body=body, num_scan_inputs=1, scan_input_directions=[1])]
    return (
        model_of(nodes, [value("x", ["t", 3])], [value("last", None), value("y", None)], {"start": draw(3)}),
        (4, 3),
        (7, 3),
    )


def while_loop():
    """Doubles until the sum is large: how often, only the data tell."""
    body = graph_of(
        [
            node("Add", "v v", "v2"),
            node("ReduceSum", "v2", "total", keepdims=0),
            node("Less", "total most", "go_on"),
        ],
        [value("i", [], INT64), value("go", [], BOOL), value("v", ["n"])],
        [value("go_on", [], BOOL), value("v2", ["n"])],
        name="body",
    )
    nodes = [node("Abs", "x", "a"), node("Loop", "limit true a", "y", body=body)]
    arrays = {"limit": np.array(50), "true": np.array(True), "most": np.array(100, np.float32)}
    return model_of(nodes, [value("x", ["n"])], [value("y", None)], arrays), (3,), (5,)


def branch():
    yes = graph_of([node("Mul", "x w", "p")], [], [value("p", None)], name="yes")
    no = graph_of([node("Sub", "x w", "q")], [], [value("q", None)], name="no")
    nodes = [
        node("ReduceSum", "x", "total", keepdims=0),
        node("Greater", "total zero", "c"),
        node("If", "c", "y", then_branch=yes, else_branch=no),
    ]
    arrays = {"w": draw(4), "zero": np.array(0, np.float32)}
    return model_of(nodes, [value("x", ["n", 4])], [value("y", None)], arrays), (2, 4), (5, 4)


def constant_branch():
    yes = graph_of([node("Mul", "x w", "p")], [], [value("p", None)], name="yes")
    no = graph_of(
        [node("NonZero", "x", "z"), node("Cast", "z", "q", to=FLOAT)], [], [value("q", None)], name="no"
    )
    nodes = [
        node("Shape", "x", "s"),
        node("Size", "s", "rank"),
        node("Equal", "rank two", "c"),
        node("If", "c", "y", then_branch=yes, else_branch=no),
    ]
    arrays = {"w": draw(4), "two": np.array(2)}
    return model_of(nodes, [value("x", ["n", 4])], [value("y", None)], arrays), (2, 4), (5, 4)


def detection():
    """Boxes and scores, suppression, and the boxes that are left."""
    nodes = [
        node("MatMul", "x wb", "b0"),
        node("Reshape", "b0 shape", "boxes"),
        node("MatMul", "x ws", "s0"),
        node("Reshape", "s0 classes", "s1"),
        node("Sigmoid", "s1", "scores"),
        node("NonMaxSuppression", "boxes scores most overlap least", "chosen"),
        node("Gather", "chosen two", "places", axis=1),
        node("Gather", "chosen zero", "images", axis=1),
        node("Unsqueeze", "images minus", "i1"),
        node("Unsqueeze", "places minus", "p1"),
        node("Concat", "i1 p1", "both", axis=1),
        node("GatherND", "boxes both", "found"),
    ]
    arrays = {
        "wb": draw(6, 40),
        "ws": draw(6, 20),
        "shape": np.array([-1, 10, 4]),
        "classes": np.array([0, 2, 10]),
    }
    arrays |= {
        "most": np.array([3]),
        "overlap": np.array([0.4], np.float32),
        "least": np.array([0.3], np.float32),
    }
    arrays |= {"zero": np.array(0), "two": np.array(2), "minus": np.array([1])}
    outs = [value("chosen", None, INT64), value("found", None)]
    return model_of(nodes, [value("x", ["n", 6])], outs, arrays), (2, 6), (3, 6)


def suppression(center=0):
    nodes = [node("NonMaxSuppression", "boxes scores most overlap", "y", center_point_box=center)]
    arrays = {
        "scores": RNG.random((1, 2, 12)).astype(np.float32),
        "most": np.array([4]),
        "overlap": np.array([0.3], np.float32),
    }
    return model_of(nodes, [value("boxes", [1, 12, 4])], [value("y", None, INT64)], arrays), (1, 12, 4)


def recurrent(kind, direction, **attrs):
    gates, count = {"LSTM": 4, "GRU": 3, "RNN": 1}[kind], 2 if direction == "bidirectional" else 1
    arrays = {"w": draw(count, gates * 5, 3), "r": draw(count, gates * 5, 5), "b": draw(count, 2 * gates * 5)}
    inputs, outs = "x w r b", "y last"
    if attrs.pop("peepholes", False):
        arrays["p"] = draw(count, 15)
        inputs += "   p"
    made = helper.make_node(
        kind, ["x", "w", "r", "b", *(["", "", "", "p"] if "p" in arrays else [])], outs.split(),
        direction=direction, hidden_size=5, **attrs,
    )  # fmt: skip
    return (
        model_of([made], [value("x", ["t", "n", 3])], [value("y", None), value("last", None)], arrays),
        (4, 2, 3),
        (6, 5, 3),
    )


def lengths():
    arrays = {"w": draw(2, 20, 3), "r": draw(2, 20, 5), "b": draw(2, 40), "n": np.array([4, 2], np.int32)}
    made = helper.make_node(
        "LSTM", ["x", "w", "r", "b", "n"], ["y", "h", "c"], direction="bidirectional", hidden_size=5
    )
    outs = [value(name, None) for name in "yhc"]
    return model_of([made], [value("x", [4, 2, 3])], outs, arrays), (4, 2, 3)


def old(opset):
    """A network of an old opset, in which attributes are what inputs were later."""
    nodes = [
        node("Conv", "x w", "c", pads=[0, 1, 1, 0]),
        node("BatchNormalization", "c g h mean var", "n"),
        node("Clip", "n", "k", min=-1.0, max=1.5),
        node("Pad", "k", "p", pads=[0, 0, 1, 0, 0, 0, 0, 2], value=0.5),
        node("Slice", "p", "s", starts=[1], ends=[100], axes=[2]),
        node("Upsample", "s", "u", scales=[1.0, 1.0, 2.0, 2.0]) if opset < 9 else node("Identity", "s", "u"),
        node("ReduceMean", "u", "m", axes=[3], keepdims=0),
        node("Squeeze", "m", "q", axes=[1]) if opset > 99 else node("Identity", "m", "q"),
        node("Softmax", "q", "t"),
        node("Split", "t", "a z", axis=2, split=[3, 4] if opset > 8 else [6, 8]),
        node("TopK", "a", "v i", k=2, axis=-1),
        node("Dropout", "z", "y"),
    ]
    arrays = {
        "w": draw(4, 3, 3, 3),
        "g": draw(4),
        "h": draw(4),
        "mean": draw(4),
        "var": RNG.random(4).astype(np.float32),
    }
    outs = [value("v", None), value("y", None)]
    return model_of(nodes, [value("x", ["n", 3, 8, 8])], outs, arrays, opset), (2, 3, 8, 8), (3, 3, 8, 8)


def quantized():
    nodes = [
        node("QuantizeLinear", "x xs xz", "xq"),
        node("DequantizeLinear", "xq xs xz", "xd"),
        node("DequantizeLinear", "w ws wz", "wd", axis=0),
        node("Conv", "xd wd b", "c", pads=[1, 1, 1, 1]),
        node("Relu", "c", "r"),
        node("QuantizeLinear", "r ys yz", "q"),
        node("DequantizeLinear", "q ys yz", "y"),
    ]
    arrays = {
        "w": RNG.integers(-127, 127, (4, 3, 3, 3)).astype(np.int8),
        "ws": RNG.random(4).astype(np.float32) / 50,
    }
    arrays |= {"wz": np.zeros(4, np.int8), "b": draw(4), "xs": np.float32(0.03), "xz": np.uint8(128)}
    arrays |= {"ys": np.float32(0.05), "yz": np.uint8(0)}
    return (
        model_of(nodes, [value("x", ["n", 3, 6, 6])], [value("y", None)], arrays),
        (2, 3, 6, 6),
        (4, 3, 6, 6),
    )


def function():
    """A function of the model's own, with an attribute."""
    body = [node("LeakyRelu", "a", "l"), node("Add", "l b", "c")]
    attribute = body[0].attribute.add()
    attribute.name, attribute.ref_attr_name, attribute.type = "alpha", "slope", onnx.AttributeProto.FLOAT
    opsets = [helper.make_opsetid("", 17)]
    made = helper.make_function("own", "bend", ["a", "b"], ["c"], body, opsets, ["slope"])
    call = helper.make_node("bend", ["x", "w"], ["y"], domain="own", slope=0.3)
    return (
        model_of([call], [value("x", ["n", 4])], [value("y", None)], {"w": draw(4)}, functions=[made], own=1),
        (2, 4),
        (3, 4),
    )


def resized(mode, **attrs):
    nodes = [helper.make_node("Resize", ["x", "", "scales"], ["y"], mode=mode, **attrs)]
    scales = np.array([1, 1, 1.5, 2.3], np.float32)
    return (
        model_of(nodes, [value("x", ["n", 2, 6, 7])], [value("y", None)], {"scales": scales}, 18),
        (2, 2, 6, 7),
        (3, 2, 6, 7),
    )


def expanded():
    """A mask and positions made from the shape of the data."""
    nodes = [
        node("Shape", "x", "s"),
        node("Gather", "s one", "t", axis=0),
        node("Range", "zero t one", "line"),
        node("Unsqueeze", "line axis0", "row"),
        node("Unsqueeze", "line axis1", "column"),
        node("Less", "column row", "mask"),
        node("Cast", "line", "real", to=FLOAT),
        node("Unsqueeze", "real last", "places"),
        node("Expand", "places s", "wide"),
        node("Where", "mask low high", "bias"),
        node("Transpose", "x", "xt", perm=[0, 2, 1]),
        node("MatMul", "x xt", "score"),
        node("Add", "score bias", "biased"),
        node("Softmax", "biased", "weights", axis=-1),
        node("Add", "x wide", "moved"),
        node("MatMul", "weights moved", "y"),
    ]
    arrays = {
        "zero": np.array(0),
        "one": np.array(1),
        "axis0": np.array([0]),
        "axis1": np.array([1]),
        "last": np.array([1]),
    }
    arrays |= {"low": np.array(-1e9, np.float32), "high": np.array(0, np.float32)}
    return model_of(nodes, [value("x", ["n", "t", 4])], [value("y", None)], arrays), (2, 3, 4), (3, 6, 4)


def scores(kind):
    shape, names = ([3, 5], [0, 1, 2]) if kind != "two" else ([1, 5], [0, 1])
    more = {"post_transform": "SOFTMAX" if kind != "two" else "LOGISTIC"}
    nodes = [
        helper.make_node("Scaler", ["x"], ["z"], domain="ai.onnx.ml", offset=draw(5).tolist(), scale=draw(5).tolist()),
        helper.make_node(
            "LinearClassifier", ["z"], ["label", "p"], domain="ai.onnx.ml", classlabels_ints=names,
            coefficients=draw(*shape).reshape(-1).tolist(), intercepts=draw(shape[0]).tolist(), **more,
        ),
        helper.make_node("Normalizer", ["p"], ["y"], domain="ai.onnx.ml", norm="L1"),
    ]  # fmt: skip
    outs = [value("label", None, INT64), value("y", None)]
    return model_of(nodes, [value("x", ["n", 5])], outs, opset=17, ai_onnx_ml=1), (2, 5), (6, 5)


GRAPHS = {
    "channels_last": channels_last,
    "gathered_shape": gathered_shape,
    "loop_rnn": loop_rnn,
    "scan": scan,
    "while_loop": while_loop,
    "branch": branch,
    "constant_branch": constant_branch,
    "detection": detection,
    "suppression": suppression,
    "suppression_center": lambda: suppression(1),
    "lstm_reverse": lambda: recurrent("LSTM", "reverse"),
    "lstm_peepholes": lambda: recurrent("LSTM", "bidirectional", peepholes=True),
    "lstm_coupled": lambda: recurrent("LSTM", "forward", activations=["Sigmoid", "Relu", "Tanh"]),
    "lstm_lengths": lengths,
    "gru_before": lambda: recurrent("GRU", "bidirectional"),
    "gru_after": lambda: recurrent("GRU", "reverse", linear_before_reset=1),
    "rnn_relu": lambda: recurrent("RNN", "forward", activations=["Relu"]),
    "opset7": lambda: old(7),
    "opset8": lambda: old(8),
    "opset9": lambda: old(9),
    "quantized": quantized,
    "function": function,
    "resize_cubic": lambda: resized("cubic"),
    "resize_linear": lambda: resized("linear", coordinate_transformation_mode="asymmetric"),
    "resize_nearest": lambda: resized("nearest"),
    "expanded": expanded,
    "two_classes": lambda: scores("two"),
    "three_classes": lambda: scores("three"),
}
"""Name: makes (model, shape of its input, another shape of it where the file leaves sizes open)."""


def made(name):
    """Return a graph and the shapes of two batches; the same numbers whatever was drawn before."""
    global RNG
    RNG = np.random.default_rng(len(name))
    return GRAPHS[name]()
