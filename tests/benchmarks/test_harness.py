"""Measuring in turns, summaries, and processes that answer or die."""

import numpy as np
import pytest

from benchmarks.harness import Session, agreement, in_turns
from benchmarks.settings import Setting


def test_every_round_begins_with_another_side_and_the_first_is_dropped():
    order, none = [], {"cpu": 0.0, "wall": 0.0}
    sides = {
        name: lambda name=name: order.append(name) or {**none, "cpu": float(len(order))} for name in "abc"
    }
    found = in_turns(sides, rounds=2)
    assert "".join(order) == "abcbcacab"
    assert (found["a"]["cpu"], len(found["c"]["wall"])) == ([6.0, 8.0], 2)
    order.clear()
    found = in_turns(sides, rounds=1, warm=0, settle=True)  # the first of two calls in a turn is dropped
    assert "".join(order) == "aabbcc"
    assert [found[name]["cpu"] for name in "abc"] == [[2.0], [4.0], [6.0]]
    assert Session(setting=Setting(threads="default")).settles
    assert not Session().settles


def trained(loss=0.5, **values):
    def check(path):
        values_ = {"w": [1.0, 2.0], "predictions": [0.25], **values}
        np.savez(path, **{name: np.array(value, np.float32) for name, value in values_.items()})
        return [1.0, loss]

    return check


def first(name, shape):
    return np.zeros(shape, np.float32)


def test_sides_compute_the_same_or_end_the_program():
    text = agreement({"ours": trained(), "plain": trained()}, first, 1e-3)
    assert "ours against plain" in text
    assert "after 2 batches" in text
    for other in ({"loss": 0.51}, {"w": [1, 2.1]}, {"predictions": [0.26]}, {"loss": np.nan}, {"v": [1]}):
        with pytest.raises(SystemExit):
            agreement({"ours": trained(), "other": trained(**other)}, first, 1e-3)
