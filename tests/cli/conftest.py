"""The command, run in this process, in an empty folder."""

import pytest

from helpers.command import run_command


@pytest.fixture
def run(tmp_path, monkeypatch):
    """Return a function that runs the command in an empty folder."""
    monkeypatch.chdir(tmp_path)
    return run_command
