"""Whatever passes are switched off, results stay: random networks, recorded runs of MXNet, with any combination."""

import importlib.util
import random
from pathlib import Path

import pytest

from dpmodule import executor
from helpers.random_nets import random_net
from helpers.switched import ALL_PASSES, assert_same, results


def draw(seed):
    """Return names of passes to switch off: none, all, or a random share."""
    source = random.Random(seed)
    share = source.choice((0.0, 0.2, 0.5, 0.8))
    return [name for name in ALL_PASSES if source.random() < share]


@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seeds", [range(60), pytest.param(range(1000, 2000), marks=pytest.mark.slow)])
def test_random_networks(seeds):
    """Compare runs with random passes to runs without any."""
    for seed in seeds:
        source, off, (net, shapes) = random.Random(seed), draw(seed), random_net(seed)
        single = any(
            name.startswith("cell") for name in net.list_arguments()
        )  # whose first states are float32
        dtype, rtol = ("float32", 2e-4) if single else source.choice((("float64", 1e-9), ("float32", 2e-4)))
        options = {"dtype": dtype, "grad_req": source.choice(("write", "write", "add"))}
        options |= {"seed": seed, "is_train": source.random() < 0.8}
        want, plain = results(net, shapes, ALL_PASSES, **options)
        got, counts = results(net, shapes, off, **options)
        assert not plain
        assert not set(off) & set(counts)
        assert_same(got, want, rtol, f"of net {seed} without {off}")


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
