"""The command, run in this process, in an empty folder."""

from dataclasses import dataclass

import pytest

from dpmodule.cli.__main__ import main


@dataclass(frozen=True)
class Done:
    """What a command returned and printed."""

    code: int
    out: str
    err: str

    @property
    def error(self):
        """The line that says what was wrong."""
        lines = self.err.strip().splitlines()
        assert self.code == 2, self
        assert lines[-1].startswith("dpmodule"), self.err
        assert ": error: " in lines[-1]
        return lines[-1]


@pytest.fixture
def run(capsys, tmp_path, monkeypatch):
    """Return what runs the command in an empty folder."""
    monkeypatch.chdir(tmp_path)

    def call(*words):
        code = main([str(word) for word in words])
        return Done(code, *capsys.readouterr())

    return call
