"""Child processes: any order of calls and kills beside a model, how they fail, and that nothing of them stays."""

import asyncio
import collections
import os
import pickle
import random
import signal
import threading
import time
import types
from concurrent.futures import ThreadPoolExecutor
from multiprocessing import resource_tracker

import numpy as np
import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from dpmodule.base import StateError
from dpmodule.streams import child as child_module
from dpmodule.streams import errors, tensor_pipe
from dpmodule.streams.errors import WorkerDied, WorkerError, WorkerStuck
from dpmodule.streams.supervisor import Supervisor
from helpers import child_targets
from helpers.machines import examples, play
from helpers.processes import SOON_S, await_gone, mostly_within, resources, running, until
from helpers.programs import Program, run_file, run_program

# Python 3.12 warns of what these tests do on purpose
pytestmark = [
    pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning"),
    pytest.mark.timeout(300),  # interpreters and many processes take their time on a busy machine
]


def forked(target, *args, **options):
    supervisor = Supervisor("reader", start_method="fork", **options)
    return supervisor, supervisor.start(target, *args)


# --- any order of calls


class AnyOrder(RuleBasedStateMachine):
    """A supervisor, and beside it what each of its children has to send back, and the error it has come to."""

    def __init__(self):
        super().__init__()
        self.supervisor = Supervisor("reader", start_method="fork", grace_s=0.3)
        self.sisters, self.pids, self.closed = [], [], False

    def draw(self, data, alive=False):
        return data.draw(st.sampled_from([each for each in self.sisters if not (alive and each.error)]))

    @precondition(lambda self: len(self.sisters) < 3)
    @rule()
    def start(self):
        if self.closed:
            with pytest.raises(StateError, match="supervisor 'reader' is closed"):
                self.supervisor.start(child_targets.echo)
            return
        child = self.supervisor.start(child_targets.echo)
        child.send("begun")
        assert child.recv(SOON_S) == "begun"
        self.sisters.append(types.SimpleNamespace(child=child, sent=collections.deque(), error=()))
        self.pids.append(child.pid)

    @precondition(lambda self: self.sisters)
    @rule(data=st.data(), value=st.sampled_from([None, "text", b"x" * 70_000, {"a": [1]}]))
    def send(self, data, value):
        sister = self.draw(data)
        if not sister.error:
            sister.child.send(value)
            sister.sent.append(value)
            until(sister.child.poll)
        else:
            with pytest.raises(sister.error[0], match=sister.error[1]):
                sister.child.send(value)

    @precondition(lambda self: self.sisters)
    @rule(data=st.data())
    def receive(self, data):
        sister = self.draw(data)
        if sister.sent and sister.error[:1] != (StateError,):
            assert sister.child.recv(SOON_S) == sister.sent.popleft()
        elif sister.error:
            with pytest.raises(sister.error[0], match=sister.error[1]):
                sister.child.recv(SOON_S)

    @precondition(lambda self: any(not each.error for each in self.sisters))
    @rule(data=st.data(), how=st.sampled_from(["kill", "stop", "ask", "drop"]))
    def end(self, data, how):
        sister = self.draw(data, alive=True)
        child = sister.child
        while len(sister.sent) > (how == "kill"):
            assert child.recv(SOON_S) == sister.sent.popleft()
        who = rf"worker {child.index} 'reader-{child.index}' \(pid {child.pid}\)"
        if how == "kill":  # what it has sent before is still received
            until(lambda: child.poll() or not sister.sent)
            os.kill(child.pid, signal.SIGKILL)
            sister.error = WorkerDied, f"{who} was killed by SIGKILL"
        elif how == "stop":
            os.kill(child.pid, signal.SIGSTOP)
            sister.error = WorkerStuck, rf"(?s){who} did not answer within 0.05 s"
            with pytest.raises(WorkerStuck, match=f"{sister.error[1]}.*it was stopped by a signal.*in echo"):
                child.recv(0.05)
        else:
            if how == "ask":  # which it hears only if no sister holds its end
                child.ask_to_end()
            self.supervisor.drop(child)
            self.sisters.remove(sister)
        until(lambda: not running(child.pid))

    @rule()
    def close(self):
        self.supervisor.close()
        self.closed = True
        assert not any(map(running, self.pids))
        for sister in self.sisters:
            if not sister.error or not sister.child.failure():
                sister.error = StateError, "is closed"
            sister.sent.clear()

    @invariant()
    def those_that_can_be_received_from_are_known(self):
        if not self.closed:
            ready = [each.child for each in self.sisters if each.sent or each.error]
            until(lambda: self.supervisor.wait(0.01 if not ready else 0) == ready)
            assert self.supervisor.children == tuple(each.child for each in self.sisters)

    def teardown(self):
        self.supervisor.close()
        assert not any(map(running, self.pids))


LACKING = ("memfd_create", "pidfd_open", "preadv")
"""What other systems do not have; nor have they signals from pipes."""


@pytest.fixture(params=["this system", "other systems"])
def system(request, monkeypatch):
    if request.param == "other systems":
        for name in LACKING:
            monkeypatch.delattr(os, name)
        monkeypatch.setattr(child_module, "_SET_SIGNAL", None)


@examples(20, 500)
def test_any_order_of_calls(system, examples):
    before = resources()
    play(AnyOrder, examples, steps=15, shrinks=False)
    assert resources() == before


# --- messages


def test_what_a_function_returns():
    supervisor, _ = forked(child_targets.returns, {"a": [1, torch.ones(2)]})
    with supervisor:
        supervisor.start(child_targets.returns, 2)
        first, second = supervisor.join(timeout_s=10)
        assert (first["a"][0], second) == (1, 2)
        with pytest.raises(errors.PipeClosed, match="has returned"):
            supervisor.children[0].recv()


def test_a_message_of_any_size_and_kind(system):
    tensors = [torch.zeros(0, 3), torch.tensor([1 + 2j]), torch.arange(5_000_000, dtype=torch.uint8)]
    tensors.append(torch.arange(6, dtype=torch.bfloat16).view(2, 3).t())
    supervisor, child = forked(child_targets.echo)
    with supervisor:
        for sent in tensors:
            child.send(sent)
            got = child.recv(SOON_S)
            assert (got.dtype, got.shape) == (sent.dtype, sent.shape)
            assert torch.equal(got, sent)
            got.fill_(0)  # may be written
        assert child.working_on == "item 3"
        for sent in (b"x" * 3_000_000, np.arange(6).reshape(2, 3).T, np.zeros((0,))):
            child.send(sent)
            assert np.array_equal(child.recv(SOON_S), sent)


# --- failures


def test_the_first_exception_keeps_its_type_and_traceback():
    supervisor, _ = forked(child_targets.echo)
    with supervisor:
        child = supervisor.start(child_targets.fail, "deep")
        with pytest.raises(LookupError):  # at once, although the other one goes on
            supervisor.join(SOON_S)
        for call in (lambda: child.recv(SOON_S), lambda: child.send(1)):
            with pytest.raises(LookupError) as caught:
                call()
            assert caught.value.args == ("at the bottom", 7)
            assert caught.value is child.failure()
        text = caught.value.__cause__.text
        assert (text.count("in deep"), text.count("child.py")) == (4, 0)  # begins in the user's function


def test_an_exception_that_is_not_like_others():
    errors = {"unpicklable": "has a lock", "two": "one and other", "interrupt": "^$"}
    for how, text in errors.items():
        supervisor, child = forked(child_targets.fail, how)
        kind = KeyboardInterrupt if how == "interrupt" else WorkerError
        with supervisor, pytest.raises(kind, match=text) as caught:
            child.result(SOON_S)
        assert "in fail" in str(caught.value.__cause__)


def test_a_death_names_worker_pid_signal_and_work():
    for how, code, text in (
        ("exit", 0, "ended on its own with exit code 0"),
        ("os_exit", 5, "ended on its own with exit code 5"),
        ("signal", signal.SIGKILL, "killed by SIGKILL.*memory"),
        ("signal", signal.SIGRTMIN + 2, f"killed by signal {signal.SIGRTMIN + 2}"),
        ("segfault", signal.SIGSEGV, "(?s)killed by SIGSEGV.*in fail"),
    ):
        supervisor, child = forked(child_targets.fail, how, code)
        with supervisor, pytest.raises(WorkerDied, match=text) as caught:
            child.recv(SOON_S)
        assert f"worker 0 'reader-0' (pid {child.pid})" in str(caught.value)
        assert "working on step 3" in str(caught.value)
        assert "in run" not in str(caught.value)
        assert caught.value.exitcode == (code if "exit" in how else -code)
        again = pickle.loads(pickle.dumps(caught.value))
        assert (again.index, again.pid) == (0, child.pid)


def _close_the_channel(channel, then):
    channel.note("its end")
    channel._frames.close()
    time.sleep(1.5 if then == "exit" else 60)
    os._exit(3)


def test_a_child_that_closes_its_channel_first(monkeypatch):
    for then, limit, error, text in (
        ("exit", 10, WorkerDied, "ended on its own with exit code 3"),  # as one that has much to do at exit
        ("sleep", 0.2, WorkerStuck, "closed its channel and did not end.*working on its end"),
    ):
        monkeypatch.setattr("dpmodule.streams.process._EXIT_S", limit)
        supervisor, child = forked(_close_the_channel, then)
        with supervisor:
            with pytest.raises(error, match=text):
                child.recv()
            assert not running(child.pid)


@pytest.mark.parametrize("count", [8, pytest.param(200, marks=pytest.mark.slow)])
def test_kills_at_random_moments(count):
    """R7: an error within a second that names the process, and nothing stays."""
    rng, kills, noticed, before = random.Random(1), [], [], resources()

    def talk(child):
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
                talk(child)
            noticed.append(time.monotonic() - kills[-1])
            killer.join()
    mostly_within(1, noticed)
    assert resources() == before


# --- stuck


def test_join_tells_how_long_it_waited():
    supervisor, _ = forked(child_targets.endless)
    with supervisor, pytest.raises(WorkerStuck, match="has not returned within 0.2 s"):
        supervisor.join(0.2)


@pytest.mark.timeout(600)  # of each, two hundred times a fifth of a second and more
@pytest.mark.parametrize("count", [3, pytest.param(200, marks=pytest.mark.slow)])
def test_children_that_are_stuck_in_every_way(count):
    """R8."""
    rng, before = random.Random(5), resources()
    noticed, ended = [], []
    for i in range(count):
        target = (child_targets.endless, child_targets.asleep_in_c, child_targets.stubborn)[i % 3]
        note = "" if i % 3 else "working on file a.txt 17.*"
        supervisor, child = forked(target)
        with supervisor:
            child.recv(SOON_S)
            if rng.random() < 0.3:
                os.kill(child.pid, signal.SIGSTOP)
            begin = time.monotonic()
            with pytest.raises(WorkerStuck, match=f"(?s){note}in {target.__name__}") as caught:
                child.result(0.1) if i % 2 else child.recv(0.1)
            assert isinstance(caught.value, TimeoutError)
            noticed.append(time.monotonic() - begin)
        ended.append(time.monotonic() - begin)
    mostly_within(1.1, noticed)
    mostly_within(2, ended)
    assert resources() == before


@pytest.mark.parametrize("target", [child_targets.stubborn, child_targets.asleep_in_c])
def test_closing_never_hangs(target, system):
    supervisor, child = forked(target, grace_s=0.2)
    child.recv(SOON_S)
    begin = time.monotonic()
    supervisor.close()
    assert time.monotonic() - begin < SOON_S
    assert not running(child.pid)
    supervisor.close()


# --- nothing stays


def test_a_child_has_what_is_its_own():
    supervisor, _ = forked(child_targets.facts, num_threads=2)
    with supervisor:
        for _ in range(5):
            supervisor.start(child_targets.facts)
        found = supervisor.join(10)
    assert [each[:3] for each in found] == [(index, os.getpid(), 2) for index in range(6)]
    assert found[5][3] <= found[0][3] + 2 * 5  # descriptors that multiprocessing itself leaves open


def test_a_forked_child_begins_afresh():
    async def start():
        supervisor, child = forked(child_targets.signal_facts)
        with supervisor:
            assert child.result(SOON_S) == ([signal.SIG_IGN, signal.SIG_DFL], set(), 1)

    before = signal.signal(signal.SIGUSR1, lambda *_: None)
    asyncio.run(start())
    signal.signal(signal.SIGUSR1, before)


def test_a_child_of_a_thread_outlives_the_thread():
    with ThreadPoolExecutor(1) as threads:
        supervisor, child = threads.submit(forked, child_targets.echo).result()
    time.sleep(0.05)
    with supervisor:
        child.send(5)
        assert child.recv(SOON_S) == 5


def _leave_a_grandchild(channel):
    if pid := os.fork():
        channel.send(pid)
    time.sleep(60)
    os._exit(0)


def test_a_grandchild_does_not_delay_the_news_of_a_death():
    supervisor, child = forked(_leave_a_grandchild)
    with supervisor:
        grandchild = child.recv(10)
        os.kill(child.pid, signal.SIGKILL)
        with pytest.raises(WorkerDied, match="was killed by SIGKILL"):
            child.recv(10)
        os.kill(grandchild, signal.SIGKILL)


def test_what_cannot_be_pickled_is_named_before_anything_starts():
    with Supervisor("reader") as supervisor:
        for target, args, text in (
            (lambda channel: 1, [], r"function .*<lambda>.*top level"),
            (child_targets.echo, [1, threading.Lock()], r"argument 1 of echo.*lock"),
        ):
            with pytest.raises(pickle.PicklingError, match=text):
                supervisor.start(target, *args)
        assert supervisor.children == ()


# --- ends of pipes among the arguments


@pytest.mark.parametrize("method", ["fork", pytest.param("spawn", marks=pytest.mark.slow)])
def test_end_of_a_pipe_is_the_childs_before_it_uses_it(method):
    reader, writer = tensor_pipe()
    with Supervisor("feed", method) as supervisor, reader:
        child = supervisor.start(child_targets.fail_before_use, writer)
        with pytest.raises(errors.PipeBroken, match="writer"):
            reader.recv(timeout=60)
        with pytest.raises(ValueError, match="before the pipe was used"):
            child.result(timeout_s=10)


# --- programs

HEAD = """
import os, signal, sys, time
from helpers import child_targets
from dpmodule.streams import Supervisor, child
"""
PARENT = f"""{HEAD}
for name in sys.argv[3:]:
    delattr(os, name)
    child._SET_SIGNAL = None
supervisor = Supervisor("reader", start_method=sys.argv[1])
targets = [child_targets.echo] * 2 if sys.argv[3:] else [child_targets.asleep_in_c, child_targets.endless]
children = [supervisor.start(target) for target in targets]
for each in children if sys.argv[2] == "1" and not sys.argv[3:] else ():
    each.recv(80)
print(*[each.pid for each in children], flush=True)
time.sleep(600)
"""


@pytest.mark.timeout(900)  # fifty of the two hundred import torch
@pytest.mark.parametrize(
    ("method", "count", "lacking"),
    [("fork", 150, ()), ("fork", 20, LACKING), ("spawn", 25, ()), ("forkserver", 25, ())],
)
@pytest.mark.parametrize("long", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_children_end_with_a_killed_parent(method, count, lacking, long):
    """R9, for children in a loop, in C code that holds the interpreter, and spawned ones that are just starting."""
    resource_tracker.ensure_running()
    before, gone = resources()["shm"], []
    for number in range(count if long else 1 + (method == "spawn")):
        with Program("code", PARENT, method, int(number != 1), *lacking) as parent:
            pids = [int(pid) for pid in parent.read(2, seconds=80)]
            assert all(running(pid) for pid in pids)
            parent.send_signal(signal.SIGKILL)
            parent.wait()
        gone.append(await_gone(pids))
    mostly_within(2, gone)
    assert resources()["shm"] == before


AT_EXIT = f"""{HEAD}
supervisor = Supervisor("reader", start_method="fork")
child = supervisor.start(child_targets.stubborn)
child.recv(80)
print(child.pid, flush=True)
"""


def test_a_program_that_forgets_to_close_exits():
    parent = run_program(AT_EXIT, seconds=80)
    assert (parent.returncode, parent.stderr) == (0, "")
    assert not running(int(parent.stdout))


INTERRUPTED = f"""{HEAD}
os.setsid()
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


def test_an_interrupt_reaches_only_the_parent():
    with Program("code", INTERRUPTED) as parent:
        answer, pid = parent.read(2)
        os.killpg(parent.pid, signal.SIGINT)  # as a terminal does: to all of them
        parent.wait(80)
        out, err = parent.output()
    assert (answer, out.splitlines()[1:], err) == ("2", ["interrupted True"], "")
    assert not running(int(pid))


GUARDED = f"""{HEAD}
class Odd(Exception): ...
def mine(channel):
    raise Odd(3)
if __name__ == "__main__":
    with Supervisor("reader") as supervisor:
        try:
            supervisor.start(mine).result(80)
        except Odd as error:
            print(error, error.__cause__.text.count("in mine"))
"""


def test_a_script_with_a_function_of_its_own(tmp_path):
    guard, path = 'if __name__ == "__main__":', tmp_path / "script.py"
    path.write_text(GUARDED)
    done = run_file(path, seconds=80)
    assert (done.stdout, done.stderr) == ("3 1\n", "")
    path.write_text(GUARDED.replace(guard, "if True:"))
    done = run_file(path, seconds=80)
    assert (done.returncode, done.stdout) == (1, "")
    assert guard in done.stderr.splitlines()[-1]
