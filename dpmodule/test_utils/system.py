"""System helpers for tests: context, environment variables, standard error, retries, a repeated batch."""

from __future__ import annotations

import functools
import os
import platform
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from ..base import ArgumentError, FileError
from ..context import Context, current_context, num_gpus, set_current_context
from ..io import DataBatch, DataIter
from ..ndarray import waitall
from ..util import setenv


def default_context() -> Context:
    """Return the context of tests: the current one."""
    return current_context()


def set_default_context(ctx: Context) -> None:
    """Make `ctx` the current context of this thread from now on.

    Args:
        ctx: such as ``mx.gpu(0)``.
    """
    set_current_context(ctx)


def list_gpus() -> range:
    """Return the numbers of the GPUs that torch sees."""
    return range(num_gpus())


def is_cd_run() -> bool:
    """Return True if the environment variable CD_JOB marks a run of a delivery pipeline."""
    return os.environ.get("CD_JOB") == "1"


def is_aarch64_run() -> bool:
    """Return True if the processor is a 64-bit ARM."""
    return platform.machine() == "aarch64"


def has_tvm_ops() -> bool:
    """Return True if operators of TVM exist: always False."""
    return False


def is_op_runnable() -> bool:
    """Return True if the current context can run all operators: always True."""
    return True


def get_im2rec_path(home_env: str = "MXNET_HOME") -> str:
    """Return the path of MXNet's script im2rec.py.

    Args:
        home_env: environment variable with the folder of an MXNet checkout or package.

    Raises:
        FileError: it does not exist; this package does not include the script.
    """
    home = os.environ.get(home_env, "")
    for tools in ("tools", os.path.join("..", "..", "tools")):
        path = os.path.join(home, tools, "im2rec.py")
        if home and os.path.isfile(path):
            return path
    raise FileError(f"im2rec.py not found; set {home_env} to a folder of MXNet that has tools/im2rec.py")


def retry(n: int) -> Callable[[Callable[..., Any]], Callable[..., None]]:
    """Return a decorator that repeats a random test after an AssertionError, up to `n` runs.

    Args:
        n: maximum number of runs.

    Raises:
        ArgumentError: `n` is not positive.
    """
    if n <= 0:
        raise ArgumentError(f"n is {n}, expected at least 1")

    def decorate(function: Callable[..., Any]) -> Callable[..., None]:
        @functools.wraps(function)
        def repeated(*args: Any, **kwargs: Any) -> None:
            for left in reversed(range(n)):
                try:
                    function(*args, **kwargs)
                    return
                except AssertionError:  # noqa: PERF203  # repeating is the purpose
                    if left == 0:
                        raise
                    waitall()

        return repeated

    return decorate


@contextmanager
def discard_stderr() -> Iterator[None]:
    """Discard standard error in a ``with`` block, including that of native code."""
    try:
        number = sys.stderr.fileno()
    except (AttributeError, OSError, ValueError):  # replaced by something that is not a file
        yield
        return
    sys.stderr.flush()
    kept = os.dup(number)
    try:
        with open(os.devnull, "w") as nowhere:
            os.dup2(nowhere.fileno(), number)
        yield
    finally:
        sys.stderr.flush()
        os.dup2(kept, number)
        os.close(kept)


@contextmanager
def environment(*args: Any) -> Iterator[None]:
    """Set environment variables in a ``with`` block and restore them after it.

    Args:
        *args: a name and a value, or a dict; the value None unsets a variable.

    Raises:
        ArgumentError: the arguments have neither form.

    Example:
        >>> with environment("COLOUR", "green"):
        ...     mx.util.getenv("COLOUR")
        'green'
    """
    if len(args) == 1 and isinstance(args[0], dict):
        wanted = args[0]
    elif len(args) == 2:
        wanted = {args[0]: args[1]}
    else:
        raise ArgumentError(f"environment takes a dict, or a name and a value; got {len(args)} arguments")
    former = {name: os.environ.get(name) for name in wanted}
    try:
        for name, value in wanted.items():
            setenv(name, value)
        yield
    finally:
        waitall()  # queued work may read them
        for name, value in former.items():
            setenv(name, value)


class DummyIter(DataIter):
    """An iterator that repeats the first batch of another one, to time training without reading.

    Args:
        real_iter: iterator that provides the batch.
    """

    provide_data: Any
    provide_label: Any

    def __init__(self, real_iter: DataIter) -> None:
        super().__init__(real_iter.batch_size)
        self.real_iter = real_iter
        self.provide_data = real_iter.provide_data
        self.provide_label = real_iter.provide_label
        self.the_batch = next(real_iter)

    def next(self) -> DataBatch:
        return self.the_batch
