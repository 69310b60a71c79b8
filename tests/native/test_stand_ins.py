"""What stands in for the extension has its names; the types of the extension refuse what does not fit."""

import asyncio
import functools
import threading
import time

import pytest

from dpmodule import native
from dpmodule.base import ArgumentError, StateError
from dpmodule.native import threads

core = native.core
pytestmark = pytest.mark.skipif(core is None, reason="there is nothing to compare with")


@pytest.mark.parametrize("name", ["ThreadPool", "Worker", "SignalBus"])
def test_public_names_are_the_same(name):
    def public(owner):
        return {each for each in dir(getattr(owner, name)) if not each.startswith("_")}

    optional = {"in_flight", "pool"}  # attributes of objects, there
    assert public(core) - optional == public(threads) - {"complete"}


def test_types_refuse_what_does_not_fit():
    capsule = core.NoopFunctor().__dpmodule_functor__()
    for call, error, text in (
        (lambda: threads.functor_and_function(capsule), ArgumentError, "only with the native extension"),
        (core.Functor, ArgumentError, "no constructor"),
        (lambda: core.NoopFunctor(1), TypeError, "takes no arguments"),
        (lambda: core.Worker(object(), print), TypeError, None),
        (lambda: core.ThreadPool("2", "name"), TypeError, None),
    ):
        with pytest.raises(error, match=text):
            call()


def test_objects_are_initialized_once_and_take_what_they_need():
    loop, pool = asyncio.new_event_loop(), core.ThreadPool(1, "once")
    bus = core.SignalBus(loop, functools.partial(asyncio.Future, loop=loop))
    worker = core.Worker(pool, lambda loop: "no bus")
    assert worker.pool is pool

    async def main():
        for call, error, text in (
            (lambda: pool.__init__(1, "twice"), StateError, "once"),
            (lambda: bus.__init__(loop, print), StateError, "once"),
            (lambda: pool.submit(core.NoopFunctor(), loop), TypeError, "a functor and a SignalBus"),
            (lambda: worker(functor=1), TypeError, "one functor"),
            (lambda: worker(core.NoopFunctor()), TypeError, "must return a SignalBus"),
        ):
            with pytest.raises(error, match=text):
                call()

    loop.run_until_complete(main())
    bus.close()
    pool.stop(False)
    assert pool.wait(5.0)
    loop.close()


def test_waiting_for_a_busy_thread_ends_in_time():
    release, pool = threading.Event(), threads.ThreadPool(1, "busy")

    class Busy:
        def run(self):
            release.wait(10)

        def __dpmodule_functor__(self):
            return self

    async def main():
        loop = asyncio.get_running_loop()
        done = pool.submit(Busy(), bus := threads.SignalBus(loop, loop.create_future))
        pool.stop(True)
        begun = time.monotonic()
        assert not pool.wait(0.05)
        assert time.monotonic() - begun < 5
        threading.Timer(0.05, release.set).start()
        assert pool.wait(10)
        await done
        bus.close()

    asyncio.run(main())
