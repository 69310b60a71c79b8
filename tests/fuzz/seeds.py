"""Small valid files of every kind that is read, and what reads them."""

from __future__ import annotations

import gzip
import json
import struct
from collections.abc import Callable
from pathlib import Path

import numpy as np

import dpmodule as mx
from helpers import onnx_files

__all__ = ["KINDS"]

DATA = Path(__file__).parents[1] / "data"


def _graphs() -> list[bytes]:
    sym = mx.sym
    net = sym.Convolution(sym.Variable("data", shape=(0, 1, 8, 8)), kernel=(3, 3), num_filter=2, name="c")
    net = sym.Activation(sym.BatchNorm(net, name="b"), act_type="relu")
    net = sym.Concat(*(sym.Pooling(net, kernel=(2, 2), pool_type=kind) for kind in ("max", "avg")), dim=1)
    net = sym.SoftmaxOutput(sym.FullyConnected(net, num_hidden=3, lr_mult=2), name="softmax")
    old = [DATA / "symbols" / "yyuananyvi_det1_model-symbol.json", DATA / "symbols" / "save_000800.json"]
    return [net.tojson().encode(), *(path.read_bytes() for path in old)]


def _arrays() -> list[bytes]:
    folder = DATA / "formats"
    names = ("v2_dense.params", "v2_list.nd", "v2_sparse.params", "v1_handmade.params", "v0_handmade.params")
    return [(folder / name).read_bytes() for name in (*names, "v3_npshape.params")]


def _safetensors(folder: Path) -> list[bytes]:
    arrays = {
        "arg:weight": mx.nd.ones((3, 2)),
        "aux:mean": mx.nd.array([1, 2], dtype="float64"),
        "flag": mx.nd.array([1, 0, 1], dtype="bool"),
        "half": mx.nd.ones((1,), dtype="bfloat16"),
        "none": mx.nd.empty((0, 3)),
        "scalar": mx.nd.array(np.int64(5), dtype="int64"),
    }
    found = []
    for chosen, texts in ((arrays, {"symbol": "{}"}), ({"a": arrays["arg:weight"]}, {}), ({}, {"a": "b"})):
        path = folder / "seed.safetensors"
        with path.open("wb") as file:
            mx.nd.safetensors.write(file, chosen, texts)
        found.append(path.read_bytes())
    return found


def _states() -> list[bytes]:
    found = []
    for name, options in (("sgd", {"momentum": 0.9}), ("adam", {}), ("ftrl", {})):
        updater = mx.optimizer.get_updater(mx.optimizer.create(name, **options))
        updater(0, mx.nd.ones((2, 3)), mx.nd.ones((2, 3)))
        found += [updater.get_states(dump_optimizer=dump) for dump in (False, True)]
    return found


def _records(folder: Path) -> list[bytes]:
    path = folder / "seed.rec"
    record = mx.recordio.MXRecordIO(str(path), "w")
    record.write(mx.recordio.pack(mx.recordio.IRHeader(0, 1.0, 2, 0), b"abc"))
    record.write(struct.pack("<I", 0xCED7230A) * 2 + b"xyz")
    record.write(b"")
    record.write(mx.recordio.pack(mx.recordio.IRHeader(0, [1.0, 2.0], 3, 0), bytes(range(64))))
    record.close()
    return [path.read_bytes()]


def _idx() -> list[bytes]:
    pixels = np.arange(2 * 3 * 3, dtype=np.uint8)
    images = struct.pack(">HBBIII", 0, 8, 3, 2, 3, 3) + pixels.tobytes()
    return [images, gzip.compress(images, mtime=0)]


def _onnx(folder: Path) -> list[bytes]:
    names = (
        "channels_last",
        "loop_rnn",
        "branch",
        "detection",
        "lstm_reverse",
        "opset7",
        "quantized",
        "function",
    )
    return [
        onnx_files.by_hand(name, folder).path.read_bytes() for name in (*names, "expanded", "two_classes")
    ]


def _read_onnx(data: bytes, folder: Path) -> None:
    (folder / "a.onnx").write_bytes(data)
    symbol, arg_params, _ = mx.onnx.import_model(folder / "a.onnx")
    json.loads(symbol.tojson())
    mx.onnx.get_model_metadata(folder / "a.onnx")
    for array in arg_params.values():
        array.wait_to_read()


def _read_graph(data: bytes, folder: Path) -> None:
    (folder / "a-symbol.json").write_bytes(data)
    symbol = mx.sym.load(str(folder / "a-symbol.json"))
    symbol.list_arguments()
    symbol.infer_shape_partial()
    json.loads(symbol.tojson())


def _read_arrays(data: bytes, folder: Path) -> None:
    found = mx.nd.load_frombuffer(data)
    for array in found.values() if isinstance(found, dict) else found:
        array.wait_to_read()


def _read_safetensors(data: bytes, folder: Path) -> None:
    path = folder / "a.safetensors"
    path.write_bytes(data)
    for array in mx.nd.load(path).values():
        array.asnumpy().sum()
    mx.nd.safetensors.read_metadata(str(path))


def _read_states(data: bytes, folder: Path) -> None:
    mx.optimizer.get_updater(mx.optimizer.create("sgd")).set_states(data)


def _read_records(data: bytes, folder: Path) -> None:
    path = folder / "a.rec"
    path.write_bytes(data)
    record = mx.recordio.MXRecordIO(str(path), "r")
    try:
        while (payload := record.read()) is not None:
            if len(payload) >= 24:
                mx.recordio.unpack(payload)
    finally:
        record.close()


def _read_index(data: bytes, folder: Path) -> None:
    (folder / "b.rec").write_bytes(_records(folder)[0])
    (folder / "b.idx").write_bytes(data)
    record = mx.recordio.MXIndexedRecordIO(str(folder / "b.idx"), str(folder / "b.rec"), "r")
    try:
        for key in record.keys[:20]:
            record.read_idx(key)
    finally:
        record.close()


def _read_csv(data: bytes, folder: Path) -> None:
    (folder / "a.csv").write_bytes(data)
    for _ in mx.io.CSVIter(data_csv=str(folder / "a.csv"), data_shape=(3,), batch_size=2):
        pass


def _read_libsvm(data: bytes, folder: Path) -> None:
    (folder / "a.libsvm").write_bytes(data)
    for _ in mx.io.LibSVMIter(data_libsvm=str(folder / "a.libsvm"), data_shape=(5,), batch_size=2):
        pass


def _read_idx(data: bytes, folder: Path) -> None:
    (folder / "images").write_bytes(data)
    (folder / "labels").write_bytes(struct.pack(">HBBI", 0, 8, 1, 2) + b"\1\2")
    for _ in mx.io.MNISTIter(
        image=str(folder / "images"), label=str(folder / "labels"), batch_size=1, shuffle=False
    ):
        pass


KINDS: dict[str, tuple[Callable[[Path], list[bytes]], Callable[[bytes, Path], None]]] = {
    "symbol.json": (lambda folder: _graphs(), _read_graph),
    "params": (lambda folder: _arrays(), _read_arrays),
    "safetensors": (_safetensors, _read_safetensors),
    "states": (lambda folder: _states(), _read_states),
    "rec": (_records, _read_records),
    "idx": (lambda folder: [b"0\t0\n1\t44\n2\t80\n3\t88\n"], _read_index),
    "csv": (lambda folder: [b"1,2,3\n4.5,5e-1,6\n7,8,9\n"], _read_csv),
    "libsvm": (lambda folder: [b"1 0:1 3:2.5\n0 1:4\n2 2:1 4:-3\n"], _read_libsvm),
    "mnist": (lambda folder: _idx(), _read_idx),
    "onnx": (_onnx, _read_onnx),
}
"""Kind: valid files made in a folder, and a function that reads a damaged one, there if it needs a file."""
