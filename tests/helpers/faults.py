"""Train to the end, from what is saved under a prefix, in a process that a fault may end; a program.

    python faults.py KIND PREFIX EVERY [NUMBER AFTER DELAY_S]

The signal of that number comes so many batches, and seconds after these, from the start. What batches are trained on
stands in PREFIX.log, and a digest of what has come out in PREFIX.digest.
"""

import hashlib
import json
import os
import signal
import sys
import threading

import torch

import dpmodule as mx
from helpers.resumable import KINDS


class Fault:
    """Counts batches in a file, and lets the fault happen."""

    def __init__(self, prefix, number=0, after=0, delay_s=0):
        self._number, self._after, self._delay_s = int(number), int(after), float(delay_s)
        self._log = os.open(f"{prefix}.log", os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._lock, self._is_over = threading.Lock(), False

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
            if not self._is_over:  # a terminal sends Ctrl-C to all processes
                (os.killpg if self._number == signal.SIGINT else os.kill)(os.getpid(), self._number)

    def end(self):
        """Let nothing happen from now on."""
        with self._lock:
            self._is_over = True


def numbers_of(value):
    """Return arrays within lists as bytes."""
    if isinstance(value, (list, tuple)):
        return b"".join(map(numbers_of, value))
    return value.asnumpy().tobytes() if hasattr(value, "asnumpy") else b""


def train(kind, prefix, every, *fault):
    happens = Fault(prefix, *fault)

    class End(mx.callback.Callback):
        def on_fit_end(self, run):
            happens.end()

    mx.random.seed_all(9)
    module, data, options = KINDS[kind]()
    options |= {"callbacks": [*options.get("callbacks", ()), End()], "batch_end_callback": happens}
    checkpoint = mx.callback.Checkpoint(prefix, every_n_batches=int(every), keep_last=2)
    options |= {"checkpoint": checkpoint, "resume": "auto", "initializer": mx.init.Xavier()}
    history = module.fit(data, num_epoch=3, **options)
    rows = [{key: value for key, value in row.items() if key != "time_s"} for row in history]
    states = [each.active_updater().states for each in module.all_updates()]
    bits = [list(each.values()) for each in module.get_params()]
    bits += [[each[key] for key in sorted(each, key=str)] for each in states]
    with open(f"{prefix}.digest", "w") as file:
        json.dump([hashlib.sha256(numbers_of(bits)).hexdigest(), repr(rows)], file)


if __name__ == "__main__":
    os.setsid()
    torch.set_num_threads(1)
    train(*sys.argv[1:])
