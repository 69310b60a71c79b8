"""What tests run in child processes; a spawned process can import it, unlike a test file."""

import ctypes
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


def echo(channel, what="item"):
    """Send back whatever comes."""
    number = 0
    while True:
        value = channel.recv()
        channel.note(what, number)
        channel.send(value)
        number += 1


def fill_and_echo(channel, shared):
    """Write into shared memory, then send back whatever comes."""
    shared += 1
    echo(channel)


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
    if how == "exit":
        sys.exit(rest[0])
    if how == "os_exit":
        os._exit(rest[0])
    if how == "signal":
        os.kill(os.getpid(), rest[0])
        time.sleep(10)
    if how == "segfault":
        ctypes.string_at(0)
    if how == "interrupt":
        raise KeyboardInterrupt


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


def stubborn(channel):
    """Neither a closed channel nor SIGTERM ends this."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    channel.send("begun")
    while True:
        time.sleep(1)


def facts(channel):
    return {
        "pid": os.getpid(),
        "parent": os.getppid(),
        "threads": torch.get_num_threads(),
        "name": channel.name,
        "index": channel.index,
        "fds": len(os.listdir("/proc/self/fd")),
    }


def signal_facts(channel):
    import asyncio

    async def one():
        return 1

    return {
        "int": signal.getsignal(signal.SIGINT) == signal.SIG_IGN,
        "usr1": signal.getsignal(signal.SIGUSR1) == signal.SIG_DFL,
        "mask": sorted(signal.pthread_sigmask(signal.SIG_BLOCK, [])),
        "loop": asyncio.run(one()),
    }


class Counter:
    """A job with a state: counts its calls."""

    def __init__(self):
        self.count = 0

    def __call__(self, step=1):
        self.count += step
        return self.count


def worker_job(value, how=None):
    """Do one of the things that a job may do."""
    if how == "fail":
        deep(value)
    if how == "sleep":
        time.sleep(value)
    if how == "exit":
        sys.exit(value)
    if how == "loop":
        while True:
            pass
    if how == "unpicklable":
        return threading.Lock()
    if how == "pid":
        return os.getpid()
    if how == "double":
        return value * 2
    return value


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


def sleep(*_):
    time.sleep(60)


def add_on_gpu(reader, answering):
    with answering:
        for value in reader:
            answering.send((value["x"].sum().cpu() + value["host"]).view(1))
            del value
    reader.close()


# --- handles


def answer_handles(connection):
    """Receive handles; say of each what it holds, then once more when told that it was written to."""
    torch.set_num_threads(1)
    for handle in iter(connection.recv, None):
        shared = isinstance(handle.source, torch.Tensor) and handle.source.is_shared()
        connection.send((bytes(handle[:8]), len(handle), shared))
        connection.recv()
        connection.send(bytes(handle[:8]))
    connection.send("done")


def give_handles(connection, size):
    """Send a handle over bytes, one over a shared tensor, and wait until they are no longer needed."""
    from dpmodule.streams import StringHandle

    torch.set_num_threads(1)
    connection.send(StringHandle(b"b" * size))
    connection.send(StringHandle(torch.full((size,), 7, dtype=torch.uint8).share_memory_())[size // 2 :])
    connection.recv()


def report_handle(connection, handle):
    """Say what a handle holds that came as an argument."""
    connection.send((bytes(handle[:4]), len(handle)))
