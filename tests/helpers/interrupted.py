"""Kill a process that writes files, or let a step of it fail."""

import errno
import os
from contextlib import contextmanager
from unittest import mock

STEPS = ("open", "replace", "unlink", "chmod")


class Written:
    """A file whose writes are steps; one that is interrupted leaves half of the data."""

    def __init__(self, file, step):
        self.file, self.step = file, step

    def write(self, data):
        self.step("write", lambda: (self.file.write(data[: len(data) // 2]), self.file.flush()))
        return self.file.write(data)

    def __getattr__(self, name):
        return getattr(self.file, name)


@contextmanager
def interrupted(how, last):
    """Kill the process, or fail, at the given step; `how` is "kill", "once" or "for good" (a full disk)."""
    passed = []

    def step(name, before=lambda: None):
        fails = name in ("open", "write", "fsync") or how != "for good"
        passed.extend([name] * fails)
        if fails and (len(passed) == last or (how == "for good" and len(passed) > last)):
            before()
            if how == "kill":
                os._exit(9)
            code = errno.EIO if how == "once" else errno.ENOSPC
            raise OSError(code, os.strerror(code))

    def counted(name, real):
        def call(*args, **options):
            step(name)
            return real(*args, **options)

        return call

    patched = {name: counted(name, getattr(os, name)) for name in STEPS}
    real = os.fdopen
    patched |= {"fsync": lambda number: step("fsync"), "fdopen": lambda *args: Written(real(*args), step)}
    with mock.patch.multiple(os, **patched):
        yield
