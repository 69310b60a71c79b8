"""Tests that run with the native extension and once more without it."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from dpmodule import native

in_native = pytest.mark.skipif(native.core is None, reason="there is no extension")
measures_memory = pytest.mark.skipif(
    sys.platform != "linux" or "DPMODULE_TEST_SLOWNESS" in os.environ,
    reason="reads /proc; sanitizers keep memory",
)

_ROOT = Path(__file__).parents[2]


def again_in_python(path, *options):
    """Run the tests of a file in a process whose dpmodule has no extension; the text of what failed, else nothing."""
    if "DPMODULE_TEST_SLOWNESS" in os.environ:  # sanitizers have nothing to see there
        return ""
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", *options, str(path)]
    environment = {**os.environ, "DPMODULE_NATIVE": "0"}
    done = subprocess.run(command, cwd=_ROOT, env=environment, capture_output=True, text=True, timeout=100)
    return (
        "" if done.returncode == 0 and " passed" in done.stdout else done.stdout[-3000:] + done.stderr[-1000:]
    )


def resident_bytes():
    """Memory of this process that is in use now; Linux."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def descriptors():
    """Number of open descriptors; Linux."""
    return len(os.listdir("/proc/self/fd"))
