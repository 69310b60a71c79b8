"""`HogwildWorld`: every example once, every parley once, and an end for everything that goes wrong."""

import contextlib
import gc
import itertools
import os
import random
import signal
import threading
import time
import traceback

import pytest
import torch

from dpmodule import random as mx_random
from dpmodule.agents import (
    BatchWorld,
    DialogPartnerWorld,
    HogwildWorld,
    MultiWorld,
    RepeatLabelAgent,
    create_task,
)
from dpmodule.base import ArgumentError, StateError
from dpmodule.streams import UnpicklableError, WorkerDied, WorkerStuck
from helpers.hogwild_agents import (
    Answers,
    Misbehaves,
    NoShare,
    OwnPart,
    Questions,
    Seen,
    Unpicklable,
    episode_sizes,
)
from helpers.processes import await_gone, resources, running, until

TWO_TASKS = "helpers.hogwild_agents:Questions:,helpers.hogwild_agents:Questions:base"


def options(examples=40, workers=2, **changes):
    return {
        "task": "questions",
        "datatype": "valid",
        "numthreads": workers,
        "batch_sort": False,
        "episodes": episode_sizes(examples),
        **changes,
    }


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


def pids(world):
    return [child.pid for child in world._workers._group._supervisor.children]


def epoch(world, most=10_000):
    """Parley until the epoch is done, and return how many there were."""
    count = 0
    while not world.epoch_done():
        world.parley()
        count += 1
        assert count < most
    return count


# every example once


def reports(opt, examples):
    """Return what each kind of world reports after an epoch in which every example was seen once."""
    sizes = {"serial": (1, 1), "batch": (1, None), "hogwild": (None, 1), "both": (None, None)}
    found = {}
    for kind, (workers, rows) in sizes.items():
        own = {**opt, "numthreads": workers or opt["numthreads"], "batchsize": rows or opt["batchsize"]}
        world, agent = plain(own)
        if own["numthreads"] > 1:
            world = HogwildWorld(own, world)
        elif own["batchsize"] > 1:
            world = BatchWorld(own, world)
        with world:
            for _ in range(2):
                agent.seen.zero_()
                epoch(world)
                found.setdefault(kind, []).append(world.report())
                assert agent.seen.sum() == examples, kind
                assert (agent.seen <= 1).all(), kind
                world.reset()
    return found


CASES = list(
    itertools.product(range(1, 34), range(1, 5), range(101), (False, True), (False, True), (False, True))
)


def every_example_once(cases):
    for rows, workers, size, uneven, is_sorted, has_two in cases:
        opt = options(
            workers=workers,
            batchsize=rows,
            batch_sort=is_sorted and not has_two,
            episodes=episode_sizes(size, uneven),
            task=TWO_TASKS if has_two else "questions",
            hogwild_mode=random.choice(["fork", "fork", "thread"]),
        )
        found = reports(opt, size * (1 + has_two))
        each = list(itertools.chain(*found.values()))
        assert all(report == each[0] for report in each), (opt, found)


def test_serial_batch_hogwild_and_both_see_every_example_once_and_report_the_same():
    edges = [(1, 2, 0, True, False, False), (33, 4, 1, True, True, False), (2, 3, 100, True, False, True)]
    every_example_once(edges + random.Random(5).sample(CASES, 5))


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_serial_batch_hogwild_and_both_see_every_example_once_long():
    every_example_once(random.Random(6).sample(CASES, 2000))


def test_no_example_is_an_epoch_of_no_parleys():
    with hogwild(examples=0)[0] as world:
        assert epoch(world) == 0
        assert world.report() == {"total": 0}


def test_near_the_end_workers_that_have_examples_get_the_parleys():
    with hogwild(examples=300, workers=2)[0] as world:
        assert 300 <= epoch(world) <= 303
        assert world.total_parleys * 1.0 == pytest.approx(world.get_total_epochs() * 300)


def test_copies_that_alone_know_when_they_are_done():
    opt = options(examples=7, workers=3)
    agent = Seen(opt)
    opt["examples"] = 7
    world = HogwildWorld(opt, DialogPartnerWorld(opt, [OwnPart(opt), agent]))
    with world:
        epoch(world)
        world._wait_idle()
        expected = sum(len(range(worker, 7 * (worker + 1), 3)) for worker in range(3))
        assert agent.seen.sum() == expected


def test_an_epoch_of_training_in_order_ends_and_goes_on():
    with hogwild(examples=20, workers=2, datatype="train:ordered", hogwild_ahead=1)[0] as world:
        for _ in range(3):
            assert epoch(world) > 0
            world.parley()
    with hogwild(examples=20, workers=2, datatype="train")[0] as world:
        for _ in range(50):
            world.parley()
            assert not world.epoch_done()


# every parley once


@pytest.mark.parametrize("mode", ["fork", "thread"])
def test_n_parleys_are_n_and_shutdown_adds_none_and_may_come_twice(mode):
    for count, ahead in itertools.product((0, 1, 2, 3, 30, 100), (1, 32)):
        world, agent = hogwild(workers=2, hogwild_mode=mode, datatype="train", hogwild_ahead=ahead)
        for _ in range(count):
            world.parley()
        assert world.total_parleys == count
        world.shutdown()
        assert agent.parleys.sum() == count
        world.shutdown()
        assert agent.parleys.sum() == count


def test_report_waits_for_what_is_under_way():
    with hogwild(datatype="train")[0] as world:
        for count in range(1, 60):
            world.parley()
            assert world.report()["total"] == count


class Waits(Seen):
    """Answers when it may: whenever a byte comes through a pipe."""

    pipe = None

    def act(self):
        if "text" in (self.observation or {}):
            os.read(self.pipe, 1)
        return super().act()


def test_each_worker_is_ahead_by_one_parley():
    Waits.pipe, write = os.pipe()
    world, agent = hogwild(Waits, workers=2, datatype="train")
    for _ in range(2):
        world.parley()
    third = threading.Thread(target=world.parley)
    third.start()
    third.join(0.2)
    assert third.is_alive()
    os.write(write, b"123")
    third.join()
    world.shutdown()
    assert agent.parleys.sum() == 3
    for fd in (Waits.pipe, write):
        os.close(fd)


def test_a_worker_has_a_number_a_thread_and_random_numbers_of_its_own():
    draws = []
    for seed in (3, 3, 4, None, None):
        world, agent = hogwild(workers=3, seed=seed, hogwild_ahead=1)
        with world:
            for _ in range(30):
                world.parley()
            world._wait_idle()
            assert agent.parleys[:3].all()
            assert agent.parleys.sum() == 30
        draws.append(agent.draws[:3].clone())
    for each in draws:
        assert (each[:, 2] == 1).all()
        assert len(each[:, 0].unique()) == len(each[:, 1].unique()) == 3
    assert torch.equal(draws[0], draws[1])
    assert not any(torch.equal(one, other) for one, other in itertools.combinations(draws[1:], 2))
    mx_random.seed(1)
    again = []
    for _ in range(2):
        mx_random.seed(1)
        world, agent = hogwild(workers=2, hogwild_ahead=1)
        with world:
            for _ in range(20):
                world.parley()
        again.append(agent.draws[:2].clone())
    assert torch.equal(*again)


def test_two_workers_draw_different_episodes_in_training():
    with hogwild(examples=400, datatype="train", seed=1)[0] as world:
        agent = world.get_agents()[1]
        for _ in range(100):
            world.parley()
        world._wait_idle()
        assert (agent.seen > 0).sum() > 70  # 2 workers with the same draws would see 50 at most


def test_one_worker_and_a_world_that_was_not_made_for_workers():
    opt = options(examples=10, workers=1)
    for workers in (1, 3):
        world, agent = plain(opt)
        with HogwildWorld({**opt, "numthreads": workers}, world) as world:
            epoch(world)
            assert world.report()["total"] == agent.seen.sum() == 10


# what goes wrong


CALLS = {
    "parley": lambda world: [world.parley() for _ in range(50_000)],
    "report": lambda world: world.report(),
    "reset": lambda world: world.reset(),
    "reset_metrics": lambda world: world.reset_metrics(),
    "save_agents": lambda world: world.save_agents(),
    "epoch_done": epoch,
    "shutdown": lambda world: world.shutdown(),
    "display": lambda world: world.display(),
}
"""Calls each of which waits for workers."""


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
    world.parley()
    world.parley()
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


def test_a_worker_that_died_while_nobody_waited():
    world, _ = hogwild(examples=2000)
    os.kill(pids(world)[0], signal.SIGKILL)
    with pytest.raises(WorkerDied):
        CALLS["parley"](world)
    world.shutdown()


def test_a_stopped_worker_is_stuck():
    world, _ = hogwild(Misbehaves, how="stop", hogwild_timeout_s=0.2, examples=200)
    victims = pids(world)
    with pytest.raises(WorkerStuck, match=r"(?s)has not finished a parley within 0.2 s.*in stop"):
        epoch(world)
    await_gone(victims)
    world.shutdown()


def test_a_thread_that_hangs_is_stuck():
    world, _ = hogwild(Misbehaves, how="hang", hogwild_timeout_s=0.1, hang_s=3, hogwild_mode="thread")
    with pytest.raises(WorkerStuck, match=r"(?s)worker 0.*a thread.*in hang"):
        epoch(world)
    world.shutdown()
    until(lambda: not hogwild_threads())


def hogwild_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("hogwild-")]


class BadCopy(Answers):
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


def test_display_and_episode_done_shut_down_and_say_why():
    for name in ("display", "episode_done"):
        world, _ = hogwild()
        victims = pids(world)
        with pytest.raises(NotImplementedError, match=rf"HogwildWorld\.{name}.*numthreads") as caught:
            getattr(world, name)()
        assert isinstance(caught.value, (StateError, AssertionError))
        await_gone(victims)
        with pytest.raises(StateError, match="shut down"):
            world.parley()


def test_bad_options_and_agents_are_refused():
    for name, value in {
        "numthreads": 0,
        "hogwild_mode": "threads",
        "hogwild_timeout_s": 0,
        "hogwild_ahead": 0,
        "seed": 0.5,
    }.items():
        with pytest.raises(ArgumentError, match=f"{name} is"):
            hogwild(**{**({"workers": value} if name == "numthreads" else {name: value})})
    opt = options()
    with pytest.raises(ArgumentError, match=r"agent 'alone' \(NoShare\) has no share\(\)"):
        HogwildWorld(opt, DialogPartnerWorld(opt, [Questions(opt), NoShare()]))
    with hogwild()[0] as world, pytest.raises(ArgumentError, match="world is a HogwildWorld, expected"):
        HogwildWorld(opt, world)
    with pytest.raises(ArgumentError, match="numthreads is -1"):
        create_task({"task": "helpers.hogwild_agents:Questions", "numthreads": -1}, RepeatLabelAgent({}))


# as a plain world


def test_create_task_picks_it_with_batches_in_its_workers():
    opt = options(task="helpers.hogwild_agents:Questions", batchsize=4)
    agent = Seen(opt)
    with create_task(opt, agent) as world:
        assert isinstance(world, HogwildWorld)
        assert (world.num_examples(), world.getID()) == (40, "helpers.hogwild_agents:Questions")
        assert world.num_episodes() == len(opt["episodes"])
        assert world.get_agents()[1] is agent
        assert world.get_acts() == [None, None]
        count = epoch(world)
        assert world.get_total_exs() == 4 * count
        assert world.report(compute_time=True)["parleys_per_second"] > 0
        world.reset_metrics()
        assert world.report() == {"total": 0}
        assert world.share()["world_class"] is DialogPartnerWorld
        # one parley of a batch is one call
        assert agent.parleys.sum() == count


class Saves(Seen):
    """Notes what had been done when it was saved."""

    saved = None

    def save(self, path=None):
        self.saved = int(self.parleys.sum())


def test_save_agents_saves_the_originals_after_what_is_under_way():
    world, agent = hogwild(Saves, datatype="train")
    with world:
        for _ in range(50):
            world.parley()
        world.save_agents()
        assert agent.saved == 50


def test_a_with_statement_ends_quietly_at_ctrl_c_and_says_what_else_ended_it():
    world, _ = hogwild()
    with world:
        victims = pids(world)
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
        epoch(world)
    assert world.total_parleys > 0
    await_gone(victims)


def test_spawned_workers_get_everything_and_say_what_they_cannot_get():
    with pytest.raises(UnpicklableError, match=r"Unpicklable\.share\(\)\['guard'\]"):
        hogwild(Unpicklable, hogwild_mode="spawn")
    opt = options(examples=100, hogwild_mode="spawn", batchsize=3, task=TWO_TASKS)
    world, agent = plain(opt)
    with HogwildWorld(opt, world) as world:
        epoch(world)
        report = world.report()
        assert agent.seen.max() == 1
        assert agent.seen.sum() == 200
    serial, _ = plain({**opt, "numthreads": 1, "batchsize": 1})
    epoch(serial)
    assert serial.report() == report


def test_a_world_that_is_forgotten_ends_its_workers():
    for mode in ("fork", "thread"):
        world, _ = hogwild(hogwild_mode=mode)
        world.parley()
        victims = pids(world) if mode == "fork" else []
        del world
        gc.collect()
        await_gone(victims)
        until(lambda: not hogwild_threads())


# no run leaves anything


def short_run(draw):
    """Start a world, do something to it, and end it; errors are those that were asked for."""
    how = draw.choice(["nothing"] * 6 + ["fail", "die"])
    world, agent = hogwild(
        Misbehaves,
        how=how,
        when=draw.randrange(1, 20),
        who=draw.randrange(2),
        workers=draw.randrange(1, 4),
        examples=draw.randrange(60),
        hogwild_mode="fork" if how == "die" else draw.choice(["fork", "thread"]),
        hogwild_timeout_s=20,
        datatype=draw.choice(["valid", "train", "train:ordered"]),
    )
    expected = {"nothing": (), "fail": (LookupError,), "die": (WorkerDied,)}[how]
    steps = draw.choices(
        ["parley", "report", "reset", "reset_metrics", "epoch_done", "kill"], [8, 2, 2, 2, 2, 1], k=5
    )
    if "kill" in steps and world.opt["hogwild_mode"] == "fork":
        expected += (WorkerDied,)
    ends = draw.choice(["shutdown", "with", "forget"])
    with contextlib.suppress(*expected):
        for step in steps:
            one_step(world, step, draw)
    with contextlib.suppress(*expected):
        if ends == "shutdown":
            world.shutdown()
            world.shutdown()
        elif ends == "with":
            with world:
                pass
    if not expected and ends != "forget":
        assert agent.parleys.sum() == world.total_parleys


def one_step(world, step, draw):
    if step == "parley":
        for _ in range(draw.randrange(12)):
            world.parley()
    elif step != "kill":
        getattr(world, step)()
    elif world.opt["hogwild_mode"] == "fork":
        with contextlib.suppress(IndexError, ProcessLookupError):
            os.kill(draw.choice(pids(world)), signal.SIGKILL)


def short_runs(count, seed):
    draw = random.Random(seed)
    short_run(random.Random(0))
    gc.collect()
    until(lambda: not hogwild_threads())
    before = resources()
    for _ in range(count):
        short_run(draw)
    gc.collect()
    until(lambda: not hogwild_threads())
    assert resources() == before


def test_short_runs_leave_nothing():
    short_runs(100, seed=7)


@pytest.mark.slow
@pytest.mark.timeout(7200)
def test_short_runs_leave_nothing_long():
    short_runs(10_000, seed=8)


def test_children_are_gone_after_shutdown():
    world, _ = hogwild(workers=3)
    victims = pids(world)
    assert all(running(pid) for pid in victims)
    world.shutdown()
    assert not any(running(pid) for pid in victims)
