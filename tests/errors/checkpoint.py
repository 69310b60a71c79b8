"""Wrong calls of `mx.checkpoint`, and values that run files do not keep."""

import io
from collections import defaultdict
from pathlib import Path

import numpy as np

import dpmodule as mx
from dpmodule import checkpoint
from dpmodule.base import ArgumentError, FileError, FileFormatError
from dpmodule.checkpoint import run_format

PARAMS = {"fc_weight": mx.nd.ones((2, 3)), "fc_bias": mx.nd.ones((2,))}
NET = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")


def save(folder, epoch=1, params=None, files=(), **options):
    """Save a network; a save that is refused leaves no files."""
    try:
        checkpoint.save_checkpoint(
            str(folder / "net"), epoch, NET, PARAMS if params is None else params, {}, **options
        )
    except ArgumentError:
        assert list(folder.iterdir()) == []
        raise


def load(folder, arrays, epoch=1):
    """Load a file of arrays as parameters."""
    mx.nd.save(folder / "net-0001.params", arrays)
    return checkpoint.load_params(str(folder / "net"), epoch)


def missing(folder, load=checkpoint.load_checkpoint, epoch=1):
    save(folder, 3)
    save(folder, 5, format="safetensors")
    load(str(folder / "net"), epoch)


def truncated(folder):
    save(folder)
    path = folder / "net-0001.params"
    path.write_bytes(path.read_bytes()[:-5])
    checkpoint.load_checkpoint(str(folder / "net"), 1)


def damaged_graph(folder):
    with open(folder / "net-0000.safetensors", "wb") as file:
        mx.nd.safetensors.write(file, {"arg:a": mx.nd.ones((1,))}, {"symbol": "[]"})
    checkpoint.load_checkpoint(str(folder / "net"), 0)


def keep(value):
    """Write a value to a run file; one that is refused writes nothing."""
    file = io.BytesIO()
    try:
        run_format.write(file, {"a": value})
    finally:
        assert not file.getvalue()


def array_of_objects(folder):
    run_format.write(file := io.BytesIO(), {"a": np.zeros(2, "<f4")})
    (folder / "a.run").write_bytes(file.getvalue().replace(b"<f4", b"|O "))
    run_format.read(folder / "a.run")


ENDLESS = []
ENDLESS.append(ENDLESS)
ROWS = [
    *[(lambda folder, e=e: save(folder, e), ArgumentError, "epoch is") for e in (-1, 1.5, "1", None)],
    (lambda folder: save(folder, params={"w": np.ones(2)}), ArgumentError, r"arg_params\['w'\] is a ndarray"),
    (lambda folder: save(folder / "nowhere"), FileError, "nowhere"),
    (lambda folder: save(folder, format="onnx"), ArgumentError, "'onnx', expected one of params"),
    (
        lambda folder: save(
            folder, params={"w": mx.nd.sparse.zeros("row_sparse", (2, 3))}, format="safetensors"
        ),
        ArgumentError,
        r"'arg:w' is of storage type 'row_sparse'.*\.params",
    ),
    (lambda folder: load(folder, [mx.nd.ones((2,))]), FileFormatError, r"no names.*nd\.load"),
    (lambda folder: load(folder, {"weight": mx.nd.ones((2,))}), FileFormatError, "'weight'.*arg:fc1_weight"),
    (
        lambda folder: checkpoint.load_checkpoint(str(folder / "net"), 1),
        FileError,
        "nothing is saved|net-symbol",
    ),
    (missing, FileError, "epochs 3, 5"),
    (lambda folder: missing(folder, checkpoint.load_states, 3), FileError, "epochs 3, 5"),
    (truncated, FileFormatError, r"net-0001\.params"),
    (damaged_graph, FileFormatError, r"net-0000\.safetensors: the text 'symbol'"),
    # run files
    (lambda: keep([1, print]), ArgumentError, r"state\.a\.1 is a builtin_function_or_method"),
    (lambda: keep({"b": Path("x")}), ArgumentError, r"state\.a\.b is a PosixPath"),
    (lambda: keep(type("Settings", (dict,), {})()), ArgumentError, r"state\.a is a Settings"),
    (lambda: keep(np.array([None])), ArgumentError, r"state\.a is an array of dtype object"),
    (lambda: keep(mx.nd.ones((2, 2)).tostype("csr")), ArgumentError, r"state\.a is a CSRNDArray"),
    (lambda: keep(defaultdict(print)), ArgumentError, "state.a is a defaultdict of <built-in function"),
    (lambda: keep(ENDLESS), ArgumentError, "contains itself"),
    (array_of_objects, FileFormatError, r"a\.run"),
]
