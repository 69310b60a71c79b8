"""Wrong calls of key-value stores."""

import functools
import os
import socket
import threading
from unittest import mock

import numpy as np

import dpmodule as mx
from dpmodule.base import ArgumentError, BoundsError, DeviceError, DTypeError, ShapeError, StateError
from dpmodule.kvstore.base import KeysError

nd, one = mx.nd, mx.nd.zeros((1,))
SHAPE = (2, 3)


def kept(call, kind):
    """Make a wrong call of a store with dense and row-sparse values, which then has what it had."""
    store = mx.kv.create(kind)
    store.init(["w", "r"], [nd.zeros(SHAPE), nd.ones(SHAPE).tostype("row_sparse")])
    try:
        call(store)
    finally:
        store.pull("w", out := nd.ones(SHAPE))
        assert not out.asnumpy().any()


def empty(shape=SHAPE):
    return nd.sparse.zeros("row_sparse", shape)


def pull(store, key="r", out=None, row=0, **options):
    store.row_sparse_pull(key, empty() if out is None else out, row_ids=nd.array([row]), **options)


def joining(timeout_s=60, **changes):
    group = {"RANK": "0", "WORLD_SIZE": "2", "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "29500"}
    with (
        mock.patch.dict(os.environ, {**group, **changes}),
        mock.patch("dpmodule.kvstore.ranks._POLL_S", 0.05),
    ):
        mx.kv.create("dist_sync", timeout_s=timeout_s)


def used_port(rank):
    try:
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen(16)
            joining(3, RANK=rank, MASTER_PORT=str(other.getsockname()[1]))
    finally:  # torch tries until its time is over, with a socket that later tests would count
        for thread in threading.enumerate():
            if thread.name == "dpmodule-join":
                thread.join()


def compress(params, kind="device"):
    store = mx.kv.create(kind)
    store.set_gradient_compression(params)
    return store


def module(compression, kvstore="device"):
    net = mx.sym.LinearRegressionOutput(
        mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=1), name="out"
    )
    two = [mx.cpu(0), mx.cpu(1)]
    mod = mx.mod.Module(net, label_names=["out_label"], context=two, compression_params=compression)
    mod.bind([("data", (4, 3))], [("out_label", (4, 1))])
    mod.init_params()
    mod.init_optimizer(kvstore)


def whole_numbers():
    store = compress({"type": "2bit"})
    store.init("i", nd.zeros((2,), dtype="int32"))
    store.push("i", nd.zeros((2,), dtype="int32"))


def nccl():
    with mock.patch("dpmodule.kvstore.num_gpus", return_value=0):
        mx.kv.create("nccl")


def servers():
    with mock.patch.dict(os.environ, {"DMLC_ROLE": "worker", "DMLC_PS_ROOT_URI": "10.0.0.1"}):
        mx.kv.create("dist_sync")


MISUSE = [
    (lambda s: s.pull("x", one), ArgumentError, "unknown key 'x'"),
    (lambda s: s.pull("w"), KeysError, "out is missing"),
    (lambda s: s.init("w", one), ArgumentError, "exists already"),
    (lambda s: s.init(["x", "x"], [one] * 2), ArgumentError, "exists already"),
    (lambda s: s.init("x", [one] * 2), ArgumentError, "several values"),
    (lambda s: s.broadcast("w", one, one), ArgumentError, "exists already"),
    (lambda s: s.push("w", nd.zeros((9,))), ShapeError, r"shape \(2, 3\), got \(9,\)"),
    (lambda s: s.pull("w", nd.zeros((1, 3))), ShapeError, r"shape \(2, 3\), out has \(1, 3\)"),
    (lambda s: s.push(["w"], []), KeysError, "1 keys and 0 values"),
    (lambda s: s.push(["w"], nd.zeros(SHAPE)), KeysError, "1 keys and a NDArray"),
    (lambda s: s.push("w", 3), ArgumentError, "is a int, expected NDArrays"),
    (lambda s: s.push("w", []), ArgumentError, "empty list"),
    (lambda s: s.push(2.5, nd.zeros(SHAPE)), KeysError, "float, expected a string or an integer"),
    (lambda s: s.init(["v", 3], [one] * 2), KeysError, "use one type"),
    (lambda s: s.init(3, one), KeysError, "others are like 'w'"),
    (lambda s: s.push(3, one), KeysError, "others are like 'w'"),
    (lambda s: s.pull(3, one), KeysError, "others are like 'w'"),
    (lambda s: s.push("w", nd.zeros(SHAPE).tostype("csr")), ArgumentError, "cannot sum csr"),
    (lambda s: s.save_optimizer_states("f"), StateError, "set_optimizer"),
    (lambda s: s.load_optimizer_states("f"), StateError, "set_optimizer"),
    (lambda s: s.is_capable("flying"), ArgumentError, "unknown capability 'flying'"),
    (lambda s: s.row_sparse_pull("r", empty()), KeysError, "out or row_ids is missing"),
    (lambda s: s.row_sparse_pull("r", row_ids=nd.array([0])), KeysError, "out or row_ids is missing"),
    (lambda s: pull(s, out=nd.ones(SHAPE).tostype("csr")), ArgumentError, "out of key 'r'"),
    (lambda s: pull(s, "w"), ArgumentError, "stored as default"),
    (lambda s: pull(s, row=4), BoundsError, "row 4"),
    (lambda s: pull(s, row=-1), BoundsError, "row -1"),
    (lambda s: pull(s, "x"), ArgumentError, "unknown key"),
    (lambda s: pull(s, 3), KeysError, "others are like"),
    (
        lambda s: s.row_sparse_pull("r", [empty()] * 3, row_ids=[nd.array([0])] * 2),
        KeysError,
        "3 arrays, but 2 row_",
    ),
    (lambda s: pull(s, out=empty((5, 3))), ShapeError, "expected"),
]
ROWS = [
    *[
        (functools.partial(kept, call, kind), error, said)
        for call, error, said in MISUSE
        for kind in ("local", "device")
    ],
    (lambda: mx.kv.create("dist_device_async"), ArgumentError, "expected one of local, .*dist_async"),
    *[(lambda n=n: mx.kv.create(n), DTypeError, "expected a name") for n in (3, None)],
    (nccl, DeviceError, "needs a GPU"),
    (lambda: mx.kv.KVStoreBase.register(dict), ArgumentError, "not a subclass"),
    (lambda: mx.kv.KVStoreBase().broadcast("k", None, None), NotImplementedError, "KVStoreBase"),
    (lambda: mx.kv.KVStoreBase().pushpull("k", None), NotImplementedError, "KVStoreBase"),
    (lambda: mx.kv.KVStoreBase().set_optimizer(None), NotImplementedError, "KVStoreBase"),
    (lambda: mx.kv.KVStoreBase().set_gradient_compression({}), NotImplementedError, "KVStoreBase"),
    (lambda: mx.kv.KVStoreBase().save_optimizer_states("f"), NotImplementedError, "KVStoreBase"),
    (lambda: mx.kv.KVStoreBase().load_optimizer_states("f"), NotImplementedError, "KVStoreBase"),
    # processes
    (servers, ArgumentError, "DMLC_PS_ROOT_URI, DMLC_ROLE are set.* torchrun --standalone"),
    (lambda: joining(RANK="x"), ArgumentError, "RANK=x, expected a whole number from 0 to WORLD_SIZE - 1"),
    (lambda: joining(RANK="-1"), ArgumentError, "RANK=-1, expected"),
    (lambda: joining(WORLD_SIZE="two"), ArgumentError, "WORLD_SIZE=two, expected a whole number from 1"),
    (lambda: joining(MASTER_PORT="http"), ArgumentError, "MASTER_PORT=http, expected a whole number from 1"),
    (lambda: joining(MASTER_ADDR=""), ArgumentError, "RANK, WORLD_SIZE, MASTER_PORT, but not MASTER_ADDR"),
    (lambda: used_port("0"), ArgumentError, r"the port is in use .*MASTER_PORT=\d+.*choose another"),
    (lambda: used_port("1"), ArgumentError, r"the listener at the port is not rank 0 .*MASTER_PORT=\d"),
    (lambda: mx.kv.create("dist_sync", timeout_s=0), ArgumentError, "timeout_s is 0"),
    (lambda: mx.kv.create("dist_async", average_every=0), ArgumentError, "average_every is 0"),
    (lambda: mx.kv.create("dist_sync", speed=3), ArgumentError, "does not accept speed"),
    (lambda: mx.kv.create("local", timeout_s=3), ArgumentError, "'local' does not accept timeout_s"),
    (lambda: compress({"type": "2bit"}, "dist_async"), ArgumentError, "sends no gradients"),
    (
        lambda: mx.io.NDArrayIter(np.arange(7), np.arange(7), 2).take_part(3, 3),
        ArgumentError,
        "part_index is 3, expected 0 to 2",
    ),
    # compression
    *[(lambda p=p: compress(p), ArgumentError, "expected a dict") for p in (None, {}, {"threshold": 0.5})],
    *[(lambda t=t: compress({"type": t}), ArgumentError, f"'{t}' is unknown") for t in ("1bit", "none")],
    (lambda: compress({"type": "2bit", "threshold": 0}), ArgumentError, "threshold is 0"),
    (lambda: compress({"type": "2bit", "threshold": "x"}), ArgumentError, "threshold is 'x'"),
    (lambda: compress({"type": "2bit", "thresh": 1}), ArgumentError, r"has \['thresh'\]"),
    (lambda: compress({"type": "2bit"}, "local_update_cpu"), ArgumentError, "not supported"),
    (whole_numbers, DTypeError, "only floats"),
    (lambda: module({"type": "3bit"}), ArgumentError, "'3bit' is unknown"),
    (lambda: module({"type": "2bit"}, "local"), ArgumentError, "not supported by kvstore 'local'"),
]
