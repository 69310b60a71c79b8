"""Walks through tables go on after a failure, list every row that fails, and hide none."""

import contextlib
from types import SimpleNamespace

import pytest

import dpmodule as mx
from helpers.walk import walks


def outcome(row):
    if row == "wrong":
        assert row == "right"
    elif row == "silent":
        with pytest.raises(ValueError, match="never"):
            pass
    elif row == "broken":
        mx.nd.ones((2,)).reshape((3,))
    elif row == "skipped":
        pytest.skip("not here")
    elif row == "slow":
        pytest.fail("Timeout (>60.0s) from pytest-timeout.")


def walk(*rows, chosen=None):
    config = SimpleNamespace(getoption=lambda name: chosen)
    walks(rows)(outcome)([(row,) for row in rows], config, contextlib.nullcontext)


def test_every_row_that_fails_is_listed():
    with pytest.raises(pytest.fail.Exception, match="3 of 5 rows fail") as caught:
        walk("fine", "wrong", "silent", "broken", "skipped")
    told = str(caught.value)
    for text in ("row 1: wrong", "row 2: silent\n", "row 3: broken", "DID NOT RAISE", "ShapeError"):
        assert text in told
    assert "fine" not in told
    assert "test_walks.py:" in told
