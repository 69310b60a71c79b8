"""`Program`: the steps of a graph as one generated Python function.

The function reads like hand-written torch code, frees every value after its last use, needs no dictionary per node, and
gives readable tracebacks: its source is registered with `linecache`, and each line maps to a node of the graph. This
file contains the only `exec` of the package.
"""

from __future__ import annotations

import itertools
import keyword
import linecache
import re
import threading
import weakref
from collections import OrderedDict
from collections.abc import Callable, Iterator
from importlib import import_module
from typing import TYPE_CHECKING, Any, NamedTuple

from ..context import Context
from ..graph import Graph
from . import passes
from .device_placement import move_between, own_environments
from .lowering import Lowered, Step, lower
from .passes.mirror import Policy, marked, policy
from .storage_types import StorageTypes

if TYPE_CHECKING:
    from .passes.fused_convolutions import ImageRun
    from .passes.small_steps import SmallRun

Forward = Callable[..., tuple[Any, ...]]
"""Function that runs a program: ``(values, env, shaped) -> (outputs, roots, rests, mutated)``, see `Program`."""

_numbers = itertools.count()


class _Identifiers:
    """Unique Python identifiers made from node and function names."""

    def __init__(self) -> None:
        self._taken: set[str] = {"values", "env", "shaped", "forward", "__debug__"}
        self._numbers: dict[str, int] = {}  # all numbers up to these are taken

    def make(self, text: str) -> str:
        base = re.sub(r"\W", "_", text, flags=re.ASCII) or "v"  # Python normalizes look-alike letters
        if base[0].isdigit() or keyword.iskeyword(base):
            base = f"v_{base}"
        name, number = base, self._numbers.get(base, 1)
        while name in self._taken:
            number += 1
            name = f"{base}_{number}"
        self._taken.add(name)
        self._numbers[base] = number
        return name


class _Code(NamedTuple):
    """Generated code: the source, its file name in tracebacks, and the function."""

    source: str
    filename: str
    forward: Forward


class Program:
    """The generated function of a graph in one mode.

    Shape:
        values: each as its variable; another shape than in the last run is possible.
        outputs: each as `infer_shape` returns it for these.

    Attributes:
        forward: ``(values, env, shaped) -> (outputs, roots, rests, mutated)``: the heads; the root of backward for each
            head (None for one that is not differentiated); the other inputs of cut losses that the graph computes; new
            values of states.
        cut: index in `low.losses` of each output that is a cut loss.
        reused: (output, index in `shaped`) of the steps that may write an output to the memory of the last run's.
    """

    def __init__(self, low: Lowered) -> None:
        self.low = low
        self.cut = {loss.output: at for at, loss in enumerate(low.losses)}
        self.shaped = [s for s in low.steps if s.needs_shapes or s.own_env]
        self.random = any(node.draws(low.recorded) for node in low.graph.nodes)
        self.written = _written_by_operators(low)
        self._shaped_at = {id(s): i for i, s in enumerate(self.shaped)}
        self.reused = _reused(low, self._shaped_at)
        self._globals: dict[str, Any] = {}
        self._line_steps: dict[int, Step] = {}

    @property
    def forward(self) -> Forward:
        """The function; see the class."""
        return self._generated().forward

    @property
    def source(self) -> str:
        """Its source text."""
        return self._generated().source

    @property
    def filename(self) -> str:
        """The file name of its frames in tracebacks."""
        return self._generated().filename

    def _generated(self) -> _Code:
        """Return the code, generated on first use.

        Concurrent threads may each generate it, and all get the same one; a lock could be held when the process forks.
        """
        code: _Code | None = vars(self).get("_code")
        if code is None:
            new = self._generate()
            code = vars(self).setdefault("_code", new)
            if code is new:
                lines = new.source.splitlines(True)
                linecache.cache[new.filename] = (len(new.source), None, lines, new.filename)
                weakref.finalize(self, linecache.cache.pop, new.filename, None)
        return code

    def _generate(self) -> _Code:
        source, filename = self._write(), f"<dpmodule program {next(_numbers)}>"
        defined: dict[str, Any] = {}
        exec(compile(source, filename, "exec"), self._globals, defined)
        return _Code(source, filename, self.mirrored(defined["forward"]))

    def mirrored(self, forward: Forward) -> Forward:
        """Wrap a function that runs this program so that backward recomputes the mirrored results."""
        if "mirror" not in self.low.fired:
            return forward
        from .recompute import mirrored

        return mirrored(forward)

    def shaped_position(self, step: Step) -> int | None:
        """Return the index in `shaped` of a step's environment; None for the common one."""
        return self._shaped_at.get(id(step))

    def nodes_at(self, line: int) -> list[int]:
        """Return the indices of the nodes that the call on a source line computes, in order; usually one."""
        self._generated()
        step = self._line_steps.get(line)
        return [] if step is None else sorted({n for n in (step.node, *step.covers) if n >= 0})

    def _write(self) -> str:
        low, names = self.low, _Identifiers()
        value_name = {number: names.make(text) for number, text in low.names.items()}
        lines = ["def forward(values, env, shaped):"]
        if low.num_variables:
            given = ", ".join(value_name[i] for i in range(low.num_variables))
            lines.append(f"    [{given}] = values")
        keep = low.kept()
        last = {number: at for at, step in enumerate(low.steps) for number in (*step.inputs, *step.outputs)}
        function_names: dict[Any, str] = {}
        fixed_names: dict[Any, str] = {}
        at = 0
        for steps, run in _runs(low, keep):
            margin = "    "
            if run is not None:
                end = at + len(steps)
                dead = [n for n in run.inputs if low.num_variables <= n and last[n] < end and n not in keep]
                lines += self._run(run, [value_name[n] for n in dead], value_name, names)
                margin = "        "
            for step in steps:
                call = self._call(step, value_name, names, function_names, fixed_names)
                lines.append(margin + call)
                self._line_steps[len(lines)] = step
                dead = [
                    n
                    for n in dict.fromkeys((*step.inputs, *step.outputs))
                    if last[n] == at and n not in keep and n >= low.num_variables
                ]
                if dead:
                    lines.append(f"{margin}del {', '.join(value_name[n] for n in dead)}")
                at += 1
        lines.append(f"    return {self._results(value_name)}")
        return "\n".join(lines) + "\n"

    def _run(
        self, run: ImageRun | SmallRun, dead: list[str], value_name: dict[int, str], names: _Identifiers
    ) -> list[str]:
        """Return the lines that try to run several steps in one call; the lines of each step follow them."""
        function, result = names.make("layers"), names.make("found")
        self._globals[function] = run
        given = ", ".join(value_name[n] for n in run.inputs)
        made = ", ".join(value_name[n] for n in run.outputs)
        return [
            f"    {result} = {function}(env, {given})",
            f"    if {result} is not None:",
            f"        [{made}] = {result}",
            f"        del {', '.join([result, *dead])}",
            "    else:",
        ]

    def _call(
        self,
        step: Step,
        value_name: dict[int, str],
        names: _Identifiers,
        function_names: dict[Any, str],
        fixed_names: dict[Any, str],
    ) -> str:
        if step.function not in function_names:
            function_names[step.function] = names.make(step.name)
            self._globals[function_names[step.function]] = step.function
        arguments = []
        if step.takes_env:
            key = (step.function, repr(step.fixed))  # 0.0 and -0.0 compare equal
            if key not in fixed_names:
                fixed_names[key] = names.make(f"a_{step.name}")
                self._globals[fixed_names[key]] = step.fixed
            position = self.shaped_position(step)
            arguments = [fixed_names[key], "env" if position is None else f"shaped[{position}]"]
        for i, number in enumerate(step.inputs):
            arguments.append(value_name[number] + (".detach()" if step.detach_first and i == 0 else ""))
        left = ", ".join(value_name[n] for n in step.outputs)
        return f"{left} = {function_names[step.function]}({', '.join(arguments)})"

    def _results(self, value_name: dict[int, str]) -> str:
        low = self.low

        def text(items: list[str]) -> str:
            return f"({', '.join(items)}{',' if len(items) == 1 else ''})"

        outputs = [value_name[n] for n in low.heads]
        roots = [
            value_name[low.losses[self.cut[i]].root if i in self.cut else n] for i, n in enumerate(low.heads)
        ]
        rests = [
            text([value_name[n] if n >= low.num_variables else "None" for n in loss.rest])
            for loss in low.losses
        ]
        mutated = [value_name[new] for _, new, _ in low.mutated]
        return ", ".join(map(text, (outputs, roots if low.recorded else [], rests, mutated)))


def _runs(low: Lowered, kept: set[int]) -> Iterator[tuple[list[Step], ImageRun | SmallRun | None]]:
    """Return the steps in lists, some with a function that runs a list in one call."""
    for name in ("fused_convolutions", "small_steps"):
        if name in low.fired:  # avoids importing its module
            lists: Iterator[tuple[list[Step], ImageRun | SmallRun | None]]
            lists = import_module(f".passes.{name}", __package__).runs(low, kept)
            return lists
    return iter([(low.steps, None)])


def _reused(low: Lowered, shaped_at: dict[int, int]) -> list[tuple[int, int]]:
    """Return the outputs that a step may write to the memory of the last run's, with their environments."""
    made_by = {value: step for step in low.steps if step.reuses for value in step.outputs}
    return [(i, shaped_at[id(made_by[value])]) for i, value in enumerate(low.heads) if value in made_by]


def _written_by_operators(low: Lowered) -> list[int]:
    """Return the variables that operators change directly: states of custom operators, and those in loops."""
    variables: set[int] = set()
    for step in low.steps:
        node = low.graph.nodes[step.node]
        if step.node < 0 or node.op is None or not node.op.stateful:
            continue
        if any(inner.auxiliary for inner in node.subgraphs):
            variables.update(step.inputs)
        states = {child for child, _ in node.auxiliary_inputs}
        variables.update(value for (child, _), value in zip(node.inputs, step.inputs) if child in states)
    return sorted(value for value in variables if value < low.num_variables)


_CACHE_SIZE = 256
_cache: OrderedDict[Any, Program] = OrderedDict()
_in_use: weakref.WeakValueDictionary[Any, Program] = (
    weakref.WeakValueDictionary()
)  # a strong cache would keep users' objects alive
_lock = threading.Lock()


def program_of(
    graph: Graph,
    recorded: bool,
    contexts: tuple[Context, ...] = (),
    storage: StorageTypes | None = None,
    body: Callable[[Graph], Any] | None = None,
    is_subgraph: bool = False,
    watched: bool = False,
    compiled: bool = False,
    mirror: Policy = False,
) -> Program:
    """Return the Program of a graph, shared by all graphs of equal structure, attributes and names.

    Args:
        contexts: context of the executor, then of each node of the graph, if they differ.
        storage: storage types, if some values are sparse.
        is_subgraph: True for the subgraph of an operator, which calls it under autograd.
        watched: True if a monitor reads every operator's output.
    """
    off = passes.settings(watched, compiled)
    wanted = policy(mirror)
    again = marked(graph, wanted) if recorded and "mirror" not in off else frozenset()
    parts = wanted if again and wanted is not None and not isinstance(wanted, bool) else 0
    stored = None if storage is None else storage.key
    key = graph.key, recorded, off, contexts, stored, is_subgraph, again, parts
    owned = any(op.owner is not None for node in graph.nodes for op in node.every_operator())
    with _lock:
        program = _in_use.get(key) if owned else _cache.get(key)
        if program is not None:
            if not owned:
                _cache.move_to_end(key)
            return program
    low = lower(graph, recorded, storage, body, is_subgraph)
    low.mirrored, low.mirror_parts = again, parts
    if contexts:
        move_between(low, contexts[1:])
        own_environments(low, contexts[1:], contexts[0])
    passes.apply(low, off, moved=bool(contexts))
    new = Program(low)
    with _lock:
        if owned:
            return _in_use.setdefault(key, new)
        program = _cache.setdefault(key, new)
        if len(_cache) > _CACHE_SIZE:
            _cache.popitem(last=False)
    return program
