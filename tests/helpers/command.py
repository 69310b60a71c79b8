"""The command ``dpmodule``, run in this process."""

import contextlib
import io
from dataclasses import dataclass

from dpmodule.cli.__main__ import main


@dataclass(frozen=True)
class Done:
    """What a command returned and printed."""

    code: int
    out: str
    err: str

    @property
    def error(self):
        """The line that names what was wrong."""
        lines = self.err.strip().splitlines()
        assert self.code == 2, self
        assert lines[-1].startswith("dpmodule"), self.err
        assert ": error: " in lines[-1]
        return lines[-1]


def run_command(*words):
    """Run the command in the present folder."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = main([str(word) for word in words])
    return Done(code, out.getvalue(), err.getvalue())
