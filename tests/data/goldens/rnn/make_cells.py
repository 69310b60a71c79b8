"""Record what real MXNet makes of recurrent cells: names, attributes, shapes and numbers.

Run with Python 3.8, NumPy 1.23 and mxnet 1.9.1: ``python make_cells.py`` writes cells.json.gz and cells.npz here.
"""

import gzip
import json
import os
import sys
import warnings

import mxnet as mx
import numpy as np

HERE = os.path.dirname(os.path.abspath(__file__))
sys.path.insert(0, os.path.join(HERE, "..", "..", ".."))
from helpers import rnn_cases  # noqa: E402

arrays = {}


def values(name, shape):
    """Return numbers that depend on a name alone."""
    seed = sum(ord(letter) * (i + 1) for i, letter in enumerate(name)) % 2**31
    return np.random.RandomState(seed).uniform(-0.7, 0.7, shape).astype("float32")


def nodes(symbol):
    """Return the nodes of a saved graph without what tells of the version."""
    return [[n["op"], n["name"], n.get("attrs", {}), n["inputs"]] for n in json.loads(symbol.tojson())["nodes"]]


def record(case, way, symbol):
    if symbol is None:
        return None
    shapes = rnn_cases.shapes_of(symbol, way)
    entry = {"outputs": symbol.list_outputs(), "nodes": nodes(symbol)}
    try:
        found = symbol.infer_shape(**shapes)
    except mx.base.MXNetError:
        found = (None,)
    if found[0] is None:
        return entry
    entry["shapes"] = dict(zip(symbol.list_arguments(), found[0]))
    entry["output_shapes"] = found[1]
    if way in ("ntc_merged", "given_states"):
        args = {name: mx.nd.array(values(name, shape)) for name, shape in entry["shapes"].items()}
        for i, output in enumerate(symbol.bind(mx.cpu(), args).forward(is_train=False)):
            arrays["%s/%s/%d" % (case, way, i)] = output.asnumpy()
    return entry


def cell_facts(cell):
    facts = {"state_info": None, "params": None}
    try:
        facts["state_info"] = cell.state_info
        facts["state_shape"] = cell.state_shape
        facts["params"] = sorted(cell.params._params)
    except (NotImplementedError, AttributeError):
        pass
    return facts


def main():
    found = {}
    for case, make in rnn_cases.stacks(mx).items():
        ways = rnn_cases.ways(mx, make)
        found[case] = {"cell": cell_facts(make()), "ways": {w: record(case, w, s) for w, s in ways.items()}}
    for case, make in rnn_cases.convolutional(mx).items():
        with mx.name.NameManager():
            cell = make()
            outputs, states = cell.unroll(2, [mx.sym.Variable("x0"), mx.sym.Variable("x1")])
            symbol = mx.sym.Group(list(outputs) + rnn_cases.flat(states))
        args, outs, _ = symbol.infer_shape(x0=(2, 3, 6, 5), x1=(2, 3, 6, 5))
        shapes = dict(zip(symbol.list_arguments(), args))
        bound = symbol.bind(mx.cpu(), {name: mx.nd.array(values(name, shape)) for name, shape in shapes.items()})
        for i, output in enumerate(bound.forward(is_train=False)):
            arrays["%s/%d" % (case, i)] = output.asnumpy()
        found[case] = {"cell": cell_facts(cell), "shapes": shapes, "output_shapes": outs, "nodes": nodes(symbol)}
    text = json.dumps(found, separators=(",", ":"), sort_keys=True)
    with open(os.path.join(HERE, "cells.json.gz"), "wb") as file:
        file.write(gzip.compress(text.encode(), mtime=0))
    np.savez_compressed(os.path.join(HERE, "cells.npz"), **arrays)


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main()
