"""The functors that the documentation shows for pybind11 and nanobind: compiled as they stand there, and sent."""

import re
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from dpmodule import native
from dpmodule.base import StateError
from dpmodule.streams import ThreadPool, cpp_threaded_worker
from helpers import compiled
from helpers.loops import run
from helpers.programs import TESTS

PAGE = TESTS.parent / "docs" / "streams" / "threads.md"
NAMES = ["sum_pybind11", "sum_nanobind"]
pytestmark = [
    pytest.mark.timeout(120),
    pytest.mark.skipif(native.core is None, reason="functors in C++ need the extension"),
    pytest.mark.skipif(compiled.compiler() is None, reason="there is no C++ compiler"),
]


def needs(name):
    """Return the sources and the flags that a binder needs beside the file of the module."""
    binder = pytest.importorskip(name.removeprefix("sum_"))
    if name == "sum_pybind11":
        return [], [f"-I{binder.get_include()}"]
    folder = Path(binder.source_dir()).parent
    return [folder / "src/nb_combined.cpp"], [f"-I{folder}/include", f"-I{folder}/ext/robin_map/include"]


def build(folder, name):
    (sources, flags), target = needs(name), folder / f"{name}.so"
    compiled.build([folder / f"{name}.cpp", *sources], target, "-O0", "-fno-strict-aliasing", *flags)
    return compiled.load_file(name, target)


async def send_and_send_again(module):
    with ThreadPool(1) as pool:
        worker = cpp_threaded_worker(pool)
        functor = module.Sum(memoryview(b"abc"))
        future = worker(functor)
        with pytest.raises(StateError, match="is still running"):
            worker(functor)
        assert await future == sum(b"abc")
        assert await worker(functor) == sum(b"abc")


def test_functors_of_binders_are_sent_and_sent_again(tmp_path):
    for file, code in re.findall(r"```cpp\n// (\S+)\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL):
        (tmp_path / file).write_text(code)
    with ThreadPoolExecutor() as pool:
        modules = list(pool.map(build, [tmp_path] * 2, NAMES))
    for module in modules:
        run(send_and_send_again(module))
        with pytest.raises(TypeError, match="bytes-like object"):
            module.Sum("text")
