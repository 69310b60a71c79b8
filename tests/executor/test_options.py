import pytest

from dpmodule.executor import grad_reqs


@pytest.mark.parametrize(
    ("given", "data", "weight"),
    [
        ("write", "write", "write"),
        ("null", "null", "null"),
        (["add", "write"], "add", "write"),
        (("null", "add"), "null", "add"),
        ({"weight": "add"}, "null", "add"),
        ({"weight": "add", "elsewhere": "write"}, "null", "add"),
        ({}, "null", "null"),
    ],
)
def test_forms_of_requests(given, data, weight):
    assert grad_reqs(["data", "weight"], given) == {"data": data, "weight": weight}
