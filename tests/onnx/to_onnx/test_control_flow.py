"""Loops and branches go out as Scan, Loop and If, with the outputs recorded from MXNet 1.9.1."""

import importlib.util
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.attribute import AttrScope
from helpers.onnx_runs import check_same, runtime_outputs

HERE = Path(__file__).parents[2] / "data" / "goldens" / "control_flow"
ARRAYS = np.load(HERE / "control_flow.npz")


def builders():
    spec = importlib.util.spec_from_file_location("control_flow_builders", HERE / "builders.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.BUILDERS


BUILDERS = builders()
RUN = [name for name in BUILDERS if f"{name}/out/0" in ARRAYS.files]


@pytest.fixture(autouse=True)
def fresh_names():
    AttrScope._subgraph_names.clear()
    with mx.name.NameManager():
        yield


def recorded(name, kind):
    prefix = f"{name}/{kind}/"
    return {key.removeprefix(prefix): ARRAYS[key] for key in ARRAYS.files if key.startswith(prefix)}


@pytest.mark.parametrize("opset", [13, 17, 21])
@pytest.mark.parametrize("name", RUN)
def test_loops_and_branches_give_what_mxnet_gives(name, opset):
    symbol = BUILDERS[name][0](mx)
    arrays = recorded(name, "in")
    params = [key for key in arrays if key.endswith(("weight", "bias"))]
    model = check_same(symbol, arrays, params, opset=opset)
    for i, found in enumerate(runtime_outputs(model, arrays)):
        np.testing.assert_allclose(found, recorded(name, "out")[str(i)], rtol=1e-5, atol=1e-6)
