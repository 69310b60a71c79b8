import ctypes
import platform
import subprocess
import sys

import pytest

import dpmodule as mx
from dpmodule.executor import malloc

GLIBC = platform.libc_ver()[0] == "glibc"
only_glibc = pytest.mark.skipif(not GLIBC, reason="only glibc keeps and returns blocks on demand")

CODE = """
import resource
import torch
{before}
import dpmodule as mx
kept = {call}
def faults():
    return resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(6):
    block = torch.ones(12 * 2**20)
    del block
first = faults()
for _ in range(5):
    block = torch.ones(12 * 2**20)
    del block
mx.executor.give_back()
block = torch.ones(12 * 2**20)
print(kept, mx.executor.malloc.keeps_blocks(), (faults() - first) * resource.getpagesize() // 2**20)
"""


def child(call, kept, before=""):
    """Return what a new process prints, with whether 48 MB blocks have come from the system again for the last word."""
    *results, fresh = printed(CODE.format(call=call, before=before), 16 if kept else 10**6)
    return [*results, str(int(fresh) > 16)]


def printed(code, enough):
    """Return what a new process prints; its last word is how many MB have come from the system.

    Where that is more than `enough`, it is the least of three: a system short of memory also takes away pages in use.
    """
    found = []
    while len(found) < 3 and (not found or int(found[-1][-1]) > enough):
        done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        found.append(done.stdout.split())
    return min(found, key=lambda words: int(words[-1]))


@only_glibc
def test_blocks_are_returned_unless_asked_for():
    assert child("None", False) == ["None", "False", "True"]


@only_glibc
def test_kept_blocks_are_used_again_and_not_given_back():
    assert child("mx.util.keep_large_blocks()", True) == ["True", "True", "False"]


@only_glibc
@pytest.mark.parametrize(("value", "kept"), [("keep", "True"), ("", "False")])
def test_the_environment_asks_for_it(value, kept):
    before = f"import os; os.environ['DPMODULE_MALLOC'] = {value!r}"
    assert child("None", kept == "True", before)[1:] == [kept, "False" if kept == "True" else "True"]


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
        mx.executor.give_back()
    finally:
        malloc._function.cache_clear()


@only_glibc
def test_giving_back_calls_the_library(monkeypatch):
    calls = []
    monkeypatch.setattr(malloc, "_function", lambda name: lambda pad: calls.append((name, pad)) or 1)
    monkeypatch.setattr(malloc, "_keeps", False)  # another test may have asked for it
    mx.executor.give_back()
    assert calls == [("malloc_trim", 0)]


SETTLED = """
import resource
import torch
import dpmodule as mx
from dpmodule.executor import malloc
malloc.settle({size})
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
@pytest.mark.parametrize(("size", "most"), [(2**30, 60), (0, 10**6)])
def test_blocks_of_a_large_network_stay_from_the_first_batch_on(size, most):
    (fresh,) = map(int, printed(SETTLED.format(size=size), most))
    assert fresh <= most
    assert size or fresh >= 20


def test_a_small_network_settles_nothing(monkeypatch):
    monkeypatch.setattr(malloc, "_settled", False)
    mx.sym.relu(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(2, 3))
    assert not malloc._settled
    mx.sym.relu(mx.sym.Variable("x")).simple_bind(mx.cpu(), x=(1024, 1024))
    assert malloc._settled == GLIBC
