"""Wrong graphs and files of them."""

import json

import dpmodule as mx
from dpmodule.base import ArgumentError, FileFormatError, OpError
from dpmodule.graph import from_json

S = mx.sym
X = {"op": "null", "name": "x", "inputs": []}


def read(*nodes, version=None, **more):
    """Read a file with a variable and these nodes."""
    attrs = {} if version is None else {"attrs": {"mxnet_version": ["int", version]}}
    return from_json(json.dumps({"nodes": [X, *nodes], "arg_nodes": [], **attrs, **more}))


def op(name, inputs=((0, 0),), **more):
    return {"op": name, "name": "n", "inputs": inputs, **more}


def sliced(count):
    return lambda: read(op("SliceChannel", [[0, 0, 0]], attrs={"num_outputs": count}), version=10901)


def load(folder, content):
    path = folder / "net-symbol.json"
    if content is not None:
        path.write_bytes(content)
    return S.load(str(path))


NUMBERS = ["", "(" * 5000, "9" * 5000, "__import__('os')", "3.5"]
CLIP = S.clip(S.Variable("x"), 0, 1, name="node").tojson()
LINES = r"named 'x' .*graph.py:\d+; .*graph.py:\d+"

ROWS = [
    *[
        (lambda text=text: from_json(text), FileFormatError, said)
        for text, said in [
            ("", "not a symbol file"),
            ("<html><body>404</body></html>", "HTML page"),
            ("[]", "JSON object"),
            ('{"nodes": {}}', "no 'nodes' of type list"),
            ('{"nodes": [3]}', "node 0 has no 'op'"),
            ('{"nodes": [{"op": "null"}]}', "node 0 has no 'name'"),
            ("[" * 100_000, "not a symbol file"),
        ]
    ],
    (lambda: read(op("relu", [[1, 0]])), FileFormatError, "only 1 nodes come before"),
    (lambda: read(op("relu", [[0, 1, 0]])), FileFormatError, "output 1 of 'x'"),
    (lambda: read(op("relu", [[False, 0]])), FileFormatError, r"expected \[node, output"),
    (lambda: read(op("relu", 3)), FileFormatError, "no 'inputs' of type list"),
    (lambda: read(op("relu", [], attrs=3)), FileFormatError, "'attrs' of node 1"),
    (lambda: read(heads=[[7, 0]]), FileFormatError, "heads refers to node 7"),
    (lambda: read(heads=[[0]]), FileFormatError, "heads has an entry"),
    (lambda: read(op("elemwise_add"), version=10000), FileFormatError, "has 1 inputs"),
    *[
        (
            lambda name=name: read(op(name)),
            OpError,
            rf"does not have: {name} \(node 'n' with input 'x'; {said}\)\. Write",
        )
        for name, said in [
            ("NoSuchThing", "MXNet itself does not have it"),
            ("_contrib_dgl_subgraph", r"in MXNet since 1\.4"),
            ("_sg_onednn_conv", r"in MXNet since 2\.0"),
            ("_npi_never_written", r"MXNet itself does not have it"),
        ]
    ],
    (lambda: read(op("Odd"), op("Odd")), OpError, r"Odd \(node 'n' with input 'x' and 1 more; MXNet"),
    (lambda: read(op("Odd", [[0]] * 5 + [3, [9]])), OpError, "with inputs 'x', 'x', 'x', 'x', ...; MXNet"),
    *[(sliced(count), OpError, "num_outputs") for count in NUMBERS],
    (
        lambda folder: load(folder, b"\x08\x08\x12\xff"),
        FileFormatError,
        "symbol file: this is an ONNX file; use",
    ),
    (
        lambda folder: load(folder, b"\xff\xfe"),
        FileFormatError,
        "net-symbol.json: not a symbol file: not UTF-8 text at byte 0",
    ),
    (lambda folder: load(folder, b"{"), FileFormatError, "net-symbol.json"),
    (
        lambda: S.load_json(CLIP.replace('"a_max"', '"foreign": "1", "a_max"')),
        OpError,
        r"node 1 \('node'\).*clip has no attribute 'foreign'; it takes a_min, a_max",
    ),
    (lambda: (S.Variable("x") + S.Variable("x")).graph.check_names(), ArgumentError, LINES),
]
