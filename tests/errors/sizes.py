"""Absurd sizes, in calls and in files."""

import io
import json
import zipfile

import numpy as np

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule.base import FileFormatError, OpError, OutOfMemoryError, ShapeError
from dpmodule.cli import data

HUGE = 10**15
NET = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=HUGE, name="fc")
NO_MEMORY = "there is no memory for fc_weight of shape .1000000000000000, 3.:"


def bound(op, inputs=1, **attrs):
    """Return a call that binds an operator from a file, with attributes that nobody checked."""
    names = [f"x{i}" for i in range(inputs)]
    rows = [{"op": "null", "name": name, "inputs": []} for name in names]
    row = {"op": op, "name": "o", "attrs": attrs, "inputs": [[i, 0, 0] for i in range(inputs)]}
    graph = json.dumps({"nodes": [*rows, row], "heads": [[inputs, 0, 0]]})
    return lambda: mx.sym.load_json(graph).simple_bind(mx.cpu(), x0=(2, 3))


def with_shape(*shape):
    net = mx.sym.FullyConnected(mx.sym.Variable("data", shape=shape), num_hidden=2)
    return mx.sym.load_json(net.tojson()).simple_bind(mx.cpu())


def npz(folder, *shape):
    head = io.BytesIO()
    np.lib.format.write_array_header_1_0(head, {"descr": "<f4", "fortran_order": False, "shape": shape})
    with zipfile.ZipFile(folder / "a.npz", "w") as archive:
        archive.writestr("x.npy", head.getvalue())
    return data.read_npz(str(folder / "a.npz"), None)


def csv(folder):
    (folder / "a.csv").write_text("1,2,3\n")
    return next(mx.io.CSVIter(data_csv=folder / "a.csv", data_shape=(HUGE,), batch_size=1))


SHORT = r"^.{1,499}$"

ROWS = [
    (lambda: mx.nd.zeros((HUGE,)), OutOfMemoryError, SHORT),
    (lambda: mx.nd.full((2**70,), 1), ShapeError, SHORT),
    (lambda: mx.nd.sparse.zeros("csr", (HUGE, 3)), OutOfMemoryError, SHORT),
    (lambda: mx.nd.sparse.zeros("row_sparse", (HUGE, 3)).asnumpy(), OutOfMemoryError, SHORT),
    (lambda: with_shape(HUGE, 3), OutOfMemoryError, SHORT),
    (bound("tile", reps=f"({HUGE},)"), OutOfMemoryError, SHORT),
    (bound("Concat", 2, num_args=str(HUGE)), FileFormatError, SHORT),
    (bound("SliceChannel", num_outputs=str(HUGE)), OpError, SHORT),
    (lambda: dy.ParameterCollection().add_lookup_parameters((10**9, 10**9)), OutOfMemoryError, SHORT),
    (lambda: next(mx.io.NDArrayIter(np.zeros((3, 2)), batch_size=HUGE)), OutOfMemoryError, SHORT),
    (lambda folder: npz(folder, HUGE, 3), OutOfMemoryError, SHORT),
    (lambda folder: npz(folder, 10**30), FileFormatError, SHORT),
    (csv, FileFormatError, SHORT),
    (lambda: NET.simple_bind(mx.cpu(), data=(2, 3)), OutOfMemoryError, NO_MEMORY),
]
