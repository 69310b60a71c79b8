"""Importing the package follows DyNet's arguments and takes them out of `sys.argv`."""

from __future__ import annotations

import subprocess
import sys

import pytest


@pytest.mark.timeout(60)
def test_import_takes_arguments():
    program = (
        "import sys; import dpmodule.autobatch as dy;"
        "print(sys.argv[1:], dy.settings()['autobatch'], dy.settings()['weight_decay'])"
    )
    command = [
        sys.executable,
        "-c",
        program,
        "a",
        "--dynet-autobatch",
        "1",
        "--dynet-seed",
        "7",
        "--dynet-mem=512",
    ]
    command += ["b", "--dynet-weight-decay", "0.5"]
    out = subprocess.run(command, capture_output=True, text=True, check=True).stdout
    assert out.strip() == "['a', 'b'] True 0.5"
