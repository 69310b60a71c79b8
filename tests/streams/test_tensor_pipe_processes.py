"""Tensor pipes between processes: any order of calls and kills, whose an end is, death at any moment, no leaks."""

import asyncio
import gc
import itertools
import multiprocessing
import os
import random
import signal
import threading
import time
from unittest import mock

import pytest
import torch
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from dpmodule.base import StateError
from dpmodule.streams import PipeBroken, PipeClosed, PipeTimeout
from dpmodule.streams.pipe import backend, control
from helpers import child_targets
from helpers.child_targets import value_of
from helpers.machines import examples, play
from helpers.pipes import PROTOCOLS, Child, make, pipe, same
from helpers.processes import SOON_S, mostly_within, resources, until
from helpers.programs import run_program

CORES = list(PROTOCOLS)
pytestmark = pytest.mark.timeout(300)  # some start interpreters, which takes its time on a busy machine


def gone(which, process):
    return pytest.raises(PipeBroken, match=f"the {which} is gone: its process {process.pid}")


def claimed(end, side):
    return lambda: end._control.get(side, control.PID)


# --- any order of calls


def serve(end, connection):
    """Do in a child what the parent asks for."""
    while True:
        name, *numbers = connection.recv()
        value = getattr(end, name)(*map(value_of, numbers))
        answer = int(value["i"]) if name == "recv" else None
        del value
        connection.send(answer)


class Across(RuleBasedStateMachine):
    """A pipe with one end in a child, and beside it what is on its way, and how the child has ended."""

    def __init__(self, core, side):
        super().__init__()
        self.core, self.side = core, side

    @initialize(slots=st.integers(1, 3), given=st.booleans())
    def begin(self, slots, given):
        reader, writer = make(self.core, slots)
        self.here, there = (writer, reader) if self.side == "reader" else (reader, writer)
        self.connection, theirs = multiprocessing.Pipe()
        self.child = Child(lambda: serve(there, theirs))
        if given:
            there.hand_over(self.child.pid)
        else:
            self.ask("claim")
            there.close()  # the copy here
        self.slots, self.sent, self.received, self.end = slots, 0, 0, None

    def ask(self, *command):
        self.connection.send(command)
        assert self.connection.poll(SOON_S)
        return self.connection.recv()

    def full(self):
        return self.sent - self.received == self.slots

    def ended(self):
        if self.end == "closed":
            return pytest.raises(PipeClosed, match=f"the {self.side} closed")
        return gone(self.side, self.child)

    def send_until_it_fails(self):
        deadline, size = time.monotonic() + SOON_S, 1
        while time.monotonic() < deadline:
            size *= 2  # some need new memory, of which the reader is told by its socket
            try:
                self.here.send([torch.ones(size % 99_999)], timeout=0.02)
            except PipeTimeout:
                continue

    @rule()
    def send(self):
        if self.side == "reader" and self.end:
            with self.ended():
                self.send_until_it_fails()
        elif self.side == "reader" and self.full():
            with pytest.raises(PipeTimeout):
                self.here.send(value_of(0), timeout=0.002)
        elif not (self.full() or self.end):
            if self.side == "reader":
                self.here.send(value_of(self.sent), timeout=SOON_S)
            else:
                self.ask("send", self.sent)
            self.sent += 1

    @rule()
    def receive(self):
        if self.sent == self.received:
            if self.side == "writer":
                with self.ended() if self.end else pytest.raises(PipeTimeout):
                    self.here.recv(timeout=SOON_S if self.end else 0.002)
            return
        if self.side == "writer":
            assert same(self.here.recv(timeout=SOON_S), value_of(self.received))
        elif not self.end:
            assert self.ask("recv") == self.received
        self.received += not (self.side == "reader" and self.end)

    @precondition(lambda self: not self.end)
    @rule(how=st.sampled_from(["killed", "closed", "stopped"]))
    def end_the_child(self, how):
        if how == "stopped":
            os.kill(self.child.pid, signal.SIGSTOP)
            self.send() if self.side == "reader" else None
            os.kill(self.child.pid, signal.SIGCONT)
            return
        if how == "closed":
            self.ask("claim")  # else it would close a copy only
            self.ask("close")
        self.child.kill()
        self.child.reap()
        self.end = how

    def teardown(self):
        if hasattr(self, "end"):
            if not self.end:
                self.child.kill()
                self.child.reap()
            self.here.close()
            self.connection.close()


@pytest.fixture(params=["", "pidfd_open", "eventfd memfd_create"])
def system(request, monkeypatch):
    """This system, and others that lack something."""
    for name in request.param.split():
        monkeypatch.delattr(os, name, raising=False)


@pytest.mark.parametrize("side", ["reader", "writer"])
@examples(12, 500)
def test_any_order_of_calls_and_kills(core, side, system, examples):
    play(lambda: Across(core, side), examples, steps=15, shrinks=False)


# --- interpreters that are started afresh


@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_ends_are_given_to_children_that_are_started_afresh(method):
    context = multiprocessing.get_context(method)
    (here, there), (reader, writer), (answer, answering) = pipes = [make(CORES[0]) for _ in range(3)]
    given = {child_targets.write_values: (there,), child_targets.sum_values: (reader, answering)}
    children = [context.Process(target=target, args=args) for target, args in given.items()]
    for process in children:
        process.start()
    for call in (lambda: there.throw(ValueError()), reader.recv):
        with pytest.raises(StateError, match="belongs to|passed to"):
            call()
    for i, value in enumerate(here):
        assert same(value, value_of(i))
        writer.send(value_of(i))
        del value
    writer.close()
    assert int(answer.recv()[0]) == sum(range(50))
    for process in children:
        process.join(80)
        assert process.exitcode == 0
    for each in sum(pipes, ()):
        each.close()


@pytest.mark.skipif(control.NATIVE not in CORES, reason="there is no extension")
def test_both_processes_must_have_the_extension(monkeypatch, capfd):
    reader, writer = make(control.NATIVE)
    monkeypatch.setenv("DPMODULE_NATIVE", "0")
    process = multiprocessing.get_context("spawn").Process(target=child_targets.send_ones, args=(writer,))
    process.start()
    writer.hand_over(process.pid)
    with pytest.raises(PipeBroken):
        reader.recv(timeout=80)
    process.join()
    assert process.exitcode == 1
    assert "set DPMODULE_NATIVE=0 in both or in neither" in capfd.readouterr().err
    reader.close()
    reader, writer = make(control.NATIVE)
    monkeypatch.setattr(backend, "protocol", lambda: control.PYTHON)
    with pytest.raises(StateError, match="native extension"):
        reader.recv()


# --- whose an end is


def test_only_one_process_may_use_an_end(opened):
    reader, writer = opened()
    process = Child(lambda: (writer.send(None), time.sleep(60)))
    assert reader.recv() is None
    with pytest.raises(StateError, match="writer of this pipe belongs to"):
        writer.send(None)
    with pytest.raises(StateError, match="in use"):
        reader.__reduce__()
    with pytest.raises(StateError, match="belongs to process"):
        reader.hand_over(1)
    process.kill()
    process.reap()


@pytest.mark.parametrize("how", ["handed over", "closed here", "used before", "cannot be used"])
def test_a_writer_in_a_child_that_ends_is_noticed(core, opened, how, monkeypatch):
    """Also if it has not used its end, or came and went before the reader's first look."""
    reader, writer = opened()

    def child():
        if how == "used before":
            writer.send([torch.ones(2)])
        if how == "cannot be used":
            monkeypatch.setattr(backend, "writer_core", mock.Mock(side_effect=StateError("no core here")))
            time.sleep(0.2)  # the reader waits by then
            with pytest.raises(StateError, match="no core here"):
                writer.send(None)

    process = Child(child)
    assert how != "used before" or process.ok()
    writer.close() if how == "closed here" else how == "cannot be used" or writer.hand_over(process.pid)
    if how == "used before":
        assert torch.equal(reader.recv(timeout=SOON_S)[0], torch.ones(2))
    text = "before using it" if how == "closed here" else f"its process {process.pid} has ended"
    with pytest.raises(PipeBroken, match=f"the writer is gone: .*{text}"):
        reader.recv(timeout=SOON_S)
    assert how == "used before" or process.ok()


def test_what_a_child_inherits_gives_no_slot_back(core):
    with pipe(core, slots=1) as (reader, writer):
        writer.send([torch.ones(2)])
        held = reader.recv()
        assert Child(lambda: (held.clear(), gc.collect())).ok()
        with pytest.raises(PipeTimeout):
            writer.send([torch.zeros(2)], timeout=0.05)
        assert held[0].sum() == 2


async def test_forking_does_not_disturb_the_parents_loop():
    with pipe(CORES[0]) as (reader, writer):
        await writer.coro_send(torch.ones(1))
        await reader.coro_recv()
        task = asyncio.ensure_future(reader.coro_recv())
        await asyncio.sleep(0.01)
        assert Child(lambda: (reader.close(), writer.close())).ok()
        await writer.coro_send(torch.zeros(1))
        assert await task == 0


# --- death


@pytest.mark.parametrize("sent_before", [True, False])
def test_a_dead_reader_is_noticed_by_a_writer_that_waits(opened, sent_before):
    reader, writer = opened()
    process = Child(lambda: [reader.recv(), time.sleep(60)])
    if sent_before:
        writer.send(torch.ones(1))
    until(claimed(reader, control.READER))  # else it was there before the first send
    for _ in range(1 if sent_before else 2):
        writer.send(torch.ones(1))
    threading.Timer(0.3, process.kill).start()
    with gone("reader", process):
        writer.send(torch.ones(1))
    process.reap()
    with pytest.raises(PipeBroken):
        writer.throw(ValueError())


@pytest.mark.parametrize("call", ["send", "acquire"])
def test_a_dead_reader_is_noticed_before_anything_is_sent(core, opened, call):
    """All slots have memory and are free, and the reader has been killed since."""
    reader, writer = opened(3)
    process = Child(lambda: ([reader.recv() for _ in range(3)].clear(), time.sleep(60)))
    until(claimed(reader, control.READER))
    for _ in range(3):
        writer.send([torch.ones(1)])
    until(lambda: len(writer._core.free_slots()) == 3)
    process.kill()
    process.reap()
    time.sleep(0.15)  # after that long the core asks for a look at the reader
    with gone("reader", process):
        writer.send([torch.ones(1)]) if call == "send" else writer.acquire()
    assert writer.stats.sent == 3


def test_a_first_look_that_is_interrupted_is_repeated(opened):
    """Ctrl-C while the reader's process is being looked up leaves it watched: before it is known, and after."""
    reader, writer = opened(1)
    process = Child(lambda: [reader.recv(), time.sleep(60)])
    until(claimed(reader, control.READER))
    writer.claim()
    for target, name in ((control, "process_start"), (writer._watch, "peer")):
        with mock.patch.object(target, name, side_effect=KeyboardInterrupt), pytest.raises(KeyboardInterrupt):
            writer.send(torch.ones(1))
    writer.send(torch.ones(1))
    threading.Timer(0.3, process.kill).start()
    with gone("reader", process):
        writer.send(torch.ones(1), timeout=15)
    process.reap()


def a_killed_process(core, which, rng):
    """Kill one side of a busy pipe at some moment; how long the other one took to notice, in seconds."""
    reader, writer = make(core, rng.choice([1, 2, 4]))
    sizes = [1, 5, 100_000] if rng.random() < 0.3 else [5]

    def produce():
        for i in itertools.count():
            writer.send({"i": torch.tensor(i), "x": torch.ones(rng.choice(sizes))})

    def consume():
        for i in itertools.count():
            assert reader.recv()["i"] == i

    child, here = (produce, consume) if which == "writer" else (consume, produce)
    process, at = Child(child), []
    (writer if which == "writer" else reader).hand_over(process.pid)
    killer = threading.Timer(rng.random() * 0.02, lambda: at.append(process.kill()))
    killer.start()
    with gone(which, process):
        here()
    noticed = time.monotonic()
    killer.join()
    process.reap()
    reader.close()
    writer.close()
    return noticed - at[0]


@pytest.mark.parametrize("which", ["reader", "writer"])
@pytest.mark.parametrize("count", [8, pytest.param(500, marks=pytest.mark.slow)])
def test_kills_at_any_moment(core, which, count):
    rng = random.Random(f"{core}{which}{count}")
    a_killed_process(core, which, rng)
    before = resources()
    mostly_within(1.0, [a_killed_process(core, which, rng) for _ in range(count)])
    assert resources() == before


# --- nothing is left behind


def test_interpreters_end_with_tensors_and_ends_alive():
    program = (
        "import torch\nfrom dpmodule.streams import tensor_pipe\n"
        "reader, writer = tensor_pipe()\nwriter.send([torch.ones(3)])\nvalue = reader.recv()\n"
        "reader.close(); writer.close()\nkeep = [value, (value, reader)]; keep.append(keep)\n"
    )
    done = run_program(program, seconds=80, PYTHONWARNINGS="error")
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_reaches_a_thread_that_waits():
    with pipe(CORES[0]) as (reader, writer):
        previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
        signal.setitimer(signal.ITIMER_REAL, 0.05)
        with pytest.raises(KeyboardInterrupt):
            reader.recv(timeout=SOON_S)
        signal.signal(signal.SIGALRM, previous)
        writer.send(None)
        assert reader.recv() is None
