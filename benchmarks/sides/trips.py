"""Tensors that go to another process without being copied, and messages that outgrow their place.

Run as ``python -m benchmarks.sides.trips``.
"""

from __future__ import annotations

import statistics
import time
from typing import Any

import torch

from dpmodule.streams import tensor_pipe

from .pipes import FORK, SLOTS, message
from .serve import serve

__all__ = ["prepare"]


class Echo:
    """There and back: tensors that are not copied go to a child, and a small one comes back.

    Args:
        size: bytes of a message.
        kind: "shared" for tensors in shared memory, "slot" for a slot of the pipe that is filled in place.
    """

    def __init__(self, size: int, kind: str) -> None:
        self._reader, self._writer = tensor_pipe(SLOTS)
        self._answers, self._replies = tensor_pipe(SLOTS)
        self._kind, self._message = kind, message(size)
        if kind == "shared":
            for tensor in self._message.values():
                tensor.share_memory_()
        FORK.Process(target=self._child, daemon=True).start()
        if kind == "slot":
            self._writer.acquire(self._message)
            self._writer.release()

    def _child(self) -> None:
        short = torch.ones(1)
        while True:
            self._reader.recv()
            self._replies.send(short)

    def _trip(self) -> None:
        if self._kind == "slot":
            self._writer.acquire()
            self._writer.commit()
        else:
            self._writer.send(self._message)
        self._answers.recv()

    def measure(self, count: int) -> dict[str, float]:
        """Return the median time of a round trip."""
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            self._trip()
            times.append(time.perf_counter() - begin)
        if self._writer.stats.copied:
            raise SystemExit(f"{self._kind}: tensors were copied, {self._writer.stats}")
        return {"wall": statistics.median(times) * 1e3}


def growing(messages: int, rows: int) -> int:
    """Return the number of messages, each some rows longer than the last, that needed new memory."""
    reader, writer = tensor_pipe(SLOTS)

    def child() -> None:
        for _ in range(messages):
            reader.recv()

    process = FORK.Process(target=child)
    process.start()
    for number in range(messages):
        length = 64 + rows * number
        writer.send({"data": torch.zeros(length, 32), "label": torch.zeros(length), "scale": torch.zeros(1)})
    process.join()
    writer.close()
    return writer.stats.queued


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    torch.set_num_threads(1)
    echoes: dict[tuple[int, str], Echo] = {}

    def trips(size: int, kind: str, count: int) -> dict[str, float]:
        if (size, kind) not in echoes:
            echoes[size, kind] = Echo(size, kind)
        return echoes[size, kind].measure(count)

    return {"trips": trips, "growing": growing}


if __name__ == "__main__":
    serve(prepare)
