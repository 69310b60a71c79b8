"""Files that `mx.onnx.import_model` refuses, and wrong calls of `mx.onnx.export_model`."""

from unittest import mock

import numpy as np
from onnx import TensorProto

import dpmodule as mx
from dpmodule.base import FileError, FileFormatError
from dpmodule.onnx.from_onnx import check
from helpers import onnx_files as files
from helpers.onnx_graphs import model_of


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


def make_external(**entries):
    def change(model):
        tensor = model.graph.initializer[0]
        tensor.ClearField("raw_data")
        tensor.data_location = TensorProto.EXTERNAL
        for key, text in {"location": "net.data", "offset": "4", "length": "16", **entries}.items():
            tensor.external_data.add(key=key, value=text)

    return change


def external(**entries):
    call = loaded(ADD, make_external(**entries), w=np.zeros(4, "f"))

    def written(folder):
        (folder / "net.data").write_bytes(bytes(20))
        return call(folder)

    return written


def linked(folder):
    (folder / "inner").mkdir()
    (folder / "net.data").write_bytes(bytes(20))
    (folder / "inner" / "net.data").symlink_to(folder / "net.data")
    return loaded(ADD, make_external(), w=np.zeros(4, "f"))(folder / "inner")


def doubling(levels):
    """Return functions that double their nodes at every level."""
    head = '<domain: "own", opset_import: ["": 17, "own": 1]>'
    functions = [
        f"{head} f{i} (a) => (b) {{ t = own.f{i + 1}(a)  b = own.f{i + 1}(t) }}" for i in range(levels)
    ]
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


ROWS = [
    *[
        (loaded(SEVERAL, domains='"com.example": 1'), FileFormatError, pattern)
        for pattern in (
            r"node 'one' \(Relu\): unknown attribute 'alpha'",
            r"node 'two' \(Bend\): opset 17 of ai.onnx has no operator 'Bend'",
            r"node 'three' \(com.example.Fold\): unknown domain 'com.example'",
            r"node 'four' \(MaxUnpool\): MaxUnpool cannot be expressed",
            r"node 'four' \(MaxUnpool\): reads 'nowhere', which is not defined",
        )
    ],
    (set_opset(0), FileFormatError, "opset 0 of ai.onnx, expected 7 to"),
    (set_opset(99), FileFormatError, "opset 99 of ai.onnx, expected 7 to"),
    (without_converter, FileFormatError, "opset 5, .* cannot upgrade to 7: No Adapter From Version 5"),
    (loaded(CYCLE), FileFormatError, r"a cycle: .* each other: node 'first' \(Add\), node 'second'"),
    (relu(lambda model: model.graph.ClearField("output")), FileFormatError, "it has no outputs"),
    (
        lambda folder: mx.onnx.import_model(files.from_sklearn("tree", folder).path),
        FileFormatError,
        "TreeEnsembleClassifier cannot be expressed",
    ),
    (lambda folder: load(folder, dense()[:40]), FileFormatError, r"bad\.onnx"),
    (lambda folder: load(folder, b""), FileFormatError, r"bad\.onnx.*the file is empty"),
    (lambda folder: load(folder, b"\x89PNG\r\n\x1a\n" + bytes(40)), FileFormatError, r"bad\.onnx"),
    (lambda folder: load(folder, b'{"a": 1}'), FileFormatError, r"bad\.onnx"),
    (lambda folder: mx.onnx.import_model(folder / "none.onnx"), FileError, "none"),
    (
        loaded(ADD, lambda model: model.graph.initializer[0].dims.__setitem__(0, 2**40), w=np.zeros(4, "f")),
        FileFormatError,
        r"initializer 'w': 16 bytes for \(1099511627776,\)",
    ),
    (
        loaded("(float[] x) => (float[] y) { y = Relu(x) }"),
        FileFormatError,
        r"input 'x': the file does not declare its shape; give shapes={'x': \(...\)}",
    ),
    (
        loaded("(uint64[2] x) => (uint64[2] y) { y = Div(x, x) }"),
        FileFormatError,
        r"\(Div\): Div of uint64; .* cast to int64 or a float first",
    ),
    # what would take long, or much memory
    (
        loaded("(float[2] x) => (float[2] y) { y = own.again(x) }", functions=AGAIN, domains='"own": 1'),
        FileFormatError,
        "functions call each other too deeply, or recursively",
    ),
    (doubling(30), FileFormatError, "more than 250000 nodes after expanding functions"),
    (doubling(100), FileFormatError, "functions call each other too deeply"),
    (many_nodes, FileFormatError, "more than 2500 nodes"),
    (loaded(REACHED), FileFormatError, r"node 'y' \(Reshape\): shape depends on the data"),
    (loaded(SEQUENCE), FileFormatError, "a sequence of 1073741824 arrays"),
    # data in another file
    *[
        (external(**entries), FileFormatError, pattern)
        for entries, pattern in (
            ({"location": "none.data"}, "there is no such file"),
            ({"location": "../net.data"}, "expected a file in the model's own folder"),
            ({"location": "/etc/hostname"}, "expected a file in the model's own folder"),
            ({"offset": "8"}, "expected bytes 8 to 24"),
            ({"offset": "-4"}, "expected bytes -4 to 12"),
            ({"length": "12"}, "12 bytes for"),
            ({"length": "many"}, "offset or length is not a number"),
        )
    ],
    (linked, FileFormatError, "leads out of the model's own folder"),
]
