"""Run the command; Ctrl-C comes at a place, the number of a call of it, some times."""

import os
import signal
import sys

import dpmodule as mx
from dpmodule.cli import agents
from dpmodule.cli.__main__ import main

place, count, times = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
sys.argv[1:4] = []
calls = []


def interrupt(original):
    def call(*args, **options):
        calls.append(1)
        if len(calls) == count:
            for _ in range(times):
                os.kill(os.getpid(), signal.SIGINT)
        return original(*args, **options)

    return call


where, name = {
    "batch": (mx.callback.Callback, "on_batch_end"),
    "first batch": (mx.mod.Module, "forward_backward"),
    "save": (mx.checkpoint, "save_checkpoint"),
    "parley": (agents, "step"),
}[place]
setattr(where, name, interrupt(getattr(where, name)))
sys.exit(main())
