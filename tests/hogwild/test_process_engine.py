"""Worker processes over one store: equality, counts, seeds, deaths, Ctrl-C, and what stays behind."""

import contextlib
import gc
import os
import random
import signal
import threading
import time
from pathlib import Path

import numpy as np
import pytest

import dpmodule as mx
from dpmodule.base import BoundsError, FileFormatError, NonFiniteError
from dpmodule.streams import WorkerDied, WorkerStuck
from helpers import hogwild
from helpers.processes import SOON_S, descendants, mostly_within, shared_files, until

DENSE, BAGS = hogwild.described(**hogwild.DENSE), hogwild.described(2, **hogwild.BAGS)
ADAGRAD = {"optimizer": "adagrad", "optimizer_params": {"learning_rate": 0.1}}


@pytest.fixture(scope="module")
def run():
    """One executor for many tests: it starts workers anew when the program is another one."""
    before = shared_files()
    with mx.AsyncExecutor(timeout_s=20) as executor:
        yield executor
    del executor
    gc.collect()
    assert shared_files() <= before


def children():
    """Return the ids of the workers of this process's executors."""
    found = []
    for pid in descendants():
        with contextlib.suppress(OSError):
            if Path(f"/proc/{pid}/comm").read_text().startswith("hogwild-"):
                found.append(pid)
    return sorted(found)


def process(run, program, feed, files, workers, fetch=(), **more):
    return run.run_from_files(program, feed, files, workers, fetch, mode="process", **more)


def same(first, second):
    return all(np.array_equal(value, second[name]) for name, value in first.items())


@pytest.mark.parametrize("mode", ["serial", "process"])
def test_one_worker_equals_a_plain_loop_bit_for_bit_with_dropout_and_a_schedule(run, dense, mode):
    files, x, y = dense

    def settings():
        schedule = mx.lr_scheduler.FactorScheduler(3, 0.5)
        return {"optimizer": "adam", "optimizer_params": {"lr_scheduler": schedule, "learning_rate": 0.01}}

    mx.random.seed(5)
    trained, adam = hogwild.dense_module(0.3), settings()
    for _ in range(3):
        run.run_from_files(trained, DENSE, files, 1, mode=mode, **adam)
    mx.random.seed(5)
    plain = hogwild.loop_over(hogwild.dense_module(0.3), x, y, 8, 3, **settings())
    assert trained.optimizer.num_update == plain.optimizer.num_update == 15
    for module in (trained, plain):  # and the plain loop goes on from there
        mx.random.seed(6)
        hogwild.loop_over(module, x, y, 8)
    assert same(hogwild.parameters(plain), hogwild.parameters(trained))


def test_changes_of_the_optimizer_between_calls_reach_the_workers(run, dense):
    module = hogwild.dense_module()
    process(run, module, DENSE, dense[0], 2)
    workers, before = children(), hogwild.parameters(module)
    module.optimizer.lr = 0.0
    process(run, module, DENSE, dense[0], 2)
    assert same(before, hogwild.parameters(module))
    assert children() == workers  # they are kept
    module.optimizer.lr = 0.5
    process(run, module, DENSE, dense[0], 1)
    assert not same(before, hogwild.parameters(module))


def test_every_line_counts_once_whatever_the_workers(run, tmp_path):
    counts = {tmp_path / str(number): count for number, count in enumerate((0, 7, 1, 0, 13, 30))}
    for path, count in counts.items():
        path.write_text("\r\n".join("1 0.5 1 1" for _ in range(count)))
    data = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=1, name="fc")
    net = mx.mod.Module(mx.sym.LinearRegressionOutput(data, mx.sym.Variable("y"), name="o"), ["x"], ["y"])
    feed, files = hogwild.described(4, x="float dense", y="uint64 dense"), [*counts]
    for workers in (3, 1):
        for chosen in (files, files[:2], files[:1] + files[3:4]):
            total = sum(map(counts.get, chosen))
            found = process(run, net, feed, chosen, workers, "y", eval_metric="mse")
            assert (found.examples, found.workers) == (total, min(workers, len(chosen)))
            assert -(-total // 4) <= found.batches <= total // 4 + workers
    found = process(run, net, feed, files[5:], 3, split_files=True)
    assert (found.examples, found.workers > 1) == (30, True)


def test_inference_by_several_workers_is_in_the_order_of_the_files(run, dense):
    files, module, feed = dense[0], hogwild.dense_module(), DENSE
    process(run, module, feed, files, 2)
    fetch = ["p", "label", "x"]
    found = list(run.infer_from_files(module, feed, files, 3, fetch))
    alone = list(run.infer_from_files(module, feed, files, 1, fetch, mode="serial"))
    assert [each[:2] for each in found] == [each[:2] for each in alone]
    for (_, _, mine), (_, _, theirs) in zip(found, alone):
        assert all(np.array_equal(a.asnumpy(), b.asnumpy()) for a, b in zip(mine, theirs))
    next(iter(run.infer_from_files(module, feed, files * 20, 2, "p")))  # an iteration that ends early
    assert len(list(run.infer_from_files(module, feed, files, 2, "p"))) == len(found)


def test_errors_of_workers_keep_their_type_and_name_the_place(run, dense, tmp_path):
    bad, huge, words = tmp_path / "bad", tmp_path / "huge", tmp_path / "words"
    bad.write_text("4 1 2 3 4 1 0\n4 1 x 3 4 1 0\n")
    huge.write_text("4 3e38 3e38 3e38 3e38 1 0\n" * 8)
    words.write_text("1 50 1 0\n")
    with pytest.raises(FileFormatError, match=r"bad: line 2, slot 'x'"):
        process(run, hogwild.dense_module(), DENSE, [*dense[0], bad], 2)
    last = mx.sym.FullyConnected(mx.sym.Variable("x"), num_hidden=2, name="fc")
    module = mx.mod.Module(mx.sym.SoftmaxOutput(last, mx.sym.Variable("label"), name="p"), ["x"], ["label"])
    with pytest.raises(NonFiniteError, match="line 1 of .*huge") as caught:
        process(run, module, DENSE, [huge, huge], 2, initializer=mx.init.One())
    assert (caught.value.file, caught.value.batch) == (str(huge), 0)
    assert all(np.isfinite(value).all() for value in hogwild.parameters(module).values())
    with pytest.raises(BoundsError, match="slot 'words' has the value 50"):
        process(run, hogwild.bag_module(), hogwild.described(**hogwild.BAGS), [words, words], 2)
    assert process(run, hogwild.dense_module(), DENSE, dense[0], 2).examples == 40


def test_a_stopped_worker_is_stuck(tmp_path):
    files, net, feed = hogwild.write_bags(tmp_path, lines=500), hogwild.bag_net(), BAGS
    with mx.AsyncExecutor(timeout_s=1) as run:
        process(run, net, feed, files, 2)
        threading.Timer(0.05, lambda: os.kill(max(children()), signal.SIGSTOP)).start()
        with pytest.raises(WorkerStuck, match="has not finished a batch within 1 s") as caught:
            process(run, net, feed, files * 5, 2)
        assert caught.value.file in files
        assert process(run, net, feed, files, 2).examples == 2000


def test_ctrl_c_comes_after_the_batches_and_workers_stay(run, tmp_path):
    files, net, feed = hogwild.write_bags(tmp_path, lines=500), hogwild.bag_module(), BAGS
    process(run, net, feed, files, 2)
    workers, before = children(), signal.getsignal(signal.SIGINT)

    def interrupt():
        until(lambda: signal.getsignal(signal.SIGINT) is not before)  # batches run, and put it off
        os.kill(os.getpid(), signal.SIGINT)

    threading.Thread(target=interrupt).start()
    with pytest.raises(KeyboardInterrupt):
        process(run, net, feed, files * 50, 2)
    assert children() == workers
    assert process(run, net, feed, files, 2).examples == 2000


def kill_at_random(run, net, files, seed, others):
    """Kill one of two workers within a run; return how long the error took to come, None if the run was over."""
    rng, killed = random.Random(seed), []

    def kill():
        with contextlib.suppress(AssertionError, ProcessLookupError):  # there is none, or it ends just now
            until(lambda: {*children()} - others)
            time.sleep(rng.uniform(0, 0.15))
            victims, now = sorted({*children()} - others), time.monotonic()
            if victims:
                os.kill(rng.choice(victims), signal.SIGKILL)
                killed.append(now)

    thread = threading.Thread(target=kill)
    thread.start()
    died = None
    try:
        process(run, net, BAGS, files * 60, 2, **ADAGRAD)
    except WorkerDied as error:
        died, at = error, time.monotonic()
    thread.join()
    if died is None:
        return None
    assert f"'hogwild-{died.index}'" in str(died)
    assert (died.index in (0, 1), died.file in (*files, None)) == (True, True)
    return at - killed[0]


@pytest.mark.parametrize("count", [4, pytest.param(200, marks=[pytest.mark.slow, pytest.mark.timeout(1200)])])
def test_a_killed_worker_is_told_at_once_and_parameters_stay_usable(tmp_path, count):
    files, net = hogwild.write_bags(tmp_path, lines=200), hogwild.bag_net()
    before, others = shared_files(), {*children()}
    with mx.AsyncExecutor(timeout_s=20) as run:
        took = [kill_at_random(run, net, files, seed, others) for seed in range(count)]
        assert all(np.isfinite(value).all() for value in hogwild.parameters(run.module(net)).values())
        assert process(run, net, BAGS, files, 2, eval_metric="auc").examples == 800
    deaths = [each for each in took if each is not None]
    assert len(deaths) > count / 2
    mostly_within(2.0 if count > 10 else SOON_S, deaths)  # a busy machine may be late now and then
    assert {*children()} <= others
    gc.collect()
    assert shared_files() <= before


def test_a_worker_killed_between_two_runs_was_working_on_nothing(tmp_path):
    files, net, error = hogwild.write_bags(tmp_path, lines=200), hogwild.bag_net(), None
    others = {*children()}
    with mx.AsyncExecutor(timeout_s=20) as run:
        for _ in range(20):  # a death that is noticed before the run starts new workers
            process(run, net, BAGS, files, 2)
            os.kill(min({*children()} - others), signal.SIGKILL)
            try:
                process(run, net, BAGS, files, 2)
            except WorkerDied as caught:
                error = caught
                break
    assert error is not None
    assert (error.file, "working on" in str(error)) == (None, False)


def test_the_file_of_a_killed_worker_is_not_one_whose_path_begins_with_its(tmp_path):
    files, net, others = [f"{tmp_path}/10", f"{tmp_path}/1"], hogwild.bag_net(), {*children()}
    line = Path(hogwild.write_bags(tmp_path, lines=1)[0]).read_text()
    for path, count in zip(files, (1, 20000)):
        Path(path).write_text(line * count)

    def kill(found):
        if found.batches > 2:  # of the second file
            os.kill(min({*children()} - others), signal.SIGKILL)

    with mx.AsyncExecutor(timeout_s=20) as run, pytest.raises(WorkerDied) as caught:
        process(run, net, BAGS, files, 1, callback=kill, callback_s=0.01)
    assert caught.value.file == files[1]


def test_a_snapshot_while_workers_run_has_whole_rows(run, tmp_path):
    """All columns of a row get the same updates, so that a row that is torn has different ones."""
    files = [tmp_path / str(i) for i in range(2)]
    for number, path in enumerate(files):
        path.write_text("".join(f"1 {2 * (i % 20) + number} 1 1\n" for i in range(4000)))
    pooled = mx.sym.sequence_pool(hogwild.rows_of(512, 40), pool_type="sum")
    pooled = mx.sym.sum(pooled, axis=1, keepdims=True)
    net = mx.sym.LinearRegressionOutput(pooled, mx.sym.Variable("label"), name="o")
    net, seen = mx.mod.Module(net, ["words"], ["label"]), []

    def look(found):
        run.snapshot(str(tmp_path / "now"), len(seen))
        seen.append(mx.nd.load(f"{tmp_path / 'now'}-{len(seen):04d}.params")["arg:table_weight"].asnumpy())

    more = {"initializer": mx.init.Zero(), "optimizer_params": {"learning_rate": 1e-4}}
    process(run, net, hogwild.described(4, **hogwild.BAGS), files, 2, callback=look, callback_s=0.02, **more)
    assert seen
    assert all((rows == rows[:, :1]).all() for rows in seen)


def test_a_snapshot_after_an_error_of_a_callback_has_whole_batches(tmp_path):
    files, net, prefix = (
        hogwild.write_lines(tmp_path, [2000] * 2),
        hogwild.counting_net(4000),
        str(tmp_path / "s"),
    )

    def stop(found):
        if found.examples > 300:
            raise ZeroDivisionError

    for _ in range(3):
        with mx.AsyncExecutor() as run:
            with pytest.raises(ZeroDivisionError):
                hogwild.train(run, net, files, 2, "process", callback=stop, callback_s=0.0005)
            run.snapshot(prefix, 0)
        with mx.AsyncExecutor() as run:
            hogwild.train(run, net, files, 2, "process", resume=prefix)
            np.testing.assert_array_equal(hogwild.counts(run, net), 1)
