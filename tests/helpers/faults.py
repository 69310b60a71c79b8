"""Kill trainings, or send them signals, and let them go on; run as a program, prints one JSON line.

    python faults.py kill FOLDER COUNT SEED KIND... [fresh]     COUNT times SIGKILL
    python faults.py signal FOLDER COUNT SEED KIND... [fresh]   COUNT times SIGTERM or Ctrl-C

A training comes at a random batch, or up to 30 ms after it, to its fault; the next process goes on from what is saved,
and comes to the next one, until the training is done. Then its parameters, optimizer and metrics are compared with
those of one that nothing has happened to. This program forks for each of these processes; with "fresh" each of them
imports the package for itself, and decides for itself which kernels it uses.
"""

import contextlib
import gc
import glob
import hashlib
import itertools
import json
import os
import random
import re
import shutil
import signal
import sys
import tempfile
import threading
import time

import torch

from helpers.processes import is_others

torch.set_num_threads(1)
FRESH = "fresh" in sys.argv
EPOCHS, LATEST_S = 3, 0.03


class Here(Exception):
    """Raised in a forked child, with what it is to do."""


class Fault:
    """Counts batches in a file, and lets the fault happen.

    Args:
        prefix: of the training.
        fault: (number of the signal, after how many batches, how many seconds after that), or None.
    """

    def __init__(self, prefix, fault):
        self._number, self._after, self._delay_s = fault or (0, 0, 0)
        self._log = os.open(f"{prefix}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._lock, self.is_over = threading.Lock(), False

    def __call__(self, param):
        self._after -= 1
        os.write(self._log, b"%d %d\n" % (param.epoch, param.nbatch))
        if self._after == 0 and self._delay_s:
            timer = threading.Timer(self._delay_s, self._happen)
            timer.daemon = True
            timer.start()
        elif self._after == 0:
            self._happen()

    def _happen(self):
        with self._lock:
            if not self.is_over:  # a terminal sends Ctrl-C to all processes
                (os.killpg if self._number == signal.SIGINT else os.kill)(os.getpid(), self._number)

    def end(self):
        """Let nothing happen from now on."""
        with self._lock:
            self.is_over = True


def train(kind, prefix, every, fault):
    """Train to the end, from what is saved under a prefix; then write a digest of what has come out."""
    import dpmodule as mx
    from helpers.resumable import KINDS

    class End(mx.callback.Callback):
        def on_fit_end(self, run):
            happens.end()

    mx.random.seed_all(9)
    module, data, options = KINDS[kind]()
    happens = Fault(prefix, fault)
    options |= {"callbacks": [*options.get("callbacks", ()), End()], "batch_end_callback": happens}
    options |= {
        "checkpoint": mx.callback.Checkpoint(prefix, every_n_batches=every, keep_last=2),
        "resume": "auto",
    }
    history = module.fit(data, num_epoch=EPOCHS, initializer=mx.init.Xavier(), **options)
    rows = [{key: value for key, value in row.items() if key != "time_s"} for row in history]
    bits = [array.asnumpy().tobytes() for params in module.get_params() for array in params.values()]
    bits += [states_of(each) for each in module.all_updates()]
    with open(f"{prefix}.digest", "w") as file:
        json.dump([hashlib.sha256(b"".join(bits)).hexdigest(), repr(rows)], file)


def states_of(updates):
    """Return the optimizer's states as bytes."""

    def walk(value):
        if isinstance(value, (list, tuple)):
            return b"".join(map(walk, value))
        return value.asnumpy().tobytes() if hasattr(value, "asnumpy") else b""

    states = updates.active_updater().states
    return b"".join(walk(states[key]) for key in sorted(states, key=str))


def run(kind, prefix, every, fault, errors, temporary):
    """Do in a child what it has been forked for; ends as a program of its own does."""
    os.setsid()
    with open(errors, "w") as file:
        os.dup2(file.fileno(), 2)
    tempfile.tempdir = temporary
    train(kind, prefix, every, fault)


class Training:
    """A training of a kind under a prefix, in one process after another.

    Args:
        kind: one of `KINDS`.
        folder: for its files.
        every: how many batches lie between two saves.

    Attributes:
        wrong: texts about all that was not as it should be.
        back: by how many batches each process went back behind the one before it.
    """

    def __init__(self, kind, folder, every):
        self.kind, self.every = kind, every
        self.folder, self.temporary = os.path.join(folder, "run"), os.path.join(folder, "tmp")
        for path in (self.folder, self.temporary):
            shutil.rmtree(path, ignore_errors=True)
            os.makedirs(path)
        self.prefix = os.path.join(self.folder, "net")
        self.errors = os.path.join(folder, "errors")
        self.wrong, self.back = [], []

    def start(self, fault=None):
        """Run one process; returns how it has ended: its exit code, or minus the signal that killed it."""
        shared = shared_memory()
        pid = os.fork()
        if not pid:
            raise Here(self.kind, self.prefix, self.every, fault, self.errors, self.temporary)
        code = os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])
        number = fault[0] if fault else 0
        if code not in (0, *ENDS[number]):
            with open(self.errors) as file:
                self.say(fault, f"exit code {code}: {file.read()[-1500:]}")
        self.look_for_processes(pid, fault)
        if number != signal.SIGKILL:  # what that leaves goes with the next save
            self.look_for_files(shared, code, fault)
        return code

    def say(self, fault, text):
        self.wrong.append(f"{self.kind}, saved every {self.every}, {fault}: {text}")

    def look_for_processes(self, session, fault):
        """See whether a process is left of what has ended."""
        end = time.monotonic() + 10
        while left := processes_of(session):
            if time.monotonic() > end:
                self.say(fault, f"processes {left} are left")
                for pid in left:
                    with contextlib.suppress(OSError):
                        os.kill(pid, signal.SIGKILL)
            time.sleep(0.002)

    def look_for_files(self, shared, code, fault):
        """See whether there is a checkpoint, and nothing else."""
        names = os.listdir(self.folder)
        left = [*shared_memory() - shared, *os.listdir(self.temporary)]
        left += [name for name in names if not EXPECTED.fullmatch(name)]
        if left:
            self.say(fault, f"beside the checkpoints, in shared memory or of temporary files is left {left}")
        if code and "net-last.run" not in names:
            self.say(fault, f"nothing is saved: {names}")

    def batches(self):
        """Return what batches have been trained on so far, in their order."""
        with contextlib.suppress(FileNotFoundError), open(f"{self.prefix}.log") as file:
            return file.read().splitlines()
        return []

    def digest(self):
        with open(f"{self.prefix}.digest") as file:
            return json.load(file)


ENDS = {
    0: (),
    signal.SIGKILL: (-signal.SIGKILL,),
    signal.SIGTERM: (128 + signal.SIGTERM,),
    signal.SIGINT: (-signal.SIGINT,),  # as Python ends itself after Ctrl-C; a shell makes 130 of it
}
EXPECTED = re.compile(r"net(-symbol\.json|-(\d{4}|last)\.(params|states|run)|\.log|\.digest)")


def processes_of(session):
    """Return the processes of a session that still run."""
    found = []
    for path in glob.glob("/proc/[0-9]*/stat"):
        with contextlib.suppress(OSError), open(path, "rb") as file:
            pid, _, rest = file.read().partition(b" ")
            state, _, _, its_session = rest.rpartition(b")")[2].split()[:4]
            if int(its_session) == session and state != b"Z":
                found.append(int(pid))
    return found


def shared_memory():
    return {name for name in os.listdir("/dev/shm") if not is_others(name)}


def undisturbed(kind, folder):
    """Return the batches and the digest of a training that nothing happens to."""
    training = Training(kind, folder, 5)
    if training.start():
        raise RuntimeError(training.wrong[0])
    return training.batches(), training.digest()


def disturbed(training, draw, count, numbers, whole):
    """Let up to `count` faults happen to a training, and bring it to its end.

    Returns:
        (how many have happened, by how many batches each next process went back).
    """
    (order, wanted), faults, back, code = whole, 0, [], 1
    while code and not training.wrong:
        before, fault = training.batches(), None
        if faults < count:
            delay_s = draw.choice((0, draw.uniform(0, LATEST_S)))
            fault = (draw.choice(numbers), draw.randint(1, len(order) // 4), delay_s)
        code = training.start(fault)
        faults += code != 0
        after = training.batches()[len(before) :]
        if before:
            first = order.index(after[0]) if after else len(order)
            back.append(order.index(before[-1]) + 1 - first)
            if not 0 <= back[-1] <= (training.every if signal.SIGKILL in numbers else 0):
                training.say(fault, f"went back by {back[-1]} batches")
    if not training.wrong and training.digest() != wanted:
        training.say(None, f"other bits: {training.digest()}, not {wanted}")
    return faults, back


def drive(mode, folder, count, seed, *kinds):
    """Let so many faults happen to trainings of these kinds in turn; returns what there is to say about that."""
    if not FRESH:
        import helpers.resumable  # noqa: F401 (for the children)
    gc.freeze()  # else each child looks through, and so copies, all that is imported here when it ends
    numbers = {"kill": [signal.SIGKILL], "signal": [signal.SIGTERM, signal.SIGINT]}[mode]
    draw = random.Random(int(seed))
    found, whole = {"faults": 0, "trainings": 0, "back": [], "wrong": []}, {}
    for kind in itertools.cycle(kinds):
        if found["faults"] >= int(count) or len(found["wrong"]) > 9:
            break
        if kind not in whole:
            whole[kind] = undisturbed(kind, os.path.join(folder, "whole"))
        training = Training(kind, os.path.join(folder, "part"), draw.randint(1, 6))
        faults, back = disturbed(training, draw, int(count) - found["faults"], numbers, whole[kind])
        found["faults"], found["trainings"] = found["faults"] + faults, found["trainings"] + 1
        found["back"] += back
        found["wrong"] += training.wrong
    return found


if __name__ == "__main__":
    mission = None
    try:
        print(json.dumps(drive(*(each for each in sys.argv[1:] if each != "fresh"))))
    except Here as error:
        mission = error.args
    if mission is not None:  # outside any function, so that the child ends as the interpreter ends one
        run(*mission)
