"""Iterators that tests read in other processes."""

import os
import random
import signal
import time

import numpy as np

import dpmodule as mx

__all__ = ["Bucketed", "Drawing", "Failing", "Slow", "pixels", "rows"]


def rows(part_index, num_parts, count=10, batch_size=2, width=3, **options):
    """Iterate over every num_parts-th of the rows [n, n, n]."""
    numbers = np.arange(part_index, count, num_parts, dtype=np.float32)
    data = np.repeat(numbers[:, None], width, axis=1)
    return mx.io.NDArrayIter(data, numbers, batch_size=batch_size, **options)


class Slow(mx.io.DataIter):
    """A few batches, each after a while that depends on the worker."""

    def __init__(self, part_index, num_parts, batches=4, seconds=0.02, shape=(1, 2), step=100):
        super().__init__(shape[0])
        self.provide_data = [mx.io.DataDesc("data", shape)]
        self.provide_label = [mx.io.DataDesc("softmax_label", shape[:1])]
        self._part, self._batches, self._seconds = part_index, batches, seconds
        self._shape, self._step, self._number = shape, step, 0

    def reset(self):
        self._number = 0

    def next(self):
        if self._number == self._batches:
            raise StopIteration
        time.sleep(self._seconds * (1 - self._part % 2))
        self._number += 1
        value = self._step * self._part + self._number
        return mx.io.DataBatch([mx.nd.full(self._shape, value)], [mx.nd.full(self._shape[:1], value)], pad=0)


def pixels(part_index, num_parts, batches=4, side=256):
    """Return an iterator over large batches."""
    return Slow(part_index, num_parts, batches, 0.0, (8, side * side), 10)


class Failing(Slow):
    """Does something bad instead of one of its batches."""

    def __init__(self, part_index, num_parts, at=2, how="raise", in_part=0, **options):
        super().__init__(part_index, num_parts, seconds=0.0, **options)
        self._at, self._how, self._hit = at, how, part_index == in_part
        if how == "make" and self._hit:
            raise LookupError("cannot be made")
        self._resets = 0

    def reset(self):
        super().reset()
        self._resets += 1

    def next(self):
        if self._hit and self._number == self._at and not self._resets:
            self._fail()
        return super().next()

    def _fail(self):
        if self._how == "raise":
            raise LookupError("no such batch", 5)
        if self._how == "interrupt":
            raise KeyboardInterrupt("of its own")
        while self._how == "loop":
            pass
        os.kill(os.getpid(), signal.SIGKILL if self._how == "kill" else signal.SIGSTOP)


class Bucketed(mx.io.DataIter):
    """Batches of changing length, with everything a batch can carry."""

    default_bucket_key = 8

    def __init__(self, part_index, num_parts, lengths=(2, 8, 4, 3, 8)):
        super().__init__(4)
        self.provide_data = [mx.io.DataDesc("data", (4, 8), layout="NT")]
        self.provide_label = [mx.io.DataDesc("softmax_label", (4, 8), layout="NT")]
        self._lengths, self._part = lengths, part_index
        self._left = list(lengths)

    def reset(self):
        self._left = list(self._lengths)

    def next(self):
        if not self._left:
            raise StopIteration
        length = self._left.pop(0)
        data = mx.nd.full((4, length), length)
        descs = ([mx.io.DataDesc(name, (4, length), layout="NT")] for name in ("data", "softmax_label"))
        batch = mx.io.DataBatch([data], [data + 1], length % 3, np.arange(4) + length, length, *descs)
        batch.rolled_over = True
        batch.note = f"part {self._part}"
        return batch


class Drawing(Slow):
    """Batches of random numbers, one from every generator."""

    def __init__(self, part_index, num_parts, batches=2):
        super().__init__(part_index, num_parts, batches, 0.0, (1, 3))

    def next(self):
        batch = super().next()
        drawn = [random.random(), np.random.rand(), mx.nd.random.uniform(shape=(1,)).asscalar()]
        batch.data = [mx.nd.array([drawn])]
        return batch
