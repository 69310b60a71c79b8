"""Tensor pipes in event loops: waiting, cancellation, other loops, two ends in one loop. Both cores, both loops."""

import asyncio
import gc
import threading
import time

import pytest
import torch

from dpmodule.base import StateError
from dpmodule.streams import LoopClosedError, PipeBroken, PipeClosed, StructureError
from dpmodule.streams.pipe import control
from helpers.loops import every_loop, raised, run
from helpers.pipes import Child, every_core, make, pipe, same
from helpers.processes import until


@every_core
@every_loop
def test_two_tasks_of_one_loop(core, new_loop):
    async def main():
        async with reader, writer:
            sending = asyncio.ensure_future(produce())
            got = [int(value["i"]) async for value in reader]
            await sending
        return got

    async def produce():
        for i in range(300):
            await writer.coro_send({"i": torch.tensor(i), "x": torch.ones(10)})
        writer.close()

    reader, writer = make(core)
    assert run(main(), new_loop) == list(range(300))


@every_core
@every_loop
def test_a_loop_in_another_process(core, new_loop):
    there, back = make(core), make(core)

    def child():
        async def echo():
            async for value in there[0]:
                await back[1].coro_send(value)
                del value
            back[1].close()

        run(echo(), new_loop, 20)

    async def main():
        sending = asyncio.ensure_future(produce())
        got = []
        async for value in back[0]:
            got.append(int(value["i"]))
            del value
        await sending
        return got

    async def produce():
        for i in range(200):
            await there[1].coro_send({"i": torch.tensor(i), "x": torch.ones(1 + i % 7)})
        there[1].close()

    process = Child(child)
    assert run(main(), new_loop, 20) == list(range(200))
    assert process.ok()
    for end in (*there, *back):
        end.close()


@every_core
@every_loop
def test_a_cancelled_receive_loses_nothing(core, new_loop):
    async def main():
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

    run(main(), new_loop, 15)


@every_core
@every_loop
def test_a_cancelled_send_sends_nothing_and_loses_no_slot(core, new_loop):
    async def main():
        with pipe(core, slots=1) as (reader, writer):
            await writer.coro_send([torch.ones(2)])
            held = await reader.coro_recv()
            for _ in range(5):
                task = asyncio.ensure_future(writer.coro_send([torch.zeros(2)]))
                await asyncio.sleep(0.002)
                assert not task.done()
                task.cancel()
                assert isinstance(await raised(task), asyncio.CancelledError)
                assert held[0].sum() == 2
            waiting = asyncio.ensure_future(writer.coro_acquire())
            await asyncio.sleep(0.002)
            waiting.cancel()
            assert isinstance(await raised(waiting), asyncio.CancelledError)
            task = asyncio.ensure_future(writer.coro_send([torch.full((2,), 5.0)]))
            await asyncio.sleep(0.002)
            held.clear()
            await task
            assert (await reader.coro_recv())[0].tolist() == [5, 5]
            value = await writer.coro_acquire()
            value[0].fill_(6)
            writer.commit()
            assert (await reader.coro_recv())[0].tolist() == [6, 6]

    run(main(), new_loop, 15)


@every_core
def test_one_coroutine_at_a_time_may_use_an_end(core):
    async def main():
        with pipe(core, slots=1) as (reader, writer):
            task = asyncio.ensure_future(reader.coro_recv())
            await asyncio.sleep(0)
            for call in (reader.coro_recv, reader.__anext__):
                assert isinstance(await raised(call()), StateError)
            await writer.coro_send(torch.ones(1))
            held = await task
            sending = asyncio.ensure_future(writer.coro_send(torch.ones(1)))
            await asyncio.sleep(0)
            assert isinstance(await raised(writer.coro_send(None)), StateError)
            del task, held
            await sending
            assert await reader.coro_recv() == 1

    run(main())


@every_core
def test_an_unsendable_value_fails_before_waiting(core):
    async def main():
        with pipe(core, slots=1) as (_, writer):
            await writer.coro_send(torch.ones(1))
            assert isinstance(await raised(writer.coro_send({"a": 3})), StructureError)
            assert isinstance(await raised(writer.coro_acquire({"a": 3})), StructureError)

    run(main())


@every_core
@every_loop
def test_an_end_moves_to_another_loop(core, new_loop):
    reader, writer = make(core)

    async def some(i):
        task = asyncio.ensure_future(reader.coro_recv())
        await asyncio.sleep(0.001)
        await writer.coro_send(torch.tensor(i))
        assert await task == i

    for i in range(3):
        run(some(i), new_loop)
    reader.close()
    writer.close()


@every_core
def test_a_loop_that_was_closed_over_a_waiting_task(core):
    reader, writer = make(core)
    loop = asyncio.new_event_loop()
    task = loop.create_task(reader.coro_recv())
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    writer.send(torch.ones(1))

    async def main():
        return await reader.coro_recv()

    assert run(main()) == 1
    task._log_destroy_pending = False
    del task
    gc.collect()
    writer.send(torch.ones(1))
    assert reader.recv() == 1
    reader.close()
    writer.close()


@every_core
def test_without_a_running_loop_the_error_says_so(core):
    with pipe(core) as (reader, writer):
        call = reader.coro_recv()
        with pytest.raises(LoopClosedError, match="no event loop is running"):
            call.send(None)
        writer.send(None)
        assert reader.recv() is None


@every_core
@every_loop
def test_closing_an_end_wakes_the_task_that_waits_on_it(core, new_loop):
    async def main():
        reader, writer = make(core, 1)
        task = asyncio.ensure_future(reader.coro_recv())
        await asyncio.sleep(0.001)
        reader.close()
        assert isinstance(await raised(task), PipeClosed)
        assert isinstance(await raised(writer.coro_send(None)), PipeClosed)
        writer.close()
        reader, writer = make(core, 1)
        await writer.coro_send(torch.ones(1))
        task = asyncio.ensure_future(writer.coro_send(torch.ones(1)))
        await asyncio.sleep(0.001)
        writer.close()
        assert isinstance(await raised(task), PipeClosed)
        assert await reader.coro_recv() == 1
        assert isinstance(await raised(reader.coro_recv()), PipeClosed)
        reader.close()

    run(main(), new_loop, 15)


@every_core
@every_loop
def test_closing_one_end_wakes_the_task_at_the_other(core, new_loop):
    async def main():
        for which in (0, 1):
            ends = make(core, 1)
            await ends[1].coro_send(torch.ones(1))
            if which == 0:
                assert await ends[0].coro_recv() == 1
                task = asyncio.ensure_future(ends[0].coro_recv())
            else:
                task = asyncio.ensure_future(ends[1].coro_send(torch.ones(1)))
            await asyncio.sleep(0.001)
            ends[1 - which].close()
            assert isinstance(await raised(task), PipeClosed)
            ends[which].close()

    run(main(), new_loop, 15)


def take(reader):
    reader.recv()
    threading.Event().wait()


def put(writer):
    writer.send(None)
    threading.Event().wait()


@every_core
@every_loop
def test_a_reading_child_that_dies_wakes_the_task(core, new_loop):
    async def main():
        await writer.coro_send([torch.ones(1)])
        await writer.coro_send([torch.ones(1)])  # the child has taken the first one, and keeps nothing of it
        task = asyncio.ensure_future(writer.coro_send([torch.ones(1)]))
        await asyncio.sleep(0.01)
        assert not task.done()
        child.kill()
        return await asyncio.wait_for(raised(task), 10)

    reader, writer = make(core, 1)
    child = Child(lambda: take(reader))
    error = run(main(), new_loop, 15)
    assert isinstance(error, PipeBroken)
    assert f"the reader is gone: its process {child.pid}" in str(error)
    child.reap()
    writer.close()


@every_core
@every_loop
def test_a_writing_child_that_dies_wakes_the_task(core, new_loop):
    async def main():
        assert await reader.coro_recv() is None
        task = asyncio.ensure_future(reader.coro_recv())
        await asyncio.sleep(0.01)
        assert not task.done()
        child.kill()
        return await asyncio.wait_for(raised(task), 10)

    reader, writer = make(core, 1)
    child = Child(lambda: put(writer))
    error = run(main(), new_loop, 15)
    assert isinstance(error, PipeBroken)
    assert f"the writer is gone: its process {child.pid}" in str(error)
    child.reap()
    reader.close()


def die_later(child, seconds=0.1):
    """Kill a child while the task that is about to begin waits."""
    asyncio.get_running_loop().call_later(seconds, child.kill)


@every_core
@every_loop
def test_a_reader_that_was_there_before_the_first_send_is_watched(core, new_loop):
    async def main():
        await writer.coro_send([torch.ones(1)])
        die_later(child)
        return await raised(writer.coro_send([torch.ones(1)]))

    reader, writer = make(core, 1)
    child = Child(lambda: [reader.recv(), time.sleep(60)])
    until(lambda: reader._control.get(control.READER, control.PID))
    error = run(main(), new_loop, 15)
    assert isinstance(error, PipeBroken)
    assert f"the reader is gone: its process {child.pid}" in str(error)
    child.reap()
    writer.close()


@every_core
@every_loop
@pytest.mark.parametrize("sends", [True, False])
def test_a_writer_that_was_there_before_the_first_receive_is_watched(core, new_loop, sends):
    async def main():
        die_later(child)
        if sends:
            assert await reader.coro_recv() is None
        return await raised(reader.coro_recv())

    reader, writer = make(core, 1)
    child = Child(lambda: put(writer) if sends else (writer.claim(), time.sleep(60)))
    until(lambda: reader._control.get(control.WRITER, control.PID))
    error = run(main(), new_loop, 15)
    assert isinstance(error, PipeBroken)
    assert f"the writer is gone: its process {child.pid}" in str(error)
    child.reap()
    reader.close()


@every_core
@every_loop
def test_a_writer_that_comes_when_the_loop_is_closed_is_received_from_without_one(core, new_loop):
    async def main():
        with pytest.raises(asyncio.TimeoutError):
            await asyncio.wait_for(reader.coro_recv(), 0.05)

    async def later():
        die_later(child)
        return await raised(reader.coro_recv())

    reader, writer = make(core, 1)
    run(main(), new_loop, 15)
    child = Child(lambda: (writer.claim(), time.sleep(0.2), put(writer)))
    until(lambda: reader._control.get(control.WRITER, control.PID))
    assert reader.recv(timeout=15) is None
    error = run(later(), new_loop, 15)
    assert isinstance(error, PipeBroken)
    assert f"the writer is gone: its process {child.pid}" in str(error)
    child.reap()
    reader.close()


@every_core
def test_the_loop_does_not_keep_an_end_alive(core):
    async def main():
        reader, writer = make(core)
        task = asyncio.ensure_future(reader.coro_recv())
        await asyncio.sleep(0.001)
        await writer.coro_send(torch.ones(1))
        assert await task == 1
        del task
        ends = [reader]
        del reader
        with pytest.warns(ResourceWarning, match="reader was dropped"):
            ends.clear()
        assert isinstance(await raised(writer.coro_send(None)), PipeBroken)
        writer.close()

    run(main())


@every_core
def test_no_watching_is_left_after_closing(core):
    async def main():
        loop = asyncio.get_running_loop()
        before = len(loop._selector.get_map())
        for _ in range(5):
            with pipe(core, 1) as (reader, writer):
                task = asyncio.ensure_future(reader.coro_recv())
                await asyncio.sleep(0)
                assert len(loop._selector.get_map()) > before
                await writer.coro_send(torch.ones(2))
                assert same(await task, torch.ones(2))
            assert len(loop._selector.get_map()) == before

    run(main())
