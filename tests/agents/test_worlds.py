import collections
import gc
import os
import random
import signal

import pytest
from hypothesis import settings, stateful
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dpmodule import agents
from dpmodule.agents import DialogPartnerWorld, ExecutableWorld, create_task
from dpmodule.base import DTypeError, StateError
from dpmodule.streams import WorkerDied
from helpers.hogwild_agents import Seen, no_threads, pids
from helpers.processes import await_gone, resources, until
from helpers.talks import Noting, Texts, finish, spec

TASK = spec(Texts, "a-3-1-2")
VALID = {"task": TASK, "datatype": "valid"}
QUESTIONS = "helpers.hogwild_agents:Questions"
KINDS = [
    *({}, {"batchsize": 3, "batch_sort": False}, {"batchsize": 2, "batch_sort": True}),
    *({"max_batch_tokens": 8}, {"task": f"{QUESTIONS},{QUESTIONS}:base"}),
    {"task": f"{QUESTIONS},{QUESTIONS}:base", "batchsize": 2},
    *({"numthreads": 2, "hogwild_mode": "thread"}, {"numthreads": 2, "hogwild_mode": "fork"}),
    {"numthreads": 3, "hogwild_mode": "fork", "batchsize": 2},
]


class Worlds(RuleBasedStateMachine):
    """Any order of calls of any world: no parley and no example is lost or counted twice."""

    @initialize(
        kind=st.sampled_from(KINDS),
        sizes=st.lists(st.integers(1, 4), max_size=8),
        datatype=st.sampled_from(["valid", "valid", "train", "train:ordered"]),
    )
    def create(self, kind, sizes, datatype):
        opt = {"task": QUESTIONS, "datatype": datatype, "episodes": sizes, "hogwild_timeout_s": 30, **kind}
        self.agent = Seen(opt)
        self.world = create_task(opt, self.agent)
        self.is_hogwild, self.can_kill = "numthreads" in kind, kind.get("hogwild_mode") == "fork"
        self.workers = pids(self.world) if self.can_kill else []
        self.parleys = self.counted = 0
        self.is_open, self.is_valid = True, datatype == "valid"
        self.epoch_began = self.agent.seen.clone()

    def examples(self):
        """Return the number of examples seen since metrics were reset."""
        return int(self.agent.seen.sum()) - self.counted

    def metrics_are_reset(self):
        assert self.world.report()["total"] == 0
        self.counted = int(self.agent.seen.sum())

    @precondition(lambda self: self.is_open)
    @rule(count=st.integers(1, 6))
    def parley(self, count):
        for _ in range(count):
            self.world.parley()
        self.parleys += count
        assert self.world.total_parleys == self.parleys

    @rule()
    def report(self):
        assert self.world.report()["total"] == self.examples()

    @precondition(lambda self: self.is_open)
    @rule()
    def reset(self):
        self.world.reset()
        self.metrics_are_reset()
        self.epoch_began = self.agent.seen.clone()

    @precondition(lambda self: self.is_open)
    @rule()
    def reset_metrics(self):
        self.world.reset_metrics()
        self.metrics_are_reset()

    @precondition(lambda self: self.is_open)
    @rule()
    def save(self):
        self.world.save_agents()
        assert self.agent.saved == self.agent.parleys.sum()

    @precondition(lambda self: self.is_open and self.is_valid)
    @rule()
    def end_epoch(self):
        self.parleys += finish(self.world)
        self.world.report()  # waits for what runs
        seen = self.agent.seen - self.epoch_began
        assert int(seen.sum()) == self.world.num_examples()
        assert seen.max() <= 1

    @precondition(lambda self: self.is_open and self.can_kill)
    @rule(who=st.integers(0, 1))
    def kill(self, who):
        os.kill(self.workers[who], signal.SIGKILL)
        with pytest.raises(WorkerDied, match=rf"worker {who} 'hogwild-{who}'.*SIGKILL"):
            collections.deque((self.world.parley() for _ in range(50_000)), maxlen=0)
        with pytest.raises(StateError, match="ended because of WorkerDied"):
            self.world.parley()
        assert self.world.report()["total"] >= 0
        self.world.shutdown()
        self.is_open, self.parleys = False, None

    @precondition(lambda self: self.is_open)
    @rule()
    def shutdown(self):
        self.world.shutdown()
        self.is_open = not self.is_hogwild
        if self.is_hogwild:
            with pytest.raises(StateError, match="shut down"):
                self.world.parley()

    def teardown(self):
        if not hasattr(self, "world"):
            return
        self.world.shutdown()
        self.world.shutdown()
        await_gone(self.workers)
        if self.is_hogwild and self.parleys is not None:
            assert self.agent.parleys.sum() == self.parleys
        del self.world


@pytest.mark.parametrize(
    ("examples", "steps"),
    [(25, 8), pytest.param(5000, 20, marks=[pytest.mark.slow, pytest.mark.timeout(7200)])],
)
def test_any_order_of_calls(examples, steps):
    create_task({**VALID, "numthreads": 2}, Noting(VALID)).shutdown()
    gc.collect()
    before = resources()
    options = settings(max_examples=examples, stateful_step_count=steps, deadline=None, derandomize=True)
    stateful.run_state_machine_as_test(Worlds, settings=options)
    gc.collect()
    until(no_threads)
    assert resources() == before


class Says(agents.Agent):
    def __init__(self, opt, shared=None):
        super().__init__(opt, shared)
        self.heard, self.id = [], self.opt["name"]

    def observe(self, observation):
        self.heard.append(observation["text"])
        return observation

    def act(self):
        return {"id": self.id, "text": f"{self.id}{len(self.heard)}"}


def three():
    return [Says({"name": name}) for name in "abc"]


def test_one_parley_is_one_example():
    world = create_task(VALID, Noting(VALID))
    assert (world.num_examples(), world.num_episodes(), world.display()) == (6, 3, "")
    done = []
    while not world.epoch_done():
        world.parley()
        question, answer = world.get_acts()
        done.append((question["text"].split()[1], answer["text"], world.episode_done()))
    asked = ["0.0", "0.1", "0.2", "1.0", "2.0", "2.1"]
    assert done == list(zip(asked, asked, (False, False, True, True, False, True)))
    assert (world.total_parleys, world.get_total_exs(), world.get_total_epochs()) == (6, 6, 1.0)
    assert world.report() == {"total": 6, "accuracy": 1.0, "f1": 1.0}
    world.reset()
    world.parley()
    assert world.get_acts()[0]["text"] == "a 0.0"


def test_everyone_hears_all_others_or_what_the_world_says():
    class Room(ExecutableWorld):
        def execute(self, agent, act):
            self.opt.setdefault("log", []).append(act["text"])

        def observe(self, agent, act):
            return None if agent.id == "b" else {"text": f"{agent.id} hears {act['text']}"}

    people = three()
    agents.MultiAgentDialogWorld({}, people).parley()
    assert [agent.heard for agent in people] == [["b1", "c2"], ["a0", "c2"], ["a0", "b1"]]
    people = three()
    world = Room({}, people)
    world.parley()
    assert (world.opt["log"], people[1].heard) == (["a0", "b0", "c2"], [])
    assert people[2].heard == ["c hears a0", "c hears b0", "c hears c2"], "its own ones, too"
    for rows in (1, 2):
        opt = {**VALID, "batchsize": rows}
        world = create_task(opt, Noting(opt), default_world=ExecutableWorld)
        world.parley()
        assert world.report()["total"] == rows, "not the teacher's own questions"


def test_a_text_that_is_no_str_is_not_counted():
    teacher = create_task(VALID, Noting(VALID)).get_agents()[0]
    teacher.act()
    with pytest.raises(DTypeError, match="reply of agent 'x' is of type int, expected a str"):
        teacher.observe({"id": "x", "text": 7})
    assert teacher.report()["total"] == 0
    silent = type("Wrong", (Noting,), {"act": lambda self: {"text": 7}})(VALID)
    agents.MultiAgentDialogWorld(VALID, [silent, Noting(VALID)]).parley()  # nobody counts


def test_subclasses_of_dict_are_messages():
    message = type("Message", (dict,), {})(text="0.0")
    for rows in (1, 2):
        opt = {**VALID, "batchsize": rows}
        world = create_task(opt, type("Own", (Noting,), {"act": lambda self: message})(opt))
        world.parley()
        assert world.report()["total"] == rows


# several tasks


TWO = (spec(Texts, "a-3-1"), spec(Texts, "b-1-2-2"))


@pytest.fixture(params=["worlds", "teacher"])
def two(request):
    """Return a function that makes a world of two tasks: of a world for each, or of one teacher of both."""

    def make(student=Noting, tasks=TWO, **more):
        opt = {**VALID, "task": ",".join(tasks), **more}
        agent = student(opt)
        if request.param == "worlds":
            return create_task(opt, agent), agent
        return DialogPartnerWorld(opt, [agents.MultiTaskTeacher({**opt, "numthreads": 1}), agent]), agent

    return make


def test_tasks_follow_each_other_by_episodes(two):
    world, student = two()
    assert finish(world) == 9
    seen = " ".join(each["text"].strip(" x").replace(" ", "") for each in student.seen)
    assert seen == "a0.0 a0.1 a0.2 b0.0 a1.0 b1.0 b1.1 b2.0 b2.1"
    assert (world.num_examples(), world.num_episodes()) == (9, 5)
    if not isinstance(world, DialogPartnerWorld):
        assert world.display().startswith("[world 1: ")


def test_the_same_task_twice(two):
    world, _ = two(tasks=(TASK, TASK))
    finish(world)
    report = world.report()
    assert (report["total"], list(report["tasks"])) == (12, [TASK, f"{TASK}#2"])


def test_training_draws_the_task_whenever_an_episode_is_done(two):
    random.seed(1)
    world, student = two(datatype="train")
    names = []
    for _ in range(200):
        world.parley()
        name, place = student.seen[-1]["text"].split()[:2]
        assert names[-1:] in ([], [name]) or place.endswith(".0")
        names.append(name)
    assert 40 < names.count("a") < 160
    assert not world.epoch_done()


# the end
