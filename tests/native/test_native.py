"""Whether the extension is here, and how a program without one finds it."""

import os
import shutil

import pytest

import dpmodule as mx
from dpmodule import native
from helpers import compiled
from helpers.programs import TESTS, run_file, run_program

pytestmark = pytest.mark.timeout(120)  # some start programs, which import torch


@pytest.mark.skipif(os.environ.get("DPMODULE_NATIVE") == "0", reason="DPMODULE_NATIVE=0")
@pytest.mark.skipif(compiled.compiler() is None, reason="there is no C++ compiler")
def test_it_is_active_where_there_is_a_compiler():
    """A failed build is swallowed, and everything would run on the slower stand-ins unseen."""
    assert native.available(), native.error


def test_it_can_be_switched_off_and_needs_no_asyncio():
    done = run_program("from dpmodule import native; print(native.core, native.error)", DPMODULE_NATIVE="0")
    assert done.stdout == "None switched off by DPMODULE_NATIVE=0\n"
    told = "print('asyncio' in sys.modules)"
    before, after = run_program(f"import sys, torch; {told}; import dpmodule.native; {told}").stdout.split()
    assert before == after


def test_unknown_instructions_are_refused():
    done = run_program("from dpmodule import native; native.core", DPMODULE_ISA="sse")
    assert done.stderr.endswith("ArgumentError: DPMODULE_ISA is 'sse', expected plain, avx2 or avx512\n")


@pytest.mark.skipif(native.core is None, reason="there is no extension")
@pytest.mark.skipif(not (TESTS.parent / "dpmodule/native/module.cpp").exists(), reason="there are no sources")
def test_a_source_tree_uses_the_installed_extension_of_its_sources(tmp_path):
    tree, site = tmp_path / "tree", tmp_path / "site"
    left_out = shutil.ignore_patterns("*.so", "__pycache__")
    shutil.copytree(TESTS.parent / "dpmodule", tree / "dpmodule", ignore=left_out)
    (site / "dpmodule").mkdir(parents=True)
    done = run_file(TESTS / "programs" / "source_tree.py", tree, site, native.core.__file__)
    assert done.returncode == 0, done.stderr
    none, other, same, *info = done.stdout.splitlines()
    begin = f"None Python runs the source tree {tree}, in which no extension was built, and "
    build = "to build one there, install a C++17 compiler and run: pip install -e ."
    assert none == f"{begin}no package with one is installed; {build}"
    assert other.startswith(f"{begin}{site}")
    assert (
        "was built from other sources; to use the installed package, start Python in another folder" in other
    )
    assert same == "True None"
    assert any(line.startswith(f"native       active, from the installed package: {site}") for line in info)


def test_the_header_is_found():
    with open(os.path.join(mx.get_include(), "dpmodule", "functor.h")) as file:
        assert "namespace dpmodule" in file.read()


def test_threads_that_ask_first_at_once_wait_for_one_that_loads():
    done = run_file(TESTS / "programs" / "first_at_once.py")
    assert done.returncode == 0, done.stderr
