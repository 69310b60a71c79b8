"""Names, attributes and saved form of what calls make, against MXNet 1.9.1."""

import json
from pathlib import Path

import pytest

import dpmodule as mx
from helpers.name_cases import described, maker
from helpers.walk import walks

DATA = Path(__file__).parents[1] / "data" / "symbols"
GOLDEN = json.loads((DATA / "names.json").read_text())


@walks(sorted(GOLDEN))
def test_call_makes_what_mxnet_makes(name):
    make, want = maker(mx, GOLDEN[name]["call"]), GOLDEN[name]["made"]
    have = described(mx, make)
    if want is None:
        assert have is None, "MXNet refuses this call"
        with pytest.raises((mx.MXNetError, TypeError)):
            make()
        return
    assert have is not None
    want["heads"] = [head[:2] for head in want["heads"]]  # the third number is always 0 here
    have["heads"] = [head[:2] for head in have["heads"]]
    if want["debug_str"].startswith("AtomicFunctor"):  # what MXNet prints of a single node says less
        del want["debug_str"], have["debug_str"]
    assert have == want
