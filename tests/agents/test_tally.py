"""Tallies: sums that do not depend on the order, nor on who added what."""

import math
import pickle
import random

import pytest

from dpmodule.agents.shared_state import SumColumns
from dpmodule.base import ArgumentError
from dpmodule.streams import Supervisor


def numbers(count, seed):
    """Return floats of very different sizes and signs, whole ones among them."""
    draw = random.Random(seed)
    return [draw.choice([draw.random(), draw.randrange(99), 0]) * 10.0 ** draw.randrange(-20, 20) * draw.choice([-1, 1])
            for _ in range(count)]  # fmt: skip


def add_all(channel, tally, index, given):
    column = tally.column(index)
    for number in given:
        column.add("sum", number)


def test_a_sum_over_columns_is_the_exact_one_rounded_once():
    for seed in range(30):
        given = numbers(200, seed)
        for columns in (1, 3):
            tally = SumColumns(columns)
            for index in range(columns):
                add_all(None, tally, index, given[index::columns])
            assert tally.totals() == {"sum": (math.fsum(given), 200)}


def test_processes_add_to_columns_of_their_own():
    tally, given = SumColumns(3), numbers(999, 1)
    with Supervisor("adder", "fork") as adders:
        for index in range(3):
            adders.start(add_all, tally, index, given[index::3])
        adders.join(60)
    assert tally.totals() == {"sum": (math.fsum(given), 999)}
    tally.clear()
    assert tally.totals() == {"sum": (0.0, 0)}


def test_infinite_and_huge_numbers_are_summed_too():
    tally = SumColumns()
    for name, given in {"inf": [1.0, math.inf], "nan": [math.inf, -math.inf], "huge": [1e308, 1e308]}.items():
        for number in given:
            tally.column(0).add(name, number)
    totals = tally.totals()
    assert totals["inf"] == (math.inf, 2)
    assert totals["huge"] == (math.inf, 2)
    assert math.isnan(totals["nan"][0])


def test_names_are_texts_of_any_alphabet_and_there_is_room_for_some():
    tally = SumColumns()
    names = [f"größe {number}" for number in range(128)]
    for name in names:
        tally.column(0).add(name, 1)
    assert list(tally.totals()) == names
    with pytest.raises(ArgumentError, match="one too many"):
        tally.column(0).add("another", 1)
    with pytest.raises(ArgumentError, match="121 bytes, at most 120"):
        SumColumns().column(0).add("x" * 121, 1)


def test_more_columns_keep_the_sums_and_a_pickle_of_one_process_too():
    tally = SumColumns()
    tally.column(0).add("loss", 0.1)
    wide = tally.widened(4)
    wide.column(3).add("loss", 0.2)
    assert wide.totals() == {"loss": (math.fsum([0.1, 0.2]), 2)}
    assert pickle.loads(pickle.dumps(tally)).totals() == tally.totals()
