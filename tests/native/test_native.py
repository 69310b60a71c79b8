"""Whether the extension is here, and what is said where it is not."""

import os

import pytest

import dpmodule as mx
from dpmodule import native
from dpmodule.cli.__main__ import main
from helpers import compiled
from helpers.programs import run_program

pytestmark = pytest.mark.timeout(60)  # some start programs, which import torch


@pytest.mark.skipif(os.environ.get("DPMODULE_NATIVE") == "0", reason="DPMODULE_NATIVE=0")
@pytest.mark.skipif(compiled.compiler() is None, reason="there is no C++ compiler")
def test_it_is_active_where_there_is_a_compiler():
    """A failed build is swallowed, and everything would run on the slower stand-ins unseen."""
    assert native.available(), native.error


def test_info_says_whether_it_is_active(capsys):
    assert main(["info"]) == 0
    line = next(line for line in capsys.readouterr().out.splitlines() if line.startswith("native"))
    assert line.split(maxsplit=1)[1] == ("active" if native.core else f"not active: {native.error}")


def test_it_can_be_switched_off():
    done = run_program("from dpmodule import native; print(native.core, native.error)", DPMODULE_NATIVE="0")
    assert done.stdout == "None switched off by DPMODULE_NATIVE=0\n"


def test_the_header_is_found():
    header = os.path.join(mx.get_include(), "dpmodule", "functor.h")
    with open(header) as file:
        assert "namespace dpmodule" in file.read()


def test_neither_an_import_nor_the_extension_needs_asyncio():
    code = "import sys; import dpmodule.native; print('asyncio' in sys.modules)"
    code = f"import torch, sys; before = 'asyncio' in sys.modules; {code.replace('print(', 'print(before, ')}"
    before, after = run_program(code).stdout.split()
    assert before == after
