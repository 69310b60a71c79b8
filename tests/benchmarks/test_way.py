"""The way of a steady batch: how long it is, and that the documentation tells it as it is."""

import re
import sys
from pathlib import Path

import pytest

from benchmarks.sides.way import stations

ROOT = Path(__file__).parents[2]
MOST_CALLS, MOST_FILES = 89, 19
"""What it takes today."""


@pytest.fixture(scope="module")
def way():
    return [tuple(each) for each in stations()]


def told():
    """Return (file, function) of the stations that the documentation names, in its order."""
    text = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
    found = re.findall(r"^\| [\w ]+ \| `(\w+/[\w/]+\.py)` \| `([\w.]+)` \|", text, re.MULTILINE)
    assert len(found) > 10
    return found


def short(station):
    """Return a station as Python 3.10 knows it, which tells no classes."""
    file, name = station
    return station if sys.version_info >= (3, 11) else (file, name.rpartition(".")[2])


def test_it_does_not_grow(way):
    assert len(way) <= MOST_CALLS
    assert len({file for file, _ in way}) <= MOST_FILES


def test_stations_that_are_told_are_called_in_this_order(way):
    first = {}
    for place, station in enumerate(way):
        first.setdefault(short(station), place)
    assert [station for station in told() if short(station) not in first] == []
    places = [first[short(station)] for station in told()]
    assert places == sorted(places)
