import pytest

from dpmodule.agents import BatchWorld, DialogPartnerWorld, HogwildWorld, MultiTaskTeacher, RepeatLabelAgent
from dpmodule.base import ArgumentError
from helpers.talks import Noting, Texts, spec, texts_of

TASKS = f"{spec(Texts, 'a-3-1-2')}, {spec(Texts, 'b-1-4')},{spec(Texts, 'c')}"


def world_of(student=Noting, **opt):
    given = {"task": TASKS, "datatype": "valid", **opt}
    teacher, student = MultiTaskTeacher(given), student(given)
    world = DialogPartnerWorld(given, [teacher, student])
    return (BatchWorld(given, world) if given.get("batchsize", 1) > 1 else world), student


@pytest.mark.parametrize("rows", [1, 2, 5, 16])
@pytest.mark.parametrize("stream", ["", ":stream"])
def test_every_example_of_every_task_exactly_once(rows, stream):
    world, student = world_of(batchsize=rows, datatype=f"valid{stream}", batch_sort=True)
    for _ in range(2):
        student.seen.clear()
        while not world.epoch_done():
            world.parley()
        assert [text.split()[:2] for text in texts_of(student.seen)] == [
            [name, f"{e}.{i}"] for name, lengths in (("a", (3, 1, 2)), ("b", (1, 4))) for e, n in enumerate(lengths)
            for i in range(n)
        ]  # fmt: skip
        report = world.report()
        assert report["total"] == world.num_examples() == 11
        assert [each["total"] for each in report["tasks"].values()] == [6, 5, 0]
        world.reset()


def test_tasks_follow_each_other_by_episodes():
    world, student = world_of()
    while not world.epoch_done():
        world.parley()
    assert [each["text"].split()[1] for each in student.seen] == [
        "0.0", "0.1", "0.2", "0.0", "1.0", "1.0", "1.1", "1.2", "1.3", "2.0", "2.1"
    ]  # fmt: skip
    assert [each["text"][0] for each in student.seen] == list("aaababbbbaa")
    late = world.get_agents()[0].act()
    assert "text" not in late
    assert late["episode_done"]


def test_training_draws_the_task():
    world, student = world_of(RepeatLabelAgent, datatype="train", task=",".join(TASKS.split(",")[:2]))
    for _ in range(60):
        world.parley()
    totals = [each["total"] for each in world.report()["tasks"].values()]
    assert sum(totals) == 60
    assert min(totals) > 0


def test_the_same_task_twice_is_reported_twice():
    world, _ = world_of(RepeatLabelAgent, task=f"{spec(Texts, 'a-2')},{spec(Texts, 'a-2')}")
    while not world.epoch_done():
        world.parley()
    report = world.report()
    assert report["total"] == 4
    assert [name[-2:] for name in report["tasks"]] == ["-2", "#2"]
    world.reset_metrics()
    assert world.report()["total"] == 0


def test_no_task():
    with pytest.raises(ArgumentError, match="task is not set"):
        MultiTaskTeacher({"task": " , "})


@pytest.mark.parametrize("mode", ["fork", "thread"])
@pytest.mark.parametrize("rows", [1, 3])
def test_workers_count_every_example_of_every_task_once(mode, rows):
    opt = {"task": TASKS, "datatype": "test", "numthreads": 2, "hogwild_mode": mode, "batchsize": rows}
    teacher = MultiTaskTeacher({**opt, "numthreads": 1})
    plain = DialogPartnerWorld(opt, [teacher, RepeatLabelAgent(opt)])
    with HogwildWorld(opt, plain) as world:
        for _ in range(2):
            while not world.epoch_done():
                world.parley()
            report = world.report()
            assert [each["total"] for each in report["tasks"].values()] == [6, 5, 0]
            assert report["micro"]["accuracy"] == 1.0
            world.reset()
