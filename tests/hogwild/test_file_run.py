"""Runs over files by several processes, which are real ones: averages, files of each, snapshots, processes lost."""

import contextlib
import os
import random
import signal
import time

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import native
from dpmodule.base import ArgumentError
from helpers.counting_run import counting_net, counts, train, write_lines
from helpers.hogwild import write_bags, write_dense
from helpers.ranks import ranks, run_ranks

NATIVE = pytest.mark.skipif(not native.available(), reason="there is no extension")

BEGIN = """
import contextlib, os, sys
from pathlib import Path
import numpy as np
import dpmodule as mx
from dpmodule.base import *
from dpmodule.kvstore.ranks import Ranks
from helpers.counting_run import *
from helpers.hogwild import *
folder = Path(sys.argv[1])
rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
files = sorted(map(str, folder.glob("lines-*")))
"""

EACH_LINE = """
sent, sum_rows = [], Ranks.sum_rows
def counted(self, arrays):
    sent.append(sum(array.parts()[0].numel() for array in arrays))
    return sum_rows(self, arrays)
Ranks.sum_rows = counted
for mode, workers in (("serial", 1), ("native", 2)):
    for lists in (files, files[:1] if rank else files[1:]):
        for options in ({"average_every_n_batches": 7}, {"average_every_s": 0.01}, {"average_every_n_batches": 10**6}):
            sent.clear()
            net = counting_net(420)
            with mx.AsyncExecutor() as run:
                result = train(run, net, lists, workers, mode, **options)
                assert set(counts(run, net)) == {1}
            assert (result.examples, result.workers >= size) == (420, True)
            own = 120 if lists is not files and rank else 300 if lists is not files else (320, 100)[rank]
            assert sum(sent) == own, (sent, own)
            if options == {"average_every_n_batches": 7}:
                assert len(sent) >= 300 // 4 // 7
"""


@NATIVE
def test_each_line_is_trained_on_by_one_process_and_rows_travel_by_number(tmp_path):
    write_lines(tmp_path, (120, 0, 200, 100))
    run_ranks(BEGIN + EACH_LINE, 2, tmp_path)


RATES = {"adagrad": 0.3, "ftrl": 0.3, "adam": 0.03, "sgd": 1.0}
LEARNS = """
def learned(files, workers, epochs=12, **options):
    words = mx.sym.Variable("words", stype="ragged")
    rows = mx.sym.Embedding(words, input_dim=WORDS, output_dim=1, sparse_grad=True, name="row")
    rows = mx.sym.sequence_pool(rows, pool_type="sum")
    net, found = mx.sym.LogisticRegressionOutput(rows, mx.sym.Variable("label"), name="p"), []
    with mx.AsyncExecutor() as run:
        for _ in range(epochs):
            result = run.run_from_files(
                net, described(8, words="uint64", label="uint64 dense"), files, workers, eval_metric=["mse", "auc"],
                initializer=mx.init.Zero(), **options,
            )
            found.append(dict(result.metric))
        values = {k: v.asnumpy() for k, v in run.get_params(net)[0].items()}
    assert result.examples == 400
    return values, found

bags = sorted(map(str, folder.glob("bag-*")))
for optimizer, rate in RATES.items():
    more = {"optimizer": optimizer, "optimizer_params": {"learning_rate": rate}}
    values, metrics = learned(bags, 2, average_every_n_batches=2, **more)
    one, alone = learned(bags, 1, **more)
    assert abs(metrics[-1]["mse"] - alone[-1]["mse"]) < 0.03
    for name, value in one.items():
        assert np.corrcoef(values[name].ravel(), value.ravel())[0, 1] > 0.99, (optimizer, name)
        assert np.linalg.norm(values[name] - value) < 0.4 * np.linalg.norm(value), (optimizer, name)
    np.savez(folder / f"{optimizer}-{rank}.npz", **values)
    print(optimizer, metrics[-1])
"""


@NATIVE
@pytest.mark.parametrize("optimizers", [["ftrl"], pytest.param([*RATES], marks=pytest.mark.slow)])
def test_two_processes_of_two_workers_learn_what_one_worker_does(optimizers, tmp_path):
    write_bags(tmp_path, 10, 40)
    rates = {name: RATES[name] for name in optimizers}
    outputs = run_ranks(f"{BEGIN}\nRATES = {rates}\n{LEARNS}", 2, tmp_path)
    assert outputs[0] == outputs[1]  # metrics are those of all
    for optimizer in optimizers:
        first, second = (np.load(tmp_path / f"{optimizer}-{rank}.npz") for rank in range(2))
        for name in first:
            np.testing.assert_array_equal(first[name], second[name], err_msg=name)


@pytest.mark.slow
def test_processes_with_worker_processes(tmp_path):
    write_lines(tmp_path, (120, 0, 200, 100))
    code = EACH_LINE.replace('("serial", 1), ("native", 2)', '("process", 2),')
    run_ranks(BEGIN + code, 2, tmp_path)


DENSE = """
dense = sorted(map(str, folder.glob("part-*")))
def trained(mode, **options):
    module = dense_module()
    with mx.AsyncExecutor() as run:
        mx.random.seed(1 + rank * ("average_every_n_batches" in options))
        run.run_from_files(
            module, described(5, x="float dense", label="uint64 dense"), dense, 1, mode=mode,
            optimizer="sgd", optimizer_params={"learning_rate": 0.01}, initializer=mx.init.Uniform(0.3), **options,
        )
    return parameters(module)

mine = trained("serial", average_every_n_batches=1)
(folder / f"dense-{rank}").write_text(repr({k: v.tolist() for k, v in mine.items()}))
alone = trained("serial")
for name, value in alone.items() if rank == 0 else ():  # small steps add up as one process's do, halved as means do
    np.testing.assert_allclose(mine[name], value, atol=0.03, err_msg=name)
try:
    net = counting_net(5 + rank)
    with mx.AsyncExecutor() as run:
        train(run, net, files, 1, "serial", average_every_s=1)
    raise SystemExit("no error")
except (ArgumentError, LostWorkerError) as error:
    print(error)
"""


def test_dense_parameters_begin_as_those_of_rank_0_and_networks_are_compared(tmp_path):
    write_dense(tmp_path)
    write_lines(tmp_path, (5,))
    outputs = run_ranks(BEGIN + DENSE, 2, tmp_path)
    assert any("has another network or optimizer than rank" in output for output in outputs)
    assert (tmp_path / "dense-0").read_text() == (tmp_path / "dense-1").read_text()


SAVES = """
prefix = str(folder / "now")
net = counting_net(12_000)
with mx.AsyncExecutor(timeout_s=20) as run:
    last = run.last_snapshot(prefix)
    rate = mx.lr_scheduler.FactorScheduler(10**9, base_lr=RATE["learning_rate"])
    result = train(
        run, net, files, 2, "native", optimizer_params={"lr_scheduler": rate}, average_every_n_batches=20,
        callback=lambda progress: run.snapshot(prefix), callback_s=0.01, resume=last and prefix,
    )
    print(result.examples, set(counts(run, net)) == {1})
    run.snapshot(prefix)
    assert run.last_snapshot(prefix).done == files
"""


def killed(folder, size, seconds):
    """Start processes, kill them some time after their next snapshot; returns whether they were at work."""
    path = folder / "now-0000.run"
    before = path.stat().st_mtime_ns if path.exists() else 0
    with ranks(BEGIN + SAVES, size, folder) as programs:
        end = time.monotonic() + 60
        while time.monotonic() < end and not programs[0].output()[0]:
            with contextlib.suppress(FileNotFoundError):
                if path.stat().st_mtime_ns > before:
                    break
            time.sleep(0.001)
        time.sleep(seconds)
        for program in programs:
            os.kill(program.pid, signal.SIGKILL)
        return [program.wait() for program in programs] == [-signal.SIGKILL] * size


def check_kills(folder, sizes, seed):
    generator = random.Random(seed)
    files = write_lines(folder, (3000, 0, 2000, 1000, 3000, 2500, 500))
    met = [killed(folder, size, generator.random() * 0.05) for size in sizes]
    assert any(met)
    last = mx.AsyncExecutor.last_snapshot(str(folder / "now"))
    assert last.in_progress or last.done
    for output in run_ranks(BEGIN + SAVES, 2, folder):
        examples, is_right = output.split()
        assert is_right == "True"
        assert int(examples) < 12_000
    return files


@NATIVE
def test_processes_that_are_killed_go_on_each_line_once_as_many_or_fewer(tmp_path):
    files = check_kills(tmp_path, (2,), 0)
    with mx.AsyncExecutor() as run:  # the end of what two processes did
        net = counting_net(12_000)
        with pytest.raises(ArgumentError, match="are missing"):
            train(run, net, files[:2], 1, "serial", resume=str(tmp_path / "now"))


@NATIVE
@pytest.mark.slow
def test_processes_that_are_killed_many_times(tmp_path):
    for seed in range(6):
        (tmp_path / str(seed)).mkdir()
        check_kills(tmp_path / str(seed), (2, 3, 1, 2), seed)


LOST = """
if rank == int(sys.argv[2]):
    def look(progress):
        if sys.argv[3] == "raises":
            raise RuntimeError("on purpose")
        os.kill(os.getpid(), getattr(__import__("signal"), sys.argv[3]))
else:
    look = None
try:
    with mx.AsyncExecutor(timeout_s=0.5) as run:
        for _ in range(100):
            train(run, counting_net(400), files, 1, "serial", average_every_n_batches=1, callback=look, callback_s=0.1)
except LostWorkerError as error:
    print(error)
except RuntimeError as error:
    print(error)
    __import__("time").sleep(1)
"""


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
    with ranks(BEGIN + LOST, 2, tmp_path, who, how) as programs:
        other = programs[1 - who]
        assert other.wait(60) == 0, other.output()
        assert f"rank {1 - who} of 2: " in other.output()[0]
        if how != "raises":
            assert f"rank {who} is gone or stopped" in other.output()[0]


def test_what_is_no_number_is_refused(tmp_path):
    files = write_lines(tmp_path, (5,))
    with mx.AsyncExecutor() as run:
        for name, value in (
            ("average_every_n_batches", 0),
            ("average_every_n_batches", 1.5),
            ("average_every_s", 0),
            ("average_every_s", "often"),
        ):
            with pytest.raises(ArgumentError, match=name):
                train(run, counting_net(5), files, 1, "serial", **{name: value})


def test_one_process_trains_alone_and_several_are_told_what_to_do(tmp_path, caplog, monkeypatch):
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
