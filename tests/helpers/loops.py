"""Event loops of all kinds that are installed, and a run in one that must leave nothing behind."""

import asyncio
import gc
import importlib.util

import pytest


def _kinds():
    kinds = {"asyncio": asyncio.new_event_loop}
    if importlib.util.find_spec("uvloop"):
        import uvloop

        kinds["uvloop"] = uvloop.new_event_loop
    return kinds


KINDS = _kinds()
every_loop = pytest.mark.parametrize("new_loop", list(KINDS.values()), ids=list(KINDS))


def run(coroutine, new_loop=asyncio.new_event_loop, seconds=10.0):
    """Run to the end within `seconds`; fail if asyncio reports anything or a task is left over."""
    loop = new_loop()
    reports = []
    loop.set_exception_handler(lambda _, report: reports.append(report))
    asyncio.set_event_loop(loop)
    try:
        result = loop.run_until_complete(asyncio.wait_for(coroutine, seconds))
        left = [task for task in asyncio.all_tasks(loop) if not task.done()]
        gc.collect()
    finally:
        asyncio.set_event_loop(None)
        loop.close()
    assert not reports, reports
    assert not left, left
    return result


async def soon(condition, seconds=10.0):
    """Wait until `condition()` holds."""
    end = asyncio.get_running_loop().time() + seconds
    while not condition():
        assert asyncio.get_running_loop().time() < end, "it never came to that"
        await asyncio.sleep(0.001)


async def raised(awaitable):
    """Return what awaiting raises, whatever it is."""
    try:
        await awaitable
    except BaseException as error:
        return error
    return None
