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
from helpers.processes import SOON_S, resources, running, until
from helpers.programs import Program, run_module

ROUNDS = {
    "fit": (6, 1_000),  # epochs of 100 batches, on each of two contexts
    "predict": (60, 1_000),
    "buckets": (100, 10_000),
    "autobatch": (200, 10_000),
    "hogwild_files": (20, 10_000),
    "hogwild_worlds": (4, 2_000),
    "pools": (60, 10_000),
    "process_pools": (4, 10_000),
    "spawned_pools": (4, 80),  # few, as each starts two interpreters that import torch
    "pipes": (100, 10_000),
}
"""Of each scenario of `helpers.endurance`: in short, and at length."""


def check(scenario, rounds, seconds):
    done = run_module("helpers.endurance", scenario, rounds, seconds=seconds)
    assert done.returncode == 0, done.stdout + done.stderr
    before, after = map(json.loads, done.stdout.splitlines())
    assert after.pop("memory") < 1.01 * before.pop("memory"), done.stdout
    assert after == before


@pytest.mark.parametrize("scenario", [name for name in ROUNDS if name != "spawned_pools"])
def test_a_short_run_holds_no_more_and_no_more(scenario):
    check(scenario, ROUNDS[scenario][0], 100)


def test_what_leaks_is_seen():
    with pytest.raises(AssertionError):
        check("leaks", 100, 100)


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("scenario", ROUNDS)
def test_a_long_run_holds_no_more_and_no_more(scenario):
    check(scenario, ROUNDS[scenario][1], 1400)


@pytest.mark.skipif(
    sys.version_info[:2] == (3, 13), reason="CPython 3.13.0 crashes where its table of strings gets no memory"
)
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_a_module_goes_on_after_it_was_short_of_memory(seed):
    done = run_module("helpers.short_memory", seed, 200, fresh=True, seconds=100)
    assert done.returncode == 0, done.stdout + done.stderr


def network(buckets):
    def sym_gen(key):
        net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=300, name="fc0")
        net = mx.sym.FullyConnected(mx.sym.tanh(net), num_hidden=10, name="fc1")
        return mx.sym.SoftmaxOutput(net, name="softmax"), ("data",), ("softmax_label",)

    return mx.mod.BucketingModule(sym_gen, 0) if buckets else mx.mod.Module(sym_gen(0)[0])


class Keyed(mx.io.NDArrayIter):
    def next(self):
        batch = super().next()
        batch.bucket_key = 0
        return batch


@pytest.mark.parametrize("buckets", [False, True])
def test_two_threads_get_the_right_answer_or_an_error(buckets):
    module = network(buckets)
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
                refused.append(str(error))
            else:
                answers.append(np.array_equal(found, right[number]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert answers
    assert all(answers)
    assert len(refused) + len(answers) == 200
    assert all("another thread" in text for text in refused)


def test_what_a_thread_is_inside_of_refuses_another():
    module = network(False)
    data = mx.io.NDArrayIter(np.ones((32, 40), "f4"), np.zeros(32, "f4"), 16)
    found = []

    def enter(*_):
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


def killed(method, folder):
    """Kill a process for which others are at work; returns how many seconds these took to end."""
    folder.mkdir()
    before = set(resources()["shm"])
    code = f"from helpers import at_work; at_work.begin({method!r})"
    with Program("code", code, AT_WORK=str(folder)) as parent:
        at_work = json.loads(parent.read(1)[0])
        assert all(map(running, sum(at_work.values(), [])))
        begin = time.monotonic()
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    left = at_work
    while left and time.monotonic() - begin < SOON_S:
        alive = {name: [pid for pid in pids if running(pid)] for name, pids in left.items()}
        left = {name: pids for name, pids in alive.items() if pids}
    took = time.monotonic() - begin
    assert not left
    until(lambda: set(resources()["shm"]) <= before)
    return took


def test_workers_of_every_system_end_with_a_killed_parent(tmp_path):
    killed("fork", tmp_path / "fork")


@pytest.mark.slow
@pytest.mark.timeout(900)
@pytest.mark.parametrize(("method", "count"), [("fork", 40), ("spawn", 4), ("forkserver", 4)])
def test_workers_of_every_system_end_within_two_seconds(tmp_path, method, count):
    assert np.median([killed(method, tmp_path / str(number)) for number in range(count)]) < 2
