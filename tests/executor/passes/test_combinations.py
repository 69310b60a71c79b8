"""Whatever passes are switched off, results are those that were recorded from MXNet."""

import importlib.util
import random
from pathlib import Path

import pytest

from dpmodule import executor
from helpers.switched import ALL_PASSES


def draw(seed):
    """Return names of passes to switch off: none, all, or a random share."""
    source = random.Random(seed)
    share = source.choice((0.0, 0.2, 0.5, 0.8))
    return [name for name in ALL_PASSES if source.random() < share]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seeds", [range(6), pytest.param(range(6, 60), marks=pytest.mark.slow)])
def test_runs_recorded_from_mxnet(seeds):
    file = Path(__file__).parents[2] / "parity" / "test_module_goldens.py"
    spec = importlib.util.spec_from_file_location("module_goldens", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for seed in seeds:
        with executor.disabled(*draw(seed)):
            for name in random.Random(seed).sample(module.STEPWISE, 3):
                module.test_run_follows_mxnet_step_by_step(name)
