import random

import pytest

from dpmodule.agents import (
    Agent,
    BatchWorld,
    DialogPartnerWorld,
    ExecutableWorld,
    HogwildWorld,
    MultiAgentDialogWorld,
    MultiWorld,
    RepeatLabelAgent,
    World,
    create_task,
)
from dpmodule.base import ArgumentError
from helpers.talks import Noting, Talks, Texts, epoch, spec, texts_of

TASK = spec(Texts, "a-3-1-2")
VALID = {"task": TASK, "datatype": "valid"}


class Says(Agent):
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
    assert type(world) is DialogPartnerWorld
    world.parley()
    assert world.get_acts()[0]["text"] == "a 0.0"
    assert world.get_acts()[1]["text"] == "0.0"
    assert (world.total_parleys, world.get_total_exs()) == (1, 1)
    assert world.report() == {"total": 1, "accuracy": 1.0, "f1": 1.0}


def test_epochs_and_episodes():
    world = create_task(VALID, Noting(VALID))
    assert (world.num_examples(), world.num_episodes()) == (6, 3)
    done = []
    while not world.epoch_done():
        world.parley()
        done.append(world.episode_done())
    assert done == [False, False, True, True, False, True]
    assert world.get_total_epochs() == 1.0


def test_reset_gives_another_full_epoch():
    world, student, _ = epoch(VALID)
    world.reset()
    assert world.report() == {"total": 0}
    first = texts_of(student.seen)
    student.seen.clear()
    while not world.epoch_done():
        world.parley()
    assert texts_of(student.seen) == first
    assert world.report()["total"] == 6


def test_reset_in_the_middle_of_an_episode():
    world = create_task(VALID, Noting(VALID))
    world.parley()
    world.reset()
    world.parley()
    assert world.get_acts()[0]["text"] == "a 0.0"


def test_everyone_hears_all_others():
    agents = three()
    world = MultiAgentDialogWorld({}, agents)
    world.parley()
    world.parley()
    assert agents[0].heard == ["b1", "c2", "b3", "c4"]
    assert agents[1].heard == ["a0", "c2", "a2", "c4"]
    assert agents[2].heard == ["a0", "b1", "a2", "b3"]
    assert type(create_task(VALID, [Noting(VALID), Noting(VALID)])) is MultiAgentDialogWorld


def test_an_executable_world_changes_and_shows_each_its_part():
    class Room(ExecutableWorld):
        def execute(self, agent, act):
            self.opt.setdefault("log", []).append(act["text"])

        def observe(self, agent, act):
            return None if agent.id == "b" else {"text": f"{agent.id} hears {act['text']}"}

    agents = three()
    world = Room({}, agents)
    world.parley()
    assert world.opt["log"] == ["a0", "b0", "c2"]
    assert agents[1].heard == []
    assert agents[2].heard == ["c hears a0", "c hears b0", "c hears c2"], "its own ones, too"


@pytest.mark.parametrize("rows", [1, 2])
def test_agents_of_an_executable_world_do_not_hear_themselves(rows):
    opt = {**VALID, "batchsize": rows}
    world = create_task(opt, Noting(opt), default_world=ExecutableWorld)
    world.parley()
    assert world.report() == {"total": rows, "accuracy": 1.0, "f1": 1.0}, "not the teacher's own questions"


def test_a_world_without_parley():
    with pytest.raises(NotImplementedError, match="World must define parley"):
        World({}).parley()


@pytest.mark.parametrize("count", [0, 1, 3])
def test_two_partners(count):
    with pytest.raises(ArgumentError, match=f"agents has {count} items, expected two"):
        DialogPartnerWorld({}, three()[:count])


def test_display():
    world = create_task(VALID, Noting(VALID))
    assert world.display() == ""
    world.parley()
    assert world.display().splitlines() == [
        f"[{TASK}]:", " a 0.0", " [eval_labels: 0.0]", "[noting]:", " 0.0"
    ]  # fmt: skip
    talks = [[{"text": "a", "reward": 0}, {"text": "b", "reward": 0.5}]]
    world = create_task({"task": spec(Talks), "talks": talks, "datatype": "valid"}, Noting(VALID))
    world.parley()
    assert "reward" not in world.display(), "none was given"
    world.parley()
    assert " [reward: 0.5]" in world.display()


# create_task


@pytest.mark.parametrize(
    ("more", "kind"),
    [
        ({}, DialogPartnerWorld),
        ({"batchsize": 1, "numthreads": 1}, DialogPartnerWorld),
        ({"batchsize": 2}, BatchWorld),
        ({"task": f"{TASK},{TASK}"}, MultiWorld),
        ({"task": f"{TASK},{TASK}", "batchsize": 2}, BatchWorld),
        ({"numthreads": 2, "hogwild_mode": "thread"}, HogwildWorld),
        ({"numthreads": 2, "batchsize": 2, "hogwild_mode": "thread"}, HogwildWorld),
    ],
)
def test_create_task_picks_the_world(more, kind):
    opt = {**VALID, **more}
    with create_task(opt, Noting(opt)) as world:
        assert type(world) is kind


def test_a_comma_in_task_makes_a_multi_world_without_sorting():
    opt = {**VALID, "task": f"{TASK}, {TASK}", "batchsize": 2, "batch_sort": True}
    world = create_task(opt, Noting(opt))
    assert type(world.world) is MultiWorld
    assert not any(each.get_agents()[0].use_batch_act for each in world.world.worlds)


@pytest.mark.parametrize("name", ["batchsize", "numthreads"])
@pytest.mark.parametrize("value", [0, -1, 1.5, "2", True])
def test_numbers_below_1(name, value):
    with pytest.raises(ArgumentError, match=f"{name} is .*, expected an integer from 1"):
        create_task({**VALID, name: value}, Noting(VALID))


@pytest.mark.parametrize(
    ("task", "told"),
    [
        ("revers", "did you mean 'reverse'"),
        ("helpers.talks:Nothing", "has no 'Nothing'"),
        ("no.such:Teacher", "there is no module"),
        ("", "task is not set"),
        (None, "task is not set"),
        (" , ", "task is not set"),
    ],
)
def test_tasks_that_there_are_not(task, told):
    with pytest.raises(ArgumentError, match=told):
        create_task({**VALID, "task": task}, Noting(VALID))


def test_max_batch_tokens_with_workers():
    opt = {**VALID, "max_batch_tokens": 30, "numthreads": 2}
    with pytest.raises(ArgumentError, match="max_batch_tokens is set with numthreads 2"):
        create_task(opt, Noting(opt))


# messages


class Wrong(Noting):
    def act(self):
        return self.opt["reply"]


@pytest.mark.parametrize("reply", [None, "text", 3, ["text"], (("text", "x"),)])
def test_act_must_return_a_dict(reply):
    opt = {**VALID, "reply": reply}
    agent = Wrong(opt)
    for world in (
        create_task(opt, agent),
        MultiAgentDialogWorld(opt, [agent, agent]),
        ExecutableWorld(opt, [agent]),
    ):
        with pytest.raises(
            RuntimeError, match=r"agent 'noting' \(Wrong\) returned .* from its act, expected a dict"
        ):
            world.parley()


@pytest.mark.parametrize("text", [7, ["a"], b"a", 0.5])
def test_the_text_of_an_answer_is_a_str(text):
    opt = {**VALID, "reply": {"text": text}}
    agent, teacher = Wrong(opt), create_task(opt, Noting(opt)).get_agents()[0]
    told = rf"agent 'noting' \(Wrong\) returned a message whose text is of type {type(text).__name__} from its act"
    worlds = [
        kind(opt, [teacher, agent]) for kind in (DialogPartnerWorld, MultiAgentDialogWorld, ExecutableWorld)
    ]
    for world in (*worlds, create_task({**opt, "batchsize": 2}, agent)):
        with pytest.raises(ArgumentError, match=told):
            world.parley()
    teacher.act()
    total = teacher.report()["total"]
    with pytest.raises(
        TypeError, match=f"reply of agent 'x' is of type {type(text).__name__}, expected a str"
    ):
        teacher.observe({"id": "x", "text": text})
    assert teacher.report()["total"] == total
    MultiAgentDialogWorld(opt, [agent, Noting(opt)]).parley()  # nobody counts


def test_subclasses_of_dict_are_messages():
    class Message(dict):
        pass

    opt = {**VALID, "reply": Message(text="0.0")}
    for rows in (1, 2):
        given = {**opt, "batchsize": rows}
        world = create_task(given, Wrong(given))
        world.parley()
        assert world.report()["total"] == rows


# several tasks


def two(**more):
    return {**VALID, "task": f"{spec(Texts, 'a-3-1')},{spec(Texts, 'b-1-2-2')}", **more}


def test_several_tasks_follow_each_other_by_episodes():
    _, student, parleys = epoch(two())
    assert [each["text"][0] for each in student.seen] == list("aaababbbb")
    assert parleys == 9
    assert [each["text"].split()[1] for each in student.seen if each["text"][0] == "b"] == [
        "0.0",
        "1.0",
        "1.1",
        "2.0",
        "2.1",
    ]


class Knows(RepeatLabelAgent):
    """Knows the answers of task a only."""

    def act(self):
        is_a = self.observation.get("text", "").startswith("a")
        return super().act() if is_a else {"id": self.id, "text": "no idea", "metrics": {"loss": 2.0}}


@pytest.mark.parametrize("rows", [1, 3])
def test_macro_and_micro_averages_over_tasks(rows):
    opt = two(batchsize=rows)
    world = epoch(opt, Knows(opt))[0]
    report = world.report()
    assert report["total"] == 9
    assert report["accuracy"] == 0.5
    assert report["micro"]["accuracy"] == round(4 / 9, 4)
    assert report["loss"] == 2.0
    assert [each["total"] for each in report["tasks"].values()] == [4, 5]
    assert (world.num_examples(), world.num_episodes()) == (9, 5)


def test_the_same_task_twice():
    opt = {**VALID, "task": f"{TASK},{TASK}"}
    report = epoch(opt)[0].report()
    assert report["total"] == 12
    assert list(report["tasks"]) == [TASK, f"{TASK}#2"]


def test_training_draws_the_task_whenever_an_episode_is_done():
    random.seed(1)
    opt = two(datatype="train")
    world = create_task(opt, Noting(opt))
    names = []
    for _ in range(200):
        world.parley()
        names.append(world.get_acts()[0]["text"].split()[0])
        if len(names) > 1 and names[-1] != names[-2]:
            assert world.get_acts()[0]["text"].split()[1].endswith(".0")
    assert 40 < names.count("a") < 160
    assert not world.epoch_done()


def test_a_multi_world_shows_its_current_task():
    opt = two()
    with create_task(opt, Noting(opt)) as world:
        world.parley()
        assert world.display().startswith(f"[world 0: {spec(Texts, 'a-3-1')}]")
        world.reset_metrics()
        assert world.report()["total"] == 0
        world.save_agents()


# the end


class Closing(Noting):
    def shutdown(self):
        self.seen.append("shut down")


def test_shutdown_and_with():
    opt = VALID
    student = Closing(opt)
    with create_task(opt, student) as world:
        world.parley()
    assert student.seen[-1] == "shut down"


@pytest.mark.parametrize("rows", [1, 2])
def test_with_ends_quietly_at_ctrl_c_and_at_nothing_else(rows):
    opt = {**VALID, "batchsize": rows}
    student = Closing(opt)
    with create_task(opt, student):
        raise KeyboardInterrupt
    assert student.seen.count("shut down") == (1 if rows == 1 else 1 + rows)
    with pytest.raises(ZeroDivisionError), create_task(opt, student):
        raise ZeroDivisionError


def test_time_is_told_if_asked_for():
    world = epoch(VALID)[0]
    report = world.report(compute_time=True)
    assert report["time"] > 0
    assert report["parleys_per_second"] == pytest.approx(6 / report["time"])
