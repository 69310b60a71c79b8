"""Rows of a walk through a table begin alike, whatever the row before has left."""

from __future__ import annotations

import pytest

import dpmodule.autobatch as dy
from helpers.walk import walks

MADE = []


@walks(range(2))
def test_every_row_begins_with_the_settings_of_its_walk_and_a_new_graph(number, setting):
    found = dy.settings()
    assert (found["engine"], found["autobatch"], found["dtype"]) == (*setting, "float32")
    for old in MADE:
        with pytest.raises(dy.StaleExpressionError):
            old.value()
    dy.configure(engine="python", autobatch=not setting[1], dtype="float64")
    MADE.append(dy.scalarInput(1.0))
