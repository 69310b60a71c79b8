"""Names, attributes and saved form of what calls make, against MXNet 1.9.1."""

import json
import types
from pathlib import Path

import pytest

import dpmodule as mx
from helpers.walk import walks

DATA = Path(__file__).parents[1] / "data" / "symbols"
GOLDEN = json.loads((DATA / "names.json").read_text())


def _recipe():
    """Run the recipe's cases from source; importing would leave bytecode among the data."""
    path = DATA / "name_cases.py"
    module = types.ModuleType("name_cases")
    exec(compile(path.read_text(), str(path), "exec"), module.__dict__)
    return module


RECIPE = _recipe()
CASES = RECIPE.cases(mx)


@walks(sorted(CASES))
def test_call_makes_what_mxnet_makes(name):
    want, have = GOLDEN[name], RECIPE.described(mx, CASES[name])
    if want is None:
        assert have is None, "MXNet refuses this call"
        with pytest.raises((mx.MXNetError, TypeError)):
            CASES[name]()
        return
    assert have is not None
    want["heads"] = [head[:2] for head in want["heads"]]  # the third number is always 0 here
    have["heads"] = [head[:2] for head in have["heads"]]
    if want["debug_str"].startswith("AtomicFunctor"):  # what MXNet prints of a single node says less
        del want["debug_str"], have["debug_str"]
    assert have == want
