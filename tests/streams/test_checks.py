"""Arguments of streams and feeds that make no sense are refused by name, before anything is started."""

from __future__ import annotations

import pytest

import dpmodule as mx
from dpmodule.streams import ReadAhead, Supervisor


def _iter(part_index=0, num_parts=1):
    return mx.io.NDArrayIter(mx.nd.ones((4, 2)), batch_size=2)


@pytest.mark.parametrize(
    ("call", "text"),
    [
        (lambda: Supervisor(num_threads="a"), "num_threads is 'a', expected an integer of at least 1"),
        (lambda: Supervisor(grace_s="a"), "grace_s is 'a', expected seconds, 0 or more$"),
        (lambda: Supervisor(grace_s=None), "grace_s is None"),
        (lambda: Supervisor(timeout_s=-1), "timeout_s is -1, expected seconds, 0 or more, or None"),
        (lambda: ReadAhead([], depth=0.5), "depth is 0.5"),
        (
            lambda: mx.io.ProcessPrefetchingIter(_iter, slots="a"),
            "slots is 'a', expected an integer from 1 to",
        ),
        (lambda: mx.io.ProcessPrefetchingIter(_iter, num_workers=2.5), "num_workers is 2.5"),
        (
            lambda: mx.io.ProcessPrefetchingIter(_iter, timeout_s="x"),
            "timeout_s is 'x', expected more than 0",
        ),
        (lambda: mx.io.ProcessPrefetchingIter(_iter, seed="s"), "seed is 's'"),
        (lambda: mx.io.DataLoaderIter([1, 2], batch_size="x"), "batch_size is 'x'"),
        (lambda: mx.io.DataLoaderIter([1, 2], batch_size=1, num_workers=True), "num_workers is True"),
    ],
)
def test_arguments(call, text):
    with pytest.raises(mx.base.ArgumentError, match=text.replace("(", r"\(")):
        call()


def test_a_factory_that_makes_no_iterator():
    with pytest.raises(mx.base.ArgumentError, match="factory returned 7, expected an iterator"):
        mx.io.ProcessPrefetchingIter(lambda part_index, num_parts: 7, start_method="fork")
