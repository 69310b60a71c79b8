"""Attributes as text: today's spelling, and that of symbols which Python 2 saved."""

import gc
import json
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np

import dpmodule as mx
from dpmodule.ops.attrs import literal

PYTHON2 = [  # operator, name, attributes, inputs
    ("null", "data", {"__shape__": "(8L, 3L, 6L, 6L)", "__dtype__": "0L"}, []),
    ("null", "conv_weight", {"__shape__": "[16L, 3L, 3L, 3L]"}, []),
    ("Convolution", "conv", {"kernel": "(3L, 3L)", "num_filter": "16L", "no_bias": "1L"}, [0, 1]),
    ("Pooling", "pool", {"kernel": "(2L,2L)", "pooling_convention": "u'full'", "stride": "(2L,2L,)"}, [2]),
    ("clip", "clip", {"a_min": "-1L", "a_max": "6L"}, [3]),
    ("Concat", "join", {"num_args": "2L"}, [4, 4]),
    ("Cast", "cast", {"dtype": 'u"float16"'}, [5]),
    ("slice", "slice", {"begin": "(0L, None)", "end": "[1L, 4L]"}, [6]),
]


def test_a_symbol_that_python_2_saved():
    nodes = [
        {"op": op, "name": name, "attrs": attrs, "inputs": [[i, 0, 0] for i in inputs]}
        for op, name, attrs, inputs in PYTHON2
    ]
    net = mx.sym.load_json(json.dumps({"nodes": nodes, "arg_nodes": [0, 1], "heads": [[7, 0, 0]]}))
    assert net.infer_shape()[0] == [(8, 3, 6, 6), (16, 3, 3, 3)]
    executor = net.simple_bind(mx.cpu())
    found = executor.forward(data=mx.nd.ones((8, 3, 6, 6)), conv_weight=mx.nd.ones((16, 3, 3, 3)))[0]
    assert (found.shape, found.dtype) == ((1, 4, 2, 2), np.float16)
    assert (found.asnumpy() == 6).all()
    assert mx.sym.load_json(net.tojson()).infer_shape() == net.infer_shape()


def test_literals_are_read_in_several_threads():
    def let_others_run(*args):  # while Python's own parser builds its tree, where it fails (gh-106905)
        time.sleep(0)

    def read(_):
        return [literal(f"({number}, [4, (5, 6)])") for number in range(300)]

    thresholds = gc.get_threshold()
    gc.set_threshold(20, 1000, 1000)
    gc.callbacks.append(let_others_run)
    try:
        with ThreadPoolExecutor(4) as pool:
            read_back = [*pool.map(read, range(4))]
    finally:
        gc.callbacks.remove(let_others_run)
        gc.set_threshold(*thresholds)
    assert read_back == [[(number, [4, (5, 6)]) for number in range(300)]] * 4


def test_calls_take_these_spellings_too():
    assert mx.nd.Concat(mx.nd.ones((1, 2)), mx.nd.ones((1, 2)), num_args="2L", dim="0L").shape == (2, 2)
