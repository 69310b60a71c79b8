"""Child processes: what they say, how they fail, and that nothing of them stays."""

import asyncio
import gc
import os
import pickle
import random
import signal
import textwrap
import threading
import time
from multiprocessing import resource_tracker

import numpy as np
import pytest
import torch

from dpmodule.base import ArgumentError, StateError
from dpmodule.streams.errors import (
    PipeBroken,
    PipeClosed,
    RemoteTraceback,
    UnpicklableError,
    WorkerDied,
    WorkerError,
    WorkerStuck,
)
from dpmodule.streams.pipe.tensor_pipe import tensor_pipe
from dpmodule.streams.supervisor import Supervisor
from helpers import child_targets
from helpers.processes import (
    SOON_S,
    await_gone,
    mostly_within,
    resident_bytes,
    resources,
    running,
    until,
)
from helpers.programs import Program, run_file, run_program

# Python 3.12 warns of what these tests do on purpose
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")

METHODS = ("fork", "spawn", "forkserver")
slow_to_start = pytest.mark.timeout(120)  # starts interpreters, which takes its time on a busy machine


def forked(target, *args, **options):
    supervisor = Supervisor("reader", start_method="fork", **options)
    return supervisor, supervisor.start(target, *args)


@slow_to_start
def test_every_start_method_runs_and_talks():
    for method in METHODS:
        with Supervisor("reader", start_method=method, timeout_s=80) as readers:
            shared = torch.zeros(3).share_memory_()
            child = readers.start(child_targets.fill_and_echo, shared)
            sent = {"array": np.arange(3), "tensor": torch.arange(3.0), "large": torch.arange(1 << 20)}
            child.send(sent)
            got = child.recv(timeout_s=80)
            np.testing.assert_array_equal(got["array"], [0, 1, 2])
            assert got["tensor"].tolist() == [0, 1, 2]
            assert torch.equal(got["large"], sent["large"])
            assert (child.name, child.index) == ("reader-0", 0)
            assert child.pid != os.getpid()
            assert child.working_on == "item 0"
            assert shared.tolist() == [1, 1, 1]  # an argument in shared memory is the same memory there


def test_what_a_function_returns():
    supervisor, _ = forked(child_targets.returns, {"a": [1, torch.ones(2)]})
    with supervisor:
        supervisor.start(child_targets.returns, 2)
        first, second = supervisor.join(timeout_s=10)
        assert second == 2
        assert first["a"][0] == 1
        with pytest.raises(PipeClosed, match="has returned"):
            supervisor.children[0].recv()


def test_a_message_of_any_size_and_kind():
    tensors = [
        torch.zeros(0, 3),
        torch.tensor(2.5),
        torch.arange(6).view(2, 3).t(),
        torch.ones(3, dtype=torch.bfloat16),
        torch.tensor([1 + 2j]),
        torch.tensor([True, False]),
        torch.arange(5_000_000, dtype=torch.uint8),
    ]
    supervisor, child = forked(child_targets.echo)
    with supervisor:
        for sent in tensors:
            child.send(sent)
            got = child.recv(SOON_S)
            assert got.dtype == sent.dtype
            assert got.shape == sent.shape
            assert torch.equal(got, sent)
            got.fill_(0)  # may be written
        for sent in (b"x" * 3_000_000, "text", None, np.arange(6).reshape(2, 3).T, np.zeros((0,))):
            child.send(sent)
            got = child.recv(SOON_S)
            assert np.array_equal(got, sent) if isinstance(sent, np.ndarray) else got == sent


def test_many_messages_wait_for_a_slow_reader():
    supervisor, child = forked(child_targets.echo)
    with supervisor:
        for i in range(200):
            child.send(b"x" * 5000 + bytes([i]))
            if i >= 20:
                child.recv(SOON_S)
        assert [child.recv(SOON_S)[-1] for _ in range(20)] == list(range(180, 200))


# --- failures


def test_the_first_exception_keeps_its_type_and_traceback():
    supervisor, child = forked(child_targets.fail, "deep")
    with supervisor:
        with pytest.raises(LookupError) as caught:
            child.recv(SOON_S)
        assert caught.value.args == ("at the bottom", 7)
        cause = caught.value.__cause__
        assert isinstance(cause, RemoteTraceback)
        assert cause.text.count("in deep") == 4
        assert "child.py" not in cause.text  # begins in the user's function
        with pytest.raises(LookupError) as again:
            child.send(1)
        assert again.value is caught.value
        with pytest.raises(LookupError):
            supervisor.join()


@pytest.mark.parametrize(("how", "text"), [("unpicklable", "has a lock"), ("two", "one and other")])
def test_an_exception_that_cannot_be_pickled(how, text):
    supervisor, child = forked(child_targets.fail, how)
    with supervisor, pytest.raises(WorkerError, match=text) as caught:
        child.result(SOON_S)
    assert "in fail" in str(caught.value.__cause__)


@pytest.mark.parametrize(
    ("how", "code", "text"),
    [
        ("exit", 3, "ended on its own with exit code 3"),
        ("exit", 0, "ended on its own with exit code 0"),
        ("os_exit", 5, "ended on its own with exit code 5"),
        ("signal", signal.SIGKILL, "killed by SIGKILL.*memory"),
        ("signal", signal.SIGTERM, "killed by SIGTERM"),
        ("signal", signal.SIGRTMIN + 2, f"killed by signal {signal.SIGRTMIN + 2}"),
    ],
)
def test_a_death_names_worker_pid_signal_and_work(how, code, text):
    supervisor, child = forked(child_targets.fail, how, code)
    begin = time.monotonic()
    with supervisor, pytest.raises(WorkerDied, match=text) as caught:
        child.recv(SOON_S)
    assert time.monotonic() - begin < SOON_S
    assert f"worker 0 'reader-0' (pid {child.pid})" in str(caught.value)
    assert "working on step 3" in str(caught.value)
    assert (caught.value.index, caught.value.pid) == (0, child.pid)
    assert caught.value.exitcode == (-code if how == "signal" else code)
    assert pickle.loads(pickle.dumps(caught.value)).pid == child.pid


def test_a_crash_shows_where():
    supervisor, child = forked(child_targets.fail, "segfault")
    with supervisor, pytest.raises(WorkerDied, match="SIGSEGV") as caught:
        child.recv(SOON_S)
    assert "in fail" in str(caught.value)
    assert "in run" not in str(caught.value)


def test_messages_before_a_death_are_still_received():
    supervisor, child = forked(child_targets.echo)
    with supervisor:
        child.send("last")
        until(child.poll)
        child.kill()
        assert child.recv(SOON_S) == "last"
        with pytest.raises(WorkerDied):
            child.recv(SOON_S)


def test_an_interrupt_in_a_child_is_raised_as_such():
    supervisor, child = forked(child_targets.fail, "interrupt")
    with supervisor, pytest.raises(KeyboardInterrupt):
        child.recv(SOON_S)


def _close_the_channel(channel, then):
    channel.note("its end")
    channel._frames.close()
    time.sleep(1.5 if then == "exit" else 60)
    os._exit(3)


def test_a_child_that_takes_its_time_to_end_is_waited_for():
    """The channel of an interpreter that ends is closed first; only then what atexit has runs."""
    supervisor, child = forked(_close_the_channel, "exit")
    with supervisor, pytest.raises(WorkerDied, match="ended on its own with exit code 3"):
        child.recv()


def test_a_child_that_closes_its_channel_and_goes_on_is_stuck(monkeypatch):
    monkeypatch.setattr("dpmodule.streams.process._EXIT_S", 0.2)
    supervisor, child = forked(_close_the_channel, "sleep")
    with supervisor:
        with pytest.raises(WorkerStuck, match="closed its channel and did not end.*working on its end"):
            child.recv()
        assert not running(child.pid)


def test_join_raises_the_first_failure_at_once():
    supervisor, _ = forked(child_targets.echo)
    with supervisor:
        supervisor.start(child_targets.fail, "deep")
        begin = time.monotonic()
        with pytest.raises(LookupError):
            supervisor.join(10)
        assert time.monotonic() - begin < SOON_S


def test_wait_returns_who_has_something_to_say():
    supervisor, quiet = forked(child_targets.echo)
    with supervisor:
        loud = supervisor.start(child_targets.echo)
        assert supervisor.wait(0.05) == []
        loud.send(1)
        assert supervisor.wait(SOON_S) == [loud]
        loud.recv()
        quiet.kill()
        assert supervisor.wait(SOON_S) == [quiet]


@pytest.mark.timeout(120)  # many processes, which take their time on a busy machine
def test_kills_at_random_moments():
    """R7, short: an error within a second that names the process, and nothing stays."""
    kills_at_random_moments(20)


@pytest.mark.slow
@pytest.mark.timeout(300)
def test_two_hundred_kills_at_random_moments():
    """R7."""
    kills_at_random_moments(200)


def kills_at_random_moments(count):
    rng = random.Random(1)
    before = resources()
    kills, noticed = [], []

    def talk(child, rng):
        while True:
            child.send(bytes(rng.randrange(100_000)))
            child.recv(SOON_S)

    def kill(pid):
        kills.append(time.monotonic())
        os.kill(pid, signal.SIGKILL)

    for _ in range(count):
        supervisor, child = forked(child_targets.echo, grace_s=0.2)
        with supervisor:
            killer = threading.Timer(rng.uniform(0, 0.03), kill, [child.pid])
            killer.start()
            with pytest.raises(WorkerDied, match=f"pid {child.pid}.*SIGKILL"):
                talk(child, rng)
            noticed.append(time.monotonic() - kills[-1])
            killer.join()
    assert len(kills) == count
    mostly_within(1, noticed)
    assert resources() == before


# --- stuck


@pytest.mark.parametrize("how", ["loop", "stop"])
def test_a_stuck_child_shows_its_stack_and_is_killed(how):
    supervisor, child = forked(child_targets.endless if how == "loop" else child_targets.echo)
    with supervisor:
        if how == "loop":
            assert child.recv(SOON_S) == "begun"
        else:
            child.send(1)
            child.recv(SOON_S)
            os.kill(child.pid, signal.SIGSTOP)
        begin = time.monotonic()
        with pytest.raises(WorkerStuck, match=f"pid {child.pid}.*did not answer within 0.2 s") as caught:
            child.recv(0.2)
        assert time.monotonic() - begin < SOON_S
        text = str(caught.value)
        assert isinstance(caught.value, TimeoutError)
        if how == "loop":
            assert "working on file a.txt 17" in text
            assert "in endless" in text
        else:
            assert "stopped by a signal" in text
            assert "in echo" in text
        assert not running(child.pid)
        with pytest.raises(WorkerStuck):
            child.recv()


@pytest.mark.slow
@pytest.mark.timeout(600)  # two hundred times a fifth of a second and more
def test_two_hundred_stuck_children():
    """R8."""
    rng = random.Random(5)
    before = resources()
    noticed, ended = [], []
    for i in range(200):
        target = (child_targets.endless, child_targets.asleep_in_c, child_targets.stubborn)[i % 3]
        supervisor, child = forked(target)
        with supervisor:
            child.recv(SOON_S)
            if rng.random() < 0.3:
                os.kill(child.pid, signal.SIGSTOP)
            begin = time.monotonic()
            with pytest.raises(WorkerStuck, match=f"in {target.__name__}"):
                child.recv(0.1)
            noticed.append(time.monotonic() - begin)
        ended.append(time.monotonic() - begin)
    mostly_within(1.1, noticed)
    mostly_within(2, ended)
    assert resources() == before


def test_a_child_stuck_in_c_shows_its_stack_too():
    supervisor, child = forked(child_targets.asleep_in_c)
    with supervisor:
        child.recv(SOON_S)
        with pytest.raises(WorkerStuck, match="in asleep_in_c"):
            child.result(0.1)


@pytest.mark.parametrize("how", ["stubborn", "stopped", "in C"])
def test_closing_never_hangs(how):
    target = {"stubborn": child_targets.stubborn, "in C": child_targets.asleep_in_c}.get(
        how, child_targets.echo
    )
    supervisor, child = forked(target, grace_s=0.2)
    if how == "stopped":
        os.kill(child.pid, signal.SIGSTOP)
    else:
        child.recv(SOON_S)
    begin = time.monotonic()
    supervisor.close()
    assert time.monotonic() - begin < SOON_S
    assert not running(child.pid)
    supervisor.close()
    with pytest.raises(StateError, match="closed"):
        child.recv()
    with pytest.raises(StateError, match="closed"):
        supervisor.start(child_targets.echo)


def test_an_idle_child_ends_by_itself():
    supervisor, child = forked(child_targets.echo, grace_s=5)
    child.send(1)
    child.recv(SOON_S)
    begin = time.monotonic()
    supervisor.close()
    assert time.monotonic() - begin < SOON_S


# --- nothing stays


def test_a_dropped_child_ends():
    before = resources()
    supervisor, child = forked(child_targets.stubborn)
    child.recv(SOON_S)
    pid = child.pid
    del supervisor, child
    gc.collect()
    assert not running(pid)
    assert resources() == before


def cycles(count):
    for i in range(count):
        supervisor, child = forked(child_targets.echo if i % 2 else child_targets.returns, "x")
        with supervisor:
            if i % 2:
                child.send(i)
                child.recv(SOON_S)
            else:
                child.result(SOON_S)


@pytest.mark.timeout(120)  # many processes, which take their time on a busy machine
def test_cycles_leave_nothing():
    """R10, short."""
    cycles(5)
    before = resources()
    cycles(20)
    assert resources() == before


@pytest.mark.slow
@pytest.mark.timeout(1800)  # ten thousand processes
def test_ten_thousand_cycles_leave_nothing():
    """R10."""
    cycles(500)
    before, memory = resources(), resident_bytes()
    cycles(10_000)
    assert resources() == before
    assert resident_bytes() < 1.01 * memory


def test_a_child_does_not_keep_its_sister():
    """A forked child has its sisters' ends too, and has to let go of them."""
    supervisor, first = forked(child_targets.echo)
    with supervisor:
        second = supervisor.start(child_targets.echo)
        first.ask_to_end()  # which it hears only if nobody else holds the other end
        assert first.wait(SOON_S)
        second.send(1)
        assert second.recv(5) == 1


def test_children_have_no_more_descriptors_than_their_own():
    supervisor, _ = forked(child_targets.facts)
    with supervisor:
        for _ in range(5):
            supervisor.start(child_targets.facts)
        found = supervisor.join(10)
    assert found[5]["fds"] <= found[0]["fds"] + 2 * 5  # what multiprocessing itself leaves open
    assert [each["index"] for each in found] == list(range(6))
    assert {each["parent"] for each in found} == {os.getpid()}


def test_a_forked_child_begins_afresh():
    before = signal.signal(signal.SIGUSR1, lambda *_: None)

    async def start():
        supervisor, child = forked(child_targets.signal_facts)
        with supervisor:
            return child.result(SOON_S)

    try:
        found = asyncio.run(start())
    finally:
        signal.signal(signal.SIGUSR1, before)
    assert found == {"int": True, "usr1": True, "mask": [], "loop": 1}


def test_threads_of_torch_in_a_child():
    for count in (1, 2):
        supervisor, child = forked(child_targets.facts, num_threads=count)
        with supervisor:
            assert child.result(SOON_S)["threads"] == count


def test_a_child_of_a_thread_outlives_the_thread():
    found = []
    thread = threading.Thread(target=lambda: found.append(forked(child_targets.echo)))
    thread.start()
    thread.join()
    time.sleep(0.05)
    supervisor, child = found[0]
    with supervisor:
        child.send(5)
        assert child.recv(SOON_S) == 5


# --- arguments


def test_what_cannot_be_pickled_is_named_before_anything_starts():
    before = resources()["children"]
    with Supervisor("reader") as supervisor:
        with pytest.raises(UnpicklableError, match=r"function .*<lambda>.*top level"):
            supervisor.start(lambda channel: 1)
        with pytest.raises(UnpicklableError, match=r"argument 1 of echo.*lock"):
            supervisor.start(child_targets.echo, 1, threading.Lock())
        with pytest.raises(pickle.PicklingError, match="argument 0 of echo"):
            supervisor.start(child_targets.echo, (i for i in range(3)))
        assert resources()["children"] <= before + 2  # that one, and multiprocessing's tracker


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"start_method": "thread"}, "start_method is 'thread'"),
        ({"num_threads": 0}, "num_threads is 0"),
        ({"grace_s": -1}, "grace_s is -1"),
        ({"timeout_s": -1}, "timeout_s is -1"),
    ],
)
def test_options_that_make_no_sense(options, text):
    with pytest.raises(ArgumentError, match=text):
        Supervisor("reader", **options)


# --- programs


PARENT = """
import sys, time
from helpers import child_targets
from dpmodule.streams.supervisor import Supervisor
supervisor = Supervisor("reader", start_method=sys.argv[1])
children = [supervisor.start(child_targets.asleep_in_c), supervisor.start(child_targets.endless)]
for child in children:
    child.recv(80)
print(*[child.pid for child in children], flush=True)
time.sleep(60)
"""


@slow_to_start
@pytest.mark.parametrize("method", ["fork", "spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_children_end_with_a_killed_parent(method):
    """R9, for a child in a loop and one in C code that holds the interpreter."""
    with Program("code", PARENT, method) as parent:
        pids = [int(pid) for pid in parent.read(2, seconds=80)]
        assert all(running(pid) for pid in pids)
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    await_gone(pids)


@slow_to_start
def test_a_child_that_is_just_starting_ends_with_a_killed_parent():
    text = PARENT.replace("for child in children:\n    child.recv(80)\n", "")
    with Program("code", text, "spawn") as parent:
        pids = [int(pid) for pid in parent.read(2)]
        parent.send_signal(signal.SIGKILL)
        parent.wait()
    await_gone(pids)


def be_a_parent(method, pipe):
    """In a process of its own: start children, tell their numbers, and never end."""
    supervisor = Supervisor("reader", start_method=method)
    children = [supervisor.start(child_targets.asleep_in_c), supervisor.start(child_targets.endless)]
    for child in children:
        child.recv(60)
    os.write(pipe, " ".join(str(child.pid) for child in children).encode())
    time.sleep(600)


@pytest.mark.slow
@pytest.mark.timeout(900)  # fifty of the two hundred import torch
@pytest.mark.parametrize(("method", "count"), [("fork", 150), ("spawn", 25), ("forkserver", 25)])
def test_two_hundred_killed_parents(method, count):
    """R9."""
    resource_tracker.ensure_running()
    before = resources()
    gone = []
    for _ in range(count):
        ours, theirs = os.pipe()
        parent = os.fork()
        if parent == 0:
            try:
                be_a_parent(method, theirs)
            finally:
                os._exit(1)
        os.close(theirs)
        pids = [int(pid) for pid in os.read(ours, 100).split()]
        assert len(pids) == 2
        os.kill(parent, signal.SIGKILL)
        gone.append(await_gone(pids))
        os.waitpid(parent, 0)
        os.close(ours)
    mostly_within(2, gone)
    assert resources() == before


AT_EXIT = """
from helpers import child_targets
from dpmodule.streams.supervisor import Supervisor
supervisor = Supervisor("reader", start_method="fork")
child = supervisor.start(child_targets.stubborn)
child.recv(80)
print(child.pid, flush=True)
"""


@slow_to_start
def test_a_program_that_forgets_to_close_exits():
    parent = run_program(AT_EXIT, seconds=80)
    assert (parent.returncode, parent.stderr) == (0, "")
    assert not running(int(parent.stdout))


INTERRUPTED = """
import os, signal
os.setsid()
from helpers import child_targets
from dpmodule.streams.supervisor import Supervisor
with Supervisor("reader", start_method="fork") as supervisor:
    child = supervisor.start(child_targets.echo)
    child.send(1)
    child.recv(10)
    os.kill(child.pid, signal.SIGINT)
    child.send(2)
    try:
        print(child.recv(10), child.pid, flush=True)
        child.recv(80)
    except KeyboardInterrupt:
        print("interrupted", child.alive, flush=True)
"""


@slow_to_start
def test_an_interrupt_reaches_only_the_parent():
    with Program("code", INTERRUPTED) as parent:
        answer, pid = parent.read(2)
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to all of them
        parent.wait(80)
        out, err = parent.output()
    assert (answer, out.splitlines()[1:], err) == ("2", ["interrupted True"], "")
    assert not running(int(pid))


IN_MAIN = """
from dpmodule.streams.errors import UnpicklableError
from dpmodule.streams.supervisor import Supervisor
from helpers import child_targets
def mine(channel):
    return 3
with Supervisor("reader") as supervisor:
    try:
        supervisor.start(mine)
    except UnpicklableError as error:
        print("refused", "no file" in str(error))
    print(supervisor.start(child_targets.returns, 4).result(80))
with Supervisor("reader", start_method="fork") as supervisor:
    print(supervisor.start(mine).result(80))
"""


@slow_to_start
def test_a_program_without_a_file():
    """From -c, as from standard input and notebooks, only what is in modules can be spawned."""
    done = run_program(IN_MAIN, seconds=80)
    assert (done.stdout.split("\n"), done.stderr) == (["refused True", "4", "3", ""], "")


GUARDED = """
from dpmodule.streams.supervisor import Supervisor
class Odd(Exception):
    pass
def mine(channel):
    raise Odd(3)
if __name__ == "__main__":
    with Supervisor("reader") as supervisor:
        try:
            supervisor.start(mine).result(80)
        except Odd as error:
            print(error, error.__cause__.text.count("in mine"))
"""


@slow_to_start
def test_a_script_with_a_function_of_its_own(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(GUARDED)
    done = run_file(path, seconds=80)
    assert (done.stdout, done.stderr) == ("3 1\n", "")


@slow_to_start
def test_a_script_without_a_guard_is_told_so(tmp_path):
    path = tmp_path / "script.py"
    path.write_text(textwrap.dedent(GUARDED).replace('if __name__ == "__main__":', "if True:"))
    done = run_file(path, seconds=80)
    assert (done.returncode, done.stdout) == (1, "")
    assert 'if __name__ == "__main__":' in done.stderr.splitlines()[-1]


@slow_to_start
@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_end_of_a_pipe_is_the_childs_before_it_uses_it(method):
    reader, writer = tensor_pipe()
    with Supervisor("feed", method) as supervisor, reader:
        child = supervisor.start(child_targets.fail_before_use, writer)
        with pytest.raises(PipeBroken, match="writer"):
            reader.recv(timeout=60)
        with pytest.raises(ValueError, match="before the pipe was used"):
            child.result(timeout_s=10)


def test_end_in_use_stays_with_the_parent():
    reader, writer = tensor_pipe()
    with reader, writer:
        writer.send(torch.ones(2))
        with Supervisor("feed", "fork") as supervisor, pytest.raises(StateError, match="belongs to"):
            supervisor.start(child_targets.send_ones, writer).result(timeout_s=10)
        writer.send(torch.zeros(2))
        assert [float(reader.recv(timeout=5).sum()) for _ in range(2)] == [2.0, 0.0]


def _leave_a_grandchild(channel):
    pid = os.fork()
    if pid == 0:
        time.sleep(60)
        os._exit(0)
    channel.send(pid)
    time.sleep(60)


def test_a_grandchild_does_not_delay_the_news_of_a_death():
    supervisor, child = forked(_leave_a_grandchild)
    with supervisor:
        grandchild = child.recv(10)
        try:
            os.kill(child.pid, signal.SIGKILL)
            before = time.monotonic()
            with pytest.raises(WorkerDied, match="was killed by SIGKILL"):
                child.recv(10)
            assert time.monotonic() - before < SOON_S
        finally:
            os.kill(grandchild, signal.SIGKILL)


def test_join_says_how_long_it_waited():
    supervisor, _ = forked(child_targets.endless)
    with supervisor, pytest.raises(WorkerStuck, match="has not returned within 0.2 s"):
        supervisor.join(0.2)


def test_what_cannot_be_called_is_refused():
    with Supervisor() as supervisor, pytest.raises(ArgumentError, match="target is 3, expected a function"):
        supervisor.start(3)
