"""Loops and branches that MXNet 1.9.1 was recorded with: what builds them, and what it gave."""

import importlib.util
import json
from pathlib import Path

import numpy as np

__all__ = ["ARRAYS", "BUILDERS", "CASES", "RUN"]

_HERE = Path(__file__).parents[1] / "data" / "goldens" / "control_flow"


def _builders():
    spec = importlib.util.spec_from_file_location("control_flow_builders", _HERE / "builders.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.BUILDERS


CASES = json.loads((_HERE / "control_flow.json").read_text())
ARRAYS = np.load(_HERE / "control_flow.npz")
BUILDERS = _builders()
RUN = [name for name in BUILDERS if f"{name}/out/0" in ARRAYS.files]
"""Those that MXNet runs; it cannot run all that it can make."""
