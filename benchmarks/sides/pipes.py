"""A dict of tensors sent to another process, again and again, by several systems.

Run as ``python -m benchmarks.sides.pipes SYSTEM``, one of `SYSTEMS`.
"""

from __future__ import annotations

import asyncio
import ctypes
import mmap
import multiprocessing
import os
import sys
from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any

import torch
import torch.multiprocessing

from dpmodule.streams import tensor_pipe

from .serve import Clock, serve

__all__ = ["FORK", "SLOTS", "SYSTEMS", "message", "prepare"]

LEAVES, SLOTS = 8, 2
FORK = multiprocessing.get_context("fork")

Message = dict[str, torch.Tensor]


def message(size: int) -> Message:
    """Return a message of so many bytes in all."""
    length = size // LEAVES // 4
    return {f"t{i}": torch.arange(i, i + length, dtype=torch.float32) for i in range(LEAVES)}


class Link(ABC):
    """A connection to a child process, which receives a requested number of messages and then confirms.

    Args:
        size: bytes of a message.
    """

    def __init__(self, size: int) -> None:
        self.size, self.message = size, message(size)
        requests, self._tell = os.pipe()
        self._answer, answer = os.pipe()
        self._make()
        self._process = FORK.Process(target=self._child, args=(requests, answer), daemon=True)
        self._process.start()  # as a daemon it ends with this process
        os.close(requests)
        os.close(answer)
        try:
            self._check()
        except BaseException:
            self.close()
            raise

    def _child(self, requests: int, answer: int) -> None:
        os.close(self._tell)
        os.close(self._answer)
        first = True
        while count := int.from_bytes(os.read(requests, 8), "little"):
            if first:
                right, first = self._same(self._receive_one()), False
                count -= 1
                os.write(answer, b"." if right else b"?")
            if count:
                self._receive(count)
                os.write(answer, b".")

    def _same(self, found: Message) -> bool:
        wanted = message(self.size)
        return list(found) == list(wanted) and all(torch.equal(found[key], wanted[key]) for key in wanted)

    def _check(self) -> None:
        os.write(self._tell, (1).to_bytes(8, "little"))
        self._send(1)
        if os.read(self._answer, 1) != b".":
            raise SystemExit(f"{type(self).__name__}: the other process got another message than was sent")

    def measure(self, count: int) -> dict[str, float]:
        """Return the time of a message, from the first call until the other process says that all have come."""
        self._prepare(count)
        os.write(self._tell, count.to_bytes(8, "little"))
        clock = Clock()
        self._send(count)
        os.read(self._answer, 1)
        return clock.read(count)

    def close(self) -> None:
        """End the child."""
        os.write(self._tell, bytes(8))
        self._process.join()
        os.close(self._tell)
        os.close(self._answer)

    @abstractmethod
    def _make(self) -> None:
        """Make what both processes share."""

    def _prepare(self, count: int) -> None:
        """Get ready for sending without being timed."""
        del count

    @abstractmethod
    def _send(self, count: int) -> None:
        """Send messages."""

    def _receive_one(self) -> Message:
        return self._receive(1)

    @abstractmethod
    def _receive(self, count: int) -> Any:
        """Receive messages, drop them, and return the last one; runs in the child."""


class Pipe(Link):
    """A TensorPipe with blocking calls."""

    def _make(self) -> None:
        self._reader, self._writer = tensor_pipe(SLOTS)

    def close(self) -> None:
        """End the child and the pipe."""
        super().close()
        self._reader.close()
        self._writer.close()

    def _send(self, count: int) -> None:
        for _ in range(count):
            self._writer.send(self.message)

    def _receive(self, count: int) -> Any:
        for _ in range(count - 1):
            self._reader.recv()
        return self._reader.recv()


class AsyncPipe(Pipe):
    """A TensorPipe with coroutines."""

    def _send(self, count: int) -> None:
        async def send() -> None:
            for _ in range(count):
                await self._writer.coro_send(self.message)

        asyncio.run(send())

    def _receive(self, count: int) -> Any:
        async def receive() -> Any:
            for _ in range(count - 1):
                await self._reader.coro_recv()
            return await self._reader.coro_recv()

        return asyncio.run(receive())


class Ring(Link):
    """A bare ring in shared memory: one layout for ever, a memmove per tensor, and two eventfds."""

    def _make(self) -> None:
        memory = torch.frombuffer(mmap.mmap(-1, SLOTS * self.size), dtype=torch.float32)
        parts = memory.view(SLOTS, LEAVES, -1)
        self._views = [{key: slot[i] for i, key in enumerate(self.message)} for slot in parts]
        self._targets = [[part.data_ptr() for part in slot] for slot in parts]
        self._free, self._full = (os.eventfd(each, os.EFD_SEMAPHORE) for each in (SLOTS, 0))
        self._slot = 0  # of the next message, in either process

    def _next(self) -> int:
        slot, self._slot = self._slot, (self._slot + 1) % SLOTS
        return slot

    def _send(self, count: int) -> None:
        size = self.size // LEAVES
        for _ in range(count):
            os.eventfd_read(self._free)
            for target, tensor in zip(self._targets[self._next()], self.message.values(), strict=True):
                ctypes.memmove(target, tensor.data_ptr(), size)
            os.eventfd_write(self._full, 1)

    def close(self) -> None:
        """End the child and the signals."""
        super().close()
        os.close(self._free)
        os.close(self._full)

    def _receive(self, count: int) -> Any:
        found: Any = None
        for _ in range(count):
            os.eventfd_read(self._full)
            found = self._views[self._next()]
            os.eventfd_write(self._free, 1)  # a computing receiver would do so earlier
        return found


class Queue(Link):
    """`torch.multiprocessing.Queue`, which moves what it is given into shared memory of its own."""

    def _make(self) -> None:
        torch.multiprocessing.set_sharing_strategy("file_descriptor")
        self._queue = torch.multiprocessing.get_context("fork").Queue(SLOTS)
        self._fresh = [self._copy()]

    def _copy(self) -> Message:
        return {key: tensor.clone() for key, tensor in self.message.items()}

    def _prepare(self, count: int) -> None:
        # tensors that have been sent once are shared, and later sends would not send them
        self._fresh = [self._copy() for _ in range(count)]

    def _send(self, count: int) -> None:
        for _ in range(count):
            self._queue.put(self._fresh.pop())

    def close(self) -> None:
        """End the child and the queue."""
        super().close()
        self._queue.close()
        self._queue.join_thread()

    def _receive(self, count: int) -> Any:
        for _ in range(count - 1):
            self._queue.get()
        return self._queue.get()


SYSTEMS: dict[str, Callable[[int], Link]] = {
    "pipe": Pipe,
    "async": AsyncPipe,
    "ring": Ring,
    "queue": Queue,
}


def prepare() -> dict[str, Any]:
    """Return the requests that the parent may make."""
    torch.set_num_threads(1)
    links: dict[int, Link] = {}

    def messages(size: int, count: int) -> dict[str, float]:
        if size not in links:
            links[size] = SYSTEMS[sys.argv[1]](size)
        return links[size].measure(count)

    return {"messages": messages}


if __name__ == "__main__":
    serve(prepare)
