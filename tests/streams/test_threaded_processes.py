"""Threads of C++ in whole programs: Ctrl-C, the end of the program, forks, and the log without the extension."""

import os
import signal
import time

import pytest

from dpmodule import native
from helpers import jobs  # noqa: F401  # compiled here, once, for the programs below
from helpers.loops import KINDS
from helpers.programs import TESTS, Program, run_file

pytestmark = pytest.mark.timeout(120)  # each starts programs, which import torch
backends = pytest.mark.parametrize(
    "backend", ["0", *(["1"] if native.core else [])], ids=lambda b: {"0": "python", "1": "native"}[b]
)
PROGRAM = TESTS / "programs" / "threaded.py"


@backends
@pytest.mark.parametrize("kind", KINDS)
def test_ctrl_c_ends_a_program_whose_jobs_hang(backend, kind):
    with Program("file", PROGRAM, "hanging", kind, DPMODULE_NATIVE=backend) as program:
        assert program.read(1) == ["running"]
        time.sleep(0.1)
        program.send_signal(signal.SIGINT)
        code = program.wait(50)  # the jobs would take a minute
        out, errors = program.output()
    assert (code, out) == (7, "running\ninterrupted\n"), errors
    assert "Traceback" not in errors


ENDS = {
    "interrupted_close": "True\n",
    "return": "end\n",
    "exit": "",
    "open_pool": "end\n",
    "late_ends": "",
    "old_loop": "0\nTrue\n",
}


@backends
@pytest.mark.parametrize("case", [*ENDS, *(["fork"] if hasattr(os, "fork") else [])])
def test_programs_end_while_jobs_run_and_fork(backend, case):
    done = run_file(PROGRAM, case, seconds=50, DPMODULE_NATIVE=backend)  # the jobs would take minutes
    assert (done.returncode, done.stdout) == (0, ENDS.get(case, "0\n")), done.stderr
    assert "Error" not in done.stderr
    assert case != "late_ends" or done.stderr == ""


@pytest.mark.skipif(native.core is None, reason="about threads of C++")
def test_a_functor_that_asks_for_the_gil_while_python_ends_ends_its_thread():
    done = run_file(PROGRAM, "gil")
    assert (done.returncode, done.stderr) == (0, "")
