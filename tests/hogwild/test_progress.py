"""Snapshots of runs over files: their content, and resumed runs, which train on each line once."""

import gzip
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import ArgumentError, FileFormatError
from helpers import hogwild
from helpers.both_backends import in_native
from helpers.programs import TESTS, Program


class Enough(Exception):
    """Ends a run from within its callback."""


def broken_off(call, *given, examples, **more):
    """Train until some examples are done."""

    def look(progress):
        if progress.examples >= examples:
            raise Enough

    with pytest.raises(Enough):
        call(*given, callback=look, callback_s=1e-6, **more)


@pytest.mark.parametrize("mode", [pytest.param("native", marks=in_native), "serial"])
def test_a_snapshot_notes_what_is_done_and_how_far_the_rest_is(mode, tmp_path):
    files = hogwild.write_lines(tmp_path, (20, 4, 60_000))
    net, prefix = hogwild.counting_net(60_024), str(tmp_path / "now")
    with mx.AsyncExecutor() as run:
        broken_off(hogwild.train, run, net, files, 1, mode, examples=30, slow=True)
        run.snapshot(prefix, 3)
        found = run.last_snapshot(prefix)
        trained = hogwild.counts(run, net)
    assert (found.epoch, found.prefix, found.done) == (3, prefix, files[:2])
    assert list(found.in_progress) == files[2:]
    with open(files[2]) as file:  # lines are counted with blank ones among them
        read = [line for _, line in zip(range(found.in_progress[files[2]]), file) if line.strip()]
    assert len(read) == trained.sum() - 24
    assert set(trained[: 24 + len(read)]) == {1}


@in_native
@pytest.mark.parametrize("split", [False, True])
def test_other_numbers_of_workers_resume_plain_compressed_and_bad_lines(split, tmp_path):
    files = hogwild.write_lines(tmp_path, (9000, 30_000, 20))
    (tmp_path / "packed.gz").write_bytes(gzip.compress(Path(files[1]).read_bytes()))
    files[1] = str(tmp_path / "packed.gz")
    with open(files[0], "a") as file:
        file.write("2 7 8\n\n")
    prefix, net = str(tmp_path / "now"), hogwild.counting_net(39_020)
    options = {"on_bad_line": "skip", "split_files": split, "slow": True}
    with mx.AsyncExecutor() as run:
        broken_off(hogwild.train, run, net, files, 3, "native", examples=5000, **options)
        run.snapshot(prefix)
        done = hogwild.counts(run, net).sum()
    for workers in (1, 2):
        with mx.AsyncExecutor() as run:
            net = hogwild.counting_net(39_020)
            result = hogwild.train(run, net, files, workers, "native", resume=prefix, **options)
            assert result.examples == 39_020 - done
            assert set(hogwild.counts(run, net)) == {1}


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_one_worker_resumes_bit_for_bit(dropout, tmp_path):
    files, _, _ = hogwild.write_dense(tmp_path, (40, 3, 27))
    feed, prefix = hogwild.described(**hogwild.DENSE), str(tmp_path / "now")
    options = {"mode": "serial", "optimizer": "adam", "initializer": mx.init.Uniform(0.1)}

    def two_epochs(break_at=None):
        mx.random.seed(3)
        module, resume = hogwild.dense_module(dropout), None

        def look(progress):
            if progress.batches == break_at:
                run.snapshot(prefix)
                raise Enough

        with mx.AsyncExecutor() as run:
            if break_at:
                with pytest.raises(Enough):
                    run.run_from_files(module, feed, files, 1, callback=look, callback_s=1e-6, **options)
                module, resume = hogwild.dense_module(dropout), prefix
                mx.random.seed(8)
            for epoch in range(2):
                run.run_from_files(module, feed, files, 1, resume=None if epoch else resume, **options)
        assert module.optimizer.num_update == 18
        return hogwild.parameters(module)

    expected = two_epochs()
    for batch in (1, 5, 6):
        found = two_epochs(batch)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


@in_native
@pytest.mark.parametrize("mode", ["native", pytest.param("process", marks=pytest.mark.slow)])
def test_an_executor_goes_back_to_a_snapshot_of_its_own(mode, tmp_path):
    """Also where processes share the optimizer's states."""
    files, _, _ = hogwild.write_dense(tmp_path)
    prefix, module = str(tmp_path / "now"), hogwild.dense_module()
    with mx.AsyncExecutor() as run:

        def epoch(**more):
            more |= {"mode": mode, "optimizer": "adam"}
            run.run_from_files(module, hogwild.described(**hogwild.DENSE), files, 1, **more)
            return hogwild.parameters(module)["fc1_weight"], module.optimizer.num_update

        epoch()
        run.snapshot(prefix)
        found = epoch(), epoch(), epoch(resume=prefix), epoch()  # nothing is left of the resumed one
    assert [number for _, number in found] == [10, 15, 5, 10]
    np.testing.assert_array_equal(found[3][0], found[0][0])


@in_native
def test_lines_in_memory_resume_in_the_same_order(tmp_path):
    files, prefix = hogwild.write_lines(tmp_path, (9000, 30_000)), str(tmp_path / "now")
    rate = {"lr_scheduler": mx.lr_scheduler.FactorScheduler(10**9, base_lr=2.0)}
    options = {"mode": "native", "optimizer_params": rate, "initializer": mx.init.Zero()}

    def loaded(seed):
        dataset = mx.InMemoryDataset(hogwild.described(4, line="uint64", label="uint64 dense"))
        dataset.set_filelist(files)
        dataset.load_into_memory()
        dataset.local_shuffle(seed=seed)
        return dataset

    net = hogwild.counting_net(39_000)
    with mx.AsyncExecutor() as run:
        broken_off(run.train_from_dataset, net, loaded(5), 2, examples=3000, **options)
        run.snapshot(prefix)
        assert list(run.last_snapshot(prefix).in_progress) == ["memory"]
    with mx.AsyncExecutor() as run:
        with pytest.raises(ArgumentError, match="in another order|their order does"):
            run.train_from_dataset(hogwild.counting_net(39_000), loaded(6), 2, resume=prefix, **options)
        with pytest.raises(ArgumentError, match="over lines in memory"):
            hogwild.train(run, hogwild.counting_net(39_000), files, 2, "native", resume=prefix)
        run.train_from_dataset(net, loaded(5), 2, resume=prefix, **options)
        assert set(hogwild.counts(run, net)) == {1}


def test_what_does_not_fit_a_snapshot_is_one_error(tmp_path):
    files, prefix = hogwild.write_lines(tmp_path, (30, 8)), str(tmp_path / "now")
    with mx.AsyncExecutor() as run:
        hogwild.train(run, hogwild.counting_net(38), files, 1, "serial")
        run.snapshot(prefix, 2)

    def resumed(lines=38, files=files, prefix=prefix, batch_size=4, optimizer="sgd"):
        feed = hogwild.described(batch_size, line="uint64", label="uint64 dense")
        with mx.AsyncExecutor() as run:
            more = {"mode": "serial", "optimizer": optimizer, "resume": prefix}
            run.run_from_files(hogwild.counting_net(lines), feed, files, 1, **more)

    def fit(**more):
        data = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
        module = mx.mod.Module(mx.sym.SoftmaxOutput(data, name="softmax"))
        module.fit(mx.io.NDArrayIter(np.zeros((4, 3)), np.zeros(4), 2), num_epoch=1, **more)

    with pytest.raises(ArgumentError) as error:
        resumed(39, optimizer="adam", batch_size=2)
    for told in ("'table_weight' was [38, 1], is [39, 1]", "optimizer was ['SGD(", "size was 4, is 2"):
        assert told in str(error.value)
    with pytest.raises(ArgumentError, match=r"1 are missing \(.*lines-1\), 0 are new"):
        resumed(files=files[:1])
    before = os.stat(files[1])
    os.utime(files[1], ns=(before.st_atime_ns, before.st_mtime_ns + 1))
    with pytest.raises(ArgumentError, match="lines-1 changed since the snapshot"):
        resumed()
    os.utime(files[1], ns=(before.st_atime_ns, before.st_mtime_ns))
    resumed()
    with pytest.raises(FileFormatError, match="the state of the run lacks callbacks"):
        fit(resume=prefix)
    fit(checkpoint=str(tmp_path / "fitted"))
    with pytest.raises(FileFormatError, match="another kind of run"):
        resumed(prefix=str(tmp_path / "fitted"))


# kills


def program(folder, lines, workers, mode, saves):
    path = TESTS / "programs" / "counting_run.py"
    return Program("file", path, folder, lines, workers, mode, int(saves), OMP_NUM_THREADS="1")


def last(folder):
    return mx.AsyncExecutor.last_snapshot(str(folder / "now"))


@pytest.mark.parametrize(
    ("mode", "workers", "lines", "kills"),
    [
        pytest.param("native", 2, 16_000, 2, marks=in_native),
        pytest.param("native", 2, 18_000, 20, marks=[in_native, pytest.mark.slow]),
        pytest.param("serial", 1, 900, 20, marks=pytest.mark.slow),
        pytest.param("process", 2, 900, 20, marks=pytest.mark.slow),
    ],
)
def test_a_killed_run_trains_each_line_once(mode, workers, lines, kills, tmp_path):
    """Kill a run again and again at random times, and resume it."""
    generator, begun = random.Random(kills), 0
    sizes = (lines, 0, lines, lines // 4, lines, 2 * lines)
    hogwild.write_lines(tmp_path, sizes)
    for _ in range(kills):
        before = last(tmp_path)
        with program(tmp_path, sum(sizes), workers, mode, True) as running:
            hogwild.await_newer(tmp_path / "now-0000.run", running, lambda: last(tmp_path).in_progress)
            time.sleep(generator.random() * 0.03)
            running.send_signal(signal.SIGKILL)
            assert running.wait() in (0, -signal.SIGKILL)
            begun += bool(before and before.in_progress)
    with program(tmp_path, sum(sizes), workers, mode, False) as running:
        assert running.wait() == 0, running.output()[1]
        assert running.output()[0].split()[1] == "True"
    assert begun > kills // 4  # some processes resumed in the middle


@in_native
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_run_ends_after_its_batches_when_asked_to(number, tmp_path):
    hogwild.write_lines(tmp_path, (20_000,) * 8)
    with program(tmp_path, 160_000, 2, "native", True) as running:
        hogwild.await_newer(tmp_path / "now-0000.run", running)
        running.send_signal(number)
        assert running.wait() in (128 + number, -signal.SIGINT), running.output()[1]
    assert len(last(tmp_path).state["progress"]) == 1


def test_metric_and_skipped_lines_are_those_of_all_workers(tmp_path):
    files, _, _ = hogwild.write_dense(tmp_path, (20, 13, 7))
    with open(files[0], "a") as file:
        file.write("no line\n")

    def metric_of(mode, workers):
        mx.random.seed(0)
        seen, feed = [], hogwild.described(**hogwild.DENSE)
        more = {"optimizer_params": {"learning_rate": 0.0}, "initializer": mx.init.Uniform(1), "mode": mode}
        more |= {"callback": seen.append, "callback_s": 1e-6, "on_bad_line": "skip", "eval_metric": "acc"}
        with mx.AsyncExecutor() as run:
            result = run.run_from_files(hogwild.dense_module(), feed, files, workers, **more)
        assert result.skipped == 1
        assert all(each.skipped in (0, 1) for each in seen)
        return result.metric

    assert metric_of("process", 2) == metric_of("serial", 1)
