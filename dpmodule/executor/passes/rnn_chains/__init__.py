"""Run unrolled recurrent networks by kernels for whole sequences.

A graph that `LSTMCell.unroll` makes has a dozen small operators for every step and layer; one kernel that runs over
the whole sequence needs a tenth of the time or less. What is found is arithmetic, not names: graphs of real MXNet and
of functions that users wrote by hand count as well, whatever the order of their gates.

- `cells` finds the operators that make one step;
- `chains` joins steps to chains, and sees that nothing a chain reads depends on what it makes;
- `sequences` turns lists of values, one for each step, into one tensor;
- `kernels` is what runs.

Needs:
    storage: dense; steps on sparse values are no part of a cell
    rank: steps (N, K) or of more axes, which count as one, or (N,), which count as (N, 1)
    type: one for data, states and weights: float32, float64 or bfloat16, on a GPU float16 too; others run step
        by step
    layout: any
    gradients: any
"""

from __future__ import annotations

import torch

from ...lowering import Lowered, Step
from .cells import Uses, find_cells, kinds
from .chains import Chain, arrange, join_cells
from .kernels import CellStates, Recurrence
from .sequences import Sequences, added, draw_apart

_MIN_LINEARS = 6


def rnn_chains(low: Lowered) -> int:
    """Run every chain of steps of a recurrent network in one call.

    Returns:
        How many chains are found.
    """
    given, found = low.steps, kinds(low)
    if found.count("linear") < _MIN_LINEARS:
        return 0
    low.steps = draw_apart(low, given[found.index("linear")].inputs[1])
    uses = Uses(low, found if low.steps is given else kinds(low))
    chains, order = arrange(uses, join_cells(find_cells(uses)))
    if chains:
        _StepWriter(uses).write(order)
    else:
        low.steps = given
    return len(chains)


def unbind(x: torch.Tensor) -> tuple[torch.Tensor, ...]:
    """Return the steps of a sequence (T, ...).

    Shape:
        x: (T, ...).
        returns: T times (...).
    """
    return x.unbind(0)


def only(x: torch.Tensor) -> torch.Tensor:
    """Return a state without its axis of layers.

    Shape:
        x: (1, N, H).
        returns: (N, H).
    """
    return x[0]


class _StepWriter:
    """Writes the steps anew."""

    def __init__(self, uses: Uses) -> None:
        self._uses = uses
        self._low = uses.low
        self._steps: list[Step] = []
        self._sequences = Sequences(uses, self._steps)

    def write(self, order: list[int | Chain]) -> None:
        """Replace the steps."""
        for item in order:
            if isinstance(item, Chain):
                self._write_chain(item)
            else:
                self._steps.append(self._sequences.merge(item) or self._low.steps[item])
        self._low.steps = self._without_unread()

    def _write_chain(self, chain: Chain) -> None:
        """Append the kernel's step, and those that take its results apart."""
        low, cells = self._low, chain.cells
        mode, name = cells[0].mode, low.names[cells[-1].hidden]
        data = self._sequences.of(chain.inputs)
        if data is None:
            data = self._sequences.stacked(chain.inputs)
        biases = chain.weights[2] >= 0, chain.weights[3] >= 0
        recurrence = Recurrence(mode, chain.orders, biases)
        inputs = [data, *self._begin_of(chain), *(value for value in chain.weights if value >= 0)]
        hidden = low.new_value(f"{name}_all")
        last = [low.new_value(f"{name}_last{i}") for i in range(len(chain.begin))]
        step = added(recurrence, mode, inputs, [hidden, *last])
        self._sequences.replaced.update(low.steps[i].outputs[0] for cell in cells for i in cell.mapping)
        inner = [low.steps[i] for cell in cells for i in cell.steps | cell.mapping]
        step.covers = tuple(sorted({number for each in inner for number in (each.node, *each.covers)}))
        self._steps.append(step)
        self._take_apart(hidden, last[0], [cell.hidden for cell in cells])
        if mode == "lstm":
            states = self._sequences.new(
                CellStates(recurrence), "cell_states", [hidden, *inputs], cells[-1].cell
            )
            self._take_apart(states, last[1], [cell.cell for cell in cells])

    def _begin_of(self, chain: Chain) -> list[int]:
        """Return the begin states; the same zeros serve both states of an LSTM."""
        kinds = set()
        for value in chain.begin:
            index = self._uses.made.get(value, (-1, 0))[0]
            op, a = self._low.operator(self._low.steps[index]) if index >= 0 else (None, None)
            kinds.add(None if op is None or op.name != "_zeros" else str(a.dtype))  # type: ignore[union-attr]
        if len(kinds) == 1 and None not in kinds:
            return chain.begin[:1] * len(chain.begin)
        return list(chain.begin)

    def _take_apart(self, whole: int, last: int, parts: list[int]) -> None:
        """Append the steps that give the single states, of which the last one has been computed already."""
        self._sequences.add(whole, parts)
        rest = self._low.new_value(f"{self._low.names[parts[-1]]}_too")
        self._steps.append(added(unbind, "unbind", [whole], [*parts[:-1], rest]))
        self._steps.append(added(only, "only", [last], parts[-1:]))

    def _without_unread(self) -> list[Step]:
        """Return the steps without those added or replaced here that nobody reads."""
        read = self._low.kept()
        steps = []
        for step in reversed(self._steps):
            may_go = step.node < 0 or step.outputs[0] in self._sequences.replaced
            if not may_go or step.own_env or not read.isdisjoint(step.outputs):
                read.update(step.inputs)
                steps.append(step)
        return steps[::-1]
