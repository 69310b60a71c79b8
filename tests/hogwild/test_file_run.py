"""Runs over files by several processes, which are real ones: averages, files of each, snapshots, processes lost."""

import os
import random
import signal
import time

import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError
from helpers.both_backends import in_native
from helpers.hogwild import await_newer, counting_net, counts, train, write_bags, write_dense, write_lines
from helpers.programs import TESTS
from helpers.ranks import ranks, run_ranks

PROGRAM = TESTS / "programs" / "file_run.py"


def run_two(what, folder, *arguments):
    return run_ranks(PROGRAM, 2, what, folder, *arguments, kind="file")


@pytest.mark.parametrize(
    "modes",
    [pytest.param(["serial", "native"], marks=in_native), pytest.param(["process"], marks=pytest.mark.slow)],
)
def test_each_line_is_trained_on_by_one_process_and_rows_travel_by_number(modes, tmp_path):
    write_lines(tmp_path, (120, 0, 200, 100))
    run_two("each_line", tmp_path, *modes)


@in_native
@pytest.mark.parametrize(
    "optimizers", [["ftrl"], pytest.param(["adagrad", "ftrl", "adam", "sgd"], marks=pytest.mark.slow)]
)
def test_two_processes_of_two_workers_learn_what_one_worker_does(optimizers, tmp_path):
    write_bags(tmp_path, 10, 40)
    first, second = run_two("learns", tmp_path, *optimizers)
    assert first == second  # metrics and parameters are those of all
    assert first.count("mse") == len(optimizers)


@in_native
@pytest.mark.parametrize("size", [2, pytest.param(3, marks=pytest.mark.slow)])
def test_tables_are_spread_over_processes(size, tmp_path):
    write_bags(tmp_path, 10, 40)
    run_ranks(PROGRAM.with_name("file_run_tables.py"), size, tmp_path, kind="file")


def test_dense_parameters_begin_as_those_of_rank_0_and_networks_are_compared(tmp_path):
    write_dense(tmp_path)
    write_lines(tmp_path, (5,))
    outputs = run_two("dense", tmp_path)
    assert any("has another network or optimizer than rank" in output for output in outputs)
    first, second = (output.splitlines()[0] for output in outputs)
    assert first == second


def killed(folder, size, seconds):
    """Start processes, kill them some time after their next snapshot; returns whether they were at work."""
    with ranks(PROGRAM, size, "saves", folder, kind="file") as programs:
        await_newer(folder / "now-0000.run", programs[0])
        time.sleep(seconds)
        for program in programs:
            os.kill(program.pid, signal.SIGKILL)
        return [program.wait() for program in programs] == [-signal.SIGKILL] * size


SLOW = [pytest.param((2, 3, 1, 2), seed, marks=pytest.mark.slow) for seed in range(1, 7)]


@in_native
@pytest.mark.parametrize(("sizes", "seed"), [((2,), 0), *SLOW])
def test_killed_processes_resume_each_line_once_as_many_or_fewer(sizes, seed, tmp_path):
    generator = random.Random(seed)
    files = write_lines(tmp_path, (3000, 0, 2000, 1000, 3000, 2500, 500))
    at_work = [killed(tmp_path, size, generator.random() * 0.05) for size in sizes]
    assert any(at_work)
    last = mx.AsyncExecutor.last_snapshot(str(tmp_path / "now"))
    assert last.in_progress or last.done
    for output in run_two("saves", tmp_path):
        examples, is_right = output.split()
        assert is_right == "True"
        assert int(examples) < 12_000
    with mx.AsyncExecutor() as run, pytest.raises(ArgumentError, match="are missing"):
        train(run, counting_net(12_000), files[:2], 1, "serial", resume=str(tmp_path / "now"))


@pytest.mark.parametrize(
    ("who", "how"),
    [
        (1, "SIGKILL"),
        pytest.param(0, "raises", marks=pytest.mark.slow),
        pytest.param(1, "SIGSTOP", marks=pytest.mark.slow),
    ],
)
def test_the_others_hear_of_a_process_that_is_lost(who, how, tmp_path):
    write_lines(tmp_path, (100, 100, 200))
    with ranks(PROGRAM, 2, "lost", tmp_path, who, how, kind="file") as programs:
        other = programs[1 - who]
        assert other.wait(60) == 0, other.output()
        assert f"rank {1 - who} of 2: " in other.output()[0]
        if how != "raises":
            assert f"rank {who} is gone or stopped" in other.output()[0]


def test_one_process_trains_alone_and_several_get_advice(tmp_path, caplog, monkeypatch):
    files = write_lines(tmp_path, (5,))
    with mx.AsyncExecutor() as run:
        net = counting_net(5)
        train(run, net, files, 1, "serial", average_every_s=1)
        assert "this process is the only worker" in caplog.text
        monkeypatch.setenv("RANK", "0")
        monkeypatch.setenv("WORLD_SIZE", "2")
        train(run, net, files, 1, "serial")
        assert "each of the 2 processes trains independently" in caplog.text
        assert (counts(run, net) > 1).all()
