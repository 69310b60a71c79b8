"""`HogwildWorld`: numbers of workers, and an end for everything that goes wrong."""

import gc
import itertools
import operator
import os
import signal
import threading
import time
import traceback

import pytest
import torch

from dpmodule import random as mx_random
from dpmodule.agents import DialogPartnerWorld, HogwildWorld, MultiWorld, create_task
from dpmodule.base import StateError
from dpmodule.streams import UnpicklableError, WorkerDied, WorkerStuck
from helpers.hogwild_agents import Misbehaves, OwnPart, Questions, Seen, Unpicklable, no_threads, pids
from helpers.processes import await_gone, resources, running, until
from helpers.talks import finish

TWO_TASKS = "helpers.hogwild_agents:Questions:,helpers.hogwild_agents:Questions:base"


def options(examples=40, workers=2, **changes):
    sizes = []
    while sum(sizes) < examples:
        sizes.append(min(1 + len(sizes) % 4, examples - sum(sizes)))
    opt = {"task": "questions", "datatype": "valid", "numthreads": workers, "batch_sort": False}
    return {**opt, "episodes": sizes, **changes}


def plain(opt, student=Seen):
    """Return the plain world, and its student."""
    agent = student(opt)
    if "," in opt["task"]:
        return MultiWorld(opt, [agent]), agent
    return DialogPartnerWorld(opt, [Questions(opt), agent]), agent


def hogwild(student=Seen, **changes):
    opt = options(**changes)
    world, agent = plain(opt, student)
    return HogwildWorld(opt, world), agent


def parley(world, count):
    for _ in range(count):
        world.parley()


def test_copies_that_alone_know_when_they_are_done():
    opt = {**options(workers=3), "examples": 7}
    agent = Seen(opt)
    with HogwildWorld(opt, DialogPartnerWorld(opt, [OwnPart(opt), agent])) as world:
        finish(world)
        world.save_agents()
        assert agent.seen.sum() == sum(len(range(worker, 7 * (worker + 1), 3)) for worker in range(3))


def test_a_worker_has_a_number_a_thread_and_random_numbers_of_its_own():
    draws = []
    for seed in (3, 3, 4, None, None):
        mx_random.seed(1)
        world, agent = hogwild(workers=3, hogwild_ahead=1, seed=seed)
        with world:
            parley(world, 30)
            world.report()
        assert (agent.parleys[:3].min() > 0, agent.parleys.sum()) == (True, 30)
        draws.append(agent.draws.view(8, 3)[:3].clone())
        assert (draws[-1][:, 2] == 1).all()
        assert len(draws[-1][:, 0].unique()) == len(draws[-1][:, 1].unique()) == 3
    assert torch.equal(draws[0], draws[1])
    assert torch.equal(draws[3], draws[4])
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(draws[1:4], 2))


# what goes wrong


CALLS = {
    "parley": lambda world: parley(world, 50_000),
    "epoch_done": finish,
    **{
        name: operator.methodcaller(name)
        for name in ("report", "reset", "reset_metrics", "save_agents", "shutdown", "display")
    },
}


@pytest.mark.parametrize("mode", ["fork", "thread"])
def test_an_exception_of_a_worker_ends_the_world_with_its_type_and_traceback(mode):
    for call in CALLS.values():
        world, _ = hogwild(Misbehaves, how="fail", hogwild_mode=mode, examples=100)
        world.parley()
        with pytest.raises(LookupError, match="the answer is not known") as caught:
            call(world)
        assert "in fail" in "".join(traceback.format_exception(caught.value))
        with pytest.raises(StateError, match=r"ended because of LookupError: the answer"):
            world.parley()
        assert world.epoch_done() in (False, True)
        assert world.report()["total"] >= 0
        world.shutdown()


@pytest.mark.parametrize("call", list(CALLS))
def test_a_killed_worker_gives_worker_died_wherever_the_parent_waits(call):
    world, _ = hogwild(Misbehaves, how="hang", who=1, examples=1000)
    parley(world, 2)
    victims = pids(world)
    killer = threading.Timer(0.05, os.kill, (victims[1], signal.SIGKILL))
    killer.start()
    began = time.monotonic()
    with pytest.raises(WorkerDied, match=r"worker 1 'hogwild-1'.*SIGKILL"):
        CALLS[call](world)
    assert time.monotonic() - began < 2
    killer.join()
    await_gone(victims)
    world.shutdown()
    assert world.report()["total"] >= 0


def test_a_stopped_worker_is_stuck():
    world, _ = hogwild(Misbehaves, how="stop", hogwild_timeout_s=0.2, examples=200)
    victims = pids(world)
    with pytest.raises(WorkerStuck, match=r"(?s)has not finished a parley within 0.2 s.*in stop"):
        finish(world)
    await_gone(victims)
    world.shutdown()


def test_a_thread_that_hangs_is_stuck():
    world, _ = hogwild(Misbehaves, how="hang", hogwild_timeout_s=0.1, hang_s=3, hogwild_mode="thread")
    with pytest.raises(WorkerStuck, match=r"(?s)worker 0.*a thread.*in hang"):
        finish(world)
    world.shutdown()
    until(no_threads)


class BadCopy(Seen):
    """Makes no copy in a worker."""

    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        if shared:
            raise TypeError("no copies, please")


@pytest.mark.parametrize("mode", ["fork", "thread"])
def test_a_copy_that_cannot_be_made_is_an_error_at_the_start(mode):
    before = resources()
    with pytest.raises(TypeError, match="no copies"):
        hogwild(BadCopy, hogwild_mode=mode)
    gc.collect()
    assert resources() == before


# as a plain world


def test_create_task_picks_it_with_batches_in_its_workers():
    opt = options(task="helpers.hogwild_agents:Questions", batchsize=4)
    agent = Seen(opt)
    with create_task(opt, agent) as world:
        assert isinstance(world, HogwildWorld)
        assert (world.num_examples(), world.getID()) == (40, "helpers.hogwild_agents:Questions")
        assert world.num_episodes() == len(opt["episodes"])
        assert (world.get_agents()[1], world.get_acts()) == (agent, [None, None])
        count = finish(world)
        assert world.get_total_exs() == 4 * count
        assert world.report(compute_time=True)["parleys_per_second"] > 0
        assert world.share()["world_class"] is DialogPartnerWorld
        assert agent.parleys.sum() == count  # one parley of a batch is one call


def test_a_with_statement_ends_quietly_at_ctrl_c_and_its_own_error_comes_first():
    world, _ = hogwild()
    victims = pids(world)
    with world:
        raise KeyboardInterrupt
    await_gone(victims)
    world, _ = hogwild(Misbehaves, how="fail")
    with pytest.raises(ZeroDivisionError), world:
        world.parley() or 1 / 0
    world, _ = hogwild(Misbehaves, how="fail")
    with pytest.raises(LookupError), world:
        world.parley()


def test_ctrl_c_while_it_waits():
    world, _ = hogwild(Misbehaves, how="hang", hang_s=0.3)
    victims = pids(world)
    threading.Timer(0.1, os.kill, (os.getpid(), signal.SIGINT)).start()
    with world:
        finish(world)
    assert world.total_parleys > 0
    await_gone(victims)


def test_spawned_workers_get_everything_and_name_what_they_cannot_get():
    with pytest.raises(UnpicklableError, match=r"Unpicklable\.share\(\)\['guard'\]"):
        hogwild(Unpicklable, hogwild_mode="spawn")
    opt = options(examples=100, hogwild_mode="spawn", batchsize=3, task=TWO_TASKS)
    world, agent = plain(opt)
    with HogwildWorld(opt, world) as world:
        finish(world)
        report = world.report()
        assert (agent.seen.max(), agent.seen.sum()) == (1, 200)
    serial, _ = plain({**opt, "numthreads": 1, "batchsize": 1})
    finish(serial)
    assert serial.report() == report


@pytest.mark.parametrize("mode", ["fork", "thread"])
def test_a_world_that_is_forgotten_ends_its_workers(mode):
    world, _ = hogwild(hogwild_mode=mode)
    world.parley()
    victims = pids(world) if mode == "fork" else []
    assert all(running(pid) for pid in victims)
    del world
    gc.collect()
    await_gone(victims)
    until(no_threads)
