"""A thread that reads any iterator ahead: items, the end, errors, holding, closing, forks."""

import gc
import os
import threading
import time
import traceback
import weakref
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch

import dpmodule as mx
from dpmodule.base import StateError
from dpmodule.streams import ReadAhead, read_ahead
from helpers.pipes import Child
from helpers.processes import until
from helpers.programs import run_program

pytestmark = pytest.mark.timeout(10)


@pytest.fixture(autouse=True)
def leaves_no_thread():
    before = threading.active_count()
    yield
    until(lambda: threading.active_count() <= before, 2)  # one of a test before may end meanwhile


def test_any_iterable_in_its_order():
    with ReadAhead([None, 0, None]) as ahead:  # None is an item like any other
        assert list(ahead) == [None, 0, None]
        assert list(ahead) == []  # the end stays
        assert ahead.peek("end") == "end"


def test_it_reads_no_further_than_depth():
    source = iter(range(100))
    with ReadAhead(source, depth=3) as ahead:
        until(lambda: source.__length_hint__() <= 97)
        time.sleep(0.03)
        assert source.__length_hint__() == 97
        assert [ahead.peek(), ahead.peek()] == [0, 0]
        ahead.advance()
        assert next(ahead) == 1


@pytest.mark.parametrize("error", [ValueError("record 7"), KeyboardInterrupt(), GeneratorExit()])
def test_an_error_arrives_in_its_turn_with_its_traceback_and_stays(error):
    def source():
        yield 1
        raise error

    with ReadAhead(source(), depth=5) as ahead:
        assert next(ahead) == 1
        for _ in range(3):
            with pytest.raises(type(error)) as caught:
                next(ahead)
            assert caught.value is error
            assert [frame.name for frame in traceback.extract_tb(caught.tb)].count("source") == 1


def test_closing_ends_the_thread_and_wakes_a_consumer_that_waits():
    gate = threading.Event()
    ahead = ReadAhead(iter(lambda: gate.wait(5), None), owner="Feed")
    with ThreadPoolExecutor(1) as threads:
        consumer = threads.submit(next, ahead)
        time.sleep(0.01)
        ahead.stop()
        assert isinstance(consumer.exception(10), StateError)
    gate.set()
    ahead.join()
    for _ in range(2):
        ahead.close()
    for call in (ahead.peek, lambda: next(ahead)):
        with pytest.raises(StateError, match="Feed is closed"):
            call()


def test_closing_does_not_wait_for_ever(monkeypatch):
    monkeypatch.setattr(read_ahead, "JOIN_TIMEOUT_S", 0.05)
    gate = threading.Event()
    ahead = ReadAhead(iter(lambda: gate.wait(5), None), name="Stuck-0")
    with pytest.warns(RuntimeWarning, match="Stuck-0 still waits for callable_iterator"):
        ahead.close()
    gate.set()


def test_the_thread_keeps_no_item_alive():
    with ReadAhead((threading.Event() for _ in range(3)), depth=1) as ahead:
        items = [weakref.ref(item) for item in ahead]
        gc.collect()
        assert [item() for item in items] == [None, None, None]


def test_context_and_gradient_mode_travel_to_the_thread():
    def source():
        yield mx.current_context(), torch.is_grad_enabled()

    with torch.no_grad(), mx.cpu(2), ReadAhead(source()) as ahead:
        assert next(ahead) == (mx.cpu(2), False)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_gets_an_error_instead_of_hanging():
    def use():
        for call in (lambda: next(ahead), ahead.hold, lambda: ahead.paused().__enter__()):
            with pytest.raises(StateError, match="forked child"):
                call()
        ahead.close()

    with ReadAhead(range(5)) as ahead:
        assert Child(use).ok()
        assert list(ahead) == list(range(5))


def test_nothing_is_read_while_paused_and_items_stay():
    def source():
        for number in range(100):
            read.append(number)
            yield number

    read = []
    with ReadAhead(source(), depth=4) as ahead:
        until(lambda: len(read) >= 4)
        with ahead.paused():
            before = len(read)
            found = [next(ahead), next(ahead)]
            time.sleep(0.05)
            assert len(read) == before
        assert [*found, *ahead] == [*range(100)]


def test_the_thread_ends_before_the_process():
    code = """
import atexit, threading, time
atexit.register(lambda: print([t.name for t in threading.enumerate() if t.name == "ReadAhead"]))
from dpmodule.streams.read_ahead import ReadAhead
kept = ReadAhead((time.sleep(0.02) for _ in range(10**6)), depth=10**6)
next(kept)
"""
    done = run_program(code, fresh=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
