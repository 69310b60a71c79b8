"""Whether the extension is here, and what is said where it is not."""

import os
import shutil
import textwrap

import pytest

import dpmodule as mx
from dpmodule import native
from dpmodule.cli.__main__ import main
from helpers import compiled
from helpers.programs import TESTS, run_program

pytestmark = pytest.mark.timeout(120)  # some start programs, which import torch


@pytest.mark.skipif(os.environ.get("DPMODULE_NATIVE") == "0", reason="DPMODULE_NATIVE=0")
@pytest.mark.skipif(compiled.compiler() is None, reason="there is no C++ compiler")
def test_it_is_active_where_there_is_a_compiler():
    """A failed build is swallowed, and everything would run on the slower stand-ins unseen."""
    assert native.available(), native.error


def test_info_says_whether_it_is_active(capsys):
    assert main(["info"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("native"))
    said = line.split(maxsplit=1)[1]
    if native.core is None:
        assert said == f"not active: {native.error}"
    else:
        assert said in ("active", f"active, from the installed package: {native.core.__file__}")


def test_it_can_be_switched_off():
    done = run_program("from dpmodule import native; print(native.core, native.error)", DPMODULE_NATIVE="0")
    assert done.stdout == "None switched off by DPMODULE_NATIVE=0\n"


TREE = """
import importlib, os, shutil, sys
tree, site, extension = sys.argv[1:]
for name in [name for name in sys.modules if name.partition(".")[0] == "dpmodule"]:
    del sys.modules[name]
sys.meta_path = [finder for finder in sys.meta_path if "editable" not in repr(finder)]
sys.path = [tree, *(path for path in sys.path if not os.path.exists(os.path.join(path, "dpmodule"))), site]
from dpmodule import native
assert native.__file__.startswith(tree)

def look():
    importlib.reload(native)
    print(native.core and native.core.__file__.startswith(site), native.error)

look()
shutil.copy(extension, os.path.join(site, "dpmodule"))
os.rename(os.path.join(tree, "dpmodule/native/errors.cpp"), os.path.join(tree, "dpmodule/native/failures.cpp"))
look()
os.rename(os.path.join(tree, "dpmodule/native/failures.cpp"), os.path.join(tree, "dpmodule/native/errors.cpp"))
look()
from dpmodule.cli.__main__ import main
main(["info"])
"""


@pytest.mark.skipif(native.core is None, reason="there is no extension")
@pytest.mark.skipif(not (TESTS.parent / "dpmodule/native/module.cpp").exists(), reason="there are no sources")
def test_a_source_tree_uses_the_installed_extension_of_its_sources(tmp_path):
    tree, site = tmp_path / "tree", tmp_path / "site"
    shutil.copytree(
        TESTS.parent / "dpmodule", tree / "dpmodule", ignore=shutil.ignore_patterns("*.so", "__pycache__")
    )
    (site / "dpmodule").mkdir(parents=True)
    done = run_program(f"import sys; sys.argv[1:] = {[str(tree), str(site), native.core.__file__]}\n{TREE}")
    assert done.returncode == 0, done.stderr
    none, other, same, *info = done.stdout.splitlines()
    build = "install a C++17 compiler and run: pip install -e ."
    begin = f"None Python runs the source tree {tree}, in which no extension was built, and "
    assert none == f"{begin}no package with one is installed; to build one there, {build}"
    assert other.startswith(f"{begin}{site}")
    assert other.endswith(
        "was built from other sources; to use the installed package, start Python in another folder; to build one "
        f"there, {build}"
    )
    assert same == "True None"
    assert any(line.startswith(f"native     active, from the installed package: {site}") for line in info)


def test_the_header_is_found():
    header = os.path.join(mx.get_include(), "dpmodule", "functor.h")
    with open(header) as file:
        assert "namespace dpmodule" in file.read()


def test_neither_an_import_nor_the_extension_needs_asyncio():
    code = "import sys; import dpmodule.native; print('asyncio' in sys.modules)"
    code = f"import torch, sys; before = 'asyncio' in sys.modules; {code.replace('print(', 'print(before, ')}"
    before, after = run_program(code).stdout.split()
    assert before == after


def test_threads_that_ask_first_at_once_wait_for_one_that_loads():
    program = """
        import importlib.util, threading, time
        from dpmodule import native

        find, looking, start, found = importlib.util.find_spec, [], threading.Barrier(4), []

        def slow(name, *rest):  # Python's own fails where another thread has begun to load the module
            looking.append(name)
            time.sleep(0.05)
            return find(name, *rest)

        def ask():
            start.wait()
            found.append(native.core)

        importlib.util.find_spec = slow
        threads = [threading.Thread(target=ask) for _ in range(4)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        assert looking == ["dpmodule._native"], looking
        assert len(found) == 4 and len(set(map(id, found))) == 1, found
    """
    done = run_program(textwrap.dedent(program))
    assert done.returncode == 0, done.stderr
