"""Tensor pipes between processes: fork and spawn, whose an end is, death at any moment, nothing left behind."""

import gc
import multiprocessing
import os
import random
import signal
import threading
import time
import weakref

import pytest
import torch

from dpmodule.base import StateError
from dpmodule.streams import PipeBroken, PipeClosed, PipeTimeout
from dpmodule.streams.pipe import backend, control
from helpers.pipe_children import (
    spawned_reader,
    spawned_sleeper,
    spawned_with_python_core,
    spawned_writer,
    value_of,
)
from helpers.pipes import PROTOCOLS, Child, every_core, make, pipe, same
from helpers.processes import SOON_S, mostly_within, resources, until
from helpers.programs import run_program

CORES = list(PROTOCOLS)


def check(value, i):
    assert value["i"] == i
    assert value["x"][0].shape == (1 + i % 50,)
    assert bool((value["x"][0] == i).all())


def check_all(reader):
    """Check what comes until the end; with one slot nothing may be kept, not even by `enumerate`."""
    count = 0
    for value in reader:
        check(value, count)
        count += 1
        del value
    return count


@every_core
@pytest.mark.parametrize("slots", [1, 2, 7])
def test_a_forked_child_writes(core, slots):
    reader, writer = make(core, slots)

    def child():
        with writer:
            for i in range(300):
                writer.send(value_of(i))

    process = Child(child)
    assert check_all(reader) == 300
    assert process.ok()
    reader.close()


@every_core
@pytest.mark.parametrize("slots", [1, 2, 7])
def test_a_forked_child_reads(core, slots):
    reader, writer = make(core, slots)

    def child():
        assert check_all(reader) == 300
        reader.close()

    process = Child(child)
    for i in range(300):
        writer.send(value_of(i))
    writer.close()
    assert process.ok()


@pytest.mark.timeout(120)  # some start interpreters, which takes its time on a busy machine
@pytest.mark.parametrize("method", ["spawn", pytest.param("forkserver", marks=pytest.mark.slow)])
def test_ends_are_given_to_children_that_are_started_afresh(method):
    context = multiprocessing.get_context(method)
    here, there = make(CORES[0])
    reader, writer = make(CORES[0])
    answer, answering = make(CORES[0])
    one = context.Process(target=spawned_writer, args=(there,))
    two = context.Process(target=spawned_reader, args=(reader, answering))
    for process in (one, two):
        process.start()
    for given in (there, reader, answering):
        with pytest.raises(StateError, match="belongs to|passed to"):
            given.throw(ValueError()) if given is not reader else given.recv()
    for i, value in enumerate(here):
        check(value, i)
        writer.send(value_of(i))
        del value
    writer.close()
    assert int(answer.recv()[0]) == sum(range(50))
    for process in (one, two):
        process.join(80)
        assert process.exitcode == 0
    for each in (here, there, reader, writer, answer, answering):
        each.close()


def send_some(writer, count, value, pause_s=0.0):
    for _ in range(count):
        writer.send(value)
        time.sleep(pause_s)


@pytest.mark.timeout(120)
def test_a_spawned_child_that_dies_is_noticed():
    reader, writer = make(CORES[0])
    process = multiprocessing.get_context("spawn").Process(target=spawned_sleeper, args=(reader,))
    process.start()
    reader.hand_over(process.pid)
    writer.send(None)
    process.kill()
    begin = time.monotonic()
    with pytest.raises(PipeBroken, match=f"reader is gone: its process {process.pid}"):
        send_some(writer, 5, None)
    assert time.monotonic() - begin < SOON_S
    process.join()
    writer.close()


@pytest.mark.timeout(120)
@pytest.mark.skipif(control.NATIVE not in CORES, reason="there is no extension")
def test_both_processes_must_have_the_extension(monkeypatch, capfd):
    reader, writer = make(control.NATIVE)
    monkeypatch.setenv("DPMODULE_NATIVE", "0")
    process = multiprocessing.get_context("spawn").Process(target=spawned_with_python_core, args=(writer,))
    process.start()
    writer.hand_over(process.pid)
    with pytest.raises(PipeBroken):
        reader.recv(timeout=80)
    process.join()
    assert process.exitcode == 1
    assert "set DPMODULE_NATIVE=0 in both or in neither" in capfd.readouterr().err
    reader.close()


def test_a_process_without_the_extension_says_so(monkeypatch):
    if control.NATIVE not in CORES:
        pytest.skip("there is no extension")
    reader, writer = make(control.NATIVE)
    monkeypatch.setattr(backend, "protocol", lambda: control.PYTHON)
    with pytest.raises(StateError, match="native extension"):
        reader.recv()
    monkeypatch.undo()
    reader.close()
    writer.close()


# --- whose an end is


@every_core
def test_a_copy_in_a_child_closes_nothing(core):
    with pipe(core) as (reader, writer):
        writer.send(torch.ones(1))
        assert reader.recv() == 1

        def child():
            for each in (reader, writer):
                with pytest.raises(StateError, match="belongs to"):
                    each.recv() if each is reader else each.send(None)
                each.close()
                each.close()

        assert Child(child).ok()
        writer.send(torch.zeros(1))
        assert reader.recv() == 0


@every_core
def test_an_unused_copy_in_a_child_closes_nothing(core):
    with pipe(core) as (reader, writer):
        assert Child(lambda: (reader.close(), writer.close())).ok()
        writer.send(torch.zeros(1))
        assert reader.recv() == 0


@every_core
def test_the_parent_may_close_its_copy_after_forking(core):
    reader, writer = make(core)
    process = Child(lambda: check_all(reader) and reader.close())
    reader.close()
    for i in range(10):
        writer.send(value_of(i))
    writer.close()
    assert process.ok()


@every_core
def test_an_end_that_comes_together_with_the_last_structure_is_seen(core):
    reader, writer = make(core)

    def child():
        assert reader.recv() is None
        assert reader.recv(timeout=60) is None
        with pytest.raises(PipeClosed):
            reader.recv()

    process = Child(child)
    writer.send(None)
    time.sleep(0.2)  # it sleeps in the second call by now
    os.kill(process.pid, signal.SIGSTOP)
    writer.send(None)
    writer.close()
    os.kill(process.pid, signal.SIGCONT)
    assert process.ok()
    reader.close()


@every_core
def test_the_end_keeps_nothing_that_its_reader_had(core):
    class Mark:
        pass

    def read():
        mark = Mark()
        with pipe(core) as (reader, writer):
            writer.send(None)
            writer.close()
            assert list(reader) == [None]
        return weakref.ref(mark)

    gc.disable()
    try:
        assert read()() is None
    finally:
        gc.enable()


@every_core
def test_only_one_process_may_use_an_end(core):
    reader, writer = make(core)
    process = Child(lambda: (writer.send(None), time.sleep(60)))
    assert reader.recv() is None
    with pytest.raises(StateError, match="writer of this pipe belongs to"):
        writer.send(None)
    process.kill()
    process.reap()
    writer.close()
    reader.close()


@every_core
def test_an_end_in_use_cannot_be_given_away(core):
    with pipe(core) as (reader, writer):
        writer.send(None)
        with pytest.raises(StateError, match="in use"):
            writer.__reduce__()
        with pytest.raises(StateError, match="belongs to process"):
            writer.hand_over(1)
        assert reader.recv() is None


@every_core
def test_a_claimed_end_is_not_the_childs(core):
    with pipe(core) as (reader, writer):
        reader.claim()
        reader.claim()

        def child():
            with pytest.raises(StateError, match="belongs to"):
                reader.recv()
            writer.send(torch.ones(1))
            writer.close()

        process = Child(child)
        assert reader.recv() == 1
        assert process.ok()


@every_core
def test_a_child_that_ends_before_using_its_end(core):
    reader, writer = make(core)
    process = Child(lambda: None)
    writer.hand_over(process.pid)
    with pytest.raises(PipeBroken, match=f"its process {process.pid}"):
        reader.recv(timeout=SOON_S)
    process.reap()
    reader.close()
    reader, writer = make(core)
    process = Child(lambda: reader.close())
    writer.close()  # this copy of it; the child's end with the child
    with pytest.raises(PipeBroken, match="before using it"):
        reader.recv(timeout=SOON_S)
    process.reap()
    reader.close()


@every_core
def test_what_a_child_inherits_gives_no_slot_back(core):
    with pipe(core, slots=1) as (reader, writer):
        writer.send([torch.ones(2)])
        held = reader.recv()
        assert Child(lambda: (held.clear(), gc.collect())).ok()
        with pytest.raises(PipeTimeout):
            writer.send([torch.zeros(2)], timeout=0.05)
        assert held[0].sum() == 2


def test_forking_does_not_disturb_the_parents_loop():
    from helpers.loops import run

    async def main():
        with pipe(CORES[0]) as (reader, writer):
            await writer.coro_send(torch.ones(1))
            await reader.coro_recv()
            import asyncio

            task = asyncio.ensure_future(reader.coro_recv())
            await asyncio.sleep(0.01)
            assert Child(lambda: (reader.close(), writer.close())).ok()
            await writer.coro_send(torch.zeros(1))
            assert await task == 0

    run(main())


# --- death


@every_core
def test_a_dead_reader_is_noticed_by_a_writer_that_waits(core):
    reader, writer = make(core)
    process = Child(lambda: reader.recv().sum() and time.sleep(60))
    writer.send(torch.ones(1))
    until(lambda: reader._control.get(control.READER, control.PID))
    until(lambda: writer._core.free_slots() == [0, 1])
    begin = process.kill()
    with pytest.raises(PipeBroken, match=f"the reader is gone: its process {process.pid}"):
        send_some(writer, 3, torch.ones(1))
    assert time.monotonic() - begin < SOON_S
    process.reap()
    time.sleep(0.15)
    with pytest.raises(PipeBroken):
        writer.send(torch.ones(1))
    with pytest.raises(PipeBroken):
        writer.throw(ValueError())
    writer.close()


@every_core
def test_a_reader_that_was_there_before_the_first_send_is_watched(core):
    reader, writer = make(core)
    process = Child(lambda: [reader.recv(), time.sleep(60)])
    until(lambda: reader._control.get(control.READER, control.PID))
    for _ in range(2):
        writer.send(torch.ones(1))
    killer = threading.Timer(0.3, process.kill)
    killer.start()
    with pytest.raises(PipeBroken, match=f"the reader is gone: its process {process.pid}"):
        writer.send(torch.ones(1))
    killer.join()
    process.reap()
    writer.close()


@every_core
def test_a_dead_reader_is_noticed_by_a_writer_that_never_waits(core):
    reader, writer = make(core, slots=64)
    process = Child(lambda: reader.recv().sum() and time.sleep(60))
    writer.send(torch.ones(1))
    until(lambda: len(writer._core.free_slots()) == 64)
    begin = process.kill()
    process.reap()
    with pytest.raises(PipeBroken):
        send_some(writer, 60, torch.ones(1), pause_s=0.01)
    assert time.monotonic() - begin < SOON_S
    writer.close()


def a_reader_that_has_gone(core, slots):
    """A writer all of whose slots have memory and are free, and whose reader has been killed since."""
    reader, writer = make(core, slots)

    def child():
        values = [reader.recv() for _ in range(slots)]
        values.clear()
        time.sleep(60)

    process = Child(child)
    until(lambda: reader._control.get(control.READER, control.PID))
    for _ in range(slots):
        writer.send([torch.ones(1)])
    until(lambda: len(writer._core.free_slots()) == slots)
    process.kill()
    process.reap()
    time.sleep(0.15)  # after that long the core asks for a look at the reader
    return writer


@every_core
def test_a_look_that_the_core_asks_for_comes_before_the_message_is_sent(core):
    writer = a_reader_that_has_gone(core, 3)
    with pytest.raises(PipeBroken, match="the reader is gone: its process"):
        writer.send([torch.ones(1)])
    assert writer.stats.sent == 3
    writer.close()


@every_core
def test_a_dead_reader_is_noticed_by_a_writer_that_fills_slots_in_place(core):
    writer = a_reader_that_has_gone(core, 3)
    with pytest.raises(PipeBroken, match="the reader is gone: its process"):
        writer.acquire()
    writer.close()


@every_core
def test_a_first_look_that_is_interrupted_is_repeated(core, monkeypatch):
    """Ctrl-C while the reader's process is being looked up must not leave it unwatched."""
    reader, writer = make(core, slots=1)
    process = Child(lambda: [reader.recv(), time.sleep(60)])
    until(lambda: reader._control.get(control.READER, control.PID))
    writer.claim()
    for is_known in (False, True):
        with monkeypatch.context() as patch:
            patch.setattr(*interrupting(is_known, writer))
            with pytest.raises(KeyboardInterrupt):
                writer.send(torch.ones(1))
    writer.send(torch.ones(1))
    killer = threading.Timer(0.3, process.kill)
    killer.start()
    with pytest.raises(PipeBroken, match=f"the reader is gone: its process {process.pid}"):
        writer.send(torch.ones(1), timeout=15)
    killer.join()
    process.reap()
    writer.close()


def interrupting(is_known, writer):
    """Return what to replace by what, so that a look ends with Ctrl-C: before it is done, or when it is."""

    def interrupt(*_):
        raise KeyboardInterrupt

    if is_known:
        return writer._watch, "peer", interrupt
    return control, "process_start", interrupt


@every_core
def test_what_a_dead_writer_has_sent_still_arrives(core):
    reader, writer = make(core)

    def child():
        writer.send(torch.ones(3))
        writer.send({"other": torch.zeros(3)})
        os.kill(os.getpid(), signal.SIGKILL)

    process = Child(child)
    process.reap()
    assert reader.recv().sum() == 3
    kept = reader.recv()
    for _ in range(2):
        with pytest.raises(PipeBroken, match=f"the writer is gone: its process {process.pid}"):
            reader.recv()
    assert kept["other"].tolist() == [0, 0, 0]
    reader.close()


@every_core
def test_a_writer_that_dies_in_the_middle_of_a_message(core):
    reader, writer = make(core)

    def child():
        writer.send(torch.ones(3))
        writer._core.publish = None  # of no effect in the extension, which is stopped below
        writer._lay_out(*nested_parts({"new": torch.ones(4)}))
        os.kill(os.getpid(), signal.SIGKILL)

    process = Child(child)
    process.reap()
    assert reader.recv().sum() == 3
    with pytest.raises(PipeBroken, match="the writer is gone"):
        reader.recv()
    reader.close()


def nested_parts(value):
    from dpmodule.streams import nested

    outline, leaves = nested.flatten(value)
    return outline, [leaf.nbytes for leaf in leaves], leaves


@every_core
@pytest.mark.skipif(not hasattr(os, "pidfd_open"), reason="there is nothing to take away")
def test_without_pidfd_death_is_noticed_too(core, monkeypatch):
    monkeypatch.delattr(os, "pidfd_open")
    reader, writer = make(core)
    process = Child(lambda: (writer.send(None), time.sleep(60)))
    assert reader.recv() is None
    begin = process.kill()
    with pytest.raises(PipeBroken):
        reader.recv()
    assert time.monotonic() - begin < SOON_S
    process.reap()
    reader.close()


@every_core
@pytest.mark.skipif(not hasattr(os, "eventfd"), reason="there is nothing to take away")
def test_without_eventfd_and_memfd_all_works(core, monkeypatch):
    monkeypatch.delattr(os, "eventfd")
    monkeypatch.delattr(os, "memfd_create")
    reader, writer = make(core)
    process = Child(lambda: check_all(reader) and reader.close())
    for i in range(100):
        writer.send(value_of(i))
    writer.close()
    assert process.ok()


def a_killed_process(core, which, rng):
    """Kill one side of a busy pipe at some moment; how long the other one took to notice, in seconds."""
    reader, writer = make(core, rng.choice([1, 2, 4]))
    big = rng.random() < 0.3

    def produce():
        i = 0
        while True:
            writer.send({"i": torch.tensor(i), "x": torch.ones(rng.choice([1, 5, 100_000]) if big else 5)})
            i += 1

    def consume():
        i = 0
        while True:
            value = reader.recv()
            assert value["i"] == i
            i += 1

    child, here = (produce, consume) if which == "writer" else (consume, produce)
    process = Child(child)
    (writer if which == "writer" else reader).hand_over(process.pid)
    delay = rng.random() * 0.02
    killer = subprocess_killer(process.pid, delay)
    with pytest.raises(PipeBroken, match=f"the {which} is gone: its process {process.pid}"):
        here()
    took = time.monotonic() - killer()
    process.reap()
    reader.close()
    writer.close()
    return took


def subprocess_killer(pid, delay):
    import threading

    at = []

    def kill():
        os.kill(pid, signal.SIGKILL)
        at.append(time.monotonic())

    timer = threading.Timer(delay, kill)
    timer.start()
    return lambda: (timer.join(), at[0])[1]


@pytest.mark.timeout(120)
@every_core
@pytest.mark.parametrize("which", ["reader", "writer"])
def test_kills_at_any_moment(core, which):
    rng = random.Random(f"{core}{which}")
    a_killed_process(core, which, rng)
    before = resources()
    mostly_within(1.0, [a_killed_process(core, which, rng) for _ in range(20)])
    assert resources() == before


@pytest.mark.slow
@pytest.mark.timeout(300)
@every_core
@pytest.mark.parametrize("which", ["reader", "writer"])
def test_many_kills_at_any_moment(core, which):
    rng = random.Random(f"many {core}{which}")
    a_killed_process(core, which, rng)
    before = resources()
    mostly_within(1.0, [a_killed_process(core, which, rng) for _ in range(500)])
    assert resources() == before


# --- nothing is left behind


def use_and_close(core, i):
    reader, writer = make(core)
    writer.send([torch.ones(3), torch.ones(5000)])
    value = reader.recv()
    if i % 3 == 0:
        writer.send({"shared": torch.ones(100).share_memory_()})
    if i % 5 == 0:
        writer.throw(ValueError())
    if i % 2:
        del value
    writer.close()
    reader.close()


def flat(core, cycles):
    from helpers.processes import resident_bytes

    for i in range(100):
        use_and_close(core, i)
    before, memory = resources(), resident_bytes()
    for i in range(cycles):
        use_and_close(core, i)
    assert resources() == before
    assert resident_bytes() - memory < max(memory // 50, 4 << 20)


@pytest.mark.timeout(120)
@every_core
def test_making_using_and_closing_leaves_nothing(core):
    flat(core, 500)


@pytest.mark.slow
@pytest.mark.timeout(300)
@every_core
def test_making_using_and_closing_very_often_leaves_nothing(core):
    flat(core, 10_000)


@pytest.mark.timeout(120)
@every_core
def test_memory_is_steady_while_sizes_change(core):
    from helpers.processes import resident_bytes

    with pipe(core) as (reader, writer):
        rng = random.Random(1)

        def some(count):
            for _ in range(count):
                value = [torch.ones(rng.randrange(1, 200_000)) for _ in range(3)]
                writer.send(value)
                assert same(value, reader.recv())

        some(100)
        before, memory = resources(), resident_bytes()
        some(150)
        assert resources() == before
        assert resident_bytes() - memory < 20 << 20


@pytest.mark.timeout(120)
def test_interpreters_end_with_tensors_and_ends_alive():
    program = (
        "import torch\nfrom dpmodule.streams import tensor_pipe\n"
        "reader, writer = tensor_pipe()\nwriter.send([torch.ones(3)])\nvalue = reader.recv()\n"
        "reader.close(); writer.close()\nkeep = [value, (value, reader)]; keep.append(keep)\n"
    )
    done = run_program(program, seconds=80, PYTHONWARNINGS="error")
    assert (done.returncode, done.stderr) == (0, "")


def test_ctrl_c_reaches_a_thread_that_waits():
    reader, writer = make(CORES[0])
    previous = signal.signal(signal.SIGALRM, signal.default_int_handler)
    signal.setitimer(signal.ITIMER_REAL, 0.05)
    with pytest.raises(KeyboardInterrupt):
        reader.recv(timeout=SOON_S)
    signal.signal(signal.SIGALRM, previous)
    writer.send(None)
    assert reader.recv() is None
    writer.close()
    with pytest.raises(PipeClosed):
        reader.recv()
    reader.close()


@every_core
def test_a_writer_that_cannot_use_its_end_is_noticed_when_it_ends(core, monkeypatch):
    reader, writer = make(core)

    def refuse(*_):
        raise StateError("no core here")

    def child():
        monkeypatch.setattr(backend, "writer_core", refuse)
        time.sleep(0.2)  # the reader waits by then
        with pytest.raises(StateError, match="no core here"):
            writer.send(None)

    process = Child(child)
    with pytest.raises(PipeBroken, match=f"the writer is gone: its process {process.pid} has ended"):
        reader.recv(timeout=20)
    assert process.ok()
    reader.close()
    writer.close()


@every_core
def test_a_writer_that_came_and_went_before_the_first_look_is_named(core):
    reader, writer = make(core)
    process = Child(lambda: (writer.send([torch.ones(2)]), os._exit(0)))
    assert process.ok()
    writer.hand_over(process.pid)
    assert torch.equal(reader.recv(timeout=SOON_S)[0], torch.ones(2))
    with pytest.raises(PipeBroken, match=f"the writer is gone: its process {process.pid} has ended"):
        reader.recv(timeout=SOON_S)
    reader.close()
