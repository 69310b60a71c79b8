"""Saves of a checkpoint that are interrupted at every step, or killed at random moments, leave a whole set."""

import os
import random
import shutil
import signal
import sys
import time

import numpy as np
import torch

import dpmodule as mx
from dpmodule import checkpoint
from dpmodule.base import FileError
from helpers.interrupted import interrupted

FOLDER, COUNT, SEED = sys.argv[1], *map(int, sys.argv[2:])
PREFIX = os.path.join(FOLDER, "net")
torch.set_num_threads(1)


def save(version, size=64):
    """Write a version, which the graph, the parameters, the auxiliary and the optimizer states have."""
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=version, name="fc")
    full = mx.nd.full((size,), version)
    checkpoint.save_checkpoint(PREFIX, 7, net, {"w": full}, {"m": full}, states=f"{version} ".encode() * size)


def load():
    net, args, auxs = checkpoint.load_checkpoint(PREFIX, 7)
    numbers = [int(net.attr_dict()["fc"]["num_hidden"]), *map(int, checkpoint.load_states(PREFIX, 7).split())]
    (found,) = {*numbers, *np.unique(args["w"].asnumpy()), *np.unique(auxs["m"].asnumpy())}
    return int(found)


def left_over():
    return len({*os.listdir(FOLDER)} - {"net-symbol.json", "net-0007.params", "net-0007.states"})


def begin():
    shutil.rmtree(FOLDER, ignore_errors=True)
    os.makedirs(FOLDER)
    save(1)


def interrupt(how, last):
    """Save version 2 in a forked process; return how that ended: "done", "killed", "failed", "survived"."""
    child = os.fork()
    if child == 0:
        status = 1
        try:
            with interrupted(how, last) as passed:
                save(2)
            status = 3 if len(passed) >= last else 0
        except FileError as error:
            named = "net" in error.filename or error.filename == FOLDER
            status = 4 if named and error.errno == {"once": 5, "for good": 28}[how] else 1
        finally:
            os._exit(status)
    return {0: "done", 3: "survived", 4: "failed", 9: "killed"}[
        os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    ]


for how in ("kill", "once", "for good"):
    versions = []
    for last in range(1, 200):
        begin()
        ended = interrupt(how, last)
        assert left_over() <= 4  # a temporary for each file, and the journal
        versions.append(load())
        assert versions[-1] == {"failed": 1, "killed": versions[-1]}.get(ended, 2)
        save(3)
        assert (load(), left_over()) == (3, 0)
        if ended == "done":
            break
    assert versions == sorted(versions) or how == "once"  # a later kill does not bring the old set back
    assert set(versions) == {1, 2}
    assert 10 < len(versions) < 199

draw, newest = random.Random(SEED), 1
begin()
start = time.perf_counter()
save(1, size=100_000)
once_s = time.perf_counter() - start
for _ in range(COUNT):
    child = os.fork()
    if child == 0:
        try:
            for version in range(newest + 1, 1 << 30):
                save(version, size=100_000)
        finally:
            os._exit(1)
    time.sleep(draw.uniform(0, 4 * once_s))
    os.kill(child, signal.SIGKILL)
    os.waitpid(child, 0)
    assert left_over() <= 4
    version = load()
    assert version >= newest
    newest = version
assert newest > 3
save(1)
assert left_over() == 0
