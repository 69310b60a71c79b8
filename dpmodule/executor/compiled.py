"""Programs compiled with `torch.compile`.

The whole generated function is compiled, so that the compiler can fuse the operators between the large ones. The
benchmarks show the gain and the cost of compiling: graphs of many small operators get faster, graphs that spend their
time in a few large operators do not. torch's compiler is imported only if a user asks for it.

Source: PyTorch's ``torch.compile``.
"""

from __future__ import annotations

import threading
import types
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch

from ..ops.spec import Env
from .execution_mode import ExecutionMode
from .lowering import Lowered, Step
from .passes.rnn_chains.kernels import Recurrence
from .program import Forward, Program

_MAX_CHARACTERS = 300
"""Number of characters of an error that a warning shows."""

_compiling = threading.Lock()
"""Held during first calls: Python's warning filters are shared by all threads."""


def unsupported_reason(program: Program) -> str:
    """Return the reason why a program should not be compiled; "" if there is none."""
    graph = program.low.graph
    for node in graph.nodes:
        if node.op is None:
            continue
        if node.subgraphs:
            return f"{node.describe()} runs a subgraph"
        if node.op.stateful or node.op.owner is not None:
            return f"{node.describe()} runs code of its own"
    if any(program.low.is_sparse(step) for step in program.low.steps):
        return "it has sparse values"
    return ""


def _is_excluded(low: Lowered, step: Step) -> bool:
    """Return True if a step must not be compiled: recurrent kernels, and random draws in training.

    The default backend cannot train torch's recurrent kernels, and no backend draws from a generator argument.
    """
    op, a = low.operator(step)
    if op is None or op.name == "RNN":
        return op is not None or isinstance(step.function, Recurrence)
    return isinstance(step.function, Recurrence) or (low.recorded and op.draws(a))


def _excluded(function: Forward) -> Forward:
    """Return a function that the compiler calls without compiling it."""

    def call(*arguments: Any) -> Any:
        return function(*arguments)

    excluded: Forward = torch.compiler.disable(call)  # type: ignore[no-untyped-call, unused-ignore]
    return excluded


def _to_compile(program: Program) -> Forward:
    """Return a copy of a program's function with its own code object, by which torch caches compiled code."""
    plain = program.forward
    excluded = {id(s.function): s.function for s in program.low.steps if _is_excluded(program.low, s)}
    names = {
        name: _excluded(value) if id(value) in excluded else value
        for name, value in plain.__globals__.items()
    }
    return types.FunctionType(plain.__code__.replace(), names, plain.__name__)


class CompiledMode(ExecutionMode):
    """Runs programs compiled with `torch.compile`."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._compiled: dict[Program, CompiledForward] = {}

    def forward(self, program: Program) -> Forward:
        if program not in self._compiled:
            self._compiled[program] = CompiledForward(program, self._arguments)
        return self._compiled[program]

    def describe(self, program: Program, is_train: bool) -> str:
        compiled = self._compiled.get(program)
        return "" if compiled is None else compiled.state


class CompiledForward:
    """A program's function compiled with `torch.compile`, called like the plain one.

    If the compiler fails or is missing, the plain function replaces it permanently, with one warning. If the plain
    function fails as well, its error is raised as it would be without compiling.
    """

    def __init__(self, program: Program, arguments: Mapping[str, Any]) -> None:
        self._plain = program.forward
        self._compiled: Forward | None = None
        self._random = program.random
        self._is_new = True
        self._reason = ""
        reason = unsupported_reason(program)
        if reason:
            self._give_up(reason)
            return
        try:
            self._compiled = torch.compile(_to_compile(program), **{"dynamic": False, **arguments})
        except Exception as error:  # a backend, or an unsupported Python version, may raise any error
            self._give_up(_one_line(error))

    @property
    def state(self) -> str:
        """Description of the function that calls use, with the reason if it is not the compiled one."""
        return "torch.compile" if self.is_compiled else f"not through torch.compile: {self._reason}"

    @property
    def is_compiled(self) -> bool:
        """True if calls use the compiled function."""
        return self._compiled is not None

    def _give_up(self, reason: str) -> None:
        self._compiled, self._reason = None, reason
        warnings.warn(f"compile: the graph runs uncompiled: {reason}", stacklevel=2)

    def __call__(self, values: Sequence[torch.Tensor], env: Env, shaped: Sequence[Env]) -> Any:
        """Run the program; see `Program.forward`."""
        compiled = self._compiled
        if compiled is None:
            return self._plain(values, env, shaped)
        generators = {e.generator for e in (env, *shaped) if e.generator is not None} if self._random else ()
        states = [(generator, generator.get_state()) for generator in generators]
        try:
            if self._is_new:
                return self._first_call(compiled, values, env, shaped)
            return compiled(values, env, shaped)
        except Exception as error:
            for generator, state in states:
                generator.set_state(state)
            result = self._plain(values, env, shaped)  # raises the graph's own error
            self._give_up(_one_line(error))
            return result

    def _first_call(self, compiled: Forward, *arguments: Any) -> Any:
        """Run the call that compiles, hiding the compiler's warnings about this package's operators."""
        with _compiling, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = compiled(*arguments)
        self._is_new = False
        return result


def _one_line(error: BaseException) -> str:
    """Return an error as one line; compiler errors can be pages long."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text if len(text) <= _MAX_CHARACTERS else f"{text[:_MAX_CHARACTERS]}..."
