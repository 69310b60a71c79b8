"""Several Hogwild workers learn as well from as many examples as one process does."""

import random
import statistics

import pytest

import dpmodule as mx
from dpmodule.agents import StarspaceAgent, create_task
from helpers.small_tasks import SmallestAgent
from helpers.talks import finish

TASKS = {
    "keys": (StarspaceAgent, "helpers.small_tasks:Keys", 640),
    "smallest": (SmallestAgent, "helpers.small_tasks:Smallest", 3200),
}


def accuracy(name, workers, seed, batchsize):
    """Return how often an agent is right after the task's number of examples."""
    random.seed(seed)
    mx.random.seed(seed)
    kind, task, count = TASKS[name]
    opt = {"task": task, "datatype": "train", "numthreads": workers, "batchsize": batchsize}
    opt |= {"learningrate": 0.1, "seed": seed}
    agent = kind(opt)
    with create_task(opt, agent) as world:
        for _ in range(count // batchsize):
            world.parley()
        world.report()
        valid = {**opt, "datatype": "valid", "numthreads": 1, "valid_examples": 400}
        with create_task(valid, agent) as check:
            finish(check)
            return check.report()["accuracy"]


@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("batchsize", [1, 8])
@pytest.mark.parametrize("workers", [2, 4])
@pytest.mark.parametrize("name", TASKS)
def test_several_workers_learn_as_well_as_one(name, workers, batchsize):
    one, several = ([accuracy(name, n, seed, batchsize) for seed in range(5)] for n in (1, workers))
    noise = 2.8 * (statistics.pvariance(one + several) / 5 * 2) ** 0.5 + 0.01
    assert statistics.fmean(one) > 0.5
    assert abs(statistics.fmean(several) - statistics.fmean(one)) <= noise, (one, several)
