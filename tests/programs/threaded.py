"""Pools of threads in a program of their own: the first argument says what happens to it."""

import asyncio
import os
import signal
import sys
import time
import warnings

from dpmodule import native
from dpmodule.streams import SignalSocketBus, ThreadPool, cpp_threaded_worker
from helpers import jobs

warnings.simplefilter("ignore", DeprecationWarning)
pool = ThreadPool(2)
worker = cpp_threaded_worker(pool)


async def send(*functors):
    """Send functors, wait for none of them."""
    for functor in functors:
        worker(functor)
    await asyncio.sleep(0.05)


async def finish(functor):
    await worker(functor)


async def use(count):
    assert await asyncio.gather(*(worker(jobs.value(i)) for i in range(count))) == list(range(count))
    return SignalSocketBus.of()


def hanging():
    async def main():
        stuck = [worker(jobs.sleep(60)) for _ in range(3)]
        print("running", flush=True)
        await asyncio.gather(*stuck)

    try:
        if sys.argv[2] == "uvloop":
            import uvloop

            uvloop.run(main())
        else:
            asyncio.run(main())
    except KeyboardInterrupt:
        print("interrupted", flush=True)
        sys.exit(7)


def interrupted_close():
    asyncio.run(send(jobs.sleep(60), jobs.sleep(60)))
    signal.setitimer(signal.ITIMER_REAL, 0.2)
    signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
    try:
        pool.close(60.0)
    except KeyboardInterrupt:
        print(pool.closed)


def end(how):
    async def main():
        await send(*(jobs.sleep(60) for _ in range(4)))
        if how == "exit":
            raise SystemExit(0)

    asyncio.run(main())
    if how != "open_pool":
        pool.close(0.0)
    print("end")


def late_ends():
    """Jobs end while Python ends."""
    pools = [ThreadPool(2) for _ in range(3)]

    async def main():
        for each in pools:
            for i in range(50):
                cpp_threaded_worker(each)(jobs.sleep(0.001 * i))

    asyncio.run(main())


def use_in_a_child(bus, functor):
    code = 1
    try:
        assert not bus.usable
        jobs.JOBS.set_gate(True)
        asyncio.events._set_running_loop(None)
        asyncio.run(use(100))
        asyncio.run(finish(functor))  # it is on its way in the parent only
        assert pool.alive == 2
        assert pool.close(5.0)
        assert pool.alive == 0
        bus.close()
        code = 0
    finally:
        os._exit(code)


async def fork_in_a_coroutine():
    with jobs.opened():
        functor = jobs.wait()
        stuck = worker(functor)
        bus = await use(5)
        child = os.fork()
        if not child:
            use_in_a_child(bus, functor)
        while not (ended := os.waitpid(child, os.WNOHANG))[0]:  # noqa: ASYNC110, ASYNC222
            await asyncio.sleep(0.01)
        await use(5)
        assert SignalSocketBus.of() is bus
    await stuck
    return ended[1]


async def fork_while_busy():
    futures = [worker(jobs.noop()) for _ in range(200)]
    child = os.fork()
    if not child:
        os._exit(0 if pool.close(1.0) else 1)
    await asyncio.gather(*futures)
    return os.waitpid(child, 0)[1]  # noqa: ASYNC222


def fork():
    print(asyncio.run(fork_in_a_coroutine()))
    for _ in range(20):  # at any moment of the threads
        assert asyncio.run(fork_while_busy()) == 0
    pool.close()


def old_loop():
    """A loop from before the fork goes on in the child."""
    loop = asyncio.new_event_loop()
    loop.run_until_complete(use(20))
    child = os.fork()
    if not child:
        os._exit(0 if loop.run_until_complete(use(20)) else 1)
    print(os.waitpid(child, 0)[1])
    print(bool(loop.run_until_complete(use(20))))
    loop.close()
    pool.close()


class Late:
    def __del__(self, sleep=time.sleep):
        sleep(1)


def gil():
    """Functors ask for the GIL after the interpreter's end, before the process's."""
    # longer than it waits
    asyncio.run(send(*(native.core.callback(lambda: time.sleep(1.5)) for _ in range(2))))
    sys.late = Late()


case = sys.argv[1]
if case in ("return", "exit", "open_pool"):
    end(case)
else:
    globals()[case]()
