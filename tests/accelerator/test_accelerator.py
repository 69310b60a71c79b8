"""The package on a GPU that is simulated, see `helpers.accelerator`, which is registered once a process.

The tests themselves are in the folder `on_device`.
"""

from pathlib import Path

import pytest

from helpers import accelerator
from helpers.programs import run_module

FILES = sorted((Path(__file__).parent / "on_device").glob("*.py"))

pytestmark = pytest.mark.skipif(bool(accelerator.MISSING), reason=accelerator.MISSING)


def run_on_device(marker, seconds):
    options = ("-q", "-p", "no:cacheprovider", "-n", "0", "-m", marker)
    done = run_module(
        "pytest",
        *options,
        *FILES,
        seconds=seconds,
        cwd=Path(__file__).parents[2],
        DPMODULE_GPU_TYPE="simulated",
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout


def test_on_device():
    run_on_device("not slow", 250)


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_long_forms_on_device():
    run_on_device("slow", 800)
