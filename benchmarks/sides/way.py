"""Functions of dpmodule that steady work calls: a batch of `Module.fit`, and nine other units of work.

Run as ``python -m benchmarks.sides.way``.
"""

from __future__ import annotations

import asyncio
import logging
import os
import random
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from types import CodeType, FrameType
from typing import Any

import numpy as np

from .serve import serve

__all__ = ["Station", "prepare", "stations", "traces"]

BATCH, BATCHES, FEATURES, HIDDEN, CLASSES = 32, 8, 20, 16, 5
WORDS, LINES = 50, 4
"""Words that texts are made of; lines of a batch from files."""

GENERATED = "<dpmodule program"
"""How the names of files begin that are generated."""

Station = tuple[str, str]
"""A file, from the package's folder on, and the name of a function in it, with its class since Python 3.11."""
Work = Callable[[int], object]
"""Does a number of units of work."""


def stations() -> list[Station]:
    """Return the calls of a batch of two dense layers, one by one, from one call of the iterator to the next.

    The second epoch of `Module.fit` is watched, with its defaults: `NDArrayIter`, accuracy, SGD with momentum. Calls
    are those of Python functions in the package's files, generated ones with them; comprehensions and generators
    count where Python makes frames for them, which it does not for comprehensions from 3.12 on.
    """
    import dpmodule as mx

    with _fit() as fit:
        first = mx.io.NDArrayIter.next.__code__
        with _watched(first) as watch:
            fit(BATCHES)
    return watch.parts[BATCHES // 2]


def traces() -> dict[str, dict[str, float]]:
    """Return what a unit of each kind of work takes: calls, and the files, changes of file and depth of its calls.

    Calls and changes of file are those of twice as much work minus those of once as much, for each unit: what a run
    does once is not counted. Files and depth are those of the whole run.
    """
    found = {}
    for name, (begin, units) in WAYS.items():
        with begin() as work:
            work(units)
            with _watched() as once:
                work(units)
            with _watched() as twice:
                work(2 * units)
        found[name] = {
            "calls": round((len(twice.parts[0]) - len(once.parts[0])) / units, 1),
            "files": len({file for file, _ in twice.parts[0]}),
            "changes of file": round((twice.changes() - once.changes()) / units, 1),
            "depth": twice.depth,
        }
    return found


class _Watch:
    """Notes calls of functions of a folder, from each call of a first function on.

    Args:
        folder: where their files are.
        first: the code that a part begins with; None: there is one part.

    Attributes:
        parts: the calls, part by part.
        depth: the largest number of them that were inside of each other.
    """

    def __init__(self, folder: str, first: CodeType | None) -> None:
        self._folder, self._first = folder, first
        self._open = 0
        self.parts: list[list[Station]] = [[]]
        self.depth = 0

    def changes(self) -> int:
        """Return how often a call of the first part is in another file than the one before."""
        files = [file for file, _ in self.parts[0]]
        return sum(one != other for one, other in zip(files, files[1:]))

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        code, file = frame.f_code, frame.f_code.co_filename
        if event not in ("call", "return") or not file.startswith((self._folder, GENERATED)):
            return
        self._open += 1 if event == "call" else -1
        if event == "return":
            return
        self.depth = max(self.depth, self._open)
        if code is self._first:
            self.parts.append([])
        file = GENERATED + ">" if file.startswith(GENERATED) else file[len(self._folder) :]
        self.parts[-1].append((file, getattr(code, "co_qualname", code.co_name)))


@contextmanager
def _watched(first: CodeType | None = None) -> Iterator[_Watch]:
    """Watch the calls of this thread."""
    import dpmodule as mx

    watch = _Watch(os.path.dirname(mx.__file__) + os.sep, first)
    sys.setprofile(watch)
    try:
        yield watch
    finally:
        sys.setprofile(None)


@contextmanager
def _fit() -> Iterator[Work]:
    """A batch of `Module.fit`."""
    import dpmodule as mx

    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=HIDDEN, name="fc1")
    net = mx.sym.Activation(net, act_type="relu")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=CLASSES, name="fc2"), name="softmax")
    quiet = logging.getLogger("benchmark")
    quiet.setLevel(logging.ERROR)
    module = mx.mod.Module(net, logger=quiet)
    draw = np.random.RandomState(0)

    def work(batches: int) -> None:
        rows = BATCH * batches
        data = mx.io.NDArrayIter(
            draw.rand(rows, FEATURES).astype("f"), draw.randint(0, CLASSES, rows).astype("f"), BATCH
        )
        options = {"eval_metric": "acc", "optimizer_params": {"learning_rate": 0.1, "momentum": 0.9}}
        module.fit(data, num_epoch=1, **options)

    work(BATCHES)
    yield work


@contextmanager
def _autobatch(engine: str) -> Iterator[Work]:
    """A sentence of four words, which an LSTM reads; all sentences are one graph, and one update."""
    import dpmodule.autobatch as dy

    dy.configure(autobatch=True, engine=engine)
    model = dy.ParameterCollection()
    table, weight = model.add_lookup_parameters((WORDS, HIDDEN)), model.add_parameters((CLASSES, HIDDEN))
    reader, trainer = dy.VanillaLSTMBuilder(1, HIDDEN, HIDDEN, model), dy.SimpleSGDTrainer(model)
    draw = random.Random(0)

    def work(sentences: int) -> None:
        dy.renew_cg()
        losses = []
        for _ in range(sentences):
            words = [table[draw.randrange(WORDS)] for _ in range(4)]
            last = reader.initial_state().transduce(words)[-1]
            losses.append(dy.pickneglogsoftmax(weight * last, draw.randrange(CLASSES)))
        total = dy.esum(losses)
        total.forward()
        total.backward()
        trainer.update()

    try:
        yield work
    finally:
        dy.configure(autobatch=False, engine="auto")


_FEED = f"""
batch_size: {LINES}
multi_slot_desc {{
  slots {{ name: "words" type: "uint64" is_used: true }}
  slots {{ name: "label" type: "uint64" is_dense: true is_used: true }}
}}
"""


@contextmanager
def _files(mode: str) -> Iterator[Work]:
    """A batch of four lines of a file, by one worker of `AsyncExecutor`."""
    import dpmodule as mx

    words, label = mx.sym.Variable("words", stype="ragged"), mx.sym.Variable("label", shape=(0,))
    vectors = mx.sym.Embedding(words, input_dim=WORDS, output_dim=HIDDEN, sparse_grad=True)
    hidden = mx.sym.tanh(mx.sym.sequence_pool(vectors, pool_type="sum"))
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(hidden, num_hidden=2), label, name="p")
    module, feed, draw = mx.mod.Module(net, ["words"], ["label"]), mx.DataFeedDesc(_FEED), random.Random(0)
    with tempfile.TemporaryDirectory() as folder, mx.AsyncExecutor() as run:

        def work(batches: int) -> None:
            path = os.path.join(folder, f"{batches}.txt")
            with open(path, "w") as file:
                for _ in range(batches * LINES):
                    numbers = [draw.randrange(WORDS) for _ in range(draw.randint(1, 9))]
                    print(len(numbers), *numbers, 1, numbers[0] % 2, file=file)
            run.run_from_files(module, feed, [path], 1, mode=mode)

        yield work


@contextmanager
def _parleys(task: str, agent: str, **options: Any) -> Iterator[Work]:
    """A parley of an agent in a world; of a Hogwild world what the parent calls."""
    from dpmodule import agents

    opt = {"task": task, "datatype": "train", "seed": 0, **options}
    with agents.create_task(opt, getattr(agents, agent)(opt)) as world:

        def work(parleys: int) -> None:
            for _ in range(parleys):
                world.parley()

        yield work


@contextmanager
def _pipe() -> Iterator[Work]:
    """A message sent and received."""
    import torch

    from dpmodule.streams import tensor_pipe

    reader, writer = tensor_pipe()
    message = {"data": torch.zeros(8, 4), "label": torch.zeros(8)}

    def work(messages: int) -> None:
        for _ in range(messages):
            writer.send(message)
            reader.recv()

    try:
        yield work
    finally:
        writer.close()
        reader.close()


@contextmanager
def _stream() -> Iterator[Work]:
    """An item put into a sorted stream and taken out."""
    from dpmodule.streams import SortedExtendableStream

    async def pass_on(items: int) -> None:
        stream: Any = SortedExtendableStream()
        for item in range(items):
            stream.put(item)
            await anext(stream)

    yield lambda items: asyncio.run(pass_on(items))


WAYS: dict[str, tuple[Callable[[], Any], int]] = {
    "Module.fit: a batch": (_fit, 4),
    "autobatch, native engine: a sentence": (lambda: _autobatch("native"), 8),
    "autobatch, Python engine: a sentence": (lambda: _autobatch("python"), 8),
    "AsyncExecutor, serial: a batch of 4 lines": (lambda: _files("serial"), 4),
    "AsyncExecutor, native: a batch of 4 lines": (lambda: _files("native"), 10),
    "HogwildWorld: a parley, in the parent": (
        lambda: _parleys("docs", "RepeatLabelAgent", numthreads=2),
        20,
    ),
    "DialogPartnerWorld, Starspace: a parley": (lambda: _parleys("docs", "StarspaceAgent"), 20),
    "BatchWorld, RepeatLabel: a parley of 8": (
        lambda: _parleys("docs", "RepeatLabelAgent", batchsize=8),
        4,
    ),
    "tensor_pipe: a message": (_pipe, 10),
    "SortedExtendableStream: an item": (_stream, 10),
}
"""Constructor of each kind of work, and number of units of a run."""


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    import torch

    torch.set_num_threads(1)
    return {"stations": stations, "traces": traces}


if __name__ == "__main__":
    serve(prepare)
