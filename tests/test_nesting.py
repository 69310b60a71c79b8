"""Nested lists as flat ones, and back."""

import pytest

from dpmodule.nesting import flatten, regroup


def leaves(value):
    if isinstance(value, str):
        return [value]
    return value.split() if isinstance(value, Several) else None


class Several:
    """Counts as several leaves."""

    def __init__(self, text):
        self.text = text

    def split(self):
        return self.text.split()


@pytest.mark.parametrize(
    ("value", "flat", "back"),
    [
        ("a", ["a"], "a"),
        ([], [], []),
        (["a"], ["a"], ["a"]),
        (("a", ["b", []], ("c",)), ["a", "b", "c"], ["a", ["b", []], ["c"]]),
        (Several("a b"), ["a", "b"], ["a", "b"]),
        ([Several("a b"), "c"], ["a", "b", "c"], [["a", "b"], "c"]),
    ],
)
def test_round_trip(value, flat, back):
    found, form = flatten(value, leaves, "it")
    assert found == flat
    assert regroup(found, form) == back
    assert regroup([*found, "more"], form) == back


@pytest.mark.parametrize("wrong", [3, ["a", None], {"a": 1}])
def test_something_else_is_refused(wrong):
    with pytest.raises(ValueError, match="it must be one array or symbol"):
        flatten(wrong, leaves, "it")
