"""Schedules against MXNet's recorded rates, against closed forms, and with wrong arguments."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from dpmodule import lr_scheduler
from dpmodule.lr_scheduler import (
    CosineScheduler,
    FactorScheduler,
    MultiFactorScheduler,
    OneCycle,
    PolyScheduler,
)

DATA = Path(__file__).parent / "data" / "goldens" / "misc"
SPECS = json.loads((DATA / "schedules.json").read_text())
RATES = np.load(DATA / "schedules.npz")


@pytest.mark.parametrize("name", SPECS)
@pytest.mark.parametrize(("kind", "updates"), [("all", range(121)), ("jump", (1, 30, 31, 100))])
def test_rates_are_mxnets(name, kind, updates):
    schedule = getattr(lr_scheduler, SPECS[name]["kind"])(**SPECS[name]["kwargs"])
    np.testing.assert_allclose([schedule(t) for t in updates], RATES[f"{name}/{kind}"], rtol=1e-12)


rates = st.floats(1e-4, 1.0)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(rates, st.integers(1, 30), st.floats(0.05, 1.0), st.integers(0, 300))
def test_factor_is_a_power(base, step, factor, update):
    stop = base * 1e-3
    expected = max(base * factor ** (max(update - 1, 0) // step), stop)
    assert FactorScheduler(step, factor, stop, base)(update) == pytest.approx(expected, rel=1e-9)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(rates, st.sets(st.integers(1, 100), min_size=1, max_size=6), st.floats(0.05, 1.0), st.integers(0, 120))
def test_multi_factor_counts_the_steps_passed(base, steps, factor, update):
    passed = sum(update > s for s in steps)
    schedule = MultiFactorScheduler(sorted(steps), factor, base)
    assert schedule(update) == pytest.approx(base * factor**passed, rel=1e-9)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(st.sampled_from([PolyScheduler, CosineScheduler]), rates, st.integers(2, 200), st.data())
def test_curves_start_at_base_fall_and_end_at_final(kind, base, length, data):
    warmup = data.draw(st.integers(0, length - 1))
    final = data.draw(st.floats(0.0, base))
    schedule = kind(length, base, final_lr=final, warmup_steps=warmup)
    values = [schedule(t) for t in range(warmup, length + 5)]
    assert values[0] == pytest.approx(base)
    assert all(a >= b - 1e-12 for a, b in zip(values[:-1], values[1:]))
    assert values[-1] == pytest.approx(final, abs=1e-12)


@settings(max_examples=200, derandomize=True, deadline=None)
@given(rates, st.integers(1, 50), st.floats(0.0, 1.0), st.sampled_from(["linear", "constant"]), st.data())
def test_warmup_is_a_line_or_flat(base, steps, share, mode, data):
    update, begin = data.draw(st.integers(0, steps - 1)), base * share
    options = {"warmup_steps": steps, "warmup_begin_lr": begin, "warmup_mode": mode}
    expected = begin + (base - begin) * update / steps if mode == "linear" else begin
    assert FactorScheduler(10, 0.5, base_lr=base, **options)(update) == pytest.approx(expected)


def torch_rates(make, count, values=None):
    optimizer = torch.optim.SGD([torch.zeros(1, requires_grad=True)], lr=0.5)
    schedule = make(optimizer)
    found = []
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
