"""Several Hogwild workers learn as well from as many examples as one process does."""

import random
import statistics

import pytest

import dpmodule as mx
from dpmodule.agents import StarspaceAgent, create_task
from helpers.small_tasks import SmallestAgent

TASKS = {
    "keys": (StarspaceAgent, "helpers.small_tasks:Keys", 640),
    "smallest": (SmallestAgent, "helpers.small_tasks:Smallest", 3200),
}


def accuracy(name, workers, seed, batchsize):
    """Return how often an agent is right after the task's number of examples."""
    random.seed(seed)
    mx.random.seed(seed)
    kind, task, count = TASKS[name]
    opt = {
        **{"task": task, "datatype": "train", "numthreads": workers, "batchsize": batchsize},
        "learningrate": 0.1,
    }
    agent = kind({**opt, "seed": seed})
    with create_task({**opt, "seed": seed}, agent) as world:
        for _ in range(count // batchsize):
            world.parley()
        world.report()
        valid = {**opt, "datatype": "valid", "numthreads": 1, "valid_examples": 400}
        with create_task(valid, agent) as check:
            while not check.epoch_done():
                check.parley()
            return check.report()["accuracy"]


def check(name, workers, seeds, batchsize):
    one = [accuracy(name, 1, seed, batchsize) for seed in range(seeds)]
    several = [accuracy(name, workers, seed, batchsize) for seed in range(seeds)]
    noise = 0.03 if seeds == 1 else 2.8 * (statistics.pvariance(one + several) / seeds * 2) ** 0.5 + 0.01
    print(name, workers, batchsize, one, several)
    assert statistics.fmean(one) > 0.5
    assert abs(statistics.fmean(several) - statistics.fmean(one)) <= noise, (one, several)


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("batchsize", [1, 8])
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", TASKS)
def test_several_workers_learn_as_well_as_one(name, workers, batchsize):
    check(name, workers, 5, batchsize)
