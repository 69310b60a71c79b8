"""Tests that need the native extension, and what they measure."""

import os
import sys
from pathlib import Path

import pytest

from dpmodule import native

in_native = pytest.mark.skipif(native.core is None, reason="there is no extension")
measures_memory = pytest.mark.skipif(
    sys.platform != "linux" or "DPMODULE_TEST_SLOWNESS" in os.environ,
    reason="reads /proc; sanitizers keep memory",
)


def resident_bytes():
    """Memory of this process that is in use now; Linux."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE")


def descriptors():
    """Number of open descriptors; Linux."""
    return len(os.listdir("/proc/self/fd"))
