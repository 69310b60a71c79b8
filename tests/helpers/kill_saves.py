"""Interrupt `save_checkpoint` at every step or at random moments; run as a program, prints one JSON line.

    python kill_saves.py steps FOLDER            a process dies at step 1, 2, 3, ... of a save
    python kill_saves.py errors FOLDER           step 1, 2, 3, ... fails: once with EIO, for good with ENOSPC
    python kill_saves.py kill FOLDER COUNT SEED  SIGKILL at COUNT random moments of a loop of saves

A save has a version, which stands in the graph, the parameters, the auxiliary and the optimizer states.
Processes are forked: this program imports the package once and starts no thread.
"""

import errno
import json
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

torch.set_num_threads(1)
STEPS = ("open", "fsync", "replace", "unlink", "chmod")


def save(prefix, version, size=64):
    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=version, name="fc")
    full = np.full(size, version, np.float32)
    states = str(version).encode() * size
    checkpoint.save_checkpoint(
        prefix, 7, net, {"w": mx.nd.array(full)}, {"m": mx.nd.array(full)}, states=states
    )


def load(prefix):
    """Return the version that all parts have, or the versions of the parts if they differ."""
    net, args, auxs = checkpoint.load_checkpoint(prefix, 7)
    states = checkpoint.load_states(prefix, 7)
    found = {int(net.attr_dict()["fc"]["num_hidden"])}
    for array in (args["w"].asnumpy(), auxs["m"].asnumpy()):
        found |= {int(value) for value in np.unique(array)}
    first = int(states[: len(str(max(found)))])
    found |= {first} if states == str(first).encode() * args["w"].size else {-1}
    return found.pop() if len(found) == 1 else sorted(found)


def leftovers(prefix):
    plain = {"net-symbol.json", "net-0007.params", "net-0007.states"}
    return sorted(set(os.listdir(os.path.dirname(prefix))) - plain)


class CountedFile:
    """A file whose writes are steps; a step that fails leaves half of the data."""

    def __init__(self, file, step):
        self._file = file
        self._step = step

    def write(self, data):
        half = memoryview(data).cast("B")[: len(data) // 2]
        self._step(lambda: (self._file.write(half), self._file.flush()))
        return self._file.write(data)

    def __getattr__(self, name):
        return getattr(self._file, name)


def patch(on_step):
    """Call `on_step(name, before_failing)` before each file operation; return a function that undoes it."""
    original = {name: getattr(os, name) for name in (*STEPS, "fdopen")}

    def counted(name):
        def call(*args, **kwargs):
            on_step(name, lambda: None)
            return original[name](*args, **kwargs)

        return call

    for name in STEPS:
        setattr(os, name, counted(name))
    os.fdopen = lambda *args: CountedFile(original["fdopen"](*args), lambda half: on_step("write", half))
    return lambda: [setattr(os, name, function) for name, function in original.items()]


def in_child(function):
    """Run a function in a forked process; return its exit status."""
    child = os.fork()
    if child == 0:
        try:
            function()
        except BaseException:
            os._exit(1)
        os._exit(0)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def steps(folder):
    versions, most = [], 0
    for last in range(1, 200):
        prefix = fresh(folder)

        def die(prefix=prefix, last=last):
            count = iter(range(1, 1000))

            def on_step(name, half):
                if next(count) == last:
                    half()
                    os._exit(9)

            patch(on_step)
            save(prefix, 2)

        status = in_child(die)
        most = max(most, len(leftovers(prefix)))
        versions.append(load(prefix))
        save(prefix, 3)
        if load(prefix) != 3 or leftovers(prefix):
            versions.append(["after", load(prefix), leftovers(prefix)])
        if status == 0:
            return {"versions": versions, "most_leftovers": most}
    raise RuntimeError("a save has no end")


def errors(folder):
    outcomes = []
    for code, names in ((errno.EIO, (*STEPS, "write")), (errno.ENOSPC, ("open", "write", "fsync"))):
        for last in range(1, 200):
            prefix = fresh(folder)
            seen, failed = [], []

            def on_step(name, half, code=code, names=names, last=last, seen=seen, failed=failed):
                if name in names:
                    seen.append(name)
                    if len(seen) == last or (code == errno.ENOSPC and len(seen) > last):
                        failed.append(name)
                        half()
                        raise OSError(code, os.strerror(code))

            undo = patch(on_step)
            raised = None
            try:
                save(prefix, 2)
            except OSError as error:
                raised = [type(error).__name__, error.errno, str(error.filename)]
            finally:
                undo()
            if not failed:
                break
            outcomes.append({"step": failed[0], "code": code, "raised": raised, "version": load(prefix)})
    return {"outcomes": outcomes}


def kill(folder, count, seed):
    draw = random.Random(seed)
    prefix = fresh(folder)
    versions, torn, most = [1], [], 0
    start = time.perf_counter()
    save(prefix, 1, size=100_000)
    once_s = time.perf_counter() - start
    for _ in range(count):
        child = os.fork()
        if child == 0:
            try:
                for version in range(versions[-1] + 1, 1 << 30):
                    save(prefix, version, size=100_000)
            finally:
                os._exit(1)
        time.sleep(draw.uniform(0, 4 * once_s))
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
        most = max(most, len(leftovers(prefix)))
        version = load(prefix)
        if isinstance(version, list) or version < versions[-1]:
            torn.append(version)
        else:
            versions.append(version)
    save(prefix, 1, size=8)
    return {"kills": count, "torn": torn, "last": versions[-1], "most": most, "left": leftovers(prefix)}


def fresh(folder):
    shutil.rmtree(folder, ignore_errors=True)
    os.makedirs(folder)
    prefix = os.path.join(folder, "net")
    save(prefix, 1)
    return prefix


if __name__ == "__main__":
    mode, target, *numbers = sys.argv[1:]
    print(json.dumps(globals()[mode](target, *map(int, numbers))))
