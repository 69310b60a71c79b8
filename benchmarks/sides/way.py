"""The way of a batch: what a steady step of `Module.fit` calls of dpmodule's own functions.

Run as ``python -m benchmarks.sides.way``.
"""

from __future__ import annotations

import logging
import os
import sys
from types import CodeType, FrameType
from typing import Any

import numpy as np

from .serve import serve

__all__ = ["Station", "prepare", "stations"]

BATCH, BATCHES, FEATURES, HIDDEN, CLASSES = 32, 8, 20, 16, 5

GENERATED = "<dpmodule program"
"""How the names of files begin that are generated."""

Station = tuple[str, str]
"""A file, from the package's folder on, and the name of a function in it, with its class since Python 3.11."""


def stations() -> list[Station]:
    """Return the calls of a batch of two dense layers, one by one, from one call of the iterator to the next.

    The second epoch of `Module.fit` is watched, with its defaults: `NDArrayIter`, accuracy, SGD with momentum. Calls
    are those of Python functions in the package's files, generated ones with them; comprehensions and generators
    count where Python makes frames for them, which it does not for comprehensions from 3.12 on.
    """
    import dpmodule as mx

    net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=HIDDEN, name="fc1")
    net = mx.sym.Activation(net, act_type="relu")
    net = mx.sym.SoftmaxOutput(mx.sym.FullyConnected(net, num_hidden=CLASSES, name="fc2"), name="softmax")
    draw = np.random.RandomState(0)
    rows = BATCH * BATCHES
    data = mx.io.NDArrayIter(
        draw.rand(rows, FEATURES).astype("f"), draw.randint(0, CLASSES, rows).astype("f"), BATCH
    )
    quiet = logging.getLogger("benchmark")
    quiet.setLevel(logging.ERROR)
    module = mx.mod.Module(net, logger=quiet)
    options = {"eval_metric": "acc", "optimizer_params": {"learning_rate": 0.1, "momentum": 0.9}}
    module.fit(data, num_epoch=1, **options)
    watch = _Watch(os.path.dirname(mx.__file__) + os.sep, mx.io.NDArrayIter.next.__code__)
    sys.setprofile(watch)
    try:
        module.fit(data, num_epoch=1, **options)
    finally:
        sys.setprofile(None)
    return watch.batches[BATCHES // 2]


class _Watch:
    """Notes calls of functions of a folder, batch by batch.

    Args:
        folder: where their files are.
        first: the code that a batch begins with.
    """

    def __init__(self, folder: str, first: CodeType) -> None:
        self._folder, self._first = folder, first
        self.batches: list[list[Station]] = [[]]

    def __call__(self, frame: FrameType, event: str, arg: Any) -> None:
        code, file = frame.f_code, frame.f_code.co_filename
        if event != "call" or not file.startswith((self._folder, GENERATED)):
            return
        if code is self._first:
            self.batches.append([])
        file = GENERATED + ">" if file.startswith(GENERATED) else file[len(self._folder) :]
        self.batches[-1].append((file, getattr(code, "co_qualname", code.co_name)))


def prepare() -> dict[str, Any]:
    """Return what the parent may ask for."""
    import torch

    torch.set_num_threads(1)
    return {"stations": stations}


if __name__ == "__main__":
    serve(prepare)
