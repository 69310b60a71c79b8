"""Measuring in turns, summaries, and processes that answer or die."""

from benchmarks.harness import Session, in_turns
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
