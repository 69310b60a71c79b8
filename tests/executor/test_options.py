import pytest

from dpmodule.base import ArgumentError
from dpmodule.executor import grad_reqs

NAMES = ["data", "weight"]


@pytest.mark.parametrize(
    ("given", "want"),
    [
        ("write", {"data": "write", "weight": "write"}),
        ("null", {"data": "null", "weight": "null"}),
        (["add", "write"], {"data": "add", "weight": "write"}),
        (("null", "add"), {"data": "null", "weight": "add"}),
        ({"weight": "add"}, {"data": "null", "weight": "add"}),
        ({"weight": "add", "elsewhere": "write"}, {"data": "null", "weight": "add"}),
        ({}, {"data": "null", "weight": "null"}),
    ],
)
def test_forms(given, want):
    assert grad_reqs(NAMES, given) == want


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ("often", "grad_req of data is 'often', expected one of write, add, null"),
        (["write"], "1 entries for 2 arguments: data, weight"),
        (["write", 1], "grad_req of weight is 1"),
        ({"data": None}, "grad_req of data is None"),
        (3, "grad_req is 3"),
        (None, "grad_req is None"),
    ],
)
def test_refusals(given, said):
    with pytest.raises(ArgumentError, match=said):
        grad_reqs(NAMES, given)
