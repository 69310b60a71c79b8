import ctypes
import platform

import pytest

import dpmodule as mx
from dpmodule.executor import malloc
from helpers.programs import run_program

GLIBC = platform.libc_ver()[0] == "glibc"
CACHED = 7
"""Leftovers of one size in glibc's thread cache; until there are as many, a block may miss its old place."""
only_glibc = pytest.mark.skipif(not GLIBC, reason="only glibc keeps and returns blocks on demand")

CODE = """
import resource
import torch
{before}
import dpmodule as mx
kept = {call}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range({warm}):
    block = torch.ones(12 * 2**20)
    del block
first = faults()
for _ in range(5):
    block = torch.ones(12 * 2**20)
    del block
mx.executor.trim_heap()
block = torch.ones(12 * 2**20)
print(kept, mx.executor.malloc.keeps_blocks(), (faults() - first) * resource.getpagesize() > 2**24)
"""


def child(call, before=""):
    """Return what a new process prints: results of the call, and whether 48 MB blocks come from the system again."""
    code = CODE.format(call=call, before=before, warm=CACHED + 3)
    done = run_program(code, seconds=100)
    assert done.returncode == 0, done.stderr
    return done.stdout.split()


@only_glibc
def test_blocks_are_returned_unless_asked_for():
    assert child("None") == ["None", "False", "True"]


@only_glibc
def test_kept_blocks_are_used_again_and_not_given_back():
    assert child("mx.util.keep_large_blocks()") == ["True", "True", "False"]


@only_glibc
@pytest.mark.parametrize(("value", "kept"), [("keep", "True"), ("", "False")])
def test_the_environment_asks_for_it(value, kept):
    before = f"import os; os.environ['DPMODULE_MALLOC'] = {value!r}"
    assert child("None", before)[1:] == [kept, "False" if kept == "True" else "True"]


@pytest.mark.parametrize("error", [AttributeError, OSError, TypeError])
def test_other_c_libraries_are_left_alone(monkeypatch, error):
    def missing(name):
        raise error

    monkeypatch.setattr(malloc, "_keeps", False)  # another test may have asked for it
    monkeypatch.setattr(ctypes, "CDLL", missing)
    malloc._function.cache_clear()
    try:
        assert mx.util.keep_large_blocks() is False
        assert malloc.keeps_blocks() is False
        mx.executor.trim_heap()
    finally:
        malloc._function.cache_clear()


@only_glibc
def test_giving_back_calls_the_library(monkeypatch):
    calls = []
    monkeypatch.setattr(malloc, "_function", lambda name: lambda pad: calls.append((name, pad)) or 1)
    monkeypatch.setattr(malloc, "_keeps", False)  # another test may have asked for it
    mx.executor.trim_heap()
    assert calls == [("malloc_trim", 0)]


SETTLED = """
import resource
import torch
import dpmodule as mx
from dpmodule.executor import malloc
from helpers.programs import run_program
malloc.raise_mmap_threshold({size})
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
torch.ones(2**20)
first = faults()
for _ in range(20):
    block = torch.ones(5 * 2**20)
    del block
print((faults() - first) * resource.getpagesize() // 2**20)
"""


@only_glibc
@pytest.mark.parametrize(("size", "most"), [(2**30, 20 * (CACHED + 1)), (0, 10**6)])
def test_blocks_of_a_large_network_stay_from_the_first_batch_on(size, most):
    code = SETTLED.format(size=size)
    done = run_program(code)
    assert done.returncode == 0, done.stderr
    assert int(done.stdout) <= most
    assert size or int(done.stdout) >= 20


def test_a_small_network_settles_nothing(monkeypatch):
    monkeypatch.setattr(malloc, "_threshold_raised", False)
    mx.sym.relu(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(2, 3))
    assert not malloc._threshold_raised
    mx.sym.relu(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(1024, 1024))
    assert malloc._threshold_raised == GLIBC
