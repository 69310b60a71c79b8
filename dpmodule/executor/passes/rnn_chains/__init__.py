"""Run unrolled recurrent networks with kernels for whole sequences.

A graph from `LSTMCell.unroll` has a dozen small operators for every step and layer; one kernel for the whole sequence
takes a tenth of the time or less. Cells are matched by their arithmetic, not by names: graphs of real MXNet and
handwritten cells match as well, with any order of gates.

- `cells` finds the operators of one step;
- `chains` joins steps to chains, and checks that no input of a chain depends on its outputs;
- `sequences` combines lists of values, one for each step, into one tensor;
- `kernels` contains the functions that run.

Needs:
    storage: dense; steps on sparse values are not part of a cell
    rank: steps (N, K), or with more axes, which are flattened, or (N,), which count as (N, 1)
    type: one for data, states and weights: float32, float64 or bfloat16, on a GPU float16 too; others run step by step
    layout: any
    gradients: any
"""

from __future__ import annotations

from operator import itemgetter

import torch

from ...lowering import Lowered, Step
from .cells import DefUse, find_cells, kinds
from .chains import Chain, arrange, join_cells
from .kernels import CellStates, Recurrence
from .sequences import Sequences, added, split_dropouts

_MIN_LINEARS = 6


def rnn_chains(low: Lowered) -> int:
    """Run every chain of steps of a recurrent network in one call.

    Returns:
        Number of chains.
    """
    steps_before, step_kinds = low.steps, kinds(low)
    if step_kinds.count("linear") < _MIN_LINEARS:
        return 0
    low.steps = split_dropouts(low, steps_before[step_kinds.index("linear")].inputs[1])
    uses = DefUse(low, step_kinds if low.steps is steps_before else kinds(low))
    chains, order = arrange(uses, join_cells(find_cells(uses)))
    if chains:
        _StepWriter(uses).write(order)
    else:
        low.steps = steps_before
    return len(chains)


class _StepWriter:
    """Writes the new list of steps."""

    def __init__(self, uses: DefUse) -> None:
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
        """Append the kernel's step, and the steps that split its results."""
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
        self._split(hidden, last[0], [cell.hidden for cell in cells])
        if mode == "lstm":
            states = self._sequences.new(
                CellStates(recurrence), "cell_states", [hidden, *inputs], cells[-1].cell
            )
            self._split(states, last[1], [cell.cell for cell in cells])

    def _begin_of(self, chain: Chain) -> list[int]:
        """Return the initial states; both states of an LSTM can share the same zeros."""
        kinds = set()
        for value in chain.begin:
            index = self._uses.made.get(value, (-1, 0))[0]
            op, a = self._low.operator(self._low.steps[index]) if index >= 0 else (None, None)
            kinds.add(None if op is None or op.name != "_zeros" else str(a.dtype))  # type: ignore[union-attr]
        is_shared = len(kinds) == 1 and None not in kinds
        return chain.begin[:1] * len(chain.begin) if is_shared else chain.begin

    def _split(self, whole: int, last: int, parts: list[int]) -> None:
        """Append the steps that return the single states; the kernel has already returned the last one."""
        self._sequences.add(whole, parts)
        rest = self._low.new_value(f"{self._low.names[parts[-1]]}_too")
        self._steps.append(added(torch.unbind, "unbind", [whole], [*parts[:-1], rest]))
        self._steps.append(added(itemgetter(0), "only", [last], parts[-1:]))

    def _without_unread(self) -> list[Step]:
        """Return the steps without unread ones that were added or replaced here."""
        read = self._low.kept()
        steps = []
        for step in reversed(self._steps):
            may_go = step.node < 0 or step.outputs[0] in self._sequences.replaced
            if not may_go or step.own_env or not read.isdisjoint(step.outputs):
                read.update(step.inputs)
                steps.append(step)
        return steps[::-1]
