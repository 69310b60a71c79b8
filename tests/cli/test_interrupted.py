"""Commands that Ctrl-C interrupts: what they save, and that the printed command ends in the bits of a whole run."""

import re
import shlex

import numpy as np
import pytest

import dpmodule as mx
from helpers.programs import Program

FIT = ("fit", "--network", "mlp", "--epochs", "3", "--prefix", "my run/net")
INTERRUPTING = """
import os, signal, sys
import dpmodule as mx
from dpmodule.cli.__main__ import main
place, count, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.argv[1:4] = []
calls = []

def interrupt(original):
    def call(*args, **options):
        calls.append(1)
        if len(calls) == count:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        return original(*args, **options)
    return call

where, name = {
    "batch": (mx.callback.TqdmBar, "__call__"),
    "first batch": (mx.mod.Module, "forward_backward"),
    "evaluation": (mx.mod.Module, "evaluate"),
    "save": (mx.checkpoint, "save_checkpoint"),
    "parley": (mx.agents.worlds.World, "parley"),
}[place]
setattr(where, name, interrupt(getattr(where, name)))
sys.exit(main())
"""


def interrupted(folder, place, count, times, *words):
    """Run a command that is interrupted, and return the words of the command that it prints."""
    with Program("code", INTERRUPTING, place, str(count), str(times), *words, cwd=folder) as program:
        code = program.wait(60)
        error = program.output()[1]
    assert code == 130, error
    assert error.endswith("dpmodule: interrupted\n"), error
    program, *words = shlex.split(re.search(r"to (resume|begin again): (.*)", error)[2])
    return words


def arrays(path):
    return {name: value.asnumpy() for name, value in mx.nd.load(str(path)).items()}


def assert_same(first, second):
    for name, value in arrays(first).items():
        np.testing.assert_array_equal(arrays(second)[name], value)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """Return the parameters' file of a run that was not interrupted."""
    from dpmodule.cli.__main__ import main

    prefix = tmp_path_factory.mktemp("whole") / "net"
    assert main([*FIT[:-1], str(prefix)]) == 0
    return f"{prefix}-0003.params"


@pytest.mark.parametrize(
    ("place", "count", "times"),
    [("first batch", 1, 1), ("batch", 30, 1), ("first batch", 30, 2), ("save", 1, 2), ("evaluation", 1, 1)],
)
def test_an_interrupted_fit_resumes(place, count, times, run, tmp_path, whole):
    words = interrupted(tmp_path, place, count, times, *FIT)
    assert ("--resume" in words) is (times == 1 or place == "save")
    assert "--load-epoch" not in words
    if place == "batch":
        words = interrupted(tmp_path, place, 5, 1, *words)
    assert run(*words).code == 0
    assert_same(whole, tmp_path / "my run/net-0003.params")
