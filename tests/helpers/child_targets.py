"""What tests run in child processes; a spawned process can import it, unlike a test file."""

import asyncio
import ctypes
import itertools
import os
import random
import signal
import sys
import threading
import time

import numpy as np
import torch


class UnpicklableError(Exception):
    """Cannot be pickled: what it holds cannot."""

    def __init__(self, text):
        super().__init__(text)
        self.lock = threading.Lock()


class NeedsTwo(Exception):
    """Pickles, but cannot be read again: its constructor wants more than its args."""

    def __init__(self, first, second):
        super().__init__(f"{first} and {second}")


def echo(channel):
    """Send back whatever comes."""
    for number in itertools.count():
        value = channel.recv()
        channel.note("item", number)
        channel.send(value)


def deep(levels):
    if levels:
        deep(levels - 1)
    raise LookupError("at the bottom", 7)


def fail(channel, how, *rest):
    channel.note("step", 3)
    if how == "deep":
        deep(3)
    if how == "unpicklable":
        raise UnpicklableError("has a lock")
    if how == "two":
        raise NeedsTwo("one", "other")
    if how == "os_exit":
        os._exit(rest[0])
    if how == "signal":
        os.kill(os.getpid(), rest[0])
        time.sleep(10)
    if how == "segfault":
        ctypes.string_at(0)
    raise {"exit": SystemExit, "interrupt": KeyboardInterrupt}[how](*rest)


def returns(channel, value):
    return value


def endless(channel):
    channel.note("file a.txt", 17)
    channel.send("begun")
    while True:
        pass


def asleep_in_c(channel, seconds=60):
    """Block in C code that does not let go of the interpreter."""
    channel.send("begun")
    ctypes.PyDLL(None).sleep(seconds)


def facts(channel):
    return channel.index, os.getppid(), torch.get_num_threads(), len(os.listdir("/proc/self/fd"))


def stubborn(channel):
    """Neither a closed channel nor SIGTERM ends this."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel.send("begun")
    while True:
        time.sleep(1)


def signal_facts(channel):
    handlers = [signal.getsignal(number) for number in (signal.SIGINT, signal.SIGUSR1)]
    return handlers, signal.pthread_sigmask(signal.SIG_BLOCK, []), asyncio.run(asyncio.sleep(0, 1))


def worker_job(value, how=None):
    """Do one of the things that a job may do."""
    if how == "exit":
        sys.exit(value)
    if how == "unpicklable":
        return threading.Lock()
    while how == "loop":
        pass
    return value * 2 if how == "double" else value


def fail_before_use(channel, writer):
    raise ValueError("before the pipe was used")


def send_ones(*arguments):
    arguments[-1].send(torch.ones(2))


def draws(channel):
    """Return numbers of every generator of this process."""
    import dpmodule as mx  # which other targets do without

    ours = [mx.nd.random.uniform(shape=(3,), ctx=mx.cpu(i)).asnumpy().tolist() for i in range(2)]
    return [[random.random()], np.random.uniform(size=3).tolist(), torch.rand(3).tolist(), *ours]


# --- ends of pipes


def value_of(i):
    return {"i": torch.tensor(i), "x": [torch.full((1 + i % 50,), float(i)), None]}


def write_values(writer):
    torch.set_num_threads(1)
    with writer:
        for i in range(50):
            writer.send(value_of(i))


def sum_values(reader, answer):
    torch.set_num_threads(1)
    with answer:
        answer.send([torch.tensor(sum(int(value["i"]) for value in reader))])
    reader.close()


def add_on_gpu(reader, answering):
    with answering:
        for value in reader:
            answering.send((value["x"].sum().cpu() + value["host"]).view(1))
            del value
    reader.close()


# --- handles


def answer_handles(connection):
    """Receive handles, say of each what it holds, and again when told that it was written to; then send two."""
    torch.set_num_threads(1)
    for handle in iter(connection.recv, None):
        shared = isinstance(handle.source, torch.Tensor) and handle.source.is_shared()
        connection.send((bytes(handle[:8]), len(handle), shared))
        connection.recv()
        connection.send(bytes(handle[:8]))
    connection.send(type(handle)(b"b" * 65_536))
    connection.send(type(handle)(torch.full((65_536,), 7, dtype=torch.uint8).share_memory_())[9:])
    connection.recv()  # they have come


def report_handle(connection, handle):
    """Say what a handle holds that came as an argument."""
    connection.send((bytes(handle[:4]), len(handle)))
