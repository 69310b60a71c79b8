"""Tensor pipes in event loops: waiting, cancellation, other loops, two ends in one loop. Both cores, both loops."""

import asyncio
import gc
import time

import pytest
import torch

from dpmodule.base import StateError
from dpmodule.streams import LoopClosedError, PipeBroken, PipeClosed, StructureError
from dpmodule.streams.pipe import control
from helpers.loops import raised, run
from helpers.pipes import Child, make, pipe
from helpers.processes import until


async def until_it_waits(coroutine, seconds=0.002):
    task = asyncio.ensure_future(coroutine)
    await asyncio.sleep(seconds)
    assert not task.done()
    return task


def test_a_loop_in_another_process(opened, new_loop):
    (here, there), (back, answering) = opened(), opened()

    async def echo():
        async with answering:
            async for value in here:
                await answering.coro_send(value)
                del value

    async def produce():
        async with there:
            for i in range(300):
                await there.coro_send(torch.full((1 + i % 7,), i))

    async def main():
        producer = asyncio.ensure_future(produce())
        assert [int(value[0]) async for value in back] == list(range(300))
        await producer

    process = Child(lambda: run(echo(), new_loop, 20))
    run(main(), new_loop, 20)
    assert process.ok()


async def test_a_cancelled_receive_loses_nothing(core):
    with pipe(core) as (reader, writer):
        for i in range(20):
            task = asyncio.ensure_future(reader.coro_recv())
            await asyncio.sleep(0)
            if i % 2:
                await writer.coro_send(torch.tensor(i))  # it comes, and then the task is cancelled
                if i % 4 == 1:
                    await asyncio.sleep(0.001)
            task.cancel()
            error = await raised(task)
            if i % 2 == 0:
                assert isinstance(error, asyncio.CancelledError)
                await writer.coro_send(torch.tensor(i))
            assert (await reader.coro_recv() if error else task.result()) == i


async def test_a_cancelled_send_sends_nothing_and_loses_no_slot(core):
    with pipe(core, slots=1) as (reader, writer):
        await writer.coro_send([torch.ones(2)])
        held = await reader.coro_recv()
        for call in (lambda: writer.coro_send([torch.zeros(2)]), writer.coro_acquire):
            task = await until_it_waits(call())
            task.cancel()
            assert isinstance(await raised(task), asyncio.CancelledError)
            assert held[0].sum() == 2
        task = await until_it_waits(writer.coro_send([torch.full((2,), 5.0)]))
        held.clear()
        await task
        assert (await reader.coro_recv())[0].tolist() == [5, 5]
        value = await writer.coro_acquire()
        value[0].fill_(6)
        writer.commit()
        assert (await reader.coro_recv())[0].tolist() == [6, 6]


async def test_one_coroutine_at_a_time_may_use_an_end(core):
    with pipe(core, slots=1) as (reader, writer):
        task = await until_it_waits(reader.coro_recv())
        for call in (reader.coro_recv, reader.__anext__):
            assert isinstance(await raised(call()), StateError)
        await writer.coro_send(torch.ones(1))
        held = await task
        sending = await until_it_waits(writer.coro_send(torch.ones(1)))
        assert isinstance(await raised(writer.coro_send(None)), StateError)
        del task, held
        await sending
        assert await reader.coro_recv() == 1


async def test_an_unsendable_value_fails_before_waiting(core):
    with pipe(core, slots=1) as (_, writer):
        await writer.coro_send(torch.ones(1))
        assert isinstance(await raised(writer.coro_send({"a": 3})), StructureError)
        assert isinstance(await raised(writer.coro_acquire({"a": 3})), StructureError)


def test_a_loop_that_was_closed_over_a_waiting_task(core):
    with pipe(core) as (reader, writer):
        loop = asyncio.new_event_loop()
        task = loop.create_task(reader.coro_recv())
        loop.run_until_complete(asyncio.sleep(0.01))
        loop.close()
        writer.send(torch.ones(1))

        assert run(reader.coro_recv()) == 1
        task._log_destroy_pending = False
        del task
        gc.collect()
        writer.send(torch.ones(1))
        assert reader.recv() == 1


def test_without_a_running_loop_the_error_names_other_calls(core):
    with pipe(core) as (reader, writer):
        with pytest.raises(LoopClosedError, match="no event loop is running"):
            reader.coro_recv().send(None)
        writer.send(None)
        assert reader.recv() is None


@pytest.mark.parametrize("waits", ["reader", "writer"])
@pytest.mark.parametrize("closes", ["reader", "writer"])
async def test_closing_an_end_wakes_the_task_that_waits_on_either(opened, waits, closes):
    reader, writer = opened(1)
    if waits == "writer":
        await writer.coro_send(torch.ones(1))
    task = await until_it_waits(reader.coro_recv() if waits == "reader" else writer.coro_send(torch.ones(1)))
    (reader if closes == "reader" else writer).close()
    assert isinstance(await raised(task), PipeClosed)
    if (waits, closes) == ("writer", "writer"):
        assert await reader.coro_recv() == 1
    assert isinstance(await raised(reader.coro_recv()), PipeClosed)
    assert isinstance(await raised(writer.coro_send(None)), PipeClosed)


# --- death


@pytest.mark.parametrize("side", ["reader", "writer"])
def test_a_child_that_dies_wakes_the_task(opened, side, new_loop):
    reader, writer = opened(1)
    call, number = writer.coro_send, control.READER
    child = Child(lambda: (reader.recv() if side == "reader" else writer.claim(), time.sleep(60)))
    if side == "writer":
        call, number = (lambda _: reader.coro_recv()), control.WRITER
    until(lambda: reader._control.get(number, control.PID))

    async def main():
        if side == "reader":
            await call(torch.ones(1))
        task = await until_it_waits(call(torch.ones(1)), 0.01)
        child.kill()
        return await raised(task)

    error = run(main(), new_loop, 15)
    assert isinstance(error, PipeBroken)
    assert f"the {side} is gone: its process {child.pid}" in str(error)
    child.reap()


def test_a_writer_that_comes_when_the_loop_is_closed_is_received_from_without_one(opened, new_loop):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.coro_recv(), 0.05)

    async def later():
        asyncio.get_running_loop().call_later(0.1, child.kill)
        return await raised(reader.coro_recv())

    reader, writer = opened(1)
    run(main(), new_loop, 15)
    child = Child(lambda: (writer.claim(), time.sleep(0.2), writer.send(None), time.sleep(60)))
    until(lambda: reader._control.get(control.WRITER, control.PID))
    assert reader.recv(timeout=15) is None
    assert f"the writer is gone: its process {child.pid}" in str(run(later(), new_loop, 15))
    child.reap()


# --- nothing stays


async def test_the_loop_does_not_keep_an_end_alive(core):
    reader, writer = make(core)
    writer.send(torch.ones(1))
    assert await reader.coro_recv() == 1
    ends = [reader]
    del reader
    with pytest.warns(ResourceWarning, match="reader was dropped"):
        ends.clear()
    assert isinstance(await raised(writer.coro_send(None)), PipeBroken)
    writer.close()
