"""Snapshots of runs over files: what they note, and that a run goes on from them, each line trained on once."""

import gzip
import os
import random
import signal
import time
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule import native
from dpmodule.base import ArgumentError, FileError, FileFormatError
from helpers.counting_run import counting_net, counts, train, write_lines
from helpers.hogwild import dense_module, described, parameters, write_dense
from helpers.programs import TESTS, Program

LINES = (300, 0, 500, 11, 1000, 189)
NATIVE = pytest.mark.skipif(not native.available(), reason="there is no extension")
DENSE = {"x": "float dense", "label": "uint64 dense"}


class Enough(Exception):
    """Ends a run from within its callback."""


def broken_off(run, net, files, workers, mode, examples, **more):
    """Train until some examples are done; returns how many are."""
    seen = []

    def look(progress):
        seen.append(progress.examples)
        if progress.examples >= examples:
            raise Enough

    with pytest.raises(Enough):
        train(run, net, files, workers, mode, callback=look, callback_s=1e-6, **more)
    return seen[-1]


def slow(rate=2.0):
    """Return a schedule, which in Python makes native workers slow."""
    return {"lr_scheduler": mx.lr_scheduler.FactorScheduler(10**9, base_lr=rate)}


@pytest.mark.parametrize("mode", [pytest.param("native", marks=NATIVE), "serial"])
def test_a_snapshot_notes_what_is_done_and_how_far_the_rest_is(mode, tmp_path):
    files = write_lines(tmp_path, (20, 4, 60_000))
    net, prefix = counting_net(60_024), str(tmp_path / "now")
    with mx.AsyncExecutor() as run:
        broken_off(run, net, files, 1, mode, 30, optimizer_params=slow())
        run.snapshot(prefix, 3)
        found = run.last_snapshot(prefix)
        trained = counts(run, net)
    assert (found.epoch, found.prefix, found.done) == (3, prefix, files[:2])
    assert list(found.in_progress) == files[2:]
    with open(files[2]) as file:  # lines are counted with blank ones among them
        read = [line for _, line in zip(range(found.in_progress[files[2]]), file) if line.strip()]
    assert len(read) == trained.sum() - 24
    assert set(trained[: 24 + len(read)]) == {1}


@NATIVE
@pytest.mark.parametrize("split", [False, True])
def test_other_numbers_of_workers_go_on_with_plain_compressed_and_bad_lines(split, tmp_path):
    files = write_lines(tmp_path, (9000, 30_000, 20))
    with gzip.open(tmp_path / "packed.gz", "wb") as file:
        file.write(Path(files.pop(1)).read_bytes())
    with open(files[0], "a") as file:
        file.write("2 7 8\n\n")
    files.insert(1, str(tmp_path / "packed.gz"))
    prefix, net = str(tmp_path / "now"), counting_net(39_020)
    options = {"on_bad_line": "skip", "split_files": split}
    with mx.AsyncExecutor() as run:
        broken_off(run, net, files, 3, "native", 5000, optimizer_params=slow(), **options)
        run.snapshot(prefix)
        done = counts(run, net).sum()
    for workers in (1, 2):
        with mx.AsyncExecutor() as run:
            net = counting_net(39_020)
            result = train(
                run, net, files, workers, "native", resume=prefix, optimizer_params=slow(), **options
            )
            assert result.examples == 39_020 - done
            assert set(counts(run, net)) == {1}


@pytest.mark.parametrize("dropout", [0.0, 0.4])
def test_one_worker_goes_on_bit_for_bit(dropout, tmp_path):
    files, _, _ = write_dense(tmp_path, (40, 3, 27))
    prefix = str(tmp_path / "now")

    def two_epochs(break_at=None):
        mx.random.seed(3)
        module = dense_module(dropout)
        options = {"mode": "serial", "optimizer": "adam", "initializer": mx.init.Uniform(0.1)}
        resume = None

        def look(progress):
            if progress.batches == break_at:
                run.snapshot(prefix)
                raise Enough

        with mx.AsyncExecutor() as run:
            if break_at:
                with pytest.raises(Enough):
                    run.run_from_files(
                        module, described(**DENSE), files, 1, callback=look, callback_s=1e-6, **options
                    )
                module, resume = dense_module(dropout), prefix
                mx.random.seed(8)
            for epoch in range(2):
                run.run_from_files(
                    module, described(**DENSE), files, 1, resume=None if epoch else resume, **options
                )
        assert module.optimizer.num_update == 18
        return parameters(module)

    expected = two_epochs()
    for batch in (1, 5, 6):
        found = two_epochs(batch)
        for name, value in expected.items():
            np.testing.assert_array_equal(found[name], value, err_msg=name)


@NATIVE
@pytest.mark.parametrize("mode", ["native", pytest.param("process", marks=pytest.mark.slow)])
def test_an_executor_goes_back_to_a_snapshot_of_its_own(mode, tmp_path):
    """Also where processes share the optimizer's states."""
    files, _, _ = write_dense(tmp_path)
    prefix = str(tmp_path / "now")
    module = dense_module()
    with mx.AsyncExecutor() as run:

        def epoch(**more):
            run.run_from_files(module, described(**DENSE), files, 1, mode=mode, optimizer="adam", **more)
            return parameters(module)["fc1_weight"], module.optimizer.num_update

        epoch()
        run.snapshot(prefix)
        first, again = epoch(), epoch()
        assert again[1] == 15
        back = epoch(resume=prefix)  # nothing is left of its epoch
        assert back[1] == 5
        redone = epoch()
        assert redone[1] == first[1] == 10
        np.testing.assert_array_equal(redone[0], first[0])


@NATIVE
def test_lines_in_memory_go_on_in_the_same_order(tmp_path):
    files = write_lines(tmp_path, (9000, 30_000))
    prefix = str(tmp_path / "now")

    def loaded(seed):
        dataset = mx.InMemoryDataset(described(4, line="uint64", label="uint64 dense"))
        dataset.set_filelist(files)
        dataset.load_into_memory()
        dataset.local_shuffle(seed=seed)
        return dataset

    def look(progress):
        if progress.examples >= 3000:
            raise Enough

    options = {
        "mode": "native",
        "optimizer_params": slow(),
        "initializer": mx.init.Zero(),
        "optimizer": "sgd",
    }
    with mx.AsyncExecutor() as run:
        net = counting_net(39_000)
        with pytest.raises(Enough):
            run.train_from_dataset(net, loaded(5), 2, callback=look, callback_s=1e-6, **options)
        run.snapshot(prefix)
        assert list(run.last_snapshot(prefix).in_progress) == ["memory"]
    with mx.AsyncExecutor() as run:
        for other in (loaded(6), files):
            call = run.run_from_files if other is files else run.train_from_dataset
            feed = (loaded(5).data_feed,) if other is files else ()
            with pytest.raises(ArgumentError, match="in another order|their order does|over lines in memory"):
                call(counting_net(39_000), *feed, other, 2, resume=prefix, **options)
        run.train_from_dataset(net := counting_net(39_000), loaded(5), 2, resume=prefix, **options)
        assert set(counts(run, net)) == {1}


def test_what_does_not_fit_a_snapshot_is_one_error(tmp_path):
    files = write_lines(tmp_path, (30, 8))
    prefix = str(tmp_path / "now")
    with mx.AsyncExecutor() as run:
        train(run, counting_net(38), files, 1, "serial")
        run.snapshot(prefix, 2)

    def resumed(net=None, files=files, prefix=prefix, batch_size=4, optimizer="sgd"):
        with mx.AsyncExecutor() as run:
            feed = described(batch_size, line="uint64", label="uint64 dense")
            run.run_from_files(
                counting_net(38) if net is None else net,
                feed,
                files,
                1,
                mode="serial",
                optimizer=optimizer,
                resume=prefix,
            )

    with pytest.raises(ArgumentError) as error:
        resumed(counting_net(39), optimizer="adam", batch_size=2)
    for text in (
        "'table_weight' was [38, 1], is [39, 1]",
        "optimizer was ['SGD(",
        "the batch size was 4, is 2",
    ):
        assert text in str(error.value)
    with pytest.raises(ArgumentError, match=r"1 are missing \(.*lines-1\), 0 are new"):
        resumed(files=files[:1])
    with pytest.raises(ArgumentError, match="resume is 3, expected the prefix"):
        resumed(prefix=3)
    with pytest.raises(FileError, match="no snapshot is saved under this prefix"):
        resumed(prefix=str(tmp_path / "other"))
    changed = os.stat(files[1])
    os.utime(files[1], ns=(changed.st_atime_ns, changed.st_mtime_ns + 1))
    with pytest.raises(ArgumentError, match="lines-1 changed since the snapshot"):
        resumed()
    os.utime(files[1], ns=(changed.st_atime_ns, changed.st_mtime_ns))
    resumed()

    with pytest.raises(
        FileFormatError, match="the state of the run lacks callbacks"
    ):  # fit has another kind of run
        fit(resume=prefix)
    fit(checkpoint=str(tmp_path / "fitted"))
    with pytest.raises(FileFormatError, match="another kind of run"):
        resumed(prefix=str(tmp_path / "fitted"))


def fit(**more):
    data = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=2, name="fc")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(data, name="softmax"))
    module.fit(mx.io.NDArrayIter(np.zeros((4, 3)), np.zeros(4), 2), num_epoch=1, **more)


def kill_and_resume(folder, mode, workers, lines, kills, seed):
    """Kill a run again and again at random times, and let it go on; check that it trains each line once."""
    total, generator = sum(lines), random.Random(seed)
    write_lines(folder, lines)
    begun, output = 0, None
    for attempt in range(kills + 1):
        before = mx.AsyncExecutor.last_snapshot(str(folder / "now"))
        left = None if before is None else [before.done, before.in_progress]
        arguments = (folder, total, workers, mode, int(attempt < kills))
        with Program(
            "file", TESTS / "helpers" / "counting_run.py", *arguments, OMP_NUM_THREADS="1"
        ) as program:
            if attempt == kills:
                assert program.wait() == 0, program.output()[1]
                output = program.output()[0].split()
                break
            newest, end = run_file_time(folder), time.monotonic() + 60
            while not has_begun(folder, newest) and time.monotonic() < end and not program.output()[0]:
                time.sleep(0.001)
            time.sleep(generator.random() * 0.03)
            program.send_signal(signal.SIGKILL)
            assert program.wait() in (0, -signal.SIGKILL)
            begun += bool(left and left[1])
    assert output[1] == "True", output
    return begun, int(output[0])


def has_begun(folder, newest):
    """Say whether a snapshot was written since that of a time, in the middle of a file."""
    if run_file_time(folder) == newest:
        return False
    return bool(mx.AsyncExecutor.last_snapshot(str(folder / "now")).in_progress)


def run_file_time(folder):
    """Return when the last snapshot was written, None if there is none."""
    path = folder / "now-0000.run"
    return path.stat().st_mtime_ns if path.exists() else None


@NATIVE
def test_a_killed_run_trains_each_line_once(tmp_path):
    begun, _ = kill_and_resume(tmp_path, "native", 2, (4000, 0, 5000, 1000, 4000, 10_000), 3, 0)
    assert begun  # some process went on in the middle


@NATIVE
@pytest.mark.parametrize(("number", "code"), [(signal.SIGTERM, 143), (signal.SIGINT, -signal.SIGINT)])
def test_a_run_ends_after_its_batches_when_asked_to(number, code, tmp_path):
    write_lines(tmp_path, (4000,) * 8)
    arguments = (tmp_path, 32_000, 2, "native", 1)
    with Program("file", TESTS / "helpers" / "counting_run.py", *arguments, OMP_NUM_THREADS="1") as program:
        end = time.monotonic() + 60
        while run_file_time(tmp_path) is None and time.monotonic() < end:
            time.sleep(0.001)
        program.send_signal(number)
        assert program.wait() in (code, 130 if code < 0 else code), program.output()[1]
    assert len(mx.AsyncExecutor.last_snapshot(str(tmp_path / "now")).state["progress"]) == 1


@pytest.mark.slow
@pytest.mark.parametrize("mode", [pytest.param("native", marks=NATIVE), "serial", "process"])
def test_runs_killed_many_times_train_each_line_once(mode, tmp_path):
    workers, size = (1 if mode == "serial" else 2), (20 if mode == "native" else 1)
    lines = [size * count for count in (900, 0, 1000, 200, 900, 2000)]
    begun, _ = kill_and_resume(tmp_path, mode, workers, lines, 20, 1)
    assert begun > 5
