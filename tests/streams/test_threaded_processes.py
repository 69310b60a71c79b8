"""Threads of C++ in whole programs: Ctrl-C, the end of the program, forks, and the log without the extension."""

import signal
import time

import pytest

from dpmodule import native
from helpers import jobs  # noqa: F401  # compiled here, once, for the programs below
from helpers.loops import KINDS
from helpers.programs import Program, run_program

pytestmark = pytest.mark.timeout(120)  # each starts programs, which import torch
backends = pytest.mark.parametrize(
    "backend", ["0", *(["1"] if native.core else [])], ids=lambda b: {"0": "python", "1": "native"}[b]
)
HEAD = """
import asyncio, gc, os, signal, sys, time, warnings
from dpmodule.streams import NoopFunctor, SignalSocketBus, ThreadPool, cpp_threaded_worker
from helpers import jobs
"""
START = {"asyncio": "asyncio.run(main())", "uvloop": "import uvloop; uvloop.run(main())"}

HANGING = """
async def main():
    with ThreadPool(2) as pool:
        worker = cpp_threaded_worker(pool)
        stuck = [worker(jobs.sleep(60)) for _ in range(3)]
        print("running", flush=True)
        await asyncio.gather(*stuck)
"""


@backends
@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_ends_a_program_whose_jobs_hang(backend, kind):
    code = f"""{HEAD}{HANGING}
try:
    {START[kind]}
except KeyboardInterrupt:
    print("interrupted", flush=True)
    sys.exit(7)
"""
    with Program("code", code, DPMODULE_NATIVE=backend) as program:
        assert program.read(1) == ["running"]
        time.sleep(0.1)
        program.send_signal(signal.SIGINT)
        code = program.wait(50)  # the jobs would take a minute
        out, errors = program.output()
    assert (code, out) == (7, "running\ninterrupted\n"), errors
    assert "Traceback" not in errors


@backends
def test_ctrl_c_ends_the_wait_of_close(backend):
    code = f"""{HEAD}
pool = ThreadPool(1)
async def main():
    cpp_threaded_worker(pool)(jobs.sleep(60))
    await asyncio.sleep(0.05)
asyncio.run(main())
signal.setitimer(signal.ITIMER_REAL, 0.2)
signal.signal(signal.SIGALRM, lambda *_: signal.raise_signal(signal.SIGINT))
try:
    pool.close(60.0)
except KeyboardInterrupt:
    print(pool.closed)
"""
    done = run_program(code, seconds=50, DPMODULE_NATIVE=backend)  # the job would take a minute
    assert (done.returncode, done.stdout) == (0, "True\n"), done.stderr


@backends
@pytest.mark.parametrize("how", ["return", "raise SystemExit(0)", "open pool"])
def test_a_program_ends_while_jobs_run(backend, how):
    code = f"""{HEAD}
pool = ThreadPool(2)
async def main():
    worker = cpp_threaded_worker(pool)
    for _ in range(4):
        worker(jobs.sleep(60))
    await asyncio.sleep(0.05)
    {"return" if how == "open pool" else how}
asyncio.run(main())
{"" if how == "open pool" else "pool.close(0.0)"}
print("end")
"""
    done = run_program(code, seconds=50, DPMODULE_NATIVE=backend)  # the jobs would take two minutes
    assert done.returncode == 0, done.stderr
    assert "Error" not in done.stderr


@backends
def test_ends_that_come_while_python_ends_do_no_harm(backend):
    code = f"""{HEAD}
pools = [ThreadPool(2) for _ in range(3)]
async def main():
    for pool in pools:
        for i in range(50):
            cpp_threaded_worker(pool)(jobs.sleep(0.001 * i))
asyncio.run(main())
"""
    done = run_program(code, DPMODULE_NATIVE=backend)
    assert (done.returncode, done.stderr) == (0, "")


@backends
@pytest.mark.skipif(not hasattr(signal, "SIGCHLD"), reason="there is no fork")
def test_a_forked_child_has_threads_and_a_bus_of_its_own(backend):
    code = f"""{HEAD}
warnings.simplefilter("ignore", DeprecationWarning)
pool = ThreadPool(2)
worker = cpp_threaded_worker(pool)

async def use(n):
    assert await asyncio.gather(*(worker(jobs.value(i)) for i in range(n))) == list(range(n))
    return SignalSocketBus.of()

async def send(functor):
    await worker(functor)

async def fork_in_a_coroutine():
    with jobs.opened():
        functor = jobs.wait()
        stuck = worker(functor)
        bus = await use(5)
        child = os.fork()
        if not child:
            code = 1
            try:
                assert not bus.usable
                jobs.JOBS.set_gate(True)
                asyncio.events._set_running_loop(None)
                asyncio.run(use(100))
                asyncio.run(send(functor))  # it is on its way in the parent only
                assert pool.alive == 2
                assert pool.close(5.0) and pool.alive == 0
                bus.close()
                code = 0
            finally:
                os._exit(code)
        while True:
            pid, status = os.waitpid(child, os.WNOHANG)
            if pid:
                break
            await asyncio.sleep(0.01)
        await use(5)
        assert SignalSocketBus.of() is bus
    await stuck
    return status

print(asyncio.run(fork_in_a_coroutine()))
for _ in range(20):  # at any moment of the threads
    async def busy():
        futures = [worker(jobs.noop()) for _ in range(200)]
        child = os.fork()
        if not child:
            os._exit(0 if pool.close(1.0) else 1)
        await asyncio.gather(*futures)
        return os.waitpid(child, 0)[1]
    assert asyncio.run(busy()) == 0
pool.close()
"""
    done = run_program(code, DPMODULE_NATIVE=backend)
    assert (done.returncode, done.stdout) == (0, "0\n"), done.stderr


@backends
def test_a_loop_from_before_the_fork_goes_on_in_the_child(backend):
    code = f"""{HEAD}
warnings.simplefilter("ignore", DeprecationWarning)
pool = ThreadPool(1)
worker = cpp_threaded_worker(pool)
loop = asyncio.new_event_loop()
async def use():
    return [await worker(jobs.value(i)) for i in range(20)]
loop.run_until_complete(use())
child = os.fork()
if not child:
    os._exit(0 if loop.run_until_complete(use()) == list(range(20)) else 1)
print(os.waitpid(child, 0)[1])
print(loop.run_until_complete(use()) == list(range(20)))
loop.close()
pool.close()
"""
    done = run_program(code, DPMODULE_NATIVE=backend)
    assert (done.returncode, done.stdout) == (0, "0\nTrue\n"), done.stderr


@pytest.mark.skipif(native.core is None, reason="about threads of C++")
def test_a_functor_that_asks_for_the_gil_while_python_ends_ends_its_thread():
    code = f"""{HEAD}
from dpmodule import native
pool = ThreadPool(2)
async def main():
    worker = cpp_threaded_worker(pool)
    for _ in range(2):
        worker(native.core.callback(lambda: time.sleep(1.5)))  # longer than the end waits for
    await asyncio.sleep(0.05)
asyncio.run(main())
class Late:
    def __del__(self, sleep=time.sleep):
        sleep(1)
sys.late = Late()  # lets the jobs end after the interpreter, before the process
"""
    done = run_program(code)
    assert (done.returncode, done.stderr) == (0, "")


MISSING = """
import sys
sys.modules["dpmodule._native"] = None  # as if it had not been built
from dpmodule import streams
pools = [streams.ThreadPool(1) for _ in range(3)]
for pool in pools:
    pool.close()
"""


def test_one_line_of_log_says_what_is_missing():
    done = run_program(MISSING, DPMODULE_NATIVE="1")
    assert done.returncode == 0, done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert "without the native extension" in done.stderr
    assert "install a C++17 compiler and run: pip install" in done.stderr


def test_nothing_is_said_by_an_import_or_where_it_is_switched_off():
    assert run_program("import dpmodule.streams, dpmodule.native").stderr == ""
    assert run_program(MISSING, DPMODULE_NATIVE="0").stderr == ""
