"""Tests that need the native extension, and what they measure."""

import os
import sys

import pytest

from dpmodule import native
from helpers.processes import resident_bytes as resident_bytes

in_native = pytest.mark.skipif(native.core is None, reason="there is no extension")
measures_memory = pytest.mark.skipif(
    sys.platform != "linux" or "DPMODULE_TEST_SLOWNESS" in os.environ,
    reason="reads /proc; sanitizers keep memory",
)


def descriptors():
    """Number of open descriptors; Linux."""
    return len(os.listdir("/proc/self/fd"))
