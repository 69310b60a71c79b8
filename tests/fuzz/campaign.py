"""A process that reads damaged files of one kind and reports every one that is not simply read or refused.

Usage: python campaign.py KIND COUNT SEED, with the folder of the tests' helpers on the path.

An input may succeed or raise MXNetError with a text that UTF-8 can hold. Anything else is a finding: another
exception, more than 5 seconds of the processor, or memory beyond 4 times the file and 64 MB. The process prints a line
of JSON; if it dies, the input at fault lies in `last` in the working folder.
"""

import faulthandler
import gzip
import hashlib
import json
import logging
import random
import resource
import struct
import sys
import tarfile
import tempfile
import time
import warnings
import zipfile
from pathlib import Path

import numpy as np
import torch

import dpmodule as mx
from dpmodule.base import MXNetError
from dpmodule.checkpoint import tables
from dpmodule.cli import archives
from dpmodule.ndarray.growing_table import GrowingTable
from dpmodule.ndarray.safetensors import write as write_safetensors
from dpmodule.ops.shapes import HASHED_ROWS
from helpers import onnx_files

LIMIT_S, LIMIT_BYTES, TIMES_SIZE = 5.0, 64 * 2**20, 4
ADDRESS_SPACE = 2**30
"""How much more memory the process may ask for at all, in bytes: an absurd request fails at once."""
DATA = Path(__file__).parents[1] / "data"


# valid files of every kind, and what reads them


def graphs(folder):
    sym = mx.sym
    net = sym.Convolution(sym.Variable("data", shape=(0, 1, 8, 8)), kernel=(3, 3), num_filter=2, name="c")
    net = sym.Activation(sym.BatchNorm(net, name="b"), act_type="relu")
    net = sym.Concat(*(sym.Pooling(net, kernel=(2, 2), pool_type=kind) for kind in ("max", "avg")), dim=1)
    net = sym.SoftmaxOutput(sym.FullyConnected(net, num_hidden=3, lr_mult=2), name="softmax")
    old = [DATA / "symbols" / "yyuananyvi_det1_model-symbol.json", DATA / "symbols" / "save_000800.json"]
    return [net.tojson().encode(), *(path.read_bytes() for path in old)]


def arrays(folder):
    names = ("v2_dense.params", "v2_list.nd", "v2_sparse.params", "v1_handmade.params", "v0_handmade.params")
    return [(DATA / "formats" / name).read_bytes() for name in (*names, "v3_npshape.params")]


def npz_files(folder):
    found = []
    for save in (np.savez, np.savez_compressed):
        path = folder / "seed.npz"
        sparse = {"data": np.ones(2, "f4"), "indices": np.array([1, 0]), "indptr": np.array([0, 1, 1, 2])}
        sparse |= {"shape": np.array([3, 2]), "format": np.array(b"csr")}
        save(path, **{"arg:w.0": np.ones((3, 2), "f4"), "aux:n": np.array(3, "i8")})
        found.append(path.read_bytes())
        save(path, **{f"arg:s/{key}": values for key, values in sparse.items()})
        found.append(path.read_bytes())
    return found


def safetensors(folder):
    chosen = {
        "arg:weight": mx.nd.ones((3, 2)), "aux:mean": mx.nd.array([1, 2], dtype="float64"),
        "flag": mx.nd.array([1, 0, 1], dtype="bool"), "half": mx.nd.ones((1,), dtype="bfloat16"),
        "none": mx.nd.empty((0, 3)), "scalar": mx.nd.array(np.int64(5), dtype="int64"),
    }  # fmt: skip
    found, path = [], folder / "seed.safetensors"
    for content, texts in ((chosen, {"symbol": "{}"}), ({"a": chosen["arg:weight"]}, {}), ({}, {"a": "b"})):
        with path.open("wb") as file:
            mx.nd.safetensors.write(file, content, texts)
        found.append(path.read_bytes())
    return found


def states(folder):
    found = []
    for name, options in (("sgd", {"momentum": 0.9}), ("adam", {}), ("ftrl", {})):
        updater = mx.optimizer.get_updater(mx.optimizer.create(name, **options))
        updater(0, mx.nd.ones((2, 3)), mx.nd.ones((2, 3)))
        found += [updater.get_states(dump_optimizer=dump) for dump in (False, True)]
    return found


def records(folder):
    with mx.recordio.MXRecordIO(folder / "seed.rec", "w") as record:
        record.write(mx.recordio.pack(mx.recordio.IRHeader(0, 1.0, 2, 0), b"abc"))
        record.write(struct.pack("<I", 0xCED7230A) * 2 + b"xyz")
        record.write(b"")
        record.write(mx.recordio.pack(mx.recordio.IRHeader(0, [1.0, 2.0], 3, 0), bytes(range(64))))
    return [(folder / "seed.rec").read_bytes()]


def digits(folder):
    images = struct.pack(">HBBIII", 0, 8, 3, 2, 3, 3) + np.arange(2 * 3 * 3, dtype=np.uint8).tobytes()
    return [images, gzip.compress(images, mtime=0)]


def onnx(folder):
    names = "channels_last loop_rnn branch detection lstm_reverse opset7 quantized function"
    return [onnx_files.by_hand(name, folder).path.read_bytes() for name in names.split()]


def archives_of_models(folder):
    found, (graph, path) = [], (folder / "net-symbol.json", folder / "seed.tar")
    graph.write_bytes(b'{"nodes": []}' * 20)
    for mode in ("w", "w:gz", "w:bz2", "w:xz"):
        with tarfile.open(path, mode) as archive:
            archive.add(graph, "net-symbol.json")
            archive.add(graph, "deep/er.json")
        found.append(path.read_bytes())
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.write(graph, "net-symbol.json")
        archive.write(graph, "deep/er.json")
    return [*found, path.read_bytes()]


def parts_of(folder, manifest, part):
    """Write a manifest with a table of rows and one of ids, and its part; returns both as bytes."""
    ids, rows = torch.arange(6) * 2**60, torch.arange(12.0).view(6, 2)
    about = {"used": torch.tensor([1, 1, 0, 1, 0, 1]) > 0, "last": torch.arange(6), "ids": ids}
    about["waiting"] = torch.tensor([[7, 1, 2]])
    arrays = {"w": rows[:5], "state:w": rows[:5], "e": rows, "state:e": rows}
    arrays |= {f"{name}:e": tensor for name, tensor in about.items()}
    with open(folder / part, "wb") as file:
        write_safetensors(file, {name: mx.nd.from_torch(tensor) for name, tensor in arrays.items()})
    state = {"array": "state:w", "dtype": "float32"}
    table = {"shape": [5, 2], "dtype": "float32", "dense": True, "state": [state, None]}
    hashed = {"shape": [HASHED_ROWS, 2], "dtype": "float32", "dense": False, "ids": {"step": 9, "seed": 3}}
    hashed["state"] = {"array": "state:e", "dtype": "float32"}
    text = json.dumps({"version": 1, "parts": [part], "tables": {"w": table, "e": hashed}})
    (folder / manifest).write_text(text)
    return text.encode(), (folder / part).read_bytes()


def manifests(folder):
    return [parts_of(folder, "m.tables", "a-00001-of-00001.safetensors")[0]]


def table_parts(folder):
    return [parts_of(folder, "m.tables", "a.part")[1]]


def read_tables(path):
    rows = GrowingTable((HASHED_ROWS, 2), torch.float32)
    for array in tables.load(str(path)).values():
        array.fetched()
        if array.shape == rows.shape:
            rows.assign(array)
            rows.parts()
    tables.load_states(str(path), lambda name, count: rows if count == HASHED_ROWS else torch.arange(5))


def read_table_part(path):
    read_tables(path.parent / "m.tables")


def read_archive(path):
    archives.looks_like_archive(str(path))
    with tempfile.TemporaryDirectory(dir=path.parent) as folder:
        outside = set(path.parent.iterdir())
        try:
            archives.unpack(str(path), folder)
        finally:
            assert set(path.parent.iterdir()) == outside


def read_onnx(path):
    symbol, arg_params, _ = mx.onnx.import_model(path)
    json.loads(symbol.tojson())
    mx.onnx.get_model_metadata(path)
    for array in arg_params.values():
        array.wait_to_read()


def read_graph(path):
    symbol = mx.sym.load(str(path))
    symbol.list_arguments()
    symbol.infer_shape_partial()
    json.loads(symbol.tojson())


def read_arrays(path):
    found = mx.nd.load_frombuffer(path.read_bytes())
    for array in found.values() if isinstance(found, dict) else found:
        array.wait_to_read()


def read_safetensors(path):
    for array in mx.nd.load(path).values():
        array.asnumpy().sum()
    mx.nd.safetensors.read_metadata(str(path))


def read_states(path):
    mx.optimizer.get_updater(mx.optimizer.create("sgd")).set_states(path.read_bytes())


def read_records(path):
    with mx.recordio.MXRecordIO(path, "r") as record:
        while (payload := record.read()) is not None:
            if len(payload) >= 24:
                mx.recordio.unpack(payload)


def read_index(path):
    path.with_suffix(".rec").write_bytes(records(path.parent)[0])
    with mx.recordio.MXIndexedRecordIO(path, path.with_suffix(".rec"), "r") as record:
        for key in record.keys[:20]:
            record.read_idx(key)


def read_digits(path):
    labels = path.with_suffix(".labels")
    labels.write_bytes(struct.pack(">HBBI", 0, 8, 1, 2) + b"\1\2")
    list(mx.io.MNISTIter(image=path, label=labels, batch_size=1, shuffle=False))


def read_csv(path):
    list(mx.io.CSVIter(data_csv=path, data_shape=(3,), batch_size=2))


def read_libsvm(path):
    list(mx.io.LibSVMIter(data_libsvm=path, data_shape=(5,), batch_size=2))


KINDS = {
    "symbol.json": (graphs, read_graph), "params": (arrays, read_arrays),
    "npz": (npz_files, read_arrays),
    "safetensors": (safetensors, read_safetensors), "states": (states, read_states), "rec": (records, read_records),
    "idx": (b"0\t0\n1\t44\n2\t80\n3\t88\n", read_index), "csv": (b"1,2,3\n4.5,5e-1,6\n7,8,9\n", read_csv),
    "libsvm": (b"1 0:1 3:2.5\n0 1:4\n2 2:1 4:-3\n", read_libsvm), "mnist": (digits, read_digits),
    "tables": (manifests, read_tables), "part": (table_parts, read_table_part),
    "onnx": (onnx, read_onnx), "archive": (archives_of_models, read_archive),
}  # fmt: skip
"""Kind: valid files, or what makes them in a folder, and what reads a damaged one."""


# damage: flipped bits, odd numbers, cuts, repeats, joins, and for JSON changed values

NUMBERS = [0, 1, -1, 2, 127, 128, 255, 256, -(2**31), -(2**63), *(2**n - 1 for n in (31, 32, 63))]
NUMBERS += [2**n for n in (15, 16, 40)]
TEXTS = ["", "x", "null", "-1", "()", "(1,", "(0,0)", "(1000000,1000000,1000000)", "1e400", "nan", "\0", "é"]
VALUES = (*NUMBERS, *TEXTS, None, True, 1.5, [], {}, [[]], [0, 0, 0], {"a": "b"})
KEYS = ("op", "name", "inputs", "attrs", "attr", "param", "x", "subgraphs", "shape")


def change_bytes(data, rng):
    """Flip bits, write a number over others, cut the end, drop, repeat or insert bytes."""
    at = rng.randrange(len(data))
    action = rng.choice(("flip", "flip", "over", "over", "cut", "drop", "repeat", "insert"))
    if action == "flip":
        for _ in range(rng.choice((1, 1, 2, 8))):
            data[rng.randrange(len(data))] ^= 1 << rng.randrange(8)
    elif action == "over":
        size = rng.choice((1, 2, 4, 8))
        at = min(at, max(len(data) - size, 0))
        data[at : at + size] = (rng.choice(NUMBERS) & (2 ** (8 * size) - 1)).to_bytes(size, "little")
    elif action == "cut":
        del data[at:]
    elif action == "drop":
        del data[at : at + rng.choice((1, 2, 4, 8, 64))]
    elif action == "repeat":
        data[at:at] = data[at : at + rng.choice((1, 4, 8, 64))] * rng.choice((1, 2, 16))
    else:
        data[at:at] = rng.randbytes(rng.choice((1, 4, 8)))


def places(value, found):
    """Collect (container, key) of everything inside a JSON value."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, inner in list(items):
        found.append((value, key))
        places(inner, found)
    return found


def change_json(data, rng):
    """Change, remove, copy or rename values of a JSON text, which stays one."""
    root = json.loads(data)
    found = places(root, [])
    for _ in range(rng.choice((1, 1, 2, 5))):
        container, key = rng.choice(found)
        action = rng.randrange(4)
        try:
            if action == 0:
                container[key] = rng.choice(VALUES)
            elif action == 1:
                del container[key]
            elif action == 2:
                other, place = rng.choice(found)
                container[key] = other[place]
            elif isinstance(container, dict):
                container[rng.choice(KEYS)] = container.pop(key)
        except (KeyError, IndexError):  # an earlier change took it away
            continue
    try:
        return json.dumps(root).encode()
    except (ValueError, RecursionError):  # a copy put a value into itself
        return data[: rng.randrange(len(data))]


def mutate(data, others, rng):
    """Return a damaged version of a file; `others` are valid files of its kind, to join parts of."""
    if data[:1] == b"{" and rng.random() < 0.6:
        return change_json(data, rng)
    if data[8:9] == b"{" and rng.random() < 0.6:  # safetensors: the header, whose length stands before it
        end = 8 + int.from_bytes(data[:8], "little")
        header = change_json(data[8:end], rng)
        return len(header).to_bytes(8, "little") + header + data[end:]
    changed = bytearray(data)
    if rng.random() < 0.1:
        other = rng.choice(others)
        return bytes(changed[: rng.randrange(len(changed) + 1)]) + other[rng.randrange(len(other) + 1) :]
    for _ in range(rng.choice((1, 1, 1, 2, 4))):
        if changed:
            change_bytes(changed, rng)
    return bytes(changed)


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024


def campaign(kind, count, seed):
    """Read `count` damaged files; return how many were read, refused and found faulty."""
    rng = random.Random(f"{kind} {seed}")
    folder = Path.cwd() / "files"
    folder.mkdir(exist_ok=True)
    path = folder / f"a.{kind}"
    make, read = KINDS[kind]
    valid = [make] if isinstance(make, bytes) else make(folder)
    for data in valid:
        path.write_bytes(data)
        read(path)
    result = {"read": 0, "refused": 0, "slowest_s": 0.0, "findings": []}
    mapped = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (mapped + ADDRESS_SPACE, resource.RLIM_INFINITY))
    before = peak()
    for _ in range(count):
        data = mutate(rng.choice(valid), valid, rng)
        Path("last").write_bytes(data)
        path.write_bytes(data)
        faulthandler.dump_traceback_later(4 * LIMIT_S, exit=True)
        fault, start = "", time.process_time()
        try:
            read(path)
            result["read"] += 1
        except MXNetError as error:
            result["refused"] += 1
            str(error).encode()
        except BaseException as error:
            fault = f"{type(error).__name__}: {error}"
        spent, grown = time.process_time() - start, peak() - before
        result["slowest_s"] = max(result["slowest_s"], round(spent, 3))
        if spent > LIMIT_S:
            fault = f"{spent:.1f} s"
        if grown > LIMIT_BYTES + TIMES_SIZE * len(data):
            fault, before = f"{grown / 2**20:.0f} MB", peak()
        if fault:
            name = hashlib.sha1(data).hexdigest()[:12]
            Path(name).write_bytes(data)
            result["findings"].append([name, fault[:300]])
    faulthandler.cancel_dump_traceback_later()
    return result


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    print(json.dumps(campaign(sys.argv[1], int(sys.argv[2]), int(sys.argv[3]))))
