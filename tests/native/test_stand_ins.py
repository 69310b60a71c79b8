"""What stands in for the extension has its names."""

import asyncio
import functools

import pytest

from dpmodule import native
from dpmodule.base import ArgumentError, StateError
from dpmodule.native import threads

core = native.core
pytestmark = pytest.mark.skipif(core is None, reason="there is nothing to compare with")
PAIRS = [("ThreadPool", threads), ("Worker", threads), ("SignalBus", threads)]


@pytest.mark.parametrize(("name", "module"), PAIRS, ids=[name for name, _ in PAIRS])
def test_public_names_are_the_same(name, module):
    stand_in = {each for each in dir(getattr(module, name)) if not each.startswith("_")} - {"complete"}
    optional = {"in_flight", "pool"}  # attributes of objects, there
    assert {each for each in dir(getattr(core, name)) if not each.startswith("_")} - optional == stand_in


def test_a_functor_in_cpp_needs_the_extension():
    capsule = core.NoopFunctor().__dpmodule_functor__()
    with pytest.raises(ArgumentError, match="runs only with the native extension; `dpmodule info` says why"):
        threads.functor_and_function(capsule)


def test_types_refuse_what_does_not_fit():
    with pytest.raises(ArgumentError, match="no constructor"):
        core.Functor()
    with pytest.raises(TypeError, match="takes no arguments"):
        core.NoopFunctor(1)
    with pytest.raises(TypeError):
        core.Worker(object(), print)
    with pytest.raises(TypeError):
        core.ThreadPool("2", "name")


@pytest.fixture
def loop():
    made = asyncio.new_event_loop()
    yield made
    made.close()


def test_objects_are_initialized_once(loop):
    pool = core.ThreadPool(1, "once")
    with pytest.raises(StateError, match="once"):
        pool.__init__(1, "twice")
    bus = core.SignalBus(loop, functools.partial(asyncio.Future, loop=loop))
    with pytest.raises(StateError, match="once"):
        bus.__init__(loop, print)
    bus.close()
    pool.stop(False)
    assert pool.wait(5.0)


def test_objects_that_were_not_initialized_are_closed():
    pool, bus = core.ThreadPool.__new__(core.ThreadPool), core.SignalBus.__new__(core.SignalBus)
    assert pool.closed
    assert pool.alive == pool.queued == 0
    assert pool.wait(0.0)
    assert bus.closed
    assert not bus.usable
    assert bus.fileno() == -1
    assert bus.drain() is None
    bus.close()


def test_submit_needs_a_bus(loop):
    pool = core.ThreadPool(1, "picky")
    with pytest.raises(TypeError, match="a functor and a SignalBus"):
        pool.submit(core.NoopFunctor())
    with pytest.raises(TypeError, match="a functor and a SignalBus"):
        pool.submit(core.NoopFunctor(), loop)
    pool.stop(False)
    assert pool.wait(5.0)


def test_a_worker_takes_one_functor(loop):
    pool = core.ThreadPool(1, "one")
    worker = core.Worker(pool, lambda loop: "no bus")
    assert worker.pool is pool

    async def main():
        for arguments in ([], [1, 2]):
            with pytest.raises(TypeError, match="one functor"):
                worker(*arguments)
        with pytest.raises(TypeError, match="one functor"):
            worker(functor=1)
        with pytest.raises(TypeError, match="must return a SignalBus"):
            worker(core.NoopFunctor())

    loop.run_until_complete(main())
    pool.stop(False)
    assert pool.wait(5.0)
