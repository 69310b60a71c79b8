"""What `dpmodule.streams` is compared with: peers that do the same work, and say so when they do not."""

import asyncio
import contextlib

import numpy as np
import pytest
import torch

from benchmarks.sides import feeds, items, jobs, pipes, work


@pytest.mark.parametrize("system", ["executor", "threads", "batched"])
def test_jobs_come_back_from_every_system(system):
    async def run():
        call = jobs.SYSTEMS[system]()
        return await asyncio.gather(*[call() for _ in range(50)])

    assert asyncio.run(run()) == [None] * 50


@pytest.mark.parametrize("kind", [jobs.Handmade, jobs.Batched])
def test_handmade_threads_pass_failures_on(kind, monkeypatch):
    def fail():
        raise ZeroDivisionError("job")

    async def run():
        await kind()()

    monkeypatch.setattr(jobs, "nothing", fail)
    with pytest.raises(ZeroDivisionError, match="job"):
        asyncio.run(run())


@pytest.mark.parametrize("system", pipes.SYSTEMS)
@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_every_link_delivers_what_was_sent(system):
    with contextlib.closing(pipes.SYSTEMS[system](1 << 12)) as link:  # which compares the first message
        assert link.measure(3)["wall"] > 0


@pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork:DeprecationWarning")
def test_a_link_that_delivers_something_else_is_noticed():
    class Wrong(pipes.Pipe):
        def _receive(self, count):
            found = super()._receive(count)
            found["t7"][-1] += 1
            return found

    with pytest.raises(SystemExit, match="another message"):
        Wrong(1 << 12)


def test_messages_have_the_size_they_are_said_to():
    found = pipes.message(1 << 20)
    assert len(found) == 8
    assert sum(tensor.nbytes for tensor in found.values()) == 1 << 20
    assert not torch.equal(found["t0"], found["t1"])


@pytest.mark.parametrize("burst", [1, 100])
@pytest.mark.parametrize("side", [items.stream, items.queue])
def test_all_items_come(side, burst):
    assert asyncio.run(side(200, burst))["wall"] > 0


@pytest.mark.parametrize("side", [items.pool, items.semaphore])
def test_all_jobs_are_done(side):
    assert asyncio.run(side(20))["wall"] > 0


def test_text_is_parsed_by_numpy():
    found = work.parsed_by_numpy(b"2 17 4 1 9 1 0.5 1 1\n1 5 2 8 7 2 0.25 2 1 0\n")
    assert [found[name][0].tolist() for name in work.SLOTS] == [
        [17, 4, 5],
        [9, 8, 7],
        [0.5, 0.25, 2.0],
        [1, 0],
    ]
    assert [found[name][1].tolist() for name in work.SLOTS] == [[0, 2, 3], [0, 1, 3], [0, 1, 3], [0, 1, 2]]
    assert found["weights"][0].dtype == np.float32


def test_text_repeats_and_has_its_size():
    assert work.text(0.01) == work.text(0.01)
    assert 10_000 <= len(work.text(0.01)) < 11_000


def test_images_differ_and_lie_between_0_and_1():
    images = feeds.Images(4)
    pictures, labels = images.batch(0)
    assert pictures.shape == (feeds.BATCH, *feeds.SHAPE)
    assert 0 <= float(pictures.min()) < float(pictures.max()) <= 1
    assert not torch.equal(pictures[0], pictures[1])
    assert labels[:3].tolist() == [0, 1, 2]
    image, label = images[feeds.BATCH + 3]
    assert torch.equal(images.batch(1)[0][3], image)
    assert images.batch(1)[1][3] == label
