"""Run programs and test files in other processes, with the extension or without."""

import os
import subprocess
import sys
from pathlib import Path

import dpmodule
from dpmodule import native

__all__ = ["again_without_native", "environment", "run_program"]

TESTS = Path(__file__).parents[1]
_SLOWNESS = float(os.environ.get("DPMODULE_TEST_SLOWNESS", "1"))  # more than 1 under sanitizers


def environment(**changes):
    """Return the environment of a process that can import this package and the helpers of tests."""
    package = Path(dpmodule.__file__).parents[1]  # the one under test, installed or not
    paths = [
        str(TESTS),
        *([] if package.name == "site-packages" else [str(package)]),
        os.environ.get("PYTHONPATH", ""),
    ]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}


def run_program(code, seconds=50, **changes):
    """Run a program; return it with its output as text."""
    return subprocess.run(
        [sys.executable, "-c", code],
        capture_output=True,
        text=True,
        timeout=seconds * _SLOWNESS,
        env=environment(**changes),
        cwd=TESTS,
    )


def again_without_native(file, seconds=100):
    """Run the tests of a file once more on what stands in for the extension."""
    if native.core is None or "DPMODULE_TEST_SLOWNESS" in os.environ:  # sanitizers have nothing to see there
        return
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-x",
        "-p",
        "no:cacheprovider",
        "-m",
        "not slow",
        str(file),
    ]
    done = subprocess.run(
        command,
        capture_output=True,
        text=True,
        timeout=seconds * _SLOWNESS,
        env=environment(DPMODULE_NATIVE="0"),
        cwd=TESTS.parent,
    )
    assert done.returncode == 0, done.stdout + done.stderr
