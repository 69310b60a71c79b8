"""State machines: hypothesis calls an object's methods in any order, beside a plain model of it."""

import pytest
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import run_state_machine_as_test


def examples(short, long):
    """Return a mark by which a test gets `examples`: a short run, and a long one that is slow."""
    slow = pytest.param(long, marks=[pytest.mark.slow, pytest.mark.timeout(1800)], id="long")
    first = pytest.param(short, marks=pytest.mark.timeout(120), id="short")
    return pytest.mark.parametrize("examples", [first, slow])


def play(machine, examples, steps=25, shrinks=True):
    """Run so many sequences of steps, the same ones in each run; with processes a failing one is not made shorter."""
    phases = [Phase.explicit, Phase.generate, *([Phase.shrink, Phase.explain] if shrinks else [])]
    options = {"deadline": None, "derandomize": True, "database": None, "phases": phases}
    options |= {"stateful_step_count": steps, "suppress_health_check": list(HealthCheck)}
    chosen = settings(max_examples=examples, **options)
    run_state_machine_as_test(machine, settings=chosen)
