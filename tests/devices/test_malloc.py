import ctypes
import platform

import pytest

import dpmodule as mx
from dpmodule._devices import malloc
from helpers.programs import run_program

GLIBC = platform.libc_ver()[0] == "glibc"
CACHED = 7
"""Leftovers of one size in glibc's thread cache; until there are as many, a block may miss its old place."""
only_glibc = pytest.mark.skipif(not GLIBC, reason="only glibc keeps and returns blocks on demand")

PROGRAM = f"""
import os, resource, torch
{{before}}
import dpmodule as mx
from dpmodule._devices import malloc
kept = {{call}}
def made(count, size=12):
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    for _ in range(count):
        block = torch.ones(size * 2**20)
        del block
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize()
made({CACHED + 3})
read = made(5)
malloc.trim_heap()
print(kept, malloc.keeps_blocks(), read + made(1) > 2**24)
"""
BLOCKS = [
    ("", "mx.util.keep_large_blocks()", ["True", "True", "False"]),
    ("os.environ['DPMODULE_MALLOC'] = 'keep'", "None", ["None", "True", "False"]),
    ("os.environ['DPMODULE_MALLOC'] = ''", "None", ["None", "False", "True"]),
]


@only_glibc
@pytest.mark.parametrize(("before", "call", "printed"), BLOCKS)
def test_blocks_are_returned_unless_asked_for(before, call, printed):
    """Printed: what the call returns, whether blocks are kept, and whether 48 MB come from the system again."""
    done = run_program(PROGRAM.format(call=call, before=before), seconds=100)
    assert done.stdout.split() == printed, done.stderr


@pytest.mark.parametrize("error", [AttributeError, TypeError])
def test_other_c_libraries_are_left_alone(monkeypatch, error):
    def missing(name):
        raise error

    monkeypatch.setattr(malloc, "_keeps", False)  # another test may have asked for it
    monkeypatch.setattr(ctypes, "CDLL", missing)
    malloc._function.cache_clear()
    try:
        assert mx.util.keep_large_blocks() is malloc.keeps_blocks() is False
        malloc.trim_heap()
    finally:
        malloc._function.cache_clear()


@only_glibc
def test_giving_back_calls_the_library(monkeypatch):
    calls = []
    monkeypatch.setattr(malloc, "_function", lambda name: lambda pad: calls.append((name, pad)) or 1)
    monkeypatch.setattr(malloc, "_keeps", False)
    malloc.trim_heap()
    assert calls == [("malloc_trim", 0)]


STEPS = """
import resource
import statistics
import torch
import dpmodule as mx
{net}
def read():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    {step}
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize()
print(int(statistics.median([read() for _ in range(21)])))
"""
SMALL = """
result = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(1, 1), num_filter=32, no_bias=True, name="result")
executor = result.simple_bind(mx.cpu(), data=(32, 512, 7, 7))
out_grad = mx.nd.ones((32, 32, 7, 7))
"""
LARGE = """
executor = mx.sym.relu(mx.sym.Variable("data")).simple_bind(mx.cpu(), data=(12, 2**20))
"""
PROGRAMS = [
    pytest.param(
        SMALL, "executor.forward(is_train=True), executor.backward([out_grad])", id="9 MB of a step"
    ),
    pytest.param(LARGE, "torch.ones(12, 2**20)", id="a block above glibc's threshold"),
]


@only_glibc
@pytest.mark.parametrize(("net", "step"), PROGRAMS)
def test_freed_memory_stays_in_the_heap_of_a_network(net, step):
    done = run_program(STEPS.format(net=net, step=step), fresh=True)
    assert int(done.stdout) < 2**20, done.stderr
