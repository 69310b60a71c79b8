"""The page on other systems lists what ONNX lacks, by name."""

import re
from pathlib import Path

from dpmodule import ops

PAGE = (Path(__file__).parents[2] / "docs" / "interop" / "to_onnx.md").read_text(encoding="utf-8")
OPTIMIZER = "an optimizer's step is not part of an exported network"


def test_every_operator_without_a_counterpart_is_listed():
    records = {ops.get(name).name: ops.get(name).onnx for name in ops.names()}
    missing = {name for name, record in records.items() if record.missing not in ("", OPTIMIZER)}
    table = PAGE.partition("These operators have no counterpart:")[2].partition("Two more limits")[0]
    listed = set(re.findall(r"`(\w+)`", table))
    assert missing - listed == set()
    assert {name for name in listed if name in records and not records[name].missing} == set()
