"""Shared memory that is not there: what was asked for, and no end by a bus error."""

import mmap
import shutil
import subprocess
import sys
from multiprocessing.reduction import ForkingPickler

import pytest

from dpmodule.streams import StringHandle
from helpers.programs import TESTS, environment

ASKED = r"StringHandle: {} bytes of shared memory were asked for, \d+ bytes are free in /dev/shm"


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="there is no /dev/shm")
def test_a_handle_larger_than_shared_memory_is_a_memory_error():
    size = 1 << 45
    memory = mmap.mmap(-1, size, mmap.MAP_PRIVATE | getattr(mmap, "MAP_NORESERVE", 0x4000), mmap.PROT_READ)
    with pytest.raises(MemoryError, match=ASKED.format(size)):
        ForkingPickler.dumps(StringHandle(memory))


@pytest.mark.timeout(120)
@pytest.mark.skipif(shutil.which("unshare") is None, reason="another /dev/shm needs a namespace")
def test_a_full_folder_is_a_memory_error():
    mount = "mount -t tmpfs -o size=2m tmpfs /dev/shm"
    namespace = ["unshare", "--map-root-user", "--mount", "sh", "-c"]
    if subprocess.run([*namespace, mount], capture_output=True).returncode:
        pytest.skip("this system gives no namespaces")
    command = [*namespace, f"{mount} && exec {sys.executable} {TESTS / 'programs' / 'full_shared_memory.py'}"]
    done = subprocess.run(command, capture_output=True, text=True, env=environment(), timeout=50)
    assert (done.returncode, done.stderr) == (0, "")
    lines = done.stdout.splitlines()
    assert all("bytes are free in /dev/shm; send less at a time" in line for line in lines)
    asked = [f"{3 << 20} bytes of shared memory were asked for" in line for line in lines]
    assert asked == [True, True, False, True]
