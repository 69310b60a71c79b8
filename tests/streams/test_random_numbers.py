"""Random numbers of child processes: each child has its own, and a program that is run again has the same."""

import json

import pytest

from dpmodule.streams.supervisor import Supervisor
from helpers.child_targets import draws
from helpers.programs import run_program

PROGRAM = """
import json, sys
import dpmodule as mx
from streams.test_random_numbers import children_of

method, seed, rest = sys.argv[1:]
if seed != "none":
    mx.random.seed(int(seed))
found = children_of(None, method)
if rest == "more":
    found += children_of(None, method, 1)  # children of another pool are others, too
    mx.random.seed(7)
    again = children_of(None, method, 1)
    mx.random.seed(7)
    assert again == children_of(None, method, 1)
print(json.dumps(found))
"""


def children_of(channel, method="fork", count=2):
    with Supervisor("drawer", start_method=method) as children:
        for _ in range(count):
            children.start(draws)
        return children.join(timeout_s=60)


def numbers(method, seed, rest=""):
    done = run_program(PROGRAM, method, seed, rest)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.timeout(120)
def test_children_differ_and_programs_repeat():
    found = numbers("fork", "none", "more")
    for kind in zip(*found, strict=True):  # Python's, NumPy's, torch's, ours on two contexts
        assert len(set(map(tuple, kind))) == 3, kind
    assert numbers("fork", "none") == numbers("fork", "0") == found[:2]
    assert numbers("fork", "1") == numbers("spawn", "1") != found[:2]


def test_a_child_may_have_children():
    first, second = (children_of(None) for _ in range(2))
    with Supervisor("parent", start_method="fork") as parents:
        for _ in range(2):
            parents.start(children_of)
        found = parents.join(timeout_s=20)
    every = [tuple(map(tuple, each)) for pair in (first, second, *found) for each in pair]
    assert len(set(every)) == len(every) == 8
