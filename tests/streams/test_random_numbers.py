"""Random numbers of child processes: each child has its own, and a program that is run again has the same."""

import json

import pytest

from dpmodule.streams.supervisor import Supervisor
from helpers.child_targets import draws
from helpers.programs import run_program

PROGRAM = """
import json, sys
import dpmodule as mx
from dpmodule.streams.supervisor import Supervisor
from helpers.child_targets import draws

def numbers(method, count):
    with Supervisor("drawer", start_method=method) as children:
        for _ in range(count):
            children.start(draws)
        return children.join(timeout_s=60)

method, seed = sys.argv[1:]
if seed != "none":
    mx.random.seed(int(seed))
found = numbers(method, 2) + numbers(method, 1)  # children of another pool are others, too
mx.random.seed(7)
again = numbers(method, 1)
mx.random.seed(7)
print(json.dumps([found, again == numbers(method, 1), mx.nd.random.uniform(shape=(2,)).asnumpy().tolist()]))
"""


def numbers(method, seed):
    done = run_program(PROGRAM, method, seed)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_children_differ_and_programs_repeat(method):
    first = numbers(method, "none")
    found, repeats, _ = json.loads(first)
    assert repeats
    for kind in zip(*found, strict=True):  # Python's, NumPy's, torch's, ours on two contexts
        assert len(set(map(tuple, kind))) == len(found), kind
    assert first == numbers(method, "none") == numbers(method, "0")
    assert first != numbers(method, "1")


def test_the_method_does_not_matter():
    assert numbers("fork", "none") == numbers("spawn", "none")


def test_a_child_may_have_children():
    with Supervisor("parent", start_method="fork") as parents:
        for _ in range(2):
            parents.start(_children_of)
        first, second = parents.join(timeout_s=20)
    every = [tuple(map(tuple, each)) for each in (*first, *second)]
    assert len(set(every)) == len(every) == 4


def _children_of(channel):
    with Supervisor("child", start_method="fork") as children:
        for _ in range(2):
            children.start(draws)
        return children.join(timeout_s=10)
