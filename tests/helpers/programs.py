"""Run programs and test files in other processes, with the extension or without.

They come from a process that has imported torch already, see `fork_server`: a fresh start takes two seconds, nearly all
of them torch's. What depends on how the interpreter starts, or on memory that is not shared, asks for ``fresh=True``.
"""

import atexit
import contextlib
import functools
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path

import dpmodule
from dpmodule import native

TESTS = Path(__file__).parents[1]
_SLOWNESS = float(os.environ.get("DPMODULE_TEST_SLOWNESS", "1"))  # more than 1 under sanitizers
_FORKS = sys.platform == "linux" and "LD_PRELOAD" not in os.environ  # a sanitizer wants to see the start


def environment(**changes):
    """Return the environment of a process that can import this package and the helpers of tests."""
    package = Path(dpmodule.__file__).parents[1]  # the one under test, installed or not
    own = [str(TESTS)] if package.name == "site-packages" else [str(TESTS), str(package)]
    paths = [*own, os.environ.get("PYTHONPATH", "")]
    return {**os.environ, "PYTHONPATH": os.pathsep.join(paths), **changes}


class _Server:
    """A process that has imported torch; started when the first program comes, ends with this one.

    Args:
        modules: what it has imported, too.
    """

    def __init__(self, *modules):
        self._modules = modules
        self._lock = threading.Lock()
        self._pid = None

    def connect(self):
        """Return a new connection."""
        with self._lock:
            if self._pid != os.getpid():
                self._start()
        connection = socket.socket(socket.AF_UNIX)
        connection.connect(self._address)
        return connection

    def _start(self):
        with contextlib.closing(socket.socket(socket.AF_UNIX)) as listener:
            listener.bind("")  # Linux chooses a name that no file has
            listener.listen(64)
            self._address = listener.getsockname()
            lifeline, self._lifeline = os.pipe()
            fds = (listener.fileno(), lifeline)
            server = str(TESTS / "helpers" / "fork_server.py")
            command = [sys.executable, server, *map(str, fds), *self._modules]
            changed = {**os.environ, "OMP_NUM_THREADS": "1"}
            self._process = subprocess.Popen(command, pass_fds=fds, cwd=TESTS, env=changed)
            os.close(lifeline)
        self._pid = os.getpid()
        atexit.register(self._end)

    def _end(self):
        if self._pid == os.getpid():
            os.close(self._lifeline)
            self._process.wait()


_server = functools.cache(_Server)


class _Forked:
    """A process forked by the server, with the given standard streams."""

    def __init__(self, kind, what, arguments, cwd, changed, streams, beside):
        wanted = {"kind": kind, "what": what, "arguments": arguments, "cwd": str(cwd), "environment": changed}
        self._connection = _server(*beside).connect()
        with open(os.devnull) as stdin:
            fds = [stdin.fileno(), *(stream.fileno() for stream in streams)]
            message = json.dumps(wanted).encode() + b"\n"
            sent = socket.send_fds(self._connection, [message], fds)
            self._connection.sendall(message[sent:])
        self._answers = self._connection.makefile()
        self.pid = int(self._answers.readline())

    def wait(self, seconds):
        self._connection.settimeout(seconds)
        return int(self._answers.readline())

    def close(self):
        """End it if it still runs: so the server does with the program of a client that is gone."""
        self._answers.close()
        self._connection.close()


class _Started:
    """A process of a new interpreter, with the given standard streams."""

    def __init__(self, kind, what, arguments, cwd, changed, streams, beside):
        first = {"code": ["-c", what], "file": [what], "module": ["-m", what]}[kind]
        out, err = streams
        how = {"cwd": cwd, "env": changed, "stdin": subprocess.DEVNULL, "stdout": out, "stderr": err}
        self._process = subprocess.Popen([sys.executable, *first, *arguments], **how)
        self.pid = self._process.pid

    def wait(self, seconds):
        try:
            return self._process.wait(seconds)
        except subprocess.TimeoutExpired as error:
            raise TimeoutError from error

    def close(self):
        self._process.kill()
        self._process.wait()


class Program:
    """A program that runs in a process of its own; a context manager, which ends it if it still runs.

    Args:
        kind: "code", "file" or "module".
        what: the code, or the name of the file or module.
        arguments: of the command line.
        cwd: the folder it runs in.
        fresh: start the interpreter anew.
        beside: modules that many such programs import, which the server is to have imported.
        changes: of the environment.

    Attributes:
        pid: of the process.
    """

    def __init__(self, kind, what, *arguments, cwd=TESTS, fresh=False, beside=(), **changes):
        self._stack = contextlib.ExitStack()
        streams = (tempfile.TemporaryFile() for _ in range(2))  # noqa: SIM115 (the stack closes them)
        self._streams = [self._stack.enter_context(stream) for stream in streams]
        make = _Started if fresh or not _FORKS else _Forked
        arguments = list(map(str, arguments))
        self._process = make(kind, str(what), arguments, cwd, environment(**changes), self._streams, beside)
        self._stack.callback(self._process.close)
        self.pid = self._process.pid

    def __enter__(self):
        return self

    def __exit__(self, *_):
        self._stack.close()

    def send_signal(self, number):
        """Send it a signal."""
        os.kill(self.pid, number)

    def wait(self, seconds=100):
        """Wait for its end; returns its exit code, or minus the signal that killed it."""
        try:
            return self._process.wait(seconds * _SLOWNESS)
        except TimeoutError:
            raise subprocess.TimeoutExpired(f"program {self.pid}", seconds, *self.output()) from None

    def read(self, words, seconds=100):
        """Wait until it has written so many words to its standard output, with the end of a line; returns them."""
        end = time.monotonic() + seconds * _SLOWNESS
        while not (out := self.output()[0]).endswith("\n") or len(out.split()) < words:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired(f"program {self.pid}", seconds, *self.output())
            time.sleep(0.005)
        return out.split()

    def output(self):
        """Return what it has written to its standard output, and to its standard error, so far."""
        fds = [stream.fileno() for stream in self._streams]  # whose position is the program's, too
        return tuple(os.pread(fd, os.fstat(fd).st_size, 0).decode() for fd in fds)


def _run(kind, what, arguments, seconds, cwd, fresh, changes):
    with Program(kind, what, *arguments, cwd=cwd, fresh=fresh, **changes) as program:
        code = program.wait(seconds)
        return subprocess.CompletedProcess([kind, what, *arguments], code, *program.output())


def run_program(code, *arguments, seconds=100, cwd=TESTS, fresh=False, **changes):
    """Run Python code; return it with its exit code and its output as text.

    Args:
        code: the code.
        arguments: of the command line.
        seconds: how long it may take.
        cwd: the folder it runs in.
        fresh: start the interpreter anew.
        changes: of the environment.
    """
    return _run("code", code, arguments, seconds, cwd, fresh, changes)


def run_file(path, *arguments, seconds=100, cwd=TESTS, fresh=False, **changes):
    """Run a file of Python; see `run_program`."""
    return _run("file", path, arguments, seconds, cwd, fresh, changes)


def run_module(name, *arguments, seconds=100, cwd=TESTS, fresh=False, **changes):
    """Run a module as ``python -m`` does; see `run_program`."""
    return _run("module", name, arguments, seconds, cwd, fresh, changes)


def again_without_native(file, *options, seconds=250):
    """Run the tests of a file once more on what stands in for the extension."""
    if native.core is None or "DPMODULE_TEST_SLOWNESS" in os.environ:  # sanitizers have nothing to see there
        return
    options = ["-q", "-x", "-p", "no:cacheprovider", "-n", "0", "-m", "not slow", *options]
    done = run_module("pytest", *options, file, seconds=seconds, cwd=TESTS.parent, DPMODULE_NATIVE="0")
    assert done.returncode == 0, done.stdout + done.stderr
    assert " passed" in done.stdout
