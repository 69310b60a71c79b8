"""The package on a GPU that is simulated, see `helpers.accelerator`, which is registered once a process.

The tests themselves are in the folder `on_device`.
"""

from pathlib import Path

import pytest

from helpers import accelerator
from helpers.programs import run_module

FILES = sorted((Path(__file__).parent / "on_device").glob("*.py"))

pytestmark = pytest.mark.skipif(bool(accelerator.MISSING), reason=accelerator.MISSING)


@pytest.mark.timeout(900)
@pytest.mark.parametrize("marker", ["not slow", pytest.param("slow", marks=pytest.mark.slow)])
def test_on_device(marker):
    options = ("-q", "-p", "no:cacheprovider", "-n", "0", "-m", marker)
    where = {"cwd": Path(__file__).parents[2], "DPMODULE_GPU_TYPE": "simulated"}
    done = run_module("pytest", *options, *FILES, seconds=800, **where)
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
