"""Loops and branches that MXNet 1.9.1 was recorded with: what builds them, and what it gave."""

import json
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.attribute import AttrScope
from helpers.control_flow_cases import BUILDERS

_HERE = Path(__file__).parents[1] / "data" / "goldens" / "control_flow"


CASES = json.loads((_HERE / "control_flow.json").read_text())
ARRAYS = np.load(_HERE / "control_flow.npz")
RUN = [name for name in BUILDERS if f"{name}/out/0" in ARRAYS.files]
"""Those that MXNet runs; it cannot run all that it can make."""


def recorded(name, kind):
    """The arrays of one ``kind`` ("in", "out", "head", "grad") that were recorded of ``name``, by their names."""
    prefix = f"{name}/{kind}/"
    return {key.removeprefix(prefix): ARRAYS[key] for key in ARRAYS.files if key.startswith(prefix)}


@pytest.fixture(autouse=True)
def fresh_names():
    """Names count from nothing, as they did in the process that was recorded."""
    AttrScope._subgraph_names.clear()
    with mx.name.NameManager():
        yield
