"""Wrong calls of `dpmodule.streams`, and of iterators that start processes."""

import asyncio
import concurrent.futures
import re

import numpy as np
import torch

import dpmodule as mx
from dpmodule import native, streams
from dpmodule.base import ArgumentError, BoundsError, DTypeError, StateError
from dpmodule.native.string_handle import StringHandle as PythonHandle
from dpmodule.streams import MemcpyFunctor, MultiSlotFunctor, Slot


def iterator(part_index=0, num_parts=1):
    return mx.io.NDArrayIter(mx.nd.ones((4, 2)), batch_size=2)


def in_loop(call):
    """Call a function with a loop that runs."""

    async def main():
        return call()

    return asyncio.run(main())


def of_another_loop():
    loop = asyncio.new_event_loop()
    try:
        COMPLETION().put(loop.create_future())
    finally:
        loop.close()


def refuses(kind, name, *values, error=ArgumentError, text="", first=()):
    """Return rows for values of one argument that are refused by its name."""
    return [
        (lambda v=v: kind(*first, **{name: v}), error, rf"{name} is {re.escape(repr(v))}.*{text}")
        for v in values
    ]


MATRIX = torch.zeros(4, 4, dtype=torch.uint8)
NO_BYTES = [
    ("abc", DTypeError, r"str.*encode"),
    (7, DTypeError, "int, expected bytes"),
    (torch.zeros(3), DTypeError, r"torch.float32.*view\(torch.uint8\)"),
    (MATRIX[:, 1], ArgumentError, "not contiguous; call contiguous"),
    (np.zeros((4, 4), np.uint8)[:, 1], ArgumentError, "ndarray that is not contiguous"),
]
HANDLES = [PythonHandle, *([native.core.StringHandle] if native.core else [])]
RANGES = [
    ({}, "target: 12 bytes from byte 0 on are not inside its 10 bytes"),
    ({"count": 5, "target_offset": -1}, "target: 5 bytes from byte -1"),
    ({"count": 5, "source_offset": 8}, "source: 5 bytes from byte 8 on are not inside its 12 bytes"),
    ({"count": 2**70}, "source: 1180591620717411303424 bytes"),
]
SIDES = [
    (b"abc", b"abc", ArgumentError, "target is bytes, which cannot be written to"),
    ([1, 2], b"ab", DTypeError, "target is list, expected a buffer or a tensor"),
    (bytearray(3), "abc", DTypeError, "source is str"),
    (MATRIX.t(), bytes(16), ArgumentError, "target is a tensor that is not contiguous"),
    (np.zeros((4, 4))[:, ::2], bytes(64), ArgumentError, "target is not contiguous"),
]
WORDS = Slot("words")
POOL, PREFETCH = streams.ProcessWorkerPool, mx.io.ProcessPrefetchingIter
STREAM, COMPLETION = streams.SortedExtendableStream, streams.CompletionExtendableStream

ROWS = [
    # streams and pools
    *[(lambda e=e: STREAM().throw(e), ArgumentError, "SortedExtendableStream.throw") for e in ("text", int)],
    (lambda: in_loop(lambda: COMPLETION().put(5)), ArgumentError, "int cannot be awaited"),
    (lambda: in_loop(of_another_loop), ArgumentError, "belongs to another event loop"),
    (
        lambda: COMPLETION().put(concurrent.futures.Future()),
        StateError,
        "no event loop.*put_threadsafe in others",
    ),
    (lambda: streams.BaseAsyncExtendableStream(), TypeError, "abstract"),
    *refuses(streams.BaseAsyncWorkerPool, "workers_count", 0, "2"),
    (lambda: streams.ThreadWorkerPool(2, 5), ArgumentError, "ThreadWorkerPool: function is 5"),
    (lambda: POOL(0, len), ArgumentError, "workers_count is 0"),
    (lambda: POOL(1, 5), ArgumentError, "function is 5"),
    *refuses(POOL, "start_method", "thread", first=(1, len)),
    *refuses(POOL, "timeout_s", -1, first=(1, len)),
    (lambda: streams.ThreadPool(0), ArgumentError, "threads=0, expected 1 to 4096"),
    (lambda: streams.ThreadPool(5000), ArgumentError, "threads=5000, expected 1 to 4096"),
    *refuses(streams.ThreadPool, "threads", "2", text="expected an integer"),
    (lambda: streams.cpp_threaded_worker(3), ArgumentError, "pool is 3, expected a ThreadPool"),
    *refuses(streams.ReadAhead, "depth", 0, 0.5, first=([],)),
    *[
        (
            lambda saved=saved: saved().load_state_dict(streams.DataLoader([1, 2, 3]).state_dict()),
            ArgumentError,
            text,
        )
        for saved, text in (
            (
                lambda: streams.DataLoader([1, 2, 3], batch_size=2),
                "its batch_size is 1, that of this loader 2",
            ),
            (lambda: streams.DataLoader([1, 2]), "its number of examples is 3, that of this loader 2"),
            (
                lambda: streams.DataLoader([1, 2, 3], shuffle=True),
                "SequentialSampler, that of this loader Random",
            ),
        )
    ],
    # child processes
    *refuses(streams.Supervisor, "start_method", "thread", text="expected one of spawn, fork"),
    *refuses(streams.Supervisor, "num_threads", 0, "a", text="expected an integer of at least 1"),
    *refuses(streams.Supervisor, "grace_s", -1, "a", text="expected seconds, 0 or more$"),
    *refuses(streams.Supervisor, "timeout_s", -1, float("nan"), text="expected seconds, 0 or more, or None"),
    *refuses(streams.Supervisor, "start_timeout_s", -1, None),
    (lambda: streams.Supervisor().start(3), ArgumentError, "target is 3, expected a function"),
    *refuses(PREFETCH, "slots", "a", text="expected an integer from 1", first=(iterator,)),
    *refuses(PREFETCH, "num_workers", 2.5, first=(iterator,)),
    *refuses(PREFETCH, "timeout_s", "x", text="expected more than 0", first=(iterator,)),
    *refuses(PREFETCH, "seed", "s", first=(iterator,)),
    *refuses(mx.io.DataLoaderIter, "batch_size", "x", first=([1, 2],)),
    *refuses(lambda **o: mx.io.DataLoaderIter([1, 2], 1, **o), "num_workers", True),
    (
        lambda: PREFETCH(lambda: iterator),
        ArgumentError,
        "keywords part_index and num_parts, which .* does not take",
    ),
    (lambda: PREFETCH(lambda *_, **o: 7, start_method="fork"), ArgumentError, "factory returned 7, expected"),
    # pipes
    (lambda: streams.tensor_pipe(slots=65), ArgumentError, "slots must be an int in 1..64, got 65"),
    (lambda: streams.tensor_pipe(slots=1.5), ArgumentError, "slots must be an int in 1..64, got 1.5"),
    (lambda: streams.tensor_pipe(slack=0.5), ArgumentError, "slack must be a number in 1..16, got 0.5"),
    (lambda: streams.tensor_pipe(slack="x"), ArgumentError, "slack must be a number in 1..16, got 'x'"),
    # functors and handles
    *[(lambda k=k, d=d: k(d), error, text) for k in HANDLES for d, error, text in NO_BYTES],
    *refuses(streams.CompressFunctor, "format", "bzip2", "auto", text="'gzip', 'zlib' or", first=(b"",)),
    *refuses(streams.CompressFunctor, "level", 10, True, first=(b"",)),
    *refuses(streams.DecompressFunctor, "format", "lzma", text="expected 'auto'", first=(b"",)),
    *refuses(streams.DecompressFunctor, "max_bytes", -1, error=BoundsError, first=(b"",)),
    *refuses(streams.DecompressFunctor, "max_bytes", 1.5, text="expected an integer", first=(b"",)),
    *refuses(streams.Crc32cFunctor, "value", 2**32, 1.0, text="expected an integer", first=(b"",)),
    *refuses(streams.RecordsFunctor, "offset", -1, error=BoundsError, first=(b"",)),
    *refuses(streams.RecordsFunctor, "offset", 1.5, first=(b"",)),
    *[(lambda o=o: MemcpyFunctor(bytearray(10), bytes(12), **o), BoundsError, text) for o, text in RANGES],
    *[(lambda t=t, s=s: MemcpyFunctor(t, s), error, text) for t, s, error, text in SIDES],
    (lambda: MultiSlotFunctor(b"", []), ArgumentError, r"slots are \[\], expected one or more"),
    (lambda: MultiSlotFunctor(b"", [WORDS, WORDS]), ArgumentError, r"\['words', 'words'\], expected"),
    (lambda: MultiSlotFunctor(b"", ["words"]), ArgumentError, r"contains 'words', expected Slot\('name'"),
    *refuses(MultiSlotFunctor, "first_line", -1, error=BoundsError, first=(b"", [WORDS])),
    *refuses(Slot, "name", 7, text="expected text"),
    *refuses(Slot, "type", "int", text="expected 'uint64' or 'float'", first=("a",)),
    *refuses(Slot, "width", 2, text="expected an integer from 1", first=("a",)),
    (lambda: Slot("a", is_dense=True, width=0), ArgumentError, "slot 'a': width is 0, expected"),
]
