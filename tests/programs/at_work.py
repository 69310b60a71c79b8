"""Have processes at work for every system that starts some: see `begin`.

Each process at work, or the program that it waits for, leaves a file of its number in the folder ``AT_WORK``.
"""

import asyncio
import json
import os
import threading
import time
from pathlib import Path

import numpy as np
import torch

import dpmodule as mx
from dpmodule import streams
from dpmodule.agents import Agent, create_task
from helpers.hogwild import dense_module, described
from helpers.processes import descendants


def work(*_):
    """Say that this process is at work, and never end."""
    Path(os.environ["AT_WORK"], str(os.getpid())).touch()
    time.sleep(600)


def at_work():
    """Count those that have said so."""
    return sum(name.isdigit() for name in os.listdir(os.environ["AT_WORK"]))


def pool(method):
    """A pool of two processes, which have a job each."""

    async def give(kept):
        await kept.__aenter__()
        for _ in range(2):
            await kept.assign_job(None)

    kept, loop = streams.ProcessWorkerPool(2, work, start_method=method), asyncio.new_event_loop()
    loop.run_until_complete(give(kept))
    return kept, loop


def send_on(_, writer):
    """Send until the pipe is full, and wait then."""
    Path(os.environ["AT_WORK"], str(os.getpid())).touch()
    while True:
        writer.send(torch.ones(100_000))


def pipe(method):
    """A child at the other end of a pipe."""
    reader, writer = streams.tensor_pipe()
    supervisor = streams.Supervisor("sender", start_method=method)
    supervisor.start(send_on, writer)
    return reader, supervisor


class Rows(mx.io.NDArrayIter):
    """An iterator whose first batch never comes."""

    def __init__(self):
        super().__init__(np.zeros((4, 2)))

    next = work


def iterator(method):
    """An iterator in two processes."""
    return mx.io.ProcessPrefetchingIter([Rows, Rows], start_method=method)


class Examples:
    """A dataset whose third example never comes."""

    def __len__(self):
        return 4

    def __getitem__(self, number):
        return (torch.zeros(2), 0) if number < 2 else work()


def loader(method):
    """A dataset in a process."""
    return mx.io.DataLoaderIter(Examples(), batch_size=2, num_workers=1, start_method=method)


class Thinker(Agent):
    act = work


def world(method):
    """A `HogwildWorld` of two processes."""
    mode = "spawn" if method == "forkserver" else method
    opt = {"task": "nocandidate", "datatype": "valid", "numthreads": 2, "hogwild_mode": mode}
    made = create_task(opt, Thinker(opt))
    for _ in range(2):
        threading.Thread(target=made.parley, daemon=True).start()
    return made


def training(method, mode="process", workers=2):
    """An `AsyncExecutor` with workers for each of which a program reads a file."""
    folder = Path(os.environ["AT_WORK"])
    files = [str(folder / name) for name in ("a", "b")]
    for name in files:
        Path(name).touch()
    text = described(x="float dense", label="uint64 dense").desc()
    # more than a pipe holds, so that it goes on only when it is being read
    command = f"sh -c 'head -c 100000 /dev/zero; : > {folder}/$$; exec sleep 600'"
    feed = mx.DataFeedDesc(text.replace('"cat"', f'"{command}"'), allow_pipe_command=True)
    module = dense_module()
    module.bind([("x", (8, 4))], [("label", (8,))])
    module.init_params()
    run = mx.AsyncExecutor(start_method=method)
    call, options = run.run_from_files, {"mode": mode}
    threading.Thread(target=call, args=(module, feed, files, workers), kwargs=options, daemon=True).start()
    return run


def program(method):
    """An `AsyncExecutor` in this process with a program that reads a file."""
    return training(method, "serial", 1)


SYSTEMS = {pool: 2, pipe: 1, iterator: 2, loader: 1, world: 2, training: 2, program: 1}
"""What has processes at work, and how many of them say so."""


def begin(method):
    """Print a line of JSON with the processes of each system, and wait to be killed."""
    kept, found = [], {}
    for system, count in SYSTEMS.items():
        before, expected = descendants(), at_work() + count
        kept.append(system(method))
        while at_work() < expected:
            time.sleep(0.002)
        found[system.__name__] = sorted(descendants() - before)
    print(json.dumps(found, separators=(",", ":")), flush=True)
    time.sleep(600)
