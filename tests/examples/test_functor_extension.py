"""The example of an extension with a functor of one's own, built and run."""

import shutil
from pathlib import Path

import pytest

from dpmodule import native
from helpers.compiled import compiler
from helpers.gallery import gallery
from helpers.programs import run_file, run_program

EXAMPLE = Path(__file__).parents[2] / "examples" / "streams" / "functor_extension"
CHECKS = """
import asyncio, word_count
from dpmodule import streams
from dpmodule.base import FileFormatError, StateError

async def main():
    with streams.ThreadPool(2) as pool:
        worker = streams.cpp_threaded_worker(pool)
        functor = word_count.WordCount(memoryview(b" the cat\\tthe  dog\\n"))
        for _ in range(2):
            assert await worker(functor) == {b"the": 2, b"cat": 1, b"dog": 1}
        assert await worker(word_count.WordCount(b"")) == {}
        large = word_count.WordCount(b"a b " * 100_000)
        first = worker(large)
        for _ in range(20):
            try:
                worker(large)
            except StateError:
                continue
            raise SystemExit("in two threads at once")
        assert await first == await worker(large) == {b"a": 100_000, b"b": 100_000}
        try:
            await worker(word_count.WordCount(b"x" * 100_000))
        except FileFormatError as error:
            assert "a word of 100000 bytes" in str(error)
        else:
            raise SystemExit("no error")
        try:
            word_count.WordCount("text")
        except TypeError:
            print("as expected")

asyncio.run(main())
"""


def told(done):
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.timeout(120)
@pytest.mark.skipif(native.core is None, reason="functors in C++ need the extension")
@pytest.mark.skipif(compiler() is None, reason="there is no C++ compiler")
def test_it_builds_and_counts_words(tmp_path):
    pytest.importorskip("setuptools")
    folder = tmp_path / "extension"
    shutil.copytree(EXAMPLE, folder)
    told(run_file(folder / "setup.py", "-q", "build_ext", "--inplace", cwd=folder))
    printed = told(run_file(folder / "count_words.py", "--smoke", cwd=folder))
    assert printed.startswith("20000 words in ")
    assert gallery.read(EXAMPLE / "count_words.py").missed(printed.splitlines()[-1], short=True) is None
    assert told(run_program(CHECKS, cwd=folder)) == "as expected\n"
