from dpmodule.executor import grad_reqs


def test_forms_of_requests():
    forms = ["write", ["add", "write"], ("null", "add"), {"weight": "add", "elsewhere": "write"}, {}]
    found = [tuple(grad_reqs(["data", "weight"], each).values()) for each in forms]
    same = ("write", "write"), ("add", "write"), ("null", "add")
    assert found == [*same, ("null", "add"), ("null", "null")]
