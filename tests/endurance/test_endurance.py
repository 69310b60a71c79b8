"""Long runs hold no more than short ones; what was short of memory goes on; a module has one thread at a time.

Workers end with a parent that is killed.
"""

import json
import signal
import sys
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest

import dpmodule as mx
from helpers.nets import mlp
from helpers.processes import await_gone, resources, running, until
from helpers.programs import TESTS, Program, run_file

PROGRAMS = TESTS / "programs"
ROUNDS = {
    "fit": (6, 1_000),  # epochs of 100 batches, on each of two contexts
    "predict": (60, 1_000),
    "autobatch": (200, 10_000),
    "hogwild_files": (20, 10_000),
    "hogwild_worlds": (4, 2_000),
    "pools": (60, 10_000),
    "process_pools": (4, 10_000),
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


@pytest.mark.parametrize("scenario", ROUNDS)
def test_a_short_run_holds_no_more_and_no_more(scenario):
    assert grown(scenario, ROUNDS[scenario][0]) == {}


def test_what_leaks_is_seen():
    assert {"memory", "descriptors"} <= set(grown("leaks", 100))


@pytest.mark.slow
@pytest.mark.timeout(1500)
@pytest.mark.parametrize("scenario", ROUNDS)
def test_a_long_run_holds_no_more_and_no_more(scenario):
    assert grown(scenario, ROUNDS[scenario][1], 1400) == {}


@pytest.mark.skipif(sys.version_info[:2] == (3, 13), reason="CPython 3.13.0 crashes without memory")
@pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.slow) for seed in range(1, 10))])
def test_a_module_goes_on_after_it_was_short_of_memory(seed):
    done = run_file(PROGRAMS / "short_memory.py", seed, 200, fresh=True, seconds=100)
    assert done.returncode == 0, done.stdout + done.stderr


def test_two_threads_get_the_right_answer_or_an_error():
    module = mx.mod.Module(mlp(classes=10, hidden=300))
    module.bind([("data", (16, 40))], [("softmax_label", (16,))], for_training=False)
    module.init_params(mx.init.Xavier())
    data = [mx.io.NDArrayIter(np.random.rand(64, 40).astype("f4"), batch_size=16) for _ in range(2)]
    right = [module.predict(each).asnumpy() for each in data]

    def work(number):
        try:
            return np.array_equal(module.predict(data[number]).asnumpy(), right[number])
        except mx.base.StateError as error:
            return str(error)

    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(work, [0, 1] * 100))
    assert True in found
    assert all(each is True or "another thread" in str(each) for each in found)


def test_what_a_thread_is_inside_of_refuses_another():
    module, found = mx.mod.Module(mlp()), []
    data = mx.io.NDArrayIter(np.ones((32, 40), "f4"), np.zeros(32, "f4"), 16)

    def enter(*_):
        for call in (lambda: module.predict(data), lambda: module.forward(None), module.update):
            with pytest.raises(mx.base.StateError, match="another thread is running this Module"):
                call()
            found.append(call)

    with ThreadPoolExecutor(1) as threads:
        module.fit(data, num_epoch=1, batch_end_callback=lambda _: threads.submit(enter).result())
    assert len(found) == 6
    module.score(data, "acc")


LONG_KILLS = [("fork", 40), ("spawn", 4), ("forkserver", 4)]


@pytest.mark.timeout(900)
@pytest.mark.parametrize(
    ("method", "count"), [("fork", 1), *(pytest.param(*each, marks=pytest.mark.slow) for each in LONG_KILLS)]
)
def test_workers_and_their_programs_end_with_a_killed_parent(tmp_path, method, count):
    code = f"from programs import at_work; at_work.begin({method!r})"
    took, before = [], set(resources()["shm"])
    for number in range(count):
        folder = tmp_path / str(number)
        folder.mkdir()
        with Program("code", code, AT_WORK=str(folder)) as parent:
            found = json.loads(parent.read(1)[0])
            pids = found["process"] + found["serial"]
            assert all(map(running, pids))
            parent.send_signal(signal.SIGKILL)
            parent.wait()
        took.append(await_gone(pids))
        until(lambda: set(resources()["shm"]) <= before)
    assert np.median(took) < 2 or count == 1
