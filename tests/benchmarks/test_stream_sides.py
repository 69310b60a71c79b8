"""What `dpmodule.streams` is compared with: peers that do the same work, and say so when they do not."""

import asyncio
import contextlib

import pytest

from benchmarks.sides import jobs, pipes


@pytest.mark.parametrize("system", ["executor", "threads", "batched"])
def test_jobs_come_back_from_every_system(system):
    async def run():
        call = jobs.SYSTEMS[system]()
        return await asyncio.gather(*[call() for _ in range(50)])

    assert asyncio.run(run()) == [None] * 50


@pytest.mark.parametrize("system", pipes.SYSTEMS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_every_link_delivers_what_was_sent(system):
    with contextlib.closing(pipes.SYSTEMS[system](1 << 12)) as link:  # which compares the first message
        assert link.measure(3)["wall"] > 0
