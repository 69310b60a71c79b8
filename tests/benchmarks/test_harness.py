"""Measuring in turns, summaries, and processes that answer or die."""

import os
import sys

import numpy as np
import pytest

from benchmarks import harness
from benchmarks.harness import Session, Spread, agreement, in_turns
from benchmarks.settings import Setting


def test_spread_is_the_median_with_its_quartiles():
    found = Spread.of([5.0, 1.0, 3.0, 2.0, 4.0])
    assert (found.median, found.low, found.high) == (3.0, 2.0, 4.0)
    assert str(found) == "3.00 (2.00-4.00)"
    assert str(Spread.of([0.25])) == "0.250 (0.250-0.250)"


def sides_that_note(order):
    def side(name):
        def measure():
            order.append(name)
            return {"cpu": float(len(order)), "wall": 0.0}

        return measure

    return {name: side(name) for name in "abc"}


def test_every_round_begins_with_another_side_and_the_first_is_dropped():
    order = []
    found = in_turns(sides_that_note(order), rounds=2)
    assert order == ["a", "b", "c", "b", "c", "a", "c", "a", "b"]
    assert found["a"]["cpu"] == [6.0, 8.0]
    assert len(found["c"]["wall"]) == 2


def test_the_first_of_two_calls_in_a_turn_that_settles_is_dropped():
    order = []
    found = in_turns(sides_that_note(order), rounds=1, warm=0, settle=True)
    assert order == ["a", "a", "b", "b", "c", "c"]
    assert [found[name]["cpu"] for name in "abc"] == [[2.0], [4.0], [6.0]]
    assert Session(setting=Setting(threads="default")).settles
    assert not Session().settles


def trained(losses, **values):
    def check(path):
        np.savez(path, **{name: np.array(value, np.float32) for name, value in values.items()})
        return losses

    return check


def first(name, shape):
    return np.zeros(shape, np.float32)


def test_sides_that_compute_the_same_are_said_to():
    ours = trained([1.0, 0.5], w=[1.0, 2.0], predictions=[0.25])
    text = agreement({"ours": ours, "plain": ours}, first, 1e-3)
    assert "ours against plain" in text
    assert "after 2 batches" in text


@pytest.mark.parametrize(
    "other",
    [
        trained([1.0, 0.51], w=[1.0, 2.0], predictions=[0.25]),
        trained([1.0, 0.5], w=[1.0, 2.1], predictions=[0.25]),
        trained([1.0, 0.5], w=[1.0, 2.0], predictions=[0.26]),
        trained([1.0, float("nan")], w=[1.0, 2.0], predictions=[0.25]),
        trained([1.0, 0.5], v=[1.0, 2.0], predictions=[0.25]),
    ],
    ids=["loss", "parameter", "prediction", "nan", "names"],
)
def test_sides_that_differ_end_the_program(other):
    ours = trained([1.0, 0.5], w=[1.0, 2.0], predictions=[0.25])
    with pytest.raises(SystemExit):
        agreement({"ours": ours, "other": other}, first, 1e-3)


def test_sides_run_under_the_interpreter_given_for_their_package(tmp_path):
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\necho via wrapper >&2\nexec {sys.executable} "$@"\n')
    python.chmod(0o755)
    session = Session(against={"mxnet": str(python)})
    with (
        session.sides(mxnet=("module", "no_such_package", "mlp", 2)) as sides,
        pytest.raises(RuntimeError, match="via wrapper"),
    ):
        sides["mxnet"].ask("memory")


def test_sides_stay_within_instructions_and_threads(monkeypatch):
    monkeypatch.setenv("OMP_NUM_THREADS", "7")
    found = Setting("avx2").environment(os.environ)
    assert found["OMP_NUM_THREADS"] == "1"
    assert {found[name] for name in ("ATEN_CPU_CAPABILITY", "DPMODULE_ISA")} == {"avx2"}
    assert {found[name] for name in ("ONEDNN_MAX_CPU_ISA", "MKL_ENABLE_INSTRUCTIONS")} == {"AVX2"}
    usual = Setting(threads="default").environment(os.environ)
    assert "OMP_NUM_THREADS" not in usual
    assert usual.get("DPMODULE_ISA") == os.environ.get("DPMODULE_ISA")


def test_versions_are_those_of_the_interpreter(monkeypatch, capsys):
    monkeypatch.setattr(harness, "PACKAGES", ("numpy", "dynet", "mxnet"))
    session = Session(against={"numpy": sys.executable, "dynet": sys.executable})
    for _ in range(2):
        session.look()
    assert session.versions == {"numpy": np.__version__, "dynet": None}
    assert capsys.readouterr().err.count("there is no Python with dynet") == 1
    assert [session.has(name) for name in ("numpy", "dynet_on", "mxnet")] == [True, False, False]
