"""Schedules against MXNet's recorded rates, against closed forms, and with wrong arguments."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch

from dpmodule import lr_scheduler
from dpmodule.lr_scheduler import OneCycle

DATA = Path(__file__).parent / "data" / "goldens" / "misc"
SPECS = json.loads((DATA / "schedules.json").read_text())
RATES = np.load(DATA / "schedules.npz")


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize(("kind", "updates"), [("all", range(121)), ("jump", (1, 30, 31, 100))])
def test_rates_are_mxnets(name, kind, updates):
    schedule = getattr(lr_scheduler, SPECS[name]["kind"])(**SPECS[name]["kwargs"])
    np.testing.assert_allclose([schedule(t) for t in updates], RATES[f"{name}/{kind}"], rtol=1e-12)


def torch_rates(make, count, values=None):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule, found = make(optimizer), []
    for number in range(count):
        found.append(optimizer.param_groups[0]["lr"])
        optimizer.step()
        schedule.step(*([] if values is None else [values[number]]))
    return found


@pytest.mark.parametrize("anneal", ["cos", "linear"])
@pytest.mark.parametrize(("total", "share"), [(50, 0.3), (10, 0.5), (7, 0.25), (100, 0.0), (30, 1.0)])
def test_one_cycle_is_torchs(anneal, total, share):
    options = {"div_factor": 10, "final_div_factor": 100}
    theirs = {"pct_start": share, "anneal_strategy": anneal, **options}
    wanted = torch_rates(lambda o: torch.optim.lr_scheduler.OneCycleLR(o, 0.5, total, **theirs), total - 1)
    schedule = OneCycle(0.5, total, share, anneal, **options)
    np.testing.assert_allclose([schedule(n) for n in range(1, total)], wanted, rtol=1e-9)
    assert schedule(total + 50) == schedule(total)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("mode", ["min", "max"])
@pytest.mark.parametrize(("patience", "cooldown", "least"), [(0, 0, 0.0), (2, 0, 0.01), (1, 2, 0.0)])
def test_reduce_on_plateau_is_torchs(seed, mode, patience, cooldown, least):
    values, options = np.random.RandomState(seed).rand(60).tolist(), {"cooldown": cooldown, "min_lr": least}
    kind = torch.optim.lr_scheduler.ReduceLROnPlateau
    wanted = torch_rates(lambda o: kind(o, mode, 0.5, patience, eps=0, **options), 60, values)
    schedule = lr_scheduler.ReduceOnPlateau("x", 0.5, patience, mode, base_lr=0.5, **options)
    found = [schedule(1), *(schedule.step(value) for value in values[:-1])]
    np.testing.assert_allclose(found, wanted, rtol=1e-12)
