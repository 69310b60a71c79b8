from dpmodule.agents import DialogPartnerWorld, MultiTaskTeacher, RepeatLabelAgent
from helpers.talks import Noting, Texts, finish, spec

TASKS = [spec(Texts, "a-3-1-2"), spec(Texts, "b-1-4"), spec(Texts, "c")]


def world_of(student=Noting, tasks=TASKS, **opt):
    opt = {"task": ", ".join(tasks), "datatype": "valid", **opt}
    student = student(opt)
    return DialogPartnerWorld(opt, [MultiTaskTeacher({**opt, "numthreads": 1}), student]), student


def totals(world):
    return [each["total"] for each in world.report()["tasks"].values()]


def test_tasks_follow_each_other_by_episodes():
    world, student = world_of()
    finish(world)
    assert "".join(each["text"][0] + each["text"].split()[1] + " " for each in student.seen) == (
        "a0.0 a0.1 a0.2 b0.0 a1.0 b1.0 b1.1 b1.2 b1.3 a2.0 a2.1 "
    )
    late = world.get_agents()[0].act()
    assert ("text" in late, late["episode_done"]) == (False, True)


def test_training_draws_the_task():
    world, _ = world_of(RepeatLabelAgent, TASKS[:2], datatype="train")
    for _ in range(60):
        world.parley()
    assert sum(totals(world)) == 60
    assert min(totals(world)) > 0


def test_the_same_task_twice_has_two_reports():
    world, _ = world_of(RepeatLabelAgent, [spec(Texts, "a-2")] * 2)
    finish(world)
    assert [name[-2:] for name in world.report()["tasks"]] == ["-2", "#2"]
    assert totals(world) == [2, 2]
    world.reset_metrics()
    assert world.report()["total"] == 0
