"""Settings of every test: one torch thread, the same random numbers each time, no GPU tests without a GPU."""

import gc
import os
import random
import signal
import sys
from pathlib import Path

import pytest
import torch
from hypothesis import HealthCheck, settings

from helpers import compiled, seeds

ROOT = str(Path(__file__).parents[1])
if ROOT not in sys.path:  # where the suite of benchmarks lies, which is not installed
    sys.path.append(ROOT)  # last, so that an installed dpmodule stays the one that is tested


SEED = "DPMODULE_TEST_SEED"
"""Environment variable that decides the order of tests."""


settings.register_profile("any machine", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("any machine")


def pytest_addoption(parser):
    parser.addoption("--row", metavar="TEXT", help="of walks, only rows whose description contains the text")


def pytest_configure(config):
    torch.set_num_threads(1)
    os.environ.setdefault(SEED, str(random.SystemRandom().randrange(10**6)))  # the workers' too
    os.environ.setdefault("OMP_NUM_THREADS", "1")  # for the programs that tests start
    # threads that wait leave the processor to other workers
    os.environ.setdefault("OMP_WAIT_POLICY", "passive")
    compiled.folder()  # of this process, before it starts workers
    # else each process compiles five hundred files of tests, and all of ours, anew
    sys.dont_write_bytecode = False
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:  # as in what a shell runs in the background
        signal.signal(signal.SIGINT, signal.default_int_handler)  # they inherit what is ignored


def pytest_report_header(config):
    return f"order of tests: {SEED}={os.environ[SEED]}"


def pytest_terminal_summary(terminalreporter):
    if terminalreporter.stats.get("failed") or terminalreporter.stats.get("error"):
        terminalreporter.write_line(f"the order of tests was {SEED}={os.environ[SEED]}")


FORKING = {"agents", "faults", "hogwild", "io", "streams"}
"""Folders whose tests fork, which takes the longer the more memory the worker has come to hold."""


def shuffled(items):
    """Return files in random order, each with its tests in random order."""
    draw, files = random.Random(os.environ[SEED]), {}
    for item in items:
        files.setdefault(item.path, []).append(item)
    order = sorted(files.values(), key=lambda tests: draw.random())
    return [item for tests in order for item in draw.sample(tests, len(tests))]


def pytest_collection_modifyitems(config, items):
    items[:] = shuffled(items)
    forking = [item for item in items if item.path.parent.name in FORKING]
    others = [item for item in items if item.path.parent.name not in FORKING]
    two = [(each[: len(each) // 2], each[len(each) // 2 :]) for each in (forking, others)]
    # two workers begin with half of all
    items[:] = [item for half in zip(*two) for part in half for item in part]
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="there is no CUDA device")
    for item in items:
        if "gpu" in item.keywords:
            item.add_marker(skip)


@pytest.hookimpl(wrapper=True)
def pytest_collection():
    """Collect tests without looking for garbage: all that is made stays."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.fixture(autouse=True, scope="module")
def only_own_garbage():
    """Let the garbage collector look at what a file's tests make alone, not each time at all there is besides."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def one_thread():
    """Start every test with one thread, however many the one before has set."""
    torch.set_num_threads(1)


@pytest.fixture(autouse=True)
def exact_products(request, monkeypatch):
    """Switch TensorFloat-32 off in tests on a GPU."""
    if "gpu" in request.keywords:
        monkeypatch.setattr(torch.backends.cuda.matmul, "allow_tf32", False)
        monkeypatch.setattr(torch.backends.cudnn, "allow_tf32", False)


@pytest.fixture(autouse=True)
def fixed_random_numbers():
    """Start every test from the same random state and put back what it changes."""
    with seeds.fixed_random_numbers():
        yield


@pytest.fixture
def each_row():
    """Return what makes the context in which a row of a walk runs: what is fixed for a test is so for a row."""
    return seeds.fixed_random_numbers
