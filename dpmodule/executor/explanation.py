"""What `Executor.explain` returns: records, and the text that they print as."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..graph.node import printable


class MemoryHolder(NamedTuple):
    """What holds memory when most is held.

    Attributes:
        what: "argument", "gradient array", "state" or "output"; of what a run makes, "value" of a node, "kept" for its
            gradient beside values, or "gradient" of its value, "new gradient" of an argument; "copy" of an argument,
            in another layout or place.
    """

    what: str
    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of an executor's tensors, in bytes.

    Attributes:
        outputs: the arrays of the last outputs, which forward replaces at its end.
        forward: the most that a run has made, and not yet freed, at a time in forward.
        backward: the same from there to the end of backward; 0 where none follows.
        measured: whether `forward` and `backward` were measured; else they are estimated by the shapes.
        given_up: the part of `gradients` that goes before backward begins: large ones of the last backward, whose
            memory the new ones replace.
        holders: what holds most when most is held, estimated by the shapes, the largest first.
    """

    arguments: int
    gradients: int
    states: int
    outputs: int
    forward: int
    backward: int
    measured: bool = False
    given_up: int = 0
    holders: tuple[MemoryHolder, ...] = field(default=(), compare=False)

    @property
    def bound(self) -> int:
        """Memory of the arrays that live as long as the executor, outputs aside."""
        return self.arguments + self.gradients + self.states

    @property
    def peak(self) -> int:
        """The most memory at a time."""
        return self.bound + max(self.outputs + self.forward, self.backward - self.given_up)

    @property
    def peaks_in_backward(self) -> bool:
        """Whether that is in backward."""
        return self.backward - self.given_up > self.outputs + self.forward

    def __str__(self) -> str:
        how = "measured" if self.measured else "estimated"
        parts = ("arguments", "gradients", "states", "outputs")
        arrays = ", ".join(f"{part} {_bytes(getattr(self, part))}" for part in parts if getattr(self, part))
        later = f", {_bytes(self.backward)} in backward" if self.backward else ""
        lines = [
            f"memory of arrays: {arrays}",
            f"memory of a run ({how}): {_bytes(self.forward)} in forward{later}; at most {_bytes(self.peak)} in all",
        ]
        if self.holders:
            lines.append("what holds most then (estimated):")
        sizes = [_bytes(each.nbytes) for each in self.holders]
        width = max(map(len, sizes), default=0)
        lines += [
            f"  {size:>{width}}  {each.what} {printable(each.name)}"
            for size, each in zip(sizes, self.holders, strict=True)
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """A program's source, and how it came about.

    Attributes:
        fired: how many places each pass has rewritten, by its name; passes that found nothing are not in it.
        idle: names of passes that ran and found nothing to do.
        off: names of passes that did not run: they are switched off, hide what a monitor watches, or are not for
            graphs on several devices.
        run: how it is run where `compile` or `cuda_graphs` were asked for, with the reason if it is not that way;
            "" where they were not.
    """

    is_train: bool
    source: str
    fired: Mapping[str, int]
    idle: tuple[str, ...]
    off: tuple[str, ...]
    run: str = ""

    @property
    def passes(self) -> str:
        """A line about the passes."""
        parts = [", ".join(f"{name} {count}" for name, count in self.fired.items()) or "none fired"]
        parts += [
            f"{what}: {', '.join(names)}" for what, names in (("idle", self.idle), ("off", self.off)) if names
        ]
        return "; ".join(parts)


@dataclass(frozen=True, slots=True)
class StepRow:
    """One step of a plan.

    Attributes:
        operator: the node's operator; for steps that a pass added, the function's name.
        nodes: all nodes whose work it does, in the graph's order; none for a step that a pass added.
        shapes: shapes of its outputs; None where it is not known.
        dtype: dtype name of its first output, "" where it is not known.
        ragged: whether that output is ragged; operations and memory then count one element a row.
        parameters: elements of the parameters that it is the first to read.
        flops: operations of its nodes forward; a multiplication and an addition are two.
        nbytes: memory of its outputs in bytes, whether or not they share it with its inputs.
        forward_s: seconds it takes, if they were measured.
        backward_s: seconds its gradients take, if they were measured.
    """

    name: str
    operator: str
    nodes: tuple[str, ...]
    shapes: tuple[tuple[int, ...] | None, ...]
    dtype: str
    parameters: int
    flops: int
    backward_flops: int
    nbytes: int
    forward_s: float | None = None
    backward_s: float | None = None
    ragged: bool = False

    def cells(self) -> list[str]:
        """Return the row's texts, one per column."""
        others = len(self.nodes) - 1
        shapes = self.shapes if len(self.shapes) < 4 else (*self.shapes[:2], None)
        known = [str(s) for s in shapes if s is not None]
        return [
            f"{printable(self.name)} +{others}" if others > 0 else printable(self.name),
            self.operator,
            ", ".join(known) + (" ..." if known and len(known) < len(self.shapes) else ""),
            f"{self.dtype}, ragged" if self.ragged else self.dtype,
            f"{self.parameters:,}" if self.parameters else "",
            _count(self.flops),
            _bytes(self.nbytes) if self.nbytes else "",
            _duration(self.forward_s),
            _duration(self.backward_s),
        ]


@dataclass(frozen=True, slots=True, repr=False)
class ExecutorExplanation:
    """What an executor runs. Printed, or as the last line of a notebook's cell, it shows itself as text.

    Attributes:
        steps: the steps in order.
        merged: nodes that no step stands for, since another computes the same, or nobody needs them.
        flops: operations of a forward run; a multiplication and an addition are two.
        memory: memory of arrays, and of a run at its worst moment.
        forward_s: seconds of a whole forward run, if they were measured.
        backward_s: seconds of a whole backward run, if they were measured.
    """

    is_train: bool
    predict: ProgramSource
    training: ProgramSource
    steps: tuple[StepRow, ...]
    merged: tuple[str, ...]
    parameters: int
    flops: int
    backward_flops: int
    memory: MemoryUse
    forward_s: float | None = None
    backward_s: float | None = None

    @property
    def source(self) -> str:
        """Source of the generated functions, and what the passes did for each."""
        plans = ("predict", self.predict), ("training", self.training)
        texts = (
            f"# {name}: passes: {plan.passes}\n" + (f"# {plan.run}\n" if plan.run else "") + plan.source
            for name, plan in plans
        )
        return "\n".join(texts)

    @property
    def table(self) -> str:
        """The steps as a table; steps that take time in per cent of all, if it was measured."""
        head = ["step", "operator", "output", "type", "parameters", "FLOPs", "memory", "forward", "backward"]
        rows = [head, *(row.cells() for row in self.steps)]
        columns = [list(column) for column in zip(*rows) if any(column[1:])]
        widths = [max(map(len, column)) for column in columns]
        left = ("step", "operator", "output", "type")
        lines = [
            "  ".join(
                cell.ljust(width) if column[0] in left else cell.rjust(width)
                for cell, width, column in zip(cells, widths, columns)
            ).rstrip()
            for cells in zip(*columns)
        ]
        rule = "-" * max(map(len, lines))
        return "\n".join([lines[0], rule, *lines[1:], rule])

    @property
    def totals(self) -> str:
        """Parameters, operations, memory and time of the whole."""
        both = self.flops + self.backward_flops
        later = f", {_count(both)} with backward (about)" if self.backward_flops else ""
        lines = [
            f"parameters: {self.parameters:,}",
            f"FLOPs: {_count(self.flops) or 0} forward{later}; a multiplication and an addition are 2",
            str(self.memory),
        ]
        if self.forward_s is not None:
            backward = f", {_duration(self.backward_s)} backward" if self.backward_s else ""
            lines.append(
                f"time: {_duration(self.forward_s)} forward{backward}, as a whole; steps are timed one by one"
            )
        if any(step.ragged for step in self.steps):
            lines.append("FLOPs and memory count one element in each row of a ragged value")
        if self.merged:
            lines.append(f"not run, or part of other steps: {', '.join(self.merged)}")
        return "\n".join(lines)

    def __str__(self) -> str:
        return f"{self.source}\n{self.summary}"

    @property
    def summary(self) -> str:
        """All but the source."""
        mode = "training" if self.is_train else "predict"
        passes = (self.training if self.is_train else self.predict).passes
        return f"{mode}: {len(self.steps)} steps; passes: {passes}\n\n{self.table}\n{self.totals}"

    def __repr__(self) -> str:
        return str(self)


def _scaled(value: float, units: Sequence[str], factor: int) -> str:
    """Return a number of three digits with a unit."""
    for unit in units[:-1]:
        if value < factor - 0.5:
            return f"{value:.3g}{unit}" if value < 99.95 else f"{value:.0f}{unit}"
        value /= factor
    return f"{value:,.3g}{units[-1]}" if value < 99.95 else f"{value:,.0f}{units[-1]}"


def _bytes(size: int) -> str:
    return _scaled(size, (" B", " KiB", " MiB", " GiB"), 1024)


def _count(number: int) -> str:
    """Return a count with k, M, G or T; nothing for 0."""
    return _scaled(number, ("", " k", " M", " G", " T"), 1000) if number else ""


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else _scaled(seconds * 1e6, (" us", " ms", " s"), 1000)
