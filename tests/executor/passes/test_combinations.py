"""Whatever passes are switched off, results stay: random networks, recorded runs of MXNet, with any combination."""

import importlib.util
import os
import random
import subprocess
import sys
from pathlib import Path

import pytest

from dpmodule import executor
from helpers.graphs import random_graph
from helpers.random_nets import random_net
from helpers.switched import ALL_PASSES, assert_same, results

TESTS = Path(__file__).parents[2]


def draw(seed):
    """Return names of passes to switch off: none, all, or a random share."""
    source = random.Random(seed)
    share = source.choice((0.0, 0.2, 0.5, 0.8))
    return [name for name in ALL_PASSES if source.random() < share]


def check(seed, net, shapes, rtol, **options):
    """Compare a run with random passes to one without any."""
    off = draw(seed)
    want, plain = results(net, shapes, ALL_PASSES, seed=seed, **options)
    got, counts = results(net, shapes, off, seed=seed, **options)
    assert not plain
    assert not set(off) & set(counts)
    assert_same(got, want, rtol, f"of net {seed} without {off}")


def check_net(seed):
    source = random.Random(seed)
    net, shapes = random_net(seed)
    single = any(name.startswith("cell") for name in net.list_arguments())  # whose first states are float32
    dtype, rtol = ("float32", 2e-4) if single else source.choice((("float64", 1e-9), ("float32", 2e-4)))
    req = source.choice(("write", "write", "add"))
    check(seed, net, shapes, rtol, dtype=dtype, grad_req=req, is_train=source.random() < 0.8)


def check_graph(seed):
    net, _, graph = random_graph(seed)
    shapes = {name: shape for name, shape in graph.shapes.items() if name in net.list_arguments()}
    check(seed, net, shapes, 1e-9, dtype="float64", seeds=True)


@pytest.mark.parametrize("start", range(0, 120, 20))
def test_random_networks(start):
    for seed in range(start, start + 20):
        check_net(seed)
        check_graph(seed)


def test_random_networks_are_of_the_kinds_that_passes_rewrite():
    seen = {name for seed in range(60) for name in results(*random_net(seed), is_train=False)[1]}
    assert seen >= {"channels_last", "common_subexpressions", "pooling_first", "rnn_chains"}


def test_runs_recorded_from_mxnet():
    file = TESTS / "parity" / "test_module_goldens.py"
    spec = importlib.util.spec_from_file_location("module_goldens", file)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    for seed in range(6):
        with executor.disabled(*draw(seed)):
            for name in random.Random(seed).sample(module.STEPWISE, 3):
                module.test_run_follows_mxnet_step_by_step(name)


@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("seed", range(4))
def test_all_that_was_recorded_from_mxnet(seed):
    off = ",".join(draw(1000 + seed) if seed else ALL_PASSES)
    command = [sys.executable, "-m", "pytest", "-q", "-x", "-p", "no:cacheprovider", str(TESTS / "parity")]
    environment = {**os.environ, "DPMODULE_DISABLE_PASSES": off}
    run = subprocess.run(command, env=environment, cwd=TESTS.parent, capture_output=True, text=True)
    assert run.returncode == 0, f"without {off}\n{run.stdout[-3000:]}"


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_many_random_networks():
    for seed in range(1000, 2000):
        check_net(seed)
        check_graph(seed)
