"""Files that `mx.onnx.import_model` refuses, and wrong calls of `mx.onnx.export_model`."""

from functools import partial
from unittest import mock

import numpy as np

import dpmodule as mx
from dpmodule.base import ArgumentError, DTypeError, FileError, FileFormatError, ShapeError, SignatureError
from dpmodule.onnx.from_onnx import check
from dpmodule.onnx.to_onnx.call import Untranslatable
from dpmodule.ops.nn.rnn_weights import vector_size
from helpers import onnx_files as files
from helpers.onnx_graphs import model_of
from helpers.onnx_runs import exported


def load(folder, model):
    path = folder / "bad.onnx"
    path.write_bytes(model if isinstance(model, bytes) else model.SerializeToString())
    return mx.onnx.import_model(path)


def loaded(text, change=None, **options):
    """Return a call that imports a graph, after a change of its model."""

    def call(folder):
        model = model_of(text, **options)
        if change:
            change(model)
        return load(folder, model)

    return call


def relu(change, **options):
    return loaded("(float[n,2] x) => (float[n,2] y) { [n] y = Relu(x) }", change, **options)


def set_opset(version):
    return relu(lambda model: setattr(model.opset_import[0], "version", version))


def without_converter(folder):
    refuse = mock.Mock(side_effect=RuntimeError("No Adapter From Version 5\nfor Bend"))
    with mock.patch("onnx.version_converter.convert_version", refuse):
        return set_opset(5)(folder)


def external(**entries):
    return lambda folder: load(folder, files.with_external(folder, **entries)[0])


def linked(folder):
    (folder / "inner").mkdir()
    model, _ = files.with_external(folder)
    (folder / "inner" / "net.data").symlink_to(folder / "net.data")
    return load(folder / "inner", model)


def doubling(levels):
    """Return functions that double their nodes at every level."""
    head = '<domain: "own", opset_import: ["": 17, "own": 1]>'
    step = "{} f{} (a) => (b) {{ t = own.f{}(a)  b = own.f{}(t) }}"
    functions = [step.format(head, i, i + 1, i + 1) for i in range(levels)]
    functions.append(f"{head} f{levels} (a) => (b) {{ b = Relu(a) }}")
    text = "(float[2] x) => (float[2] y) { y = own.f0(x) }"
    return loaded(text, functions=" ".join(functions), domains='"own": 1')


def many_nodes(folder):
    nodes = " ".join(f"t{i + 1} = Relu(t{i})" for i in range(2_501))
    with mock.patch.object(check, "_MAX_NODES", 2_500):
        return loaded(f"(float[2] t0) => (float[2] t2501) {{ {nodes} }}")(folder)


ADD = "(float[n,4] x) => (float[n,4] y) { y = Add(x, w) }"
SEVERAL = """(float[n] x) => (float[n] y) {
    [one] a = Relu<alpha = 1.0>(x)  [two] b = Bend(a)  [three] c = com.example.Fold(b)
    [four] y = MaxUnpool<kernel_shape = [2]>(c, nowhere)
}"""
CYCLE = "(float[n] x) => (float[n] b) { [first] a = Add(x, b)  [second] b = Relu(a) }"
AGAIN = '<domain: "own", opset_import: ["": 17, "own": 1]> again (a) => (b) { b = own.again(a) }'
WAYS = " ".join(f"t{i + 1} = Add(t{i}, t{i})" for i in range(60))
REACHED = f"""(float[2] x) => (float[] y) <float[1] w = {{1.0}}, int64[1] size = {{1000000000}}> {{
    t0 = Expand(w, size) {WAYS} sum = ReduceSum(t60)  shape = Cast<to = 7>(sum)  y = Reshape(x, shape)
}}"""
SEQUENCE = """(float[1073741824] x) => (float[] y) <int64 zero = {0}> {
    parts = SplitToSequence(x)  y = SequenceAt(parts, zero)
}"""


def dense():
    return model_of(ADD, w=np.zeros(4, "f")).SerializeToString()


S = mx.sym
HIDDEN = S.FullyConnected(S.Variable("data"), num_hidden=4, name="fc1")
PARAMS = {"fc1_weight": mx.nd.ones((4, 3)), "fc1_bias": mx.nd.ones((4,))}


def export(**changes):
    def call(folder):
        given = {"params": PARAMS, "in_shapes": [(2, 3)], "onnx_file_path": folder / "net.onnx", **changes}
        return mx.onnx.export_model(given.pop("sym", HIDDEN), **given)

    return call


X, Y = S.Variable("x"), S.Variable("y")
SIZE = {"x": {2: "height", 3: "width"}}


def refused(symbol, *shapes, types="f4", params=(), **options):
    """Return a call that exports a symbol of x, y and so on, of these shapes."""
    arrays = {name: np.ones(shape, types) for name, shape in zip("xyz", shapes)}
    return lambda: exported(symbol, arrays, params, **options)


def pooling(**attrs):
    return refused(S.Pooling(X, kernel=(2, 2), **attrs), (2, 3, 7, 7), dynamic=SIZE)


def projected():
    attrs, size = {"state_size": 4, "num_layers": 1, "mode": "lstm"}, vector_size("lstm", 1, 2, 4, False, 3)
    rnn = S.RNN(X, Y, S.Variable("z"), S.Variable("c"), projection_size=3, **attrs)
    arrays = {"x": (5, 3, 2), "y": (size,), "z": (1, 3, 3), "c": (1, 3, 4)}
    return exported(rnn, {name: np.ones(shape, "f4") for name, shape in arrays.items()}, ["y"])


def quantized_channels_last():
    x, w = (S.contrib.quantize_v2(each, min_calib_range=-2.0, max_calib_range=2.0) for each in (X, Y))
    attrs = {"kernel": (3, 3), "num_filter": 4, "layout": "NHWC", "no_bias": True}
    return S.contrib.quantized_conv(x[0], w[0], x[1], x[2], w[1], w[2], **attrs)[0]


WORDS = S.Embedding(S.Variable("words", stype="ragged"), input_dim=20, output_dim=3, name="table")
RAGGED = {
    "words": np.zeros(7, "f4"),
    "words_lengths": np.ones(3, "i8"),
    "table_weight": np.ones((20, 3), "f4"),
}
BODY = S.contrib.foreach(lambda x, s: (S.Correlation(x, x, name="corr"), s), X, [])[0]
ALIGNED = S.contrib.ROIAlign(X, Y, pooled_size=(2, 2), spatial_scale=1.0, aligned=True)
RESIZE = partial(S.image.resize, X)
TO_TARGET = S.Deconvolution(X, Y, target_shape=(9, 10), kernel=(4, 4), stride=(2, 2), num_filter=3)
ADAPTIVE = S.contrib.AdaptiveAvgPooling2D(X, output_size=(2, 2))
CONV = S.Convolution(S.Variable("x"), kernel=(3, 3), num_filter=2, no_bias=True, name="conv")

PROBLEMS = (
    r"node 'one' \(Relu\): unknown attribute 'alpha'",
    r"node 'two' \(Bend\): opset 17 of ai.onnx has no operator 'Bend'",
    r"node 'three' \(com.example.Fold\): unknown domain 'com.example'",
    r"node 'four' \(MaxUnpool\): MaxUnpool cannot be expressed",
    r"node 'four' \(MaxUnpool\): reads 'nowhere', which is not defined",
)
FILES = [
    (set_opset(0), "opset 0 of ai.onnx, expected 7 to"),
    (without_converter, "opset 5, .* cannot upgrade to 7: No Adapter From Version 5"),
    (loaded(CYCLE), r"a cycle: .* each other: node 'first' \(Add\), node 'second'"),
    (relu(lambda model: model.graph.ClearField("output")), "it has no outputs"),
    (lambda folder: mx.onnx.import_model(files.from_sklearn("tree", folder).path), "TreeEnsembleClassifier"),
    (lambda folder: load(folder, dense()[:40]), r"bad\.onnx"),
    (lambda folder: load(folder, b""), r"bad\.onnx.*the file is empty"),
    (
        loaded(ADD, lambda model: model.graph.initializer[0].dims.__setitem__(0, 2**40), w=np.zeros(4, "f")),
        r"initializer 'w': 16 bytes for \(1099511627776,\)",
    ),
    (loaded("(float[] x) => (float[] y) { y = Relu(x) }"), r"'x': the file does not declare its shape; give"),
    (loaded("(uint64[2] x) => (uint64[2] y) { y = Div(x, x) }"), r"\(Div\): Div of uint64; .* cast to int64"),
    (
        loaded("(float[2] x) => (float[2] y) { y = own.again(x) }", functions=AGAIN, domains='"own": 1'),
        "functions call each other too deeply",
    ),
    (doubling(30), "more than 250000 nodes after expanding functions"),
    (many_nodes, "more than 2500 nodes"),
    (loaded(REACHED), r"node 'y' \(Reshape\): shape depends on the data"),
    (loaded(SEQUENCE), "a sequence of 1073741824 arrays"),
]
EXPORTS = [
    (export(opset=12), "opset is 12, expected one from 13 to 21"),
    (export(opset="17"), "opset is '17'"),
    (export(params={"fc1_weight": PARAMS["fc1_weight"]}), "'fc1_bias'.*missing there"),
    (export(params={"fc1_weight": np.ones((4, 3), "f")}), "'fc1_weight' of ndarray"),
    (export(params=[1, 2]), "params is list, expected arrays by name"),
    (export(sym=5), "sym is int"),
    (export(in_shapes=None), r"got none, expected a shape for each of the inputs \['data'\]"),
    (export(in_shapes=(2,)), "expected a list of shapes"),
    (export(in_shapes=[(0, 3)]), "expected lengths of at least 1"),
    (export(in_shapes=[(2, 4)]), r"'fc1_weight' of shape \(4, 3\), but .* expects \(4, 4\)"),
    (export(dynamic={"dat": {0: "n"}}), r"names 'dat'; the inputs are \['data'\]; did you mean data"),
    (export(dynamic={"data": {2: "batch"}}), r"names axis 2, the shape is \(2, 3\)"),
    (export(dynamic={"data": {0: 5}}), r"dynamic\['data'\]\[0\] is 5, expected a name"),
    (export(dynamic="data"), "dynamic is 'data'"),
    (export(onnx_file_path=""), "expected the name of a file"),
    (export(in_types=["float32", "int32"]), "in_types has 2 types"),
]
OPERATORS = [
    (
        refused(S.Reshape(X, shape=(4, 12), name="r"), (4, 3, 4), dynamic={"x": {0: "batch"}}),
        "the length 'batch' cannot be dynamic.*'r'.*0 and -1 leave it open",
    ),
    (refused(S.Dropout(X, mode="always"), (3, 4)), "mode 'always' also drops in prediction"),
    (refused(TO_TARGET, (1, 2, 5, 6), (2, 3, 4, 4), params=["y"], dynamic=SIZE), "dynamic"),
    (pooling(pooling_convention="same"), "'same' requires fixed sizes"),
    (pooling(pooling_convention="full", stride=(3, 3)), "requires fixed sizes"),
    (pooling(pooling_convention="full", pool_type="sum"), "require fixed sizes"),
    (pooling(pool_type="avg", pad=(2, 2), count_include_pad=False), "as long as the kernel"),
    (refused(S._internal._sample_poisson(X, shape=(2,)), (2,)), "'x' is not a parameter"),
    (refused(S.random.poisson(1e6, shape=(2,))), "reach about .*at most 4096"),
    (projected, "projection_size is 3, but ONNX's LSTM has no projection"),
    (refused(BODY, (2, 1, 3, 4, 4)), "Correlation 'corr'"),
    (refused(S.contrib.box_nms(X), (2, 20, 6), dynamic={"x": {1: "boxes"}}), r"axis -2 .*\(boxes\)"),
    (refused(quantized_channels_last(), (2, 6, 6, 3), (4, 3, 3, 3)), "its layout is NHWC"),
    (refused(RESIZE(size=(3, 3), interp=2), (5, 7, 3), types="u1"), "OpenCV.* use interp 0 or 1"),
    (refused(RESIZE(size=(9, 3), interp=3), (5, 7, 3)), "area"),
    (refused(RESIZE(size=(3, 3)), (5, 7, 3), dynamic={"x": {0: "height"}}), r"dynamic \(height\)"),
    (refused(S.BilinearSampler(X, Y), (1, 2, 3, 4), (1, 2, 3, 4), opset=13), "from opset 16 on"),
    (refused(ALIGNED, (1, 2, 5, 5), (1, 5), opset=13), "half a pixel from opset 16 on"),
    (refused(S._internal._npi_tril(X), (3, 3), opset=13), "triangles from opset 14 on"),
    (
        refused(S._internal._npx_index_add(X, Y, S.Variable("z")), (3, 2), (1, 4), (4, 2), opset=15),
        "from opset 16",
    ),
    (refused(S.Crop(X, center_crop=True, h_w=(2, 2)), (1, 2, 5, 5), dynamic=SIZE), "dynamic"),
    (refused(ADAPTIVE, (1, 2, 5, 5), dynamic=SIZE), "dynamic"),
]

ROWS = [
    *[(call, FileFormatError, pattern) for call, pattern in FILES],
    *[(call, ArgumentError, pattern) for call, pattern in EXPORTS],
    *[(call, Untranslatable, pattern) for call, pattern in OPERATORS],
    (loaded(SEVERAL, domains='"com.example": 1'), FileFormatError, ".*".join(PROBLEMS)),
    (lambda folder: mx.onnx.import_model(folder / "none.onnx"), FileError, "none"),
    (lambda folder: mx.onnx.import_model(5), SignatureError, "model_file is 5, expected a path"),
    # data in another file
    *[
        (external(**entries), FileFormatError, pattern)
        for entries, pattern in (
            ({"location": "none.data"}, "there is no such file"),
            ({"location": "../net.data"}, "expected a file in the model's own folder"),
            ({"offset": "8"}, "expected bytes 8 to 24"),
            ({"length": "12"}, "12 bytes for"),
            ({"length": "many"}, "offset or length is not a number"),
        )
    ],
    (linked, FileFormatError, "leads out of the model's own folder"),
    (export(params="nowhere.params"), FileError, "nowhere.params"),
    (export(sym="nowhere-symbol.json"), FileError, "nowhere-symbol.json"),
    (export(sym=CONV, params={}, in_shapes=[(2, 3), (2,)]), ShapeError, "conv"),
    (export(dynamic={"data": {1: "width"}}), Untranslatable, "the length 'width' cannot be dynamic"),
    (export(dynamic=True, dynamic_input_shapes=[("N", 5)]), ArgumentError, r"input_shapes has \('N', "),
    (export(in_types="float31"), DTypeError, "float31"),
    (export(in_types="float16"), DTypeError, "inputs of one type, got data float16, fc1_weight float32"),
    (export(onnx_file_path="nowhere/net.onnx"), FileError, "nowhere"),
    (refused(S.linalg.inverse(X), (9, 9)), Untranslatable, "have 9 rows.*at most 8 rows can be written out"),
    (
        lambda: exported(S.sequence_pool(WORDS, pool_type="max"), RAGGED, ["table_weight"]),
        ArgumentError,
        "sequence_pool .*works on rows of different lengths, which ONNX lacks",
    ),
]
