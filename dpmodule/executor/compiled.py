"""Programs run through `torch.compile`.

The generated function is handed over whole, so that a compiler may fuse what stands between the large operators. What
it gains, and what compiling costs, is in the benchmarks: graphs of many small operators gain, those that spend their
time in a few large ones do not. Nothing of torch's compiler is loaded unless a user asks for it.

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

_LONGEST = 300
"""How many letters of an error a warning shows."""

_compiling = threading.Lock()
"""Held in first calls: Python's filters of warnings belong to all threads."""


def reason_against(program: Program) -> str:
    """Return why a program is better not compiled, "" if nothing speaks against it."""
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
    """Say whether a compiler calls a step as it is: kernels for recurrent layers, and draws in training.

    The usual backend cannot train torch's recurrent kernels, and none draws from a generator that is handed in.
    """
    op, a = low.operator(step)
    if op is None or op.name == "RNN":
        return op is not None or isinstance(step.function, Recurrence)
    draws = op.random and getattr(a, "act_type", "rrelu") == "rrelu"  # of LeakyReLU's forms, that one alone
    return isinstance(step.function, Recurrence) or (draws and low.recorded)


def _excluded(function: Forward) -> Forward:
    """Return a function that the compiler calls as it is."""

    def call(*arguments: Any) -> Any:
        return function(*arguments)

    found: Forward = torch.compiler.disable(call)  # type: ignore[no-untyped-call, unused-ignore]
    return found


def _to_compile(program: Program) -> Forward:
    """Return a copy of a program's function, with a code object of its own, for which torch keeps what it compiles."""
    plain = program.forward
    kept_out = {id(s.function): s.function for s in program.low.steps if _is_excluded(program.low, s)}
    names = {
        name: _excluded(value) if id(value) in kept_out else value
        for name, value in plain.__globals__.items()
    }
    return types.FunctionType(plain.__code__.replace(), names, plain.__name__)


class CompiledMode(ExecutionMode):
    """Programs run as `torch.compile` makes them."""

    def __init__(self, arguments: Mapping[str, Any]) -> None:
        self._arguments = arguments
        self._made: dict[Program, CompiledForward] = {}

    def forward(self, program: Program) -> Forward:
        if program not in self._made:
            self._made[program] = CompiledForward(program, self._arguments)
        return self._made[program]

    def state(self, program: Program, is_train: bool) -> str:
        found = self._made.get(program)
        return "" if found is None else found.state


class CompiledForward:
    """A program's function as `torch.compile` makes it, called like the plain one.

    If the compiler fails, or is not there, the plain function takes over for good, with one warning. If the plain
    function fails as well, the error is that of the graph, and comes out as without compiling.
    """

    def __init__(self, program: Program, arguments: Mapping[str, Any]) -> None:
        self._plain = program.forward
        self._compiled: Forward | None = None
        self._random = program.random
        self._is_new = True
        self._reason = ""
        reason = reason_against(program)
        if reason:
            self._give_up(reason)
            return
        try:
            self._compiled = torch.compile(_to_compile(program), **{"dynamic": False, **arguments})
        except Exception as error:  # whatever a backend, or a Python that torch does not compile for, raises
            self._give_up(_one_line(error))

    @property
    def state(self) -> str:
        """Whether calls go to the compiled function, in words, and why not if so."""
        return "torch.compile" if self.is_compiled else f"not through torch.compile: {self._reason}"

    @property
    def is_compiled(self) -> bool:
        """Whether calls go to the compiled function."""
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
        states = [(each, each.get_state()) for each in generators]
        try:
            if self._is_new:
                return self._first_call(compiled, values, env, shaped)
            return compiled(values, env, shaped)
        except Exception as error:
            for each, state in states:
                each.set_state(state)
            result = self._plain(values, env, shaped)  # raises what is the graph's own fault
            self._give_up(_one_line(error))
            return result

    def _first_call(self, compiled: Forward, *arguments: Any) -> Any:
        """Make the call in which the compiler works; what it thinks of our operators' code is of no use to users."""
        with _compiling, warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = compiled(*arguments)
        self._is_new = False
        return result


def _one_line(error: BaseException) -> str:
    """Return an error in one line; a compiler's can be pages long."""
    text = f"{type(error).__name__}: {' '.join(str(error).split())}"
    return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}..."
