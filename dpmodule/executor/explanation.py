"""Records that `Executor.explain` returns, and their text."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from ..graph.node import printable


class MemoryHolder(NamedTuple):
    """A holder of memory at the peak of a run.

    Attributes:
        what: "argument", "gradient array", "state" or "output"; for results of a run, "value" of a node, "kept" for
            other data that its gradient needs, "gradient" of a value, "new gradient" of an argument; "copy" of an
            argument in another layout or on another device.
    """

    what: str
    name: str
    nbytes: int


@dataclass(frozen=True, slots=True)
class MemoryUse:
    """Memory of an executor's tensors, in bytes.

    Attributes:
        outputs: the last outputs, which forward replaces at its end.
        forward: peak memory of the results of a run in forward.
        backward: the same from the end of forward to the end of backward; 0 without backward.
        measured: True if `forward` and `backward` were measured, False if they are estimated from the shapes.
        freed: the part of `gradients` that is freed before backward begins: large ones, which new memory replaces.
        holders: the largest holders of memory at the peak, estimated from the shapes, the largest first.
    """

    arguments: int
    gradients: int
    states: int
    outputs: int
    forward: int
    backward: int
    measured: bool = False
    freed: int = 0
    holders: tuple[MemoryHolder, ...] = field(default=(), compare=False)

    @property
    def bound(self) -> int:
        """Memory of the arrays that live as long as the executor, without outputs."""
        return self.arguments + self.gradients + self.states

    @property
    def peak(self) -> int:
        """The peak memory."""
        return self.bound + max(self.outputs + self.forward, self.backward - self.freed)

    @property
    def peaks_in_backward(self) -> bool:
        """True if the peak is in backward."""
        return self.backward - self.freed > self.outputs + self.forward

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
            lines.append("largest at the peak (estimated):")
        sizes = [_bytes(holder.nbytes) for holder in self.holders]
        width = max(map(len, sizes), default=0)
        lines += [
            f"  {size:>{width}}  {each.what} {printable(each.name)}"
            for size, each in zip(sizes, self.holders, strict=True)
        ]
        return "\n".join(lines)


@dataclass(frozen=True, slots=True)
class ProgramSource:
    """A program's source, and the passes that produced it.

    Attributes:
        fired: number of rewrites of each pass, by its name, without passes that found nothing.
        idle: names of passes that found nothing to do.
        off: names of passes that did not run: they are disabled, hide results from a monitor, or do not support graphs
            on several devices.
        run: how the program runs if `compile` or `cuda_graphs` was requested, with the reason if it does not use them;
            else "".
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
        nodes: all nodes that it computes, in the graph's order; none for a step that a pass added.
        shapes: shapes of its outputs; None if unknown.
        dtype: dtype name of its first output; "" if unknown.
        ragged: True if that output is ragged; operations and memory then count one element per row.
        parameters: number of elements of the parameters that it is the first to read.
        flops: operations of its nodes forward; a multiplication and an addition are two.
        nbytes: memory of its outputs in bytes, even if they share it with its inputs.
        forward_s: time in seconds, if measured.
        backward_s: time of its gradients in seconds, if measured.
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
    """Explanation of what an executor runs; prints as text, also as the last line of a notebook cell.

    Attributes:
        steps: the steps in order.
        merged: nodes without a step, since another step computes the same, or no step needs them.
        flops: operations of a forward run; a multiplication and an addition are two.
        memory: memory of the arrays, and peak memory of a run.
        forward_s: time of a whole forward in seconds, if measured.
        backward_s: time of a whole backward in seconds, if measured.
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
        """Source of the generated functions, and the passes of each."""
        plans = ("predict", self.predict), ("training", self.training)
        texts = (
            f"# {name}: passes: {plan.passes}\n" + (f"# {plan.run}\n" if plan.run else "") + plan.source
            for name, plan in plans
        )
        return "\n".join(texts)

    @property
    def table(self) -> str:
        """The steps as a table."""
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
        """Totals of parameters, operations, memory and time."""
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
                f"time: {_duration(self.forward_s)} forward{backward}, measured as a whole; steps are timed separately"
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
        """The explanation without the source."""
        mode = "training" if self.is_train else "predict"
        passes = (self.training if self.is_train else self.predict).passes
        return f"{mode}: {len(self.steps)} steps; passes: {passes}\n\n{self.table}\n{self.totals}"

    def __repr__(self) -> str:
        return str(self)


def _scaled(value: float, units: Sequence[str], factor: int) -> str:
    """Return a number with three digits and a unit."""
    for unit in units[:-1]:
        if value < factor - 0.5:
            return f"{value:.3g}{unit}" if value < 99.95 else f"{value:.0f}{unit}"
        value /= factor
    return f"{value:,.3g}{units[-1]}" if value < 99.95 else f"{value:,.0f}{units[-1]}"


def _bytes(size: int) -> str:
    return _scaled(size, (" B", " KiB", " MiB", " GiB"), 1024)


def _count(number: int) -> str:
    """Return a count with k, M, G or T; "" for 0."""
    return _scaled(number, ("", " k", " M", " G", " T"), 1000) if number else ""


def _duration(seconds: float | None) -> str:
    return "" if seconds is None else _scaled(seconds * 1e6, (" us", " ms", " s"), 1000)
