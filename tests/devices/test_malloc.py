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
import dpmodule as mx
result = mx.sym.Convolution(mx.sym.Variable("data"), kernel=(1, 1), num_filter={filters}, no_bias=True, name="result")
_, (shape,), _ = result.infer_shape(data={shape})
out_grad = mx.nd.ones(shape)
executor = result.simple_bind(mx.cpu(), data={shape})
def read():
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    executor.forward(is_train=True)
    executor.backward([out_grad])
    return (resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before) * resource.getpagesize()
print(int(statistics.median([read() for _ in range({steps})])))
"""
NETWORKS = [
    pytest.param({"filters": 32, "shape": (32, 512, 7, 7), "steps": 21}, id="9 MB freed by each step"),
    pytest.param(
        {"filters": 160, "shape": (4, 4, 128, 128), "steps": 5}, id="blocks above glibc's threshold"
    ),
]


@only_glibc
@pytest.mark.parametrize("network", NETWORKS)
def test_memory_freed_by_a_step_stays_in_the_heap(network):
    done = run_program(STEPS.format(**network), fresh=True)
    assert int(done.stdout) < 2**20, done.stderr
