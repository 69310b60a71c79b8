"""Long runs hold no more than short ones; what was short of memory goes on; a module has one thread at a time.

Workers end with a parent that is killed.
"""

import json
import signal
import sys
import threading
import time

import numpy as np
import pytest

import dpmodule as mx
from helpers.nets import mlp
from helpers.processes import SOON_S, resources, running, until
from helpers.programs import TESTS, Program, run_file

PROGRAMS = TESTS / "programs"
ROUNDS = {
    "fit": (6, 1_000),  # epochs of 100 batches, on each of two contexts
    "predict": (60, 1_000),
    "buckets": (100, 10_000),
    "autobatch": (200, 10_000),
    "hogwild_files": (20, 10_000),
    "hogwild_worlds": (4, 2_000),
    "pools": (60, 10_000),
    "process_pools": (4, 10_000),
    "spawned_pools": (0, 80),  # few, as each starts two interpreters that import torch
    "pipes": (100, 10_000),
}
"""Of each scenario of programs/endurance.py: in short, and at length."""


def grown(scenario, rounds, seconds=100):
    """Run a scenario; returns what it held at the end and not before."""
    done = run_file(PROGRAMS / "endurance.py", scenario, rounds, seconds=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = map(json.loads, done.stdout.splitlines())
    after["memory"] = before["memory"] if after["memory"] < 1.01 * before["memory"] else after["memory"]
    return {name: (before[name], count) for name, count in after.items() if count != before[name]}


@pytest.mark.parametrize("scenario", [name for name in ROUNDS if ROUNDS[name][0]])
def test_a_short_run_holds_no_more_and_no_more(scenario):
    assert grown(scenario, ROUNDS[scenario][0]) == {}


def test_what_leaks_is_seen():
    assert {"memory", "descriptors"} <= set(grown("leaks", 100))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("scenario", ROUNDS)
def test_a_long_run_holds_no_more_and_no_more(scenario):
    assert grown(scenario, ROUNDS[scenario][1], 1400) == {}


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 13), reason="CPython 3.13.0 crashes where its table of strings gets no memory"
)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_a_module_goes_on_after_it_was_short_of_memory(seed):
    done = run_file(PROGRAMS / "short_memory.py", seed, 200, fresh=True, seconds=100)
    assert done.returncode == 0, done.stdout + done.stderr


class Keyed(mx.io.NDArrayIter):
    def next(self):
        batch = super().next()
        batch.bucket_key = 0
        return batch


@pytest.mark.parametrize("buckets", [False, True])
def test_two_threads_get_the_right_answer_or_an_error(buckets):
    net = mlp(classes=10, hidden=300)
    made = (lambda key: (net, ("data",), ("softmax_label",)), 0) if buckets else (net,)
    module = (mx.mod.BucketingModule if buckets else mx.mod.Module)(*made)
    module.bind([("data", (16, 40))], [("softmax_label", (16,))], for_training=False)
    module.init_params(mx.init.Xavier())
    rng = np.random.RandomState(0)
    data = [Keyed(rng.rand(64, 40).astype("f4"), batch_size=16) for _ in range(2)]
    right = [module.predict(each).asnumpy() for each in data]
    refused, answers = [], []

    def work(number):
        for _ in range(100):
            try:
                found = module.predict(data[number]).asnumpy()
            except mx.base.StateError as error:
                refused.append("another thread" in str(error))
            else:
                answers.append(np.array_equal(found, right[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers
    assert all(answers + refused)
    assert len(refused) + len(answers) == 200


def test_what_a_thread_is_inside_of_refuses_another():
    module, found = mx.mod.Module(mlp()), []
    data = mx.io.NDArrayIter(np.ones((32, 40), "f4"), np.zeros(32, "f4"), 16)

    def enter():
        for call in (lambda: module.predict(data), lambda: module.forward(None), module.update):
            with pytest.raises(mx.base.StateError, match="another thread is running this Module") as caught:
                call()
            found.append(caught.value)

    def from_another_thread(*_):
        thread = threading.Thread(target=enter)
        thread.start()
        thread.join()

    module.fit(data, num_epoch=1, batch_end_callback=from_another_thread)
    assert len(found) == 6
    module.score(data, "acc")


LONG_KILLS = (("fork", 40), ("spawn", 4), ("forkserver", 4))


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("method", "count"),
    [("fork", 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in LONG_KILLS)],
)
def test_workers_of_every_system_end_with_a_killed_parent(tmp_path, method, count):
    took, before = [], set(resources()["shm"])
    for number in range(count):
        folder = tmp_path / str(number)
        folder.mkdir()
        code = f"from programs import at_work; at_work.begin({method!r})"
        with Program("code", code, AT_WORK=str(folder)) as parent:
            left = json.loads(parent.read(1)[0])
            assert all(map(running, sum(left.values(), [])))
            begin = time.monotonic()
            parent.send_signal(signal.SIGKILL)
            parent.wait()
        while left and time.monotonic() - begin < SOON_S:
            alive = {name: [pid for pid in pids if running(pid)] for name, pids in left.items()}
            left = {name: pids for name, pids in alive.items() if pids}
        took.append(time.monotonic() - begin)
        assert not left
        until(lambda: set(resources()["shm"]) <= before)
    assert np.median(took) < 2 or count == 1
