"""`InspectedRunner`: looking at the programs of a runner, their costs and their memory."""

from __future__ import annotations

from collections.abc import Collection, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch

from ..base import dtype_name
from ..ops.sparse import leaf_of
from .program import Program
from .runner import Runner
from .runs import Run, Starts

if TYPE_CHECKING:
    from .explanation import Explanation, Memory
    from .rehearsal import Rehearsal

__all__ = ["InspectedRunner"]


class InspectedRunner(Runner):
    """A `Runner` whose programs can be looked at."""

    def program(self, is_train: bool) -> Program:
        """Return the program that runs in training mode, or for prediction."""
        return self._prepare(is_train, is_train).program

    def way_to_run(self, is_train: bool) -> str:
        """Return how the program is run, where options ask for more than calling it; "" where they do not.

        Args:
            is_train: training mode.
        """
        compiled = self._compiled.get(self.program(is_train))
        return "" if compiled is None else compiled.state

    @contextmanager
    def rehearsal(self, is_train: bool) -> Iterator[Rehearsal]:
        """Let the program run inside the block as often as wanted, on the arrays as they are.

        Nothing of it stays: outputs, gradients, states, what backward needs and random numbers are as before.

        Args:
            is_train: training mode.
        """
        from .rehearsal import Rehearsal  # only few programs ask

        prepared = self._prepare(is_train, is_train)
        program, env, shaped = prepared

        def starts(result: tuple[Any, ...]) -> Starts:
            ones = [
                None if self._backward.ignores_head(i, None) else torch.ones_like(leaf_of(root))
                for i, root in enumerate(result[1])
            ]
            return self._starts(Run(prepared, values, aliases, result), ones)

        before = torch.is_grad_enabled()
        torch.set_grad_enabled(False)
        try:
            with self._repeating(program):
                values, aliases = self._inputs(recorded=is_train)
                call = self._compiled.get(program, program.forward)
                gpus = tuple({c.torch_device: c for c in self._contexts if c.torch_device.type == "cuda"})
                yield Rehearsal(program, env, shaped, values, aliases, call, starts, gpus)
        finally:
            torch.set_grad_enabled(before)

    def explain(
        self,
        is_train: bool | None = None,
        times: bool = False,
        measure_memory: bool = False,
        parameters: Collection[str] | None = None,
        repeats: int = 5,
    ) -> Explanation:
        """Return what this executor runs: generated source, passes, and a table of steps; print it to read it.

        Times and memory are measured by running on the arrays as they are; values, outputs and random numbers stay
        the same. Operators written by users run, too. For what happens inside of steps there is `mx.profiler`.

        Args:
            is_train: whether the table is about training; None = if gradients are kept.
            times: also measure the time of every step, forward and backward.
            measure_memory: measure the memory of a run instead of estimating it.
            parameters: names of the arguments that are parameters; None = those that operators declare to be.
            repeats: how often steps are run for their times, of which the medians are shown.

        Raises:
            StateError: memory is to be measured while a profiler runs.

        Example:
            >>> net = mx.sym.FullyConnected(mx.sym.Variable("data"), num_hidden=3, name="fc")
            >>> found = net.simple_bind(mx.cpu(), data=(2, 4)).explain()
            >>> [step.name for step in found.steps], found.parameters, found.flops
            (['fc'], 15, 48)
        """
        from .explain import explain  # only few programs ask

        is_train = bool(self._backward.targets) if is_train is None else is_train
        return explain(self, is_train, times, measure_memory, parameters, repeats)

    def memory(self, is_train: bool | None = None, measure: bool = False) -> Memory:
        """Return how much memory tensors take in a run.

        Args:
            is_train: whether the run is one in training, with backward if gradients are kept; None = if they are.
            measure: run once and see, instead of estimating by the shapes. The first time takes a second.

        Raises:
            StateError: it is to be measured while a profiler runs.
        """
        from .explain import memory_of

        return memory_of(self, bool(self._backward.targets) if is_train is None else is_train, measure)

    @property
    def peak_bytes(self) -> int:
        """The most memory that tensors take at a time in a run, in bytes, estimated by their shapes.

        This is ``memory().peak``; ``memory(measure=True).peak`` measures it.
        """
        return self.memory().peak

    def debug_str(self) -> str:
        """Return the source of the generated functions, predict and training, and the memory they work in.

        The last two lines have MXNet's form, as programs cut the number out of the first of them; it is what the
        operators' results take by their shapes, all of them where there are gradients, else at the worst moment.
        """
        from .cost import intermediate_bytes  # only few programs ask

        sources = [f"# is_train={mode}\n{self._prepare(mode, mode).program.source}" for mode in (False, True)]
        bound = {**self.arg_dict, **self.aux_dict}
        size = intermediate_bytes(
            self.graph,
            {name: array.shape for name, array in bound.items()},
            {name: dtype_name(array.dtype) for name, array in bound.items()},
            training=bool(self._backward.targets),
        )
        total = f"Total {size // 2**20} MB allocated\nTotal 0 TempSpace resource requested\n"
        return "\n".join([*sources, total])
