"""A process that has imported torch and forks a child for every program; `programs` talks to it.

Run as a file, with the descriptors of a listening socket and of a pipe that closes when it is to end, and the names of
further modules to import. Nothing of dpmodule is imported here: whatever a process of it decides once, each child
decides for itself.
"""

import contextlib
import gc
import importlib
import json
import os
import runpy
import select
import signal
import socket
import sys
import types
import warnings

import numpy
import torch

PRELOADED = (numpy, torch)
OWN = os.path.dirname(__file__)


def receive(connection):
    """Return what a client wants to run, and descriptors for its standard streams."""
    data, fds, _, _ = socket.recv_fds(connection, 1 << 20, 3)
    while not data.endswith(b"\n"):
        data += connection.recv(1 << 20)
    return json.loads(data), fds


def become(wanted, fds):
    """Give a new process the streams, the environment, the folder and the paths that were asked for."""
    for target, fd in enumerate(fds):
        os.dup2(fd, target)
        os.close(fd)
    os.environ.clear()
    os.environ.update(wanted["environment"])
    os.chdir(wanted["cwd"])
    warnings._processoptions(list(filter(None, os.environ.get("PYTHONWARNINGS", "").split(","))))
    first = os.path.dirname(wanted["what"]) if wanted["kind"] == "file" else ""
    places = filter(None, os.environ.get("PYTHONPATH", "").split(os.pathsep))
    sys.path[:] = [first, *places, *(place for place in sys.path if place != OWN)]
    sys.argv[:] = [wanted["what"] if wanted["kind"] == "file" else "-c", *wanted["arguments"]]


class Server:
    """Forks for every request, and tells the client which process that is and how it has ended.

    Args:
        listener: socket that clients connect to.
        lifeline: descriptor that becomes readable when this process is to end.
    """

    def __init__(self, listener, lifeline):
        self.listener, self.lifeline = listener, lifeline
        self.running = {}
        self.wakeup, self.waker = os.pipe2(os.O_NONBLOCK | os.O_CLOEXEC)

    def serve(self):
        """Serve until the end of this process; returns in each child, with what it has to run."""
        signal.set_wakeup_fd(self.waker)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self.listener, self.lifeline, self.wakeup, *self.running], [], [])
            if self.lifeline in ready:
                os._exit(0)
            if self.wakeup in ready:
                os.read(self.wakeup, 1 << 10)
            for connection in list(self.running):
                self.look_after(connection, client_is_gone=connection in ready)
            wanted = self.accept() if self.listener in ready else None
            if wanted is not None:
                return wanted

    def look_after(self, connection, client_is_gone):
        """Tell a client if its program has ended; end it if nobody waits for it."""
        pid = self.running[connection]
        if client_is_gone:
            os.kill(pid, signal.SIGKILL)
        done, status = os.waitpid(pid, 0 if client_is_gone else os.WNOHANG)
        if done:
            del self.running[connection]
            with connection, contextlib.suppress(OSError):
                connection.sendall(b"%d\n" % os.waitstatus_to_exitcode(status))

    def accept(self):
        """Fork for a client; returns what to run in the child, and None here."""
        connection, _ = self.listener.accept()
        wanted, fds = receive(connection)
        pid = os.fork()
        if not pid:
            self.leave(connection)
            become(wanted, fds)
            return wanted
        for fd in fds:
            os.close(fd)
        connection.sendall(b"%d\n" % pid)
        self.running[connection] = pid
        return None

    def leave(self, connection):
        """Let a child have nothing of this process."""
        signal.set_wakeup_fd(-1)
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        for each in (self.listener, connection, *self.running):
            each.close()
        for fd in (self.lifeline, self.wakeup, self.waker):
            os.close(fd)


def main_module(wanted):
    """Return a new main module, and the code that it runs."""
    main = sys.modules["__main__"] = sys.modules["__mp_main__"] = types.ModuleType("__main__")
    if wanted["kind"] == "code":
        return main, compile(wanted["what"], "<string>", "exec")
    main.__file__ = wanted["what"]
    with open(wanted["what"], "rb") as file:
        return main, compile(file.read(), wanted["what"], "exec")


def without_this_file(kind, error, trace):
    """Print an error as the interpreter does, without the place in this file from which the program was run."""
    sys.__excepthook__(kind, error.with_traceback(trace.tb_next), trace.tb_next)


if __name__ == "__main__":
    for name in sys.argv[3:]:
        importlib.import_module(name)
    gc.freeze()  # else each child looks through, and so copies, all that is imported here when it ends
    program = Server(socket.socket(fileno=int(sys.argv[1])), int(sys.argv[2])).serve()
    sys.excepthook = without_this_file
    # outside any function, so that the program ends as the interpreter ends one
    if program["kind"] == "module":
        runpy.run_module(program["what"], run_name="__main__", alter_sys=True)
    else:
        module, code = main_module(program)
        exec(code, vars(module))
