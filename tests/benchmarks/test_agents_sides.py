"""What agents and worlds are measured on: agents that learn, and worlds that all say the same."""

import pytest

from benchmarks.parts.agents import RATES
from benchmarks.sides.agents import Runner


@pytest.fixture
def runner(request):
    """A runner, whose worlds are shut down."""
    made = Runner(request.param)
    yield made
    for world in made.opened.values():
        if hasattr(world, "shutdown"):
            world.shutdown()


@pytest.mark.parametrize("runner", ["bag"], indirect=True)
def test_all_worlds_say_the_same_of_one_agent(runner):
    runner.task["task"] = runner.task["task"].replace(":6000:", ":300:")
    reports = [runner.check(world) for world in RATES["bag"]]
    assert reports[0]["total"] == 300
    assert all(report == reports[0] for report in reports)


@pytest.mark.parametrize("runner", ["bag", "module"], indirect=True)
def test_the_agents_that_are_measured_learn(runner):
    runner.task["task"] = runner.task["task"].replace(":6000:30", ":100:1")
    runner.run("batch", 9600)
    (world,) = runner.opened.values()
    world.reset_metrics()
    runner.run("batch", 640)
    assert world.report()["accuracy"] > 0.1  # one of fifty by chance
