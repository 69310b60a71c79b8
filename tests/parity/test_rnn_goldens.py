"""Recurrent cells against real MXNet 1.9.1: the graphs they make, node by node, and what those compute."""

import gzip
import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from helpers import rnn_cases
from helpers.walk import walks

FOLDER = Path(__file__).parents[1] / "data" / "goldens" / "rnn"
STACKS = rnn_cases.stacks(mx)
CONVOLUTIONAL = rnn_cases.convolutional(mx)

# MXNet's modifiers leave the cell they wrap out of a reset, so that names go on counting; ours start from 0
GOES_ON_COUNTING = {"zoneout", "zoneout_outputs", "zoneout_states"}


@lru_cache(maxsize=1)
def recorded():
    return json.loads(gzip.decompress((FOLDER / "cells.json.gz").read_bytes()))


@lru_cache(maxsize=1)
def arrays():
    with np.load(FOLDER / "cells.npz") as found:
        return dict(found)


def check_values(symbol, shapes, key):
    given = {name: rnn_cases.values(mx, name, shape) for name, shape in shapes.items()}
    outputs = symbol.bind(mx.cpu(), given).forward()
    assert f"{key}/{len(outputs)}" not in arrays()
    for i, output in enumerate(outputs):
        np.testing.assert_allclose(output.asnumpy(), arrays()[f"{key}/{i}"], 1e-4, 1e-5)


@walks(STACKS)
def test_cells_make_the_graph_that_mxnet_makes(case):
    for way, symbol in rnn_cases.ways(mx, STACKS[case]).items():
        want = recorded()[case]["ways"][way]
        if want is None or (way == "again" and case in GOES_ON_COUNTING):
            continue
        assert rnn_cases.nodes(symbol) == want["nodes"], way
        assert symbol.list_outputs() == want["outputs"], way
        if "shapes" in want:
            args, outputs, _ = symbol.infer_shape(**rnn_cases.shapes_of(symbol, way))
            assert dict(zip(symbol.list_arguments(), map(list, args), strict=True)) == want["shapes"], way
            assert list(map(list, outputs)) == want["output_shapes"], way
            if f"{case}/{way}/0" in arrays():
                check_values(symbol, want["shapes"], f"{case}/{way}")


@pytest.mark.parametrize("case", CONVOLUTIONAL)
def test_convolutional_cells_make_the_graph_that_mxnet_makes(case):
    want = recorded()[case]
    with mx.name.NameManager():
        outputs, states = CONVOLUTIONAL[case]().unroll(2, [mx.sym.Variable("x0"), mx.sym.Variable("x1")])
        symbol = mx.sym.Group(list(outputs) + states)
    assert rnn_cases.nodes(symbol) == want["nodes"]
    check_values(symbol, want["shapes"], case)


@walks([*STACKS, *CONVOLUTIONAL])
def test_states_and_parameters_of_cells(case):
    want = recorded()[case]["cell"]
    cell = {**STACKS, **CONVOLUTIONAL}[case]()
    assert json.loads(json.dumps(cell.state_info)) == want["state_info"]
    assert list(map(list, cell.state_shape)) == want["state_shape"]
    assert sorted(cell.params.names()) == want["params"]
