"""StringHandles in extensions of users: taken by functors, and returned by them, without copies."""

import asyncio
import gc
import weakref

import numpy as np
import pytest
import torch

from dpmodule import native
from dpmodule.streams import StringHandle, ThreadPool, cpp_threaded_worker
from helpers import compiled
from helpers.programs import TESTS

if native.core is None or compiled.compiler() is None:
    pytest.skip("functors in C++ need the extension and a compiler", allow_module_level=True)

reverse = compiled.load(TESTS / "native" / "reverse.cpp")


async def test_functor_takes_and_gives_handles():
    tensor = torch.tensor(list(b"tensor"), dtype=torch.uint8).share_memory_()
    sources = [StringHandle(tensor), StringHandle(b"xyztensor")[3:], b"tensor", bytearray(b"tensor")]
    with ThreadPool(2) as pool:
        worker = cpp_threaded_worker(pool)
        for result in await asyncio.gather(*(worker(reverse.reverse(source)) for source in sources)):
            assert (type(result), result, result.source) == (StringHandle, b"rosnet", None)


def test_bytes_come_back_without_a_copy():
    tensor = torch.arange(100, dtype=torch.uint8)
    alive = weakref.ref(tensor)
    capsule, address = reverse.echo(StringHandle(tensor)[10:20])
    assert address == tensor.data_ptr() + 10
    again = StringHandle(capsule)
    assert np.frombuffer(again, np.uint8).ctypes.data == address
    del tensor, capsule
    gc.collect()
    assert (alive() is not None, bytes(again)) == (True, bytes(range(10, 20)))
    del again
    gc.collect()
    assert alive() is None
    with pytest.raises(TypeError):
        reverse.echo("text")
