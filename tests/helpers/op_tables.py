"""What is known of every operator: the tables in ops/cases, and recorded calls of MXNet 1.9.1 in data/goldens/ops."""

import importlib.util
import json
from functools import cache
from pathlib import Path

import numpy as np

TESTS = Path(__file__).parents[1]
GOLDENS = TESTS / "data" / "goldens" / "ops"


@cache
def table_rows():
    """Return every `OpCase` of the tables."""
    found = []
    for path in sorted((TESTS / "ops" / "cases").glob("*.py")):
        spec = importlib.util.spec_from_file_location(f"cases_{path.stem}", path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        found += module.CASES
    return found


@cache
def recorded_calls():
    """Return the group of every recorded call, and its description."""
    paths = sorted(GOLDENS.glob("*.json"))
    return [(path.stem, case) for path in paths for case in json.loads(path.read_text())]


@cache
def arrays_of(group):
    """Return the inputs, outputs and gradients of a group's calls by name."""
    with np.load(GOLDENS / f"{group}.npz") as found:
        return dict(found)
