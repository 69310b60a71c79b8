"""Combining lists of values, one for each step, into one tensor with the time steps along its first axis.

Lists that come from one tensor are not stacked: pieces of one tensor, the states of one chain, and the results of the
same operator on such lists.

Dropout is split into two steps: drawing a mask, and applying it. Between the layers of an unrolled network, dropout is
one operator for each time step and layer, and their random numbers come from one generator in the order of the
operators. Drawn by separate steps, which read no output of a chain, they keep that order while whole layers run one
after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch

from ....ops.nn.activation import bernoulli_mask
from ....ops.nn.layer_shapes import flat_from
from ....ops.spec import Env
from ...lowering import Lowered, Step
from .cells import DefUse

_MIN_STEPS = 3


def draw(a: Any, env: Env, like: torch.Tensor) -> torch.Tensor:
    """Return ones for kept elements and zeros for others; an empty tensor if no element is dropped.

    Shape:
        like, returns: of any one shape; (0,) if no element is dropped.
    """
    if not env.is_train:
        return like.new_empty(0)
    return bernoulli_mask(1.0 - a.p, list(env.out_shapes[0]), like.detach(), env.generator)


@dataclass(frozen=True, slots=True)
class AppliedMask:
    """Apply a mask like `Dropout`: set elements to zero and scale the others.

    Shape:
        x, mask, result: of one shape; mask (0,) if no element is dropped.
    """

    p: float

    def __call__(self, x: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
        """Return the masked value or sequence."""
        if not mask.numel():
            return x
        return x * mask.to(x.dtype).div(1.0 - self.p)


def _is_dropout(low: Lowered, step: Step) -> bool:
    op, a = low.operator(step)
    return op is not None and op.name == "Dropout" and a.mode == "training" and a.p > 0 and not a.axes


def split_dropouts(low: Lowered, like: int) -> list[Step]:
    """Return the steps with every dropout split in two, if there are several and backward may follow."""
    if not low.recorded or like >= low.num_variables:
        return low.steps
    if sum(step.takes_env and _is_dropout(low, step) for step in low.steps) < _MIN_STEPS:
        return low.steps
    steps: list[Step] = []
    for step in low.steps:
        if not _is_dropout(low, step):
            steps.append(step)
            continue
        _, a = low.operator(step)
        (data,) = step.inputs
        mask = low.new_value(f"{low.names[step.outputs[0]]}_kept")
        steps.append(
            replace(step, function=draw, name="draw", inputs=[like], outputs=[mask], needs_shapes=True)
        )
        applied = Step(AppliedMask(a.p), "dropped", None, [data, mask], step.outputs, -1, takes_env=False)
        applied.covers = step.node, *step.covers
        steps.append(applied)
    return steps


_MAX_DEPTH = 50
"""Maximal depth of a search; deeper residual networks reuse the results for lower layers."""


def _time_first(axis: int, count: int, squeezed: bool, x: torch.Tensor) -> torch.Tensor:
    """Move the split axis (0 or 1) to the front, like stacking the pieces.

    Shape:
        x: (N, T * k, ...), or with the two axes changed.
        returns: (T, N, k, ...); without k if pieces lack the axis.

    Args:
        count: number of pieces.
        squeezed: True if the pieces lack the axis.
    """
    if not squeezed or x.dim() == 1:  # pieces of a vector keep the axis
        shape = x.shape
        x = x.reshape(*shape[:axis], count, -1, *shape[axis + 1 :])
    return x.transpose(0, 1) if axis else x


def _part(start: int, stop: int, flipped: bool, x: torch.Tensor) -> torch.Tensor:
    """Select steps of a sequence (T, ...), in their order or reversed."""
    if stop - start != x.shape[0]:
        x = x[start:stop]
    return x.flip(0) if flipped else x


def _merged(axis: int, flat: bool, x: torch.Tensor) -> torch.Tensor:
    """Bring a sequence (T, N, ...) into the form of a stacked list, or if `flat` of a concatenated one."""
    if axis:
        x = x.transpose(0, 1)
    return x.flatten(axis, axis + 1) if flat else x


@dataclass(frozen=True, slots=True)
class RowFunction:
    """Apply a function of rows to all steps of a sequence in one call.

    Shape:
        x: (T, N, ...).
        returns: (T, N, ...).
    """

    function: Callable[..., torch.Tensor]

    def __call__(self, x: torch.Tensor, *rest: torch.Tensor) -> torch.Tensor:
        """Return the function's result for every step."""
        rows = self.function(x.flatten(0, 1), *rest)
        return rows.view(*x.shape[:2], *rows.shape[1:])


def stacked(*steps: torch.Tensor) -> torch.Tensor:
    """Return steps as one sequence; rows are flattened if the shapes of steps differ.

    Shape:
        steps: (...) each.
        returns: (T, ...).
    """
    if any(step.shape != steps[0].shape for step in steps):
        steps = tuple(flat_from(step, 1) for step in steps)
    return torch.stack(steps)


def added(function: Callable[..., Any], name: str, inputs: Sequence[int], outputs: Sequence[int]) -> Step:
    """Return a step without a node."""
    return Step(function, name, None, list(inputs), list(outputs), -1, takes_env=False)


class Sequences:
    """Finds lists of values that are parts of one tensor, and appends the steps that compute it.

    Attributes:
        replaced: values that are no longer needed, unless they have readers outside the sequence.
    """

    def __init__(self, uses: DefUse, steps: list[Step]) -> None:
        self.replaced: set[int] = set()
        self._uses = uses
        self._steps = steps
        self._whole: dict[Any, int] = {}
        self._positions: dict[int, tuple[Any, int]] = {}
        self._counts: dict[Any, int] = {}
        self._known: dict[tuple[int, ...], int | None] = {}
        for index, step in enumerate(uses.low.steps):
            op, a = uses.low.operator(step)
            if (
                op is not None
                and op.name == "SliceChannel"
                and a.num_outputs >= _MIN_STEPS
                and a.axis in (0, 1)
            ):
                self._add_parts(index, step.outputs)

    def add(self, whole: int, parts: Sequence[int]) -> None:
        """Register values as the steps of a sequence."""
        self._whole[-1 - whole] = whole
        self._add_parts(-1 - whole, parts)

    def _add_parts(self, source: int, parts: Sequence[int]) -> None:
        self._counts[source] = len(parts)
        self._positions.update((value, (source, position)) for position, value in enumerate(parts))

    def new(self, function: Callable[..., Any], name: str, inputs: Sequence[int], like: int) -> int:
        """Append a step, and return its result."""
        value = self._uses.low.new_value(f"{self._uses.low.names[like]}_{name}")
        self._steps.append(added(function, name, inputs, [value]))
        return value

    def of(self, values: Sequence[int], depth: int = 0) -> int | None:
        """Return a list as one value, (T, ...); None if it does not come from one."""
        key = tuple(values)
        if depth > _MAX_DEPTH:
            return None
        if key not in self._known:
            positions = [self._positions.get(value) for value in key]
            self._known[key] = (
                self._part(positions, key[0]) if positions[0] else self._made_by_one_operator(key, depth + 1)
            )
        return self._known[key]

    def _made_by_one_operator(self, values: tuple[int, ...], depth: int) -> int | None:
        """Return a list as the result of one operator on whole sequences, if the same operator makes every step."""
        makers = [self._uses.made.get(value, (-1, 0))[0] for value in values]
        if min(makers) < 0:
            return None
        steps = [self._uses.low.steps[index] for index in makers]
        if not self._are_equal(steps):
            return None
        columns = list(zip(*(step.inputs for step in steps), strict=True))
        find = _FINDERS.get(self._name(steps[0]))
        inputs = None if find is None else find(self, values, columns, depth)
        if inputs is None:
            return None
        value = self._uses.low.new_value(f"{self._uses.low.names[values[0]]}_{steps[0].name}")
        function = self._for_sequences(steps[0])
        self._steps.append(
            replace(steps[0], function=function, inputs=inputs, outputs=[value], node=-1, covers=())
        )
        self.replaced.update(values)
        return value

    def _name(self, step: Step) -> str:
        """Return the key of an operator in `_FINDERS`; "" for one that does not work on rows."""
        op, a = self._uses.low.operator(step)
        if op is None:
            return "AppliedMask" if isinstance(step.function, AppliedMask) else ""
        return "" if op.name == "Concat" and a.dim < 1 else op.name

    def _for_sequences(self, step: Step) -> Callable[..., Any]:
        """Return the version of a step's function for a whole sequence."""
        op, a = self._uses.low.operator(step)
        if op is not None and op.name == "Concat":
            return lambda *parts: torch.cat(parts, a.dim + 1)
        return RowFunction(step.function) if op is not None and op.name == "FullyConnected" else step.function

    def _are_equal(self, steps: Sequence[Step]) -> bool:
        """Return True if all steps run the same operator on as many inputs."""
        low = self._uses.low
        operator, function, count = low.operator(steps[0]), steps[0].function, len(steps[0].inputs)
        return all(
            low.operator(step) == operator
            and len(step.inputs) == count
            and (operator[0] is not None or step.function == function)
            and not (step.needs_shapes or step.own_env)
            for step in steps
        )

    def _all(self, values: tuple[int, ...], columns: list[tuple[int, ...]], depth: int) -> list[int] | None:
        """Return the inputs of an operator on several sequences."""
        parts = [self.of(column, depth) for column in columns]
        known = [part for part in parts if part is not None]
        return known if len(known) == len(parts) else None

    def _with_constants(
        self, values: tuple[int, ...], columns: list[tuple[int, ...]], depth: int
    ) -> list[int] | None:
        """Return the inputs of an operator on a sequence and on values that are equal at every step."""
        data, *others = columns
        if any(len(set(column)) > 1 for column in others):
            return None
        if any(value in self._uses.kept or len(self._uses.readers.get(value, ())) > 1 for value in values):
            return None  # it would be computed twice
        whole = self.of(data, depth)
        return None if whole is None else [whole, *(column[0] for column in others)]

    def _with_masks(
        self, values: tuple[int, ...], columns: list[tuple[int, ...]], depth: int
    ) -> list[int] | None:
        """Return the inputs of a dropout of a sequence."""
        whole = self.of(columns[0], depth)
        return None if whole is None else [whole, self.stacked(columns[1])]

    def stacked(self, values: Sequence[int]) -> int:
        """Return a list as one stacked value, (T, ...)."""
        return self.new(stacked, "stacked", values, values[0])

    def _part(self, places: Sequence[tuple[Any, int] | None], like: int) -> int | None:
        """Return a run of steps of one sequence."""
        known = [place for place in places if place is not None]
        sources, positions = {source for source, _ in known}, [position for _, position in known]
        if len(sources) > 1 or None in places:
            return None
        first, last, count = positions[0], positions[-1], len(positions)
        flipped = last < first
        run = range(first, first - count, -1) if flipped else range(first, first + count)
        if positions != list(run):
            return None
        (source,) = sources
        whole = self._source(source)
        part = partial(_part, min(first, last), max(first, last) + 1, flipped)
        if count == self._counts[source] and not flipped:
            return whole
        return self.new(part, "flipped" if flipped else "part", [whole], like)

    def _source(self, source: int) -> int:
        if source not in self._whole:
            step = self._uses.low.steps[source]
            _, a = self._uses.low.operator(step)
            function = partial(_time_first, a.axis, a.num_outputs, bool(a.squeeze_axis))
            self._whole[source] = self.new(function, "time_first", step.inputs, step.inputs[0])
        return self._whole[source]

    def merge(self, index: int) -> Step | None:
        """Return a replacement of a step that stacks or concatenates a list; None for any other step."""
        step = self._uses.low.steps[index]
        op, a = self._uses.low.operator(step)
        if op is None or op.name not in ("Concat", "stack") or len(step.inputs) < _MIN_STEPS:
            return None
        axis = a.dim if op.name == "Concat" else a.axis
        if axis not in (0, 1):
            return None
        inner = [self._expanded(value, axis) for value in step.inputs] if op.name == "Concat" else []
        own = op.name == "stack" or -1 not in inner
        sequence = self.of(inner if op.name == "Concat" and own else step.inputs)
        if sequence is None:
            return None
        merged = added(partial(_merged, axis, not own), "merged", [sequence], step.outputs)
        merged.covers = (step.node, *step.covers)
        return merged

    def _expanded(self, value: int, axis: int) -> int:
        """Return the input of the `expand_dims` that made a value; -1 if another operator made it."""
        index, _ = self._uses.made.get(value, (-1, 0))
        if index < 0:
            return -1
        step = self._uses.low.steps[index]
        op, a = self._uses.low.operator(step)
        return step.inputs[0] if op is not None and op.name == "expand_dims" and a.axis == axis else -1


_Finder = Callable[[Sequences, tuple[int, ...], list[tuple[int, ...]], int], "list[int] | None"]

_FINDERS: dict[str, _Finder] = {
    "Concat": Sequences._all,
    "elemwise_add": Sequences._all,
    "AppliedMask": Sequences._with_masks,
    **dict.fromkeys(
        ("Activation", "Embedding", "FullyConnected", "relu", "sigmoid", "tanh"), Sequences._with_constants
    ),
}
