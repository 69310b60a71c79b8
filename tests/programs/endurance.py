"""Do one thing over and over in a process, and say what it holds: ``endurance.py SCENARIO COUNT``.

Prints a line of JSON for what is held after a quarter of the rounds and at their end. The first quarter fills caches.
"""

import asyncio
import ctypes
import gc
import json
import os
import sys
import tempfile
from pathlib import Path

import numpy as np
import torch

import dpmodule as mx
import dpmodule.autobatch as dy
from dpmodule import streams
from dpmodule.agents import Agent, create_task
from helpers.nets import mlp

S = mx.sym


def held():
    """Return the resident memory in KiB, and how many descriptors, threads, children and segments there are."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    status = Path("/proc/self/status").read_text()
    tasks = os.listdir("/proc/self/task")
    children = [Path(f"/proc/self/task/{task}/children").read_text().split() for task in tasks]
    maps = {line.split()[-1] for line in Path("/proc/self/maps").read_text().splitlines()}
    return {
        "memory": next(int(line.split()[1]) for line in status.splitlines() if line.startswith("VmRSS")),
        "descriptors": len(os.listdir("/proc/self/fd")), "threads": len(tasks), "children": sum(map(len, children)),
        "segments": sum("/dev/shm" in name or "memfd" in name for name in maps),
    }  # fmt: skip


def trained(module, data, label):
    module.bind(data, label)
    module.init_params()
    module.init_optimizer(optimizer_params={"momentum": 0.9})
    return module


def perceptron(**options):
    net = mlp(classes=4, hidden=32)
    return trained(mx.mod.Module(net, **options), [("data", (8, 20))], [("softmax_label", (8,))])


def fit():
    """A hundred batches of `fit`, over two contexts, with a metric."""
    rng = np.random.RandomState(0)
    data = mx.io.NDArrayIter(rng.rand(800, 20).astype("f4"), rng.randint(0, 4, 800).astype("f4"), 8)
    module = perceptron(context=[mx.cpu(0), mx.cpu(1)])
    return lambda number: (data.reset(), module.fit(data, num_epoch=1))


def predict():
    """Prediction of a batch of a size that has not been there before."""
    module = perceptron()
    return lambda number: module.predict(np.ones((1 + number, 20), np.float32))


def autobatch():
    """A graph of several sentences, backward and an update."""
    model = dy.ParameterCollection()
    trainer, lstm = dy.SimpleSGDTrainer(model), dy.LSTMBuilder(1, 6, 8, model)
    words, scores = model.add_lookup_parameters((30, 6)), model.add_parameters((30, 8))

    def go(number):
        dy.renew_cg(autobatching=True)
        losses = []
        for length in (3, 5, 2 + number % 4):
            out = lstm.initial_state().transduce([dy.lookup(words, i) for i in range(length)])[-1]
            losses.append(dy.pickneglogsoftmax(scores * out, number % 30))
        dy.esum(losses).backward()
        trainer.update()

    return go


def hogwild_files():
    """A run of `AsyncExecutor` from two files, by two workers."""
    folder = Path(tempfile.mkdtemp())
    files = [str(folder / name) for name in ("a", "b")]
    for name in files:
        Path(name).write_text("2 3 4 1 0\n1 7 1 1\n" * 50)
    feed = mx.DataFeedDesc(
        'batch_size: 8 multi_slot_desc { slots { name: "words" type: "uint64" is_used: true } '
        'slots { name: "label" type: "uint64" is_dense: true is_used: true } }'
    )
    vectors = S.Embedding(S.Variable("words", stype="ragged"), input_dim=10, output_dim=4, sparse_grad=True)
    hidden = S.FullyConnected(S.sequence_pool(vectors, pool_type="sum"), num_hidden=2)
    module = mx.mod.Module(S.SoftmaxOutput(hidden, S.Variable("label", shape=(0,))), ["words"], ["label"])

    def go(number):
        with mx.AsyncExecutor() as run:
            run.run_from_files(module, feed, files, thread_num=2, fetch=[])

    return go


class Parrot(Agent):
    def act(self):
        return {"id": "parrot", "text": self.observation.get("text", "")}


def hogwild_worlds():
    """A `HogwildWorld` of two processes, for an epoch."""

    def go(number):
        opt = {"task": "nocandidate", "datatype": "valid", "numthreads": 2}
        with create_task(opt, Parrot(opt)) as world:
            while not world.epoch_done():
                world.parley()

    return go


async def use(make, *job):
    async with make() as pool:
        await (await pool.assign_job(*job))


def pools():
    """A pool of threads, and one of C++ functors where there is the extension."""

    def go(number):
        asyncio.run(use(lambda: streams.ThreadWorkerPool(2, len), "ab"))
        asyncio.run(use(lambda: streams.CppWorkerPool(2), streams.NoopFunctor()))

    return go


def process_pools():
    """A pool of two processes."""
    make = lambda: streams.ProcessWorkerPool(2, len, start_method="fork")  # noqa: E731
    return lambda number: asyncio.run(use(make, "ab"))


def pipes():
    """A pipe, within one process, and a tensor through it."""

    def go(number):
        reader, writer = streams.tensor_pipe(slots=2)
        with reader, writer:
            writer.send({"data": torch.ones(100), "label": None})
            reader.recv()

    return go


def leaks():
    """Hold a little more in every round, to see that this is seen."""
    kept = []
    return lambda number: kept.append((os.dup(0), bytearray(100_000)))


if __name__ == "__main__":
    run_once, count = globals()[sys.argv[1]](), int(sys.argv[2])
    for number in range(count):
        if number == max(1, count // 4):
            print(json.dumps(held()))
        run_once(number)
    print(json.dumps(held()))
