"""Uses the functor of the example of an extension; run in the folder where it was built."""

import asyncio
import os
import sys

import pytest

from dpmodule import streams
from dpmodule.base import FileFormatError, StateError

sys.path.insert(0, os.getcwd())
WordCount = __import__("word_count").WordCount


async def main():
    """Count words in one thread, and be refused in two."""
    with streams.ThreadPool(2) as pool:
        worker = streams.cpp_threaded_worker(pool)
        functor = WordCount(memoryview(b" the cat\tthe  dog\n"))
        for _ in range(2):
            assert await worker(functor) == {b"the": 2, b"cat": 1, b"dog": 1}
        assert await worker(WordCount(b"")) == {}
        large = WordCount(b"a b " * 100_000)
        first = worker(large)
        for _ in range(20):
            with pytest.raises(StateError):
                worker(large)
        assert await first == await worker(large) == {b"a": 100_000, b"b": 100_000}
        with pytest.raises(FileFormatError, match="a word of 100000 bytes"):
            await worker(WordCount(b"x" * 100_000))
        with pytest.raises(TypeError):
            WordCount("text")


asyncio.run(main())
print("as expected")
